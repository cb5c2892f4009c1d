"""ELECTRA against its authors' code and Hugging Face's, and a folder that holds both networks."""

import math
import shutil

import numpy as np
import pytest
from tiny import inputs_of

from keras_lm import tasks
from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.inspection import inspect_size
from keras_lm.models import Backbone, ElectraBackbone, ElectraGeneratorBackbone
from keras_lm.models.sizes import estimate, transformer_size
from keras_lm.objectives import IGNORED

TINY = transformer_size(9, 1, 6, 2, 8, max_sequence_length=8)


def load(folder):
    arrays = np.load(folder / "expected.npz")
    return inputs_of(arrays), arrays


# === The references ===


@pytest.mark.eager
@pytest.mark.parametrize(
    "folder, cls, backbone_class",
    [
        ("electra-discriminator", tasks.Pretrainer, ElectraBackbone),
        ("electra-generator", tasks.MaskedLM, ElectraGeneratorBackbone),
    ],
)
def test_huggingface(goldens, folder, cls, backbone_class, tmp_path, assert_equal, hidden_states):
    inputs, arrays = load(goldens(folder))
    task = cls.from_preset(goldens(folder))
    assert type(task.backbone) is backbone_class
    assert_equal(hidden_states(task.backbone, inputs), arrays["out.hidden_states"])
    assert_equal(task.backbone.attention_probabilities(inputs), arrays["out.attentions"])
    labels = arrays["in.labels"]
    if cls is tasks.Pretrainer:
        assert_equal(task(inputs)["replaced_logits"], arrays["out.logits"])
        labels = np.where(inputs["padding_mask"] > 0, labels, IGNORED)
    else:
        assert_equal(task(inputs), arrays["out.logits"])
    metrics = task.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.loss"])
    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    assert [type(again), type(again.backbone)] == [cls, backbone_class]


def google(goldens, tmp_path, has_config):
    if has_config:
        return goldens("tf1-electra")
    folder = shutil.copytree(goldens("tf1-electra"), tmp_path / "google")
    (folder / "config.json").unlink()
    return folder


# Each network leaves the other over.
@pytest.mark.eager
@pytest.mark.filterwarnings("ignore:.*left over in the checkpoint")
@pytest.mark.parametrize("has_config", [True, False])
def test_google_research(goldens, tmp_path, has_config, assert_equal, hidden_states):
    arrays = np.load(goldens("tf1-electra") / "expected.npz")
    folder = google(goldens, tmp_path, has_config)
    rest = {"segment_ids": arrays["in.segment_ids"], "padding_mask": arrays["in.input_mask"]}

    task = tasks.Pretrainer.from_preset(folder, **({} if has_config else {"num_heads": 4}))
    assert type(task.backbone) is ElectraBackbone
    inputs = rest | {"token_ids": arrays["in.replaced_ids"]}
    states = hidden_states(task.backbone, inputs)
    assert_equal(states[0], arrays["out.disc_embedding"])
    assert_equal(states[1:], arrays["out.disc_layers"])
    logits = np.asarray(task(inputs)["replaced_logits"])
    assert_equal(1 / (1 + np.exp(-logits)), arrays["out.rtd_probs"])
    labels = np.where(arrays["in.input_mask"] > 0, arrays["in.is_fake"], IGNORED)
    metrics = task.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.rtd_loss"])

    task = tasks.MaskedLM.from_preset(folder, **({} if has_config else {"num_heads": 2}))
    assert type(task.backbone) is ElectraGeneratorBackbone
    inputs = rest | {"token_ids": arrays["in.input_ids"]}
    states = hidden_states(task.backbone, inputs)
    assert_equal(states[0], arrays["out.gen_embedding"])
    assert_equal(states[1:], arrays["out.gen_layers"])
    inputs["mask_positions"] = arrays["in.masked_lm_positions"]
    assert_equal(task(inputs), arrays["out.mlm_logits"])
    known = arrays["in.masked_lm_weights"] > 0
    labels = np.where(known, arrays["in.masked_lm_ids"], IGNORED)
    metrics = task.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.mlm_loss"])


@pytest.mark.filterwarnings("ignore:.*left over in the checkpoint")
def test_google_folders_hold_two_networks(goldens, tmp_path):
    folder = goldens("tf1-electra")
    for cls in (Backbone, ElectraBackbone):  # the one to fine-tune
        assert type(cls.from_preset(folder)) is ElectraBackbone
    generator = ElectraGeneratorBackbone.from_preset(folder)
    assert type(generator) is ElectraGeneratorBackbone
    assert [generator.config[key] for key in ("hidden_dim", "embedding_dim")] == [20, 24]
    # Heads are 64 wide; other widths have to be passed.
    with pytest.raises(CheckpointError, match="num_heads=None: pass a whole number"):
        ElectraBackbone.from_preset(google(goldens, tmp_path, has_config=False))


