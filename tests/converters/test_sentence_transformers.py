"""Folders of sentence-transformers: vectors as its own modules compute them, here in NumPy."""

import json
import re
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_lm import models, tasks
from keras_lm.converters import CheckpointError, open_checkpoint, sentence_transformers
from keras_lm.converters.sentence_transformers import read_inputs
from keras_lm.tokenizers import Tokenizer

pytestmark = pytest.mark.eager

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "query", ":", "a", "good", "film", "was", "Paris", "paris", "!"]
TEXTS = ["Paris was a good film !", "a film", ""]
MODEL = "config_sentence_transformers"
IDENTITY = "torch.nn.modules.linear.Identity"
TANH = "torch.nn.modules.activation.Tanh"
FLAGS = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")
FLAGS = [f"pooling_mode_{flag}" for flag in (*FLAGS, "lasttoken")]
# In the order in which sentence-transformers joins them; x is (S, D) without padding.
POOLINGS = {
    "cls": lambda x: x[0],
    "max": lambda x: x.max(0),
    "mean": lambda x: x.mean(0),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / len(x) ** 0.5,
    "weightedmean": lambda x: np.average(x, axis=0, weights=np.arange(len(x)) + 1),
    "lasttoken": lambda x: x[-1],
}


@pytest.fixture(scope="module")
def network(goldens, tmp_path_factory):
    """A folder with the first block of a BERT, without heads; its vocabulary is cased."""
    folder = tmp_path_factory.mktemp("network")
    tensors = load_file(goldens("bert") / "model.safetensors")
    of_first = re.compile(r"bert\.(embeddings|encoder\.layer\.0|pooler)\.")
    tensors = {name: value for name, value in tensors.items() if of_first.match(name)}
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((goldens("bert") / "config.json").read_text())
    write(folder / "config.json", config | {"num_hidden_layers": 1})
    words = WORDS + [f"[unused{i}]" for i in range(211 - len(WORDS))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    write(folder / "tokenizer_config.json", {"do_lower_case": False, "model_max_length": 512})
    return folder


@pytest.fixture
def make(network, tmp_path):
    """`make(pooling, *modules, …)` writes a folder: modules are (class, configuration, tensors).

    `files` are further JSON files, by their paths without `.json`.
    """

    def make(pooling=None, *modules, layout="", files=(), root="sentence_transformers.models"):
        folder = tmp_path / "folder"
        shutil.copytree(network, folder / layout)
        modules = [("Pooling", pooling or {}, {}), *modules]
        entries = [{"idx": 0, "name": "0", "path": layout, "type": f"{root}.Transformer"}]
        for number, (kind, config, tensors) in enumerate(modules, 1):
            path = f"{number}_{kind}"
            entry = {"idx": number, "name": str(number), "path": path, "type": f"{root}.{kind}"}
            entries.append(entry)
            (folder / path).mkdir()
            if config is not None:
                write(folder / path / "config.json", config)
            if tensors:
                save_file(tensors, folder / path / "model.safetensors")
        write(folder / "modules.json", entries)
        for name, content in dict(files).items():
            write(folder / f"{name}.json", content)
        return folder

    return make


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def dense(inputs, outputs, bias=True, activation_function=TANH, **config):
    """A module with random weights; its seed is its width."""
    random = np.random.default_rng(outputs)
    tensors = {"linear.weight": random.normal(size=(outputs, inputs)).astype("float32")}
    if bias:
        tensors["linear.bias"] = random.normal(size=outputs).astype("float32")
    config |= {"in_features": inputs, "out_features": outputs, "bias": bias}
    return "Dense", config | {"activation_function": activation_function}, tensors


@pytest.fixture(scope="module")
def states(network):
    """A function from texts to the network's output (S, D) for each, special tokens too."""
    backbone = models.Backbone.from_preset(network)
    tokenizer = Tokenizer.from_preset(network)

    def states(texts, length=40):
        for ids in tokenizer(texts).to_list():
            ids = [2, *ids[: length - 2], 3]
            yield backbone({"token_ids": [ids]})["sequence_output"].numpy()[0]

    return states


def embed(folder, texts=TEXTS, **arguments):
    return tasks.FeatureExtractor.from_preset(folder, **arguments).embed(texts)["embedding"]


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, np.stack(expected), rtol=1e-4, atol=1e-5)


# === Pooling ===


@pytest.mark.parametrize("name", POOLINGS)
def test_each_pooling(make, states, name):
    flags = dict.fromkeys(FLAGS, False) | {FLAGS[[*POOLINGS].index(name)]: True}
    folder = make({"word_embedding_dimension": 48} | flags)
    assert_close(embed(folder), [POOLINGS[name](x) for x in states(TEXTS)])


