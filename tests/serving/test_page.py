"""The page in a real browser: what a person types, sees and copies, and that nothing breaks out."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from keras_lm import tasks
from keras_lm.models import BertBackbone
from keras_lm.serving import Server, page
from keras_lm.tokenizers import WordPieceTokenizer

BROWSER = [shutil.which("chromium"), shutil.which("chromedriver")]
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "the", "film", "song", "was", "good", "bad", "loud", "##ly", "##er", ".", "!", "<", ">"),
]
CLASSES = ["bad", "good", "<b>odd</b>"]
HOSTILE = (
    "it's <img src=x onerror=document.title='!'> \"$HOME\" `id` \\ !\nnext \U0001f600 </script>"
)


class Double(tf.Module):
    """A SavedModel that this library did not make."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def __call__(self, x):
        return {"grid": tf.stack([x, x / 0.0], axis=1), "vector": x, "total": x[:, 0] + x[:, 1]}


@pytest.fixture(scope="module")
def page_server(tmp_path_factory):
    keras.utils.set_random_seed(1)
    folder = tmp_path_factory.mktemp("models")
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=True)
    backbone = BertBackbone(
        vocabulary_size=len(VOCABULARY),
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        max_sequence_length=24,
    )
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
    }
    for name, task in made.items():
        task.export(folder / name)
    double = Double()
    tf.saved_model.save(double, str(folder / "double" / "1"), signatures=double.__call__)
    with Server([folder / name for name in [*made, "double"]]) as running:
        yield running


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if not all(BROWSER):
        pytest.skip("needs chromium and chromedriver on PATH (Debian: apt install chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER[0]
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(BROWSER[1]))
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
        return [found.text for found in self.driver.find_elements(By.CSS_SELECTOR, css)]

    def wait(self):
        WebDriverWait(self.driver, 30).until(lambda _: self.find("#ask").is_enabled())

    def choose(self, model):
        Select(self.find("#model")).select_by_value(model)
        self.wait()

    def type(self, *texts):
        for area, text in zip(
            self.driver.find_elements(By.CSS_SELECTOR, "#fields textarea"), texts, strict=True
        ):
            # chromedriver's own keys know no characters beyond 16 bits.
            self.driver.execute_script(
                "arguments[0].value = arguments[1];"
                "arguments[0].dispatchEvent(new Event('input', {bubbles: true}));",
                *(area, text),
            )

    def ask(self, *texts):
        self.type(*texts)
        self.find("#ask").click()
        self.wait()

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
    assert tokens == ["[CLS]", "the", "film", "was", "bad", "##ly", "loud", "[UNK]", "[SEP]"]
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
    html = page.render(names, "127.0.0.1:8500")
    data = html.split('id="config">')[1].split("</script>")[0]
    assert not set(data) & set("<>&\u2028")
    assert json.loads(data) == {"models": names, "grpc_address": "127.0.0.1:8500"}
    assert html.count("</script>") == 2


def test_pairs_show_several_labels_and_their_commands_run(browser, page_server):
    browser.choose("pairs")
    assert browser.texts("#fields label") == ["Text", "Second text"]
    browser.ask("a good film", "it's a bad film")
    assert set(browser.texts("#answer .name")) == {"x", "y"}
    chosen = [text for text in browser.find("#answer .head").text.split(", ") if text in ("x", "y")]
    answer = run_in_bash(browser.find("#curl").get_property("textContent"))
    assert [label for label in answer["outputs"]["labels"][0] if label] == sorted(chosen)
    tokens = [text.split("\n")[0] for text in browser.texts(".tokens li")]
    assert tokens.count("[SEP]") == 2
    arguments, typed = run_without_keras_lm(browser.find("#grpc").get_property("textContent"))
    assert arguments[-4:] == ["--input", "-", "--format", "jsonl"]
    assert json.loads(typed) == {"text": "a good film", "text_pair": "it's a bad film"}


@pytest.mark.slow  # TensorFlow is imported twice more
@pytest.mark.parametrize("model, texts", [("critic", [HOSTILE]), ("pairs", ["a film", "it's bad"])])
def test_the_grpc_command_gives_the_same_answer(browser, model, texts):
    browser.choose(model)
    browser.ask(*texts)
    expected = run_in_bash(browser.find("#curl").get_property("textContent"))["outputs"]
    command = browser.find("#grpc").get_property("textContent")
    program = Path(sys.executable).with_name("keras-lm")
    found = run_in_bash(f'keras-lm() {{ {program} "$@"; }}\n{command}')["answer"]
    assert found["scores"] == pytest.approx(expected["scores"][0], abs=1e-5)


def test_masks_show_their_candidates(browser):
    browser.choose("masks")
    browser.ask("the [MASK] was [MASK]")
    assert "Mask 2" in browser.texts("#answer .quiet")
    assert len(browser.texts("#answer .bars")) == 2
    browser.ask("the film")
    assert "There is no mask in this text." in browser.texts("#answer .quiet")


def test_numbers_vectors_and_json_of_other_models(browser):
    browser.choose("double")
    assert browser.texts("#fields label") == ["x (float, as JSON)"]
    browser.ask("[3, 4]")
    shown = dict(text.split("\n", 1) for text in browser.texts("#answer .output"))
    assert shown["total"] == "7.000"
    assert shown["vector: 2 numbers, length 5.000"] == "3.000, 4.000"
    assert json.loads(shown["grid"]) == [[3, 4], ["Infinity", "Infinity"]]
    assert not browser.find("#tokens-card").is_displayed()
    assert not browser.find("#grpc-box").is_displayed()
    browser.ask("no JSON")
    assert "x has to be written as JSON" in browser.find(".error").text


def test_a_cut_text_is_told_from_one_that_just_fits(browser):
    browser.choose("critic")
    browser.ask("film " * 22)  # and [CLS], [SEP]: the 24 that the model has room for
    assert not browser.texts(".cut")
    browser.ask("film " * 40)
    assert browser.texts(".cut") == ["The text was cut: the model reads 24 of its 42 tokens."]
    browser.ask("film." * 40)  # without spaces there is nothing to count by
    assert "what goes beyond them was cut" in browser.texts(".cut")[0]


def test_the_servers_errors_are_shown(browser):
    browser.choose("double")
    browser.ask("[1, 2, 3]")  # of two
    assert "The server answers 400: " in browser.find(".error").text
    log = browser.errors()  # the browser notes the status by itself
    assert all("400" in entry["message"] for entry in log)
    browser.ask("[1, 2]")
    assert not browser.texts(".error")


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


@pytest.mark.parametrize("model", ["critic", "pairs", "double"])
def test_a_phone_shows_everything_without_scrolling_sideways(browser, model):
    screen = {"width": 320, "height": 640, "deviceScaleFactor": 2, "mobile": True}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        browser.choose(model)
        inputs = len(browser.texts("#fields textarea"))
        browser.ask(*["[1, 2]"] if model == "double" else ["x" * 500 + " a good film" * 9] * inputs)
        width = browser.driver.execute_script("return document.documentElement.scrollWidth")
        assert width <= 320
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
