"""What RoBERTa and DistilBERT share: equal to their references, sizes, published folders."""

import shutil
import warnings

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.converters import open_checkpoint
from keras_lm.models import Backbone, DistilBertBackbone, RobertaBackbone
from keras_lm.models.sizes import estimate

TINY = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "max_sequence_length": 32,
    "dropout": 0.0,
}


def load(folder):
    arrays = np.load(folder / "expected.npz")
    inputs = {
        "token_ids": arrays["in.input_ids"].astype("int32"),
        "padding_mask": arrays["in.attention_mask"].astype("int32"),
    }
    return inputs, arrays


def embedding(folder):
    """The token embedding of a folder of Hugging Face's."""
    tensors = open_checkpoint(folder).tensors
    results = [n for n in tensors if n.endswith((".word_embeddings.weight", "wte.weight"))]
    return tensors[results[0]]


# === The references ===


@pytest.mark.eager
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


@pytest.mark.eager
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


@pytest.mark.parametrize(
    "folder, kind",
    [
        ("roberta", "no model type"),
        ("roberta", "old names"),
        ("roberta", "tied copy"),
        ("roberta-seqcls", "no model type"),
        ("roberta-seqcls", "no prefix"),
        ("distilbert", "no model type"),
        ("distilbert", "no prefix"),
        ("distilbert", "old names"),
        ("distilbert", "tied copy"),
    ],
)
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
            more={f"{decoder}.weight": embedding(goldens(folder))},
        ),
    }[kind]()
    cls = tasks.TextClassifier if folder == "roberta-seqcls" else tasks.MaskedLM
    inputs, arrays = load(goldens(folder))
    np.testing.assert_allclose(
        cls.from_preset(made)(inputs), arrays["out.logits"], rtol=1e-5, atol=5e-5
    )


@pytest.mark.parametrize(
    "folder, name, cls",
    [
        ("bert", "cls.predictions.decoder.weight", tasks.MaskedLM),
        ("albert", "predictions.decoder.weight", tasks.Pretrainer),
        ("roberta", "lm_head.decoder.weight", tasks.MaskedLM),
        ("distilbert", "vocab_projector.weight", tasks.Pretrainer),
        ("electra-generator", "generator_lm_head.weight", tasks.MaskedLM),
        ("gpt2", "lm_head.weight", tasks.CausalLM),
    ],
)
def test_an_output_matrix_of_its_own(goldens, variant, folder, name, cls):
    own = embedding(goldens(folder)) + 1
    made = variant(folder, {"tie_word_embeddings": False}, more={name: own})
    with pytest.raises(ValueError, match=f"has {name}, which differs from"):
        cls.from_preset(made, tokenizer=None)
    with pytest.warns(UserWarning, match=f"left over in the checkpoint are .*{name}"):
        Backbone.from_preset(made)
    # Version 4 of transformers takes the embedding if it does not say that they differ, 5 does not.
    shutil.copy(goldens(folder) / "config.json", made)
    with pytest.raises(ValueError, match=f"has {name}, which differs from"):
        cls.from_preset(made, tokenizer=None)


@pytest.mark.eager
@pytest.mark.parametrize(
    "folder, architecture, cls",
    [
        ("bert-seqcls", "BertModel", tasks.TextClassifier),
        ("bert-tokencls", "BertModel", tasks.TokenClassifier),
        ("roberta-seqcls", "RobertaModel", tasks.TextClassifier),
        ("albert-seqcls", "AlbertModel", tasks.TextClassifier),
    ],
)
def test_a_classifier_in_a_folder_of_a_bare_model(goldens, variant, folder, architecture, cls):
    """Its weights are read, and nothing is new or left over."""
    with np.load(goldens(folder) / "expected.npz") as arrays:
        inputs = {
            "token_ids": arrays["in.input_ids"].astype("int32"),
            "padding_mask": arrays["in.attention_mask"].astype("int32"),
        }
        if "in.token_type_ids" in arrays:
            inputs["segment_ids"] = arrays["in.token_type_ids"].astype("int32")
        expected = arrays["out.logits"]
    made = variant(folder, {"architectures": [architecture]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = cls.from_preset(made, tokenizer=None)
    np.testing.assert_allclose(task(inputs), expected, rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize(
    "names, expected",
    [(["a", "a", "b"], ["a", "a_1", "b"]), (["a", "a", "a_1"], ["a", "a_1", "a_1_2"])],
)
def test_a_label_that_stands_twice(variant, names, expected):
    made = variant("bert-seqcls", {"id2label": {str(i): name for i, name in enumerate(names)}})
    assert tasks.TextClassifier.from_preset(made, tokenizer=None).class_names == expected
