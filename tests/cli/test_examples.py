"""Words with labels and texts with choices, from files through `finetune` and `evaluate`."""

import json

import pytest

from keras_lm import tasks
from keras_lm.cli.evaluate import say_results
from keras_lm.datasets.examples import read_examples
from keras_lm.knowledge import ConceptStore, TransE

pytestmark = pytest.mark.eager

SENTENCES = [
    (["the", "film", "was", "good", "."], ["O", "B-WORK", "I-WORK", "O", "O"]),
    (["a", "loud", "song"], ["O", "O", "B-WORK"]),
    (["bad", "!"], ["B-X", "O"]),
]
CONLL = "-DOCSTART- -X- -X- O\n\n" + "\n".join(
    "".join(f"{word} NN I-NP {label}\n" for word, label in zip(*sentence)) for sentence in SENTENCES
)
SWAG = """,video-id,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,label
0,1,the film was The song,the film was good.,The song,gold,is loud.,was bad.,film.,0
1,2,a song The film,a song.,The film,gold,is bad.,was good.,is.,1
"""


def read(path, task, to_learn=False, **columns):
    return read_examples(path, task, refuse_blank=to_learn, **columns)


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.conll", CONLL),
        ("a.txt", CONLL.replace(" ", "\t").replace("\n", "\r\n")),
        ("a.jsonl", "".join(json.dumps({"tokens": w, "ner_tags": t}) + "\n" for w, t in SENTENCES)),
        (
            "a.csv",
            "words,labels\n" + "".join(f'"{" ".join(w)}",{" ".join(t)}\n' for w, t in SENTENCES),
        ),
    ],
)
def test_words_with_labels(write, name, content):
    examples = read(write(name, content), "token-classifier")
    assert list(zip(examples.texts["text"], examples.labels)) == SENTENCES
    names = ["O", "B-WORK", "I-WORK", "B-X"]
    assert examples.targets(names) == [[0, 1, 2, 0, 0], [0, 0, 1], [3, 0]]
    with pytest.raises(ValueError, match="the label 'B-X' is not one of O, B-WORK"):
        examples.targets(names[:3])


CHOICES = [
    ("the film", ["was good", "is loud", "bad"], 2),
    ("a song", ["was bad", "was good"], 1),
]


@pytest.mark.parametrize(
    "name, content",
    [
        (
            "a.jsonl",
            "".join(
                json.dumps({"question": text, "choices": choices, "label": label}) + "\n"
                for text, choices, label in CHOICES
            ),
        ),
        (
            "a.csv",
            "text,choice_0,choice_1,choice_2,label\n"
            "the film,was good,is loud,bad,2\na song,was bad,was good,,1\n",
        ),
    ],
)
def test_texts_with_choices(write, name, content):
    examples = read(write(name, content), "multiple-choice")
    columns = examples.texts["text"], examples.texts["choices"], examples.targets()
    assert list(zip(*columns)) == CHOICES


def test_swags_columns_are_joined_as_bert_reads_them(write):
    examples = read(write("swag.csv", SWAG), "multiple-choice")
    assert examples.texts["text"] == ["the film was good.", "a song."]
    first = ["The song is loud.", "The song was bad.", "The song film."]
    assert examples.texts["choices"][0] == first
    assert examples.labels == [0, 1]
    named = read(write("swag.csv", SWAG), "multiple-choice", text="startphrase", choices="ending")
    assert named.texts["text"][1] == "a song The film"
    assert named.texts["choices"][1] == ["is bad.", "was good.", "is."]


