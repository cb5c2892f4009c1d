"""Questions about contexts, in SQuAD's file format."""

from typing import Any

from keras_lm.datasets.text_lines import json_value
from keras_lm.utils import files, input_files
from keras_lm.utils.argument_types import PathLike

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
        found = json_value(content)
    except ValueError as error:
        remedy = " Rows, with one object on each line, are .jsonl." if "Extra" in str(error) else ""
        raise ValueError(f"{name}: {error}.{remedy}") from error
    if isinstance(found, list):
        raise ValueError(
            f"{name}: a list, and {EXPECTED}. Save rows as .jsonl, with one object on each line."
        )
    reader = _Reader(name)
    for i, article in enumerate(reader.get(found, "data", list, "the file")):
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
