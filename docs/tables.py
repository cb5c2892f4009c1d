"""Write the tables of models, sizes and tasks into docs/models.md, from the code itself.

The parameters of new sizes go to `keras_lm/models/parameters.json`, too, and what the code says of
a model to its page, `models/NAME.md`.

    python docs/tables.py

A table stands between `<!-- NAME: written by docs/tables.py -->` and `<!-- end -->`.
"""

import json
import re
import sys
from pathlib import Path

import keras_lm
from keras_lm.inspection import find_sizes
from keras_lm.models.sizes import COUNTED, parameters_of
from keras_lm.utils.registry import BACKBONES, TASKS, sizes

REPOSITORY = Path(__file__).parents[1]
sys.path += [str(REPOSITORY / "tests"), str(REPOSITORY / "docs")]
import model_pages  # noqa: E402
import tiny  # noqa: E402

PAGE = REPOSITORY / "docs" / "models.md"
PLACE = re.compile(r"(<!-- (\w+): written by docs/tables\.py -->\n).*?(<!-- end -->)", re.S)

# What a format of checkpoints is called.
FORMATS = {
    "allennlp": "AllenNLP",
    "cove": "its authors'",
    "fairseq": "fairseq",
    "fastai": "fastai",
    "google": "google-research (TF1)",
    "huggingface": "Hugging Face",
    "keras_hub": "KerasHub",
    "model_garden": "Model Garden",
    "openai": "OpenAI",
    "transformer_xl": "its authors' (PyTorch)",
    "trax": "trax",
    "word_vectors": "word2vec, GloVe, fastText",
}
# A format that is another's for one model.
OTHER_FORMATS = {
    ("ErnieBackbone", "huggingface"): "its authors'",
    ("GPT2Backbone", "google"): "OpenAI (TF1)",
    ("WordVectorBackbone", "huggingface"): "sentence-transformers, model2vec",
    ("T5Backbone", "google"): "mesh_tensorflow (TF1)",
    ("T5EncoderBackbone", "google"): "mesh_tensorflow (TF1)",
    ("TransformerXLBackbone", "google"): "its authors' (TF1)",
    ("Tensor2TensorBackbone", "google"): "tensor2tensor (TF1)",
    ("Tensor2TensorEncoderBackbone", "google"): "tensor2tensor (TF1)",
}
# A task → the kind of head that it asks a model for.
HEADS = {
    "TextClassifier": "classification",
    "TextRegressor": "classification",
    "TokenClassifier": "token_classification",
    "ConstituencyParser": "token_classification",
    "CoreferenceResolver": "token_classification",
    "MultipleChoice": "multiple_choice",
    "QuestionAnswerer": "question_answering",
    "MaskedLM": "token",
    "SparseEncoder": "token",
    "CausalLM": "causal_lm",
    "Seq2SeqLM": "seq2seq_lm",
}
# Models that read characters, and not the ids of tokens.
OF_CHARACTERS = ("ElmoBackbone",)
# Parts of other models, which nobody loads.
LEFT_OUT = ("ElmoForwardBackbone",)


def fill(text):
    """Return a page with its tables as they are now."""

    def make(results):
        header, rows = TABLES[results[2]]
        return results[1] + _table(header, rows()) + results[3]

    return PLACE.sub(make, text)


def _table(header, rows):
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _backbones():
    names = {*tiny.MODELS, *tiny.PARTS} | {name.split(" ")[0] for name in tiny.ENCODER_DECODERS}
    return {
        name: cls
        for name, cls in vars(keras_lm.models).items()
        if name in names and name not in LEFT_OUT
    }


def _models():
    for name, cls in _backbones().items():
        counts = [parameters_of(size) for size in cls.SIZES]
        span_of_sizes = ""
        if counts:
            smallest, largest = _short(min(counts)), _short(max(counts))
            span = smallest if smallest == largest else f"{smallest} to {largest}"
            span_of_sizes = f"{len(counts)}, {span}" if len(counts) > 1 else span
        formats = [format_of(cls, key) for key in cls.CONVERTERS]
        yield f"`{name}`", _first_line(cls), span_of_sizes, ", ".join(dict.fromkeys(formats)) or "–"


def _tasks_of_models():
    for name, cls in _backbones().items():
        tasks = [task for task, kind in HEADS.items() if kind in cls.HEADS]
        if "CausalLM" in tasks:  # the published vocabularies of decoders have no mask
            tasks = [task for task in tasks if HEADS[task] != "token"]
        tasks += ["FeatureExtractor"] * (cls.encoder_class is None)
        reads_ids = name not in OF_CHARACTERS
        tasks += ["MultiVectorEncoder"] * (cls.encoder_class is None and reads_ids)
        own_objective = {*cls.PRETRAINING_HEADS.values()} - {"token"} or cls.PRETRAINING_OBJECTIVES
        tasks += ["Pretrainer"] * bool(own_objective)
        tasks += ["BidirectionalLM"] * (name == "ElmoBackbone")
        tokenizer = cls.tokenizer_class
        of_parts = isinstance(tokenizer, property)
        tokenizer = "that of the model inside" if of_parts else tokenizer.__name__
        yield f"`{name}`", tokenizer, ", ".join(tasks)


def _sizes():
    for row in find_sizes():
        published = f"`{row['published']}`" if row["published"] else "never published"
        licence = _licence(row["model"]) if row["published"] else "–"
        model = f"`{row['model']}Backbone`"
        yield f"`{row['size']}`", model, f"{row['parameters']:,}", published, licence


def _licence(model):
    """Return the licence of a model's weights, as its page states it, with a link to that."""
    name = BACKBONES[f"{model}Backbone"].__module__.rpartition(".")[2]
    page = (REPOSITORY / f"docs/models/{name}.md").read_text(encoding="utf-8")
    stated = re.search(r"## Licence and limits\n\n(Apache 2\.0|MIT|CC-BY[-A-Z]* 4\.0)?", page)
    return f"[{stated[1] or 'see its page'}](models/{name}.md#licence-and-limits)"


def _tasks():
    for name in keras_lm.tasks.__all__:
        if name in TASKS:  # neither the base class nor what trains a task
            yield f"`{name}`", _first_line(TASKS[name])


def _pages():
    for name in model_pages.models(_backbones()):
        yield f"[{model_pages.title(name)}](models/{name}.md)", f"`keras_lm/models/{name}.py`"


def format_of(cls, key):
    """Return what a model's format of checkpoints is called."""
    return OTHER_FORMATS.get((cls.__name__, key), FORMATS[key])


def _first_line(cls):
    return cls.__doc__.strip().split("\n")[0].split(". ")[0].rstrip(".")


def _short(count):
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.3g}M"


# The name of a table → its header, and what yields its rows.
TABLES = {
    "models": (("model", "what it is", "sizes", "checkpoints"), _models),
    "tasks": (("model", "tokenizer", "tasks"), _tasks_of_models),
    "sizes": (("size", "model", "parameters", "weights", "licence"), _sizes),
    "pages": (("page", "file"), _pages),
    "answers": (("task", "what it does"), _tasks),
}


def count_parameters():
    """Return the number of parameters of each size, a dict of the sizes' names.

    Those that are counted already are kept: after a change of a size, delete its line.
    """
    return {name: parameters_of(name) for name in sizes()}


if __name__ == "__main__":
    COUNTED.write_text(f"{json.dumps(count_parameters(), indent=2)}\n", encoding="utf-8")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    model_pages.write(_backbones(), format_of)