@pytest.mark.parametrize(
    "task, name, content, message",
    [
        ("token-classifier", "a.conll", "the O\nfilm\n", "line 2: 'film' is not a word and its"),
        (
            "token-classifier",
            "a.jsonl",
            '{"words": ["a"], "labels": []}',
            "1 words in 'words'",
        ),
        ("token-classifier", "a.jsonl", '{"words": [1], "labels": ["O"]}', "not a list of strings"),
        (
            "token-classifier",
            "a.tsv",
            "title\tPOS\nx\tO\n",
            "no column 'words'.*text=NAME.*format=conll",
        ),
        ("question-answerer", "a.json", "\n", "a.json is empty: it has no rows"),
        ("question-answerer", "a.json", '{"a": 1}\n{"a": 1}', "not JSON.*each line, are .jsonl"),
        ("text-classifier", "a.txt", "x\n", "a.txt has texts without labels: pass a CSV"),
        ("token-classifier", "a.conll", "\n\n", "has no rows"),
        ("multiple-choice", "a.csv", "text,choice0,label\nx,y,1\n", "line 2: the label 1 must be"),
        ("multiple-choice", "a.csv", "text,choice0,label\nx,y,b\n", "line 2: the label 'b'"),
        ("multiple-choice", "a.csv", "text,label\nx,1\n", "no column 'choices'.*choices=NAME"),
    ],
)
def test_mistakes_are_named(write, task, name, content, message):
    with pytest.raises(ValueError, match=message):
        read(write(name, content), task)


@pytest.mark.slow
def test_a_tagger_is_trained_and_measured(run, write, tiny, tmp_path, capsys):
    sequence_labeling = pytest.importorskip("seqeval.metrics")
    file, preset = write("train.conll", CONLL), tmp_path / "tagger"
    arguments = ["--output", preset, "--task", "token-classifier", "--epochs", 1]
    shown = run("finetune", tiny, file, *arguments, "--batch-size", 3)
    assert "labels  B-WORK, B-X, I-WORK, O" in shown
    message = json.loads(run("evaluate", preset, file, "--json"))
    task = tasks.TokenClassifier.from_preset(preset)
    words, right = (list(column) for column in zip(*SENTENCES))
    answers = task.tag(words)["labels"]
    report = sequence_labeling.classification_report(
        right, answers, output_dict=True, zero_division=0
    )
    for name in ("precision", "recall"):
        assert message[name] == pytest.approx(report["micro avg"][name])
    assert message["f1"] == pytest.approx(report["micro avg"]["f1-score"])
    for name in ("WORK", "X"):
        expected = [report[name][key] for key in ("precision", "recall", "f1-score", "support")]
        assert [*message["classes"][name].values()] == pytest.approx(expected)
    assert message["accuracy"] == pytest.approx(sequence_labeling.accuracy_score(right, answers))
    assert (message["texts"], message["words"]) == (3, 10)
    say_results(message)  # as without --json
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["class", "WORK", "X"]
    weights = ["--class-weight", "O=0,B-WORK=0,I-WORK=0", "--epochs", 5, "--learning-rate", 0.05]
    run("finetune", preset, file, "--output", tmp_path / "new", *weights, "--batch-size", 3)
    message = tasks.TokenClassifier.from_preset(tmp_path / "new").tag(words)["labels"]
    assert {label for row in message for label in row} == {"B-X"}


def test_labels_that_mark_no_entities_are_measured_by_word(
    run, write, make_backbone, tokenizer, tmp_path
):
    task = tasks.TokenClassifier(
        make_backbone(), tokenizer=tokenizer, class_names=["NOUN", "ADJ"], sequence_length=4
    )
    task.save_to_preset(tmp_path / "tagger")
    file = write("test.txt", "film NOUN\ngood ADJ\nsong NOUN\n\nbad ADJ\n")
    message = json.loads(run("evaluate", tmp_path / "tagger", file, "--json"))
    answers = task.tag([["film", "good", "song"], ["bad"]])["labels"]
    pairs = list(zip(["NOUN", "ADJ", "NOUN", "ADJ"], answers[0] + answers[1]))
    assert pairs[2][1] == ""  # cut off
    assert message["accuracy"] == sum(right == answer for right, answer in pairs) / 4
    for name, row in message["classes"].items():
        assert row["words"] == 2
        assert row["recall"] == sum(pair == (name, name) for pair in pairs) / 2


