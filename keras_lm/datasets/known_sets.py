"""The published data sets whose files can be read, each with a short declaration.

`FieldRows` are tables and JSONL files with one or two texts, or choices, and a label.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable

from keras_lm.datasets.aligned_texts import news_rows, wmt_rows
from keras_lm.datasets.coreference import coreference_rows
from keras_lm.datasets.marked_entities import relation_rows, typing_rows
from keras_lm.datasets.passages import (
    coqa,
    json_data,
    json_lines,
    last_words,
    multirc,
    position,
    race,
    record,
    squad_rows,
)
from keras_lm.datasets.text_lines import (
    chomp,
    decode,
    decoded,
    delimited_rows,
    json_rows,
    table_rows,
    undecoded,
    whole_text,
    wrong_number_of_fields,
)
from keras_lm.datasets.trees import tree_rows
from keras_lm.datasets.word_columns import WordColumns, role_rows, without_language

ROLES = ("id", "text", "text_pair", "labels")
NO_LABEL = ("-", "")  # SNLI's sign for disagreeing annotators; hidden labels


@dataclasses.dataclass(frozen=True)
class FieldRows:
    """How rows of fields become rows of a task.

    A file that begins with `{` is JSONL. One with a tab in its first line is a table separated by
    tabs, in which quotes have no meaning. Any other file is CSV.

    Args:
        id, text, text_pair, labels: str or tuple of str, the possible names of the column; id and
            labels may be missing.
        headless: the columns of a table without a header, in order; with `...` at the end, more
            fields may follow.
        class_names: tuple of str, the possible labels.
        numbered: bool. Whether labels in the file are positions in `class_names`.
        aliases: dict of other names in files → class names.
        make: function that maps the fields of a row to a row, if it has other columns than above.
        skips_damaged: bool. Whether to leave out rows with too few fields, which the published
            files have.
    """

    text: str | tuple
    text_pair: str | tuple = ()
    labels: str | tuple = "label"
    id: str | tuple = ("index", "pairID", "id", "idx")
    headless: tuple = ()
    class_names: tuple = ()
    numbered: bool = False
    aliases: dict = dataclasses.field(default_factory=dict)
    make: Callable | None = None
    skips_damaged: bool = False

    def rows(self, name, stream):
        """Yield (line, row); a row may be None, to be left out, or an error, if it is damaged."""
        lines = undecoded(name, stream)
        first = next(lines, None)
        if first is None:
            return
        lines = itertools.chain([first], lines)
        if first[1].lstrip().startswith(b"{"):
            numbered = json_rows(name, lines)
        else:
            numbered = self._table(name, first[1], decode(name, lines))
        for line, fields in numbered:
            if isinstance(fields, ValueError):
                yield line, None if self.skips_damaged else fields
                continue
            try:
                yield line, self._row(fields)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                yield line, ValueError(f"{name}, line {line}: {_reason(error, fields)}")

    def _table(self, name, first, text):
        """Return an iterator of (line, dict of fields) over a table with or without a header."""
        separator = "\t" if b"\t" in first else ","
        rows = delimited_rows(name, text, separator)
        line, fields = next(rows, (1, []))
        rows = itertools.chain([(line, fields)], rows)
        needed = [_names(self.text), _names(self.text_pair)]
        if all(not names or set(names) & set(fields) for names in needed):
            return table_rows(name, rows, separator)[0]
        if len(fields) < len(self.headless) - (... in self.headless) or not self.headless:
            wanted = " and ".join(" or ".join(map(repr, names)) for names in needed if names)
            raise ValueError(
                f"{name}, line {line}: the header needs {wanted}, but it is "
                f"{', '.join(fields)[:80]!r}."
            )
        return self._headless(name, rows, separator)

    def _headless(self, name, rows, separator):
        names = [column for column in self.headless if column is not ...]
        more = ... in self.headless
        for line, fields in rows:
            if len(fields) < len(names) or (len(fields) > len(names) and not more):
                expected = f"{'at least ' * more}{len(names)} are expected"
                yield line, wrong_number_of_fields(name, line, fields, expected, separator)
            else:
                yield line, dict(zip(names, fields, strict=False))

    def _row(self, fields):
        if self.make:
            row = self.make(fields)
        else:
            row = {}
            for role in ROLES:
                names = _names(getattr(self, role))
                values = [fields[column] for column in names if column in fields]
                if values:
                    row[role] = values[0]
                elif role == "text" or (role == "text_pair" and self.text_pair):
                    raise KeyError(names[0])
        for role in ("text", "text_pair", "choices"):
            texts = row.get(role, "")
            for text in texts if isinstance(texts, list) else [texts]:
                if not isinstance(text, str):
                    raise ValueError(f"the {role} is {json.dumps(text)[:40]}, not a string.")
        if "id" in row:
            row["id"] = str(row["id"])
        if "labels" in row:
            row["labels"] = self._label(row["labels"])
        return row

    def _label(self, label):
        if isinstance(label, bool):
            label = str(label).lower()
        elif isinstance(label, (int, float)):
            if self.class_names and label == -1:  # Hugging Face's sign for a hidden label
                return None
            if self.class_names and label not in range(len(self.class_names)):
                raise ValueError(
                    f"the label {label} is not a position in {', '.join(self.class_names)}."
                )
            return label
        label = str(label or "").strip()
        if label in NO_LABEL:
            return None
        if not self.class_names:
            return float(label)
        label = self.aliases.get(label, label)
        known = [*map(str, range(len(self.class_names)))] if self.numbered else self.class_names
        if label not in known:
            raise ValueError(f"the label {label!r} is not one of {', '.join(known)}.")
        return int(label) if self.numbered else label


def _names(names):
    return (names,) if isinstance(names, str) else names


def _reason(error, fields):
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]!r}, only {', '.join(fields)}."
    if isinstance(error, ValueError):
        return str(error)
    return "fields are missing, or have the wrong type."


CLASSIFIER, CHOICES = "text-classifier", "multiple-choice"
TAGGER, QUESTIONS = "token-classifier", "question-answerer"
# === Declarations ===

WRITER = "seq2seq-lm"
PARSER = "constituency-parser"


@dataclasses.dataclass(frozen=True)
class PublishedSet:
    """A published data set.

    Args:
        task: str, the task for the set, by its name on the command line.
        rows: function of (name, stream of bytes) that returns an iterator of (number, row). A row
            is a dict with `id`, if there is one, the inputs of the task (`text`, `text_pair`;
            `text`, `choices`; `words`, `predicate`; or `question`, `context`), and `labels`, None
            if the label is missing, or `answers`. Instead of a row, None leaves it out, and an
            error says that it is damaged.
        class_names: tuple of str, in the order of the labels if these are numbers.
        unit: str, what the number of a row counts.
        in_folder: bool. Whether the set is published as a folder of files.
        in_pairs: bool. Whether a second file has the labels, in the same order.
        multi_label: bool. Whether the labels of a row are a list of class names.
        chooses_labels: bool. Whether `rows` takes the user's column of labels, too.
    """

    task: str
    rows: Callable
    class_names: tuple = ()
    unit: str = "line"
    in_folder: bool = False
    in_pairs: bool = False
    multi_label: bool = False
    chooses_labels: bool = False


def _classes(**columns):
    rows = FieldRows(**columns)
    return PublishedSet(CLASSIFIER, rows.rows, rows.class_names)


def _choices(text, make, headless=()):
    return PublishedSet(CHOICES, FieldRows(text=text, headless=headless, make=make).rows)


# === Multiple choice ===

# The questions of Gordon et al. 2012, https://aclanthology.org/S12-1052.
COPA_QUESTIONS = {
    "cause": "What was the cause of this?",
    "effect": "What happened as a result?",
}


def _swag(fields):
    choices = [f"{fields['sent2']} {fields[f'ending{n}']}".strip() for n in range(4)]
    row = {"id": fields.get("", ""), "text": fields["sent1"], "choices": choices}
    return row | position(fields.get("label"), 4)


def _codah(fields):
    choices = [fields[f"choice{n}"] for n in range(4)]
    return {"text": fields["prompt"], "choices": choices} | position(fields["label"], 4)


def _commonsense_qa(fields):
    question = fields["question"]
    letters = [choice["label"] for choice in question["choices"]]
    choices = [choice["text"] for choice in question["choices"]]
    row = {"id": fields["id"], "text": question["stem"], "choices": choices}
    return row | position(fields.get("answerKey"), letters)


def _story_cloze(fields):
    text = " ".join(fields[f"InputSentence{n}"] for n in range(1, 5))
    choices = [fields[f"RandomFifthSentenceQuiz{n}"] for n in (1, 2)]
    row = {"id": fields["InputStoryid"], "text": text, "choices": choices}
    return row | position(fields.get("AnswerRightEnding"), ["1", "2"])


def _copa(fields):
    if fields["question"] not in COPA_QUESTIONS:
        raise ValueError(
            f"the question is {fields['question']!r}, not one of {', '.join(COPA_QUESTIONS)}."
        )
    text = f"{fields['premise']} {COPA_QUESTIONS[fields['question']]}"
    choices = [fields["choice1"], fields["choice2"]]
    row = {"id": fields.get("idx", ""), "text": text, "choices": choices}
    return row | position(fields.get("label"), 2)


# === Pairs with a marked word ===


def _wic(fields):
    """Return two sentences, the second with the word to compare appended, in T5's format."""
    pair = f"{fields['sentence2']} word: {fields['word']}"
    row = {"id": fields["idx"], "text": fields["sentence1"], "text_pair": pair}
    return row | {"labels": fields.get("label")}


