"""Tables and JSONL files whose rows have one or two texts, or choices, and a label."""

import dataclasses
import itertools
import json
from collections.abc import Callable

from keras_lm.datasets.text_lines import (
    decode,
    delimited_rows,
    json_rows,
    table_rows,
    undecoded,
    wrong_number_of_fields,
)

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
            found = json_rows(name, lines)
        else:
            found = self._table(name, first[1], decode(name, lines))
        for line, fields in found:
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
        names = [each for each in self.headless if each is not ...]
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
                found = [fields[each] for each in names if each in fields]
                if found:
                    row[role] = found[0]
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
