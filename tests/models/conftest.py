"""What the tests of all models share: comparing with a reference, within the family's tolerance."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from tiny import assert_equal as equal
from tiny import hidden_states as states
from tiny import inputs_of

from keras_lm import tasks
from keras_lm.converters import open_checkpoint
from keras_lm.converters.checked_files import write_safetensors
from keras_lm.models import Backbone
from keras_lm.tokenizers.sentence_piece_model import CONTROL, UNKNOWN, Model


def save_tf1(folder, tensors, name="model.ckpt-1000000"):
    names = [*tensors, "global_step"]
    tf.raw_ops.SaveV2(
        prefix=str(folder / name),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[*tensors.values(), np.int64(1)],
    )


@pytest.fixture(scope="session")
def write_tf1():
    """`write_tf1(folder, tensors)` writes a checkpoint of arrays by name, as TensorFlow 1 does."""
    return save_tf1


@pytest.fixture(scope="session")
def assert_equal():
    return equal


@pytest.fixture(scope="session")
def hidden_states():
    """`hidden_states(backbone, inputs)` is (depths, B, S, D)."""
    return states


@pytest.fixture
def assert_equals_huggingface(goldens):
    """`assert_equals_huggingface("gte-seqcls", TextClassifier)`, all outputs of a golden.

    One row has padding on the right, and one on the left.
    """

    def compare(folder, cls):
        arrays = np.load(goldens(folder) / "expected.npz")
        inputs = inputs_of(arrays)
        task = cls.from_preset(goldens(folder), tokenizer=None)
        actual = task(inputs)
        for name, logits in (actual if isinstance(actual, dict) else {"logits": actual}).items():
            equal(logits, arrays[f"out.{name}"])
        if "in.labels" in arrays and cls is not tasks.TokenClassifier:  # whose labels are words'
            metrics = task.evaluate(inputs, arrays["in.labels"], verbose=0, return_dict=True)
            equal(metrics["loss"], arrays["out.loss"])
        equal(states(task.backbone, inputs), arrays["out.hidden_states"])
        equal(task.backbone.attention_probabilities(inputs), arrays["out.attentions"])

    return compare


@pytest.fixture(scope="session")
def assert_equals_causal_reference():
    """Compare a causal backbone with the reference outputs of a Hugging Face model, all of them.

    With `real_only`, what padding gives is left out: there the reference holds zeros.
    """
    return compare


def compare(backbone, arrays, real_only=False):
    ids, mask = (arrays[f"in.{name}"].astype("int32") for name in ("input_ids", "attention_mask"))
    inputs = {"token_ids": ids, "padding_mask": mask}
    where = (mask > 0) | (not real_only)
    head = backbone.make_head("causal_lm")
    logits = np.asarray(head(backbone(inputs), inputs))
    equal(logits[where], arrays["out.logits"][where])
    equal(states(backbone, inputs)[:, where], arrays["out.hidden_states"][:, where])
    layers_and_heads = (1, 3, 0, 2, 4)  # queries first: (B, S, L, N, T)
    attention = np.stack(backbone.attention_probabilities(inputs)).transpose(layers_and_heads)
    equal(attention[where], arrays["out.attentions"].transpose(layers_and_heads)[where])
    equal(next_token_loss(logits, arrays["in.labels"]), arrays["out.loss"])
    if "in.split" in arrays:
        compare_cache(backbone, head, ids[:1], arrays)


def next_token_loss(logits, labels):
    """Labels are the token at each position; -100 is ignored."""
    logits, labels = logits[:, :-1], labels[:, 1:]
    log_probabilities = np.asarray(keras.ops.log_softmax(logits))
    known = labels >= 0
    picked = np.take_along_axis(log_probabilities, np.where(known, labels, 0)[..., None], axis=-1)
    return -picked[known].mean()


def compare_cache(backbone, head, ids, arrays):
    split = int(arrays["in.split"])
    first = backbone({"token_ids": ids[:, :split]})
    rest = backbone({"token_ids": ids[:, split:], "cache": first["cache"]})
    equal(head(first), arrays["out.cache.prefix_logits"])
    equal(head(rest), arrays["out.cache.rest_logits"])
    for part in ("keys", "values"):  # (B, L, …) here, layers first there
        equal(np.swapaxes(first["cache"][part], 0, 1), arrays[f"out.cache.{part}"])

    expected = arrays["out.greedy"]
    cache, new = None, expected[:, :4].astype("int32")
    written = [new]
    for _ in range(expected.shape[1] - 4):
        outputs = backbone({"token_ids": new, "cache": cache})
        cache, logits = outputs["cache"], head(outputs)
        new = np.argmax(logits[:, -1:], axis=-1).astype("int32")
        written.append(new)
    np.testing.assert_array_equal(np.concatenate(written, axis=1), expected)


@pytest.fixture
def variant(goldens, tmp_path):
    """`variant("roberta", config, rename)`: a golden's folder, its configuration and names changed.

    `rename` returns a tensor's new name, or None to leave it out.
    """

    def make(folder, config=None, rename=lambda name: name, more=None):
        made = tmp_path / "variant"
        shutil.copytree(goldens(folder), made)
        old = json.loads((made / "config.json").read_text())
        new = {key: value for key, value in (old | (config or {})).items() if value is not ...}
        (made / "config.json").write_text(json.dumps(new))
        tensors = open_checkpoint(goldens(folder)).tensors
        arrays = {rename(name): tensors[name] for name in tensors if rename(name)} | (more or {})
        write_safetensors(made, arrays, 10**9)
        return made

    return make


@pytest.fixture
def assert_read(variant):
    """`assert_read("gte", config, arguments)`: a changed configuration has these arguments."""

    def compare(folder, config, arguments):
        actual = Backbone.from_preset(variant(folder, config)).config
        assert {name: actual[name] for name in arguments} == arguments

    return compare


@pytest.fixture
def sentence_folder(variant, goldens):
    """`sentence_folder("eurobert", tokenizer, roles)` is a golden as sentence-transformers' folder.

    `tokenizer` is one of the package `tokenizers`, `roles` its special tokens by the names of
    tokenizer_config.json; tables of the network have as many rows as it has entries.
    """

    def make(golden, tokenizer, roles, config=None, rename=lambda name: name, **settings):
        tensors, rows = open_checkpoint(goldens(golden)).tensors, tokenizer.get_vocab_size()
        old = json.loads((goldens(golden) / "config.json").read_text())["vocab_size"]
        longer = {
            rename(name): np.resize(tensors[name], (rows, *tensors.shape(name)[1:]))
            for name in tensors
            if tensors.shape(name)[0] == old and rename(name)
        }
        folder = variant(golden, (config or {}) | {"vocab_size": rows}, rename, longer)
        tokenizer.save(str(folder / "tokenizer.json"))
        names = ["input_ids", "attention_mask"]
        usual = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": names}
        kinds = {"": "Transformer", "1_Pooling": "Pooling"}
        files = {
            "tokenizer_config": usual | {"model_max_length": 32} | roles | settings,
            "1_Pooling/config": {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True},
            "modules": [
                {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"}
                for i, (path, kind) in enumerate(kinds.items())
            ],
        }
        (folder / "1_Pooling").mkdir()
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        return folder

    return make


@pytest.fixture(scope="session")
def bert_tokenizer():
    """`bert_tokenizer(texts)`: a tokenizer of the package `tokenizers` as BERT's, and its roles."""

    def make(texts):
        roles = {role: f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = tokenizers.decoders.WordPiece()
        trainer = tokenizers.trainers.WordPieceTrainer(
            vocab_size=80, special_tokens=[*roles.values()], show_progress=False
        )
        tokenizer.train_from_iterator(texts * 9, trainer)
        first, last = ((token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]"))
        tokenizer.post_processor = tokenizers.processors.BertProcessing(last, first)
        return tokenizer, {f"{role}_token": token for role, token in roles.items()}

    return make


@pytest.fixture
def encodes_and_learns(tmp_path):
    """Compare a folder's vectors with its network's of the ids of `tokenizers`; train, and save."""

    def run(folder, tokenizer, texts):
        encoder = tasks.SentenceEncoder.from_preset(folder, dropout=0.0)
        vectors = encoder.embed(texts, verbose=0)["embedding"]
        for text, vector in zip(texts, vectors, strict=True):
            states = encoder.backbone({"token_ids": [tokenizer.encode(text).ids]})
            mean = np.mean(states["sequence_output"][0], axis=0)
            np.testing.assert_allclose(vector, mean, atol=2e-5)
        encoder.compile(optimizer=keras.optimizers.Adam(1e-3), run_eagerly=True)
        pairs = (texts, [f"{text} good" for text in texts])
        losses = [float(encoder.train_on_batch(pairs)) for _ in range(2)]
        assert losses[-1] < losses[0]
        encoder.save_to_preset(tmp_path / "preset")
        again = tasks.SentenceEncoder.from_preset(tmp_path / "preset")
        trained = encoder.embed(texts, verbose=0)["embedding"]
        np.testing.assert_array_equal(again.embed(texts, verbose=0)["embedding"], trained)
        assert not np.allclose(trained, vectors, atol=1e-3)
        return encoder

    return run


@pytest.fixture
def xlm_roberta_model(goldens):
    """The bytes of a SentencePiece model as XLM-R's begins."""
    path = goldens("tokenizers") / "sentencepiece-t5" / "spiece.model"
    model = Model.FromString(path.read_bytes())
    for piece, name in zip(model.pieces, ("<unk>", "<s>", "</s>")):
        piece.piece, piece.type = name, UNKNOWN if name == "<unk>" else CONTROL
    return model.SerializeToString()
