"""The page of a server with keys, in a real browser, and that of an export with a corpus."""

import contextlib
import subprocess

import pytest
import tensorflow as tf
from browser import open_chromium
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from keras_lm.serving import Server

pytestmark = pytest.mark.slow  # a browser

KEY = "a-key-of-the-page"


@pytest.fixture(scope="module")
def searching(tmp_path_factory):
    """A server with a key, of a model that embeds texts and searches two documents."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serving_default(text):
        return {"embedding": tf.ones([tf.size(text), 2])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def search(text):
        rows = tf.tile([[1, 0]], [tf.size(text), 1])
        documents = tf.gather(["by train", "<b>at nine</b>"], rows)
        return {
            "rows": rows,
            "documents": documents,
            "scores": 0.75 - 0.5 / tf.cast(rows + 1, float),
        }

    folder = tmp_path_factory.mktemp("models") / "timetable"
    signatures = {"serving_default": serving_default, "search": search}
    tf.saved_model.save(tf.Module(), str(folder / "1"), signatures=signatures)
    with Server(folder, api_keys=[KEY], examples={"timetable": "when does it open"}) as server:
        yield server


@pytest.fixture
def driver(tmp_path):
    driver = open_chromium(tmp_path / "chromium")
    yield driver
    driver.quit()


def test_the_page_asks_for_a_key_and_searches(driver, searching):
    def find(css):
        return driver.find_element(By.CSS_SELECTOR, css)

    def until(condition):
        WebDriverWait(driver, 30).until(lambda _: condition())

    def enter(key):
        find("#key").send_keys(key)
        find("#key-form button").click()

    driver.get(searching.rest_url)
    assert find("#key-form").is_displayed()
    assert "timetable" not in driver.page_source
    enter("wrong")
    until(lambda: "not one of this server's" in find("#key-note").text)
    assert find("#key-form").is_displayed()
    enter(f"  {KEY} ")
    until(lambda: find("#ask").is_enabled())
    assert not find("#key-form").is_displayed()

    assert find("#ask").text == "Search"
    assert find("#fields textarea").get_property("value") == "when does it open"
    find("#ask").click()
    until(lambda: find("#answer .bars"))
    assert find("#answer .head").text == "<b>at nine</b>"
    names = [name.text for name in driver.find_elements(By.CSS_SELECTOR, "#answer .name")]
    scores = [score.text for score in driver.find_elements(By.CSS_SELECTOR, "#answer .score")]
    assert (names, scores) == (["<b>at nine</b>", "by train"], ["0.500", "0.250"])
    assert KEY not in driver.page_source
    command = find("#curl").get_property("textContent")
    done = subprocess.run(
        ["bash", "-c", command],
        env={"KERAS_LM_API_KEY": KEY, "PATH": "/usr/bin:/bin"},
        capture_output=True,
    )
    assert b"at nine" in done.stdout
    assert 'api_key=os.environ["KERAS_LM_API_KEY"]' in find("#grpc").get_property("textContent")

    driver.refresh()  # the tab keeps the key
    until(lambda: find("#ask").is_enabled())
    driver.execute_script("sessionStorage.clear()")
    driver.refresh()
    assert find("#key-form").is_displayed()
    severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    with contextlib.suppress(IndexError):
        assert "401" in severe.pop()["message"]  # of the wrong key
    assert severe == []
