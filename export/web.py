"""Export as a web page: a folder whose model answers in the browser, by LiteRT.js.

It has no parts that run on a server.
"""

import base64
import hashlib
import html
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np

from keras_lm.export import tflite
from keras_lm.export.comparison import WEB_MODEL, answer_in_fresh_process
from keras_lm.presets import saving
from keras_lm.utils.files import on_disk, replacing, require_free
from keras_lm.utils.quiet_stderr import quiet

HERE = Path(__file__).parent

# The version of LiteRT.js, which is @litertjs/core and @litertjs/wasm-utils of npm, and the hash of
# each file of these packages that a page loads.
LITERT_JS = json.loads((HERE / "litert_js.json").read_text("utf-8"))
RUNTIME, VERSION = LITERT_JS["files"], LITERT_JS["version"]
CDN = "https://cdn.jsdelivr.net/npm/@litertjs/"  # which serves npm's files as they are
PACKAGES = ("core", "wasm-utils")

TITLES = {
    "text": "Text",
    "text_pair": "Second text",
    "question": "Question",
    "context": "Text that may answer it",
}


def export_web(task, path, weights, freeze, verify, runtime=None, num_bytes=None, num_rows=1):
    """Write a folder with a page that asks the model, for any host of files; it is replaced whole.

    It has `index.html`, `model.tflite` and `README.md`, the card. With `runtime`, a folder of
    `node_modules/@litertjs`, also `litert/`, LiteRT.js's files; without, the page loads them from
    jsDelivr. The page refuses all of them, and the model, if they have other hashes than now.

    For what the `.tflite` takes and returns see `keras_lm.tasks.fixed_signatures.FixedSignatures`,
    also for `num_bytes` and `num_rows`. Its answers are compared in LiteRT's `CompiledModel`, which
    LiteRT.js is made of, too.

    Raises:
        ValueError: if a page has no place for the task's answers; or see `export_tflite`.
        FileNotFoundError: if `runtime` lacks a file.
        FileExistsError: if `path` is a file, or a folder with other things.
    """
    path = on_disk(path)
    offer = task.fixed_signatures(num_bytes, num_rows)
    require_free(path, "is not such a page", WEB_MODEL)
    sources = None if runtime is None else _sources(Path(runtime).expanduser())
    with replacing(path) as new:
        new.mkdir()
        if sources:
            _copy(sources, new / "litert")
        model = tflite.write(
            task, new / WEB_MODEL, weights, freeze, lambda _: None, offer, allowed=()
        )
        _require_same_answers(model, offer)
        page = (HERE / "web_page.html").read_text("utf-8")
        page = page.replace(" ADDRESS", "" if sources else f" {CDN}")
        files = {
            "index.html": page.replace("TITLE", html.escape(path.absolute().name)),
            "model.js": (HERE / "web_model.js").read_text("utf-8"),
            "model.json": json.dumps(_described(offer, model, sources), indent=1),
            saving.CARD: saving.card_of_page(task),
        }
        for name, text in files.items():
            (new / name).write_text(text, "utf-8")
        verify(new)
    return path


def _sources(folder):
    """Return the files of LiteRT.js in a folder: name → `Path`."""
    places = [folder, folder.parent, folder / "@litertjs", folder / "node_modules" / "@litertjs"]
    for place in places:
        sources = {name: place / name for name in RUNTIME}
        if all(source.is_file() for source in sources.values()):
            return sources
    missing = [name for name in RUNTIME if not (folder / name).is_file()]
    raise FileNotFoundError(
        f"runtime={str(folder)!r} lacks {missing[0]}, and perhaps more of LiteRT.js: run `npm "
        f"install @litertjs/core@{VERSION}`, and pass node_modules/@litertjs; or leave it out, and "
        "the page loads these files from a CDN."
    )


def _copy(sources, folder):
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)
    for package in PACKAGES:  # which say the version and the licence
        source = sources[f"{package}/dist/index.js"].parents[1] / "package.json"
        if source.is_file():
            shutil.copyfile(source, folder / package / source.name)


def _described(offer, model, sources):
    """Return what `model.json` says: what the model takes and returns, and which files it needs."""
    files = {}
    for name, known in RUNTIME.items():
        package, _, rest = name.partition("/")
        url = f"litert/{name}" if sources else f"{CDN}{package}@{VERSION}/{rest}"
        key = package if rest == "dist/index.js" else Path(name).name
        files[key] = {"url": url, "integrity": _integrity(sources[name]) if sources else known}
    files["model"] = {"url": WEB_MODEL, "integrity": _integrity(model)}
    columns = [name for name in offer.lite_texts() if f"{name}_ends" in offer.lite_texts()]
    return {
        "kind": offer.kind,
        "fields": [(name, TITLES[name]) for name in columns],
        "compares": offer.kind == "embed" and len(columns) == 1,
        "bytes": offer.num_bytes // offer.num_rows,
        "rows": offer.num_rows,
        "side": offer.task.packer.truncation_side,
        "unread": "words" if offer.kind == "tag" else "tokens",
        "classes": getattr(offer.task, "class_names", None) or [],
        "files": files,
    }


def _integrity(path):
    digest = hashlib.sha384(path.read_bytes()).digest()
    return f"sha384-{base64.b64encode(digest).decode()}"


def _require_same_answers(model, offer):
    """Raise a ValueError if LiteRT answers otherwise where it sizes outputs before a run.

    It does in the browser, where it would be wrong in silence; `Interpreter` sizes them after.
    """
    if importlib.util.find_spec("ai_edge_litert") is None:
        return
    ((name, inputs),) = offer.lite_requests()
    with quiet():
        expected = tflite.open_interpreter(model).get_signature_runner(name)(**inputs)
    answer = answer_in_fresh_process(model, "compiled", inputs, name)
    for key, array in expected.items():
        if not np.allclose(answer[key], array, atol=1e-3):
            raise ValueError(
                f"{type(offer.task).__name__} does not run in a browser: its {key} differ there. "
                "Export it in another format."
            )
