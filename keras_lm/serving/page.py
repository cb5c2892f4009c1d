"""The page of the embedded server: one HTML file with its data filled in."""

import json
from functools import cache
from pathlib import Path

# Inside of <script>, these would end it or start a comment; JSON has another way to write each.
ESCAPES = {character: f"\\u{ord(character):04x}" for character in "<>&"}


def render(model_names, grpc_address):
    """Return the HTML of the page on which a person asks the served models."""
    config = json.dumps({"models": list(model_names), "grpc_address": grpc_address})
    return _page().replace('"CONFIG"', config.translate(str.maketrans(ESCAPES)))


@cache
def _page():
    return Path(__file__).with_name("page.html").read_text(encoding="utf-8")
