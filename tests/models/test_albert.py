"""ALBERT against its authors' code and its port; what its blocks share; its sizes; its folders."""

import importlib.util
import shutil

import keras
import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.converters import Checkpoint, CheckpointError, open_checkpoint
from keras_lm.converters.checked_files import LazyTensors
from keras_lm.models import AlbertBackbone, Backbone
from keras_lm.models.sizes import estimate, transformer_size
from keras_lm.objectives import IGNORED
from keras_lm.presets.argument_ranges import check_claims
from keras_lm.tokenizers import SentencePieceTokenizer, WordPieceTokenizer

TINY = transformer_size(9, 3, 6, 2, 8, embedding_dim=4, max_sequence_length=8)
SHARING = ("all", "attention", "feedforward", "none")


# === The references ===


def load(folder):
    with np.load(folder / "expected.npz") as file:
        arrays = dict(file)
    names = {"input_ids": "token_ids", "token_type_ids": "segment_ids"}
    names |= {"segment_ids": "segment_ids"}
    names |= {"attention_mask": "padding_mask", "input_mask": "padding_mask"}
    inputs = {ours: arrays[f"in.{key}"] for key, ours in names.items() if f"in.{key}" in arrays}
    return {key: value.astype("int32") for key, value in inputs.items()}, arrays


@pytest.mark.eager
def test_huggingface(goldens, tmp_path, assert_equal, hidden_states):
    inputs, arrays = load(goldens("albert"))
    task = tasks.Pretrainer.from_preset(goldens("albert"))
    outputs = task(inputs)
    assert_equal(outputs["token_logits"], arrays["out.prediction_logits"])
    assert_equal(outputs["sentence_order_logits"], arrays["out.sop_logits"])
    assert_equal(hidden_states(task.backbone, inputs), arrays["out.hidden_states"])
    assert_equal(task.backbone.attention_probabilities(inputs), arrays["out.attentions"])
    labels = {
        "token_labels": arrays["in.labels"],
        "sentence_order_labels": arrays["in.sentence_order_label"],
    }
    metrics = task.evaluate(inputs, labels, verbose=0, return_dict=True)
    np.testing.assert_allclose(metrics["loss"], arrays["out.loss"], rtol=1e-5)
    task.save_to_preset(tmp_path / "preset")
    again = tasks.Pretrainer.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(again(inputs)["token_logits"], outputs["token_logits"])


@pytest.mark.eager
def test_google_research(goldens, assert_equal, hidden_states):
    inputs, arrays = load(goldens("tf1-albert"))
    task = tasks.Pretrainer.from_preset(goldens("tf1-albert"))
    backbone = task.backbone
    assert_equal(backbone(inputs)["pooled_output"], arrays["out.pooled"])
    states = hidden_states(backbone, inputs)
    assert_equal(states[0], backbone.embedding_projection(arrays["out.embedding_output"]))
    assert_equal(states[1:], arrays["out.encoder_layers"])

    inputs["mask_positions"] = arrays["in.masked_lm_positions"]
    outputs = {name: keras.ops.log_softmax(logits) for name, logits in task(inputs).items()}
    rows = arrays["out.mlm_log_probs"].shape
    assert_equal(np.reshape(outputs["token_logits"], rows), arrays["out.mlm_log_probs"])
    assert_equal(outputs["sentence_order_logits"], arrays["out.sop_log_probs"])
    known = arrays["in.masked_lm_weights"] > 0
    labels = {
        "token_labels": np.where(known, arrays["in.masked_lm_ids"], IGNORED),
        "sentence_order_labels": arrays["in.next_sentence_labels"][:, 0],
    }
    metrics = task.evaluate(inputs, labels, verbose=0, return_dict=True)
    expected = [arrays[f"out.{name}"] for name in ("mlm_loss", "sop_loss", "loss")]
    results = [metrics[f"{n}loss"] for n in ("token_logits_", "sentence_order_logits_", "")]
    np.testing.assert_allclose(results, expected, rtol=1e-5)


