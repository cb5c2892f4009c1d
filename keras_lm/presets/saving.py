"""From a backbone, a task or a tokenizer to a preset folder, and to files of Keras's own."""

import dataclasses
import json
import numbers
import re
import zipfile
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_lm.converters.checked_files import write_safetensors
from keras_lm.converters.checkpoint import ASSETS, PRESET_CONFIG
from keras_lm.converters.checkpoint import CARD as CARD
from keras_lm.presets.source import FORMAT_VERSION, check_unquantized, stored_weights
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.processes import array_of, is_divided, write_by_chief
from keras_lm.utils.user_arguments import checks_flags, is_finite
from keras_lm.version import __version__

MAX_SHARD_BYTES = 5_000_000_000
# What `save` writes into a folder; members are those of an ensemble.
OF_PRESETS = re.compile(
    rf"{re.escape(PRESET_CONFIG)}|{re.escape(CARD)}|{ASSETS}|member_\d+"
    rf"|{re.escape(files.CHECKSUMS)}"
    r"|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?"
)


@checks_flags
def save(
    folder: PathLike,
    backbone: keras.Model,
    task: keras.Model | None = None,
    tokenizer: Any | None = None,
    overwrite: bool | None = None,
    allow_nan: bool = False,
) -> None:
    """Write a preset atomically: a reader finds the old one, or the whole new one.

    Of several processes all call this, and the chief writes.

    Args:
        folder: path.
        backbone: `Backbone`; None for a tokenizer alone.
        task: `Task`, or None for the backbone alone.
        tokenizer: `Tokenizer` to save with a backbone or alone; a task has its own.
        overwrite: bool. Whether to replace a preset in `folder`; None replaces it if it has no
            other files, such as the `run.toml` of a command.
        allow_nan: bool. Whether to write weights that are NaN or infinite.

    Raises:
        FileExistsError: if `folder` is not a preset, or is not to be replaced.
        ValueError: if Keras has quantized a layer, or weights are NaN or infinite.
    """
    model, arrays = backbone if task is None else task, {}
    if backbone is not None:
        check_unquantized(model)
        arrays = _arrays(model, allow_nan)
    write_by_chief(lambda: _write(folder, backbone, task, tokenizer, overwrite, arrays))


def _write(folder, backbone, task, tokenizer, overwrite, arrays):
    folder = free(folder, overwrite)
    config = {} if backbone is None else {"backbone": _describe(backbone)}
    if task is not None:
        config["task"] = {"class": type(task).__name__, "arguments": task.get_arguments()}
        tokenizer = task.tokenizer
    if tokenizer is not None:
        config["tokenizer"] = {
            "class": type(tokenizer).__name__,
            "arguments": tokenizer.get_config(),
            "vocabulary_size": tokenizer.vocabulary_size,
        }
    with files.replacing(folder) as new:
        begin(new, config)
        if backbone is not None:
            write_safetensors(new, arrays, MAX_SHARD_BYTES)
            write_card(new, backbone if task is None else task)
        if tokenizer is not None:
            (new / ASSETS).mkdir()
            tokenizer.save_assets(new / ASSETS)
        sum_up(new)


def free(folder, overwrite):
    """Return the folder of a new preset, or raise the FileExistsError of `save`."""
    folder = files.as_path(folder)
    files.require_free(folder, "is not a preset", marker=PRESET_CONFIG)
    if files.is_half_uploaded(folder):
        return folder
    if overwrite is None and folder.is_dir():
        others = sorted(p.name for p in folder.iterdir() if not OF_PRESETS.fullmatch(p.name))
        if others:
            raise FileExistsError(
                f"{folder} is a preset with other files, {', '.join(others[:5])}: choose another "
                "folder, or pass overwrite=True to replace all of it."
            )
    elif not overwrite:
        files.require_free(folder, "is not replaced, as overwrite=False")
    return folder


def begin(folder, config):
    """Make a folder with the configuration of a preset."""
    folder.mkdir()
    versions = {"format_version": FORMAT_VERSION, "keras_lm_version": __version__}
    text = json.dumps(versions | config, indent=2, ensure_ascii=False)
    (folder / PRESET_CONFIG).write_text(f"{text}\n", encoding="utf-8")


