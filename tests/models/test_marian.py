"""Marian against Hugging Face's outputs, and what its checkpoints look like."""

import keras
import numpy as np
import pytest

from keras_lm.models import Backbone, MarianBackbone
from keras_lm.models.sizes import estimate
from keras_lm.tasks import Seq2SeqLM
from keras_lm.tokenizers import MarianTokenizer

PAD = 179  # which a target starts with


@pytest.fixture(scope="module")
def reference(goldens):
    """Arrays, and the inputs that the reference made of them."""
    arrays = np.load(goldens("marian") / "expected.npz")
    before = np.where(arrays["in.labels"] < 0, PAD, arrays["in.labels"])[:, :-1]
    return arrays, {
        "encoder_token_ids": arrays["in.input_ids"],
        "encoder_padding_mask": arrays["in.attention_mask"],
        "decoder_token_ids": np.pad(before, [(0, 0), (1, 0)], constant_values=PAD),
    }


def load(folder):
    return Seq2SeqLM.from_preset(folder, tokenizer=None)


@pytest.fixture(scope="module")
def task(goldens):
    """The reference's network. No test may change it."""
    return load(goldens("marian"))


@pytest.mark.eager
def test_huggingface(task, reference, assert_equal, hidden_states):
    arrays, inputs = reference
    backbone = task.backbone
    assert type(backbone) is MarianBackbone
    outputs = backbone(inputs)
    assert_equal(outputs["encoder_sequence_output"], arrays["out.encoder_last_hidden_state"])
    assert_equal(hidden_states(backbone, inputs), arrays["out.decoder_hidden_states"])
    encoder = keras.Model(backbone.inputs, backbone.encoder_hidden_states)
    assert_equal(np.stack(encoder(backbone.complete(inputs))), arrays["out.encoder_hidden_states"])
    for name, actual in {
        "encoder_attentions": backbone.encoder_attention_probabilities(inputs),
        "decoder_attentions": backbone.attention_probabilities(inputs),
        "cross_attentions": backbone.cross_attention_probabilities(inputs),
    }.items():
        assert_equal(np.stack(actual), arrays[f"out.{name}"])
    assert_equal(task(inputs), arrays["out.logits"])
    mask = {"decoder_padding_mask": np.ones_like(arrays["in.labels"])}
    loss, *_ = task.evaluate(inputs | mask, arrays["in.labels"], verbose=0)
    np.testing.assert_allclose(loss, arrays["out.loss"], rtol=1e-5)


@pytest.mark.eager
def test_logits_have_a_bias_that_is_not_trained(goldens, reference, assert_equal, tmp_path):
    arrays, inputs = reference
    task = load(goldens("marian"))
    bias = task.head.bias.numpy()
    assert bias.shape == (180,) and bias.std() > 0.1
    assert "token_head/bias" not in {w.path for w in task.trainable_weights}
    labels = arrays["in.labels"]
    mask = {"decoder_padding_mask": np.ones_like(labels)}
    task.compile(optimizer=keras.optimizers.SGD(0.1))
    task.train_on_batch(inputs | mask, labels)
    np.testing.assert_array_equal(task.head.bias, bias)
    task.save_to_preset(tmp_path / "preset")
    again = load(tmp_path / "preset")
    np.testing.assert_array_equal(again(inputs), task(inputs))


def test_step_by_step(task, reference, assert_equal):
    arrays, inputs = reference
    actual, more = [], inputs
    for new in np.split(inputs["decoder_token_ids"], [1, 2, 3, 6], axis=1):
        outputs = task.backbone(more | {"decoder_token_ids": new})
        actual.append(task.head(outputs))
        more = {"cache": outputs["cache"]}
    assert_equal(np.concatenate(actual, axis=1), arrays["out.logits"])


def test_older_files_have_more_tensors(task, reference, variant, assert_equal):
    arrays, inputs = reference
    table = np.asarray(task.backbone.token_embedding.embeddings)
    copies = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    positions = ("model.encoder.embed_positions", "model.decoder.embed_positions")
    more = {f"{name}.weight": table for name in copies}
    more |= {f"{name}.weight": np.zeros((40, 48), "float32") for name in positions}
    old = {"add_bias_logits": False, "normalize_embedding": False, "normalize_before": False}
    again = load(variant("marian", old | {"add_final_layer_norm": False}, more=more))
    assert_equal(again(inputs), arrays["out.logits"])


def of_source(name):
    return name.replace("model.shared", "model.encoder.embed_tokens")


