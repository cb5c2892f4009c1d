"""Folders of the forms in which Google's two Reformers are published: strings in, strings out."""

import json
import shutil

import huggingface_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.converters.checked_files import write_safetensors
from keras_lm.models import ReformerBackbone
from keras_lm.tokenizers import ByteTokenizer, SentencePieceTokenizer
from keras_lm.tokenizers.sentence_piece_model import CONTROL, UNKNOWN, Model

NETWORK = {
    "architectures": ["ReformerModelWithLMHead"],
    "model_type": "reformer",
    "is_decoder": True,
    "attention_head_size": 4,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "feed_forward_size": 12,
    "axial_pos_embds_dim": [2, 6],
    "axial_pos_shape": [8, 8],
    "max_position_embeddings": 64,
    "local_attn_chunk_length": 8,
    "lsh_attn_chunk_length": 8,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
PROMPTS = ["a thin, a", "the"]
PIECES = ["▁a", "en", "th", "▁th", "▁a", "in", *"▁abcdefghinrst.,"]


def tensors(vocabulary_size, layers):
    """Random tensors of the names that transformers writes for a network of `NETWORK`."""
    rng = np.random.default_rng(0)
    shapes = {
        "reformer.embeddings.word_embeddings.weight": (vocabulary_size, 8),
        "reformer.embeddings.position_embeddings.weights.0": (8, 1, 2),
        "reformer.embeddings.position_embeddings.weights.1": (1, 8, 6),
        "reformer.encoder.layer_norm.weight": (16,),
        "reformer.encoder.layer_norm.bias": (16,),
        "lm_head.decoder.weight": (vocabulary_size, 16),
        "lm_head.bias": (vocabulary_size,),
    }
    for i, kind in enumerate(layers):
        parts = ("query", "key", "value") if kind == "local" else ("query_key", "value")
        of_layer = {f"attention.self_attention.{part}.weight": (8, 8) for part in parts} | {
            "attention.output.dense.weight": (8, 8),
            "feed_forward.dense.dense.weight": (12, 8),
            "feed_forward.dense.dense.bias": (12,),
            "feed_forward.output.dense.weight": (8, 12),
            "feed_forward.output.dense.bias": (8,),
        }
        for norm in ("attention", "feed_forward"):
            of_layer |= {f"{norm}.layer_norm.{part}": (8,) for part in ("weight", "bias")}
        shapes |= {f"reformer.encoder.layers.{i}.{name}": x for name, x in of_layer.items()}
    return {name: rng.normal(size=x).astype("float32") for name, x in shapes.items()}


def pieces_model():
    """A BPE of SentencePiece, as the published `spiece.model` is, with its first three pieces."""
    model = Model()
    model.pieces.add(piece="<unk>", type=UNKNOWN)
    model.pieces.add(piece="<s>", type=CONTROL)
    model.pieces.add(piece="</s>", type=CONTROL)
    for i, piece in enumerate(dict.fromkeys(PIECES)):
        model.pieces.add(piece=piece, score=-float(i))
    model.trainer_spec.model_type = 2
    model.normalizer_spec.SetInParent()
    return model


@pytest.fixture(scope="module", params=["pieces", "bytes"])
def folder(request, tmp_path_factory):
    """Like google/reformer-crime-and-punishment, and like google/reformer-enwik8."""
    made = tmp_path_factory.mktemp(request.param)
    layers = ["local", "lsh"]
    vocabulary_size, config = 258, {"num_hashes": 4, "num_buckets": 4}
    if request.param == "pieces":
        model = pieces_model()
        (made / "spiece.model").write_bytes(model.SerializeToString())
        vocabulary_size, config = len(model.pieces), {"num_buckets": [2, 4]}
    config |= NETWORK | {"attn_layers": layers, "vocab_size": vocabulary_size}
    (made / "config.json").write_text(json.dumps(config))
    write_safetensors(made, tensors(vocabulary_size, layers), 10**9)
    return made


@pytest.fixture(scope="module")
def task(folder, tmp_path_factory):
    """Loaded from the hub, of which only what is asked for is there."""
    there = tmp_path_factory.mktemp("hub")

    def snapshot_download(name, revision, allow_patterns, ignore_patterns):
        assert name == "google/reformer"
        names = [path.name for path in folder.iterdir()]
        for file in huggingface_hub.utils.filter_repo_objects(
            names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        ):
            shutil.copy(folder / file, there)
        return str(there)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        return tasks.CausalLM.from_preset("hf://google/reformer")


@pytest.mark.eager  # the export below is a graph
def test_strings_in_and_out(folder, task):
    assert type(task.backbone) is ReformerBackbone
    has_pieces = (folder / "spiece.model").is_file()
    assert type(task.tokenizer) is (SentencePieceTokenizer if has_pieces else ByteTokenizer)
    assert task.end_ids("eos") == [2 if has_pieces else 1] and task.end_ids("bos") == []
    ids = task.tokenizer(PROMPTS)
    if not has_pieces:
        assert ids.to_list() == [[b + 2 for b in prompt.encode()] for prompt in PROMPTS]
    written = task.generate(PROMPTS, max_new_tokens=5)
    (alone,) = task.generate({"token_ids": ids[:1].to_tensor()}, max_new_tokens=5)
    assert task.tokenizer.detokenize(alone).numpy().decode() == written[0]


@pytest.mark.slow
def test_export_takes_strings(task, tmp_path):
    served = tf.saved_model.load(str(task.export(tmp_path / "model"))).signatures
    answer = served["serving_default"](prompt=tf.constant(PROMPTS))
    written = [text.decode("utf-8") for text in answer["text"].numpy()]
    assert written == task.generate(PROMPTS)


def test_pieces_are_those_of_the_package(tmp_path):
    """The ids of the sentencepiece package, which transformers' `ReformerTokenizer` is of."""
    (tmp_path / "spiece.model").write_bytes(pieces_model().SerializeToString())
    for config in ({"model_type": "reformer"}, {"tokenizer_class": "ReformerTokenizer"}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        tokenizer = SentencePieceTokenizer.from_preset(tmp_path)
        assert tokenizer(["a thin thing, in the end", "Über a"]).to_list() == EXPECTED
        assert tokenizer.special_tokens == {"eos": "</s>", "unknown": "<unk>"}


EXPECTED = [[3, 6, 7, 6, 7, 15, 23, 8, 7, 6, 13, 8, 4, 12], [8, 0, 10, 13, 19, 3]]
