"""SQuAD's files: questions in order, and errors that name file and place."""

import json

import pytest

from keras_lm.data import read_squad

QUESTIONS = [
    {"id": "1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 3}]},
    {"id": "2", "question": "Ñ?", "is_impossible": True, "answers": [], "plausible_answers": []},
    {"id": 3, "question": "Hidden?"},
]


def squad(questions=QUESTIONS, context="By Ada."):
    paragraphs = [{"context": context, "qas": questions[:2]}, {"context": "", "qas": questions[2:]}]
    return {"version": "v2.0", "data": [{"title": "x", "paragraphs": paragraphs}]}


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "dev.json"
        content = content if isinstance(content, (str, bytes)) else json.dumps(content)
        path.write_bytes(content.encode("utf-8-sig") if isinstance(content, str) else content)
        return path

    return write


def test_questions_in_order(write):
    x, labels, ids = read_squad(write(squad()))
    assert x == {"question": ["Who?", "Ñ?", "Hidden?"], "context": ["By Ada."] * 2 + [""]}
    assert labels == [[{"text": "Ada", "start": 3}], [], []]
    assert ids == ["1", "2", "3"]


@pytest.mark.parametrize(
    "content, message",
    [
        (json.dumps(squad())[:-9], "dev.json: not JSON, or cut off"),
        (b"{\xff", "dev.json: not UTF-8"),
        ("{}", "dev.json, the file: 'data' is NoneType, not list: a SQuAD file has"),
        (
            '[{"text": "a"}]',
            "dev.json: a list, and a SQuAD file has.*Save rows as .jsonl, with one",
        ),
        (squad(context=None), r"data\[0\].paragraphs\[0\]: 'context' is NoneType, not str"),
        (squad([{"question": 3}]), r"paragraphs\[0\].qas\[0\]: 'question' is int"),
        (
            squad([{"question": "", "answers": [{"text": "a", "answer_start": "0"}]}]),
            r"qas\[0\].answers\[0\]: 'answer_start' is str",
        ),
        (squad([{"question": "", "answers": {}}, 7]), r"qas\[1\]: 'question' is NoneType"),
    ],
)
def test_errors_name_the_place(write, content, message):
    with pytest.raises(ValueError, match=message):
        read_squad(write(content))
