"""The parser of constituents: what it learns, its answers, bad input, files and exports."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.data import labels_of_trees, read_tree
from keras_lm.metrics import ConstituentF1
from keras_lm.models import ElmoBackbone, WordVectorBackbone
from keras_lm.objectives import IGNORED
from keras_lm.tasks import ConstituencyParser, FeatureExtractor, Task
from keras_lm.tokenizers import CharacterTokenizer, WordTokenizer


def treebank(number, seed=0):
    """Return different trees of a small grammar, in which prepositions say what they belong to."""
    chance = random.Random(seed)

    def word(tag, *words):
        return f"({tag} {chance.choice(words)})"

    def noun_phrase(depth=0):
        adjective = word("JJ", "old ", "small ").replace(" )", ") ") * (chance.random() < 0.4)
        phrase = f"(NP {word('DT', 'the', 'a')} {adjective}{word('NN', 'dog', 'cat', 'park')})"
        if depth < 2 and chance.random() < 0.4:
            return f"(NP {phrase} (PP (IN of) {noun_phrase(depth + 1)}))"
        return phrase

    def sentence(depth=0):
        verb = word("VB", "saw", "liked")
        if chance.random() < 0.1:
            return f"(S (VP {verb} {noun_phrase()}))"
        rest = f"{verb} {noun_phrase()}"
        if chance.random() < 0.5:
            rest += f" (PP (IN with) {noun_phrase()})"
        if depth == 0 and chance.random() < 0.3:
            rest = f"(VB said) (SBAR (IN that) {sentence(1)})"
        subject = "(NP (PRP it))" if chance.random() < 0.3 else noun_phrase()
        return f"(S {subject} (VP {rest}))"

    results = {}
    while len(results) < number:
        results[sentence()] = None
    return [*results]


def words_of(trees):
    return [list(read_tree(tree).words) for tree in trees]


TREES = treebank(85)
TRAIN, HELD_OUT = TREES[:60], TREES[60:]
SHORT = [tree for tree in TREES if len(read_tree(tree).words) < 7][:6]
NAMES = labels_of_trees(TREES)
VOCABULARY = ["<unk>", "<pad>", *sorted({word for words in words_of(TREES) for word in words})]


def make_parser(**options):
    keras.utils.set_random_seed(0)
    tokenizer = WordTokenizer(VOCABULARY, unknown_token="<unk>", pad_token="<pad>")
    backbone = WordVectorBackbone(len(VOCABULARY), 16)
    options = {"class_names": NAMES, "hidden_dim": 32} | options
    return ConstituencyParser(backbone, tokenizer=tokenizer, **options)


@pytest.fixture(scope="module")
def parser():
    task = make_parser()
    task.compile(optimizer=keras.optimizers.Adam(0.02))
    task.history_of_fit = task.fit(
        words_of(TRAIN), TRAIN, batch_size=8, epochs=7, verbose=0
    ).history
    return task


@pytest.fixture
def untrained(make_backbone, make, tokenizer):
    """A BERT whose words have several pieces."""
    keras.utils.set_random_seed(0)
    return make(ConstituencyParser, class_names=NAMES, hidden_dim=8)


def right_branching(words):
    """Return the tree whose phrases all go on to the end, S around NPs: the trivial guess."""
    inner = " ".join(f"(NP (XX {word})" for word in words[1:])
    return f"(S (XX {words[0]}) {inner}" + ")" * len(words)


# === What it learns ===


@pytest.mark.thorough
def test_it_learns_a_grammar(parser):
    losses = parser.history_of_fit["loss"]
    assert losses[-1] < 0.1 * losses[0]
    words = words_of(HELD_OUT)
    trivial = ConstituentF1()
    trivial.update_state(HELD_OUT, [right_branching(each) for each in words])
    scores = parser.score(words, HELD_OUT)
    assert float(trivial.result()) < 0.4
    assert scores["f1"] > 0.9
    logs = parser.evaluate(words, HELD_OUT, verbose=0, return_dict=True)
    assert logs == {"loss": logs["loss"]} | scores
    texts = [" ".join(each) for each in words]
    assert parser.parse(texts) == parser.parse(words)


@pytest.mark.slow
def test_validation_data_has_its_scores():
    task = make_parser(class_names=None, num_classes=len(labels_of_trees(SHORT)))
    task.compile(run_eagerly=True)
    words = words_of(SHORT)
    history = task.fit(words, SHORT, validation_data=(words, SHORT), verbose=0).history
    assert task.class_names == labels_of_trees(SHORT)
    logs = task.evaluate(words, SHORT, verbose=0, return_dict=True)
    assert {name: values[-1] for name, values in history.items() if name[:4] == "val_"} == (
        pytest.approx({f"val_{name}": value for name, value in logs.items()}, rel=1e-4)
    )


@pytest.mark.eager
def test_datasets_and_micro_batches_teach_the_same():
    words, losses, weights = [" ".join(each) for each in words_of(SHORT)], [], []
    for size in (None, 4):
        task = make_parser()
        task.compile(optimizer=keras.optimizers.SGD(0.1), run_eagerly=True, micro_batch_size=size)
        if size is None:
            pairs = (words, task.label_spans(SHORT))
            data = tf.data.Dataset.from_tensor_slices(pairs).batch(6)
            losses += task.fit(data, verbose=0).history["loss"]
        else:
            losses.append(task.train_on_batch(words, SHORT, return_dict=True)["loss"])
        weights.append(task.scorer.bias.numpy())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    np.testing.assert_allclose(*weights, rtol=1e-3, atol=1e-5)
    assert abs(weights[0]).max() > 1e-3


@pytest.mark.thorough  # test_word_features.py has a tagger learn over frozen layers
def test_frozen_elmo():
    elmo = ElmoBackbone(
        num_layers=1, hidden_dim=8, cell_dim=8, filters=[(1, 4), (2, 4)], characters_per_word=6
    )
    tokenizer = CharacterTokenizer(6)
    features = FeatureExtractor(elmo, layers="scalar_mix", pooling="none", tokenizer=tokenizer)
    features.backbone.trainable = False
    task = ConstituencyParser(features, tokenizer=tokenizer, class_names=NAMES, hidden_dim=16)
    names = {weight.path.split("/")[0] for weight in task.trainable_weights}
    assert names == {"scalar_mix", "classifier", "span_scorer"}
    task.compile(optimizer=keras.optimizers.Adam(0.01))
    before = task.score(words_of(SHORT), SHORT)["f1"]
    # Slowly at first: the features of a random ELMo differ little.
    task.fit(words_of(SHORT * 10), SHORT * 10, batch_size=3, epochs=6, verbose=0)
    assert task.score(words_of(SHORT), SHORT)["f1"] > max(0.7, before)


# === Answers ===


def test_constituents_have_their_places(parser):
    text = "  It saw the old dog of a\u00a0park "
    (tree,) = parser.parse([text])
    words = ("It", "saw", "the", "old", "dog", "of", "a", "park")
    assert read_tree(tree).words == words
    (actual,) = parser.constituents([text])
    assert [each["label"] for each in actual] == [c[0] for c in read_tree(tree).constituents]
    assert all(text[each["start"] : each["end"]] == each["text"] for each in actual)
    assert {"text": "a\u00a0park", "label": "NP", "start": 24, "end": 30}.items() <= {
        **actual[-1]
    }.items()
    assert all(each["score"] > 0 for each in actual)
    (of_list,) = parser.constituents([[*words]])
    assert [(each["start"], each["end"]) for each in of_list] == [
        each[1:] for each in read_tree(tree).constituents
    ]
    assert of_list[-1]["text"] == "a park"


def test_chains_are_parted(parser):
    (tree,) = parser.parse([["saw", "the", "dog"]])
    assert tree == "(TOP (S (VP (XX saw) (NP (XX the) (XX dog)))))"
    (tagged,) = parser.parse([["saw", "the", "dog"]], tags=[["VB", "DT", "NN"]])
    assert tagged == "(TOP (S (VP (VB saw) (NP (DT the) (NN dog)))))"
    with pytest.raises(ValueError, match=r"tags\[0\] has 1 tags for 3 words"):
        parser.parse([["saw", "the", "dog"]], tags=[["VB"]])


TEXTS = ["", "film", "the films was badly good", "( dog )", "\u200b a"]


@pytest.mark.eager
def test_padding_changes_nothing(untrained):
    alone = [untrained.parse([text])[0] for text in TEXTS]
    assert untrained.parse(TEXTS) == alone
    assert alone[0] == ""
    assert [read_tree(tree).words for tree in alone[3:]] == [("(", "dog", ")"), ("\u200b", "a")]
    packed = untrained.preprocess(TEXTS)
    wide = untrained.packer.pad_to(packed, dict.fromkeys(packed, 12))
    size = packed["word_positions"].shape[1] + 1
    actual = untrained(wide)[:, :size, :size]
    np.testing.assert_allclose(actual, untrained(packed), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.eager
def test_fixed_padding_changes_nothing(untrained):
    trees = untrained.parse(TEXTS)
    with untrained.padded("fixed"):
        untrained.forget_answers()
        assert untrained.parse(TEXTS) == trees
        assert untrained.preprocess(TEXTS)["word_positions"].shape[1] == 24


@pytest.mark.eager
def test_last_pieces_stand_for_words(untrained):
    packed = untrained.preprocess(["the films , \u200b badly", "story"])
    #            [CLS] the film ##s , bad ##ly [SEP]: a word without pieces has those before it
    assert packed["word_positions"].numpy().tolist() == [[2, 4, 5, 5, 7], [2, 0, 0, 0, 0]]
    assert untrained.preprocess([""])["word_positions"].numpy().tolist() == [[0]]


@pytest.mark.eager
def test_a_sentence_may_be_too_long(make, make_backbone):
    task = make(ConstituencyParser, class_names=["NP", "S"], hidden_dim=8, sequence_length=6)
    words = ["the", "films", "was", "good", "and", "bad"]
    packed, labels = task.preprocess_with_labels(
        task.columns([words]),
        task.label_spans(["(S (NP (X the) (X films)) (NP (NP (X was)) (X good)) (X and) (X bad))"]),
    )
    # [CLS] the film ##s was [SEP]
    assert packed["word_positions"].numpy().tolist() == [[2, 4, 5]]
    expected = np.full((4, 4), IGNORED)
    expected[np.triu_indices(4, 1)] = 0
    expected[0, 2] = expected[2, 3] = 1
    np.testing.assert_array_equal(labels[0], expected)
    tree = read_tree(task.parse([words])[0])
    assert tree.words == (*words,)
    assert all(end <= 3 for *_, end in tree.constituents)
    assert task.test_on_batch([words], ["(S " + " ".join(f"(X {w})" for w in words) + ")"])
    assert make(ConstituencyParser, num_classes=2).packing["sequence_length"] == 24


# === Bad input ===


def test_unknown_labels_count_as_none(parser):
    with pytest.warns(UserWarning, match="1 of 2 constituents have a label .* such as 'XP'"):
        spans = parser.label_spans(["(S (XP (NN dog)) (VB saw))"])
    assert spans.to_list() == [[[0, 2, NAMES.index("S") + 1], [0, 1, 0]]]


@pytest.mark.parametrize(
    "x, y, message",
    [
        ([["a", "b"]], ["(S (NN a) (NN c))"], r"word 1 of text\[0\] is 'b', .* labels\[0\] 'c'"),
        (["a b c"], ["(S (NN a) (NN b))"], r"word 2 of text\[0\] is 'c', .* labels\[0\] None"),
        (
            ["a"],
            ["(S (NN a)"],
            r"labels\[0\]='\(S \(NN a\)' is not a tree: a bracket is not closed",
        ),
        (["a"], ["(S (NN a))"] * 2, "labels has 2 rows for 1 examples"),
        ({"token_ids": [[2]], "word_positions": [[1]]}, ["(S (NN a))"], "x is packed"),
        ({"token_ids": [[2]]}, None, "inputs lacks word_positions"),
    ],
)
def test_bad_data(parser, x, y, message):
    with pytest.raises(ValueError, match=message):
        parser.fit(x, y, verbose=0) if y else parser.predict(x, verbose=0)


def test_bad_arguments(parser):
    with pytest.raises(ValueError, match="num_classes and class_names are both missing"):
        make_parser(class_names=None)
    with pytest.raises(ValueError, match="`splitter` is 'x'"):
        make_parser(splitter="x")
    data = tf.data.Dataset.from_tensor_slices((["dog"], ["(NP (NN dog))"])).batch(1)
    with pytest.raises(ValueError, match="let it yield what"):
        parser.fit(data, verbose=0)
    with pytest.raises(ValueError, match="string operations that LiteRT lacks"):
        parser.answer_lite({"text": tf.constant(["dog"])})


def test_words_are_compared_as_in_texts(parser):
    trees = ["(NP (-LRB- -LRB-) (`` ``) (NN dog) ('' '') (-RRB- -RRB-))"]
    for words in (["(", '"', "dog", '"', ")"], ["-LRB-", "``", "dog", "''", "-RRB-"]):
        columns = parser.columns([words])
        labels = parser.labels.match(parser.labels.prepare(np.array(trees)), columns, False)
        assert labels.to_list() == [[[0, 5, NAMES.index("NP") + 1]]]


# === Files ===


@pytest.mark.eager
def test_a_preset_answers_the_same(parser, tmp_path):
    texts = [" ".join(each) for each in words_of(HELD_OUT[:3])]
    parser.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    assert type(again) is ConstituencyParser
    assert again.get_arguments() == parser.get_arguments()
    assert again.parse(texts) == parser.parse(texts)
    with pytest.warns(UserWarning, match="span_scorer/logits"):
        other = ConstituencyParser.from_preset(tmp_path / "preset", class_names=["NP"])
    assert other.scorer.num_classes == 1


@pytest.mark.slow
def test_exports_answer_the_same(parser, tmp_path):
    texts = [
        *(" ".join(each) for each in words_of(HELD_OUT[:3])),
        "",
        "(\U0001f600) dog",
        "a " * 300,
    ]
    parser.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    assert loaded.parse(texts) == parser.parse(texts)
    served = tf.saved_model.load(str(parser.export(tmp_path / "export"))).signatures
    encoded = [*map(str.encode, texts), b"dog \xff\xfe"]
    actual, own = served["serving_default"](text=tf.constant(encoded)), parser.answer_all(encoded)
    for name in ("text", "labels"):
        found_texts = np.vectorize(lambda x: x.decode("utf-8", "replace"))(actual[name].numpy())
        np.testing.assert_array_equal(found_texts, own[name])
    for name in ("start", "end"):
        np.testing.assert_array_equal(actual[name], own[name])
    np.testing.assert_allclose(actual["scores"], own["scores"], rtol=1e-4, atol=1e-5)
    words = served["words"](text=tf.constant([["the", "dog"], ["dog", ""]]))
    assert words["text"].numpy().astype(str).tolist() == parser.parse([["the", "dog"], ["dog"]])
    packed = parser.preprocess(texts[:2])
    scores = served["tokens"](
        **{name: packed[name] for name in served["tokens"].structured_input_signature[1]}
    )
    np.testing.assert_allclose(next(iter(scores.values())), parser(packed), rtol=1e-4, atol=1e-5)