@pytest.mark.parametrize(
    "config, names",
    [
        ({}, ["mean"]),
        (dict.fromkeys(FLAGS, False), ["mean"]),
        ({"pooling_mode_cls_token": True}, ["cls"]),
        (dict.fromkeys(reversed(FLAGS), True), [*POOLINGS]),
        ({"embedding_dimension": 48, "pooling_mode": "weightedmean"}, ["weightedmean"]),
        ({"pooling_mode": ["mean", "cls"], "include_prompt": True}, ["mean", "cls"]),
    ],
)
def test_several_poolings_and_defaults(make, states, config, names):
    expected = [np.concatenate([POOLINGS[name](x) for name in names]) for x in states(TEXTS)]
    assert_close(embed(make(config)), expected)


# === After pooling ===


def test_dense_layers_and_normalisation(make, states):
    wide, narrow = dense(48, 64), dense(64, 5, False, IDENTITY)
    drop, norm = ("Dropout", {"dropout": 0.5}, {}), ("Normalize", None, {})
    folder = make({}, wide, drop, narrow, norm)
    expected = []
    for x in states(TEXTS):
        x = np.tanh(x.mean(0) @ wide[2]["linear.weight"].T + wide[2]["linear.bias"])
        x = x @ narrow[2]["linear.weight"].T
        expected.append(x / np.linalg.norm(x))
    assert_close(embed(folder), expected)


def layer_norm(width):
    random = np.random.default_rng(width)
    tensors = {f"norm.{leaf}": random.normal(size=width) for leaf in ("weight", "bias")}
    tensors = {name: value.astype("float32") for name, value in tensors.items()}
    return "LayerNorm", {"dimension": width}, tensors


def normalised(x, tensors):
    x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    return x * tensors["norm.weight"] + tensors["norm.bias"]


@pytest.mark.parametrize("outputs", [6, 48])
def test_residual_layers_and_norms_in_any_order(make, states, tmp_path, outputs):
    kind, config, tensors = dense(48, outputs, use_residual=True)
    if outputs != 48:
        tensors["residual.weight"] = np.flip(tensors["linear.weight"]).copy()
    first, last = layer_norm(48), layer_norm(outputs)
    norm = ("Normalize", {}, {})
    folder = make({}, norm, first, (kind, config, tensors), norm, last)
    expected = []
    for x in states(TEXTS):
        x = x.mean(0)
        x = normalised(x / np.linalg.norm(x), first[2])
        y = np.tanh(x @ tensors["linear.weight"].T + tensors["linear.bias"])
        x = y + (x @ tensors["residual.weight"].T if outputs != 48 else x)
        expected.append(normalised(x / np.linalg.norm(x), last[2]))
    assert_close(embed(folder), expected)
    task = tasks.FeatureExtractor.from_preset(folder)
    task.save_to_preset(tmp_path / "preset")
    assert_close(embed(tmp_path / "preset"), expected)
    task.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    assert_close(loaded.embed(TEXTS)["embedding"], expected)


def test_vectors_are_cut_after_all(make, states, tmp_path):
    folder = make({}, ("Normalize", None, {}), files={MODEL: {"truncate_dim": 16}})
    expected = [x.mean(0)[:16] / np.linalg.norm(x.mean(0)) for x in states(TEXTS)]
    assert_close(embed(folder), expected)
    task = tasks.FeatureExtractor.from_preset(folder)
    task.save_to_preset(tmp_path / "preset")
    assert_close(embed(tmp_path / "preset"), expected)
    assert embed(folder, truncate_dim=None).shape == (3, 48)
    assert embed(folder, pooling="max").shape == (3, 48)


NAMES = {
    "SiLU": lambda x: x / (1 + np.exp(-x)),
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "ELU": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "SELU": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1)),
    "ReLU6": lambda x: np.clip(x, 0, 6),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "Hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Hardtanh": lambda x: np.clip(x, -1, 1),
    "CELU": lambda x: np.where(x > 0, x, np.exp(x) - 1),
    "LogSigmoid": lambda x: -np.log1p(np.exp(-x)),
    "Hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "Softshrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "Tanhshrink": lambda x: x - np.tanh(x),
}


@pytest.mark.parametrize("name", NAMES)
def test_activations(make, states, name):
    layer = dense(48, 6, activation_function=f"torch.nn.modules.activation.{name}")
    folder = make({}, layer)
    weight, bias = layer[2]["linear.weight"], layer[2]["linear.bias"]
    assert_close(embed(folder), [NAMES[name](x.mean(0) @ weight.T + bias) for x in states(TEXTS)])


@pytest.mark.parametrize(
    "name, ours",
    [
        ("torch.nn.GELU", "gelu"),
        ("torch.nn.modules.GELU", "gelu"),
        ("torch.nn.modules.activation.GELU", "gelu"),
        ("torch.nn.ReLU", "relu"),
        ("torch.nn.SiLU", "silu"),
        ("torch.nn.Identity", "linear"),
        ("torch.nn.modules.linear.Identity", "linear"),
        ("torch.nn.LeakyReLU", None),  # whose slope is another one in Keras
        ("torch.nn.functional.gelu", None),
        ("my.torch.nn.GELU", None),
        ("torch.nn.modules.transformer.GELU", None),
        ("GELU", None),
        (None, None),
    ],
)
def test_pytorch_has_each_class_in_several_modules(name, ours):
    assert sentence_transformers.own_activation(name) == ours


