"""A page for browsers: what is in its folder, how its model answers, and what is refused."""

import base64
import hashlib
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.export import check, web
from keras_lm.litert import InterpreterPool
from keras_lm.models import GPT2Backbone

interpreters = pytest.importorskip("ai_edge_litert.interpreter", reason="needs the extra litert")

NAME = "good & <bad>"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """A folder with files that are called as LiteRT.js's are."""
    folder = tmp_path_factory.mktemp("node_modules") / "@litertjs"
    for name in [*web.RUNTIME, "core/package.json", "core/dist/other.js"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"// {name}")
    return folder


@pytest.fixture(scope="module")
def critic(make_backbone, tokenizer):
    return tasks.TextClassifier(
        make_backbone(), class_names=["bad", "good"], tokenizer=tokenizer, text_pair=False
    )


@pytest.fixture(scope="module")
def page(critic, runtime, tmp_path_factory):
    return critic.export(
        tmp_path_factory.mktemp("pages") / NAME, format="web", runtime=runtime.parent, num_bytes=90
    )


def without_a_model(monkeypatch):
    """Let pages have a file that stands for the model, which takes no time."""

    def write(task, path, *_, **__):
        path.write_bytes(b"a model")
        return path

    monkeypatch.setattr(web.tflite, "write", write)
    monkeypatch.setattr(web, "_require_same_answers", lambda *_: None)


def described(page):
    return json.loads((page / "model.json").read_text())


def test_a_folder_has_all_that_a_page_needs(page, runtime):
    files = {str(file.relative_to(page)) for file in page.rglob("*") if file.is_file()}
    own = {"index.html", "model.js", "model.json", "model.tflite", "README.md"}
    copied = {f"litert/{name}" for name in [*web.RUNTIME, "core/package.json"]}
    assert files == own | copied
    description = described(page)
    for file in description["files"].values():
        algorithm, _, digest = file["integrity"].partition("-")
        content = (page / file["url"]).read_bytes()
        assert digest == base64.b64encode(hashlib.new(algorithm, content).digest()).decode()
    description.pop("files")
    assert description == {
        "kind": "classify",
        "fields": [["text", "Text"]],
        "compares": False,
        "bytes": 90,
        "rows": 1,
        "side": "right",
        "unread": "tokens",
        "classes": ["bad", "good"],
    }


def test_the_page_is_short_and_asks_no_other_host(page):
    html = (page / "index.html").read_text()
    assert len(html.splitlines()) <= 150
    assert "<h1>good &amp; &lt;bad&gt;</h1>" in html
    assert "TITLE" not in html and "ADDRESS" not in html
    assert "connect-src 'self'\">" in html
    everything = html + (page / "model.js").read_text() + (page / "model.json").read_text()
    assert re.findall(r"https?:[^ \"']*", everything) == []


def test_the_stock_interpreter_answers_as_the_task(page, critic, texts):
    serve = interpreters.Interpreter(str(page / "model.tflite")).get_signature_runner()
    details = serve.get_input_details()
    shapes = {name: details[name]["shape_signature"].tolist() for name in details}
    assert shapes == {"call": [], "text": [90], "text_ends": [1]}
    offer = critic.fixed_signatures(90)
    for text in texts:
        answer = serve(**offer.lite_batch({"text": [text]}))
        read = offer.cut(text.encode() if isinstance(text, str) else text, 90)
        expected = critic.answer({"text": tf.constant([read])})
        np.testing.assert_allclose(answer["scores"], expected["scores"], atol=1e-5)
        assert critic.class_names[answer["labels"][0]].encode() == expected["labels"][0].numpy()
        # 18 words of five letters fit, and all of their tokens.
        assert answer["unread"].tolist() == [0]


def test_python_asks_it_with_strings_that_fit(page, critic):
    pool = InterpreterPool(page / "model.tflite", num_threads=1)
    text = ["the film was good"]
    answer = pool.run("serving_default", {"text": text, "call": 7})
    assert answer["call"] == 7
    np.testing.assert_allclose(answer["scores"], critic.classify(text)["scores"], atol=1e-5)
    with pytest.raises(ValueError, match=r"text has 91 bytes, and this .tflite takes 90"):
        pool.run("serving_default", {"text": ["a" * 91], "call": 7})
    with pytest.raises(ValueError, match=r"text has 2 rows, and this .tflite takes 1"):
        pool.run("serving_default", {"text": ["a", "b"], "call": 7})