def test_one_name_for_a_shared_embedding(reference, variant, assert_equal):
    arrays, inputs = reference
    assert_equal(load(variant("marian", rename=of_source))(inputs), arrays["out.logits"])


def test_an_embedding_for_the_target(task, reference, variant, assert_equal):
    arrays, inputs = reference
    table, bias = task.backbone.token_embedding.embeddings.numpy(), task.head.bias.numpy()
    # The target's tokens in another order, and ten more.
    order = np.random.default_rng(0).permutation(190)[:180]
    own = np.zeros((190, 48), "float32")
    own[order] = table
    own_bias = np.zeros((1, 190), "float32")
    own_bias[0, order] = bias
    more = {"model.decoder.embed_tokens.weight": own, "lm_head.weight": own}
    folder = variant(
        "marian",
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 190},
        rename=of_source,
        more=more | {"final_logits_bias": own_bias},
    )
    two_tables = load(folder)
    assert two_tables.backbone.config["decoder_vocabulary_size"] == 190
    inputs = inputs | {"decoder_token_ids": order[inputs["decoder_token_ids"]]}
    assert_equal(np.asarray(two_tables(inputs))[..., order], arrays["out.logits"])


@pytest.mark.parametrize("stated", [pytest.param(False, marks=pytest.mark.thorough), ...])
def test_embeddings_that_are_not_scaled(task, reference, variant, assert_equal, stated):
    arrays, inputs = reference
    table = task.backbone.token_embedding.embeddings.numpy()
    scaled = {"model.shared.weight": table * np.float32(48**0.5)}
    backbone = load(variant("marian", {"scale_embedding": stated}, more=scaled)).backbone
    actual = backbone(inputs)["encoder_sequence_output"]
    assert_equal(actual, arrays["out.encoder_last_hidden_state"])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"decoder_attention_heads": 2}, "decoder_attention_heads=2"),
        ({"decoder_ffn_dim": 64}, "decoder_ffn_dim=64"),
        ({"normalize_before": True}, "normalize_before=True"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder=False"),
        ({"d_model": ...}, "lacks 'd_model'"),
        ({"activation_function": "no"}, "activation_function='no'"),
        ({"model_type": "bart"}, "it is BART"),
        ({"model_type": ...}, "model_type=None"),
    ],
)
def test_what_the_model_does_not_know_is_an_error(variant, changed, says):
    with pytest.raises(ValueError, match=says):
        Backbone.from_preset(variant("marian", changed))


def test_training_that_the_model_does_without_is_a_warning(variant):
    folder = variant("marian", {"activation_dropout": 0.1, "activation_function": "swish"})
    with pytest.warns(UserWarning, match=r"activation_dropout=0\.1"):
        task = load(folder)
    assert task.backbone.config["activation"] == "silu"


@pytest.mark.eager
def test_a_folder_with_its_tokenizer(goldens, variant):
    paths = [goldens("tokenizers") / f"sentencepiece-{kind}" for kind in ("t5", "xlnet")]
    models = [path / "spiece.model" for path in paths]
    words = ["</s>", "<unk>", *"▁abcdefghijklmnopqrstuvwxyz", "▁the", "s", "▁a"]
    words = list(dict.fromkeys(words))
    words += [f"more{i}" for i in range(PAD - len(words))]
    folder = variant("marian")
    MarianTokenizer(*models, [*words, "<pad>"]).save_assets(folder)
    task = Seq2SeqLM.from_preset(folder)
    assert type(task.tokenizer) is MarianTokenizer
    packed = task.preprocess({"text": np.array(["a the", ""], object)})
    pieces = task.tokenizer.tokens(packed["encoder_token_ids"]).numpy().tolist()
    assert pieces == [[b"\xe2\x96\x81a", b"\xe2\x96\x81the", b"</s>"], [b"</s>", *[b"<pad>"] * 2]]
    assert len(task.generate(["a the"], max_new_tokens=4)) == 1
    (folder / "source.spm").unlink()
    with pytest.raises(ValueError, match=r"lacks source\.spm"):
        Seq2SeqLM.from_preset(folder)


def test_published_sizes():
    sizes = MarianBackbone.SIZES
    assert set(sizes) == set(MarianBackbone.PUBLISHED)
    actual = estimate(MarianBackbone, **sizes["opus_mt_en_de"])
    kernels = 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * (8 * 512**2 + 2 * 512 * 2048)
    assert actual["parameters"] == pytest.approx(58101 * 512 + kernels, rel=2e-3)