# === Routers ===


@pytest.mark.parametrize(
    "parameters, layer",
    [({"default_route": "document"}, 1), ({}, 0), ({"default_route": None}, 0)],
)
@pytest.mark.parametrize("kind", ["Router", "Asym"])
def test_a_router_takes_the_route_of_texts(make, states, tmp_path, kind, parameters, layer):
    layers = [dense(48, 6), dense(48, 7)]
    root = "sentence_transformers.models."
    config = {
        "types": {"query_0_Dense": f"{root}Dense", "document_0_Dense": f"{root}Dense"},
        "structure": {"query": ["query_0_Dense"], "document": ["document_0_Dense"]},
        "parameters": parameters,
    }
    name = "config" if kind == "Asym" else "router_config"
    folder = make({}, (kind, None, {}), files={f"2_{kind}/{name}": config})
    for path, (_, content, tensors) in zip(config["types"], layers, strict=True):
        (folder / f"2_{kind}" / path).mkdir()
        write(folder / f"2_{kind}" / path / "config.json", content)
        save_file(tensors, folder / f"2_{kind}" / path / "model.safetensors")
    tensors = layers[layer][2]
    weight, bias = tensors["linear.weight"], tensors["linear.bias"]
    other = ("document", "query")[layer]
    with pytest.warns(UserWarning, match=f"a route of its own for each {other}"):
        vectors = embed(folder)
    assert_close(vectors, [np.tanh(x.mean(0) @ weight.T + bias) for x in states(TEXTS)])


def test_a_router_of_networks(make, network, states, recwarn):
    folder = make({}, layout="document_0_Transformer")
    root = "sentence_transformers.models."
    types = {"document_0_Transformer": f"{root}Transformer", "document_1_Pooling": f"{root}Pooling"}
    config = {"types": types, "structure": {"document": [*types]}, "parameters": {}}
    write(folder / "router_config.json", config)
    write(folder / "modules.json", [{"type": f"{root}Router", "path": ""}])
    (folder / "1_Pooling").rename(folder / "document_1_Pooling")
    assert_close(embed(folder), [x.mean(0) for x in states(TEXTS)])
    assert not [each for each in recwarn if "route" in str(each.message)]


# === Entries ===


def test_every_entry_that_the_library_writes_has_a_word(goldens):
    written = json.loads(goldens("sentence_entries.json").read_text())
    for kind, names in written["of_modules"].items():
        if kind in sentence_transformers.KNOWN:
            assert not sentence_transformers.KNOWN[kind].unknown(dict.fromkeys(names, 1)), kind
    for name, table in (
        ("modules", sentence_transformers.MODULE),
        ("config_sentence_transformers", sentence_transformers.SETTINGS),
        ("CrossEncoder", sentence_transformers.SETTINGS),
        ("router_config", sentence_transformers.ROUTER),
        ("routes", sentence_transformers.ROUTES),
    ):
        assert not table.unknown(dict.fromkeys(written[name], 1)), name


@pytest.mark.parametrize("first", [True, False])
def test_modules_that_are_not_read_are_named(goldens, make, tmp_path, first):
    written = json.loads(goldens("sentence_entries.json").read_text())["of_modules"]
    others = written.keys() - sentence_transformers.KNOWN.keys() - {"Router"}
    others -= {sentence_transformers.MASKED_LM}  # a network, which a SparseEncoder reads
    assert len(others) > 5
    folder, root = make(), "sentence_transformers.models."
    (folder / "config.json").rename(tmp_path / "config.json")
    for kind in others | {"CLIPModel"}:
        entry = {"type": f"{root}{kind}", "path": ""}
        (tmp_path / "config.json").rename(folder / "config.json") if not first else None
        network = {"type": f"{root}Transformer", "path": ""}
        write(folder / "modules.json", [entry] if first else [network, entry])
        with pytest.raises(CheckpointError, match=f"module '{kind}'"):
            tasks.FeatureExtractor.from_preset(folder)
        (folder / "config.json").rename(tmp_path / "config.json") if not first else None


def test_a_mix_of_hidden_states_is_refused_unless_it_does_nothing(make, states):
    folder = make({}, ("WeightedLayerPooling", {"layer_start": 0}, {}))
    assert_close(embed(folder), [x.mean(0) for x in states(TEXTS)])
    config = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", config | {"output_hidden_states": True})
    with pytest.raises(CheckpointError, match="'WeightedLayerPooling', and its network has"):
        tasks.FeatureExtractor.from_preset(folder)


