"""Files with one word per line and an empty line after each sentence.

They have from two columns to more than ten: the number of the word, the word, its lemma, its part
of speech, several layers of labels. A header, the names of CoNLL-U Plus, numbers that count, and
what tags look like show which column is which.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable

from keras_lm.datasets import tag_schemes
from keras_lm.datasets.tag_schemes import convert_tags
from keras_lm.datasets.text_lines import chomp, decoded
from keras_lm.utils.user_arguments import warn

TAG = re.compile(r"[BIELSUMW][-_].+")  # of a word in an entity, in any scheme
SPAN_TAG = re.compile(tag_schemes.TAG)  # of a scheme that is read
OTHER_TAG = re.compile(r"[BIMELSUW][:.].+|[bimelsuw][-_:.].+|.+[-_][BIMELSUW]")  # of others
OUTSIDE = ("O", "_", "-")
WITHOUT_CLASS = set("BIELSUMO")  # tags of files with a single class
# The classes of chunks, which stand beside entities: https://aclanthology.org/W00-0726.
CHUNKS = {
    *("NP", "VP", "PP", "ADJP", "ADVP", "SBAR", "PRT", "CONJP", "INTJ", "LST", "UCP"),
    *("NC", "VC", "PC"),  # of CoNLL-2003's German files
}
# A URL, key=value, a word with its tag, or columns with spaces between them, in a file with tabs.
NOT_CLASS = re.compile(
    r"(https?|ftp)://|www\.|[\w.]+=.|\S+/([Oo]|[BIMELSUW]-\S+)$|\S+ .*[BIMELSUW]-\S+$"
)
ADDRESS = re.compile(r"(https?|ftp)://\S+")
COMMENT = re.compile(r"#+\s*[\w.:-]+\s*=")
NUMBER = re.compile(r"(\d+)([-.]\d+)?")  # of CoNLL-U: 1, 1-2 for several words, 1.1 for none
UNIVERSAL = ["id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"]
MISC = len(UNIVERSAL) - 1
GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*(.+)")
WORD_NAMES = {"word", "words", "token", "tokens", "form"}
LABEL_NAMES = {
    *("ner", "ner_tag", "ner_tags", "ne", "entity", "entities", "label", "labels", "tag", "tags"),
    *("bio", "iob"),
}
SENTENCE_NAMES = {"sentence", "sentence_id", "sent_id", "sentence_number", "sentence_idx", "sentid"}
OTHER_NAMES = {
    *SENTENCE_NAMES,
    *("index", "idx", "text", "pos", "pos_tag", "pos_tags", "postag"),
    *("chunk", "chunk_tag", "chunk_tags", "chunks", "start", "end", *UNIVERSAL),
}
# CoNLL-2012: document, part, number, word, part of speech, …, entity, one for each predicate, …
OF_2012 = {"number": 2, "words": 3, "labels": 10}
WIDE = 12  # columns, of which CoNLL-2009 and 2012 have one for each predicate
LANGUAGE = re.compile(r"[a-z-]{2,12}:(?=.)")  # before each word of WikiANN
NUMBERED = re.compile(r"(.)(\d+)")  # a character, and which one of its word it is, of Weibo NER


# === Which columns hold the words and their labels ===


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the columns of a file of words hold; columns count from 0.

    Args:
        words, labels: int, columns.
        width: int, the number of columns; None if it differs between sentences.
        number: int, the column that counts the words of a sentence, or None.
        key: str; if given, labels are the values of this key, in `NER=B-PER|SpaceAfter=No`.
        brackets: bool. Whether labels are brackets around words, `(PER*`, `*)`.
        header: list of str, the line that names the columns, or None.
        language: str, what each word begins with, in WikiANN.
        numbered: bool. Whether words are characters with a number each, `科0`, as in Weibo NER.
        sentence: int, the column that changes where a sentence begins, or None.
        seen: set of str, labels from the beginning of the file.
    """

    words: int
    labels: int
    width: int | None
    number: int | None = None
    key: str | None = None
    brackets: bool = False
    header: list | None = None
    language: str = ""
    numbered: bool = False
    sentence: int | None = None
    seen: frozenset = frozenset()

    def is_word(self, fields, line, place=0):
        """Return whether a line has a word, at this place in a sentence, and is no comment."""
        if fields == self.header:
            return False
        if self.number is not None:
            number = NUMBER.fullmatch(fields[self.number]) if len(fields) > self.number else None
            return not (number and number[2]) and not is_aside(line)
        if not is_aside(line):
            return True
        if COMMENT.match(line) or len(fields) != self.width:
            return False
        rest = {*fields} - {fields[self.words]}
        return bool(place or rest & self.seen or any(map(_is_tag, rest)))

    def sentence_of(self, row):
        """Return what a line, (number, fields, line), says about its sentence, None if nothing."""
        fields = row[1]
        return None if self.sentence is None else fields[self.sentence : self.sentence + 1]

    def word(self, fields):
        """Return the word of a line."""
        value = fields[self.words].removeprefix(self.language)
        return value[:1] if self.numbered else value

    def label(self, fields):
        """Return the label of a word."""
        value = fields[self.labels]
        return _pairs(value).get(self.key, "O") if self.key else value

    def __str__(self):
        of = f" of {self.width}" if self.width else ""
        key = f", where they are {self.key}=…" if self.key else ""
        return (
            f"words from column {self.words + 1} and labels from column {self.labels + 1}{of}{key}"
        )


