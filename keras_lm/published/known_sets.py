"""The published data sets whose files can be read: each a short declaration."""

import dataclasses
import re
from collections.abc import Callable

from keras_lm.published.field_rows import FieldRows
from keras_lm.published.text_lines import chomp, decoded, json_rows, undecoded
from keras_lm.published.word_columns import WordColumns, role_rows, without_language
from keras_lm.squad_files import squad_rows

CLASSIFIER, CHOICES = "text-classifier", "multiple-choice"
TAGGER, QUESTIONS = "token-classifier", "question-answerer"


@dataclasses.dataclass(frozen=True)
class PublishedSet:
    """A published data set.

    Args:
        task: str, the task that learns it, as the command line names it.
        rows: function from (name, stream of bytes) to an iterator of (number, dict): `id`, if there
            is one, and what the task takes: `text`, `text_pair`; `text`, `choices`; `words`,
            `predicate`; `question`, `context`; and `labels` or `answers`. A row may be None, to be
            left out, and a label None, where there is none; an error may stand in its place.
        class_names: tuple of str, in the order of the labels if these are numbers.
        unit: str, what the numbers of rows count.
    """

    task: str
    rows: Callable
    class_names: tuple = ()
    unit: str = "line"


def _classes(**columns):
    rows = FieldRows(**columns)
    return PublishedSet(CLASSIFIER, rows.rows, rows.class_names)


def _choices(text, make, headless=()):
    return PublishedSet(CHOICES, FieldRows(text=text, headless=headless, make=make).rows)


# === Multiple choice ===


def _swag(fields):
    choices = [f"{fields['sent2']} {fields[f'ending{n}']}".strip() for n in range(4)]
    row = {"id": fields.get("", ""), "text": fields["sent1"], "choices": choices}
    return row | _position(fields.get("label"), 4)


def _codah(fields):
    choices = [fields[f"choice{n}"] for n in range(4)]
    return {"text": fields["prompt"], "choices": choices} | _position(fields["label"], 4)


def _commonsense_qa(fields):
    question = fields["question"]
    letters = [choice["label"] for choice in question["choices"]]
    choices = [choice["text"] for choice in question["choices"]]
    row = {"id": fields["id"], "text": question["stem"], "choices": choices}
    return row | _position(fields.get("answerKey"), letters)


def _story_cloze(fields):
    text = " ".join(fields[f"InputSentence{n}"] for n in range(1, 5))
    choices = [fields[f"RandomFifthSentenceQuiz{n}"] for n in (1, 2)]
    row = {"id": fields["InputStoryid"], "text": text, "choices": choices}
    return row | _position(fields.get("AnswerRightEnding"), ["1", "2"])


def _position(label, known):
    """Return `labels`, the position of a label among those known, or nothing if there is none."""
    if label in (None, ""):
        return {}
    known = [*map(str, range(known))] if isinstance(known, int) else known
    if str(label) not in known:
        raise ValueError(f"the label {str(label)!r} is none of {', '.join(known)}.")
    return {"labels": known.index(str(label))}


def _race_rows(name, stream):
    """Yield the questions of RACE's passages, a JSON object each.

    A choice is the question and an option, or the question with the option in its blank.
    """
    number = 0
    for line, passage in json_rows(name, undecoded(name, stream)):
        try:
            if isinstance(passage, Exception):
                raise passage
            questions = list(_race_questions(passage))
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            number += 1
            reason = reason.removeprefix(f"{name}, line {line}: ")
            yield number, ValueError(f"{name}, line {line}: {reason}")
            continue
        for row in questions:
            number += 1
            yield number, row


def _race_questions(passage):
    answers = passage.get("answers")
    questions = zip(passage["questions"], passage["options"], strict=True)
    for n, (question, options) in enumerate(questions):
        choices = [
            question.replace("_", option) if "_" in question else f"{question} {option}"
            for option in options
        ]
        row = {"id": f"{passage['id']}-{n}", "text": passage["article"], "choices": choices}
        letters = [chr(ord("A") + i) for i in range(len(options))]
        yield row | _position(answers and answers[n], letters)


# === Sentences with a grade ===

GRADES = ("very negative", "negative", "neutral", "positive", "very positive")
BRACKETS = {"-LRB-": "(", "-RRB-": ")"}


