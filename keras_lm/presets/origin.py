"""From where weights are: what their source's README.md tells, and nothing else."""

import dataclasses
import re

FILE = "README.md"
LARGEST = 2**20  # bytes of a card that is read
TAG = "- keras_lm"  # of our own cards


@dataclasses.dataclass(frozen=True)
class Origin:
    """What is known of a model that none of its weights and arguments tell.

    `base_model` is the name of the model that it began with, or None, and `license` what the card
    of that states; `results` and `limits` are sections of a card, in Markdown.
    """

    base_model: str | None = None
    license: str | None = None
    results: str = ""
    limits: str = ""


def read_origin(checkpoint):
    """Return the `Origin` of what is loaded from a checkpoint, by its name and its card."""
    path, name = checkpoint.root / FILE, None
    if checkpoint.source.startswith("hf://"):
        name = checkpoint.source.removeprefix("hf://").partition("@")[0]
    if not path.is_file() or path.stat().st_size > LARGEST:
        return Origin(name)
    text = path.read_text("utf-8", errors="replace")
    front, _, body = text.removeprefix("---\n").partition("\n---\n")
    if not text.startswith("---\n"):
        front, body = "", text

    def stated(key):  # its value, or the first of several
        found = re.search(rf"^{key}:\s*(?:\n\s*)?(?:- )?['\"]?([\w./+-]+)", front, re.M | re.A)
        return found and found[1]

    is_ours = TAG in front.splitlines()
    return Origin(
        name or stated("base_model"),
        stated("license") or stated("base_model_license"),
        _section(body, "Results") if is_ours else "",
        _section(body, "Limits") if is_ours else "",
    )


def _section(body, title):
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", body, re.M | re.S)
    return found[1].strip() if found else ""