def is_aside(line):
    """Return whether a line may be a comment, or the address of a text's source."""
    return line.startswith("#") or bool(ADDRESS.match(line))


def is_header(fields):
    """Return whether fields are names of columns: at least of words and of labels."""
    names = {field.lower() for field in fields}
    known = WORD_NAMES | LABEL_NAMES | OTHER_NAMES
    return bool(names & WORD_NAMES) and len(names & known) == len(fields) > 1


def find_header(rows):
    """Return the first of rows if it names the columns, or is the only one that has no tag."""
    first, *rest = rows or [[]]
    rest = [fields for fields in rest if len(fields) == len(first)]
    columns = [*zip(first, *rest, strict=True)]
    is_title = any(
        _are_tags(tags) and not _are_tags((title, *tags)) and title not in map(_class, tags)
        for title, *tags in columns
    )
    return first if is_header(first) or is_title else None


def fixed_layout(blocks, width, labels):
    """Return the `Layout` of a published set whose columns are known."""
    rows = [fields for block in blocks for _, fields, line in block if not is_aside(line)]
    header = find_header(rows)
    rows = [fields for fields in rows if fields != header]
    seen = frozenset(fields[labels] for fields in rows if len(fields) == width)
    return Layout(0, labels % width, width, header=header, seen=seen)