def test_multiple_choice_is_trained_and_measured(run, write, tiny, tmp_path):
    file, preset = write("swag.csv", SWAG), tmp_path / "chooser"
    arguments = ["--output", preset, "--task", "multiple-choice", "--epochs", 1]
    assert "accuracy" in run("finetune", tiny, file, *arguments, "--batch-size", 2)
    message = json.loads(run("evaluate", preset, file, "--json"))
    task = tasks.MultipleChoice.from_preset(preset)
    examples = read(file, "multiple-choice")
    answer = task.choose(examples.texts)
    assert message["accuracy"] == sum(answer["labels"] == examples.labels) / 2
    assert message["texts"] == 2


ASKED = [
    {"text": "the film was", "choices": ["a song", "good"], "label": 0},
    {"text": "a song is", "choices": ["bad", "the film"], "label": 1},
]


@pytest.fixture(scope="module")
def knowing(run, tiny, tmp_path_factory):
    """(preset, file) of a task that was trained with a graph, on the file."""
    folder = tmp_path_factory.mktemp("knowing")
    store = ConceptStore.build(
        [("film", 1, "loud", 1.0), ("loud", 2, "song", 1.0)], folder / "store"
    )
    TransE(store.num_concepts, len(store.relations) + 1, dim=4).save(folder / "store-trans-e")
    file, preset = folder / "asked.jsonl", folder / "preset"
    file.write_text("".join(json.dumps(row) + "\n" for row in ASKED))
    arguments = ["--output", preset, "--task", "multiple-choice", "--graph", folder / "store"]
    run("finetune", tiny, file, *arguments, "--epochs", 1)
    return preset, file


@pytest.mark.slow
def test_choices_are_trained_and_measured_with_a_graph(run, fail, answers, knowing, tiny, tmp_path):
    preset, file = knowing
    task = tasks.Task.from_preset(preset)
    assert type(task) is tasks.GraphChoice
    assert (task.graphs.finder.max_hops, task.graphs.finder.trans_e.entities.shape) == (2, (4, 4))
    actual = task.choose(read(str(file), "multiple-choice").texts)
    measures = json.loads(run("evaluate", preset, file, "--json"))
    assert measures["accuracy"] == sum(actual["labels"] == [0, 1]) / 2
    told = answers(run("predict", preset, "--input", file))
    assert [row["answer"]["labels"] for row in told] == actual["labels"].tolist()
    wrong = ["finetune", tiny, file, "--output", tmp_path / "x", "--task"]
    assert "--hops is for paths in a graph" in fail(*wrong, "multiple-choice", "--hops", 1)
    assert "--graph is not for" in fail(*wrong, "text-classifier", "--graph", tmp_path)
    message = fail(*wrong, "multiple-choice", "--graph", tmp_path)
    assert "is not a graph of concepts: it has no store.json. Build one with" in message
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_task_with_a_graph_is_exported_and_trained_on(run, answers, knowing, tmp_path):
    preset, file = knowing
    told = run("export", preset, tmp_path / "exported", "--check")
    assert "4 texts, answered as the task answers" in told
    expected = answers(run("predict", preset, "--input", file))
    for signature in ((), ("--signature", "explain")):
        rows = answers(run("predict", tmp_path / "exported", "--input", file, *signature))
        assert [row["answer"]["labels"] for row in rows] == [
            row["answer"]["labels"] for row in expected
        ]
    assert rows[0]["answer"]["paths"][0][0] == ["film", "loud", "song"]
    assert rows[0]["answer"]["relations"][0][0] == ["Antonym", "AtLocation"]
    run("finetune", preset, file, "--output", tmp_path / "more", "--epochs", 1)
    assert type(tasks.Task.from_preset(tmp_path / "more")) is tasks.GraphChoice
    again = ("--config", tmp_path / "more" / "run.toml", "--output", tmp_path / "again")
    run("finetune", preset, file, *again)


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        ("text-classifier", "a.csv", "text,label\nfine,good\nx,nan\n"),
        (
            "text-classifier",
            "a.jsonl",
            '{"text": "x", "label": "a"}\n{"text": "x", "label": "<NA>"}',
        ),
        ("token-classifier", "a.jsonl", '\n{"words": ["a", "b"], "labels": ["O", "NaN"]}'),
    ],
)
def test_a_missing_label_in_letters_is_refused(write, task, name, content):
    examples = read(write(name, content), task)
    line = examples.lines[-1]
    message = f"{name}, line {line}: the label is '(nan|<NA>|NaN)', .*name all .*class_names="
    with pytest.raises(ValueError, match=message):
        examples.class_names()
    meant = ["<NA>", "NaN", "O", "a", "good", "nan"]
    assert examples.class_names({"class_names": meant}) == meant