def _wsc(fields):
    """Return a text with its pronoun in asterisks, as in T5 and GPT-3, and the noun.

    Source: T5, https://arxiv.org/abs/1910.10683, appendix D; GPT-3, https://arxiv.org/abs/2005.14165,
    appendix G.
    """
    text, target = fields["text"], fields["target"]
    word = list(re.finditer(r"\S+", text))[target["span2_index"]]
    pronoun = re.search(re.escape(target["span2_text"].rstrip(".")), word[0], re.IGNORECASE)
    # In some published rows, another pronoun is at this position.
    start, end = (word.start() + place for place in pronoun.span()) if pronoun else word.span()
    row = {"id": fields["idx"], "text": f"{text[:start]}*{text[start:end]}*{text[end:]}"}
    return row | {"text_pair": target["span1_text"], "labels": fields.get("label")}


# === Graded sentences ===

GRADES = ("very negative", "negative", "neutral", "positive", "very positive")
BRACKETS = {"-LRB-": "(", "-RRB-": ")"}


def _sst5_rows(name, stream):
    """Yield the sentences of trees, `(3 (2 It) (4 sings))`, or of lines such as `3 It sings`."""
    for number, line in decoded(name, stream):
        line = chomp(line).strip()
        if not line:
            continue
        is_whole = line.count("(") == line.count(")") or not line.startswith("(")
        match = re.match(r"\(?([0-4]) +(\S.*)", line)
        if not match or not is_whole:
            message = f"{line[:40]!r} is not a tree, such as (3 (2 It) (4 sings)), or is cut off."
            yield number, ValueError(f"{name}, line {number}: {message}")
            continue
        text = match[2]
        if line.startswith("("):
            words = re.findall(r"\([0-4] ([^()\s]+)\)", line)
            text = " ".join(BRACKETS.get(word, word.replace("\\/", "/")) for word in words)
        yield number, {"text": text, "labels": int(match[1])}


