"""Special tokens that are spelled in texts: which become tokens, in which task."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm import tasks
from keras_lm.models import BertBackbone, GPT2Backbone, T5Backbone

SIZE = {"num_layers": 1, "num_heads": 1, "hidden_dim": 8, "intermediate_dim": 8}
TEXT = "the film [SEP] was [MASK] good"


@pytest.fixture(scope="module")
def bert(tokenizer_of):
    """`bert(TextClassifier, num_classes=2)`: a task over one tiny BERT, and its vocabulary."""
    tokenizer = tokenizer_of("wordpiece")
    backbone = BertBackbone(tokenizer.vocabulary_size, **SIZE, max_sequence_length=32)

    def make(cls, tokenizer=tokenizer, **arguments):
        return cls(backbone, tokenizer=tokenizer, **arguments)

    return make


def tokens(task, text, tokenize=None):
    results = task.tokenizer.tokens((tokenize or task.tokenize)([text])).to_list()[0]
    return [token.decode() for token in results]


@pytest.mark.parametrize(
    "parse_special, expected",
    [
        (None, []),
        (False, []),
        (True, ["[SEP]", "[MASK]"]),
        (["[MASK]"], ["[MASK]"]),
        ([], []),
    ],
)
def test_a_classifier(bert, parse_special, expected):
    task = bert(tasks.TextClassifier, num_classes=2, parse_special=parse_special)
    special = [t for t in tokens(task, TEXT) if t in ("[SEP]", "[MASK]")]
    assert special == expected
    ids = task.preprocess([TEXT])["token_ids"][0].numpy().tolist()
    assert ids.count(task.tokenizer.special_id("sep")) == 1 + expected.count("[SEP]")
    # In the graph of an export, and as it comes back from its arguments.
    exported = task.signatures.tokenize(text=tf.constant([TEXT]))
    np.testing.assert_array_equal(exported.values, task.tokenize([TEXT]).values)
    again = bert(tasks.TextClassifier, **json.loads(json.dumps(task.get_arguments())))
    assert tokens(again, TEXT) == tokens(task, TEXT)
    if expected:
        with pytest.raises(ValueError, match="does not find special tokens in text"):
            next(task.signatures.lite_functions())


def test_pairs_choices_and_words(bert):
    sep = bert(tasks.TextClassifier, num_classes=2).tokenizer.special_id("sep")

    def number(task, x):
        return int(np.sum(np.asarray(task.preprocess(x)["token_ids"]) == sep))

    x = (["a [SEP]", "b"], ["c", "[SEP] d"])
    for parse_special, more in ((False, 0), (True, 2)):
        task = bert(tasks.TextClassifier, num_classes=2, parse_special=parse_special)
        assert number(task, x) == 4 + more
        task = bert(tasks.MultipleChoice, parse_special=parse_special)
        choices = {"text": ["a [SEP]"], "choices": [["b", "[SEP]"]]}
        assert number(task, choices) == 4 + 3 * (more > 0)
        task = bert(tasks.TokenClassifier, num_classes=2, parse_special=parse_special)
        words = [["the", "[SEP]", "film"]]
        assert number(task, words) == 1 + (more > 0)
        # Labels stay with their words, of which a token is one.
        packed, labels = task.preprocess_with_labels(
            task.columns(words), tf.ragged.constant([[0, 1, 0]])
        )
        where = np.flatnonzero(np.asarray(labels)[0] >= 0)
        if parse_special:
            assert np.asarray(packed["token_ids"])[0, where[1]] == sep


def test_masks_are_always_read(bert):
    for parse_special, actual in ((None, 1), (False, 1), (["[SEP]"], 2), (True, 2)):
        task = bert(tasks.MaskedLM, parse_special=parse_special)
        special = [t for t in tokens(task, TEXT) if t in ("[SEP]", "[MASK]")]
        assert len(special) == actual and "[MASK]" in special


def test_bad_arguments(bert):
    with pytest.raises(ValueError, match=r"parse_special names '\[E1\]', which is not a special"):
        bert(tasks.TextClassifier, num_classes=2, parse_special=["[E1]"])
    with pytest.raises(ValueError, match=r"`parse_special` is '\[MASK\]'"):
        bert(tasks.TextClassifier, num_classes=2, parse_special="[MASK]")
    with pytest.raises(ValueError, match="parse_special=True: QuestionAnswerer finds places"):
        bert(tasks.QuestionAnswerer, parse_special=True)
    bert(tasks.QuestionAnswerer, parse_special=False)


# === Language models ===


@pytest.fixture(scope="module")
def gpt2(tokenizer_of):
    tokenizer = tokenizer_of("bytebpe-gpt2")
    backbone = GPT2Backbone(tokenizer.vocabulary_size, **SIZE, max_sequence_length=64)
    return tasks.CausalLM(backbone, tokenizer=tokenizer)


@pytest.mark.eager
def test_turns_of_a_dialogue(gpt2):
    turns = "Hi<|endoftext|>How are you?<|endoftext|>"
    end = gpt2.tokenizer.special_id("eos")
    ids = gpt2.tokenize([turns])
    assert ids.values.numpy().tolist().count(end) == 2
    parts = [gpt2.tokenizer(part).numpy().tolist() for part in ("Hi", "How are you?")]
    assert ids.to_list() == [[*parts[0], end, *parts[1], end]]
    assert gpt2.prompt_ids([turns]).to_list() == ids.to_list()
    plain = tasks.CausalLM(gpt2.backbone, tokenizer=gpt2.tokenizer, parse_special=False)
    assert end not in plain.tokenize([turns]).values
    # The likelihood of a text is that of its tokens.
    scores = gpt2.score([turns])
    assert scores["num_tokens"] == len(ids.values)
    choice = gpt2.score_continuations(["Hi"], [["<|endoftext|>How"]])
    assert choice["num_tokens"] == 1 + len(gpt2.tokenizer("How"))


def test_only_what_ends_and_begins_texts_is_read(tokenizer_of):
    tokenizer = tokenizer_of("bytebpe-roberta")
    backbone = GPT2Backbone(tokenizer.vocabulary_size, **SIZE, max_sequence_length=64)
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    special = [t for t in tokens(task, "<s>a<mask>b<pad></s>") if t in ("<s>", "<mask>", "</s>")]
    assert special == ["<s>", "</s>"]


@pytest.fixture(scope="module")
def t5(tokenizer_of):
    tokenizer = tokenizer_of("sentencepiece-t5")
    backbone = T5Backbone(tokenizer.vocabulary_size, **SIZE)
    return tasks.Seq2SeqLM(backbone, tokenizer=tokenizer, sequence_length=24)


@pytest.mark.eager
def test_sentinels_of_t5(t5):
    first, second = (t5.tokenizer.token_to_id(f"<extra_id_{i}>") for i in (0, 1))
    source, target = "the <extra_id_0> was </s> good", "<extra_id_0> film <extra_id_1>"
    ids = t5.preprocess([source])["encoder_token_ids"][0].numpy().tolist()
    assert ids.count(first) == 1 and ids.count(t5.tokenizer.special_id("eos")) == 1
    packed, labels = t5.preprocess_with_labels(t5.columns([source]), tf.constant([target]))
    film = t5.tokenizer("film").numpy().tolist()
    end = t5.tokenizer.special_id("eos")
    assert labels[0].numpy().tolist() == [first, *film, second, end]
    assert packed["decoder_token_ids"][0, 1] == first
    assert t5.score([source], [target])["num_tokens"] == len(film) + 3
    plain = tasks.Seq2SeqLM(t5.backbone, tokenizer=t5.tokenizer, parse_special=False)
    assert first not in np.asarray(plain.preprocess([source])["encoder_token_ids"])
    # Only the encoder reads untrusted text.
    classifier = tasks.TextClassifier(
        t5.backbone.encoder_backbone(), tokenizer=t5.tokenizer, num_classes=2
    )
    assert first not in np.asarray(classifier.preprocess([source])["token_ids"])


@pytest.mark.slow
def test_targets_begin_with_a_sentinel(t5):
    text = t5.generate(["the"], prefix="<extra_id_0> film", max_new_tokens=1)
    assert text[0].startswith("film")  # the sentinel is a token, and those are left out of text


# === Published folders ===


@pytest.fixture
def folder(goldens, tmp_path):
    """A BERT's folder with a vocabulary that has two markers."""
    shutil.copytree(goldens("bert-seqcls"), tmp_path / "bert")
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    rows = config["vocab_size"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tiny.WORDS, "[E1]", "[/E1]"]
    words += [f"word{i}" for i in range(rows - len(words))]
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(words))
    return tmp_path / "bert"


def declare(folder, **named):
    (folder / "special_tokens_map.json").write_text(json.dumps(named))


def test_declared_markers(folder, tmp_path):
    text = "the [E1] film [/E1]"
    task = tasks.TextClassifier.from_preset(folder)
    assert task.parse_special is None and "[E1]" not in tokens(task, text)
    declare(folder, additional_special_tokens=["[E1]", "[/E1]"])
    task = tasks.TextClassifier.from_preset(folder)
    assert task.parse_special is True
    assert tokens(task, text) == ["the", "[E1]", "film", "[/E1]"]
    task.save_to_preset(tmp_path / "preset")
    assert tokens(tasks.Task.from_preset(tmp_path / "preset"), text) == tokens(task, text)
    plain = tasks.TextClassifier.from_preset(folder, parse_special=False)
    assert "[E1]" not in tokens(plain, text)


@pytest.mark.filterwarnings("ignore:.*new and random")
def test_declared_markers_where_places_are_found(folder):
    declare(folder, additional_special_tokens=["[E1]", "[/E1]"])
    assert tasks.QuestionAnswerer.from_preset(folder).parse_special is None
