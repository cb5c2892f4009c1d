"""Which output matrix T5's folders have, and whether the states before it are scaled."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_lm.models import T5Backbone
from keras_lm.tasks import Seq2SeqLM

# Stated by transformers → what the logits are a multiple of, by its goldens: 1 or sqrt(D).
STATED = [
    ("t5-v1_1", {"tie_word_embeddings": True, "scale_decoder_outputs": False}, 0),  # 5.24
    ("t5-v1_1", {"tie_word_embeddings": True, "scale_decoder_outputs": True}, -0.5),  # 5.0
    ("t5-v1_1", {"model_type": "mt5", "transformers_version": "4.57.6"}, 0),
    ("t5", {"tie_word_embeddings": True, "scale_decoder_outputs": True}, 0),
    ("t5", {"tie_word_embeddings": True, "scale_decoder_outputs": False}, 0.5),
    ("t5", {"tie_word_embeddings": False}, 0.5),
    ("t5", {"model_type": "mt5", "transformers_version": "5.24.0"}, 0.5),
    ("t5", {"model_type": "mt5", "transformers_version": "4.57.6"}, 0),
]


@pytest.fixture(scope="module")
def reference(goldens):
    def read(name):
        arrays = np.load(goldens(name) / "expected.npz")
        before = np.where(arrays["in.labels"] < 0, 0, arrays["in.labels"])[:, :-1]
        return arrays["out.logits"], {
            "encoder_token_ids": arrays["in.input_ids"],
            "encoder_padding_mask": arrays["in.attention_mask"],
            "decoder_token_ids": np.pad(before, [(0, 0), (1, 0)]),
            "decoder_padding_mask": arrays["in.decoder_attention_mask"],
        }

    return read


@pytest.mark.eager
@pytest.mark.parametrize("name, stated, power", STATED)
def test_tensors_say_the_matrix_and_entries_the_scale(name, stated, power, variant, reference):
    logits, inputs = reference(name)
    task = Seq2SeqLM.from_preset(variant(name, stated), tokenizer=None)
    width = task.backbone.config["hidden_dim"]
    np.testing.assert_allclose(task(inputs), logits * width**power, rtol=1e-4, atol=1e-4)
    assert task.backbone.config["tie_embeddings"] == (name == "t5")


@pytest.mark.eager
def test_a_table_under_the_name_of_the_output_matrix(variant, reference):
    """Of names of a tied table, writers may keep any."""
    logits, inputs = reference("t5")
    for name in ("lm_head.weight", "decoder.embed_tokens.weight"):
        folder = variant("t5", rename=lambda old, new=name: new if old == "shared.weight" else old)
        task = Seq2SeqLM.from_preset(folder, tokenizer=None)
        np.testing.assert_allclose(task(inputs), logits, rtol=1e-4, atol=1e-4)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.mark.eager
def test_a_decoder_with_a_table_of_its_own_is_refused(variant, goldens):
    table = load_file(goldens("t5") / "model.safetensors")["shared.weight"]
    folder = variant("t5", more={"decoder.embed_tokens.weight": table + 1})
    with pytest.raises(
        ValueError, match=r"has decoder\.embed_tokens\.weight, which differs from shared"
    ):
        T5Backbone.from_preset(folder)


@pytest.mark.eager
@pytest.mark.parametrize(
    "name, stated, activation, gated",
    [
        ("t5", {"dense_act_fn": "silu"}, "silu", False),
        ("t5-v1_1", {"dense_act_fn": "gelu"}, "gelu", True),
        ("t5-v1_1", {"feed_forward_proj": "relu", "is_gated_act": True}, "gelu_tanh", True),
        ("t5-v1_1", {"dense_act_fn": ..., "is_gated_act": ...}, "gelu_tanh", True),
    ],
)
def test_what_the_feed_forward_network_is(variant, name, stated, activation, gated):
    config = T5Backbone.from_preset(variant(name, stated)).config
    assert (config["activation"], config["gated"]) == (activation, gated)


@pytest.mark.parametrize(
    "tied, scaled, entries",
    [(True, None, True), (False, None, False), (True, False, False), (False, False, False)],
)
def test_what_is_written_reads_back(tied, scaled, entries, tmp_path):
    sizes = (40, 1, 2, 16, 24)
    backbone = T5Backbone(*sizes, tie_embeddings=tied, scale_outputs=scaled)
    task = Seq2SeqLM(backbone, tokenizer=None)
    task.save_to_huggingface(tmp_path / "t5")
    config = json.loads((tmp_path / "t5" / "config.json").read_text())
    assert config["tie_word_embeddings"] is config["scale_decoder_outputs"] is entries
    # Version 4 of transformers scales by a tied table, so a copy is beside one that is not scaled.
    stored = load_file(tmp_path / "t5" / "model.safetensors")
    assert ("lm_head.weight" in stored) == (not entries)
    again = Seq2SeqLM.from_preset(tmp_path / "t5", tokenizer=None)
    assert again.backbone.config["tie_embeddings"] == tied
    inputs = {"encoder_token_ids": [[5, 6, 1]], "decoder_token_ids": [[0, 7]]}
    inputs = {name: np.array(ids) for name, ids in inputs.items()}
    np.testing.assert_allclose(again(inputs), task(inputs), rtol=1e-6)


def test_what_older_versions_would_do_wrongly_is_refused(tmp_path):
    task = Seq2SeqLM(T5Backbone(40, 1, 2, 16, 24, tie_embeddings=False, scale_outputs=True), None)
    with pytest.raises(ValueError, match=r"scale_outputs=True, .* knows False with tie_embeddings"):
        task.save_to_huggingface(tmp_path / "t5")
    assert not (tmp_path / "t5").exists()
