"""Tags that mark spans, from one scheme to another, as seqeval reads them."""

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, IOBES, Entities

from keras_lm.data import convert_tags
from keras_lm.published.tag_schemes import entity_spans, scheme_of, tags_of

IOB1 = ["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG", "I-ORG", "I-ORG"]
BIO = ["B-PER", "I-PER", "B-PER", "O", "B-LOC", "B-ORG", "I-ORG", "I-ORG"]
BIOES = ["B-PER", "E-PER", "S-PER", "O", "S-LOC", "B-ORG", "I-ORG", "E-ORG"]


@pytest.mark.parametrize("labels", [IOB1, BIO, BIOES, [x.replace("S-", "U-") for x in BIOES]])
def test_one_scheme_to_another(labels):
    assert convert_tags(labels) == BIO
    assert convert_tags(labels, "BIOES") == BIOES


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
        found = entity_spans(labels, scheme)
        assert found == [(each.tag, each.start, each.end) for each in strict], labels
        number += len(found)
    assert number > 100
    assert scheme_of(choices) == scheme


def test_unknown_scheme():
    with pytest.raises(ValueError, match="scheme='BILOU'"):
        tags_of([], 3, "BILOU")
