"""ModernBERT against transformers' outputs, its windows, and both forms of its configuration."""

import json

import numpy as np
import pytest
import tokenizers

from keras_lm import tasks
from keras_lm.layers import tensorflow as tensorflow_ops
from keras_lm.models import Backbone, ModernBertBackbone
from keras_lm.models.modernbert_layers import NearBias
from keras_lm.models.sizes import estimate

GOLDENS = {"modernbert": tasks.MaskedLM, "modernbert-seqcls": tasks.TextClassifier}
GOLDENS |= {"modernbert-qa": tasks.QuestionAnswerer}
TINY = {"vocabulary_size": 20, "num_layers": 3, "num_heads": 2, "hidden_dim": 8}
TINY |= {"intermediate_dim": 12, "max_sequence_length": 64}


@pytest.mark.eager
@pytest.mark.parametrize("folder", GOLDENS)
def test_huggingface(folder, assert_equals_huggingface):
    assert_equals_huggingface(folder, GOLDENS[folder])


def test_windows_reach_as_far_on_either_side():
    mask = np.array([[1, 1, 1, 1, 0], [0, 1, 1, 1, 1]], "int32")
    seen = np.asarray(NearBias(3)(mask))[:, 0] == 0  # a token on either side
    near = np.abs(np.arange(5)[:, None] - np.arange(5)) <= 1
    np.testing.assert_array_equal(seen, near & (mask > 0)[:, None])


@pytest.mark.eager
def test_long_texts_are_the_same_in_blocks(monkeypatch):
    backbone = ModernBertBackbone(**TINY, attention_windows=[None, 8])
    inputs = {"token_ids": np.arange(128).reshape(2, 64) % 20}
    inputs["padding_mask"] = np.array([[1] * 64, [0] * 5 + [1] * 49 + [0] * 10], "int32")
    real = inputs["padding_mask"] > 0
    expected = backbone(inputs)["sequence_output"][real]
    monkeypatch.setattr(tensorflow_ops, "MANY_SCORES", 1)
    monkeypatch.setattr(tensorflow_ops, "BLOCK", 16)
    np.testing.assert_allclose(backbone(inputs)["sequence_output"][real], expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_padding_on_the_left_changes_no_classifier(pooling):
    task = tasks.TextClassifier(
        ModernBertBackbone(**TINY, classifier_pooling=pooling), num_classes=2
    )
    alone = task({"token_ids": [[2, 7, 3]]})
    left = {"token_ids": [[0, 0, 2, 7, 3]], "padding_mask": [[0, 0, 1, 1, 1]]}
    np.testing.assert_allclose(task(left), alone, atol=1e-5)


@pytest.mark.eager
def test_blocks_of_a_student_keep_their_windows():
    teacher = ModernBertBackbone(**TINY | {"num_layers": 4}, attention_windows=[None, 4, 8, None])
    student = teacher.with_layers([0, 2, 3])
    assert student.windows == [None, 8, None]
    kernels = [b.blocks[i].attention.output_dense.kernel for b, i in ((student, 1), (teacher, 2))]
    np.testing.assert_array_equal(*kernels)
    with pytest.raises(ValueError, match="block 0"):
        teacher.with_layers([1, 2])


# === mmBERT ===

TEXTS = ["the film was good", "  two  spaces\n\n", "Ünïcödé ☕ 中文", "", "a\tb c"]
ROLES = {"pad": "<pad>", "eos": "<eos>", "bos": "<bos>", "unk": "<unk>", "mask": "<mask>"}
ROLES = {f"{role}_token": token for role, token in ROLES.items()}


def gemma_tokenizer():
    """A tokenizer of the package `tokenizers`, as mmBERT's tokenizer.json describes Gemma 2's."""
    kinds, special = tokenizers.decoders, [*ROLES.values()]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = kinds.Sequence(
        [kinds.Replace("▁", " "), kinds.ByteFallback(), kinds.Fuse()]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the film was good  two spaces the a b c"] * 9, trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [
        token for token in state["added_tokens"] if token["content"] in special
    ]
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    tokenizer.add_tokens([tokenizers.AddedToken("\n\n", normalized=False)])
    ends = [(token, tokenizer.token_to_id(token)) for token in ("<bos>", "<eos>")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<bos> $A <eos>", pair="<bos> $A <eos> $B <eos>", special_tokens=ends
    )
    return tokenizer


@pytest.mark.eager
def test_a_folder_of_mmbert(sentence_folder, encodes_and_learns):
    tokenizer = gemma_tokenizer()
    folder = sentence_folder("modernbert", tokenizer, ROLES, tokenizer_class="GemmaTokenizerFast")
    encoder = encodes_and_learns(folder, tokenizer, TEXTS)
    assert type(encoder.tokenizer).__name__ == "SentencePieceTokenizer"


# === Configurations ===


@pytest.mark.parametrize(
    "config, windows, wavelengths",
    [
        ({"sliding_window": 4}, [None, 8, 8, None], (160000.0, 10000.0)),
        # As version 4 of transformers wrote it.
        (
            {"layer_types": ..., "rope_parameters": ..., "global_attn_every_n_layers": 2},
            [None, 8],
            (160000.0, 10000.0),
        ),
        (
            {
                "layer_types": ...,
                "rope_parameters": ...,
                "global_rope_theta": 5e4,
                "local_rope_theta": None,
            },
            [None, 8, 8],
            (5e4, None),
        ),
    ],
)
def test_both_forms(variant, config, windows, wavelengths):
    actual = Backbone.from_preset(
        variant("modernbert-qa", config, lambda n: None if n.startswith(("head", "class")) else n)
    ).config
    assert actual["attention_windows"] == windows
    assert (actual["rope_max_wavelength"], actual["local_rope_max_wavelength"]) == wavelengths


@pytest.mark.parametrize(
    "config, words",
    [
        ({"norm_bias": True}, "norm_bias=True"),
        ({"layer_types": ["full_attention", "chunked", "x", "y"]}, "layer_types="),
        ({"layer_types": ["full_attention"]}, "layer_types="),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling=.*yarn"),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear"}}}, "rope_type='linear'"),
        ({"rope_parameters": {"rope_theta": 500.0}}, "rope_parameters of 'rope_theta'; supported"),
        ({"sliding_window": 6}, "sliding_window=6, and local_attention=8 asks for 4"),
        ({"classifier_pooling": "max"}, "classifier_pooling='max'"),
        ({"local_attention": 1}, "attention_windows has 1"),
    ],
)
def test_what_the_model_does_not_know_is_an_error(variant, config, words):
    with pytest.raises(ValueError, match=words):
        Backbone.from_preset(variant("modernbert", config))


def test_parts_that_rotate_are_even():
    with pytest.raises(ValueError, match="num_heads=4 does not divide hidden_dim=20 into even"):
        ModernBertBackbone(**TINY | {"num_heads": 4, "hidden_dim": 20})


def test_one_width_is_written(tmp_path):
    backbone = ModernBertBackbone(**TINY, attention_windows=[None, 4, 8])
    with pytest.raises(ValueError, match=r"attention_windows=.*one width"):
        backbone.save_to_huggingface(tmp_path / "new")


# As transformers counts them.
@pytest.mark.parametrize(
    "size, parameters",
    [
        ("modernbert_base_en", 149_014_272),
        ("modernbert_large_en", 394_781_696),
        ("mmbert_base_multi", 306_939_648),
    ],
)
def test_sizes(size, parameters):
    cls = ModernBertBackbone
    assert estimate(cls, **cls.SIZES[size])["parameters"] == parameters