@pytest.mark.eager
def test_groups_and_inner_groups(goldens, tmp_path, assert_equal, hidden_states):
    inputs, arrays = load(goldens("albert-seqcls"))
    task = tasks.TextClassifier.from_preset(goldens("albert-seqcls"))
    assert_equal(task(inputs), arrays["out.logits"])
    states = hidden_states(task.backbone, inputs)
    assert_equal(states[::2], arrays["out.hidden_states"])  # there, one for two blocks
    assert_equal(task.backbone.attention_probabilities(inputs), arrays["out.attentions"])
    metrics = task.evaluate(inputs, arrays["in.labels"], verbose=0, return_dict=True)
    np.testing.assert_allclose(metrics["loss"], arrays["out.loss"], rtol=1e-5)
    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(again(inputs), task(inputs))


def test_real_rxnmapper(goldens, assert_equal):
    spec = importlib.util.find_spec("rxnmapper")
    if spec is None:
        pytest.skip("needs: pip install --no-deps -r requirements-weights.txt")
    folder = spec.submodule_search_locations[0] + "/models/transformers"
    task = tasks.MaskedLM.from_preset(f"{folder}/albert_heads_8_uspto_all_1310k")
    arrays = np.load(goldens("real-weights") / "expected.npz")
    names = ("token_ids", "segment_ids", "padding_mask")
    inputs = {name: arrays[f"rxnmapper.{name}"] for name in names}
    assert_equal(task(inputs)[:, :, ::16], arrays["rxnmapper.token_logits"])
    attentions = np.stack(task.backbone.attention_probabilities(inputs))
    assert_equal(attentions[::11], arrays["rxnmapper.attentions"])


# === What is shared ===


@pytest.mark.parametrize("sharing", SHARING)
def test_sharing(sharing):
    groups, repetitions = 2, 2
    config = TINY | {"num_groups": groups, "num_inner_repetitions": repetitions, "sharing": sharing}
    backbone = AlbertBackbone(**config)
    blocks = backbone.blocks
    assert len(blocks) == 3 * repetitions
    shared = groups * repetitions
    for part, by in {
        "attention": ("all", "attention"),
        "feedforward": ("all", "feedforward"),
        "attention_norm": ("all",),
        "feedforward_norm": ("all",),
    }.items():
        number = len({id(getattr(block, part)) for block in blocks})
        assert number == (shared if sharing in by else len(blocks))
    # The first two layers are one group.
    assert (blocks[0].attention is blocks[2].attention) == (sharing in ("all", "attention"))
    assert blocks[0].attention is not blocks[1].attention
    assert blocks[2].feedforward is not blocks[4].feedforward
    paths = [weight.path for weight in backbone.weights]
    assert len(paths) == len(set(paths))
    assert estimate(AlbertBackbone, **config)["parameters"] == backbone.count_params()


@pytest.mark.eager
def test_files_of_partly_shared_blocks(tmp_path, hidden_states):
    backbone = AlbertBackbone(**TINY, num_groups=2, sharing="attention")
    for weight in backbone.weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    inputs = {"token_ids": [[2, 7, 3]]}
    expected = hidden_states(backbone, inputs)
    assert len(expected) == 4
    assert len(backbone.attention_probabilities(inputs)) == 3
    backbone.save(tmp_path / "backbone.keras")
    backbone.save_to_preset(tmp_path / "preset")
    for again in (
        keras.saving.load_model(tmp_path / "backbone.keras"),
        Backbone.from_preset(tmp_path / "preset"),
    ):
        assert again.count_params() == backbone.count_params()
        np.testing.assert_array_equal(hidden_states(again, inputs), expected)


def test_nothing_shared_is_a_group_a_layer():
    none = AlbertBackbone(**TINY, sharing="none")
    groups = AlbertBackbone(**TINY, num_groups=3)
    assert [w.path for w in none.weights] == [w.path for w in groups.weights]
    for weight, same in zip(none.weights, groups.weights, strict=True):
        same.assign(weight)
    inputs = {"token_ids": [[2, 7, 3]]}
    np.testing.assert_array_equal(
        none(inputs)["sequence_output"], groups(inputs)["sequence_output"]
    )


@pytest.mark.parametrize(
    "argument, value", [("sharing", "ffn"), ("sharing", None), ("num_groups", 4)]
)
def test_wrong_arguments(argument, value):
    with pytest.raises(ValueError, match=f"{argument}={value!r}.* pass "):
        AlbertBackbone(**TINY | {argument: value})


