"""What RoBERTa and DistilBERT share: equal to their references, and every task and form of file."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.export.fresh_process import load_tflite
from keras_lm.models import Backbone, DistilBertBackbone, RobertaBackbone
from keras_lm.models.sizes import estimate
from keras_lm.tokenizers import BytePairTokenizer, WordPieceTokenizer

MODELS = {
    "roberta": (RobertaBackbone, BytePairTokenizer, "bytebpe-roberta"),
    "distilbert": (DistilBertBackbone, WordPieceTokenizer, "wordpiece-uncased"),
}
TINY = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "max_sequence_length": 32,
    "dropout": 0.0,
}
GOOD = ["the film was good", "great story", "i loved it", "a very nice cast"]
BAD = ["the film was bad", "awful story", "i hated it", "a very dull cast"]
ALL_TASKS = {
    "TextClassifier": {"num_classes": 3},
    "TextRegressor": {},
    "TokenClassifier": {"class_names": ["O", "X"]},
    "MultipleChoice": {},
    "MaskedLM": {},
    "Pretrainer": {},
    "FeatureExtractor": {},
}


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizers(goldens):
    return {
        name: cls.from_files(goldens("tokenizers") / folder)
        for name, (_, cls, folder) in MODELS.items()
    }


@pytest.fixture
def tokenizer(name, tokenizers):
    return tokenizers[name]


@pytest.fixture
def backbone(name, tokenizer):
    return MODELS[name][0](vocabulary_size=tokenizer.vocabulary_size, **TINY)


def load(folder):
    arrays = np.load(folder / "expected.npz")
    inputs = {
        "token_ids": arrays["in.input_ids"].astype("int32"),
        "padding_mask": arrays["in.attention_mask"].astype("int32"),
    }
    return inputs, arrays


# === The references ===


@pytest.mark.parametrize(
    "folder, cls",
    [
        ("roberta", tasks.MaskedLM),
        ("roberta-seqcls", tasks.TextClassifier),
        ("distilbert", tasks.MaskedLM),
    ],
)
def test_huggingface(goldens, folder, cls, tmp_path, assert_equal, hidden_states):
    inputs, arrays = load(goldens(folder))
    task = cls.from_preset(goldens(folder))
    assert_equal(task(inputs), arrays["out.logits"])
    assert_equal(hidden_states(task.backbone, inputs), arrays["out.hidden_states"])
    assert_equal(task.backbone.attention_probabilities(inputs), arrays["out.attentions"])
    metrics = task.evaluate(inputs, arrays["in.labels"], verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.loss"])
    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    assert type(again) is cls
    np.testing.assert_array_equal(again(inputs), task(inputs))


@pytest.mark.parametrize(
    "folder, kind",
    [("roberta", "classifier"), ("roberta", "masked_lm"), ("distilbert", "classifier")],
)
def test_keras_hub(goldens, folder, kind, assert_equal):
    folder = goldens(f"{folder}-keras-hub")
    arrays = np.load(folder / "expected.npz")
    inputs = {key: arrays[f"in.{key}"] for key in ("token_ids", "padding_mask")}
    cls = {"classifier": tasks.TextClassifier, "masked_lm": tasks.MaskedLM}[kind]
    task = cls.from_preset(folder / kind)
    real = inputs["padding_mask"] > 0  # there, positions of padding are other ones
    outputs = task.backbone(inputs)["sequence_output"]
    assert_equal(outputs[real], arrays[f"{kind}.sequence_output"][real])
    if kind == "masked_lm":
        inputs["mask_positions"] = arrays["in.mask_positions"]
    assert_equal(task(inputs), arrays[f"{kind}.logits"])
    if kind == "classifier":
        texts = [str(text) for text in arrays["text.text"]]
        packed = task.preprocess({"text": texts})
        ids = packed["token_ids"]
        np.testing.assert_array_equal(ids, arrays["text.token_ids"][:, : ids.shape[1]])
        assert_equal(task(packed), arrays["text.logits"])


# === What holds whatever the weights ===


def test_padding_changes_nothing_on_either_side(backbone):
    ids = np.array([[4, 7, 9, 11]], "int32")
    alone = backbone({"token_ids": ids})["sequence_output"]
    for before, after in ((0, 3), (3, 0)):
        width = [(0, 0), (before, after)]
        padded = backbone(
            {"token_ids": np.pad(ids, width), "padding_mask": np.pad(np.ones_like(ids), width)}
        )["sequence_output"]
        np.testing.assert_allclose(padded[:, before : before + 4], alone, atol=1e-5)


def test_a_full_row_and_a_row_of_padding(backbone):
    ids = np.full((2, 32), 5, "int32")
    mask = np.array([[1] * 32, [0] * 32], "int32")
    assert np.isfinite(backbone({"token_ids": ids, "padding_mask": mask})["sequence_output"]).all()
    with pytest.raises(ValueError, match="33 columns"):
        backbone({"token_ids": np.ones((1, 33), "int32")})


def test_configuration_round_trip(backbone, tmp_path):
    again = type(backbone).from_config(backbone.get_config())
    assert again.get_config() == backbone.get_config()
    backbone.save(tmp_path / "backbone.keras")
    loaded = keras.saving.load_model(tmp_path / "backbone.keras")
    inputs = {"token_ids": [[4, 7, 9]]}
    for key, value in backbone(inputs).items():
        np.testing.assert_array_equal(loaded(inputs)[key], value)


def test_mixed_precision(name, tokenizer):
    backbone = MODELS[name][0](
        vocabulary_size=tokenizer.vocabulary_size, **TINY, dtype="mixed_bfloat16"
    )
    inputs = {"token_ids": np.array([[4, 7, 9], [0, 0, 0]]), "padding_mask": [[1] * 3, [0] * 3]}
    dtype = backbone(inputs)["sequence_output"].dtype
    assert keras.backend.standardize_dtype(dtype) == "bfloat16"
    assert {w.dtype for w in backbone.weights if "seed" not in w.path} == {"float32"}
    for task in (tasks.TextClassifier(backbone, num_classes=2), tasks.MaskedLM(backbone)):
        logits = task(inputs)
        assert logits.dtype == "float32"
        assert np.isfinite(logits).all()


@pytest.mark.parametrize("cls", ALL_TASKS)
def test_every_task(backbone, tokenizer, cls):
    task = getattr(tasks, cls)(backbone, tokenizer=tokenizer, **ALL_TASKS[cls])
    x = {"text": GOOD}
    if cls == "MultipleChoice":
        x = x | {"choices": [["yes", "no"]] * 4}
    outputs = keras.tree.flatten(task(task.preprocess(task.columns(x))))
    assert all(len(output) == 4 and np.isfinite(output).all() for output in outputs)
    if cls == "Pretrainer":  # by masking alone, no labels
        assert np.isfinite(task.evaluate(GOOD, verbose=0, return_dict=True)["loss"])
    if cls == "MaskedLM":
        mask = tokenizer.special_tokens["mask"]
        assert task.fill_mask([f"great {mask}"])["tokens"].shape == (1, 1, 5)


def test_a_classifier_from_strings_to_files(backbone, tokenizer, tmp_path):
    task = tasks.TextClassifier(backbone, class_names=["bad", "good"], tokenizer=tokenizer)
    task.compile(optimizer=keras.optimizers.Adam(0.03))
    labels = ["good"] * 4 + ["bad"] * 4
    losses = task.fit(GOOD + BAD, labels, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    texts = ["great !", "", "a" * 60]
    answer = task.classify(texts)

    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    assert type(again.tokenizer) is type(tokenizer)
    np.testing.assert_array_equal(again.classify(texts)["scores"], answer["scores"])

    served = tf.saved_model.load(str(task.export(tmp_path / "export")))
    found = served.signatures["serving_default"](text=tf.constant(texts))
    np.testing.assert_allclose(found["scores"], answer["scores"], atol=1e-5)
    assert found["labels"].numpy().tolist() == [label.encode() for label in answer["labels"]]

    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    serve, _ = load_tflite(str(task.export(tmp_path / "model.tflite", format="litert")))
    found = serve(text=np.array([text.encode() for text in texts], object))
    np.testing.assert_allclose(found["scores"], answer["scores"], atol=1e-4)


@pytest.mark.parametrize(
    "cls, options",
    [
        (RobertaBackbone, {}),
        (RobertaBackbone, {"num_segments": 0, "use_pooler": True, "first_position": 5}),
        (DistilBertBackbone, {}),
    ],
)
def test_estimate_equals_a_model_that_is_built(cls, options):
    options = {"vocabulary_size": 9} | TINY | options
    assert estimate(cls, **options)["parameters"] == cls(**options).count_params()


# As Hugging Face counts them, without poolers.
@pytest.mark.parametrize(
    "size, parameters",
    [
        ("roberta_base_en", 124_055_040),
        ("roberta_large_en", 354_310_144),
        ("xlm_roberta_base_multi", 277_453_056),
        ("distil_bert_base_en_uncased", 66_362_880),
        ("distil_bert_base_multi", 134_734_080),
    ],
)
def test_sizes(size, parameters):
    cls = RobertaBackbone if "roberta" in size else DistilBertBackbone
    assert estimate(cls, **cls.SIZES[size])["parameters"] == parameters
    assert set(cls.SIZES) == set(cls.PUBLISHED)
    with pytest.raises(ValueError, match="published at hf://"):
        Backbone.from_preset(size)


# === Folders as they are found ===


@pytest.mark.parametrize("folder", ["roberta", "roberta-seqcls", "distilbert"])
@pytest.mark.parametrize("kind", ["no model type", "no prefix", "old names", "tied copy"])
def test_other_spellings(goldens, variant, folder, kind):
    prefix = folder.removesuffix("-seqcls") + "."
    decoder = "vocab_projector" if folder == "distilbert" else "lm_head.decoder"

    def old(name):
        parts = name.split(".")
        if "norm" in parts[-2].lower():
            parts[-1] = {"weight": "gamma", "bias": "beta"}[parts[-1]]
        return ".".join(parts) if "embeddings" in name or "layer." in name else name

    made = {
        "no model type": lambda: variant(folder, {"model_type": ...}),
        "no prefix": lambda: variant(folder, rename=lambda name: name.removeprefix(prefix)),
        "old names": lambda: variant(folder, rename=old),
        "tied copy": lambda: variant(
            folder,
            rename=lambda name: name.replace("lm_head.bias", "lm_head.decoder.bias"),
            more={f"{decoder}.weight": np.zeros((3, 3), "f4")},
        ),
    }[kind]()
    cls = tasks.TextClassifier if folder == "roberta-seqcls" else tasks.MaskedLM
    inputs, arrays = load(goldens(folder))
    np.testing.assert_allclose(
        cls.from_preset(made)(inputs), arrays["out.logits"], rtol=1e-5, atol=5e-5
    )
