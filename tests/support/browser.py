"""A real browser for tests: Debian's Chromium without a window, or a reason to skip."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

NEEDED = {
    "Chromium": ("chromium", "chromium-browser", "google-chrome"),
    "chromedriver": ("chromedriver",),
}
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--lang=en",
)
"""It shows nothing, and asks no server but the one that it is sent to."""


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


def require_browser() -> tuple[str, str]:
    """The browser and its driver; skips without them, or fails where DPSQL_TEST_BROWSER is set."""
    found = {name: _found(names) for name, names in NEEDED.items()}
    missing = [name for name, path in found.items() if path is None]
    if importlib.util.find_spec("selenium") is None:
        missing.append("the package selenium")
    if missing:
        told = f"the page in a browser needs {' and '.join(missing)}"
        if os.environ.get("DPSQL_TEST_BROWSER"):
            pytest.fail(told)
        pytest.skip(told)
    return str(found["Chromium"]), str(found["chromedriver"])


@contextmanager
def open_browser(folder: Path) -> Iterator[Chrome]:
    """A browser with an empty profile in a folder, which keeps what it is told in its log."""
    program, driver = require_browser()
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for each in (*QUIET, f"--user-data-dir={folder / 'profile'}", "--window-size=1360,1000"):
        options.add_argument(each)
    downloads = {"download.default_directory": str(folder), "download.prompt_for_download": False}
    options.add_experimental_option("prefs", downloads)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield found
    finally:
        found.quit()
