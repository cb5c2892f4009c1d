"""The interactive page of attention: one HTML file with its style, script and data filled in.

Shapes: L layers, N heads, S tokens that read, T tokens that are read.
"""

import html
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_path, replacing

# Inside <script>, these could end it or start a comment, so JSON's escapes replace them.
ESCAPED = re.compile("[<>&]")
# Square roots of probabilities are rounded to this many steps, to fewer in large pages.
FINE, COARSE, LARGE = 255, 63, 4_000_000


class AttentionPage:
    """A page with pictures of attention, which needs no network; a notebook shows it in a cell.

    Args:
        maps: dict of name → `AttentionMap`.
        layers: list of int, the numbers of the layers in the maps; None for 0, 1, …
        neurons: `Neurons`, or None.
        height: int, pixels in a notebook.
    """

    def __init__(
        self,
        maps: Mapping[str, Any],
        layers: Sequence[int] | None = None,
        neurons: Any = None,
        height: int = 640,
    ):
        self.maps, self.layers, self.neurons, self.height = maps, layers, neurons, height

    def to_html(self) -> str:
        """Return the whole page, str."""
        size = sum(attention_map.probabilities.size for attention_map in self.maps.values())
        steps = FINE if size <= LARGE else COARSE
        data = {
            "steps": steps,
            "layers": self.layers,
            "maps": [
                _packed_map(name, attention_map, steps) for name, attention_map in self.maps.items()
            ],
            "neurons": None if self.neurons is None else _packed_neurons(self.neurons),
        }
        # JSON escapes all that is not ASCII, so that no character can be misread.
        text = ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(data))
        return _page().replace('"DATA"', text)

    def save(self, path: PathLike) -> Path:
        """Write the page to a `.html` file, in one step, and return its `Path`."""
        with replacing(path) as new:
            Path(new).write_text(self.to_html(), encoding="utf-8")
        return as_path(path)

    def _repr_html_(self):
        # In a frame, so that the styles of page and notebook leave each other alone.
        return (
            f'<iframe srcdoc="{html.escape(self.to_html())}" title="Attention" '
            f'style="width: 100%; height: {int(self.height)}px; border: 0"></iframe>'
        )


@cache
def _page():
    page = _read("attention_page.html")
    page = page.replace("/* STYLE */", _read("attention_page.css"))
    return page.replace("/* SCRIPT */", '"use strict";\n\n' + _read("attention_page.js"))


def _read(name):
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _packed_map(name, attention, steps):
    rounded = np.sqrt(np.clip(attention.probabilities, 0, 1)) * steps
    number, heads = attention.probabilities.shape[:2]
    return {
        "name": name,
        "tokens": list(attention.tokens),
        "attended": list(attention.attended),
        "layers": number,
        "heads": heads,
        "data": _packed(np.rint(rounded).astype("uint8")),
    }


def _packed_neurons(neurons):
    largest = max(float(np.abs(neurons.query).max()), float(np.abs(neurons.key).max()), 1e-9)
    vectors = np.stack([neurons.query, neurons.key]) / largest * 127
    # Masked scores have no place in a picture: they are far below all others.
    scores = np.maximum(neurons.scores, -1e4)
    return {
        "layer": neurons.layer,
        "head": neurons.head,
        "tokens": list(neurons.tokens),
        "width": int(neurons.query.shape[1]),
        "largest": largest,
        "vectors": _packed(np.rint(vectors).astype("int8")),
        "scores": _packed(scores.astype("<f4")),
        "probabilities": _packed(neurons.probabilities.astype("<f4")),
    }


def _packed(array):
    return b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 4)).decode()
