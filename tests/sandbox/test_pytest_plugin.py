"""The pytest plugin: a fixture that costs nobody anything until it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Flask as if it were not installed.
WITHOUT_FLASK = """
import sys
sys.modules["flask"] = None
"""


def run_pytest(folder: Path, test: str, conftest: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "test_host.py").write_text(test)
    (folder / "conftest.py").write_text(conftest)
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider"]
    # Named outright, so that it works from a checkout too, where no entry point is installed.
    command += ["-p", "telegram_connector.pytest_plugin", "--rootdir", str(folder), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=60, check=False
    )


def test_the_fixture_is_a_running_sandbox(tmp_path):
    test = """
import urllib.request

def test_it(telegram_sandbox):
    urllib.request.urlopen(telegram_sandbox.url + "/bot1:x/sendMessage?chat_id=5&text=hi").close()
    assert telegram_sandbox.wait(count=1)[0].raw_text == "hi"
"""
    done = run_pytest(tmp_path, test)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_nothing_is_imported_before_the_fixture_is_used(tmp_path):
    test = """
import sys

def test_it():
    assert "telegram_connector.pytest_plugin" in sys.modules
    for name in ("flask", "werkzeug", "requests", "telegram_connector.sandbox"):
        assert name not in sys.modules
"""
    done = run_pytest(tmp_path, test)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_missing_extra_fails_only_the_test_that_needs_it(tmp_path):
    test = """
def test_with(telegram_sandbox):
    pass

def test_without():
    pass
"""
    done = run_pytest(tmp_path, test, WITHOUT_FLASK)
    assert "1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "pip install 'telegram-connector[sandbox]'" in done.stdout