def test_an_unknown_setting_is_named_once(make):
    folder = make(files={MODEL: {"colour": "red"}})
    modules = json.loads((folder / "modules.json").read_text())
    write(folder / "modules.json", [modules[0] | {"shade": "dark"}, *modules[1:]])
    with pytest.warns(UserWarning) as warned:
        tasks.FeatureExtractor.from_preset(folder)
    messages = [str(each.message) for each in warned]
    assert [("colour" in each, "shade" in each) for each in messages] == [
        (True, False),
        (False, True),
    ]


def test_an_unknown_setting_of_a_cross_encoder_is_named_once(cross_encoder):
    folder = cross_encoder(MODEL, {"model_type": "CrossEncoder", "colour": "red"})
    with pytest.warns(UserWarning, match="colour") as warned:
        task = tasks.TextRegressor.from_preset(folder, tokenizer=None)
    assert len(warned) == 1 and task.activation == "sigmoid"


def test_newer_names(make, states):
    vectors = {"module_input_name": "sentence_embedding", "module_output_name": None}
    layer = dense(48, 6, activation_function="torch.nn.modules.activation.ReLU", **vectors)
    modality = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    settings = {"transformer_task": "feature-extraction", "modality_config": modality}
    folder = make(
        {"pooling_mode": "cls"},
        layer,
        ("Normalize", vectors, {}),
        root="sentence_transformers.base.modules.anything",
        files={"sentence_bert_config": settings | {"module_output_name": "token_embeddings"}},
    )
    expected = []
    for x in states(TEXTS):
        x = np.maximum(x[0] @ layer[2]["linear.weight"].T + layer[2]["linear.bias"], 0)
        expected.append(x / np.linalg.norm(x))
    assert_close(embed(folder), expected)


def test_arguments_of_loading_that_change_no_vector(make, states):
    """Arctic Embed leaves BERT's pooler out; mxbai has a prompt for documents, which is empty."""
    prompts = {"prompts": {"query": "a ", "passage": ""}, "similarity_fn_name": "cosine"}
    settings = {"do_lower_case": False, "model_args": {"add_pooling_layer": False}}
    folder = make(
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        ("Normalize", None, {}),
        files={"sentence_bert_config": settings, "config_sentence_transformers": prompts},
    )
    encoder = tasks.SentenceEncoder.from_preset(folder)
    assert encoder.prompts == {"query": "a "} and encoder.similarity == "cosine"
    expected = [x[0] / np.linalg.norm(x[0]) for x in states([f"a {text}" for text in TEXTS])]
    assert_close(encoder.embed(TEXTS, verbose=0, prompt_name="query")["embedding"], expected)


# === How texts are read ===


@pytest.mark.parametrize(
    "name, settings, tokenizer, length",
    [
        ("bert", {"max_seq_length": 8, "do_lower_case": False}, 512, 8),
        ("xlm-roberta", {"max_seq_length": 9}, 512, 9),
        ("bert", {"max_seq_length": None}, 7, 7),
        ("bert", {"max_seq_length": 512}, 7, 40),  # as many positions as there are
        (None, None, 10**30, 40),
    ],
)
def test_length(make, states, name, settings, tokenizer, length):
    files = {"tokenizer_config": {"do_lower_case": False, "model_max_length": tokenizer}}
    files |= {f"sentence_{name}_config": settings} if name else {}
    folder, texts = make(files=files), ["a good film " * 20, "a"]
    assert_close(embed(folder, texts), [x.mean(0) for x in states(texts, length)])


def test_a_network_without_limit_needs_a_length(make):
    checkpoint = open_checkpoint(make(files={"tokenizer_config": {"model_max_length": 10**30}}))
    with pytest.raises(CheckpointError, match="states no max_seq_length, and its network has no"):
        read_inputs(checkpoint, None)
    assert read_inputs(checkpoint, 2000)["sequence_length"] == 2000


def test_lower_case_before_a_cased_vocabulary(make, states):
    folder = make(files={"sentence_bert_config": {"max_seq_length": 30, "do_lower_case": True}})
    expected = [x.mean(0) for x in states([text.lower() for text in TEXTS])]
    assert abs(expected[0] - next(states(TEXTS)).mean(0)).max() > 0.01
    assert_close(embed(folder), expected)
    assert_close(embed(folder, lowercase=False), [x.mean(0) for x in states(TEXTS)])


def test_prompts(make, states):
    prompts = {"prompts": {"query": "query: ", "none": ""}, "default_prompt_name": "query"}
    folder = make(files={"config_sentence_transformers": prompts})
    assert_close(embed(folder), [x.mean(0) for x in states([f"query: {x}" for x in TEXTS])])

    def prompt(**arguments):
        return tasks.FeatureExtractor.from_preset(folder, **arguments).prompt

    assert prompt(prompt=None) is None
    for name in (None, "none"):
        prompts["default_prompt_name"] = name
        write(folder / "config_sentence_transformers.json", prompts)
        assert prompt() is None


