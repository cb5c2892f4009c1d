"""A page for each model, `models/NAME.md`: what the code says of it, with what is said by hand.

`tables.py` writes what stands between its marks, and begins the page of a new model.
"""

import importlib
import re
import sys
from pathlib import Path

from keras_lm.inspection import find_sizes
from keras_lm.models.sizes import TRAINING_BYTES

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "docs" / "models"
PLACE = re.compile(r"<!-- model: written by docs/tables\.py -->\n.*?<!-- end -->", re.S)
# What to pass to `from_preset`, by the format of a checkpoint.
SOURCES = {
    "allennlp": "the folder with `NAME_options.json` and `NAME_weights.hdf5`",
    "cove": "the folder with `wmtlstm-*.pth`, and the word vectors that it reads",
    "fairseq": "the folder with `model.pt` and `dict.txt`",
    "fastai": "the folder with the `.pth` or `.h5` file and `itos*.pkl`",
    "google": "the folder with the `.ckpt` files, the configuration and the vocabulary",
    "huggingface": "`{hub}`, or a folder with `config.json` and the weights",
    "keras_hub": "the folder with `config.json` and `model.weights.h5`",
    "model_garden": "the folder with the configuration and `NAME.index`",
    "openai": "the folder with `params_shapes.json` and `params_*.npy`",
    "transformer_xl": "the folder with `model.pt`",
    "trax": "the folder with `model.pkl` or `model.pkl.gz`, and `config.gin`",
    "word_vectors": "the file, gzipped or not",
}
# What the rows of benchmarks call a size of a model.
MEASURED = {
    "bert": "BERT-base",
    "electra": "ELECTRA-small",
    "elmo": "ELMo",
    "gpt2": "GPT-2",
    "t5": "T5-small",
    "transformer": "Transformer-base",
}


def models(backbones):
    """Return a dict from names of files to the classes in them.

    Args:
        backbones: dict from names to classes.
    """
    results = {}
    for cls in backbones.values():
        results.setdefault(cls.__module__.rpartition(".")[2], []).append(cls)
    return results


def title(name):
    """Return what a model is called."""
    return importlib.import_module(f"keras_lm.models.{name}").__doc__.partition(":")[0]


def fill(text, name, classes, formats):
    """Return the text of a page with what the code says now.

    Args:
        text: str, of the page; an empty one begins it.
        name: str, of the model's file.
        classes: list of the backbones in it.
        formats: callable from a class and a format of checkpoints to what that is called.
    """
    text = text or f"# {title(name)}\n\n<!-- model: written by docs/tables.py -->\n<!-- end -->\n"
    lines = ["<!-- model: written by docs/tables.py -->", *_lines(name, classes, formats)]
    return PLACE.sub(lambda results: "\n".join([*lines, "<!-- end -->"]), text)


def _lines(name, classes, formats):
    module = importlib.import_module(f"keras_lm.models.{name}")
    first, *others = module.__doc__.strip().split("\n\n")
    what, _, differs = first.partition("\n")
    what = what.partition(": ")[2]
    yield from (what[0].upper() + what[1:], "")
    paragraphs = [differs, *others]
    yield from (f"{text}\n" for text in paragraphs if text and not text.startswith("Shapes:"))
    for cls in classes:
        source = re.search(r"\bSource: (.*?)(?:\n\n|\Z)", cls.__doc__, re.S)
        source = f": {' '.join(source[1].split())}" if source else ""
        yield f"- `{cls.__name__}`{source}"
    yield f"- The network: [keras_lm/models/{name}.py](../../keras_lm/models/{name}.py)"
    test = REPOSITORY / "tests" / "models" / f"test_{name}.py"
    if test.exists():
        checked = re.match(r'"""(.*?)(?:"""|\n\n)', test.read_text(encoding="utf-8"), re.S)
        yield f"- Tested: {' '.join(checked[1].split())}"
    yield from ("", "## Sizes", "")
    names = {size for cls in classes for size in cls.SIZES}
    rows = [row for row in find_sizes() if row["size"] in names]
    if rows:
        yield "| size | parameters | GB of weights, float32 | GB to train, by Adam | published at |"
        yield "| --- | ---: | ---: | ---: | --- |"
    else:
        yield "There is no list of sizes: you choose them, or a checkpoint does."
    for row in rows:
        weights, training = (row["parameters"] * of / 1e9 for of in (4, TRAINING_BYTES))
        published = f"`{row['published']}`" if row["published"] else "nowhere"
        cells = f"{row['parameters']:,} | {weights:.2f} | {training:.2f} | {published}"
        yield f"| `{row['size']}` | {cells} |"
    if rows:
        yield from ("", "What a step of training keeps beside the weights comes on top of that.")
    yield from ("", "## Load", "")
    hub = [row["published"] for row in rows if (row["published"] or "").startswith("hf://")]
    yield from _ways(classes[0], formats, hub[0] if hub else "hf://owner/name")
    yield from ("## Tasks", "", *(_tasks(cls) for cls in classes), "")
    yield from _speed(name)


def _ways(cls, formats, hub):
    loads = rf"`keras_lm.models.{cls.__name__}.from_preset(source)`"
    if not cls.CONVERTERS:
        yield from (f"It is not published: {loads} reads what `save_to_preset` wrote.", "")
        return
    yield from (f"A task's `from_preset`, or {loads}, takes as its source:", "")
    yield from ("| published by | source |", "| --- | --- |")
    for key in cls.CONVERTERS:
        yield f"| {formats(cls, key)} | {SOURCES[key].format(hub=hub)} |"
    yield from ("", "[Where weights come from](../sources.md) has the details.", "")


def _tasks(cls):
    page = (REPOSITORY / "docs" / "models.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{cls.__name__}` \| ([^|]*) \| ((?:\w+, )*\w+) \|$", page, re.M)
    names = ", ".join(f"`{task}`" for task in row[2].split(", "))
    tokenizer = row[1] if " " in row[1] else f"`{row[1]}`"
    return f"- `{cls.__name__}`: {names}; its tokenizer: {tokenizer}"


def _speed(name):
    """Lines of what benchmarks measured, on the processor that most rows were measured on."""
    if name not in MEASURED:
        return
    sys.path.append(str(REPOSITORY / "benchmarks"))
    import pages
    import report

    best, results = None, []
    for result in report.load(REPOSITORY / "benchmarks" / "results"):
        rows = [cells for cells in pages.comparisons(result) if MEASURED[name] in cells[0]]
        if len(rows) > len(results):
            best, results = result["processor"], rows
    yield from ("## Speed", "", f"On an {best}; [benchmarks](../benchmarks.md) has others.", "")
    yield "| | unit | keras_lm | fastest peer | | its time ÷ keras_lm's |"
    yield "| --- | --- | ---: | --- | ---: | ---: |"
    for cells in results:
        yield f"| {' | '.join(cells)} |"
    yield ""


def write(backbones, formats):
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, classes in models(backbones).items():
        page = FOLDER / f"{name}.md"
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        page.write_text(fill(text, name, classes, formats), encoding="utf-8")
