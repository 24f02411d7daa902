"""Exit codes: what each command's help says, and what the command does. Those of `demo` are in test_demo."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from telegram_connector.cli import main
from telegram_connector.clock import timestamp
from telegram_connector.disposition import Terminal
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.record import AMBIGUOUS, encode, fresh
from telegram_connector.sandbox import Sandbox
from tests.fleet import TOKEN
from tests.nats_server import NatsServer
from tests.process import Process
from tests.test_dead import Desk
from tests.test_help import LEAVES, examples, exit_codes

NOWHERE = {"NATS_URL": "nats://127.0.0.1:1", "NATS_AUTH": "none"}
WRONG = {"NATS_URL": "http://nowhere", "TG_ACK_WAIT_SECS": "soon", "TELEGRAM_BOT_TOKEN": "no token"}
BY_NATS = [
    path
    for path in LEAVES
    if 78 in exit_codes(*path) and path not in {("run",), ("check",), ("chats",), ("console",)}
]


def invoke(*arguments: str, **env: str) -> Result:
    result = CliRunner().invoke(main, arguments, env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_wrong_usage_is_2(path: tuple[str, ...]) -> None:
    assert 2 in exit_codes(*path)
    result = invoke(*path, "--no-such-option", **NOWHERE)
    assert result.exit_code == 2
    assert "Usage: " in result.output


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_wrong_settings_are_78_where_there_are_any(path: tuple[str, ...]) -> None:
    if 78 not in exit_codes(*path):
        assert path in {("lint",), ("demo",), ("sandbox",), ("completion",)}
        return
    result = invoke(*examples(*path)[0], **WRONG)
    assert result.exit_code == 78, result.output
    assert "soon" not in result.output
    assert "no token" not in result.output


@pytest.mark.parametrize("path", BY_NATS, ids=" ".join)
def test_without_nats_it_is_1_and_one_line(path: tuple[str, ...]) -> None:
    result = invoke(*examples(*path)[0], **NOWHERE, TELEGRAM_BOT_TOKEN=TOKEN)
    assert result.exit_code == 1, result.output
    assert result.output.startswith(f"telegram-connector {' '.join(path)}: ")
    assert "Traceback" not in result.output


def test_the_other_failures_are_1(tmp_path: Path) -> None:
    (tmp_path / "message.html").write_text("a < b")
    assert invoke("lint", "--parse-mode", "HTML", "message.html").exit_code == 1
    assert invoke("check").exit_code == 1  # dormant
    assert invoke("sandbox", "--fault", "no-such-preset").exit_code == 1
    with Sandbox() as sandbox:
        sandbox.revoke(TOKEN)
        env = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_API_BASE_URL": sandbox.url}
        assert invoke("chats", **env).exit_code == 1


def test_a_worker_whose_thread_dies_ends_with_1(tmp_path: Path) -> None:
    script = tmp_path / "with_a_bug.py"
    script.write_text(
        """
from telegram_connector.cli import main
from telegram_connector.upkeep import Upkeep

def tick(*_, **__):
    raise ZeroDivisionError("a bug")

Upkeep.tick = tick
main(["run"])
"""
    )
    env = {**NOWHERE, "TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_CHAT_ID": "1"}
    with Process(script=script, env=env) as worker:
        assert worker.wait() == 1
        assert "thread reader died: ZeroDivisionError: a bug" in worker.output


def test_what_works_without_a_server_is_0(tmp_path: Path) -> None:
    (tmp_path / "message.html").write_text("<b>fine</b>")
    assert invoke("lint", "--parse-mode", "HTML", "message.html").exit_code == 0
    assert invoke("completion", "bash").exit_code == 0
    with Process("run", env={}) as worker:
        assert worker.wait() == 0  # dormant
    with Process("sandbox", "--port", "0", env={}) as sandbox:
        sandbox.until("TELEGRAM_API_BASE_URL=")
        sandbox.signal(signal.SIGTERM)
        assert sandbox.wait() == 0
    with Sandbox() as api:
        env = {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_API_BASE_URL": api.url}
        assert invoke("chats", **env).exit_code == 0


@pytest.mark.integration
def test_what_was_asked_for_is_done_with_0_and_what_is_not_there_is_1(nats_server: NatsServer) -> None:
    desk, bot = Desk(nats_server), TOKEN.partition(":")[0]
    for n in range(3):
        desk.bury(f"m{n}", Terminal(400, "Bad Request: no"), chat="5", text="some text")
    message = TelegramOutbound(msg_id="in doubt", chat="5", text="some text", route_id="r")
    record = msgspec.structs.replace(
        fresh(bot, message, "5", time.time()), status=AMBIGUOUS, ambiguous_since=timestamp(time.time())
    )
    with nats_server.client() as client:
        client.publish(f"$KV.telegram_ledger.{record.key}", encode(record))
    operator = {"NATS_URL": nats_server.url, "NATS_TELEGRAM_NKEY_SEED": nats_server.operator_seed}
    publisher = operator | {"NATS_TELEGRAM_NKEY_SEED": nats_server.publisher_seed}
    admin = operator | {"NATS_TELEGRAM_NKEY_SEED": nats_server.admin_seed}

    with Sandbox() as sandbox:
        worker = {
            **operator,
            "NATS_TELEGRAM_NKEY_SEED": nats_server.worker_seed,
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_CHAT_ID": "1",
            "TELEGRAM_API_BASE_URL": sandbox.url,
        }
        cases = [
            (0, ["provision"], admin),
            (1, ["provision", "--replicas", "3"], publisher),
            (0, ["check"], worker),
            (0, ["publish", "hello"], publisher),
            (1, ["publish", "hello"], admin),
            (0, ["status", "--wait", "0.1"], operator),
            (0, ["pause", "--chat", "5"], operator),
            (0, ["resume", "--all"], operator),
            (0, ["resume"], operator),  # nothing is paused
            (0, ["dead", "list"], operator),
            (0, ["dead", "show", "1"], operator),
            (1, ["dead", "show", "99"], operator),
            (0, ["dead", "resend", "1", "--yes"], operator),
            (0, ["dead", "resend", "1", "--yes"], operator),  # left alone
            (1, ["dead", "resend", "2", "99", "--yes"], operator),
            (2, ["dead", "resend", "3"], operator),  # nobody to ask
            (0, ["dead", "discard", "3", "--yes"], operator),
            (1, ["dead", "discard", "99", "--yes"], operator),
            (0, ["ledger", "list"], operator),
            (0, ["ledger", "show", record.key], operator),
            (1, ["ledger", "show", "ffff"], operator),
            (0, ["ledger", "why", "in doubt"], operator),
            (1, ["ledger", "why", "unknown"], operator),
            (0, ["ledger", "export"], operator),
            (0, ["ledger", "resolve", record.key, "--sent", "--message-id", "7", "--yes"], operator),
            (1, ["ledger", "resolve", record.key, "--cancel", "--yes"], operator),  # not in doubt any more
            (0, ["ledger", "link", "5", "7", "--bot", bot], operator),
            (1, ["ledger", "link", "5", "8", "--bot", bot], operator),
            (0, ["ledger", "forget", record.key, "--yes"], operator),
            (0, ["ledger", "forget", "--route", "r", "--yes"], operator),  # nothing to forget
            (1, ["ledger", "forget", record.key, "--yes"], operator),
        ]
        for code, arguments, env in cases:
            result = invoke(*arguments, **env)
            assert result.exit_code == code, (arguments, result.output)
    tried = {tuple(arguments[: 1 + (arguments[0] in ("dead", "ledger"))]) for _, arguments, _ in cases}
    assert set(BY_NATS) <= tried