@pytest.mark.parametrize("name", POOLINGS)
def test_a_prompt_that_pooling_leaves_out(make, states, tmp_path, name):
    settings = {"prompts": {"query": "query: a "}, "default_prompt_name": "query"}
    pooling = {"pooling_mode": name, "include_prompt": False}
    folder = make(pooling, files={"config_sentence_transformers": settings})

    def pooled(x, skipped=4):  # [CLS] query : a
        if name == "weightedmean":  # places are those in the whole text
            return np.average(x[skipped:], axis=0, weights=np.arange(len(x))[skipped:] + 1)
        return POOLINGS[name](x[skipped:])

    expected = [pooled(x) for x in states([f"query: a {x}" for x in TEXTS])]
    assert_close(embed(folder), expected)
    assert_close(embed(folder, prompt=None), [POOLINGS[name](x) for x in states(TEXTS)])
    task = tasks.FeatureExtractor.from_preset(folder)
    task.save_to_preset(tmp_path / "preset")
    assert_close(embed(tmp_path / "preset"), expected)
    with pytest.raises(ValueError, match="skipped_tokens=4, those of a prompt"):
        tasks.TextClassifier(task, num_classes=2)
    with pytest.raises(ValueError, match="skipped_tokens=4 without a prompt"):
        tasks.FeatureExtractor(task.backbone, skipped_tokens=4)


# === Arguments, other tasks, presets ===


def test_an_argument_counts_more(make, states):
    folder = make({"pooling_mode": "cls"}, dense(48, 6), ("Normalize", None, {}))
    x = list(states(TEXTS))
    assert_close(embed(folder, pooling="max"), [x.max(0) for x in x])
    assert_close(embed(folder, layers="last"), [x.mean(0) for x in x])
    normal = [x.mean(0) / np.linalg.norm(x.mean(0)) for x in x]
    assert_close(embed(folder, pooling="mean", normalize=True), normal)
    task = tasks.FeatureExtractor.from_preset(folder, normalize=False, sequence_length=5)
    arguments = task.get_arguments()
    assert (arguments["pooling"], arguments["normalize"]) == ("first", False)
    assert (arguments["sequence_length"], task.output.shape) == (5, (None, 6))
    with pytest.warns(UserWarning, match="new and random are projection_0/bias"):
        assert embed(folder, projections=[{"output_dim": 2}]).shape == (3, 2)


@pytest.mark.parametrize("layout", ["0_Transformer/", ""])
def test_all_tasks_read_both_layouts(make, states, layout):
    settings = {f"{layout}sentence_bert_config": {"max_seq_length": 6}}
    # Older versions wrote their own number into a file of this name.
    settings |= {"config": {"__version__": "0.4.1"}} if layout else {}
    folder = make({"pooling_mode": "lasttoken"}, layout=layout, files=settings)
    texts = ["a good film was a good film", *TEXTS]
    assert_close(embed(folder, texts), [x[-1] for x in states(texts, 6)])
    assert Tokenizer.from_preset(folder).vocabulary[5] == "query"
    assert models.Backbone.from_preset(folder).config["hidden_dim"] == 48
    assert isinstance(tasks.Task.from_preset(folder), tasks.FeatureExtractor)
    with pytest.warns(UserWarning, match="new and random are classifier"):
        task = tasks.TextClassifier.from_preset(folder, num_classes=2)
    assert task.classify(texts)["scores"].shape == (4, 2)
    assert task.packing["sequence_length"] == 40  # as without the other files


def test_presets_and_files_keep_it_all(make, tmp_path):
    folder = make(
        dict.fromkeys(FLAGS, True),
        dense(6 * 48, 7),
        ("Normalize", None, {}),
        files={
            "sentence_bert_config": {"max_seq_length": 6, "do_lower_case": True},
            "config_sentence_transformers": {"prompts": {"q": "good"}, "default_prompt_name": "q"},
        },
    )
    task = tasks.FeatureExtractor.from_preset(folder)
    expected = task.embed(TEXTS)["embedding"]
    task.save_to_preset(tmp_path / "preset")
    assert_close(embed(tmp_path / "preset"), expected)
    task.save(tmp_path / "task.keras")
    assert_close(
        keras.models.load_model(tmp_path / "task.keras").embed(TEXTS)["embedding"], expected
    )
    # Other vectors were asked for than those that the layers were trained on.
    with pytest.warns(UserWarning, match="left over in the checkpoint are projection_0/bias"):
        other = tasks.FeatureExtractor.from_preset(tmp_path / "preset", pooling="max")
    arguments = other.get_arguments()
    assert not arguments["projections"] and not arguments["normalize"]
    assert arguments["lowercase"] and arguments["sequence_length"] == 6