def infer_layout(name, blocks, given=None):
    """Return the `Layout` of a file, and warn of a choice that is not the usual one.

    Args:
        name: str, the file's name for messages.
        blocks: list of sentences, lists of (line number, fields, line), with comments.
        given: str, the user's column of labels: its name, or its number from 1.

    Raises:
        ValueError: if no column looks like labels, or the one that is `given` is missing.
    """
    rows = [[fields for _, fields, line in block if not is_aside(line)] for block in blocks]
    header = find_header([fields for block in rows for fields in block])
    rows = [[fields for fields in block if fields != header] for block in rows]
    rows = [block for block in rows if block]
    if not rows:
        return Layout(0, -1, None, header=header)
    ((width, _),) = collections.Counter(
        len(fields) for block in rows for fields in block
    ).most_common(1)
    number = _number_column(rows, width)
    if number is not None and width >= WIDE:
        width = min(len(fields) for block in rows for fields in block)
    whole = [fields for block in rows for fields in block if len(fields) >= width]
    if number is not None:
        whole = [fields for fields in whole if not NUMBER.fullmatch(fields[number])[2]] or whole
    columns = [*zip(*(fields[:width] for fields in whole), strict=True)]
    names = _column_names(blocks, header, number, width)
    tags = [i for i, column in enumerate(columns) if _are_tags(column)]
    words = _word_column(names, number, tags, columns)
    layout = Layout(
        words,
        -1,
        None if width >= WIDE and number is not None else width,
        number,
        header=header,
        sentence=next(
            (i for i in range(len(columns)) if _counts_sentences(i, names, columns)), None
        ),
    )
    others = [i for i in range(width) if i not in (words, number)]
    if given is not None:
        chosen, rest = _given_columns(name, given, names, others, columns), []
    else:
        chosen, rest = _choose_columns(name, columns, names, others, tags, layout)
    layout = dataclasses.replace(layout, **chosen)
    has_labels = layout.labels < len(columns) and not layout.brackets
    seen = frozenset(map(layout.label, whole)) if has_labels else frozenset()
    layout = dataclasses.replace(
        layout, seen=seen, language=_language(columns[words]), numbered=_numbered(columns[words])
    )
    _say_layout(name, layout, rest, given)
    _say_scheme(name, layout.seen)
    return layout


def _number_column(rows, width):
    """Return the column that counts the words of each sentence from 0 or 1, or None."""
    for column in (0, OF_2012["number"]):
        counted = [
            [NUMBER.fullmatch(fields[column]) for fields in block if len(fields) > column]
            for block in rows
        ]
        if width < 3 or not all(all(block) for block in counted) or (column and width < WIDE):
            continue
        numbers = [[int(match[1]) for match in block if not match[2]] for block in counted]
        counts = all(n == block[0] + i for block in numbers for i, n in enumerate(block))
        if counts and numbers[0][:1] in ([0], [1]) and (column or max(map(len, numbers)) > 1):
            return column
    return None


def _column_names(blocks, header, number, width):
    """Return the names of the columns, in lower case; an empty list if they are unknown."""
    if header:
        return [field.lower() for field in header]
    for _, _, line in (row for block in blocks[:1] for row in block):
        if match := GLOBAL_COLUMNS.match(line):
            return [part.lower() for part in match[1].split()]
    return UNIVERSAL if number == 0 and width >= len(UNIVERSAL) and width < WIDE else []


def _counts_sentences(column, names, columns):
    name = names[column] if column < len(names) else ""
    return name in SENTENCE_NAMES and all(columns[column])


def _word_column(names, number, tags, columns):
    known = [i for i, name in enumerate(names) if name in WORD_NAMES and i < len(columns)]
    if known:
        return known[0]
    if number == OF_2012["number"]:
        return OF_2012["words"]
    first = 0 if number is None else 1
    others = [i for i in range(first, len(columns)) if i not in tags and {*columns[i]} != {"O"}]
    letters = [i for i in others if not all(map(str.isdecimal, columns[i]))]  # not offsets
    return next(iter(letters or others), first)


def _given_columns(name, given, names, others, columns):
    """Return what of a `Layout` is chosen by the user's name or number of a column."""
    key = given.lower()
    if key in names:
        return {"labels": names.index(key)}
    if given.isdecimal() and 0 < int(given) <= len(columns):
        return {"labels": int(given) - 1}
    for column in others:
        if any(given in _pairs(value) for value in columns[column]):
            return {"labels": column, "key": given}
    known = f", or one of {', '.join(names)}" if names else ""
    raise ValueError(
        f"{name} has no column {given!r} of labels: pass its number, from 1 to {len(columns)}"
        f"{known}."
    )