# === Heads ===


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize("cls", [tasks.TextClassifier, tasks.MultipleChoice])
def test_texts_are_classified_by_a_dense_layer_with_gelu(goldens, variant, cls):
    """As Hugging Face names and computes the heads of texts and of choices."""
    is_choice = cls is tasks.MultipleChoice
    rng = np.random.default_rng(0)
    dense, out = (
        ("sequence_summary.summary", "classifier")
        if is_choice
        else ("classifier.dense", "classifier.out_proj")
    )
    arrays = {
        f"{dense}.weight": rng.normal(size=(48, 48)),
        f"{dense}.bias": rng.normal(size=48),
        f"{out}.weight": rng.normal(size=(1 if is_choice else 3, 48)),
        f"{out}.bias": rng.normal(size=1 if is_choice else 3),
    }
    arrays = {name: array.astype("float32") for name, array in arrays.items()}
    kind = "MultipleChoice" if is_choice else "SequenceClassification"
    folder = variant(
        "electra-discriminator",
        {"architectures": [f"ElectraFor{kind}"]},
        rename=lambda name: None if name.startswith("discriminator") else name,
        more=arrays,
    )
    task = tasks.Task.from_preset(folder)
    assert type(task) is cls
    inputs, _ = load(goldens("electra-discriminator"))
    first = task.backbone(inputs)["sequence_output"].numpy()[:, 0]
    hidden = gelu(first @ arrays[f"{dense}.weight"].T + arrays[f"{dense}.bias"])
    expected = hidden @ arrays[f"{out}.weight"].T + arrays[f"{out}.bias"]
    actual = task({name: x[None] if is_choice else x for name, x in inputs.items()})
    np.testing.assert_allclose(actual, expected.T if is_choice else expected, rtol=1e-4, atol=1e-4)


def test_embeddings_are_projected_only_if_their_width_differs():
    def paths(**arguments):
        return {w.path for w in ElectraBackbone(**TINY, **arguments).weights}

    assert paths(embedding_dim=4) - paths() == {"projection/kernel", "projection/bias"}
    assert paths(embedding_dim=6) == paths()
    for arguments in ({}, {"embedding_dim": 4}):
        backbone = ElectraBackbone(**TINY, **arguments)
        assert estimate(ElectraBackbone, **TINY, **arguments)["parameters"] == (
            backbone.count_params()
        )


# As KerasHub counts them, less the pooler that it adds.
@pytest.mark.parametrize(
    "size, parameters, hidden_dim",
    [
        ("electra_small_discriminator_uncased_en", 13_548_800, 256),
        ("electra_small_generator_uncased_en", 13_548_800, 256),
        ("electra_base_discriminator_uncased_en", 109_482_240, 768),
        ("electra_base_generator_uncased_en", 33_576_960, 256),
        ("electra_large_discriminator_uncased_en", 335_141_888, 1024),
        ("electra_large_generator_uncased_en", 51_065_344, 256),
    ],
)
def test_sizes(size, parameters, hidden_dim):
    cls = ElectraGeneratorBackbone if "generator" in size else ElectraBackbone
    actual = estimate(cls, **cls.SIZES[size])["parameters"]
    assert actual == parameters - (hidden_dim + 1) * hidden_dim
    with pytest.raises(ValueError, match="published at hf://google/electra"):
        cls.from_preset(size)


def test_operations_of_pretraining_include_the_generator():
    """By hand: kernels of both networks twice a token, attention, heads; training is threefold."""
    blocks = [12 * 12 * 768**2, 12 * 12 * 256**2]
    attention = [2 * 12 * 512 * 768, 2 * 12 * 512 * 256]
    heads = 768 * 769 + 0.15 * (256 * 768 + 768 * 30522)
    expected = 3 * 2 * (sum(blocks) + sum(attention) + heads)
    actual = inspect_size("electra_base_discriminator_uncased_en")["flops_per_token"]
    assert actual["forward"] == 2 * (blocks[0] + attention[0])
    assert actual["pretraining"] == pytest.approx(expected, rel=1e-6)


# === Folders as they are found ===


@pytest.mark.parametrize(
    "folder, kind",
    [
        ("electra-discriminator", "no model type"),
        ("electra-discriminator", "no prefix"),
        ("electra-discriminator", "tied copy"),
        ("electra-generator", "no model type"),
        ("electra-generator", "old names"),
        ("electra-generator", "tied copy"),
    ],
)
def test_other_spellings(goldens, variant, folder, kind):
    def old(name):
        for new, other in (("weight", "gamma"), ("bias", "beta")):
            name = name.replace(f"LayerNorm.{new}", f"LayerNorm.{other}")
        return name

    table = open_checkpoint(goldens(folder)).tensors["electra.embeddings.word_embeddings.weight"]
    made = {
        "no model type": lambda: variant(folder, {"model_type": ...}),
        "no prefix": lambda: variant(folder, rename=lambda name: name.removeprefix("electra.")),
        "old names": lambda: variant(folder, rename=old),
        "tied copy": lambda: variant(folder, more={"generator_lm_head.weight": table}),
    }[kind]()
    inputs, arrays = load(goldens(folder))
    cls = tasks.MaskedLM if folder == "electra-generator" else tasks.Pretrainer
    actual = cls.from_preset(made)(inputs)
    actual = actual if cls is tasks.MaskedLM else actual["replaced_logits"]
    np.testing.assert_allclose(actual, arrays["out.logits"], rtol=1e-5, atol=5e-5)


def test_a_generator_with_embeddings_of_its_own(goldens):
    """As `untied_generator_embeddings` of the authors' code makes it."""
    tensors = open_checkpoint(goldens("tf1-electra")).tensors
    names = ElectraGeneratorBackbone.CONVERTERS["google"].names
    own = "generator/embeddings/word_embeddings"
    assert names.resolve([*tensors])["embeddings/word_embeddings"].startswith("electra/")
    assert names.resolve([*tensors, own])["embeddings/word_embeddings"] == own


def test_what_the_model_does_not_know_is_an_error(variant):
    with pytest.raises(ValueError, match="is_decoder"):
        Backbone.from_preset(variant("electra-generator", {"is_decoder": True}))