@pytest.mark.parametrize(
    "arguments",
    [
        {"pooling": ["mean", "first"], "truncate_dim": 40},
        {"pooling": ["first", "mean"], "normalize": True, "truncate_dim": 8},
        {"pooling": "mean", "prompt": "query: ", "skipped_tokens": 3},
        {
            "projections": [
                {"layer": "normalize"},
                {"output_dim": 6, "activation": "mish", "use_residual": True},
                {"layer": "layer_norm"},
                {"output_dim": 6, "use_bias": False, "use_residual": True},
            ],
            "normalize": True,
        },
    ],
)
def test_what_is_written_comes_back(network, tmp_path, arguments):
    pytest.importorskip("tokenizers")
    task = tasks.FeatureExtractor.from_preset(network, **arguments)
    task.save_to_huggingface(tmp_path / "folder")
    again = tasks.FeatureExtractor.from_preset(tmp_path / "folder")
    np.testing.assert_allclose(
        again.embed(TEXTS)["embedding"], task.embed(TEXTS)["embedding"], atol=1e-6
    )
    for name, value in arguments.items():
        actual = again.get_arguments()[name]
        if name == "projections":
            value = [
                each if "layer" in each else {"activation": "linear", "use_bias": True} | each
                for each in value
            ]
        assert actual == value, name


# === Cross-encoders ===

SIGMOID, OLDER = "torch.nn.modules.activation.Sigmoid", "sbert_ce_default_activation_function"


@pytest.fixture
def cross_encoder(goldens, tmp_path):
    """Writes a folder with one output; the file's name and content say what is done to it."""

    def make(name, content):
        folder = shutil.copytree(goldens("bert-seqcls-regression"), tmp_path / "folder")
        path = folder / f"{name}.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known.pop("problem_type", None)
        write(path, known | content)
        return folder

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, content, activation",
    [
        ("config", {}, None),
        ("config", {"sentence_transformers": {"activation_fn": SIGMOID}}, "sigmoid"),
        ("config", {"sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"}}, "sigmoid"),
        ("config", {"sentence_transformers": {"activation_fn": IDENTITY}}, None),
        ("config", {"sentence_transformers": {"version": "4.1.0"}}, "sigmoid"),
        ("config", {OLDER: IDENTITY}, None),
        ("config", {OLDER: None}, "sigmoid"),
        ("config_sentence_transformers", {"activation_fn": SIGMOID}, "sigmoid"),
        ("config_sentence_transformers", {"prompts": {}}, None),
        ("config_sentence_transformers", {"model_type": "CrossEncoder"}, "sigmoid"),
    ],
)
def test_scores_of_a_cross_encoder(cross_encoder, goldens, tmp_path, name, content, activation):
    folder = cross_encoder(name, content)
    task = tasks.TextRegressor.from_preset(folder, tokenizer=None)
    assert task.activation == activation
    arrays = np.load(goldens("bert-seqcls-regression") / "expected.npz")
    inputs = {
        "token_ids": arrays["in.input_ids"],
        "segment_ids": arrays["in.token_type_ids"],
        "padding_mask": arrays["in.attention_mask"],
    }
    expected = arrays["out.logits"]
    expected = 1 / (1 + np.exp(-expected)) if activation else expected
    np.testing.assert_allclose(task(inputs), expected, atol=1e-5)
    task.save_to_preset(tmp_path / "preset")
    assert tasks.Task.from_preset(tmp_path / "preset", tokenizer=None).activation == activation


def test_how_a_cross_encoder_cuts_texts(network, goldens, tmp_path):
    folder = shutil.copytree(goldens("bert-seqcls-regression"), tmp_path / "folder")
    shutil.copy(network / "vocab.txt", folder)
    write(folder / f"{MODEL}.json", {"model_type": "CrossEncoder"})
    entry = {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}
    write(folder / "modules.json", [entry])
    write(folder / "tokenizer_config.json", {"do_lower_case": False})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 7, "do_lower_case": False})
    assert tasks.TextRegressor.from_preset(folder).packing["sequence_length"] == 7
    task = tasks.TextRegressor.from_preset(folder, sequence_length=9)
    assert task.packing["sequence_length"] == 9
    write(folder / "sentence_bert_config.json", {"max_seq_length": 7, "do_lower_case": True})
    with pytest.raises(CheckpointError, match="do_lower_case=True, and its tokenizer keeps"):
        tasks.TextRegressor.from_preset(folder)
    write(folder / "tokenizer_config.json", {"do_lower_case": True})
    assert tasks.TextRegressor.from_preset(folder).packing["sequence_length"] == 7
    write(folder / "sentence_bert_config.json", {"max_seq_length": 0})
    with pytest.raises(CheckpointError, match="states a length of 0 tokens"):
        tasks.TextRegressor.from_preset(folder)


# As version 6.2 writes it.
OF_SCORES = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}