def test_without_a_runtime_it_comes_from_a_pinned_address(critic, monkeypatch, tmp_path):
    without_a_model(monkeypatch)
    page = critic.export(tmp_path / "page", format="web")
    assert not (page / "litert").exists()
    files = described(page)["files"]
    files.pop("model")
    for file in files.values():
        assert re.match(r"https://cdn\.jsdelivr\.net/npm/@litertjs/[a-z-]+@2\.5\.3/", file["url"])
        assert re.fullmatch(r"sha384-[\w+/]{64}", file["integrity"])
    assert len({file["integrity"] for file in files.values()}) == 6
    html = (page / "index.html").read_text()
    assert f"connect-src 'self' {web.CDN}\">" in html


def test_a_page_is_replaced_whole_or_not_at_all(critic, page, runtime, monkeypatch, tmp_path):
    without_a_model(monkeypatch)
    path = tmp_path / "page"
    critic.export(path, format="web", runtime=runtime)
    critic.export(path, format="web", num_bytes=70)
    assert described(path)["bytes"] == 70 and not (path / "litert").exists()

    def fails(*_):
        raise ValueError("differs")

    monkeypatch.setattr(web, "_require_same_answers", fails)
    with pytest.raises(ValueError, match="differs"):
        critic.export(path, format="web", num_bytes=80)
    assert described(path)["bytes"] == 70
    assert [file.name for file in tmp_path.iterdir()] == ["page"]

    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("precious")
    with pytest.raises(FileExistsError, match=r"site exists and is not such a page"):
        critic.export(site, format="web")
    assert (site / "index.html").read_text() == "precious"


def test_what_has_no_place_on_a_page_is_refused_by_name(make_backbone, tokenizer, tmp_path):
    def export(task, **options):
        task.export(tmp_path / "page", format="web", **options)

    for kind in (tasks.MaskedLM, tasks.MultipleChoice, tasks.Pretrainer):
        with pytest.raises(ValueError, match=rf"no place for the answers of a {kind.__name__}"):
            export(kind(make_backbone(), tokenizer=tokenizer))
    with pytest.raises(ValueError, match=r"no place for the answers of a CausalLM"):
        network = GPT2Backbone(tokenizer.vocabulary_size, 1, 2, 8, 8, max_sequence_length=16)
        export(tasks.CausalLM(network, tokenizer=tokenizer))
    with pytest.raises(ValueError, match=r"FeatureExtractor has more than one vector"):
        export(tasks.FeatureExtractor(make_backbone(), pooling="none", tokenizer=tokenizer))
    several = tasks.MultiTask(
        {"stars": tasks.TextRegressor(make_backbone(), tokenizer=tokenizer, name="stars")}
    )
    with pytest.raises(ValueError, match=r"this MultiTask has \['stars'\]"):
        export(several)
    regressor = tasks.TextRegressor(make_backbone(), tokenizer=tokenizer)
    with pytest.raises(ValueError, match=r"freeze=True: leave it out"):
        export(regressor, freeze=True)
    with pytest.raises(ValueError, match=r"TextRegressor has no tokenizer"):
        export(tasks.TextRegressor(make_backbone()))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"lacks core/dist/index.js.*`npm install @litert"):
        export(regressor, runtime=tmp_path / "empty")
    with pytest.raises(ValueError, match=r"runtime, num_bytes and num_rows are of a page"):
        regressor.export(tmp_path / "model.tflite", num_bytes=9)
    assert [file.name for file in tmp_path.iterdir()] == ["empty"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    ["float32", *(pytest.param(w, marks=pytest.mark.thorough) for w in ("float16", "int8"))],
)
def test_texts_decide(make_backbone, tokenizer, texts, tmp_path, weights):
    """Of a question answerer, in rows of two, by each kind of weights."""
    task = tasks.QuestionAnswerer(make_backbone(), num_answers=3, tokenizer=tokenizer)
    reports = []
    path = task.export(
        tmp_path / "page",
        format="web",
        weights=weights,
        num_rows=2,
        texts={"question": texts, "context": texts[::-1]},
        tolerance=None if weights == "float32" else 1.0,
        report=reports.append,
    )
    (report,) = reports
    assert (
        report.num_texts == len(texts) and {"scores", "start", "end"} <= report.differences.keys()
    )
    if weights == "float32":
        assert check(path, task, {"question": ["the film?"], "context": ["a bad song"]})