def _choose_columns(name, columns, names, others, tags, layout):
    """Return what of a `Layout` is inferred, and other columns that look like labels."""
    if layout.number == OF_2012["number"] and len(columns) > OF_2012["labels"]:
        return {"labels": OF_2012["labels"], "brackets": True}, []
    tags = [i for i in tags if i in others]
    entities = [i for i in tags if not {_class(tag) for tag in columns[i]} <= CHUNKS | {""}]
    named = [i for i, column_name in enumerate(names) if column_name in LABEL_NAMES and i in others]
    plain = [i for i in others if "O" in columns[i]]
    key = _key(columns, others)
    if len(named) == 1 and not tags:
        return {"labels": named[0]}, []
    if entities:
        return {"labels": entities[0]}, entities[1:]
    if key is not None:
        return key, []
    if plain or tags:
        labels = [i for i in plain if i not in tags] or tags
        chosen = -1 if layout.number is None else 0  # of layers of entities, the first
        return {"labels": labels.pop(chosen)}, labels
    if not others:  # no line has a label, which the reader says
        return {"labels": len(columns)}, []
    is_parsed = layout.number is not None and len(columns) >= len(UNIVERSAL)
    if is_parsed or {*columns[others[-1]]} <= {"_", "-", "*"}:
        known = f", such as {names[3]!r}" if names[3:] else ""
        raise ValueError(
            f"{name}: none of its {len(columns)} columns looks like labels of words, such as B-PER "
            f"and O. Pass the number of one, from 1, or its name as labels=…{known}."
        )
    return {"labels": others[-1]}, []


def _key(columns, others):
    """Return the column and the key whose values are tags, in `NER=B-PER|SpaceAfter=No`."""
    for column in {MISC, len(columns) - 1} & {*others}:
        values_of = collections.defaultdict(set)
        for value in columns[column]:
            for key, part in _pairs(value).items():
                values_of[key].add(part)
        for key, values in values_of.items():
            if _are_tags(values) or (
                key.lower() in LABEL_NAMES and not any("(" in v for v in values)
            ):
                return {"labels": column, "key": key}
    return None


def _say_layout(name, layout, rest, given):
    """Warn of a choice, unless it is the user's, or words come first and labels last."""
    if layout.header and not is_header(layout.header):
        warn(f"{name}: {' '.join(layout.header)[:60]!r} is read as the names of the columns.")
    if layout.numbered:
        warn(f"{name}: each word is a character with a number, which is left out.")
    is_usual = layout.words == 0 and layout.width and layout.labels == layout.width - 1
    is_known = given is not None or layout.labels == layout.width
    is_outside = layout.seen == {"O"}
    is_plain = is_usual and not (rest or layout.key or layout.language or is_outside)
    if is_known or is_plain:
        return
    outside = " All labels at its beginning are O, so that it marks no entities." * is_outside
    also = ", ".join(str(i + 1) for i in rest)
    also = f" Column {also} has labels, too." * bool(rest)
    language = f" {layout.language!r} before each word is left out." * bool(layout.language)
    warn(f"{name}: {layout}.{language}{outside}{also} Another column is read by labels=NUMBER.")


def _say_scheme(name, labels):
    """Warn of tags whose entities are not found as they are meant."""
    inside = labels - {*OUTSIDE, "o"}
    odd = {tag for tag in inside if not SPAN_TAG.fullmatch(tag)}
    is_mixed = odd and odd != inside
    if is_mixed or (odd and all(map(OTHER_TAG.fullmatch, odd))) or _are_letters(labels):
        odd = ", ".join(sorted(odd))
        warn(
            f"{name}: labels such as {odd[:60]} do not mark entities as B-PER, I-PER and O do, or "
            "BIOES, BILOU and BMES, or PER and O: write B:PER, b-PER and PER-B as B-PER, "
            "and B as B-NAME."
        )


def _language(words):
    match = LANGUAGE.match(words[0])
    return (
        match[0] if match and len(words) > 2 and all(w.startswith(match[0]) for w in words) else ""
    )


def _numbered(words):
    matches = [NUMBERED.fullmatch(word) for word in words]
    if len(words) < 3 or not all(matches) or all(match[1].isascii() for match in matches):
        return False
    counts = [int(match[2]) for match in matches]
    return all(n in (0, before + 1) for before, n in zip([-1, *counts], counts, strict=False))


