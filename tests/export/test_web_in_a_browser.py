"""The page of an export in Chromium, with LiteRT.js from npm: 200 texts answered as in Python."""

import base64
import functools
import http.server
import json
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from browser import open_chromium

from keras_lm import tasks
from keras_lm.export import tflite, web
from keras_lm.models import AlbertBackbone, BertBackbone, RobertaBackbone
from keras_lm.tokenizers import BytePairTokenizer, SentencePieceTokenizer, WordPieceTokenizer

pytestmark = pytest.mark.slow  # exports, a browser and a package of npm

WORDS = """
the film was not good, a very loud Song! naïve café Straße ıİ ǅ Ünïcode
日本語 のテキスト 中文字 한국어 ไทย हिन्दी العربية עברית 😀 👍 👍🏽 ﬁ ① ½ ²x 𝔘𝔫𝔦 ΟΔΥΣΣΕΥΣ
don't it's 3.14 1,000 [MASK] [SEP] </s> <unk> http://a.b/c?d=e ¿¡ — “x” … supercalifragilistic
""".split()  # noqa: SIM905
WORDS += [
    "e\u0301",
    "n\u0303o",
    "\u200dzero\u200c",
    "\ufeffbom",
    "👨\u200d👩\u200d👧",
    "\u00a0\u3000\u2028",
]
WORDS += ["\x00", "\x07", "\x7f"]
LONG = ["word " * 5000, "日本" * 3000, "e\u0301" * 4000, "\u3000" * 9000 + "end", "x" * 20_000]


def make_texts():
    """200 texts: hard words alone and in lines of up to 60, spaces of all kinds, and long ones."""
    random = np.random.default_rng(0)
    texts = ["", " ", "\n\n", *WORDS, *LONG]
    while len(texts) < 200:
        words = random.choice(WORDS, random.integers(1, 60))
        texts.append(str(random.choice([" ", "  ", "\n", "\t", ""])).join(words))
    return texts[:200]


def spread(backbone):
    random = np.random.default_rng(1)
    for weight in backbone.weights:
        weight.assign_add(0.1 * random.normal(size=weight.shape))
    return backbone


def make_tasks(goldens):
    """A task of each kind that a page has, over each kind of tokenizer."""
    files = goldens("tokenizers")
    word_pieces = WordPieceTokenizer.from_files(files / "wordpiece-uncased")
    byte_pairs = BytePairTokenizer.from_files(files / "bytebpe-roberta")
    unigrams = SentencePieceTokenizer.from_files(files / "sentencepiece-albert")

    def bert():
        return spread(
            BertBackbone(word_pieces.vocabulary_size, 1, 2, 16, 32, max_sequence_length=64)
        )

    roberta = RobertaBackbone(byte_pairs.vocabulary_size, 1, 2, 16, 32, max_sequence_length=64)
    albert = AlbertBackbone(
        unigrams.vocabulary_size, 1, 2, 16, 32, embedding_dim=8, max_sequence_length=64
    )
    return {
        "classes": tasks.TextClassifier(
            bert(),
            class_names=["bad", "good", "<b>odd</b>"],
            tokenizer=word_pieces,
            text_pair=False,
        ),
        "pairs": tasks.TextClassifier(
            spread(roberta),
            class_names=["x", "y"],
            multi_label=True,
            tokenizer=byte_pairs,
            text_pair=True,
        ),
        "vectors": tasks.FeatureExtractor(spread(albert), tokenizer=unigrams, normalize=True),
        "words": tasks.TokenClassifier(
            bert(), class_names=["O", "B-PER", "I-PER"], tokenizer=word_pieces
        ),
        "answers": tasks.QuestionAnswerer(bert(), num_answers=5, stride=16, tokenizer=word_pieces),
    }


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """LiteRT.js from npm: a folder with both packages."""
    if not shutil.which("npm"):
        pytest.skip("needs npm on PATH, for LiteRT.js")
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--ignore-scripts", "--no-audit", f"@litertjs/core@{web.VERSION}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"npm cannot install LiteRT.js: {done.stderr[-300:]}")
    return folder / "node_modules" / "@litertjs"


@pytest.fixture(scope="module")
def pages(goldens, runtime, tmp_path_factory):
    """The tasks by name, the address of their pages, and the requests for files that came."""
    folder, asked = tmp_path_factory.mktemp("pages"), []
    made = make_tasks(goldens)
    for name, task in made.items():
        task.export(folder / name, format="web", runtime=runtime, weights="float32")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append((self.command, self.path))

    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made, f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    driver = open_chromium(tmp_path_factory.mktemp("chromium"))
    driver.set_script_timeout(300)
    yield driver
    driver.quit()


def open_page(driver, address):
    driver.get(address)
    wait_until(
        lambda: find(driver, "#ask").is_enabled() or "cannot" in find(driver, "#status").text
    )
    assert find(driver, "#status").text == ""


