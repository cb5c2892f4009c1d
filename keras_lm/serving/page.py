"""The page of the embedded server: one HTML file with its style, script and data filled in."""

import hashlib
import json
import re
from base64 import b64encode
from functools import cache
from pathlib import Path

# Inside <script>, these could end it or start a comment, so JSON's escapes replace them.
ESCAPES = {character: f"\\u{ord(character):04x}" for character in "<>&"}
SCRIPTS = ("page_tokens.js", "page_graph.js", "page_answers.js", "page_rows.js", "page.js")
# The page of `keras_lm.analysis`, which importing would bring the models along, draws attention.
ATTENTION = "../analysis/attention_page"


def data(model_names, grpc_address, examples=None, grpc_scheme="grpc"):
    """Return what the page says about a server, as a dict that JSON can hold.

    `examples` is a dict of a model's name → what its fields contain at first; see `Server`.
    """
    return {
        "models": list(model_names),
        "examples": examples or {},
        "grpc_address": grpc_address,
        "grpc_scheme": grpc_scheme,
    }


def render(data):
    """Return the HTML of the page to try the served models.

    `data` is that of the function `data`; None if the page has to ask for a key, with which it gets
    them from `/page.json`.
    """
    config = {"attention_page": _attention_page(), "needs_key": data is None, **(data or {})}
    text = json.dumps(config).translate(str.maketrans(ESCAPES))
    return _page().replace('"CONFIG"', text)


@cache
def _page():
    page, style = _read("page.html"), _read("page.css")
    script = '"use strict";\n\n' + "\n".join(map(_read, SCRIPTS))
    inner = {
        kind: re.search(f"<{tag}>(.*?)</{tag}>", _attention_page(), re.S)[1]
        for kind, tag in {"STYLE": "style", "SCRIPT": "script"}.items()
    }
    for name, part in {"STYLE": style, "SCRIPT": script}.items():
        hashes = f"{_hash(part)} {_hash(inner[name])}"
        page = page.replace(f"{name}_HASH", hashes).replace(f"/* {name} */", part)
    return page


@cache
def _attention_page():
    """Return the HTML of the frame that draws attention: without data, it waits for them."""
    page = _read(f"{ATTENTION}.html").replace('"DATA"', "null")
    page = page.replace("/* STYLE */", _read(f"{ATTENTION}.css"))
    return page.replace("/* SCRIPT */", '"use strict";\n\n' + _read(f"{ATTENTION}.js"))


def _read(name):
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _hash(part):
    """Return the Content-Security-Policy source that allows exactly this style or script."""
    return f"'sha256-{b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
