"""Files of published data sets: a small one of each form, and what is wrong with damaged ones."""

import gzip
import json
import time

import pytest

from keras_lm.data import read_published
from keras_lm.datasets import PUBLISHED


@pytest.fixture
def write(tmp_path):
    def write(content, name="file"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def table(*rows):
    return "".join("\t".join(row.split("|")) + "\n" for row in rows)


def objects(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


QUOTED = 'She said "no'  # in these tables a quote is a letter
INFERENCE = {"text": ["A cat sleeps.", "x"], "text_pair": ["An animal rests.", "y"]}
SNLI = objects(
    {"sentence1": "A cat sleeps.", "sentence2": "An animal rests.", "gold_label": "entailment"},
    {"sentence1": "nobody", "sentence2": "agreed", "gold_label": "-"},
    {"sentence1": "x", "sentence2": "y", "gold_label": "contradiction"},
)
RENAMED = objects(
    *(
        {"premise": p, "hypothesis": h, "label": label}
        for p, h, label in zip(*INFERENCE.values(), ["entailment", "contradiction"], strict=True)
    )
)
CHOICE = {"text": ["He sat."], "choices": [["a", "b", "c", "d"]]}
RACE = {
    "id": "high1.txt",
    "article": "It rained.",
    "questions": ["It _ .", "What fell?"],
    "options": [["rained", "snowed"], ["rain", "snow"]],
    "answers": ["A", "B"],
}
RACE_X = {
    "text": ["It rained."] * 2,
    "choices": [["It rained .", "It snowed ."], ["What fell? rain", "What fell? snow"]],
}
COMMONSENSE = {
    "id": "7",
    "answerKey": "B",
    "question": {
        "stem": "He sat.",
        "choices": [{"label": n, "text": n.lower()} for n in "ABCD"],
    },
}
STORY = ",".join(
    ["InputStoryid", *(f"InputSentence{n}" for n in range(1, 5)), "RandomFifthSentenceQuiz1"]
    + ["RandomFifthSentenceQuiz2", "AnswerRightEnding"]
)
# document, part, position, word, part of speech, parse, lemma, frame set, sense, speaker, entity
ROLES = "".join(
    f"d 0 {n} {word} X * - {frame} - - * {roles} -\n"
    for n, (word, frame, roles) in enumerate(
        [
            ("Ada", "-", "(ARG0*) (ARG0*)"),
            ("wrote", "01", "(V*) *"),
            ("the", "-", "(ARG1* *"),
            ("notes", "-", "*) *"),
            ("and", "-", "* *"),
            ("left", "02", "* (V*)"),
        ]
    )
)
# The same, with clusters of mentions: nested ones, one that is within itself, and one of a part.
MENTIONS = [
    ("Ada", "(3|(0)"),
    ("and", "-"),
    ("her", "(12)|(0)"),
    ("dog", "3)"),
    ("saw", "-"),
    ("it", "(12)|(7"),
    ("all", "(7)|7)"),
]
COREFERENCE = "".join(
    [
        "#begin document (bc/d); part 001\n",
        *(f"bc/d 1 {n} {word} X * - - - - * {c}\n" for n, (word, c) in enumerate(MENTIONS[:4])),
        "\n",
        *(f"bc/d 1 {n} {word} X * - - - - * * {c}\n" for n, (word, c) in enumerate(MENTIONS[4:])),
        "\n#end document\n",
    ]
)
HEARD = [word for word, _ in MENTIONS]
ADA = ["Ada", "wrote", "the", "notes", "and", "left"]
MULTIRC = {
    "idx": 3,
    "passage": {
        "text": "It rained.",
        "questions": [
            {
                "question": "What fell?",
                "idx": 5,
                "answers": [
                    {"text": "rain", "idx": 0, "label": 1},
                    {"text": "snow", "idx": 1, "label": 0},
                ],
            }
        ],
    },
}
RECORD = {
    "idx": 2,
    "passage": {"text": "Ada met Bob.", "entities": [{"start": 0, "end": 2}]},
    "qas": [
        {
            "query": "@placeholder was met.",
            "idx": 9,
            "answers": [{"start": 8, "end": 10, "text": "Bob"}],
        }
    ],
}
WIC = {"word": "dance", "sentence1": "They danced.", "sentence2": "A dance ended.", "idx": 4}
WSC = {
    "text": 'Ada told Eve that "she" sings.',
    "target": {"span1_index": 0, "span1_text": "Ada", "span2_index": 4, "span2_text": "she"},
    "idx": 1,
    "label": True,
}
COPA = {"premise": "It rained.", "choice1": "I got wet.", "choice2": "I sang.", "idx": 8}
STORY_OF_ADA = "Ada lives in Oslo. She has a red cat, called Tom. It sleeps all day."
TURNS = [  # question, answer, rationale
    ("Who lives there?", "Ada", "Ada lives in Oslo."),
    ("Has she a pet?", "yes", "She has a red cat,"),
    ("Which one?", "A cat, a red one", "has a red cat, called Tom"),
    ("How old is it?", "unknown", None),
]
COQA = {
    "id": "s7",
    "story": STORY_OF_ADA,
    "questions": [{"turn_id": n, "input_text": q} for n, (q, _, _) in enumerate(TURNS, start=1)],
    "answers": [
        {
            "turn_id": n,
            "input_text": answer,
            "span_start": STORY_OF_ADA.index(span) if span else -1,
            "span_end": STORY_OF_ADA.index(span) + len(span) if span else -1,
            "span_text": span or "unknown",
        }
        for n, (_, answer, span) in enumerate(TURNS, start=1)
    ],
}
COQA_ROWS = (
    {
        "question": [
            "Who lives there?",
            "Who lives there? Ada Has she a pet?",
            "Who lives there? Ada Has she a pet? yes Which one?",
            "Has she a pet? yes Which one? A cat, a red one How old is it?",
        ],
        "context": [STORY_OF_ADA] * 4,
    },
    [
        [{"text": "Ada", "start": 0}],
        [{"text": "She has a red cat,", "start": 19}],
        [{"text": "a red cat", "start": 27}],
        [],
    ],
    [f"s7-{n}" for n in range(1, 5)],
)
# Data set, content, x, labels, ids.
FILES = [
    (
        "boolq",
        objects({"question": "is it a", "passage": "It is.", "idx": 6, "label": True}),
        {"text": ["is it a"], "text_pair": ["It is."]},
        ["true"],
        ["6"],
    ),
    (
        "cb",
        objects({"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 0}),
        {"text": ["a"], "text_pair": ["b"]},
        ["neutral"],
        ["0"],
    ),
    (
        "copa",
        objects(COPA | {"question": "effect", "label": 0}, COPA | {"question": "cause"}),
        {
            "text": ["It rained. What happened as a result?"],
            "choices": [["I got wet.", "I sang."]],
        },
        [0],
        ["8"],
    ),
    (
        "multirc",
        objects(MULTIRC),
        {"text": ["It rained."] * 2, "text_pair": ["What fell? rain", "What fell? snow"]},
        [1, 0],
        ["3-5-0", "3-5-1"],
    ),
    (
        "record",
        objects(RECORD),
        {"question": ["@placeholder was met."], "context": ["Ada met Bob."]},
        [[{"text": "Bob", "start": 8}]],
        ["2-9"],
    ),
    (
        "rte",  # of SuperGLUE
        objects({"premise": "a", "hypothesis": "b", "label": "not_entailment", "idx": 1}),
        {"text": ["a"], "text_pair": ["b"]},
        ["not_entailment"],
        ["1"],
    ),
    (
        "wic",
        objects(WIC | {"label": False}),
        {"text": ["They danced."], "text_pair": ["A dance ended. word: dance"]},
        ["false"],
        ["4"],
    ),
    (
        "wsc",
        objects(WSC, WSC | {"target": WSC["target"] | {"span2_text": "they"}, "label": False}),
        {
            "text": [
                'Ada told Eve that "*she*" sings.',
                'Ada told Eve that *"she"* sings.',
            ],
            "text_pair": ["Ada", "Ada"],
        },
        ["true", "false"],
        ["1", "1"],
    ),
    (
        "ax-b",
        objects({"sentence1": "a", "sentence2": "b", "idx": 0, "label": "entailment"}),
        {"text": ["a"], "text_pair": ["b"]},
        ["entailment"],
        ["0"],
    ),
    (
        "ax-g",
        objects({"premise": "a", "hypothesis": "b", "idx": 0, "label": "not_entailment"}),
        {"text": ["a"], "text_pair": ["b"]},
        ["not_entailment"],
        ["0"],
    ),
    ("coqa", json.dumps({"data": [COQA]}, indent=1), *COQA_ROWS),
    (
        "lambada",
        "`` ada , '' he said , and looked at ada\n\nit rained on the cat \n",
        {"text": ["`` ada , '' he said , and looked at", "it rained on the"]},
        ["ada", "cat"],
        None,
    ),
    (
        "lambada",
        objects({"text": "It rained, and she saw\nher cat"}),
        {"text": ["It rained, and she saw\nher"]},
        ["cat"],
        None,
    ),
    ("cola", table(f"gj04|1||{QUOTED}", "cj99|0|*|b"), {"text": [QUOTED, "b"]}, [1, 0], None),
    ("cola", table("index|sentence", "7|a"), {"text": ["a"]}, None, ["7"]),
    ("sst2", "sentence\tlabel\r\nfine \t1\r\n", {"text": ["fine "]}, [1], None),
    (
        "mrpc",
        table("\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String", "0|8|9|a|b"),
        {"text": ["a"], "text_pair": ["b"]},
        [0],
        None,
    ),
    (
        "qqp",
        table("id|qid1|qid2|question1|question2|is_duplicate", "3|1|2|a|b|1", "4|cut"),
        {"text": ["a"], "text_pair": ["b"]},
        [1],
        ["3"],
    ),
    (
        "stsb",
        table("news|f|2012|7|2.50|a|b", "news|f|2012|8|5.0|c|d|extra"),
        {"text": ["a", "c"], "text_pair": ["b", "d"]},
        [2.5, 5.0],
        None,
    ),
    (
        "mnli",
        table("index|sentence1|sentence2|label1|gold_label", "0|a|b|neutral|entailment"),
        {"text": ["a"], "text_pair": ["b"]},
        ["entailment"],
        ["0"],
    ),
    ("mnli", RENAMED, INFERENCE, ["entailment", "contradiction"], None),
    ("snli", SNLI, INFERENCE, ["entailment", "contradiction"], None),
    (
        "qnli",
        table("index|question|sentence|label", "0|a|b|not_entailment"),
        {"text": ["a"], "text_pair": ["b"]},
        ["not_entailment"],
        ["0"],
    ),
    (
        "rte",
        table("2|a|b|entailment"),
        {"text": ["a"], "text_pair": ["b"]},
        ["entailment"],
        ["2"],
    ),
    (
        "wnli",
        table("index|sentence1|sentence2|label", "0|a|b|1"),
        {"text": ["a"], "text_pair": ["b"]},
        [1],
        ["0"],
    ),
    (
        "ax",
        table("Logic|Premise|Hypothesis|Label", "x|a|b|neutral"),
        {"text": ["a"], "text_pair": ["b"]},
        ["neutral"],
        None,
    ),
    (
        "scitail",
        table("a|b|entails", "c|d|neutral"),
        {"text": ["a", "c"], "text_pair": ["b", "d"]},
        ["entailment", "neutral"],
        None,
    ),
    (
        "sst5",
        "(3 (2 It) (4 (2 -LRB-) (4 sings)))\n0 stsa 's form\n",
        {"text": ["It ( sings", "stsa 's form"]},
        [3, 0],
        None,
    ),
    (
        "swag",
        ",video-id,sent1,sent2,ending0,ending1,ending2,ending3,label\n"
        '5,v,He sat.,She,"a, b",b,c,d,2\n',
        {"text": ["He sat."], "choices": [["She a, b", "She b", "She c", "She d"]]},
        [2],
        ["5"],
    ),
    ("codah", table("o|He sat.|a|b|c|d|3"), CHOICE, [3], None),
    ("commonsenseqa", objects(COMMONSENSE), CHOICE, [1], ["7"]),
    ("race", objects(RACE), RACE_X, [0, 1], ["high1.txt-0", "high1.txt-1"]),
    (
        "storycloze",
        f"{STORY}\ns1,A.,B.,C.,D.,e,f,2\n",
        {"text": ["A. B. C. D."], "choices": [["e", "f"]]},
        [1],
        ["s1"],
    ),
    (
        "conll2003",
        "-DOCSTART- -X- -X- O\n\nAda N NP I-PER\nBob N NP B-PER\nran V VP O\n\nUN N NP I-ORG\n",
        {"text": [["Ada", "Bob", "ran"], ["UN"]]},
        [["B-PER", "B-PER", "O"], ["B-ORG"]],
        None,
    ),
    (
        "conll2003-chunk",
        "Ada N I-NP O\nruns V I-VP O",
        {"text": [["Ada", "runs"]]},
        [["B-NP", "B-VP"]],
        None,
    ),
    ("conll2000", "Ada N B-NP\n", {"text": [["Ada"]]}, [["B-NP"]], None),
    ("conll2000-pos", "Ada N B-NP\n", {"text": [["Ada"]]}, [["N"]], None),
    (
        "wikiann",
        "en:Oslo\tB-LOC\nen:is\tO\n\nen::\tO\n",
        {"text": [["Oslo", "is"], [":"]]},
        [["B-LOC", "O"], ["O"]],
        None,
    ),
    (
        "ontonotes-srl",
        f"#begin document (d); part 000\n{ROLES}\nd 0 0 Hm X * - - - - * -\n\n#end document\n",
        {"text": [ADA, ADA], "predicate": [1, 5]},
        [["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "O", "O"], ["B-ARG0", *["O"] * 4, "B-V"]],
        ["d/0/2/0", "d/0/2/1"],
    ),
    (  # the columns of roles in another order than their predicates
        "ontonotes-srl",
        "d 0 0 Ada X * - 01 - - * * (V*) -\nd 0 1 left X * - 02 - - * (V*) (ARG0*) -\n",
        {"text": [["Ada", "left"]] * 2, "predicate": [1, 0]},
        [["O", "B-V"], ["B-V", "B-ARG0"]],
        ["d/0/1/0", "d/0/1/1"],
    ),
    (
        "ontonotes-coref",
        COREFERENCE + "#begin document (e); part 000\ne 0 0 Hm X * - - - - * -\n#end document\n",
        {"text": [HEARD, ["Hm"]]},
        [[[(0, 1), (2, 3)], [(0, 4)], [(2, 3), (5, 6)], [(5, 7), (6, 7)]], []],
        ["bc/d/1", "e/0"],
    ),
]


@pytest.mark.parametrize(
    "name, content, x, labels, ids", FILES, ids=[f"{n}-{row[0]}" for n, row in enumerate(FILES)]
)
def test_rows_as_fit_takes_them(write, name, content, x, labels, ids):
    rows = read_published(write(content), name)
    assert (rows.x, rows.labels, rows.ids) == (x, labels, ids)
    assert rows.left_out == (name in ("snli", "qqp", "copa"))
    if PUBLISHED[name].class_names:
        assert rows.class_names == list(PUBLISHED[name].class_names)
    elif PUBLISHED[name].task == "token-classifier":
        assert rows.class_names == sorted({tag for tags in labels for tag in tags})


def test_every_set_is_read():
    elsewhere = {"conll", "conll2003-pos", "squad", "wmt", "cnn-dailymail", "penn"}
    elsewhere |= {"fewrel", "tacred", "relations", "figer", "open-entity", "typing"}
    assert {row[0] for row in FILES} | elsewhere == set(PUBLISHED)


def test_questions_of_squad(write):
    question = {"id": "1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 3}]}
    content = {"data": [{"paragraphs": [{"context": "By Ada.", "qas": [question]}]}]}
    rows = read_published(write(json.dumps(content)), "squad")
    assert rows.x == {"question": ["Who?"], "context": ["By Ada."]}
    assert (rows.labels, rows.ids) == ([[{"text": "Ada", "start": 3}]], ["1"])


def test_folders_and_packed_files(write):
    write(json.dumps(RACE), "race/1.txt")
    write(gzip.compress(json.dumps(RACE | {"id": "2"}).encode()), "race/2.txt.gz")
    rows = read_published(write(json.dumps(RACE | {"id": "0"}), "race/0.txt").parent, "race")
    assert [id.split("-")[0] for id in rows.ids] == ["0", "0", "high1.txt", "high1.txt", "2", "2"]


REPEATED = {
    "multirc": '{"idx": 1, "idx": 2}',
    "lambada": '{"text": "it rained", "text": "it snowed"}',
    "snli": '{"sentence1": "a", "sentence2": "b", "gold_label": "-", "gold_label": "neutral"}',
    "coqa": '{"data": [{"id": 1,\n "id": "b"}]}',
    "squad": '{"version": "}\\"{",\n "data": [{"title": "a", "title": "b", "paragraphs": []}]}',
    "fewrel": '{"P1": [{"tokens": ["a"]}],\n"P1": []}',
    "tacred": '[{"token": ["a"],\n"token": ["b"]}]',
    "figer": '[{"tokens": ["a"],\n"tokens": ["b"]}]',
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_key_that_stands_twice_in_an_object(write, name):
    place = "line 2 column" if "\n" in REPEATED[name] else "line 1: the key"
    with pytest.raises(ValueError, match="stands twice in an object") as raised:
        read_published(write(REPEATED[name]), name)
    assert place in str(raised.value)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("snly", "", "one of cola.*Did you mean snli"),
        ("sst2", "", "file is empty: it has no rows"),
        ("sst2", table("sentence|label", "a|2"), "file, line 2: the label '2' is not one of 0, 1"),
        ("sst2", table("sentence|label", "a|1", "b"), "line 3: 1 fields, but the header has 2"),
        ("sst2", table("text|label", "a|1"), "line 1: the header needs 'sentence'"),
        ("cola", table("gj04|1||a", "gj04|1"), "line 2: 2 fields, but 4"),
        ("stsb", table("n|f|1|7|much|a|b"), "line 1: could not convert"),
        ("snli", SNLI[:-9], "line 3: not JSON"),
        (
            "snli",
            objects({"sentence1": "a", "gold_label": "neutral"}),
            "there is no 'sentence2'",
        ),
        ("snli", objects({"sentence1": 3, "sentence2": "b"}), "line 1: the text is 3"),
        ("snli", SNLI.replace("contra", "kontra"), "line 3: the label 'kontradiction' is not one"),
        ("sst5", "(3 (2 It) (4 sings\n", "line 1: .* is not a tree"),
        ("codah", table("o|x|a|b|c|d|4"), "line 1: the label '4' is not one of 0, 1, 2, 3"),
        ("commonsenseqa", objects(COMMONSENSE | {"answerKey": "F"}), "line 1: the label 'F'"),
        ("commonsenseqa", objects({"id": "1"}), "there is no 'question'"),
        ("race", objects(RACE | {"options": [["a"]]}), "line 1: "),
        ("race", json.dumps(RACE)[:-3], "line 1: not JSON"),
        ("boolq", objects({"question": "a", "passage": True}), "line 1: the text_pair is true"),
        ("boolq", objects({"question": "a", "passage": "b", "label": 2}), "label 2 is not a pos"),
        ("boolq", objects({"passage": "b"}), "there is no 'question'"),
        (
            "cb",
            objects({"premise": "a", "hypothesis": "b", "label": "yes"}),
            "'yes' is not one",
        ),
        ("copa", objects(COPA | {"question": "I sang."}), "line 1: .* not one of cause, effect"),
        ("copa", objects(COPA | {"question": "cause", "choice2": 1}), "line 1: the choices is 1"),
        ("multirc", objects(MULTIRC, MULTIRC)[:-9], "line 2: not JSON"),
        ("multirc", objects(RECORD), "there is no 'questions'"),
        ("record", objects(MULTIRC), "there is no 'qas'"),
        ("record", json.dumps(RECORD).replace("8", '"x"'), "line 1: invalid literal"),
        (
            "wic",
            objects({"word": "a", "sentence1": "b", "idx": 0}),
            "there is no 'sentence2'",
        ),
        ("wsc", objects(WSC | {"text": "Ada sings."}), "line 1: fields are missing"),
        (
            "ontonotes-coref",
            COREFERENCE[:-15],
            "file: cut off, the document of line 1 has no '#end",
        ),
        ("ontonotes-coref", COREFERENCE[1:], "line 1: 'begin document .* is before a '#begin"),
        (
            "ontonotes-coref",
            COREFERENCE * 2 + "#end document",
            "line 23: .* no document has",
        ),
        ("ontonotes-coref", COREFERENCE[:-15] + COREFERENCE, "but that of line 1 has not ended"),
        (
            "ontonotes-coref",
            COREFERENCE.replace("(7)|7)", "(7)"),
            r"line 8: .* '\(7' is not closed",
        ),
        (
            "ontonotes-coref",
            COREFERENCE.replace(" 3)", " 4)"),
            r"line 5: '4\)' ends a mention that",
        ),
        (
            "ontonotes-coref",
            COREFERENCE.replace("(3|", "(3,"),
            "line 2: .* is not a bracket",
        ),
        ("ontonotes-coref", COREFERENCE.replace("- - * 3)", "- 3)"), "line 5: 10 columns, but"),
        ("ontonotes-coref", "#begin document (e)\n\n#end document\n", "line 1: .* has no words"),
        ("coqa", json.dumps({"data": [COQA]})[:-50], "file: not JSON, or cut off"),
        ("coqa", json.dumps([COQA]), "file must be {'data'"),
        ("coqa", json.dumps({"data": [COQA, {"id": "2"}]}), r"data\[1\]: there is no 'story'"),
        (
            "coqa",
            json.dumps({"data": [COQA | {"story": "Ada"}]}),
            "goes from 0 to 18, but the story",
        ),
        (
            "coqa",
            json.dumps({"data": [COQA | {"answers": COQA["answers"][::-1]}]}),
            r"data\[0\]: turn 1 has the answer of another",
        ),
        (
            "coqa",
            json.dumps({"data": [COQA | {"answers": COQA["answers"][1:]}]}),
            r"data\[0\]: turn 1 has the answer|shorter",
        ),
        ("lambada", "it rained\nrain\n", "line 2: `text` needs two words"),
        ("lambada", objects({"word": "rain"}), "line 1: `text` needs"),
        ("lambada", objects({"text": "it rained"})[:-5], "line 1: not JSON"),
        ("conll2003", "Ada N NP O\nruns V\n", "line 2: 'runs V' is not a word and its label in 4"),
        ("wikiann", "en:\tO\n", "line 1: 'en:\\\\tO' is not a word"),
        ("ontonotes-srl", ROLES.replace("notes X", "notes"), "line 4: 13 columns"),
        ("ontonotes-srl", ROLES.replace("* *) * -", "* * * -"), "line 6: .*'ARG1' is not closed"),
        ("ontonotes-srl", ROLES.replace("(ARG1* *", "*) *"), r"line 3: '\*\)' is not a bracket"),
    ],
)
def test_damage_is_named_with_file_and_line(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_published(write(content), name)


OPEN = ["|".join(f"({n}" for n in range(5000)), "|".join(f"{n})" for n in range(5000))]


@pytest.mark.parametrize("cells", [OPEN, ["(0)"] * 10_000])
def test_time_is_that_of_the_mentions(tmp_path, cells):
    lines = "".join(f"a 0 {n} w NN * - - - - * {cell}\n" for n, cell in enumerate(cells))
    path = tmp_path / "a.conll"
    path.write_text(f"#begin document (a); part 000\n{lines}#end document\n")
    start = time.monotonic()
    (clusters,) = read_published(path, "ontonotes-coref").labels
    assert sum(map(len, clusters)) == (5000 if cells is OPEN else 10_000)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("kind, name", [("squad", "a.json.gz"), ("mnli", "a.jsonl.gz")])
def test_what_unfolds_without_end(tmp_path, monkeypatch, kind, name):
    monkeypatch.setattr("keras_lm.utils.input_files.LONGEST_LINE", 1000)
    monkeypatch.setattr("keras_lm.utils.input_files.LARGEST_CONTENT", 1000)
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"{" + b" " * 1000 + b"}\n"))
    with pytest.raises(ValueError, match=f"{name}.*(longer|more) than 1000 bytes"):
        read_published(path, kind)


def test_answers_that_are_no_list(tmp_path):
    question = {"question": "who?", "answers": 7}
    article = {"paragraphs": [{"context": "Ada sings.", "qas": [question]}]}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [article]}))
    with pytest.raises(ValueError, match=r"qas\[0\]: 'answers' is int, not list"):
        read_published(path, "squad")
