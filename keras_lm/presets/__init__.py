"""From a SOURCE to a backbone, a tokenizer or a task, and from these to a preset folder.

A preset folder holds `keras_lm.json` (classes and their arguments), `model.safetensors` (or its
shards and their index) and `assets/` (the vocabulary in its published form).
"""

from keras_lm.presets.loading import innermost_backbone, load_backbone, load_task, load_tokenizer
from keras_lm.presets.recognition import (
    read_arguments,
    recognise,
    stated_arguments,
    stated_task,
)
from keras_lm.presets.saving import save, save_ensemble

__all__ = [
    "innermost_backbone",
    "load_backbone",
    "load_task",
    "load_tokenizer",
    "read_arguments",
    "recognise",
    "save",
    "save_ensemble",
    "stated_arguments",
    "stated_task",
]