def _are_tags(values):
    values = set(values)
    return _are_letters(values) or (any(map(TAG.fullmatch, values)) and all(map(_is_tag, values)))


def _are_letters(values):
    return {"B", "O"} <= values <= WITHOUT_CLASS


def _is_tag(value):
    return value in OUTSIDE or bool(TAG.fullmatch(value))


def _class(tag):
    return "" if tag in OUTSIDE else tag[2:]


def _pairs(value):
    """Return the keys and values of a cell such as `NER=B-PER|SpaceAfter=No`."""
    return dict(part.split("=", 1) for part in value.split("|") if "=" in part)


# === Rows ===

SAMPLE = 1000  # sentences at the beginning of a file that show its columns
DOCUMENT_BORDER = re.compile(r"#\s*(begin|end) document|###MEDLINE:")


@dataclasses.dataclass(frozen=True)
class WordColumns:
    """Words with a label each.

    Lines that begin with `#`, or with the address of a text's source, are comments, unless they
    have a word and its label. A header is skipped, and so are the multiword tokens and the empty
    nodes of CoNLL-U.

    Args:
        labels: int, the column of the labels; -1 is the last one.
        fields: int, the number of columns; None infers which columns hold words and labels.
        clean: function that is applied to each word.
        tags: bool. Whether labels mark spans; they are converted to BIO, except labels without the
            prefixes of a scheme.
    """

    labels: int = -1
    fields: int | None = None
    clean: Callable = str
    tags: bool = False

    def rows(self, name, stream, labels=None):
        """Yield (first line, dict of `words` and `labels`) for each sentence.

        `labels` is the user's choice of the column of labels, see `infer_layout`.
        """
        blocks = sentences(name, stream)
        first = [*itertools.islice(blocks, SAMPLE)]
        if self.fields:
            layout = fixed_layout(first, self.fields, self.labels)
        else:
            layout = infer_layout(name, first, labels)
        for lines in _parts(itertools.chain(first, blocks), layout):
            for number, fields, line in lines:
                self._check(name, number, fields, line, layout, len(lines[0][1]))
            tags = [layout.label(fields) for _, fields, _ in lines]
            if layout.brackets:
                tags = _roles(
                    name, [(number, fields[layout.labels]) for number, fields, _ in lines]
                )
            if labels is None:
                self._refuse_no_class(name, lines, tags, layout)
            is_scheme = all(tag == "O" or SPAN_TAG.fullmatch(tag) for tag in tags)
            words = [layout.word(fields) for _, fields, _ in lines]
            yield (
                lines[0][0],
                {
                    "words": [self.clean(word) for word in words],
                    "labels": convert_tags(tags) if self.tags and is_scheme else tags,
                },
            )

    def _check(self, name, number, fields, line, layout, first):
        """Raise an error if a line has other columns than those before it, or lacks a part."""
        width = layout.width or first
        is_whole = len(fields) == width > max(layout.words, layout.labels)
        if not is_whole or not self.clean(fields[layout.words]) or not fields[layout.labels]:
            columns = f" in {width} columns" * (width > 1)
            raise ValueError(
                f"{name}, line {number}: {chomp(line)[:40]!r} is not a word and its label"
                f"{columns}, with a space or a tab between them."
            )

    def _refuse_no_class(self, name, lines, tags, layout):
        for (number, _, _), label in zip(lines, tags, strict=True):
            if NOT_CLASS.match(label):
                raise ValueError(
                    f"{name}, line {number}: {label[:60]!r} is not the name of a class. The file "
                    f"is read as {layout}; pass the number of another one as labels=."
                )


def _parts(blocks, layout):
    """Yield the lines of sentences that have words, where a column numbers sentences by it, too."""
    for block in blocks:
        words = _words_of(block, layout)
        yield from (list(part) for _, part in itertools.groupby(words, layout.sentence_of))


