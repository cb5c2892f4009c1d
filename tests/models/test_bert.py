"""BERT against its authors' code and its ports, on goldens and on real weights."""

import importlib.util
import json
import shutil

import keras
import numpy as np
import pytest
from tiny import inputs_of

import keras_lm
from keras_lm.converters import CheckpointError
from keras_lm.models import Backbone, BertBackbone
from keras_lm.models.sizes import estimate, transformer_size
from keras_lm.tasks import FeatureExtractor, MaskedLM, Pretrainer, TextClassifier, TextRegressor

CLASSIFIERS = {
    "bert-seqcls": TextClassifier,
    "bert-seqcls-multilabel": TextClassifier,
    "bert-seqcls-regression": TextRegressor,
}
TINY = transformer_size(50, 3, 16, 2, 24, max_sequence_length=12)


def load(folder):
    """Expected outputs of a golden, and its inputs under our names."""
    arrays = np.load(folder / "expected.npz")
    return inputs_of(arrays), {name.removeprefix("out."): arrays[name] for name in arrays}


# === The references ===


@pytest.mark.eager
def test_huggingface_pretraining(goldens, assert_equal, hidden_states):
    inputs, expected = load(goldens("bert"))
    task = Pretrainer.from_preset(goldens("bert"))
    outputs = task(inputs)
    assert_equal(outputs["token_logits"], expected["prediction_logits"])
    assert_equal(outputs["next_sentence_logits"], expected["seq_relationship_logits"])
    assert_equal(hidden_states(task.backbone, inputs), expected["hidden_states"])
    assert_equal(task.backbone.attention_probabilities(inputs), expected["attentions"])
    labels = {
        "token_labels": expected["in.labels"],
        "next_sentence_labels": expected["in.next_sentence_label"],
    }
    metrics = task.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert_equal(metrics["loss"], expected["loss"])
    predicted = task.predict(inputs, batch_size=2, verbose=0)
    assert_equal(predicted["token_logits"], expected["prediction_logits"])


@pytest.mark.eager
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_huggingface_classification(goldens, tmp_path, name, assert_equal, hidden_states):
    inputs, expected = load(goldens(name))
    task = CLASSIFIERS[name].from_preset(goldens(name))
    assert_equal(task(inputs), expected["logits"])
    metrics = task.evaluate(inputs, expected["in.labels"], verbose=0, return_dict=True)
    assert_equal(metrics["loss"], expected["loss"])
    assert_equal(hidden_states(task.backbone, inputs), expected["hidden_states"])
    assert_equal(task.backbone.attention_probabilities(inputs), expected["attentions"])
    task.save_to_preset(tmp_path / "preset")
    again = keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    assert type(again) is CLASSIFIERS[name]
    np.testing.assert_array_equal(again(inputs), task(inputs))


@pytest.mark.eager
def test_training_starts_at_the_references_loss_and_lowers_it(goldens, assert_equal):
    inputs, expected = load(goldens("bert-seqcls"))
    task = TextClassifier.from_preset(goldens("bert-seqcls"), dropout=0.0)
    task.compile(optimizer=keras.optimizers.SGD(0.03))
    history = task.fit(inputs, expected["in.labels"], batch_size=3, epochs=3, verbose=0).history
    assert_equal(history["loss"][0], expected["loss"])
    assert history["loss"][-1] < 0.5 * history["loss"][0]


@pytest.mark.eager
def test_google_research(goldens, assert_equal, hidden_states):
    arrays = np.load(goldens("tf1-bert") / "expected.npz")
    inputs = {
        "token_ids": arrays["in.input_ids"],
        "segment_ids": arrays["in.segment_ids"],
        "padding_mask": arrays["in.input_mask"],
    }
    task = Pretrainer.from_preset(goldens("tf1-bert"))
    assert_equal(task.backbone(inputs)["pooled_output"], arrays["out.pooled"])
    states = hidden_states(task.backbone, inputs)
    assert_equal(states[0], arrays["out.embedding_output"])
    assert_equal(states[1:], arrays["out.encoder_layers"])

    inputs["mask_positions"] = arrays["in.masked_lm_positions"]
    outputs = {name: keras.ops.log_softmax(logits) for name, logits in task(inputs).items()}
    rows = arrays["out.mlm_log_probs"].shape
    assert_equal(np.reshape(outputs["token_logits"], rows), arrays["out.mlm_log_probs"])
    assert_equal(outputs["next_sentence_logits"], arrays["out.nsp_log_probs"])
    known = arrays["in.masked_lm_weights"] > 0
    labels = {
        "token_labels": np.where(known, arrays["in.masked_lm_ids"], keras_lm.objectives.IGNORED),
        "next_sentence_labels": arrays["in.next_sentence_labels"][:, 0],
    }
    metrics = task.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert_equal(metrics["token_logits_loss"], arrays["out.mlm_loss"])
    assert_equal(metrics["next_sentence_logits_loss"], arrays["out.nsp_loss"])
    assert_equal(metrics["loss"], arrays["out.loss"])


