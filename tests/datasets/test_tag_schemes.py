"""Tags that mark spans, from one scheme to another, as seqeval reads them."""

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, IOBES, Entities

from keras_lm.data import convert_tags
from keras_lm.datasets.tag_schemes import (
    entity_spans,
    is_plain,
    marks_entities,
    scheme_of,
    tags_of,
)

IOB1 = ["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG", "I-ORG", "I-ORG"]
BIO = ["B-PER", "I-PER", "B-PER", "O", "B-LOC", "B-ORG", "I-ORG", "I-ORG"]
BIOES = ["B-PER", "E-PER", "S-PER", "O", "S-LOC", "B-ORG", "I-ORG", "E-ORG"]


@pytest.mark.parametrize("labels", [IOB1, BIO, BIOES, [x.replace("S-", "U-") for x in BIOES]])
def test_one_scheme_to_another(labels):
    assert convert_tags(labels) == BIO
    assert convert_tags(labels, "BIOES") == BIOES


BMES = ["B-PER", "E-PER", "S-PER", "O", "W-LOC", "B-ORG", "M-ORG", "E-ORG"]


@pytest.mark.parametrize("labels", [BMES, [label.replace("-", "_") for label in (*BIOES, *BMES)]])
def test_other_letters_and_dashes(labels):
    number = len(labels) // len(BMES)
    assert entity_spans(labels)[:4] == entity_spans(BIOES)
    assert entity_spans(labels, "BIOES") == entity_spans(BIOES * number, "BIOES")
    assert convert_tags(labels) == BIO * number
    assert scheme_of(labels) == "BIOES"
    assert marks_entities(labels)
    assert not is_plain(labels)


def test_names_with_underscores_are_plain():
    assert is_plain(["O", "B_cell", "T_cell"])
    assert not is_plain(["O", "B_cell"])
    assert entity_spans(["B-B_cell", "I-B_cell"]) == [("B_cell", 0, 2)]


def test_spans_as_seqeval_has_them():
    expected = [(name, first, last + 1) for name, first, last in get_entities(BIO)]
    assert entity_spans(BIOES) == entity_spans(IOB1) == expected
    (strict,) = Entities([BIOES], IOBES).entities
    assert [(each.tag, each.start, each.end) for each in strict] == expected


@pytest.mark.parametrize(
    "scheme, prefixes, theirs", [("BIO", "BI", IOB2), ("BIOES", "BIES", IOBES)]
)
def test_whole_spans_are_those_of_seqevals_strict_mode(scheme, prefixes, theirs):
    choices = ["O", *(f"{prefix}-{name}" for prefix in prefixes for name in ("PER", "LOC"))]
    random, number = np.random.default_rng(0), 0
    for _ in range(300):
        labels = random.choice(choices, size=8).tolist()
        (strict,) = Entities([labels], theirs).entities
        actual = entity_spans(labels, scheme)
        assert actual == [(each.tag, each.start, each.end) for each in strict], labels
        number += len(actual)
    assert number > 100
    assert scheme_of(choices) == scheme


def test_unknown_scheme():
    with pytest.raises(ValueError, match="scheme='BILOU'"):
        tags_of([], 3, "BILOU")


def grouped(labels):
    """What the pipeline of transformers makes of labels with aggregation_strategy="simple"."""
    spans = []
    for place, label in enumerate(labels):
        is_begin = label.startswith("B-")
        name = label[2:] if label[:2] in ("B-", "I-") else label
        if place and not is_begin and spans[-1][0] == name:
            spans[-1] = (name, spans[-1][1], place + 1)
        else:
            spans.append((name, place, place + 1))
    return [span for span in spans if span[0] != "O"]


@pytest.mark.parametrize("choices", [["O", "PER", "LOC"], ["O", "E-MAIL", "ORG"]])
def test_plain_labels_are_grouped_as_the_pipeline_does(choices):
    random = np.random.default_rng(0)
    assert is_plain(choices) and marks_entities(choices)
    for _ in range(200):
        labels = random.choice(choices, size=8).tolist()
        assert entity_spans(labels, plain=True) == grouped(labels)
    assert entity_spans(["PER", "", "PER"], plain=True) == [("PER", 0, 1), ("PER", 2, 3)]


@pytest.mark.parametrize(
    ("class_names", "plain", "marks"),
    [
        (["O", "B-X", "I-X"], False, True),
        (["O", "I-X"], False, True),  # IOB1 without neighbours
        (["O", "B-X", "I-X", "E-X", "S-X"], False, True),
        (["O", "B-X", "I-X", "L-X", "U-X"], False, True),
        (["O", "S-X"], False, True),
        (["O", "B-X", "I-X", "X", "[CLS]"], False, True),
        (["NOUN", "VERB"], True, False),
        (["O"], False, False),
        (None, False, False),
    ],
)
def test_which_labels_mark_entities(class_names, plain, marks):
    assert (is_plain(class_names), marks_entities(class_names)) == (plain, marks)


@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_schemes_are_read_as_seqeval_reads_them(prefixes):
    choices = ["O", *(f"{prefix}-{name}" for prefix in prefixes for name in ("PER", "LOC"))]
    random = np.random.default_rng(3)
    for _ in range(300):
        labels = random.choice(choices, size=8).tolist()
        assert entity_spans(labels) == [(n, a, b + 1) for n, a, b in get_entities(labels)]
        bilou = [label.replace("E-", "L-").replace("S-", "U-") for label in labels]
        assert entity_spans(bilou) == entity_spans(labels)