@pytest.mark.parametrize(
    ("task", "name", "content", "line", "column"),
    [
        ("text-classifier", "a.csv", "text,label\nfine,good\n,bad\n", 3, "text"),
        ("text-classifier", "a.csv", 'text,label\n" \u2003",bad\n', 2, "text"),
        ("text-regressor", "a.tsv", "text\ttext_pair\tlabel\nfine\t\t1.5\n", 2, "text_pair"),
        ("seq2seq-lm", "a.csv", "text,target\nfine,gut\nbad,\n", 3, "target"),
        (
            "question-answerer",
            "a.jsonl",
            '{"question": "who", "context": "", "answers": []}',
            1,
            "context",
        ),
        (
            "multiple-choice",
            "a.jsonl",
            '{"text": "", "choices": ["a", "b"], "label": 0}',
            1,
            "text",
        ),
        ("token-classifier", "a.jsonl", '{"words": [], "labels": []}', 1, "words"),
        ("coreference-resolver", "a.jsonl", '{"words": [], "labels": []}', 1, "words"),
        ("constituency-parser", "a.jsonl", '{"words": [], "labels": "(S (X a))"}', 1, "words"),
    ],
)
def test_an_empty_text_is_refused(write, task, name, content, line, column):
    path = write(name, content)
    wrong = "has no words" if column == "words" else "is empty"
    message = rf"{name}, line {line}: '{column}' {wrong}: add .*, or delete the row"
    with pytest.raises(ValueError, match=message):
        read(path, task, to_learn=True)
    assert read(path, task).lines  # to be measured


def test_a_missing_text_is_refused(write):
    path = write("a.jsonl", '{"text": "fine", "label": 1}\n{"text": null, "label": 0}\n')
    with pytest.raises(ValueError, match="line 2: there is no 'text'"):
        read(path, "text-classifier")


def test_blank_lines_are_no_texts_of_a_language_model(write):
    path = write("a.txt", "one\n\n \ntwo\n\n")
    for task in ("masked-lm", "causal-lm"):
        examples = read(path, task)
        assert examples.texts == {"text": ["one", "two"]} and examples.lines == [1, 4]


def test_published_sets_are_taken_as_they_are(write):
    path = write("train.tsv", "sentence\tlabel\nfine\t1\n \t0\n")
    examples = read_examples(path, "text-classifier", "sst2", refuse_blank=True)
    assert len(examples.lines) == 2


# === Rows that are empty ===

