"""No tensor of a published folder is passed over in silence, in any family."""

import re

import numpy as np
import pytest

from keras_lm.models import Backbone
from keras_lm.presets import Source

FAMILIES = ["albert", "bert-seqcls", "distilbert", "electra-generator", "gpt-neo", "gpt2", "marian"]
FAMILIES += [
    "eurobert",
    "modernbert",
    "mpnet",
    "nomic-bert",
    "gte",
    "jinabert",
    "jinabert-normed",
    "openai-gpt",
    "roberta",
    "spanbert",
    "t5",
    "t5-v1_1",
    "transfo-xl",
    "xlnet",
    "reformer-mixed",
]
# Names that some family has for what is no weight, elsewhere than there.
NAMES_OF_BUFFERS = (
    "position_ids",
    "mask_value_float32",
    "masked_bias",
    "inv_freq",
    "version",
    "attn.bias",
)
NAMES_OF_BUFFERS += ("embed_positions.weight", "relative_attention_bias.weight")


@pytest.fixture
def load(goldens):
    """`load("bert", more)` returns what is left over of a golden's tensors and these."""

    def load(name, more):
        source = Source.open(goldens(name))
        cls, _ = source.recognise()
        backbone, converter = source.make_backbone(cls, {})
        stored = source.checkpoint.tensors
        tensors = {key: np.asarray(stored[key]) for key in stored} | more
        _, unused = converter.names.load(backbone.weights_by_path, tensors)
        return set(unused)

    return load


@pytest.mark.parametrize("name", FAMILIES)
def test_stray_tensors_are_left_over(name, load, goldens):
    names, strays = list(Source.open(goldens(name)).checkpoint.tensors), set()
    for key in names:
        module, _, _leaf = key.rpartition(".")
        others = ["stray", "bias_2", "extra.weight", "bias", *NAMES_OF_BUFFERS]
        strays |= {f"{module}.{other}" for other in others}
        strays.add(re.sub(r"\.(\d+)\.", lambda actual: f".{int(actual[1]) + 7}.", key, count=1))
    strays -= set(names)
    assert len(strays) > 100
    more = {stray: np.full(3, i + 0.5, "float32") for i, stray in enumerate(sorted(strays))}
    assert not strays - load(name, more)


SINES = np.random.default_rng(0).normal(size=(40, 48)).astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, key, sound, other",
    [
        (
            "bert",
            "bert.embeddings.position_ids",
            np.arange(40)[np.newaxis],
            np.arange(40)[np.newaxis] + 1,
        ),
        ("roberta", "roberta.embeddings.position_ids", np.arange(512), np.zeros(512, "int64")),
        ("openai-gpt", "transformer.position_ids", np.arange(9), np.arange(9)[::-1].copy()),
        ("marian", "model.encoder.embed_positions.weight", None, SINES),
        ("marian", "model.decoder.embed_positions.weight", None, SINES[:, :7]),
        ("transfo-xl", "transformer.pos_emb.inv_freq", None, np.ones(24, "float32")),
        ("gpt2", "transformer.h.0.attn.bias", np.ones((1, 1, 4, 4)), None),
    ],
)
def test_buffers_are_what_the_model_computes(name, key, sound, other, load, goldens):
    if sound is None and "embed" in key:
        angles = np.arange(40)[:, None] * 10000.0 ** (-np.arange(24) / 24)
        sound = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float16")
    elif sound is None:
        width = Backbone.from_preset(goldens(name)).config["hidden_dim"]
        sound = 1 / 10000 ** (np.arange(0, width, 2) / width)
    assert key not in load(name, {key: sound})
    if other is not None:
        assert key in load(name, {key: other})


@pytest.mark.parametrize("name", [*FAMILIES, "deberta-v2"])
def test_a_tied_table_under_any_of_its_names(name, goldens):
    """Writers that keep one name of a tied tensor may keep that of the head."""
    source = Source.open(goldens(name))
    cls, _ = source.recognise()
    backbone, converter = source.make_backbone(cls, {})
    table, stored = converter.names, source.checkpoint.tensors
    arrays = {table._own(key): np.asarray(stored[key]) for key in stored}
    variables, tried = backbone.weights_by_path, 0
    table.load(variables, arrays)
    wanted = {path: np.array(variable) for path, variable in variables.items()}
    for copy, originals in table.copies.items():
        original = originals if isinstance(originals, str) else originals[0]
        if original not in arrays or not original.endswith("weight") or "crit" in copy:
            continue  # (Transformer-XL's folders state whether the two are tied.)
        others = {key: value for key, value in arrays.items() if key not in (original, copy)}
        for variable in variables.values():
            variable.assign(variable * 0)
        missing, _ = table.load(variables, others | {copy: arrays[original]})
        assert not missing
        assert all(np.array_equal(variables[path], wanted[path]) for path in wanted)
        tried += 1
    assert tried or name in ("reformer-mixed", "transfo-xl")