@pytest.mark.eager
def test_keras_hub(goldens, assert_equal):
    folder = goldens("bert-keras-hub")
    arrays = np.load(folder / "expected.npz")
    inputs = {key: arrays[f"in.{key}"] for key in ("token_ids", "segment_ids", "padding_mask")}
    for name in ("classifier", "masked_lm"):
        with pytest.warns(UserWarning, match="left over in the checkpoint are task/"):
            backbone = Backbone.from_preset(folder / name)
        for output, value in backbone(inputs).items():
            assert_equal(value, arrays[f"{name}.{output}"])
    task = TextClassifier.from_preset(folder / "classifier")
    assert_equal(task(inputs), arrays["classifier.logits"])
    texts = [str(text) for text in arrays["text.text"]]
    assert_equal(task.predict(texts, verbose=0), arrays["text.logits"])


@pytest.mark.eager
@pytest.mark.parametrize(("encoder", "saved_as"), [("v1", "encoder"), ("v2", "pretrainer")])
def test_model_garden(goldens, encoder, saved_as, assert_equal):
    folder = goldens("model-garden") / f"{encoder}-{saved_as}"
    arrays = np.load(folder / "expected.npz")
    inputs = {
        "token_ids": arrays["in.input_word_ids"],
        "segment_ids": arrays["in.input_type_ids"],
        "padding_mask": arrays["in.input_mask"],
    }
    if saved_as == "encoder":
        backbone = Backbone.from_preset(folder)
    else:
        with pytest.warns(UserWarning, match="left over in the checkpoint are bert/next_sentence"):
            task = MaskedLM.from_preset(folder)
        backbone = task.backbone
        masked = inputs | {"mask_positions": arrays["in.masked_lm_positions"]}
        assert_equal(task(masked), arrays["out.mlm_logits"])
    outputs = backbone(inputs)
    assert_equal(outputs["sequence_output"], arrays["out.sequence_output"])
    assert_equal(outputs["pooled_output"], arrays["out.pooled_output"])


@pytest.mark.eager
def test_real_minilm(goldens, minilm, assert_equal):
    arrays = np.load(goldens("real-weights") / "expected.npz")
    extractor = FeatureExtractor.from_preset(minilm)  # pools and normalises as the folder says
    texts = [str(text) for text in arrays["minilm.texts"]]
    packed = extractor.preprocess({"text": texts})
    np.testing.assert_array_equal(packed["token_ids"], arrays["minilm.token_ids"])
    np.testing.assert_array_equal(packed["padding_mask"], arrays["minilm.padding_mask"])
    outputs = extractor.backbone(packed)
    assert_equal(outputs["sequence_output"][:, :, ::16], arrays["minilm.sequence_output"])
    assert_equal(outputs["pooled_output"], arrays["minilm.pooled_output"])
    assert_equal(extractor.embed(texts)["embedding"], arrays["minilm.embedding"])


@pytest.mark.slow
def test_real_rxnfp_with_both_pretraining_heads(goldens, assert_equal):
    spec = importlib.util.find_spec("rxnfp")
    if spec is None:
        pytest.skip("needs: pip install --no-deps -r requirements-weights.txt")
    folder = spec.submodule_search_locations[0] + "/models/transformers/bert_pretrained"
    arrays = np.load(goldens("real-weights") / "expected.npz")
    inputs = {key: arrays[f"rxnfp.{key}"] for key in ("token_ids", "segment_ids", "padding_mask")}
    outputs = Pretrainer.from_preset(folder)(inputs)
    assert_equal(outputs["token_logits"][:, :, ::16], arrays["rxnfp.token_logits"])
    assert_equal(outputs["next_sentence_logits"], arrays["rxnfp.next_sentence_logits"])


# === What holds whatever the weights ===