# === Sizes ===

BASE = AlbertBackbone.SIZES["albert_base_en_uncased"]


# The published checkpoints' own numbers. The paper's table 1 has 12, 18, 60 and 235 million.
@pytest.mark.parametrize(
    "size, parameters",
    [
        ("base", 11_683_584),
        ("large", 17_683_968),
        ("extra_large", 58_724_864),
        ("extra_extra_large", 222_595_584),
    ],
)
@pytest.mark.parametrize("version", ["", "_v1"])
def test_sizes(size, version, parameters):
    name = f"albert_{size}{version}_en_uncased"
    assert estimate(AlbertBackbone, **AlbertBackbone.SIZES[name])["parameters"] == parameters
    assert set(AlbertBackbone.SIZES) == set(AlbertBackbone.PUBLISHED)
    with pytest.raises(ValueError, match="published at hf://albert/albert-"):
        Backbone.from_preset(name)


# The paper's table 4, which counts models that share nothing without their poolers, as BERT-base.
@pytest.mark.parametrize(
    "embedding_dim, millions", [(768, (31, 83, 57, 108)), (128, (12, 64, 38, 89))]
)
def test_parameters_by_what_is_shared(embedding_dim, millions):
    results = [
        estimate(
            AlbertBackbone,
            **BASE | {"embedding_dim": embedding_dim},
            sharing=sharing,
            use_pooler=sharing != "none",
        )
        for sharing in SHARING
    ]
    assert tuple(round(one["parameters"] / 1e6) for one in results) == millions
    # What is shared saves memory, but no work: projection, twelve blocks, and their attention.
    projection = 128 * 768 * (embedding_dim == 128)
    flops = 2 * (projection + 12 * (4 * 768**2 + 2 * 768 * 3072)) + 4 * 12 * 512 * 768
    assert {one["flops_per_token"]["forward"] for one in results} == {flops}


def test_base_is_built_as_it_is_counted():
    backbone = Backbone.from_preset("albert_base_en_uncased", load_weights=False)
    assert backbone.count_params() == 11_683_584


# === Folders as they are found ===


@pytest.mark.parametrize("kind", ["no model type", "no prefix", "tied copy"])
def test_other_spellings(goldens, variant, kind, assert_equal):
    tensors = open_checkpoint(goldens("albert")).tensors
    made = {
        "no model type": lambda: variant("albert", {"model_type": ...}),
        "no prefix": lambda: variant("albert", rename=lambda name: name.removeprefix("albert.")),
        "tied copy": lambda: variant(
            "albert",
            more={
                "predictions.decoder.weight": tensors["albert.embeddings.word_embeddings.weight"],
                "predictions.decoder.bias": tensors["predictions.bias"],
                "albert.embeddings.position_ids": np.zeros((1, 40), "f4"),
            },
        ),
    }[kind]()
    inputs, arrays = load(goldens("albert"))
    task = tasks.Pretrainer.from_preset(made)
    assert_equal(task(inputs)["token_logits"], arrays["out.prediction_logits"])


def test_what_the_model_does_not_know_is_an_error(variant):
    with pytest.raises(ValueError, match="position_embedding_type"):
        Backbone.from_preset(variant("albert", {"position_embedding_type": "relative_key"}))


def test_many_layers_take_few_tensors(variant):
    """What layers share is no sign that a configuration is another checkpoint's."""
    backbone = Backbone.from_preset(variant("albert", {"num_hidden_layers": 35}))
    assert len(backbone.blocks) == 35


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_hidden_groups", "inner_group_num"])
def test_far_too_many_layers_are_refused(variant, key):
    config = {"num_hidden_layers": 200, key: 10**6}
    with pytest.raises(ValueError, match=r"asks for num_\w+=1000000, but"):
        Backbone.from_preset(variant("albert", config))