def test_the_network_of_a_cross_encoder(network, goldens, tmp_path):
    folder = shutil.copytree(goldens("bert-seqcls-regression"), tmp_path / "folder")
    shutil.copy(network / "vocab.txt", folder)
    expected = tasks.TextRegressor.from_preset(folder).predict((["a"], ["b c"]), verbose=0)
    write(folder / f"{MODEL}.json", {"model_type": "CrossEncoder", "activation_fn": SIGMOID})
    entry = {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}
    write(folder / "modules.json", [entry])
    write(folder / "sentence_bert_config.json", OF_SCORES)
    answers = tasks.TextRegressor.from_preset(folder).predict((["a"], ["b c"]), verbose=0)
    np.testing.assert_allclose(answers, 1 / (1 + np.exp(-expected)), atol=1e-5)
    for name, value in (("transformer_task", "text-generation"), ("modality_config", {"a": {}})):
        write(folder / "sentence_bert_config.json", OF_SCORES | {name: value})
        with pytest.raises(CheckpointError, match=f"{name}=.* would change the outputs"):
            tasks.TextRegressor.from_preset(folder)


@pytest.mark.parametrize("has_modules", [True, False])
def test_a_prompt_of_a_cross_encoder(network, goldens, tmp_path, has_modules):
    folder = shutil.copytree(goldens("bert-seqcls-regression"), tmp_path / "folder")
    shutil.copy(network / "vocab.txt", folder)
    shutil.copy(network / "tokenizer_config.json", folder)
    plain = tasks.TextRegressor.from_preset(folder)
    prompts = {"prompts": {"q": "query: "}, "default_prompt_name": "q", "activation_fn": IDENTITY}
    write(folder / f"{MODEL}.json", prompts | {"model_type": "CrossEncoder"})
    if has_modules:
        entry = {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}
        write(folder / "modules.json", [entry])
    task = tasks.TextRegressor.from_preset(folder)
    assert task.prompt == ("query: " if has_modules else None)
    before = "query: " if has_modules else ""
    expected = plain.regress(([f"{before}a film"], ["good"]))["scores"]
    np.testing.assert_allclose(task.regress((["a film"], ["good"]))["scores"], expected, atol=1e-6)
    task.save_to_preset(tmp_path / "preset")
    assert tasks.Task.from_preset(tmp_path / "preset").prompt == task.prompt
    if has_modules:
        with pytest.raises(ValueError, match="prompt='query: ', and transformers' classes have"):
            task.save_to_huggingface(tmp_path / "new")
    if has_modules:
        write(folder / "modules.json", [entry, {"type": "x.Dense", "path": ""}])
        with pytest.raises(CheckpointError, match="CrossEncoder's and has the modules"):
            tasks.TextRegressor.from_preset(folder)


