"""Passages with questions: JSON objects, each of which becomes several rows.

SQuAD's format is one of them.
"""

import collections
import itertools
import json
import re
from typing import Any

from keras_lm.datasets.text_lines import decode, json_rows, json_value, undecoded, whole_text
from keras_lm.utils import files, input_files
from keras_lm.utils.argument_types import PathLike

HISTORY = 2  # turns of a conversation before a question
WORD = re.compile(r"\w+")


def json_lines(questions):
    """Return a function of (name, stream) that yields (number, row); each line is a passage.

    `questions` is a function that maps a passage, a dict, to its rows.
    """

    def rows(name, stream):
        lines = json_rows(name, undecoded(name, stream))
        return _flat(name, ((f"line {line}", passage) for line, passage in lines), questions)

    return rows


def json_data(questions):
    """Like `json_lines`, but a file is one object whose `data` is the list of passages."""

    def rows(name, stream):
        content = whole_text(name, stream)
        try:
            data = json_value(content)
        except ValueError as error:
            raise ValueError(f"{name}: {error}.") from error
        passages = data.get("data") if isinstance(data, dict) else None
        if not isinstance(passages, list):
            raise ValueError(f"{name}: the file must be {{'data': [{{…}}]}}, a list of passages.")
        return _flat(
            name, ((f"data[{n}]", passage) for n, passage in enumerate(passages)), questions
        )

    return rows


def position(label, known):
    """Return `{"labels": position of a label in known}`, or {} if there is no label."""
    if label in (None, ""):
        return {}
    known = [*map(str, range(known))] if isinstance(known, int) else known
    if str(label) not in known:
        raise ValueError(f"the label {str(label)!r} is not one of {', '.join(known)}.")
    return {"labels": known.index(str(label))}


def _flat(name, passages, questions):
    number = 0
    for place, passage in passages:
        if isinstance(passage, Exception):
            rows = [passage]
        else:
            try:
                rows = list(questions(passage))
            except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
                reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
                rows = [ValueError(f"{name}, {place}: {reason}")]
        for row in rows:
            number += 1
            yield number, row


def _text(value, what):
    if not isinstance(value, str):
        raise ValueError(f"the {what} is {json.dumps(value)[:40]}, not a string.")
    return value


def last_words(name, stream):
    """Yield the passages of LAMBADA, lines or `text` in JSONL; the last word is the label."""
    lines = undecoded(name, stream)
    first = next(lines, (1, b""))
    lines = itertools.chain([first], lines)
    if first[1].lstrip().startswith(b"{"):
        rows = json_rows(name, lines)
    else:
        plain = decode(name, lines)
        rows = ((number, {"text": line}) for number, line in plain if line.strip())
    for number, row in rows:
        if not isinstance(row, Exception):
            text, _, word = str(row.get("text", "")).rstrip().rpartition(" ")
            row = {"text": text.rstrip(), "labels": word}
            if not row["text"]:
                row = ValueError(f"{name}, line {number}: `text` needs two words or more.")
        yield number, row


# === The questions of each set ===


def race(passage):
    """Yield the questions of a passage of RACE.

    A choice is the question followed by an option, or with the option in its blank.
    """
    answers = passage.get("answers")
    questions = zip(passage["questions"], passage["options"], strict=True)
    for n, (question, options) in enumerate(questions):
        choices = [
            question.replace("_", option) if "_" in question else f"{question} {option}"
            for option in options
        ]
        row = {"id": f"{passage['id']}-{n}", "text": passage["article"], "choices": choices}
        letters = [chr(ord("A") + i) for i in range(len(options))]
        yield row | position(answers and answers[n], letters)


def multirc(row):
    """Yield a pair for each answer of MultiRC: the passage, and the question with the answer."""
    passage = row["passage"]
    text = _text(passage["text"], "passage")
    for question in passage["questions"]:
        for answer in question["answers"]:
            id = f"{row['idx']}-{question['idx']}-{answer['idx']}"
            pair = f"{_text(question['question'], 'question')} {_text(answer['text'], 'answer')}"
            label = position(answer.get("label"), 2)
            yield {"id": id, "text": text, "text_pair": pair} | {"labels": None} | label


def record(row):
    """Yield the queries of ReCoRD; the answer is the part of the passage for `@placeholder`."""
    text = _text(row["passage"]["text"], "passage")
    for query in row["qas"]:
        answers = [
            {"text": _text(answer["text"], "answer"), "start": int(answer["start"])}
            for answer in query.get("answers") or []
        ]
        id = f"{row['idx']}-{query['idx']}"
        question = _text(query["query"], "query")
        yield {"id": id, "question": question, "context": text, "answers": answers}