def _squad_rows(name, stream):
    """Yield (number, question) from a file, which is a single JSON object."""
    yield from enumerate(squad_rows(whole_text(name, stream), name), start=1)


# === The sets ===

ENTAILMENT = ("entailment", "neutral", "contradiction")
TWO_WAYS = ("entailment", "not_entailment")
YES_OR_NO = ("false", "true")
PREMISES = {
    "text": ("sentence1", "premise", "Premise"),
    "text_pair": ("sentence2", "hypothesis", "Hypothesis"),
    "labels": ("gold_label", "label", "Label"),
}
SENTENCE = {"text": "sentence", "numbered": True}
PAIR = ("index", "sentence1", "sentence2", "label")

_RELATIONS = PublishedSet(CLASSIFIER, relation_rows, unit="example")
_TYPING = PublishedSet(CLASSIFIER, typing_rows, unit="example", multi_label=True)

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
            headless=("genre", "file", "year", "number", "score", "sentence1", "sentence2", ...),
        ).rows,
    ),
    "mnli": _classes(**PREMISES, class_names=ENTAILMENT),
    "qnli": _classes(text="question", text_pair="sentence", class_names=TWO_WAYS),
    "rte": _classes(**PREMISES, headless=PAIR, class_names=TWO_WAYS),
    "wnli": _classes(
        **PREMISES, headless=PAIR, class_names=("not_entailment", "entailment"), numbered=True
    ),
    "ax": _classes(**PREMISES, class_names=ENTAILMENT),
    # SuperGLUE, https://arxiv.org/abs/1905.00537, except RTE, which is the same as in GLUE
    "boolq": _classes(text="question", text_pair="passage", class_names=YES_OR_NO),
    "cb": _classes(**PREMISES, class_names=("entailment", "contradiction", "neutral")),
    "copa": _choices("premise", _copa),
    "multirc": PublishedSet(CLASSIFIER, json_lines(multirc), YES_OR_NO, unit="answer"),
    "record": PublishedSet(QUESTIONS, json_lines(record), unit="question"),
    "wic": _classes(text="sentence1", make=_wic, class_names=YES_OR_NO),
    "wsc": _classes(text="text", make=_wsc, class_names=YES_OR_NO),
    "ax-b": _classes(**PREMISES, class_names=TWO_WAYS),
    "ax-g": _classes(**PREMISES, class_names=TWO_WAYS),
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
    "race": PublishedSet(CHOICES, json_lines(race), unit="question", in_folder=True),
    "storycloze": _choices("InputSentence1", _story_cloze),
    # Words with a label each
    "conll": PublishedSet(TAGGER, WordColumns().rows, chooses_labels=True),
    "conll2003": PublishedSet(TAGGER, WordColumns(fields=4, tags=True).rows),
    "conll2003-pos": PublishedSet(TAGGER, WordColumns(1, fields=4).rows),
    "conll2003-chunk": PublishedSet(TAGGER, WordColumns(2, fields=4, tags=True).rows),
    "conll2000": PublishedSet(TAGGER, WordColumns(fields=3, tags=True).rows),
    "conll2000-pos": PublishedSet(TAGGER, WordColumns(1, fields=3).rows),
    "wikiann": PublishedSet(TAGGER, WordColumns(fields=2, clean=without_language).rows),
    "ontonotes-srl": PublishedSet(TAGGER, role_rows, unit="predicate"),
    # Sentences with a tree each, https://aclanthology.org/J93-2004
    "penn": PublishedSet(PARSER, tree_rows, in_folder=True),
    "squad": PublishedSet(QUESTIONS, _squad_rows, unit="question"),
    "coqa": PublishedSet(QUESTIONS, json_data(coqa), unit="question"),
    # Texts with entities between marks: FewRel and TACRED, https://aclanthology.org/D18-1514 and
    # D17-1004, FIGER and Open Entity, https://doi.org/10.1609/aaai.v26i1.8122 and
    # https://aclanthology.org/P18-1009; and your own rows
    **dict.fromkeys(("fewrel", "tacred", "relations"), _RELATIONS),
    **dict.fromkeys(("figer", "open-entity", "typing"), _TYPING),
    # Documents with clusters of mentions
    "ontonotes-coref": PublishedSet("coreference-resolver", coreference_rows, unit="document"),
    # Texts to write, https://arxiv.org/abs/1704.04368 and https://www.statmt.org
    "cnn-dailymail": PublishedSet(WRITER, news_rows, unit="text", in_folder=True, in_pairs=True),
    "wmt": PublishedSet(WRITER, wmt_rows, in_pairs=True),
    "lambada": PublishedSet("causal-lm", last_words),  # https://arxiv.org/abs/1606.06031
}
