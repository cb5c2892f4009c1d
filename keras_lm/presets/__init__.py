"""From a SOURCE to a backbone, a tokenizer or a task, and from these to a preset folder.

A `Source` is opened once and says what it holds; `from_preset` takes it in place of its folder.

A preset folder holds `keras_lm.json` (classes and their arguments), `model.safetensors` (or its
shards and their index), `assets/` (the vocabulary in its published form) and `checksums.json`.
"""

from keras_lm.converters.hub import upload
from keras_lm.presets.foreign_formats import save_to_google
from keras_lm.presets.huggingface import save_to_huggingface
from keras_lm.presets.keras_hub import save_to_keras_hub
from keras_lm.presets.loading import load_ready_task, load_task, load_tokenizer
from keras_lm.presets.saving import SavedWhole, check_finite, save, save_ensemble
from keras_lm.presets.source import Source, check_unquantized, innermost_backbone, load_backbone

__all__ = [
    "SavedWhole",
    "Source",
    "check_finite",
    "check_unquantized",
    "innermost_backbone",
    "load_backbone",
    "load_ready_task",
    "load_task",
    "load_tokenizer",
    "save",
    "save_ensemble",
    "save_to_google",
    "save_to_huggingface",
    "save_to_keras_hub",
    "upload",
]
