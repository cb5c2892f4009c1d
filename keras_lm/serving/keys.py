"""Keys by which a server knows its clients, `Authorization: Bearer KEY`.

Only digests of them are kept, so that no key can get into a log, a measure or an error.

Source: RFC 6750, https://www.rfc-editor.org/rfc/rfc6750.
"""

import contextlib
import hashlib
import hmac
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

logger = logging.getLogger("keras_lm.serving")

VARIABLE = "KERAS_LM_API_KEY"  # of the environment, for the commands
KEY = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)  # "b64token" of the RFC
LARGEST_FILE = 2**16  # bytes


def parse_keys(text: str, source: str) -> list[str]:
    """Return the keys in a text, one on each line; empty lines do not count.

    Args:
        text: str.
        source: str, where it is from, for messages.

    Raises:
        ValueError: if there is no key, or a line is not one. The message does not show it.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line and not KEY.fullmatch(line):
            raise ValueError(
                f"{source}, line {number}, is not a key: keys have letters, digits and -._~+/ "
                "alone, without spaces, and each is on a line of its own."
            )
    keys = [line for line in lines if line]
    if not keys:
        raise ValueError(
            f"{source} has no key: put one on each line, such as what `openssl rand -hex 32` "
            "prints."
        )
    return keys


def read_keys(path: Path) -> list[str]:
    """Return the keys in a file, one on each line.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is too large, not UTF-8, or `parse_keys` refuses its text.
    """
    with path.open("rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"{path} has more than {LARGEST_FILE} bytes: it is not a file of keys.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8: it is not a file of keys.") from None
    return parse_keys(text, str(path))


def key_of_environment() -> str | None:
    """Return the first key in the variable `KERAS_LM_API_KEY`, for a client; None without it.

    Raises:
        ValueError: if it has no key, or what is not one.
    """
    text = os.environ.get(VARIABLE)
    return None if text is None else parse_keys(text, VARIABLE)[0]


class Keys:
    """The keys of a server; thread-safe.

    Args:
        source: list of str; or a `Path`, of a file with a key on each line, which is read again
            when it has changed.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if there are no keys, or one has other characters than keys have.
    """

    def __init__(self, source: Sequence[str] | Path):
        self._path = source if isinstance(source, Path) else None
        if self._path is None:
            if isinstance(source, (str, bytes)) or not isinstance(source, Sequence):
                raise ValueError(
                    f"api_keys is a {type(source).__name__}: pass a list of keys, or a "
                    "pathlib.Path of a file with a key on each line."
                )
            if not all(isinstance(key, str) for key in source):
                raise ValueError("api_keys has a value that is not a string.")
            self._digests = _digests(parse_keys("\n".join(source), "api_keys"))
            return
        self._state = self._stat()
        self._digests = _digests(read_keys(self._path))

    def identify(self, header: str | None) -> bytes | None:
        """Return the digest of the key in an `Authorization` header; None if it is not one of ours.

        All keys are compared, each in constant time.
        """
        scheme, _, key = (header or "").partition(" ")
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return digest if any(matches) and scheme.lower() == "bearer" else None

    def poll(self):
        """Read the file again if it has changed; keep the keys if it has become wrong."""
        if self._path is None or (state := self._stat()) is None or state == self._state:
            return
        self._state = state
        try:
            self._digests = _digests(read_keys(self._path))
        except (OSError, ValueError) as error:
            logger.error("The keys stay as they were. %s", error)
        else:
            logger.info("%s was read again: it has %d keys.", self._path, len(self._digests))

    def _stat(self):
        with contextlib.suppress(OSError):  # the file is just being replaced
            if self._path.is_file():  # a pipe has been read for good
                status = self._path.stat()
                return status.st_mtime_ns, status.st_size, status.st_ino
        return None


def _digest(key):
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _digests(keys):
    return frozenset(map(_digest, keys))