@pytest.mark.parametrize("size", AlbertBackbone.SIZES)
def test_a_published_size_is_not_too_large_for_its_tensors(size):
    """As many numbers as its checkpoint holds; nothing of that size is built."""
    arguments = AlbertBackbone.SIZES[size] | {"num_groups": 1, "sharing": "all"}
    parameters = estimate(AlbertBackbone, **arguments)["parameters"]
    shapes = {"kernel": (arguments["hidden_dim"], arguments["intermediate_dim"])}
    shapes["others"] = (30000, parameters // 30000)
    shapes |= {f"bias_{i}": (1,) for i in range(22)}
    tensors = LazyTensors({name: (shape, None) for name, shape in shapes.items()})
    checkpoint = Checkpoint("here", None, "huggingface", {}, tensors)

    def check(arguments):
        check_claims(checkpoint, {"class": "AlbertBackbone", "arguments": arguments})

    check(arguments)
    with pytest.raises(CheckpointError, match="its tensors hold"):
        check(arguments | {"sharing": "none"})


# === Tokenizers ===


@pytest.fixture
def vocabulary(goldens):
    return goldens("tokenizers") / "sentencepiece-albert" / "spiece.model"


@pytest.mark.parametrize("name", ["30k-clean.model", "spiece.model"])
def test_text_is_cleaned_as_by_the_authors_code(goldens, vocabulary, tmp_path, name):
    """Also if nothing but the vocabulary lies there."""
    shutil.copy(vocabulary, tmp_path / name)
    for converter in AlbertBackbone.CONVERTERS.values():
        tokenizer = SentencePieceTokenizer.from_files(tmp_path, **converter.vocabulary)
    stated = SentencePieceTokenizer.from_files(vocabulary.parent)
    texts = ["Caf\u00e9s  cost ``1,000,'' \u00c4\u00d6\u00dc", ""]
    assert tokenizer(texts).to_list() == stated(texts).to_list()
    assert tokenizer(texts).to_list() == tokenizer(['cafes cost "1,000," aou', ""]).to_list()
    assert tokenizer.special_tokens["mask"] == "[MASK]"


@pytest.mark.eager
def test_a_folder_brings_its_tokenizer(variant, vocabulary):
    rows = SentencePieceTokenizer(vocabulary).vocabulary_size
    embedding = np.random.default_rng(0).normal(size=(rows, 24)).astype("float32")
    name = "albert.embeddings.word_embeddings.weight"
    folder = variant("albert-seqcls", {"vocab_size": rows}, more={name: embedding})
    shutil.copy(vocabulary, folder)
    task = tasks.TextClassifier.from_preset(folder)
    packed = task.preprocess({"text": ["A b"], "text_pair": ["c"]})
    pieces = task.tokenizer.tokens(packed["token_ids"][0]).numpy().tolist()
    assert [pieces[0], pieces[-1], pieces.count(b"[SEP]")] == [b"[CLS]", b"[SEP]", 2]
    second = pieces.index(b"[SEP]") + 1
    assert packed["segment_ids"][0].numpy().tolist() == [0] * second + [1] * (len(pieces) - second)


@pytest.mark.filterwarnings("ignore:.*(new and random|entries, the embedding)")
def test_chinese_models_have_wordpiece(variant, vocabulary):
    folder = variant("albert-seqcls")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    task = tasks.TextClassifier.from_preset(folder)
    assert isinstance(task.tokenizer, WordPieceTokenizer)
    shutil.copy(vocabulary, folder)
    with pytest.raises(ValueError, match="has 60 rows, and none for"):  # it is read
        tasks.TextClassifier.from_preset(folder)


# === Pretraining ===


@pytest.mark.eager
def test_pretraining_on_pairs_of_sentences(vocabulary):
    tokenizer = SentencePieceTokenizer.from_files(vocabulary.parent)
    sizes = TINY | {"num_layers": 1, "max_sequence_length": 24}
    sizes["vocabulary_size"] = tokenizer.vocabulary_size
    task = tasks.Pretrainer(AlbertBackbone(**sizes), tokenizer=tokenizer)
    task.compile(run_eagerly=True)
    pairs = (["He went out.", "It rained.", "A b", ""], ["It was late.", "So what?", "c", "d"])
    logs = task.train_on_batch(pairs, return_dict=True)
    names = {"token_logits", "sentence_order_logits"}
    assert set(logs) == {"loss"} | {f"{n}_{m}" for n in names for m in ("loss", "accuracy")}
    assert np.isfinite(list(logs.values())).all()
