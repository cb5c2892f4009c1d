"""What each entry of a published file means here: it is followed, or refused by its name.

Files of other libraries state more than one reader needs. Each file that is read has an `Entries`
table that gives every entry of it one of four words:

- read: its value is followed.
- implied: tensors, or other entries, say the same, and they are followed.
- harmless: it changes no output, as what concerns training or bookkeeping does.
- refused: other values than those listed would change outputs in a way that is not followed. Such
  a value is an error.

An entry that no table has is not passed over: its name is part of a warning.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Self

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.utils.user_warning import warn

READ, IMPLIED, HARMLESS, REFUSED = "read", "implied", "harmless", "refused"
LONGEST_VALUE = 200  # characters of a value in a message


@dataclasses.dataclass(frozen=True)
class Entries:
    """What the entries of one kind of file mean.

    Args:
        read, implied, harmless: collections of names.
        refused: dict of name → a tuple of the only values that are followed. A missing entry, and
            None, are always fine.

    Example:

        table = Entries(read={"num_beams"}, refused={"num_beam_groups": (1,)})
        table.check({"num_beam_groups": 2}, "model/generation_config.json", "CausalLM")  # raises
    """

    read: Collection[str] = ()
    implied: Collection[str] = ()
    harmless: Collection[str] = ()
    refused: Mapping[str, tuple] = dataclasses.field(default_factory=dict)

    def __or__(self, other: Self) -> Self:
        """Return the entries of both tables; where both have one, `other` decides."""

        def rest(names):
            return {name for name in names if other.word(name) is None}

        return type(self)(
            rest(self.read) | {*other.read},
            rest(self.implied) | {*other.implied},
            rest(self.harmless) | {*other.harmless},
            {name: self.refused[name] for name in rest(self.refused)} | dict(other.refused),
        )

    def word(self, name: str) -> str | None:
        """Return "read", "implied", "harmless" or "refused"; None for an entry of no row."""
        words = {
            READ: self.read,
            IMPLIED: self.implied,
            HARMLESS: self.harmless,
            REFUSED: self.refused,
        }
        return next((word for word, names in words.items() if name in names), None)

    def unknown(self, stated: Mapping[str, Any]) -> list[str]:
        """Return the names, sorted, of entries with a value that are in no row."""
        return sorted(
            name
            for name, value in stated.items()
            if value is not None and self.word(name) is None and not name.startswith("_")
        )

    def check(self, stated: Mapping[str, Any], where: str, reader: str) -> None:
        """Raise an error for a value that is refused, and warn of entries that are in no row.

        Args:
            stated: dict, the file's entries.
            where: str, the file, for messages.
            reader: str, what would have to follow the entry, such as a class.

        Raises:
            CheckpointError: if an entry has a value that would change outputs and is not followed.
        """
        for name, values in self.refused.items():
            value = stated.get(name)
            if value is not None and value not in values:
                known = " or ".join(map(repr, values)) or "folders without it"
                raise CheckpointError(
                    f"{where} has {name}={str(repr(value))[:LONGEST_VALUE]}, which would change "
                    f"the outputs: {reader} knows only {known}."
                )
        unknown = self.unknown(stated)
        if unknown:
            warn(
                f"{where} has entries that {reader} does not know and does not follow: "
                f"{', '.join(unknown[:12])}{' and others' if len(unknown) > 12 else ''}."
            )