def test_an_activation_of_several_classes_that_is_not_known(goldens, tmp_path):
    folder = shutil.copytree(goldens("bert-seqcls"), tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    config["sentence_transformers"] = {"activation_fn": TANH, "version": "5.1.0"}
    write(folder / "config.json", config)
    with pytest.raises(CheckpointError, match="activation is 'tanh'"):
        tasks.TextClassifier.from_preset(folder, tokenizer=None)


def test_activations_of_cross_encoders_that_differ(cross_encoder, goldens, tmp_path):
    folder = cross_encoder("config", {OLDER: "torch.nn.modules.activation.ELU"})
    with pytest.raises(CheckpointError, match="activation='elu'"):
        tasks.TextRegressor.from_preset(folder)
    task = tasks.TextRegressor.from_preset(folder, activation="sigmoid", tokenizer=None)
    with pytest.raises(ValueError, match=r"labels\[1\]=4.5, and a sigmoid gives 0 to 1"):
        task.labels.prepare(np.array([0.5, 4.5]))
    several = shutil.copytree(goldens("bert-seqcls"), tmp_path / "several")
    config = json.loads((several / "config.json").read_text())
    config.pop("problem_type", None)
    write(several / "config.json", config | {OLDER: SIGMOID})
    assert tasks.TextClassifier.from_preset(several, tokenizer=None).multi_label


# === Adapters ===


def test_an_adapter_of_another_folders_network(make, network, tmp_path):
    """As sentence-transformers writes one: the adapter lies where the network would."""
    query, random = "encoder.layer.0.attention.self.query", np.random.default_rng(0)
    a, b = (random.normal(size=size).astype("float32") for size in ((2, 48), (48, 2)))
    folder = make({}, ("Normalize", None, None))
    plain = embed(folder)
    merged = shutil.copytree(folder, tmp_path / "merged")
    tensors = load_file(merged / "model.safetensors")
    tensors[f"bert.{query}.weight"] += 2 * b @ a
    save_file(tensors, merged / "model.safetensors")
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    stated = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "task_type": "FEATURE_EXTRACTION"}
    stated["base_model_name_or_path"] = str(network)
    write(folder / "adapter_config.json", stated)
    tensors = {
        f"base_model.model.{query}.lora_A.weight": a,
        f"base_model.model.{query}.lora_B.weight": b,
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    expected = embed(merged)
    assert abs(plain - expected).max() > 0.01
    assert_close(embed(folder), expected)


# === Errors ===

BROKEN = {
    "unknown module": ([("LSTM", {}, {})], {}, "module 'LSTM'; supported: Transformer"),
    "no pooling": (
        [],
        {"modules": [{"type": "sentence_transformers.models.Transformer", "path": ""}]},
        "modules Transformer; supported is this order",
    ),
    "other order": (
        [],
        {
            "modules": [
                {"type": "sentence_transformers.models.Transformer", "path": ""},
                {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"},
                {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
            ]
        },
        "Normalize, Pooling; supported is",
    ),
    "own code": (
        [],
        {"modules": [{"type": "custom.Transformer", "path": ""}]},
        "'custom.Transformer'",
    ),
    "no list": ([], {"modules": {}}, "modules.json should hold a JSON list"),
    "no entries": ([], {"modules": ["Transformer"]}, "needs 'type' and 'path'"),
    "damaged": ([], {"modules": "[{"}, "modules.json is not valid JSON"),
    "elsewhere": (
        [],
        {"modules": [{"type": "x.Pooling", "path": "../other"}]},
        "'../other', which is not in",
    ),
    "damaged pooling": ([], {"1_Pooling/config": "{"}, "1_Pooling/config.json is not valid JSON"),
    "unknown pooling": ([], {"1_Pooling/config": {"pooling_mode": "median"}}, "'median'"),
    "unknown flag": ([], {"1_Pooling/config": {"pooling_mode_new": True}}, "pooling_mode_new=True"),
    "nonsense pooling": (
        [],
        {"1_Pooling/config": {"pooling_mode": 3}},
        "description of modules is wrong",
    ),
    "no weights": (
        [("Dense", dense(48, 6)[1], {})],
        {},
        "2_Dense has a configuration and no weights",
    ),
    "no configuration": ([("Dense", None, dense(48, 6)[2])], {}, "2_Dense/config.json is missing"),
    "other weights": (
        [("Dense", dense(48, 6)[1], dense(48, 7)[2])],
        {},
        r"\(7, 48\).* asks for .*\(6, 48\)",
    ),
    "wrong width": ([dense(47, 6)], {}, "projection_0/kernel needs"),
    "unknown activation": (
        [dense(48, 6, activation_function="torch.nn.modules.activation.LeakyReLU")],
        {},
        "activation_function='torch.nn.modules.activation.LeakyReLU'",
    ),
    "residual": ([dense(48, 6, use_residual=True)], {}, "asks for .*residual.weight"),
    "routes by kinds of inputs": (
        [("Router", {}, {})],
        {
            "2_Router/router_config": {
                "types": {},
                "structure": {"a": []},
                "parameters": {"route_mappings": {"(None, 'text')": "a"}},
            }
        },
        "route_mappings=",
    ),
    "no route": (
        [("Router", {}, {})],
        {
            "2_Router/router_config": {
                "types": {},
                "structure": {"a": [], "b": []},
                "parameters": {"default_route": None, "allow_empty_key": False},
            }
        },
        "default_route=None, and its routes are a, b",
    ),
    "processing": (
        [],
        {"sentence_bert_config": {"processing_kwargs": {"text": {"max_length": 8}}}},
        "processing_kwargs=",
    ),
    "cut": ([], {"config_sentence_transformers": {"truncate_dim": "8"}}, "truncate_dim='8'"),
    "of tokens": (
        [dense(48, 6, module_input_name="token_embeddings")],
        {},
        "module_input_name='token_embeddings', which would change",
    ),
    "other task": (
        [],
        {"sentence_bert_config": {"transformer_task": "fill-mask"}},
        "transformer_task='fill-mask'",
    ),
    "tokenizer's arguments": (
        [],
        {"sentence_bert_config": {"tokenizer_args": {"x": 1}}},
        "tokenizer_args=",
    ),
    "length": ([], {"sentence_bert_config": {"max_seq_length": "long"}}, "length of 'long' tokens"),
    "prompt": (
        [],
        {"config_sentence_transformers": {"default_prompt_name": "q"}},
        "default_prompt_name='q'",
    ),
}


@pytest.mark.parametrize("modules, files, message", BROKEN.values(), ids=BROKEN)
def test_what_is_not_known_is_named(make, modules, files, message):
    folder = make({}, *modules, files=files)
    with pytest.raises(ValueError, match=message):
        tasks.FeatureExtractor.from_preset(folder)
    models.Backbone.from_preset(folder)  # which does without


def test_a_missing_network_is_named(make):
    folder = make({}, layout="0_Transformer/")
    shutil.rmtree(folder / "0_Transformer")
    with pytest.raises(CheckpointError, match="names the folder '0_Transformer', which is missing"):
        open_checkpoint(folder)
