"""The page in a real browser: what a person types, sees and copies, and that nothing breaks out."""

import contextlib
import csv
import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from browser import open_chromium
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from keras_lm import tasks
from keras_lm.knowledge import ConceptStore, SchemaGraphs
from keras_lm.models import BertBackbone, ErnieBackbone, GPT2Backbone, T5Backbone
from keras_lm.serving import Client, Server, page
from keras_lm.tokenizers import BytePairTokenizer, EntityTokenizer, WordPieceTokenizer

pytestmark = pytest.mark.slow  # a dozen exports and a browser

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "the", "film", "song", "was", "good", "bad", "loud", "##ly", "##er", ".", "!", "<", ">"),
]
CLASSES = ["bad", "good", "<b>odd</b>"]
HOSTILE = (
    "it's <img src=x onerror=document.title='!'> \"$HOME\" `id` \\ !\nnext \U0001f600 </script>"
)
# Characters beyond 16 bits are one to Python and two to JavaScript.
TAGGED = "\U0001f600 good film was\nloud the"
TAGS = ["O", "B-PER", "I-PER", "O", "B-<b>odd</b>", "O"]
STORY = "It was"
WITH_ATTENTION = ("story", "translator", "vectors")
EXAMPLES = {
    "stars": "A film of </script> my own.",
    "knowing": {"text": ["the film"]},
    "choices": {"text": "A film", "choices": ["was loud", "was good"]},
}


class Double(tf.Module):
    """A SavedModel that this library did not make."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def __call__(self, x):
        return {"grid": tf.stack([x, x / 0.0], axis=1), "vector": x, "total": x[:, 0] + x[:, 1]}


class Named(tf.Module):
    """A classifier that this library did not make, which says the names of its classes."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def __call__(self, text):
        rows = tf.size(text)
        return {
            "labels": tf.fill([rows], "<b>right</b>"),
            "scores": tf.tile([[0.25, 0.75]], [rows, 1]),
            "class_names": tf.tile([["left", "<b>right</b>"]], [rows, 1]),
        }


def make_tagger(backbone, tokenizer):
    """Return a task whose last layer is solved for so that `TAGGED` has the labels `TAGS`."""
    names = sorted(set(TAGS))
    task = tasks.TokenClassifier(backbone, class_names=names, tokenizer=tokenizer)
    packed = task.preprocess({"text": tf.constant([TAGGED])})
    states = task.backbone(packed)["sequence_output"][0, 1:-1].numpy()
    wanted = 9.0 * np.array([[tag == name for name in names] for tag in TAGS])
    kernel, bias = (w for w in task.weights if w.path.startswith("classifier/"))
    kernel.assign(np.linalg.pinv(states) @ wanted)
    bias.assign(np.zeros(len(names)))
    return task


def make_story(goldens):
    tokenizer = BytePairTokenizer.from_files(goldens("tokenizers") / "bytebpe-gpt2")
    size = tokenizer.vocabulary_size
    backbone = GPT2Backbone(size, 1, 2, 16, 32, max_sequence_length=64)
    return tasks.CausalLM(backbone, tokenizer=tokenizer)


def make_translator(tokenizer):
    backbone = T5Backbone(tokenizer.vocabulary_size, 1, 2, 16, 24, num_buckets=8)
    for weight in backbone.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    arguments = {"sequence_length": 12, "target_length": 4, "num_beams": 2, "text_pair": False}
    return tasks.Seq2SeqLM(backbone, tokenizer=tokenizer, **arguments)


