"""The four words for entries of published files, and what each of them does."""

import re
import warnings

import pytest

from keras_lm.converters import CheckpointError
from keras_lm.converters.checked_files import HARMLESS, IMPLIED, READ, REFUSED, Entries

TABLE = Entries(
    read={"width"}, implied={"layers"}, harmless={"cache"}, refused={"groups": (1, "one")}
)


def test_each_word_is_told_by_name():
    words = [TABLE.word(name) for name in ("width", "layers", "cache", "groups", "other")]
    assert words == [READ, IMPLIED, HARMLESS, REFUSED, None]


def test_known_entries_and_allowed_values_pass_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TABLE.check({"width": 3, "layers": 2, "cache": True, "groups": "one"}, "a file", "Net")
        TABLE.check({"groups": None, "other": None, "_private": 3}, "a file", "Net")


def test_a_refused_value_is_an_error_with_entry_value_and_reader():
    said = "config.json has groups=2, .* Net supports only 1 or 'one'"
    with pytest.raises(CheckpointError, match=said):
        TABLE.check({"groups": 2}, "config.json", "Net")


def test_entries_of_no_row_are_named_once_at_the_line_of_the_caller():
    with pytest.warns(UserWarning, match=re.escape("does not follow: b, other")) as caught:
        TABLE.check({"other": 0, "b": [], "width": 1}, "config.json", "Net")
    assert len(caught) == 1 and caught[0].filename == __file__


def test_of_two_tables_the_second_decides():
    both = TABLE | Entries(read={"groups"}, refused={"width": (3,)})
    assert [both.word(name) for name in ("width", "groups", "cache")] == [REFUSED, READ, HARMLESS]
    with pytest.raises(CheckpointError, match="width=4"):
        both.check({"width": 4}, "a file", "Net")