def wait_until(is_true):
    for _ in range(600):
        if is_true():
            return
        time.sleep(0.1)
    raise TimeoutError("the page does not get there")


def find(driver, css):
    return driver.find_element("css selector", css)


ASK = """
const [texts, done] = arguments;
(async () => {
  const { loadModel } = await import("./model.js");
  const model = await loadModel(), answers = [];
  for (const text of texts) {
    const { notes, texts: read, call, ...numbers } = await model.ask(text);
    answers.push({ notes, read: Object.values(read).map((text) => text.join("")),
      numbers: Object.fromEntries(Object.entries(numbers).map(([name, x]) => [name, [...x]])) });
  }
  return answers;
})().then(done, (error) => done({ error: `${error.stack}` }));
"""


def ask(driver, address, rows):
    """Return what the model of a page answers to rows of texts by name."""
    # Its own page lets nothing be loaded any more, so it is another one beside the model.
    driver.get(address + "README.md")
    answers = driver.execute_async_script(ASK, rows)
    assert not isinstance(answers, dict), answers["error"]
    return answers


def rows_of(task):
    texts = make_texts()
    others = texts[1:] + texts[:1]
    return [dict(zip(task.answer_names, row)) for row in zip(texts, others)]


@pytest.mark.parametrize("name", ["classes", "pairs", "vectors", "words", "answers"])
def test_200_texts_are_answered_as_in_python(driver, pages, name):
    made, address, _ = pages
    task = made[name]
    rows = rows_of(task)
    answers = ask(driver, f"{address}/{name}/", rows)
    cut = [any("bytes were read" in note for note in answer["notes"]) for answer in answers]
    assert 2 <= sum(cut) <= 20
    for row, answer, is_cut in zip(rows, answers, cut):
        assert (list(row.values()) == answer["read"]) != is_cut
    # Texts that were cut are asked as they were read, and whole where the model has no room anyway.
    read = [dict(zip(task.answer_names, answer["read"])) for answer in answers]
    columns = {name: [row[name] for row in read] for name in task.answer_names}
    expected = task.answer_all(columns, verbose=0)
    for index, answer in enumerate(answers):
        numbers, own = answer["numbers"], {k: x[index] for k, x in expected.items()}
        if name == "classes":
            assert task.class_names[numbers["labels"][0]] == own["labels"]
        if name == "pairs":
            labels = [task.class_names[n] for n in numbers["labels"] if n >= 0]
            assert labels == [label for label in own["labels"] if label]
        if name == "words":
            labels = [[*task.class_names, ""][n] for n in numbers["labels"]]
            words = len(own["labels"])
            assert labels[:words] == own["labels"].tolist() and set(labels[words:]) <= {""}
            numbers = {k: x[:words] for k, x in numbers.items()}
        for key in ("start", "end"):
            assert key not in own or numbers[key] == own[key].tolist()
        for key in ("scores", "embedding"):
            if key in own:
                np.testing.assert_allclose(numbers[key], own[key], atol=1e-5)


def test_long_texts_end_where_the_task_ends_them(driver, pages):
    """With 16 bytes for each token, nothing that the task reads is left out of usual texts."""
    made, address, _ = pages
    texts = LONG[:2]
    answers = ask(driver, f"{address}/classes/", [{"text": text} for text in texts])
    expected = made["classes"].answer_all(texts, verbose=0)
    for answer, scores in zip(answers, expected["scores"]):
        np.testing.assert_allclose(answer["numbers"]["scores"], scores, atol=1e-5)
        assert [note.split(":")[0] for note in answer["notes"]] == [
            "Text",
            "Too long for the model",
        ]


def fill(driver, **texts):
    for name, text in texts.items():
        driver.execute_script("arguments[0].value = arguments[1]", find(driver, f"#{name}"), text)
    find(driver, "#ask").click()
    wait_until(lambda: find(driver, "#ask").is_enabled() and find(driver, "#answer").is_displayed())
    return find(driver, "#answer").text.splitlines()