class Explaining(tf.Module):
    """A choice by a graph of concepts: what `keras_lm.tasks.GraphChoice` exports."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "text"),
            tf.TensorSpec([None, None], tf.string, "choices"),
        ]
    )
    def explain(self, text, choices):
        none = [["", ""]] * 2
        return {
            "labels": tf.constant([1]),
            "scores": tf.constant([[0.25, 0.75]]),
            "pairs": tf.constant([[[["", ""]], [["<b>a_film</b>", "good"]]]]),
            "pair_weights": tf.constant([[[0.0], [1.0]]]),
            "paths": tf.constant(
                [[[["", "", ""]] * 2, [["<b>a_film</b>", "story", "good"], ["film", "good", ""]]]]
            ),
            "relations": tf.constant([[none, [["-IsA", "RelatedTo"], ["HasProperty", ""]]]]),
            "path_weights": tf.constant([[[0.0, 0.0], [0.3, 0.7]]]),
        }

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "text"),
            tf.TensorSpec([None, None], tf.string, "choices"),
        ]
    )
    def choose(self, text, choices):
        results = self.explain(text, choices)
        return {name: results[name] for name in ("labels", "scores")}


def make_knowing():
    """Return a classifier that knows three entities."""
    mentions = {"the film": "Q1", "song": "<b>Q2</b>", "loud": "Q3"}
    tokenizer = EntityTokenizer(VOCABULARY, lowercase=True, mentions=mentions)
    sizes = {"num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24, "entity_dim": 8}
    backbone = ErnieBackbone(len(VOCABULARY), 2, max_sequence_length=16, **sizes)
    backbone = backbone.with_entities(np.eye(3, 8))
    return tasks.TextClassifier(backbone, num_classes=2, tokenizer=tokenizer)


def make_choosing(backbone, tokenizer, folder):
    """Return a task that chooses by a graph in which one way leads from film to story."""
    edges = [("film", 1, "song", 1.0), ("song", 2, "story", 1.0)]
    store = ConceptStore.build(edges, folder, ["IsA", "UsedFor"])
    graphs = SchemaGraphs(store, max_hops=2)
    return tasks.GraphChoice(backbone, graphs, tokenizer=tokenizer, concept_dim=4, relation_dim=4)


@pytest.fixture(scope="module")
def page_server(tmp_path_factory, goldens):
    keras.utils.set_random_seed(1)
    folder = tmp_path_factory.mktemp("models")
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=True)
    backbone = BertBackbone(len(VOCABULARY), 1, 2, 16, 32, max_sequence_length=24)
    made = {
        "critic": tasks.TextClassifier(backbone, class_names=CLASSES, tokenizer=tokenizer),
        "pairs": tasks.TextClassifier(
            backbone,
            class_names=["x", "y"],
            multi_label=True,
            text_pair=True,
            tokenizer=tokenizer,
        ),
        "masks": tasks.MaskedLM(backbone, tokenizer=tokenizer),
        "tagger": make_tagger(backbone, tokenizer),
        "story": make_story(goldens),
        "choices": tasks.MultipleChoice(backbone, tokenizer=tokenizer),
        "reader": tasks.QuestionAnswerer(
            backbone, tokenizer=tokenizer, stride=6, null_threshold=None
        ),
        "vectors": tasks.FeatureExtractor(backbone, tokenizer=tokenizer),
        "token_vectors": tasks.FeatureExtractor(backbone, pooling="none", tokenizer=tokenizer),
        "stars": tasks.TextRegressor(backbone, tokenizer=tokenizer),
        "translator": make_translator(tokenizer),
        "knowing": make_knowing(),
        "choosing": make_choosing(backbone, tokenizer, tmp_path_factory.mktemp("graph") / "store"),
    }
    for name, task in made.items():
        task.export(folder / name, attention=name in WITH_ATTENTION)
    others = {"double": Double(), "named": Named()}
    for name, other in others.items():
        tf.saved_model.save(other, str(folder / name / "1"), signatures=other.__call__)
    explaining = Explaining()
    signatures = {"serving_default": explaining.choose, "explain": explaining.explain}
    tf.saved_model.save(explaining, str(folder / "explaining" / "1"), signatures=signatures)
    tf.saved_model.save(tf.Module(), str(folder / "empty" / "1"))
    # What no test asks for need not be warm.
    for warmup in folder.glob("*/*/assets.extra/tf_serving_warmup_requests"):
        warmup.unlink()
    folders = [folder / name for name in [*made, *others, "explaining", "empty"]]
    with Server(folders, examples=EXAMPLES) as running:
        yield running


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    driver = open_chromium(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


class Page:
    """What a person does on the page."""

    def __init__(self, driver, url):
        self.driver = driver
        driver.get(url)
        self.wait()

    def find(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def texts(self, css):
        return [results.text for results in self.driver.find_elements(By.CSS_SELECTOR, css)]

    def requests(self):
        """Return the addresses that the page has asked."""
        script = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        return self.driver.execute_script(script)

    def wait(self):
        WebDriverWait(self.driver, 30).until(lambda _: self.find("#ask").is_enabled())

    def choose(self, model):
        Select(self.find("#model")).select_by_value(model)
        self.wait()

    def type(self, *texts):
        for area, text in zip(
            self.driver.find_elements(By.CSS_SELECTOR, "#fields textarea"), texts, strict=True
        ):
            self._fill(area, text)

    def set(self, option, value):
        self._fill(self.find(f"#fields [name={option}]"), value)

    def _fill(self, field, text):
        # chromedriver's own keys lack characters beyond 16 bits.
        self.driver.execute_script(
            "arguments[0].value = arguments[1];"
            "arguments[0].dispatchEvent(new Event('input', {bubbles: true}));",
            *(field, text),
        )

    def ask(self, *texts):
        self.type(*texts)
        self.find("#ask").click()
        self.wait()

    def curl(self):
        """Run the command that the page shows, and return the answer."""
        return run_in_bash(self.find("#curl").get_property("textContent"))["outputs"]

    def errors(self):
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture
def browser(chromium, page_server):
    opened = Page(chromium, page_server.rest_url)
    yield opened
    assert opened.errors() == []


def run_in_bash(command):
    done = subprocess.run(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_classifier_answers_with_all_that_a_person_wants_to_see(browser):
    Select(browser.find("#model")).select_by_value("critic")
    browser.ask("The film was badly loud zzz")
    assert browser.find("#version").text == "version 1"
    names, scores = browser.texts("#answer .name"), browser.texts("#answer .score")
    assert sorted(names) == sorted(CLASSES)
    assert browser.find("#answer .head").text == names[0]  # the best one is first
    assert sum(map(float, scores)) == pytest.approx(1, abs=0.002)
    assert scores == sorted(scores, reverse=True)
    assert browser.find("#latency").text.endswith("ms round trip")

    tokens = [text.split("\n")[0] for text in browser.texts(".tokens li")]
    assert tokens == ["[CLS]", "the", "film", "was", "bad", "ly", "loud", "[UNK]", "[SEP]"]
    ids = [text.split("\n")[1] for text in browser.texts(".tokens li")]
    assert ids[:2] == ["2", "6"]
    kinds = [li.get_attribute("class") for li in browser.driver.find_elements("css selector", "li")]
    assert [kind for kind in kinds if kind in ("special", "piece", "unknown", "word")] == [
        *("special", "word", "word", "word", "word", "piece", "word", "unknown", "special")
    ]
    assert "9 tokens" in browser.find("#tokens-title").text
    assert not browser.texts(".cut")


def test_control_and_enter_asks(browser):
    area = browser.find("#fields textarea")
    assert area.get_property("value").startswith("The film was")  # something to ask at once
    area.clear()
    area.send_keys("good", Keys.CONTROL, Keys.ENTER)
    WebDriverWait(browser.driver, 30).until(lambda _: browser.texts("#answer .head"))
    assert area.get_attribute("value") == "good"
    browser.wait()


@pytest.mark.parametrize("text", [HOSTILE, "", "-", "'", "@file", "one\n\ntwo\t\\n"])
def test_the_commands_run_in_a_shell_and_give_the_same_answer(browser, page_server, text):
    browser.ask(text)
    answer = run_in_bash(browser.find("#curl").get_property("textContent"))
    assert answer["outputs"]["labels"] == [browser.find("#answer .head").text]
    command = browser.find("#grpc").get_property("textContent")
    options = ["predict", "--server", f"grpc://{page_server.grpc_address}", "--model", "critic"]
    arguments, _ = run_without_keras_lm(command)
    assert [word for word in arguments if word != "--"] == [*options, text]
    assert ("--" in arguments) == (text == "-")  # what looks like an option follows it


def run_without_keras_lm(command):
    """Run a command line whose `keras-lm` says what it was given: arguments and input."""
    program = "import json, sys; print(json.dumps([sys.argv[1:], sys.stdin.read()]))"
    return run_in_bash(f"keras-lm() {{ {sys.executable} -c '{program}' \"$@\"; }}\n{command}")


def test_hostile_text_and_names_stay_text(browser):
    browser.ask(HOSTILE)
    assert browser.driver.title == "keras_lm – ask a model"
    assert not browser.driver.find_elements("css selector", "main img, main b")
    assert "<img src=x onerror" in browser.find("#curl").text
    assert "<b>odd</b>" in browser.texts("#answer .name")


def test_a_model_cannot_close_the_script():
    names = ["</script><script>alert(1)</script>", "a&b", "\u2028", '"CONFIG"']
    html = page.render(page.data(names, "127.0.0.1:8500"))
    data = html.split('id="config">')[1].split("</script>")[0]
    assert not set(data) & set("<>&\u2028")
    message = json.loads(data)
    assert (message["models"], message["grpc_address"]) == (names, "127.0.0.1:8500")
    assert html.count("</script>") == 2


def test_pairs_show_several_labels_and_their_commands_run(browser, page_server):
    browser.choose("pairs")
    assert browser.texts("#fields label") == ["First text", "Second text"]
    browser.ask("a good film", "it's a bad film")
    assert set(browser.texts("#answer .name")) == {"x", "y"}
    chosen = [text for text in browser.find("#answer .head").text.split(", ") if text in ("x", "y")]
    answer = run_in_bash(browser.find("#curl").get_property("textContent"))
    assert [label for label in answer["outputs"]["labels"][0] if label] == chosen
    tokens = [text.split("\n")[0] for text in browser.texts(".tokens li")]
    assert tokens.count("[SEP]") == 2
    arguments, typed = run_without_keras_lm(browser.find("#grpc").get_property("textContent"))
    assert arguments[-4:] == ["--input", "-", "--format", "jsonl"]
    assert json.loads(typed) == {"text": "a good film", "text_pair": "it's a bad film"}


@pytest.mark.thorough  # TensorFlow is imported twice more
@pytest.mark.parametrize("model, texts", [("critic", [HOSTILE]), ("pairs", ["a film", "it's bad"])])
def test_the_grpc_command_gives_the_same_answer(browser, model, texts):
    browser.choose(model)
    browser.ask(*texts)
    expected = run_in_bash(browser.find("#curl").get_property("textContent"))["outputs"]
    command = browser.find("#grpc").get_property("textContent")
    program = Path(sys.executable).with_name("keras-lm")
    actual = run_in_bash(f'keras-lm() {{ {program} "$@"; }}\n{command}')["answer"]
    assert actual["scores"] == pytest.approx(expected["scores"][0], abs=1e-5)


def test_masks_show_their_candidates(browser):
    browser.choose("masks")
    browser.ask("the [MASK] was [MASK]")
    assert "Mask 2" in browser.texts("#answer .quiet")
    assert len(browser.texts("#answer .bars")) == 2
    browser.ask("the film")
    assert "There is no mask in this text." in browser.texts("#answer .quiet")


def test_masks_are_filled_in_where_they_stand(browser):
    browser.choose("masks")
    browser.ask("The [MASK]\nwas [MASK] !")
    best = browser.texts("#answer .bars li:first-child .name")
    assert browser.texts("#answer mark") == best
    shown = browser.find("#answer .running").get_property("textContent")
    assert shown == "The {}\nwas {} !".format(*best)


def test_a_tagger_shows_the_text_with_labels_over_its_words(browser):
    browser.choose("tagger")
    browser.ask(TAGGED)
    assert browser.texts("#answer .tagged mark") == ["PER\ngood film", "<b>odd</b>\nloud"]
    assert browser.texts("#answer .bars") == []
    text = browser.driver.execute_script(
        "const text = document.querySelector('.tagged').cloneNode(true);"
        "text.querySelectorAll('small').forEach((label) => label.remove());"
        "return text.textContent;"
    )
    assert text == TAGGED
    colours = [
        mark.value_of_css_property("background-color")
        for mark in browser.driver.find_elements("css selector", "#answer .tagged mark")
    ]
    assert len(set(colours)) == 2
    rows = browser.texts("#answer tbody tr")
    scores = browser.curl()["scores"][0]
    assert rows[0] == f"good film PER {np.mean(scores[1:3]):.3f}"
    assert rows[1] == f"loud <b>odd</b> {scores[4]:.3f}"

    browser.ask("film " * 30)  # the model has room for 22 of them
    assert len(browser.texts("#answer .unread")) == 8
    assert "8 words, drawn in grey, were not read." in browser.texts("#answer .quiet")
    browser.ask("")
    assert "No word has a label." in browser.texts("#answer .quiet")


def test_a_language_model_continues_by_the_options_that_a_person_sets(browser, page_server):
    browser.choose("story")
    shown = [text for text in browser.texts("#fields label") if text]
    assert shown == ["Prompt", "Length", "Temperature", "Top-p", "Stop"]
    assert browser.find("#fields [name=temperature]").get_property("value") == "0"
    browser.set("max_new_tokens", "6")
    browser.ask(STORY)
    greedy = browser.curl()
    assert greedy["num_tokens"] == [6]
    assert browser.texts("#answer .prompt") == [STORY]
    running = browser.find("#answer .running").get_property("textContent")
    assert running == STORY + greedy["text"][0]
    assert any(path.endswith("story:stream") for path in browser.requests())  # it came by and by
    assert browser.find("#answer mark").text == greedy["text"][0].strip()
    assert browser.texts("#answer .counts") == ["6 new tokens · 3 tokens of the prompt"]
    assert browser.find("#grpc-title").text == "gRPC, in Python"
    command = browser.find("#grpc").get_property("textContent")
    by_grpc = run_in_bash(f'python() {{ {sys.executable} "$@"; }}\n{command}')
    assert (by_grpc["text"], by_grpc["num_tokens"]) == (greedy["text"], [6])
    metadata = json.loads(browser.find("#curl").text.split("'")[1])
    assert metadata["signature_name"] == "generate"
    assert len(metadata["inputs"]) == 9  # all that the signature takes, as TF Serving wants them

    stop = greedy["text"][0][3:5]
    browser.set("stop", stop.replace("\n", "\\n"))
    browser.ask(STORY)
    cut = greedy["text"][0].split(stop)[0]
    assert browser.find("#answer .running").get_property("textContent") == STORY + cut

    browser.set("stop", "")
    browser.set("temperature", "2.5")
    browser.set("top_p", "0.99")
    browser.set("seed", "3")
    browser.ask(STORY)
    sampled = browser.find("#answer .running").get_property("textContent")
    assert sampled != running
    assert sampled == STORY + browser.curl()["text"][0]  # the seed makes it the same again

    # One more request in the same test: the first of each test has TensorFlow prepare the graph.
    browser.set("max_new_tokens", "1")
    with phone(browser):
        browser.ask("in the, wasp" + "p" * 500)
        assert page_width(browser) <= 320
    tokens = browser.driver.find_elements("css selector", ".tokens li")
    shown = [(token.text.split("\n")[0], token.get_attribute("class")) for token in tokens]
    # The first word continues none, and neither does what is no letter.
    starts = [("in", "word"), ("␣the", "word"), (",", "word"), ("␣was", "word")]
    assert shown[:5] == [*starts, ("pp", "piece")]

    browser.set("max_new_tokens", "")
    assert not browser.find("#curl-box").is_displayed()


def test_a_translation_stands_apart_from_its_source(browser):
    browser.choose("translator")
    shown = [text for text in browser.texts("#fields label") if text]
    assert shown == ["Text", "Beams", "Length penalty", "Length"]
    assert browser.find("#fields [name=num_beams]").get_property("value") == "2"
    browser.set("max_new_tokens", "3")
    browser.ask("a <b>good</b> film")
    answer = browser.curl()
    assert browser.texts("#answer .source") == ["a <b>good</b> film"]
    assert browser.find("#answer .written").get_property("textContent") == answer["text"][0]
    (counts,) = browser.texts("#answer .counts")
    assert counts.endswith(f"{answer['num_tokens'][0]} tokens · score {answer['scores'][0]:.3f}")
    assert browser.texts("#answer .output") == []
    assert json.loads(browser.find("#curl").text.split("'")[1])["signature_name"] == "beam_search"
    assert len(browser.texts("#tokens .tokens li")) > 3
    browser.set("num_beams", "1")
    browser.ask("a song")
    assert browser.texts("#answer .source") == ["a song"]
    assert not browser.texts(".error")


ENDLESS = """
const real = window.fetch, next = new TextEncoder().encode('data: {"text": " more"}\\n\\n');
window.fetch = (path, options) => path.endsWith(":stream") ? new Response(new ReadableStream({
  async pull(stream) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    stream.enqueue(next);
  },
  cancel() { window.ended = true; },
})) : real(path, options);
"""


SLOW = """
const real = window.fetch, later = (time) => new Promise((resolve) => setTimeout(resolve, time));
window.fetch = async (path, ...more) => {
  if (path.endsWith(":predict")) await later(1500);
  return real(path, ...more);
};
"""


def test_a_model_that_takes_its_time_says_so(browser):
    browser.driver.execute_script(SLOW)
    browser.choose("critic")
    browser.type("a good film")
    browser.find("#ask").click()
    until = WebDriverWait(browser.driver, 30).until
    until(lambda _: browser.texts("#answer .waiting"))
    first = (
        "The model is running. Its first answer takes longer, because TensorFlow prepares the graph"
    )
    assert browser.find("#answer").text.startswith(first)
    until(lambda _: browser.find("#answer .seconds").text >= "1.0 s")
    browser.wait()
    assert browser.texts("#answer .bars li") and not browser.texts("#answer > .quiet")
    assert browser.find("#latency").text.startswith("first answer: ")
    browser.find("#ask").click()
    until(lambda _: browser.find("#answer").text.startswith("The model is running. 0."))
    browser.wait()


def test_what_cannot_be_written_by_pieces_is_not_asked_for_so(browser):
    browser.choose("translator")
    browser.driver.execute_script("state.signature = 'generate'; drawFields()")  # as with one beam
    browser.set("max_new_tokens", "3")
    browser.ask("a good film")
    assert browser.find("#answer .written").get_property("textContent") == browser.curl()["text"][0]
    assert not any(path.endswith(":stream") for path in browser.requests())


def test_a_text_being_written_gives_way_to_another_model(browser):
    browser.driver.execute_script(ENDLESS)
    browser.choose("story")
    browser.type(STORY)
    browser.find("#ask").click()
    until = WebDriverWait(browser.driver, 30).until
    until(lambda _: "more more" in browser.find("#answer").text)
    browser.choose("critic")
    browser.ask("a fine film")
    until(lambda driver: driver.execute_script("return window.ended"))
    assert browser.texts("#answer .bars li")
    assert not browser.texts("#answer .running")


VERBS = {
    "critic": ("Classify", "The film was never dull, and its songs were a pleasure."),
    "tagger": ("Tag", "Ada Lovelace met Charles Babbage in London in 1833."),
    "masks": ("Fill in", "The capital of France is [MASK]."),
    "story": ("Write", "Once upon a time"),
    "reader": ("Ask", "Where was the letter found?"),
    "vectors": ("Embed", "The film was never dull, and its songs were a pleasure."),
    "translator": ("Translate", "The house is small, but its garden is large."),
}


def test_each_task_has_its_word_and_its_example_until_one_types(browser):
    for model, (verb, example) in VERBS.items():
        browser.choose(model)
        first = browser.find("#fields textarea").get_property("value")
        assert (browser.find("#ask").text, first) == (verb, example)
    browser.type("summarize: a film")
    assert browser.find("#ask").text == "Write"
    browser.choose("tagger")
    assert browser.find("#fields textarea").get_property("value") == "summarize: a film"


def test_an_example_of_ones_own_stands_in_the_fields(browser):
    def shown():
        areas = browser.driver.find_elements(By.CSS_SELECTOR, "#fields textarea")
        return [area.get_property("value") for area in areas]

    for model, texts in {
        "stars": ["A film of </script> my own."],
        "knowing": ["the film"],
        "choices": ["A film", "was loud", "was good"],
        "critic": [VERBS["critic"][1]],
    }.items():
        browser.choose(model)
        assert shown() == texts


ROWS = [  # id, review
    ("1", "the film, was good"),
    ("2", 'a "bad"\nsong <b>'),
    ("3", ""),
    *((str(number), "loud film " * (number % 3)) for number in range(4, 72)),
]


def test_rows_of_a_file_are_answered_and_saved(browser, page_server, tmp_path):
    with open(tmp_path / "films.csv", "w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("id", "review"), *ROWS])
    browser.choose("critic")
    browser.find("#rows-file").send_keys(str(tmp_path / "films.csv"))
    until = WebDriverWait(browser.driver, 60).until
    until(lambda _: browser.find("#rows-note").text == "71 rows")
    Select(browser.find("#rows-columns select")).select_by_value("review")
    browser.find("#rows-ask").click()
    until(lambda _: browser.find("#rows-note").text == "71 of 71 rows answered")
    with Client(page_server.rest_url, "critic") as client:
        expected = client.predict({"text": [text for _, text in ROWS]})
    assert len(browser.texts("#rows tbody tr")) == 71
    shown = [cell.split("\n")[0] for cell in browser.texts("#rows tbody td:nth-child(3)")]
    assert shown == [str(label) for label in expected["labels"]]

    allow = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", allow)
    browser.find("#rows-save").click()
    saved = tmp_path / "films-answers.csv"
    until(lambda _: saved.is_file())
    with open(saved, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["id", "review", "labels", "scores"]
    assert [tuple(row[:2]) for row in rows] == ROWS
    assert [row[2] for row in rows] == shown
    best = [float(row[3]) for row in rows]
    np.testing.assert_allclose(best, expected["scores"].max(axis=1), atol=1e-6)
    assert not browser.driver.find_elements("css selector", "#rows b")

    browser.choose("choices")  # whose inputs are lists
    assert not browser.find("#rows-card").is_displayed()


def test_rows_of_other_files_and_what_is_wrong_with_them(browser, tmp_path):
    browser.choose("pairs")
    said = []
    for name, content in {
        "a.jsonl": '{"sentence2": "bad", "sentence1": "a"}\n\n{"sentence1": 1, "sentence2": null}',
        "a.tsv": 'text\ttext_pair\nthe "film\tgood\n',
        "a.txt": "a film\n",
        "b.csv": 'text,text_pair\n"a film,good\n',
        "c.csv": "text,text_pair\na film\n",
        "b.jsonl": "[1]",
        "d.csv": "text,text_pair\n",
    }.items():
        (tmp_path / name).write_text(content)
        browser.find("#rows-file").send_keys(str(tmp_path / name))
        until = WebDriverWait(browser.driver, 30).until
        until(lambda _: browser.find("#rows-note").text or browser.texts("#rows .error"))
        said.append((browser.find("#rows-note").text or browser.find("#rows .error").text)[:40])
        chosen = browser.driver.find_elements(By.CSS_SELECTOR, "#rows-columns select")
        said[-1] = (said[-1], [Select(x).first_selected_option.text for x in chosen])
        browser.driver.execute_script("document.getElementById('rows-note').textContent = ''")
    assert said == [
        ("2 rows", ["sentence1", "sentence2"]),
        ("1 row", ["text", "text_pair"]),
        ("1 row", ["text", "text"]),
        ("Line 2: a quote is not closed, or not at", []),
        ("Row 1 has 1 field, and the header 2.", []),
        ('Line 1 is not a JSON object, such as {"t', []),
        ("The file has no rows.", []),
    ]


def attention_of(browser, *texts):
    """Ask, and return what is said of the first token of the picture of attention, and all maps."""
    browser.ask(*texts)
    until = WebDriverWait(browser.driver, 60).until
    until(
        lambda _: (
            browser.find("#attention").is_displayed() and not browser.texts("#attention-note p")
        )
    )
    browser.driver.switch_to.frame(browser.find("#attention"))
    try:
        column = browser.find("#tokens-view .left")
        column.send_keys(Keys.ARROW_DOWN)
        until(lambda _: " reads " in browser.find("#note").text)
        maps = browser.driver.execute_script(
            "return page.maps.map((map) => [map.name, map.tokens])"
        )
        return browser.find("#note").text.replace("\u2068", "").replace("\u2069", ""), maps
    finally:
        browser.driver.switch_to.default_content()


def test_attention_is_drawn_where_the_export_has_it(browser):
    browser.choose("vectors")
    said, maps = attention_of(browser, "a badly < film", "a song")
    assert said.startswith("[CLS] reads ")
    assert maps == [
        ["text 1", ["[CLS]", "a", "bad", "…ly", "<", "film", "[SEP]"]],
        ["text 2", ["[CLS]", "a", "song", "[SEP]"]],
    ]
    browser.choose("translator")
    browser.set("max_new_tokens", "3")
    _, maps = attention_of(browser, "a good film")
    assert [name for name, _ in maps] == ["source", "target", "target reads source"]
    browser.choose("story")
    browser.set("max_new_tokens", "4")
    said, maps = attention_of(browser, STORY)
    assert said == "<|endoftext|> reads <|endoftext|> 1.00"
    assert maps[0][1][:4] == ["<|endoftext|>", "I", "t", "was"]  # the prompt
    assert len(maps[0][1]) > 4  # and what follows
    browser.choose("critic")
    browser.ask("a film")
    assert not browser.find("#attention-card").is_displayed()


def test_entities_are_marked_in_their_text(browser):
    browser.choose("knowing")
    browser.ask("\U0001f600 The film, a SONG!")
    until = WebDriverWait(browser.driver, 30).until
    until(lambda _: browser.texts("#mentions mark"))
    assert browser.texts("#mentions mark") == ["Q1\nThe film", "<b>Q2</b>\nSONG"]
    assert browser.find("#mentions-title").text == "What the text mentions: 2 entities"
    browser.ask("a bad one")
    until(lambda _: browser.texts("#mentions .quiet") == ["None that the model knows."])
    browser.choose("critic")
    assert not browser.find("#mentions-card").is_displayed()


def test_a_choice_is_explained_by_its_graph(browser):
    browser.choose("explaining")
    browser.ask("a film", "bad", "good")
    until = WebDriverWait(browser.driver, 30).until
    until(lambda _: browser.texts("#graphs details[open]"))
    assert browser.texts("#graphs summary") == ["bad 0.250", "good 0.750"]
    assert browser.texts("#graphs tbody tr") == [
        "film – HasProperty → good 0.700",
        "<b>a film</b> ← IsA – story – RelatedTo → good 0.300",
    ]
    assert len(browser.driver.find_elements("css selector", "#graphs .node")) == 4
    assert len(browser.driver.find_elements("css selector", "#graphs .edge")) == 3
    browser.find("#graphs details:not([open]) summary").click()
    assert browser.texts("#graphs .quiet")[1].startswith("No concept of the graph was found")


def test_an_exported_graph_is_drawn(browser):
    browser.choose("choosing")
    browser.ask("a film", "bad", "the story")
    until = WebDriverWait(browser.driver, 30).until
    until(lambda _: browser.texts("#graphs summary"))
    story = browser.driver.find_elements("css selector", "#graphs details")[1]
    if not story.get_property("open"):  # the other choice is the better one
        story.find_element("css selector", "summary").click()
    assert browser.texts("#graphs tbody tr") == ["film – IsA → song – UsedFor → story 1.000"]
    nodes = browser.driver.find_elements("css selector", "#graphs .node")
    assert [node.text.split("\n")[0] for node in nodes] == ["film", "song", "story"]


READABLE = """
const shown = (tokens, others) =>
  readable(tokens, others).map(({ text, space }) => (space ? "␣" : "") + text);