def _describe(backbone):
    if hasattr(backbone, "backbone"):
        return {
            "class": type(backbone).__name__,
            "arguments": backbone.get_arguments(),
            "backbone": _describe(backbone.backbone),
        }
    config = backbone.get_config()
    return {"class": type(backbone).__name__, "arguments": config}


def _arrays(model, allow_nan):
    """Return the weights of a preset by their paths."""
    weights = stored_weights(model)
    for layer in model._flatten_layers():
        if getattr(layer, "lora_enabled", False):  # a kernel is the sum, so that it loads without
            del weights[layer.lora_kernel_a.path], weights[layer.lora_kernel_b.path]
            weights[layer._kernel.path] = layer.kernel
    arrays = {path: array_of(variable) for path, variable in weights.items()}
    if not allow_nan:
        refuse_broken(model, arrays)
    return arrays


def write_card(folder, model):
    """Write the README.md of a preset into its folder."""
    (folder / CARD).write_text(card_of_preset(model), encoding="utf-8")


def sum_up(folder):
    """Write the checksums of a preset into its folder.

    Weights have theirs in them, and a card is there to be changed.
    """
    paths = [folder / PRESET_CONFIG, *folder.glob("*.index.json"), *folder.glob(f"{ASSETS}/**/*")]
    files.write_sums(
        folder, [path.relative_to(folder).as_posix() for path in paths if path.is_file()]
    )


# === Ensembles ===


@checks_flags
def save_ensemble(
    folder: PathLike, task: keras.Model, overwrite: bool | None = None, allow_nan: bool = False
) -> None:
    """Write a preset of several tasks that answer as one: a preset for each, as `save` does it.

    Args:
        folder, overwrite, allow_nan: see `save`.
        task: a `Task` with `members`.

    Raises:
        FileExistsError: see `save`.
    """
    with files.replacing(free(folder, overwrite)) as new:
        described = {"class": type(task).__name__, "arguments": {}}
        begin(new, {"task": described, "members": len(task.members)})
        for number, member in enumerate(task.members):
            member.save_to_preset(new / member_folder(number), allow_nan=allow_nan)
        write_card(new, task)
        sum_up(new)


def member_folder(number):
    """Return the name of the folder of a member, in that of its ensemble."""
    return f"member_{number}"


# === Weights that are not finite are not written: answers of such a model would mean nothing ===


def check_finite(model: keras.Model, allow_nan: bool = False) -> None:
    """Raise a ValueError if weights of a model are NaN or infinite.

    Args:
        model: a backbone or a task.
        allow_nan: bool. Whether to let them pass.

    Raises:
        ValueError: unless `allow_nan`; it names the first of them.
    """
    if not allow_nan:
        # (One at a time, as reading may copy.)
        for path, variable in model.weights_by_path.items():
            refuse_broken(model, {path: array_of(variable)})


