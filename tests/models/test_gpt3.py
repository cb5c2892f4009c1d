"""GPT-3's banded attention on a stand-in, GPT-Neo, and how large the sizes are."""

import json
import math
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from keras_lm.cli import main
from keras_lm.models import Backbone, BertBackbone, GPT2Backbone, GPT3Backbone, GPTNeoBackbone
from keras_lm.models.sizes import estimate, transformer_size
from keras_lm.utils.registry import sizes

TINY = transformer_size(50, 3, 16, 2, 24, max_sequence_length=12)


@pytest.mark.parametrize(
    "name, cls", [("gpt3-banded-gpt2", GPT3Backbone), ("gpt-neo", GPTNeoBackbone)]
)
def test_reference(goldens, assert_equals_causal_reference, name, cls):
    backbone = Backbone.from_preset(goldens(name))
    assert type(backbone) is cls
    arrays = np.load(goldens(name) / "expected.npz")
    assert_equals_causal_reference(backbone, arrays, real_only=True)


def test_banded_blocks_see_the_last_tokens_only():
    backbone = GPT3Backbone(**TINY, attention_windows=(2, None))
    sees = [
        (np.asarray(probabilities)[0, 0] > 0).sum(axis=-1).tolist()
        for probabilities in backbone.attention_probabilities({"token_ids": [[4, 7, 9, 11]]})
    ]
    assert sees == [[1, 2, 2, 2], [1, 2, 3, 4], [1, 2, 2, 2]]


def test_padding_does_not_count_in_a_band():
    backbone = GPT3Backbone(**TINY, attention_windows=(2,))
    prompt = {"token_ids": [[4, 7, 0, 0, 0]], "padding_mask": [[1, 1, 0, 0, 0]]}
    rest = backbone({"token_ids": [[9]], "cache": backbone(prompt)["cache"]})
    whole = backbone({"token_ids": [[4, 7, 9]]})
    np.testing.assert_allclose(rest["sequence_output"], whole["sequence_output"][:, -1:], atol=1e-5)


def test_a_window_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="window=0"):
        GPT3Backbone(**TINY, attention_windows=(None, 0))


def test_gpt_neo_that_writes_its_layers_shorter(goldens, tmp_path):
    folder = tmp_path / "shorter"
    shutil.copytree(goldens("gpt-neo"), folder)
    config = json.loads((folder / "config.json").read_text())
    del config["attention_layers"]
    (folder / "config.json").write_text(json.dumps(config))
    backbone = Backbone.from_preset(folder, load_weights=False)
    assert backbone.config["attention_windows"] == [None, 5, None, 5]


# === Sizes ===

# Table 2.1 of the paper, in millions.
STATED = [125, 350, 760, 1_300, 2_700, 6_700, 13_000, 175_000]


@pytest.mark.slow
def test_gpt3_is_as_large_as_its_paper_says():
    for size, millions in zip(GPT3Backbone.SIZES.values(), STATED, strict=True):
        parameters = estimate(GPT3Backbone, **size)["parameters"]
        assert parameters / 1e6 == pytest.approx(millions, rel=0.03)
        assert size["hidden_dim"] % size["num_heads"] == 0


# Published files of these, tied matrices counted once.
@pytest.mark.parametrize(
    "name, parameters",
    [
        ("gpt2_base_en", 124_439_808),
        ("gpt2_medium_en", 354_823_168),
        ("gpt2_large_en", 774_030_080),
        ("gpt2_extra_large_en", 1_557_611_200),
        ("gpt_neo_125m", 125_198_592),
        ("bert_base_en_uncased", 109_482_240),
    ],
)
def test_estimate_of_published_sizes(name, parameters):
    cls = sizes()[name]
    assert estimate(cls, **cls.SIZES[name])["parameters"] == parameters


def test_estimate_of_a_cache_and_of_operations():
    actual = estimate(GPT2Backbone, **TINY)
    cache = GPT2Backbone(**TINY).make_cache(batch_size=1, slots=12)
    assert actual["memory"]["cache_float32"] == 4 * sum(
        math.prod(cache[part].shape) for part in ("keys", "values")
    )
    # By hand: query, key, value and output, feed-forward, logits; scores and their sums.
    products = 3 * (4 * 16 * 16 + 2 * 16 * 24) + 50 * 16
    assert actual["flops_per_token"]["forward"] == 2 * products + 3 * 2 * 2 * 12 * 16
    banded = estimate(GPT3Backbone, **TINY, attention_windows=(None, 4))
    spared = 2 * 2 * (12 - 4) * 16
    difference = actual["flops_per_token"]["forward"] - banded["flops_per_token"]["forward"]
    assert difference == spared
    assert "cache_float32" not in estimate(BertBackbone, **TINY)["memory"]


def test_inspect_says_how_large_a_size_is():
    done = CliRunner().invoke(main, ["inspect", "gpt3_175b"])
    assert done.exit_code == 0, done.output
    assert "174,604,259,328" in done.output
    assert "weights_float32: 698.42 GB" in done.output
    done = CliRunner().invoke(main, ["inspect", "gpt2_base_en", "--json"])
    message = json.loads(done.output)
    assert message["published"] == "hf://openai-community/gpt2"
    assert message["parameters"] == 124_439_808


def test_weights_that_nobody_published():
    with pytest.raises(ValueError, match=r"never published.*load_weights=False"):
        Backbone.from_preset("gpt3_175b")
