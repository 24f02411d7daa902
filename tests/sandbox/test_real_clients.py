"""Clients that nobody here wrote: with the sandbox, their own error classes come out as with Telegram.

They live in an environment of their own under ``.local/``, made once; their dependencies are no business of
ours. Where it cannot be made (no network) the tests are skipped, but not under ``CI=true``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telegram_connector.sandbox import Clock, Sandbox

REQUIREMENTS = ("python-telegram-bot==22.8", "aiogram==3.31.0")
ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "clients"
SUPERGROUP = -1001234567890
MIGRATED_TO = -1001557912345


@pytest.fixture(scope="session")
def client_python() -> Path:
    """Python of an environment that has the clients."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    home = ROOT / ".local" / f"clients-{version}-{'-'.join(REQUIREMENTS).replace('==', '-')}"
    python = home / "bin" / "python"
    done = home / "complete"
    if done.exists():
        return python
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
    try:
        subprocess.run(install, capture_output=True, text=True, timeout=600, check=True)
    except subprocess.SubprocessError as error:
        shutil.rmtree(home, ignore_errors=True)
        said = (getattr(error, "stderr", "") or str(error)).strip()[-500:]
        why = f"pip cannot install {' and '.join(REQUIREMENTS)}: {said}"
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    done.touch()
    return python


@pytest.fixture
def world() -> Iterator[Sandbox]:
    chats = [
        {"id": SUPERGROUP, "title": "Ops", "topics": [{"id": 7}]},
        {"id": 6, "state": "blocked"},
        {"id": -7, "state": "migrated", "migrated_to": MIGRATED_TO},
    ]
    faults = [
        {"answer": {"status": 409, "description": "Conflict: of a kind"}, "chat": 10, "text": "409"},
        {"preset": "restart-500", "chat": 10, "text": "500"},
        {"preset": "html-502", "chat": 10, "text": "502"},
        {"preset": "reset-after", "chat": 10, "text": "reset"},
    ]
    with Sandbox(chats=chats, faults=faults, flood="telegram", clock=Clock.frozen()) as sandbox:
        sandbox.revoke("12:revoked")
        sandbox.say(5, "/start")
        yield sandbox


# Making the environment may take longer than a test may.
@pytest.mark.timeout(700)
@pytest.mark.usefixtures("client_python")
def test_the_environment_of_the_clients_is_there():
    pass


def outcomes(python: Path, script: str, sandbox: Sandbox) -> dict[str, Any]:
    command = [python, SCRIPTS / script, sandbox.url, str(SUPERGROUP)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def assert_the_messages_came(sandbox: Sandbox) -> None:
    first, second, *_ = sandbox.messages()
    assert (first.raw_text, first.message_thread_id, first.deleted) == ("new", 7, True)
    assert first.edits == ("fat text\u2028😀",)
    assert first.params["disable_notification"].lower() == "true"
    assert json.loads(first.params["link_preview_options"]) == {"is_disabled": True}
    assert (second.raw_text, second.parse_mode) == ("<b>reply</b>", "HTML")
    (dropped,) = sandbox.messages(text="reset")
    assert dropped.chat_id == 10
    assert len(sandbox.messages(chat=9)) == 5


def test_python_telegram_bot(client_python, world):
    found = outcomes(client_python, "ptb.py", world)
    assert found.pop("everything") == "done"
    assert "502" in found.pop("html")[1]
    assert found == {
        "blocked": ["Forbidden", "Forbidden: bot was blocked by the user"],
        "not_found": ["BadRequest", "Chat not found"],
        "empty": ["BadRequest", "Text must be non-empty"],
        "migrated": [
            "ChatMigrated",
            f"Group migrated to supergroup. New chat id: {MIGRATED_TO}",
            MIGRATED_TO,
        ],
        "flooded": ["RetryAfter", "Flood control exceeded. Retry in 1 seconds", 1],
        "too_early": ["RetryAfter", "Flood control exceeded. Retry in 6 seconds", 6],
        "conflict": ["Conflict", "Conflict: of a kind"],
        "restart": ["NetworkError", "Internal Server Error: restart"],
        "reset": ["NetworkError", "httpx.ReadError: "],
        "revoked": ["InvalidToken", "The token `12:revoked` was rejected by the server."],
        "malformed": ["InvalidToken", "The token `012:malformed` was rejected by the server."],
    }
    assert_the_messages_came(world)


def test_aiogram(client_python, world):
    found = outcomes(client_python, "aio.py", world)
    assert found.pop("everything") == "done"
    assert {name: outcome[0] for name, outcome in found.items()} == {
        "blocked": "TelegramForbiddenError",
        "not_found": "TelegramBadRequest",
        "empty": "TelegramBadRequest",
        "migrated": "TelegramMigrateToChat",
        "flooded": "TelegramRetryAfter",
        "too_early": "TelegramRetryAfter",
        "conflict": "TelegramConflictError",
        "restart": "RestartingTelegram",
        "html": "ClientDecodeError",
        "reset": "TelegramNetworkError",
        "revoked": "TelegramUnauthorizedError",
        "malformed": "TelegramUnauthorizedError",
    }
    assert found["migrated"][2] == MIGRATED_TO
    assert (found["flooded"][2], found["too_early"][2]) == (1, 6)
    assert found["malformed"][1].endswith("Unauthorized: invalid token specified")
    assert_the_messages_came(world)
