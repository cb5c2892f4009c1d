"""The README.md of presets, exports and folders for Hugging Face: what a model is, how to ask it.

It begins with the hub's front matter. What is in no other file, from where the weights are and what
its author wrote, is read from the card of the source, and goes into the cards of what is saved.
"""

import dataclasses
import re

import numpy as np

from keras_lm.converters.checkpoint import CARD as CARD

TAG = "- keras_lm"  # of our own cards

# The kinds of heads → the hub's name for the task, and transformers' class for it.
TASKS = {
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


def _of_bytes(task):
    """Return the lines that ask a `.tflite` which takes texts as bytes."""
    columns = ", ".join(f'"{name}": {EXAMPLES.get(name, _text(name))}' for name in _names(task))
    return [
        "import numpy as np",
        "from ai_edge_litert.interpreter import Interpreter",
        "",
        "inputs = {}",
        f"for name, texts in {{{columns}}}.items():",
        "    texts = np.array(texts, object)",
        "    data = [text.encode() for text in texts.ravel()]  # UTF-8",
        '    inputs[name] = np.frombuffer(b"".join(data), np.uint8)',
        "    ends = np.cumsum([len(text) for text in data], dtype=np.int32)",
        '    inputs[f"{name}_ends"] = ends.reshape(texts.shape)',
        'answer = Interpreter("FILE.tflite").get_signature_runner("serving_default")',
        "answer(**inputs)",
    ]


def card_of_onnx(task):
    """Return the card of an `.onnx`, which takes ids."""
    code = [
        "import onnxruntime",
        "",
        'session = onnxruntime.InferenceSession("FILE.onnx")',
        "[(value.name, value.type, value.shape) for value in session.get_inputs()]",
        "session.run(None, inputs)  # arrays by name",
    ]
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
    return TASKS.get(kinds, (None, None))[0]


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
