"""`telegram-connector chats` against the sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from telegram_connector.cli.chats import chats
from telegram_connector.sandbox import Sandbox

TOKEN = "123456:" + "Ab-_" * 9


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox
        assert sandbox.count() == 0


def run(sandbox: Sandbox, *options: str, **env: str) -> tuple[int, str]:
    result = CliRunner().invoke(
        chats, options, env={"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_API_BASE_URL": sandbox.url, **env}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert TOKEN.split(":")[1] not in result.output
    return result.exit_code, result.output


def answer(sandbox: Sandbox, method: str, result: Any) -> None:
    body = json.dumps({"ok": True, "result": result})
    sandbox.set_fault({"method": method, "answer": {"status": 200, "body": body}})


def test_a_table_without_messages_that_takes_nothing_from_others(sandbox: Sandbox) -> None:
    sandbox.set_chat(5, first_name="Ada", username="ada")
    sandbox.set_chat(-1001234567890, title="Ops\x1b[31m\nroom")
    for chat, text in ((5, "secret words"), (-1001234567890, "/start"), (5, "more")):
        sandbox.say(chat, text)
    expected = (
        "            ID  TYPE        CHAT\n"
        "-1001234567890  supergroup  Ops [31m room\n"
        "             5  private     Ada @ada\n"
    )
    for _ in range(2):  # and the second time the same is there
        assert run(sandbox) == (0, expected)
    for call in sandbox.requests(method="getUpdates"):
        assert call.params == {"limit": "100"}


def test_json(sandbox: Sandbox) -> None:
    sandbox.set_chat(5, first_name="Ada", username="ada")
    sandbox.say(5, "secret words")
    code, output = run(sandbox, "--json")
    assert code == 0
    assert json.loads(output) == [{"id": 5, "type": "private", "title": "Ada", "username": "ada"}]


def test_nobody(sandbox: Sandbox) -> None:
    code, output = run(sandbox)
    assert code == 0
    assert output.startswith("Nobody wrote to the bot")
    assert run(sandbox, "--json") == (0, "[]\n")


def test_all_kinds_of_updates(sandbox: Sandbox) -> None:
    def chat(number: int) -> dict[str, Any]:
        return {"id": number, "type": "group", "title": f"G{number}"}

    updates = [
        {"update_id": 1, "my_chat_member": {"chat": chat(-1), "from": {"id": 9}}},
        {"update_id": 2, "channel_post": {"chat": chat(-2)}},
        {"update_id": 3, "callback_query": {"id": "x", "from": {"id": 9}, "message": {"chat": chat(-3)}}},
        {"update_id": 4, "inline_query": {"id": "y", "from": {"id": 9}}},
        {"update_id": 5, "message": {"chat": {"id": "odd"}}},
        "odd",
    ]
    answer(sandbox, "getUpdates", updates)
    code, output = run(sandbox, "--json")
    assert code == 0
    assert [found["id"] for found in json.loads(output)] == [-1, -2, -3]


def test_a_webhook_has_the_updates(sandbox: Sandbox) -> None:
    answer(sandbox, "getWebhookInfo", {"url": "https://example.com/hook/hunter2"})
    code, output = run(sandbox)
    assert code == 1
    assert output == (
        "telegram-connector chats: the bot has a webhook, to which Telegram delivers all updates: "
        "look there, or remove it\n"
    )
    assert not sandbox.requests(method="getUpdates")


def test_without_a_webhook(sandbox: Sandbox) -> None:
    answer(sandbox, "getWebhookInfo", {"url": "", "pending_update_count": 0})
    assert run(sandbox)[0] == 0
    assert sandbox.requests(method="getUpdates")


def test_a_wrong_token(sandbox: Sandbox) -> None:
    sandbox.revoke(TOKEN)
    assert run(sandbox) == (1, "telegram-connector chats: Unauthorized (TELEGRAM_BOT_TOKEN)\n")


def test_somebody_else_reads_the_updates(sandbox: Sandbox) -> None:
    words = "Conflict: terminated by other getUpdates request"
    sandbox.set_fault({"method": "getUpdates", "answer": {"status": 409, "description": words}})
    assert run(sandbox) == (1, f"telegram-connector chats: {words}\n")


@pytest.mark.parametrize("result", [{"odd": 1}, None, "odd"])
def test_an_odd_answer(sandbox: Sandbox, result: Any) -> None:
    answer(sandbox, "getUpdates", result)
    assert run(sandbox) == (1, "telegram-connector chats: HTTP 200 without a readable answer\n")


def test_no_bot_api(sandbox: Sandbox) -> None:
    sandbox.stop()
    assert run(sandbox) == (1, "telegram-connector chats: Connection refused\n")


@pytest.mark.parametrize(
    ("env", "variable"),
    [
        ({"TELEGRAM_BOT_TOKEN": ""}, "TELEGRAM_BOT_TOKEN is not set"),
        ({"TELEGRAM_BOT_TOKEN": "no-colon"}, "TELEGRAM_BOT_TOKEN"),
        ({"TELEGRAM_API_BASE_URL": "http://example.com"}, "TELEGRAM_API_BASE_URL"),
    ],
)
def test_wrong_settings(sandbox: Sandbox, env: dict[str, str], variable: str) -> None:
    code, output = run(sandbox, **env)
    assert code == 78
    assert f"  {variable}" in output
    assert sandbox.requests() == []


def test_what_is_not_needed_may_be_wrong(sandbox: Sandbox) -> None:
    assert run(sandbox, TELEGRAM_CHAT_ID="odd", TG_ACK_WAIT_SECS="odd", NATS_URL="odd")[0] == 0