def test_a_person_sees_answers_and_what_was_cut(driver, pages):
    made, address, _ = pages
    open_page(driver, f"{address}/classes/")
    shown = fill(driver, text="<img src=x> naïve 😀")
    answer = made["classes"].classify(["<img src=x> naïve 😀"])
    assert shown[0] == answer["labels"][0] and "<b>odd</b>" in shown
    assert shown[2] == f"{answer['scores'].max():.3f}"
    assert not driver.find_elements("css selector", "#answer .note, #answer img, #answer b")
    shown = fill(driver, text="word " * 5000)
    assert shown[0] == "Text: only the first 1024 of 25000 bytes were read."
    assert shown[1].startswith("Too long for the model: ")

    open_page(driver, f"{address}/vectors/")
    vectors = made["vectors"].embed(["a good film", "Straße"])["embedding"]
    assert (
        fill(driver, text="a good film", other="Straße")[0]
        == f"Cosine {vectors[0] @ vectors[1]:.3f}"
    )
    assert fill(driver, text="a good film", other="")[0].startswith("16 numbers, of length 1.000")

    open_page(driver, f"{address}/answers/")
    data = {"question": ["Who 😀?"], "context": ["👍🏽 naïve Ada wrote it, or Bob."]}
    (best,) = made["answers"].answer(data)[0]
    shown = fill(driver, **{name: column[0] for name, column in data.items()})
    assert shown[0] == (best["text"] or "No answer")
    assert find(driver, "#answer mark").get_property("textContent") == best["text"]

    open_page(driver, f"{address}/words/")
    text = "😀 Ada Lovelace,\nnaïve as Bob the film was good and loud in Straße"
    fill(driver, text=text)
    entities = made["words"].entities([text])[0]
    marks = driver.find_elements("css selector", "#answer mark")
    first = "return arguments[0].firstChild.textContent"
    assert [driver.execute_script(first, mark) for mark in marks] == [
        entity["text"] for entity in entities
    ]
    assert entities and {mark.find_element("css selector", "small").text for mark in marks} == {
        "PER"
    }


def test_no_text_leaves_the_browser(driver, pages):
    _, address, asked = pages
    open_page(driver, f"{address}/pairs/")
    before = len(asked)
    fill(driver, text="secret", text_pair="another secret")
    assert len(asked) == before
    send = "fetch('/?secret').then(() => arguments[0]('sent'), () => arguments[0]('refused'));"
    assert driver.execute_async_script(send) == "refused"
    assert len(asked) == before
    assert {command for command, _ in asked} == {"GET"}


def test_a_changed_file_is_refused(driver, pages):
    """The words' page does not take the model of the classes."""
    _, address, _ = pages
    driver.get(f"{address}/words/README.md")
    script = """
    const done = arguments[0], { fetch } = self;
    self.fetch = (url, how) => fetch(`${url}`.replace("words/model.t", "classes/model.t"), how);
    import("./model.js").then(({ loadModel }) => loadModel())
      .then(() => done("loaded"), (error) => done(error.name));
    """
    assert driver.execute_async_script(script) == "TypeError"


def test_browsers_without_relaxed_simd_have_another_runtime(driver, pages):
    made, address, asked = pages
    driver.get(f"{address}/words/README.md")
    driver.execute_script("WebAssembly.validate = () => false")
    asked.clear()
    script = """
    const done = arguments[0];
    import("./model.js").then(({ loadModel }) => loadModel())
      .then((model) => model.ask({ text: "a naïve song" }))
      .then(({ scores }) => done([...scores.slice(0, 3)]), (error) => done(`${error}`));
    """
    scores = driver.execute_async_script(script)
    np.testing.assert_allclose(scores, made["words"].tag(["a naïve song"])["scores"][0], atol=1e-5)
    runtimes = [path for _, path in asked if path.endswith(".wasm")]
    assert runtimes == ["/words/litert/core/wasm/litert_wasm_compat_internal.wasm"]


def test_a_failed_operation_is_an_error(driver, pages, tmp_path):
    """LiteRT.js raises none: it returns what is in its memory."""
    made, address, _ = pages
    task = made["classes"]
    tokenize = task.tokenizer.tokenize_lite

    def wrong_ids_of_long_texts(text):
        ids = tokenize(text)
        return ids.with_values(ids.values + 10**6 * tf.cast(tf.size(ids.values) > 20, tf.int32))

    task.tokenizer.tokenize_lite = wrong_ids_of_long_texts
    try:
        offer = task.fixed_signatures()
        model = tflite.write(
            task, tmp_path / "m.tflite", "float32", False, lambda _: None, offer, allowed=()
        )
    finally:
        del task.tokenizer.tokenize_lite
    driver.get(f"{address}/classes/README.md")
    driver.execute_script(
        "self.broken = arguments[0]", base64.b64encode(model.read_bytes()).decode()
    )
    script = """
    const done = arguments[0], { fetch } = self;
    const broken = Uint8Array.from(atob(self.broken), (byte) => byte.charCodeAt(0));
    self.fetch = async (url, how) =>
      `${url}`.endsWith("model.tflite") ? new Response(broken) : fetch(url, how);
    (async () => {
      const { loadModel } = await import("./model.js"), model = await loadModel();
      const first = await model.ask({ text: "a film" });
      const long = { text: "film ".repeat(30) };
      const second = await model.ask(long).catch((error) => error.message);
      const third = await model.ask({ text: "a film" });
      return [first.scores.join(), second, third.scores.join()];
    })().then(done, (error) => done([`${error}`]));
    """
    first, second, third = driver.execute_async_script(script)
    assert second == "The model cannot read this text: the console says why."
    assert first == third


def test_the_pinned_hashes_are_those_of_npm(runtime):
    version = json.loads((runtime / "core" / "package.json").read_text())["version"]
    assert version == web.VERSION
    for name, integrity in web.RUNTIME.items():
        assert web._integrity(runtime / name) == integrity
