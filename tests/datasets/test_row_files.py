"""Files of rows beside which a data set of Hugging Face states what the numbers of classes mean."""

import json

import numpy as np
import pytest

from keras_lm.data import read_examples

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
ROWS = [
    {"tokens": ["Ada", "ran"], "ner_tags": [1, 0], "label": 1},
    {"tokens": ["in", "Oslo"], "ner_tags": [0, 3], "label": 0},
]
CLASS_LABEL = {"names": TAGS, "_type": "ClassLabel"}
STATED = {
    "dataset_info.json": {
        "features": {
            "tokens": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"},
            "ner_tags": {"feature": CLASS_LABEL, "_type": "List"},
            "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
        }
    },
    "dataset_infos.json": {
        "default": {"features": {"ner_tags": {"feature": CLASS_LABEL, "_type": "Sequence"}}}
    },
    "features.json": [{"feature_idx": 1, "name": "ner_tags", "type": [CLASS_LABEL]}],
}


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.mark.parametrize("name", STATED)
def test_numbers_of_tags_become_names(rows, name):
    rows.with_name(name).write_text(json.dumps(STATED[name]))
    actual = read_examples(rows, "token-classifier")
    assert actual.labels == [["B-PER", "O"], ["O", "B-LOC"]]
    assert actual.class_names() == ["B-LOC", "B-PER", "O"]
    assert actual.targets(TAGS) == [[1, 0], [0, 3]]


def test_numbers_of_classes_become_names_in_tables_too(tmp_path):
    (tmp_path / "dataset_info.json").write_text(json.dumps(STATED["dataset_info.json"]))
    path = tmp_path / "a.csv"
    path.write_text("text,label\nfine,1\nbad,0\n")
    actual = read_examples(path)
    assert actual.labels == ["pos", "neg"]
    np.testing.assert_array_equal(actual.targets(["pos", "neg"]), [0, 1])
    path.write_text("text,label\nfine,1\nbad,-1\n")  # a hidden label
    with pytest.raises(ValueError, match="line 3: there is no 'label'"):
        read_examples(path)
    path.write_text("text,label\nfine,2\n")  # a number that the file does not name
    assert read_examples(path).labels == ["2"]


def test_numbers_of_tags_without_names_are_named(rows):
    actual = read_examples(rows, "token-classifier")
    assert actual.labels == [["1", "0"], ["0", "3"]]
    with pytest.warns(
        UserWarning, match="the labels of words are the numbers 0, 1, 3, and nothing"
    ):
        assert actual.class_names() == ["0", "1", "3"]
    assert actual.class_names({"class_names": TAGS}) == TAGS  # positions in a checkpoint's names


@pytest.mark.parametrize("content", ['{"features": {', "[]", '{"features": {"ner_tags": null}}'])
def test_a_statement_that_says_nothing(rows, content):
    rows.with_name("dataset_info.json").write_text(content)
    if content.endswith("{"):
        with pytest.raises(ValueError, match=r"dataset_info.json: not JSON, .* the classes of"):
            read_examples(rows, "token-classifier")
    else:
        assert read_examples(rows, "token-classifier").labels[0] == ["1", "0"]


def test_two_columns_of_labels_are_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a", "label": "x", "labels": "y"}\n')
    message = "has the columns 'labels' and 'label': 'labels' is read as the labels"
    with pytest.warns(UserWarning, match=message):
        assert read_examples(path).labels == ["y"]
    assert read_examples(path, labels="label").labels == ["x"]