def coqa(conversation):
    """Yield the questions of a conversation of CoQA, each with the two turns before it.

    The answer is the part of the rationale that is most similar to the free-form answer (by F1 of
    words). If they have no word in common, as for yes and no, it is the whole rationale. Questions
    that the story does not answer have no answer.

    Source: Reddy et al. 2019, https://arxiv.org/abs/1808.07042, for DrQA.
    """
    story = _text(conversation["story"], "story")
    history = []
    turns = zip(conversation["questions"], conversation["answers"], strict=True)
    for question, answer in turns:
        if question["turn_id"] != answer["turn_id"]:
            raise ValueError(f"turn {question['turn_id']} has the answer of another turn.")
        asked, said = (_text(turn["input_text"], "input_text") for turn in (question, answer))
        yield {
            "id": f"{conversation['id']}-{question['turn_id']}",
            "question": " ".join([*history[-2 * HISTORY :], asked]),
            "context": story,
            "answers": _spans(story, answer["span_start"], answer["span_end"], said),
        }
        history += [asked, said]


def _spans(story, start, end, said):
    """Return the part of the rationale, `story[start:end]`, that is most similar to `said`."""
    if start < 0:
        return []
    if not start < end <= len(story):
        raise ValueError(
            f"a rationale goes from {start} to {end}, but the story has {len(story)} characters."
        )
    words = list(WORD.finditer(story, start, end))
    wanted = collections.Counter(word.lower() for word in WORD.findall(said))
    shared = [n for n, word in enumerate(words) if word[0].lower() in wanted]

    def f1(span):
        counts = collections.Counter(word[0].lower() for word in words[span[0] : span[1] + 1])
        return 2 * (counts & wanted).total() / (counts.total() + wanted.total())

    # The best part begins and ends with a common word.
    spans = [(first, last) for first in shared for last in shared if first <= last]
    if spans:
        first, last = max(spans, key=f1)
        start, end = words[first].start(), words[last].end()
    return [{"text": story[start:end], "start": start}]


# === SQuAD ===

EXPECTED = "a SQuAD file has {'data': [{'paragraphs': [{'context': …, 'qas': [{'question': …}]}]}]}"


def read_squad(path: PathLike) -> tuple[dict[str, list[str]], list[Any], list[str]]:
    """Return the questions in a file of SQuAD 1.1's or 2.0's format, in the form that `fit` takes.

    Args:
        path: str or path of a JSON file.

    Returns:
        `(x, labels, ids)`: a dict of `question` and `context`, lists of strings; a list of the
        answers `{"text": …, "start": …}` for each question, empty if it has none; and the list of
        ids, strings.

    Raises:
        ValueError: if the file has another format, or is cut off; names the file and the place.

    Example:

        x, labels, _ = keras_lm.data.read_squad("train-v2.0.json")
        task.fit(x, labels)

    Source: SQuAD, https://arxiv.org/abs/1606.05250; SQuAD 2.0, https://arxiv.org/abs/1806.03822.
    """
    with files.as_path(path).open("rb") as file:
        content = input_files.whole(file, str(path))
    input_files.check_start(path, content)
    try:
        content = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error.reason}).") from error
    rows = list(squad_rows(content, str(path)))
    x = {name: [row[name] for row in rows] for name in ("question", "context")}
    return x, [row["answers"] for row in rows], [row["id"] for row in rows]


def squad_rows(content, name):
    """Yield the questions of a file's content, a string: dicts of id, question, context, answers.

    Raises:
        ValueError: see `read_squad`; `name` is the file's name for messages.
    """
    if not content.strip():
        raise ValueError(f"{name} is empty: it has no rows.")
    try:
        data = json_value(content)
    except ValueError as error:
        remedy = " Rows, with one object on each line, are .jsonl." if "Extra" in str(error) else ""
        raise ValueError(f"{name}: {error}.{remedy}") from error
    if isinstance(data, list):
        raise ValueError(
            f"{name}: a list, and {EXPECTED}. Save rows as .jsonl, with one object on each line."
        )
    reader = _Reader(name)
    for i, article in enumerate(reader.get(data, "data", list, "the file")):
        at = f"data[{i}]"
        for j, paragraph in enumerate(reader.get(article, "paragraphs", list, at)):
            at = f"data[{i}].paragraphs[{j}]"
            context = reader.get(paragraph, "context", str, at)
            for k, question in enumerate(reader.get(paragraph, "qas", list, at)):
                yield reader.row(question, context, f"{at}.qas[{k}]")


class _Reader:
    def __init__(self, name):
        self.name = name

    def get(self, parent, key, kind, at):
        value = parent.get(key) if isinstance(parent, dict) else None
        if not isinstance(value, kind):
            raise ValueError(
                f"{self.name}, {at}: {key!r} is {type(value).__name__}, not {kind.__name__}: "
                f"{EXPECTED}."
            )
        return value

    def row(self, question, context, at):
        text = self.get(question, "question", str, at)
        answers = []
        # Hidden test sets have no answers. The plausible answers of unanswerable questions are
        # ignored.
        given = question.get("answers")
        given = self.get(question, "answers", list, at) if given else []
        given = [] if question.get("is_impossible") else given
        for n, answer in enumerate(given):
            place = f"{at}.answers[{n}]"
            start = self.get(answer, "answer_start", int, place)
            answers.append({"text": self.get(answer, "text", str, place), "start": start})
        id = str(question.get("id", ""))
        return {"id": id, "question": text, "context": context, "answers": answers}
