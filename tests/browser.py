"""Chromium, driven by selenium: what tests of pages share."""

import shutil

import pytest

BROWSER = [shutil.which("chromium"), shutil.which("chromedriver")]
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def open_chromium(folder):
    """Return a driver of a new browser, whose files are in a folder; skip if there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    if not all(BROWSER):
        pytest.skip("needs chromium and chromedriver on PATH (Debian: apt install chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER[0]
    for flag in [*FLAGS, f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(BROWSER[1]))