@pytest.fixture(scope="module")
def backbone():
    return BertBackbone(**TINY)


def test_hidden_states_and_attention(backbone, hidden_states):
    inputs = {"token_ids": np.array([[4, 7, 9]], "int32")}
    states = hidden_states(backbone, inputs)
    assert states.shape == (4, 1, 3, 16)
    np.testing.assert_allclose(states[-1], backbone(inputs)["sequence_output"], atol=1e-6)
    probabilities = np.stack(backbone.attention_probabilities(inputs))
    assert probabilities.shape == (3, 1, 2, 3, 3)
    np.testing.assert_allclose(probabilities.sum(-1), 1.0, rtol=1e-5)


def test_lists_and_left_out_inputs_mean_the_defaults(backbone):
    ids = [[4, 7, 9]]
    full = {"token_ids": ids, "segment_ids": [[0, 0, 0]], "padding_mask": [[1, 1, 1]]}
    np.testing.assert_array_equal(
        backbone({"token_ids": ids})["sequence_output"], backbone(full)["sequence_output"]
    )
    symbolic = backbone({"token_ids": keras.Input((None,), dtype="int32")})
    assert symbolic["pooled_output"].shape == (None, 16)


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match="num_heads=3 does not divide"):
        BertBackbone(**{**TINY, "num_heads": 3})


def test_without_pooler_there_is_no_pooled_output():
    backbone = BertBackbone(**TINY, use_pooler=False)
    assert set(backbone({"token_ids": [[1]]})) == {"sequence_output"}
    task = TextClassifier(backbone, num_classes=3)  # brings a pooler of its own
    assert task({"token_ids": [[1]]}).shape == (1, 3)
    assert {w.path for w in task.head.weights} >= {"classifier/pooler/kernel"}


# Parameters as published: the papers' rounded counts, and Hugging Face's exact ones.
@pytest.mark.parametrize(
    ("size", "parameters"),
    [("bert_tiny_en_uncased", 4_385_920), ("bert_base_en_uncased", 109_482_240)],
)
def test_sizes(size, parameters):
    assert estimate(BertBackbone, **BertBackbone.SIZES[size])["parameters"] == parameters
    with pytest.raises(ValueError, match="hf://google"):
        Backbone.from_preset(size)


def test_a_size_is_built_as_it_is_counted():
    backbone = Backbone.from_preset("bert_tiny_en_uncased", load_weights=False)
    assert sum(np.prod(w.shape) for w in backbone.trainable_weights) == 4_385_920


def test_every_size_is_published_somewhere():
    assert set(BertBackbone.SIZES) == set(BertBackbone.PUBLISHED)
    for config in BertBackbone.SIZES.values():
        assert config["hidden_dim"] % config["num_heads"] == 0


# What the configurations of multilingual BERTs have more than the first ones.
PUBLISHED_KEYS = {
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
}


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "BertForPreTraining"])
def test_whole_word_masking_and_multilingual_models_are_bert(
    goldens, variant, architecture, assert_equal
):
    """Masked by words, or with another vocabulary, it is the same network, of the older names."""

    def old(name):
        for new, other in (("weight", "gamma"), ("bias", "beta")):
            name = name.replace(f"LayerNorm.{new}", f"LayerNorm.{other}")
        return name

    folder = variant("bert", PUBLISHED_KEYS | {"architectures": [architecture]}, rename=old)
    inputs, expected = load(goldens("bert"))
    task = Pretrainer.from_preset(folder)
    assert type(task.backbone) is BertBackbone
    assert_equal(task(inputs)["token_logits"], expected["prediction_logits"])


def test_mobilebert_of_google_is_refused(goldens, tmp_path):
    folder = shutil.copytree(goldens("tf1-bert"), tmp_path / "mobile")
    config = json.loads((folder / "bert_config.json").read_text()) | {"trigram_input": True}
    (folder / "bert_config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="trigram_input=True"):
        Backbone.from_preset(folder)


def test_what_the_model_does_not_know_is_an_error(goldens, tmp_path):
    for key, value in (("position_embedding_type", "relative_key"), ("is_decoder", True)):
        folder = tmp_path / key
        shutil.copytree(goldens("bert"), folder)
        config = json.loads((folder / "config.json").read_text()) | {key: value}
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=key):
            Backbone.from_preset(folder)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "roformer"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="roformer"):
        Backbone.from_preset(folder)