def refuse_broken(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise a ValueError if arrays of a model's weights, by their paths, are not finite."""
    for path, array in arrays.items():
        if not is_finite(array):
            raise ValueError(
                f"{type(model).__name__} has weights that are NaN or infinite, in {path}, so its "
                "answers mean nothing, and nothing was written. Go back to earlier weights, and "
                "train with a lower learning_rate; allow_nan=True writes them, for a look at them."
            )


class SavedWhole:
    """The methods of a backbone or a task that write files of Keras's, whole, and read weights."""

    @checks_flags
    def save(
        self,
        filepath: PathLike,
        overwrite: bool = True,
        zipped: bool | None = None,
        allow_nan: bool = False,
        **kwargs: Any,
    ) -> None:
        """As `keras.Model.save`, whole or not at all; `allow_nan` as in `save_to_preset`."""
        check_finite(self, allow_nan)
        _check_whole(self)
        save = super().save
        write_by_chief(lambda: _save_whole(save, filepath, overwrite, zipped=zipped, **kwargs))

    @checks_flags
    def save_weights(
        self,
        filepath: PathLike,
        overwrite: bool = True,
        max_shard_size: float | None = None,
        allow_nan: bool = False,
    ) -> None:
        """As `keras.Model.save_weights`, whole or not at all; `allow_nan` as in `save_to_preset`.

        Of shards, each is written by itself.
        """
        check_finite(self, allow_nan)
        if max_shard_size is not None and not (
            isinstance(max_shard_size, numbers.Real) and max_shard_size > 0
        ):
            raise ValueError(f"max_shard_size={max_shard_size!r}: pass a number of GB above 0.")
        options = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
        if max_shard_size is not None:
            filepath = str(filepath).removesuffix(".h5").removesuffix(".json") + ".json"
        _check_whole(self)
        save = super().save_weights
        write_by_chief(lambda: _save_whole(save, filepath, overwrite, **options))

    def load_weights(self, filepath: PathLike, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """As `keras.Model.load_weights`.

        Raises:
            ValueError: if the file is damaged, or of another model.
        """
        try:
            super().load_weights(str(filepath), skip_mismatch=skip_mismatch, **kwargs)
        except FileNotFoundError:
            raise
        except (OSError, KeyError, zipfile.BadZipFile) as error:  # of h5py and zipfile
            raise ValueError(
                f"filepath={str(filepath)!r} cannot be read as a file of weights: "
                f"{' '.join(str(error).split())}. It is damaged, cut off or of another format: "
                "take another copy, or save it again."
            ) from error


def _check_whole(model):
    """Raise a ValueError if processes have parts of a model's weights, which Keras cannot write."""
    for path in [path for path, v in model.weights_by_path.items() if is_divided(v)]:
        raise ValueError(
            f"{path} is divided among processes, and Keras writes what one of them has: call "
            "save_to_preset, which gathers it."
        )


def _save_whole(save, path, overwrite, **options):
    """Call a method of Keras's so that the old file stays until the new one is complete."""
    is_file = str(path).endswith((".keras", ".h5")) and "://" not in str(path)
    if not is_file or (files.as_path(path).exists() and not overwrite):  # Keras asks
        save(path, overwrite, **options)
        return
    path = files.as_path(path)
    with files.replacing(path) as new:
        written = new.with_name(path.name)
        save(written, True, **options)
        written.rename(new)


TAG = "- keras_lm"  # of our own cards

# The kinds of heads → the hub's name for the task, and transformers' class for it.
HUB_TASKS = {
    "": ("feature-extraction", "AutoModel"),
    "classification": ("text-classification", "AutoModelForSequenceClassification"),
    "token_classification": ("token-classification", "AutoModelForTokenClassification"),
    "question_answering": ("question-answering", "AutoModelForQuestionAnswering"),
    "multiple_choice": (None, "AutoModelForMultipleChoice"),
    "token": ("fill-mask", "AutoModelForMaskedLM"),
    "causal_lm": ("text-generation", "AutoModelForCausalLM"),
    "seq2seq_lm": (None, "AutoModelForSeq2SeqLM"),
}

LIMITS = """\
What it was trained on, and how well it does on other texts than those, is not in its files: add
that here, with the licence of the data and of the model, before others use it."""

# The methods that answer for texts, of which a task has one or none.
ASKED_BY = (
    *("classify", "regress", "tag", "choose", "parse", "resolve", "fill_mask", "embed"),
    *("generate", "answer"),
)
# Texts of an example, by their names.
EXAMPLES = {"choices": '[["one", "another"]]', "prompt": '["a prompt"]'}


@dataclasses.dataclass(frozen=True)
class Origin:
    """What is known about a model beyond its weights and arguments.

    `base_model` is the name of the model that it began with, or None, and `license` what the card
    of that states; `results` and `limits` are sections of a card, in Markdown.
    """

    base_model: str | None = None
    license: str | None = None
    results: str = ""
    limits: str = ""


def read_origin(source, text):
    """Return the `Origin` of a model, given the source of its weights and the text of its card.

    Args:
        source, text: str; `Checkpoint.source` and `Checkpoint.card`.
    """
    name = None
    if source.startswith("hf://"):
        name = source.removeprefix("hf://").partition("@")[0]
    front, _, body = text.removeprefix("---\n").partition("\n---\n")
    if not text.startswith("---\n"):
        front, body = "", text

    def stated(key):  # its value, or the first of several
        match = re.search(rf"^{key}:\s*(?:\n\s*)?(?:- )?['\"]?([\w./+-]+)", front, re.M | re.A)
        return match and match[1]

    is_ours = TAG in front.splitlines()
    return Origin(
        name or stated("base_model"),
        stated("license") or stated("base_model_license"),
        _section(body, "Results") if is_ours else "",
        _section(body, "Limits") if is_ours else "",
    )


def _section(body, title):
    match = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", body, re.M | re.S)
    return match[1].strip() if match else ""


def card(model, code, facts=(), tag=None, library="keras_lm"):
    """Return the text of a card, in Markdown.

    Args:
        model: a backbone, or a task with one.
        code: str, lines of Python that load the model and ask it.
        facts: list of (name, value) to begin with; without a value they are left out.
        tag: str, the hub's name for the task, or None.
        library: str, the hub's name for what loads it.
    """
    backbone = getattr(model, "backbone", model)
    while hasattr(backbone, "backbone"):
        backbone = backbone.backbone
    origin = read_origin(*(getattr(backbone, "origin", None) or ("", "")))
    front = [f"library_name: {library}", *([f"pipeline_tag: {tag}"] if tag else [])]
    front += [f"base_model: {origin.base_model}"] if origin.base_model else []
    front += [f"base_model_license: {origin.license}"] if origin.license else []
    front = "\n".join([*front, "tags:", TAG])
    base = origin.base_model or ("not stated" if origin.license else None)
    length = getattr(model, "longest_text", backbone.max_sequence_length)
    arrays = [
        weight for weight in model.weights if weight.path.split("/")[-1] != "seed_generator_state"
    ]
    size = sum(np.prod(array.shape) * np.dtype(_numpy(array.dtype)).itemsize for array in arrays)
    facts = [
        *facts,
        ("Parameters", f"{int(sum(np.prod(array.shape) for array in arrays)):,}"),
        ("Size of the weights", f"{size / 1e6:,.1f} MB"),
        ("Longest text", length and f"{length} tokens"),
        ("Labels", ", ".join(f"`{name}`" for name in getattr(model, "class_names", None) or [])),
        ("Base model", base and f"{base}, licence: {origin.license or 'not stated'}"),
    ]
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts if value)
    results = _results(model) or origin.results
    results = f"## Results\n\n{results}\n\n" if results else ""
    return f"""---
{front}
---

# A model made with keras_lm

| | |
|---|---|
{rows}

## How to ask it

```python
{code}
```

{results}## Limits

{origin.limits or LIMITS}
"""


def card_of_preset(model):
    """Return the card of a preset of a backbone or a task."""
    kind, package = type(model).__name__, "tasks" if hasattr(model, "backbone") else "models"
    code = f'import keras_lm\n\nmodel = keras_lm.{package}.{kind}.from_preset("FOLDER")'
    if package == "tasks" and getattr(model, "tokenizer", None) is not None:
        method = next((name for name in ASKED_BY if hasattr(model, name)), "predict")
        code += f"\nmodel.{method}({_texts(model)})"
    return card(model, code, _classes(model), _tag(model))


def card_of_export(task, is_plain=False):
    """Return the card of a SavedModel; a plain one has TensorFlow's own operations alone."""
    code = [
        "import tensorflow as tf",
        *(["import tensorflow_text  # its operations"] if not is_plain else []),
        "",
        'answer = tf.saved_model.load("FOLDER").signatures["serving_default"]',
        f"answer({_arguments(task)})",
    ]
    if not hasattr(task, "answer_names"):  # several tasks have signatures of their own
        code = ['# keras-lm inspect FOLDER lists its signatures.\ntf.saved_model.load("FOLDER")']
    return card(task, "\n".join(code), _classes(task), _tag(task))


def card_of_tflite(task, in_bytes=False):
    """Return the card of a `.tflite` that takes strings, or the bytes of these."""
    code = [
        "import numpy as np",
        "from keras_lm.litert import open_interpreter  # with TF Text's operations",
        "",
        'answer = open_interpreter("FILE.tflite").get_signature_runner("serving_default")',
        f"answer({_arguments(task).replace('tf.constant', 'np.array')})",
    ]
    if in_bytes:
        code = _of_bytes(task)
    if not hasattr(task, "answer_names"):  # several tasks have signatures of their own
        code = ["# keras-lm inspect FILE.tflite lists its signatures."]
    return card(task, "\n".join(code), _classes(task), _tag(task))


_ASK_LITERT = [
    'answer = Interpreter("FILE.tflite").get_signature_runner("serving_default")',
    "answer(**inputs)",
]
_ASK_ONNX = [
    'session = onnxruntime.InferenceSession("FILE.onnx")',
    "outputs = [value.name for value in session.get_outputs()]",
    "dict(zip(outputs, session.run(outputs, inputs)))",
]


def _of_bytes(task, runtime="from ai_edge_litert.interpreter import Interpreter", ask=_ASK_LITERT):
    """Return the lines that ask a file which takes texts as bytes."""
    columns = ", ".join(f'"{name}": {EXAMPLES.get(name, _text(name))}' for name in _names(task))
    return [
        "import numpy as np",
        runtime,
        "",
        "inputs = {}",
        f"for name, texts in {{{columns}}}.items():",
        "    texts = np.array(texts, object)",
        "    data = [text.encode() for text in texts.ravel()]  # UTF-8",
        '    inputs[name] = np.frombuffer(b"".join(data), np.uint8)',
        "    ends = np.cumsum([len(text) for text in data], dtype=np.int32)",
        '    inputs[f"{name}_ends"] = ends.reshape(texts.shape)',
        *ask,
    ]


def card_of_onnx(task, takes_bytes=False):
    """Return the card of an `.onnx`, which takes ids, or bytes of texts."""
    code = [
        "import onnxruntime",
        "",
        'session = onnxruntime.InferenceSession("FILE.onnx")',
        "[(value.name, value.type, value.shape) for value in session.get_inputs()]",
        "session.run(None, inputs)  # arrays by name",
    ]
    code = _of_bytes(task, "import onnxruntime", _ASK_ONNX) if takes_bytes else code
    return card(task, "\n".join(code), _classes(task), _tag(task))


def card_of_page(task):
    """Return the card of a folder with a page for browsers."""
    code = "# python -m http.server --directory FOLDER"
    return card(task, code, _classes(task), _tag(task))


def _classes(model):
    backbone = getattr(model, "backbone", None)
    facts = [("Task" if backbone is not None else "Model", f"`{type(model).__name__}`")]
    return facts + ([] if backbone is None else [("Model", f"`{type(backbone).__name__}`")])


def _tag(model):
    kinds = " ".join(sorted(set(getattr(model, "head_kinds", ()))))
    return HUB_TASKS.get(kinds, (None, None))[0]


def _names(task):
    return list(getattr(task, "answer_names", ["text"]))


def _texts(task):
    texts = [f'"{name}": {EXAMPLES.get(name, _text(name))}' for name in _names(task)]
    return texts[0].partition(": ")[2] if len(texts) == 1 else f"{{{', '.join(texts)}}}"


def _arguments(task):
    arguments = (f"{name}=tf.constant({EXAMPLES.get(name, _text(name))})" for name in _names(task))
    return ", ".join(arguments)


def _text(name):
    return f'["a {name.replace("_", " ")}"]'


def _results(model):
    """Return the logs of the epoch of `fit` that the weights are of, as a table.

    That is the last epoch of `fit` in this process, or the one whose weights were restored.
    """
    history = getattr(model, "history", None)
    logs = getattr(history, "history", None) or {}
    restored = getattr(history, "restored_epoch", None)
    place = -1 if restored is None else history.epoch.index(restored)
    rows = [f"| {name} | {values[place]:.4g} |" for name, values in logs.items() if values]
    if not rows:
        return ""
    which = "the last epoch" if restored is None else f"epoch {restored + 1}, the best one"
    return "\n".join([f"After {which} of `fit`:", "", "| | |", "|---|---|", *rows])


def _numpy(dtype):
    return "float16" if dtype == "bfloat16" else dtype