EMPTY = [
    # task, name, good rows, rows that lack something, what is used
    (
        "text-classifier",
        "a.csv",
        "text,label\n{}",
        ["fine,good", "bad,bad"],
        [",good", "  ,bad", "fine,", "fine,nan"],
    ),
    (
        "text-classifier",
        "a.jsonl",
        "{}",
        ['{"text": "fine", "label": 1}'],
        [
            '{"text": null, "label": 1}',
            '{"text": " ", "label": 0}',
            '{"label": 0}',
            '{"text": "fine"}',
            '{"text": "fine", "label": NaN}',
            '{"text": "fine", "label": null}',
        ],
    ),
    ("text-regressor", "a.tsv", "text\ttext_pair\tlabel\n{}", ["a\tb\t1"], ["a\t\t1", "a\tb\t"]),
    ("seq2seq-lm", "a.csv", "text,target\n{}", ["fine,gut"], ["bad,", ",gut"]),
    (
        "multiple-choice",
        "a.csv",
        "text,choice0,choice1,label\n{}",
        ["t,a,b,1"],
        [",a,b,1", "t,a,b,"],
    ),
    (
        "question-answerer",
        "a.jsonl",
        "{}",
        ['{"question": "who", "context": "me", "answers": []}'],
        [
            '{"question": " ", "context": "me", "answers": []}',
            '{"question": "who", "context": null, "answers": []}',
        ],
    ),
    (
        "token-classifier",
        "a.jsonl",
        "{}",
        ['{"words": ["a"], "labels": ["O"]}'],
        ['{"words": [], "labels": []}', '{"words": null, "labels": ["O"]}'],
    ),
    (
        "constituency-parser",
        "a.jsonl",
        "{}",
        ['{"words": ["a"], "labels": "(S (X a))"}'],
        ['{"words": [], "labels": "(S (X a))"}', '{"words": ["a"]}'],
    ),
    (
        "coreference-resolver",
        "a.jsonl",
        "{}",
        ['{"words": ["a"], "labels": []}'],
        ['{"words": [], "labels": []}'],
    ),
]


@pytest.mark.parametrize(
    ("task", "name", "form", "good", "empty"), EMPTY, ids=[f"{row[0]}-{row[1]}" for row in EMPTY]
)
def test_empty_rows_are_left_out_and_counted(write, task, name, form, good, empty):
    rows = [*good, *empty, *good]
    path = write(name, form.format("\n".join(rows) + "\n"))
    examples = read(path, task, skip_empty=True)
    assert examples.rows.num_empty == len(empty)
    first = 1 if form == "{}" else 2
    kept = [*range(len(good)), *range(len(good) + len(empty), len(rows))]
    assert examples.lines == [first + n for n in kept]
    with pytest.raises(ValueError, match="No row has all that is needed"):
        read(write(name, form.format("\n".join(empty) + "\n")), task, skip_empty=True)


def test_an_error_counts_all_empty_rows(write):
    rows = ["fine,good"] + [",bad", "bad,bad"] * 12
    path = write("a.csv", "text,label\n" + "\n".join(rows) + "\n")
    message = r"a.csv, line 3: 'text' is empty: .* There are 12 such rows, lines 3, 5, .*, 21, …\."
    with pytest.raises(ValueError, match=rf"{message} skip_empty=True leaves them out"):
        read(path, "text-classifier", to_learn=True)
    assert read(path, "text-classifier").rows.num_empty == 0  # to be measured


def test_lines_and_their_targets_are_left_out_together(write):
    texts, targets = write("a.en", "one\n\nthree\nfour\n"), write("a.de", "eins\nzwei\n\nvier\n")
    examples = read(texts, "seq2seq-lm", targets=str(targets), skip_empty=True)
    assert examples.texts == {"text": ["one", "four"]} and examples.labels == ["eins", "vier"]
    assert examples.rows.num_empty == 2


def test_a_column_that_is_not_there_is_answered_with_one_that_is(write):
    path = write("a.csv", "id,description,kind\n1,a saw,tool\n")
    with pytest.raises(
        ValueError, match=r"'descripton', only .*\. Did you mean description\? Name"
    ):
        read(path, "text-classifier", text="descripton", labels="kind")


def test_other_columns_are_kept_if_asked_for(write):
    path = write(
        "a.csv", "id,title,body,label,by\n1,x,fine,good,me\n2,y,,bad,you\n3,z,dull,bad,me\n"
    )
    columns = {"text": "body", "text_pair": "title"}
    examples = read(path, "text-classifier", skip_empty=True, keep_others=True, **columns)
    assert examples.others == [{"id": "1", "by": "me"}, {"id": "3", "by": "me"}]
    part, other = examples.split(0.5)
    assert [part.others[0]["id"], other.others[0]["id"]] == [
        str(part.lines[0] - 1),
        str(other.lines[0] - 1),
    ]
    assert read(path, "text-classifier", **columns).others is None