def _sst5_rows(name, stream):
    """Yield the sentences of trees, `(3 (2 It) (4 sings))`, or of lines such as `3 It sings`."""
    for number, line in decoded(name, stream):
        line = chomp(line).strip()
        if not line:
            continue
        is_whole = line.count("(") == line.count(")") or not line.startswith("(")
        found = re.match(r"\(?([0-4]) +(\S.*)", line)
        if not found or not is_whole:
            message = f"{line[:40]!r} is no tree, such as (3 (2 It) (4 sings)), or is cut off."
            yield number, ValueError(f"{name}, line {number}: {message}")
            continue
        text = found[2]
        if line.startswith("("):
            words = re.findall(r"\([0-4] ([^()\s]+)\)", line)
            text = " ".join(BRACKETS.get(word, word.replace("\\/", "/")) for word in words)
        yield number, {"text": text, "labels": int(found[1])}


def _squad_rows(name, stream):
    """Yield (number, question); the file is one JSON object, which is read whole."""
    content = "".join(line for _, line in decoded(name, stream))
    yield from enumerate(squad_rows(content, name), start=1)


# === All of them ===

ENTAILMENT = ("entailment", "neutral", "contradiction")
TWO_WAYS = ("entailment", "not_entailment")
PREMISES = {
    "text": ("sentence1", "premise", "Premise"),
    "text_pair": ("sentence2", "hypothesis", "Hypothesis"),
    "labels": ("gold_label", "label", "Label"),
}
SENTENCE = {"text": "sentence", "numbered": True}
PAIR = ("index", "sentence1", "sentence2", "label")

PUBLISHED = {
    # GLUE, https://arxiv.org/abs/1804.07461
    "cola": _classes(
        **SENTENCE,
        headless=("source", "label", "star", "sentence"),
        class_names=("unacceptable", "acceptable"),
    ),
    "sst2": _classes(**SENTENCE, class_names=("negative", "positive")),
    "mrpc": _classes(
        text="#1 String",
        text_pair="#2 String",
        labels="Quality",
        class_names=("not_equivalent", "equivalent"),
        numbered=True,
    ),
    "qqp": _classes(
        text="question1",
        text_pair="question2",
        labels="is_duplicate",
        class_names=("not_duplicate", "duplicate"),
        numbered=True,
        skips_damaged=True,
    ),
    "stsb": PublishedSet(
        "text-regressor",
        FieldRows(
            text="sentence1",
            text_pair="sentence2",
            labels="score",
            id="index",
            headless=("genre", "file", "year", "number", "score", "sentence1", "sentence2"),
        ).rows,
    ),
    "mnli": _classes(**PREMISES, class_names=ENTAILMENT),
    "qnli": _classes(text="question", text_pair="sentence", class_names=TWO_WAYS),
    "rte": _classes(**PREMISES, headless=PAIR, class_names=TWO_WAYS),
    "wnli": _classes(
        **PREMISES, headless=PAIR, class_names=("not_entailment", "entailment"), numbered=True
    ),
    "ax": _classes(**PREMISES, class_names=ENTAILMENT),
    # https://arxiv.org/abs/1508.05326 and https://ojs.aaai.org/index.php/AAAI/article/view/12022
    "snli": _classes(**PREMISES, class_names=ENTAILMENT),
    "scitail": _classes(
        **PREMISES,
        headless=("sentence1", "sentence2", "gold_label"),
        class_names=("entailment", "neutral"),
        aliases={"entails": "entailment"},
    ),
    "sst5": PublishedSet(CLASSIFIER, _sst5_rows, GRADES),  # https://aclanthology.org/D13-1170
    # SWAG, CODAH, CommonsenseQA, RACE, Story Cloze: https://arxiv.org/abs/1808.05326, 1904.04365,
    # 1811.00937, 1704.04683, 1604.01696
    "swag": _choices("sent1", _swag),
    "codah": _choices(
        "prompt",
        _codah,
        ("category", "prompt", "choice0", "choice1", "choice2", "choice3", "label"),
    ),
    "commonsenseqa": _choices((), _commonsense_qa),
    "race": PublishedSet(CHOICES, _race_rows, unit="question"),
    "storycloze": _choices("InputSentence1", _story_cloze),
    # Words with a label each
    "conll": PublishedSet(TAGGER, WordColumns().rows),
    "conll2003": PublishedSet(TAGGER, WordColumns(fields=4, tags=True).rows),
    "conll2003-pos": PublishedSet(TAGGER, WordColumns(1, fields=4).rows),
    "conll2003-chunk": PublishedSet(TAGGER, WordColumns(2, fields=4, tags=True).rows),
    "conll2000": PublishedSet(TAGGER, WordColumns(fields=3, tags=True).rows),
    "conll2000-pos": PublishedSet(TAGGER, WordColumns(1, fields=3).rows),
    "wikiann": PublishedSet(TAGGER, WordColumns(fields=2, clean=without_language).rows),
    "ontonotes-srl": PublishedSet(TAGGER, role_rows, unit="predicate"),
    "squad": PublishedSet(QUESTIONS, _squad_rows, unit="question"),
}