def _words_of(block, layout):
    """Yield the lines of a block that have words."""
    place = 0
    for number, fields, line in block:
        if layout.is_word(fields, line, place):
            place += 1
            yield number, fields, line


def sentences(name, stream):
    """Yield the sentences of a file, with comments: lists of (line number, fields, line)."""
    sentence = []
    for number, line in decoded(name, stream):
        if "\r" in line.rstrip("\r\n"):
            raise ValueError(
                f"{name}, line {number}: a carriage return within the line: end lines with \\n."
            )
        fields = split_fields(line)
        is_document = any(field.startswith("-DOCSTART-") for field in fields[:2])
        is_border = is_document or DOCUMENT_BORDER.match(line)
        if is_border or not line.strip():
            if sentence:
                yield sentence
            sentence = []
        else:
            sentence.append((number, fields, line))
    if sentence:
        yield sentence


def split_fields(line):
    """Return the fields of a line, between tabs, or else between spaces."""
    line = line.lstrip(" ").rstrip()
    if "\t" in line:
        return [field.strip(" ") for field in line.split("\t")]
    return re.split(" +", line)


def without_language(word):
    """Return a word of WikiANN, `en:word`, without the language."""
    return re.sub("^[a-z-]+:", "", word)


# CoNLL-2012's columns: document, part, position, word, part of speech, …, frame set, …, one for
# each predicate, coreference.
DOCUMENT, PART, WORD, FRAME_SET, FIRST_ROLES = 0, 1, 3, 7, 11


def role_rows(name, stream):
    """Yield (number, row) for each predicate in an OntoNotes file in CoNLL-2012's columns.

    A row has `id`, `words`, `predicate` (the position of its word) and `labels`, the semantic roles
    in BIO. Sentences without predicates have no rows.
    """
    number = 0
    for lines in sentences(name, stream):
        lines = [row for row in lines if not row[2].startswith("#")]
        if not lines:
            continue
        width = len(lines[0][1])
        for line, fields, _ in lines:
            if len(fields) != width or width < FIRST_ROLES + 1:
                raise ValueError(
                    f"{name}, line {line}: {len(fields)} columns, but the sentence's first line "
                    f"has {width}, and CoNLL-2012 at least {FIRST_ROLES + 1}."
                )
        words = [fields[WORD] for _, fields, _ in lines]
        framed = [n for n, (_, fields, _) in enumerate(lines) if fields[FRAME_SET] != "-"]
        first, document, part = lines[0][0], lines[0][1][DOCUMENT], lines[0][1][PART]
        for nth in range(width - FIRST_ROLES - 1):
            cells = [(line, fields[FIRST_ROLES + nth]) for line, fields, _ in lines]
            labels = _roles(name, cells)
            predicate = labels.index("B-V") if "B-V" in labels else (framed + [None] * width)[nth]
            if predicate is None:
                raise ValueError(f"{name}, line {first}: predicate {nth + 1} has no word (V*).")
            number += 1
            id = f"{document}/{part}/{first}/{nth}"
            yield number, {"id": id, "words": words, "predicate": predicate, "labels": labels}


def _roles(name, cells):
    """Return BIO labels for a column of (line, cell) with brackets, `(ARG0*`, `*`, `*)`."""
    labels, role = [], None
    for line, cell in cells:
        parts = re.fullmatch(r"(?:\(([^()*]+))?\*?(\))?", cell)
        if not cell or not parts or (parts[1] and role) or (parts[2] and not (parts[1] or role)):
            raise ValueError(
                f"{name}, line {line}: {cell!r} is not a bracket around words, as in (ARG0* * *)."
            )
        role = parts[1] or role
        labels.append(("B-" if parts[1] else "I-") + role if role else "O")
        role = None if parts[2] else role
    if role:
        raise ValueError(f"{name}, line {cells[-1][0]}: {role!r} is not closed.")
    return labels
