"""The page in a real browser: what it shows, long texts, strange ones, light and dark."""

import numpy as np
import pytest
from browser import open_chromium
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from keras_lm import analysis

pytestmark = pytest.mark.slow  # a browser

HOSTILE = "</script><img src=x onerror=document.title='!'>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    driver = open_chromium(tmp_path_factory.mktemp("chromium"))
    driver.set_window_size(1000, 700)
    yield driver
    driver.quit()


def wait(driver):
    ready = "return document.documentElement.dataset.ready !== undefined"
    WebDriverWait(driver, 60).until(lambda driver: driver.execute_script(ready))


def show(driver, tab):
    driver.find_element(By.CSS_SELECTOR, f"[data-view={tab}]").click()
    assert driver.find_element(By.ID, f"{tab}-view").is_displayed()


def note(driver):
    said = driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => "
        "done(document.getElementById('note').textContent)))"
    )
    return said.replace("\u2068", "").replace("\u2069", "")


def colours(driver, selector):
    """Return how many different colours a canvas shows."""
    return driver.execute_script(
        "const c = document.querySelector(arguments[0]);"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return new Set(new Uint32Array(d.buffer)).size",
        selector,
    )


def test_every_view_of_a_short_text(chromium, tmp_path):
    tokens = ["[CLS]", HOSTILE, "שלום", "\U0001f600"]
    cells = np.full((2, 3, 4, 4), 0.05, "float32")
    cells[..., 3] = 0.85
    cells[1, 2] = np.eye(4)
    actual = analysis.TextAttention({"self": analysis.AttentionMap(tokens, tokens, cells)})
    vectors = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")
    neurons = analysis.Neurons(0, 1, tokens, *vectors, vectors[0] @ vectors[1].T, cells[0, 1])
    path = actual.page(neurons=neurons).save(tmp_path / "short.html")
    chromium.get(path.as_uri())
    wait(chromium)
    shown = chromium.find_elements(By.CSS_SELECTOR, "#tokens-view .left .token")
    assert [element.get_attribute("textContent") for element in shown] == tokens
    shown[1].click()
    assert note(chromium).startswith(f"{HOSTILE} reads \U0001f600 0.85, [CLS] 0.05")
    show(chromium, "heads")
    assert len(chromium.find_elements(By.CSS_SELECTOR, "#heads-view canvas")) == 6
    chromium.find_element(By.CSS_SELECTOR, "[aria-label='layer 1, head 2']").click()
    assert note(chromium).startswith("Layer 1, head 2")
    assert colours(chromium, "#cells-view canvas") > 2
    show(chromium, "neurons")
    chromium.find_elements(By.CSS_SELECTOR, "#neurons-view .token")[0].click()
    assert note(chromium).startswith("Layer 0, head 1: [CLS] asks")
    assert chromium.title == "Attention"  # no part of the text has run
    assert not chromium.get_log("browser")


def test_512_tokens_in_a_dark_notebook(chromium, tmp_path):
    tokens = [f"token{number}" for number in range(512)]
    generator = np.random.default_rng(0)
    cells = generator.gamma(0.1, size=(12, 512, 512)).astype("float32")
    cells = np.stack([cells / cells.sum(axis=-1, keepdims=True)] * 4)
    actual = analysis.TextAttention({"self": analysis.AttentionMap(tokens, tokens, cells)})
    cell = actual._repr_html_()
    assert len(cell) < 10e6
    dark = f"<!doctype html><body style='background: #111'>{cell}</body>"
    (tmp_path / "notebook.html").write_text(dark, encoding="utf-8")
    chromium.get((tmp_path / "notebook.html").as_uri())
    chromium.switch_to.frame(chromium.find_element(By.TAG_NAME, "iframe"))
    wait(chromium)
    assert chromium.execute_script("return document.documentElement.dataset.dark === ''")
    taken = "const start = performance.now(); draw(); return performance.now() - start"
    assert chromium.execute_script(taken) < 1000  # ms; a line for each would be twelve million
    chromium.execute_script("document.getElementById('tokens-view').scrollTop = 9000")
    last = chromium.find_elements(By.CSS_SELECTOR, "#tokens-view .left .token")[500]
    last.click()
    assert note(chromium).startswith("token500 reads token")
    assert colours(chromium, "#tokens-view canvas") > 10
    show(chromium, "heads")
    assert len(chromium.find_elements(By.CSS_SELECTOR, "#heads-view canvas")) == 48
    chromium.switch_to.default_content()
