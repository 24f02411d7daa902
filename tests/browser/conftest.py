"""A headless Chromium, and pages in it that may ask nobody but their own server for anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

PATIENCE_MS = 30_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

MEASURES = Path(__file__).with_name("measures.js")


def lacking(what: str) -> None:
    """Ends a test that has no browser: skipped on a developer's machine, failed in CI."""
    words = f"{what}; on Debian: apt-get install chromium"
    if os.environ.get("CI") == "true":
        pytest.fail(words, pytrace=False)
    pytest.skip(words)


# By module: while it runs, this thread has a running event loop, which other tests must not meet.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        lacking("playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        lacking("there is no Chromium on the search path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visits:
    """Opens pages; at the end no page may have asked another host, nor have had an error or a violation.

    Attributes:
        asked: Every address that was asked for.
    """

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self._contexts: list[Any] = []
        self._pages: list[Any] = []
        self._hosts: set[str] = set()
        self.asked: list[str] = []
        self.errors: list[str] = []

    def __call__(
        self, url: str, width: int = 1440, height: int = 900, scheme: str = "light", ready: str = "#live.good"
    ) -> Any:
        """A page of its own, loaded and connected, or as `ready` says."""
        context = self._chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(path=MEASURES)
        context.on("request", lambda request: self.asked.append(request.url))
        self._contexts.append(context)
        self._hosts.add(urlsplit(url).netloc)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        self._pages.append(page)
        page.goto(url)
        page.wait_for_selector(ready)
        return page

    def close(self) -> None:
        violations = [found for page in self._pages for found in page.evaluate("window.violations")]
        for context in self._contexts:
            context.close()
        assert violations == []
        assert self.errors == []
        elsewhere = [
            url
            for url in self.asked
            if urlsplit(url).scheme != "data" and urlsplit(url).netloc not in self._hosts
        ]
        assert elsewhere == []


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages of a server."""
    visits = Visits(chromium)
    yield visits
    visits.close()