return [
  shown(["Hello", "Ġworld", "ĠcafÃ©", "Ċ", "âĢ", "Ġ", "[MASK]"]),
  shown(["cafÃ©"], ["Ġa"]),
  shown(["▁The", "▁house", "s", "▁", "<0x0A>", "</s>"]),
  shown(["un", "##aff", "##", "#"]),
  shown(["low", "er</w>", "ne@@", "w"]),
];
"""


def test_tokens_are_written_as_people_write_them(browser):
    assert browser.driver.execute_script(READABLE) == [
        ["Hello", "␣world", "␣café", "⏎", r"\xe2\x80", "␣", "[MASK]"],
        ["café"],
        ["␣The", "␣house", "s", "␣", "<0x0A>", "</s>"],
        ["un", "aff", "##", "#"],
        ["low", "er", "ne", "w"],
    ]


def test_choices_are_asked_for_and_answered_one_by_one(browser):
    browser.choose("choices")
    assert browser.texts("#fields label") == ["Text", "Choice 1", "Choice 2"]
    browser.find(".add").click()
    assert browser.texts("#fields label")[-1] == "Choice 3"
    browser.ask("the film", "a good film", "", "<i>bad</i>")  # an empty one does not count
    answer = browser.curl()
    choices = ["a good film", "<i>bad</i>"]
    assert browser.texts("#answer .name") == choices
    assert browser.texts("#answer .chosen .name") == [choices[answer["labels"][0]]]
    assert browser.texts("#answer .score") == [f"{score:.3f}" for score in answer["scores"][0]]
    assert browser.texts("#tokens h3") == ["Choice 1", "Choice 2"]
    assert len(browser.texts("#tokens .tokens")) == 2


def test_a_question_is_asked_before_its_context(browser):
    browser.choose("reader")  # whose signature has them by the alphabet
    assert browser.texts("#fields label") == ["Question", "Context"]


def test_an_answer_is_marked_in_its_context(browser):
    browser.choose("reader")
    context = "\U0001f600 a <b>good</b> film " * 5
    browser.ask("good ?", context)
    answer = browser.curl()
    start, end = answer["start"][0][0], answer["end"][0][0]
    assert browser.texts("#answer mark") == [context[start:end]]
    assert browser.find("#answer .head").text == context[start:end] == answer["text"][0][0]
    assert len(browser.texts("#answer .score")) == 5
    titles = browser.texts("#tokens h3")
    assert titles[:2] == ["Window 1", "Window 2"]
    assert browser.texts("#tokens .cut") == []
    browser.ask("good ?", "")
    assert browser.find("#answer .head").text == "No answer in this context"
    assert browser.texts("#answer mark") == []


def test_vectors_are_compared(browser):
    browser.choose("vectors")
    assert browser.texts("#fields label") == ["Text 1", "Text 2"]
    browser.ask("a good film", "a bad song")
    vectors = np.array(browser.curl())
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert browser.find("#answer .head").text.startswith(f"{unit[0] @ unit[1]:.3f} cosine")
    assert len(browser.driver.find_elements("css selector", "#answer svg.vector")) == 2

    browser.find(".add").click()
    browser.ask("a good film", "a bad song", "<b>the</b>")
    assert browser.texts("#answer tbody tr .one-line")[2] == "3 <b>the</b>"
    shown = browser.texts("#answer td.similarity")
    assert shown[0] == shown[4] == shown[8] == "1.00"
    assert float(shown[1]) == float(shown[3]) == pytest.approx(unit[0] @ unit[1], abs=0.006)
    arguments, _ = run_without_keras_lm(browser.find("#grpc").get_property("textContent"))
    assert arguments[-3:] == ["a good film", "a bad song", "<b>the</b>"]

    browser.choose("token_vectors")
    browser.ask("a badly <")
    names = browser.texts("#answer .vectors .one-line")
    assert names == ["[CLS]", "a", "bad", "…ly", "<", "[SEP]"]


def test_a_regressor_shows_its_number(browser):
    browser.choose("stars")
    browser.ask("a good film")
    (score,) = browser.curl()
    assert browser.texts("#answer .output") == [f"Score\n{score:.3f}"]


def test_class_names_that_a_model_says_stand_beside_its_scores(browser):
    browser.choose("named")
    browser.ask("a text")
    assert browser.find("#answer .head").text == "<b>right</b>"
    assert browser.texts("#answer .bars li") == ["<b>right</b>\n0.750", "left\n0.250"]
    assert browser.texts("#answer .output") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_can_be_read(browser, scheme):
    """The contrast of the text on each colour is at least that of WCAG's level AA, 4.5."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        contrasts = browser.driver.execute_script("""
            const light = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map((x) => x / 255)
              .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
              .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0.05);
            const text = element("p", { class: "tagged" });
            document.querySelector("#answer").append(text);
            return HUES.map((hue, index) => {
              const mark = colour(element("mark", {}, "x"), String(index));
              text.append(mark);
              const style = getComputedStyle(mark);
              const [a, b] = [light(style.color), light(style.backgroundColor)];
              return Math.max(a, b) / Math.min(a, b);
            });
        """)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(contrasts) == 8
    assert min(contrasts) > 4.5


def test_numbers_vectors_and_json_of_other_models(browser):
    browser.choose("double")
    assert browser.texts("#fields label") == ["x (float, as JSON)"]
    browser.ask("[3, 4]")
    shown = dict(text.split("\n", 1) for text in browser.texts("#answer .output"))
    assert shown["total"] == "7.000"
    assert shown["vector: 2 numbers, length 5.000"] == "3.000, 4.000"
    assert json.loads(shown["grid"]) == [[3, 4], ["Infinity", "Infinity"]]
    assert not browser.find("#tokens-card").is_displayed()
    assert 'client.predict({"x": [[3, 4]]}' in browser.find("#grpc").text
    browser.ask("no JSON")
    assert not browser.find("#grpc-box").is_displayed()
    assert "x has to be written as JSON" in browser.find(".error").text


def test_a_cut_text_is_told_from_one_that_just_fits(browser):
    browser.choose("critic")
    browser.ask("film " * 22)  # and [CLS], [SEP]: the 24 that the model has room for
    assert not browser.texts(".cut")
    browser.ask("film " * 40)
    assert browser.texts(".cut") == ["The text was cut: the model reads 24 of its 42 tokens."]
    browser.ask("film." * 40)  # without spaces there is nothing to count by
    assert "the rest was cut" in browser.texts(".cut")[0]


def test_the_servers_errors_are_shown(browser):
    browser.choose("double")
    browser.ask("[1, 2, 3]")  # of two
    assert "The server answers 400: " in browser.find(".error").text
    log = browser.errors()  # the browser notes the status by itself
    assert all("400" in entry["message"] for entry in log)
    browser.ask("[1, 2]")
    assert not browser.texts(".error")


def test_a_model_without_signatures_says_so(browser):
    Select(browser.find("#model")).select_by_value("empty")
    WebDriverWait(browser.driver, 30).until(lambda _: browser.texts(".error"))
    assert browser.texts(".error") == ["This model has no signature to ask."]
    assert not browser.find("#ask").is_enabled()


def test_copying_puts_the_command_on_the_clipboard(browser, page_server):
    browser.driver.execute_cdp_cmd(
        "Browser.grantPermissions",
        {
            "origin": page_server.rest_url,
            "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"],
        },
    )
    browser.type(HOSTILE)
    for name in ("curl", "grpc"):
        browser.find(f"[data-copies={name}]").click()
        copied = browser.driver.execute_async_script(
            "const done = arguments[0];"
            "navigator.clipboard.readText().then(done, (error) => done(`${error}`));"
        )
        assert copied == browser.find(f"#{name}").get_property("textContent")
        assert browser.find("#copied").get_property("textContent") == "Copied"


@contextlib.contextmanager
def phone(browser):
    screen = {"width": 320, "height": 640, "deviceScaleFactor": 2, "mobile": True}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        yield
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def page_width(browser):
    return browser.driver.execute_script("return document.documentElement.scrollWidth")


@pytest.mark.parametrize(
    "model",
    ["critic", "pairs", "tagger", "choices", "vectors", "token_vectors", "double"],
)
def test_a_phone_shows_everything_without_scrolling_sideways(browser, model):
    with phone(browser):
        browser.choose(model)
        inputs = len(browser.texts("#fields textarea"))
        browser.ask(*["[1, 2]"] if model == "double" else ["x" * 500 + " a good film" * 9] * inputs)
        assert not browser.texts(".error")
        assert page_width(browser) <= 320
