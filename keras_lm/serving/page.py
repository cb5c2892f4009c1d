"""The page of the embedded server: one HTML file with its style, script and data filled in."""

import hashlib
import json
from base64 import b64encode
from functools import cache
from pathlib import Path

# Inside <script>, these could end it or start a comment, so JSON's escapes replace them.
ESCAPES = {character: f"\\u{ord(character):04x}" for character in "<>&"}
SCRIPTS = ("page_answers.js", "page.js")


def render(model_names, grpc_address):
    """Return the HTML of the page to try the served models."""
    config = json.dumps({"models": list(model_names), "grpc_address": grpc_address})
    return _page().replace('"CONFIG"', config.translate(str.maketrans(ESCAPES)))


@cache
def _page():
    page, style = _read("page.html"), _read("page.css")
    script = '"use strict";\n\n' + "\n".join(map(_read, SCRIPTS))
    for name, part in {"STYLE": style, "SCRIPT": script}.items():
        page = page.replace(f"{name}_HASH", _hash(part)).replace(f"/* {name} */", part)
    return page


def _read(name):
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(part):
    """Return the Content-Security-Policy source that allows exactly this style or script."""
    return f"'sha256-{b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
