"""The settings of a training run in gin's language, as mesh_tensorflow leaves them."""

import ast
import pathlib
import re

from keras_lm.converters.checked_files import CheckpointError, require_file

GIN = "operative_config.gin"
MOST_BYTES = 2**20  # many times what there is
BINDING = re.compile(r"^([\w./]+)[^\S\n]*=\s*(.+)$", re.MULTILINE)


def read_gin(path: pathlib.Path) -> dict:
    """Return what a gin file binds: `{"num_heads": 8, "decoder/SelfAttention.num_heads": 8}`.

    Macros, `%num_heads`, are replaced; what is not a literal, such as `@SelfAttention`, stays text.
    """
    require_file(path)
    if path.stat().st_size > MOST_BYTES:
        raise CheckpointError(
            f"{path} has {path.stat().st_size} bytes, and settings have {MOST_BYTES} at most: it "
            "is another file. Copy or download it again."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 text. Copy or download it again.") from error
    text = re.sub(r"^[^\S\n]*#.*", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\[^\S\n]*\n\s*", "", text)  # a long value goes on in the next line
    bound = {name: _literal(value) for name, value in BINDING.findall(text)}

    def resolved(value):
        is_macro = isinstance(value, str) and value.startswith("%")
        return bound.get(value[1:], value) if is_macro else value

    return {name: resolved(value) for name, value in bound.items()}


def _literal(text):
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text.strip()
