"""What the console does, on a real nats-server: the same as the commands, once, and written down."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from telegram_connector.bridge import DeadLetters
from telegram_connector.bridge.archive import Archive
from telegram_connector.cli import main
from telegram_connector.console import Access, Console
from telegram_connector.console.graves import MOST_AT_ONCE
from telegram_connector.console.guard import CSRF_HEADER
from telegram_connector.console.watch import Watch
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import Disconnected
from telegram_connector.links import NOT_AVAILABLE
from telegram_connector.record import AMBIGUOUS, CANCELLED, SENT
from tests.console.stage import CHAT, SECRET, Stage, eventually
from tests.fleet import PATIENCE_SECONDS, TOKEN
from tests.nats_server import free_port
from tests.process import Process

pytestmark = pytest.mark.integration

CONSOLE_TOKEN = "correct-horse-battery-staple-42"


class Browser:
    """A page without a screen: its requests, with the secret that they have to come with."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.session = requests.Session()
        self._csrf = self.get("session").json()["csrf"]

    def get(self, path: str, **params: Any) -> Any:
        return self.session.get(f"{self._url}api/{path}", params=params, timeout=PATIENCE_SECONDS)

    def post(self, path: str, **body: Any) -> Any:
        headers = {CSRF_HEADER: self._csrf or ""}
        return self.session.post(
            f"{self._url}api/{path}", json=body, headers=headers, timeout=PATIENCE_SECONDS
        )

    def ok(self, path: str, **body: Any) -> Any:
        answer = self.post(path, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def dead(self, **query: Any) -> dict[str, dict[str, Any]]:
        """Dead letters by msg_id."""
        return {one["msg_id"]: one for one in self.ok("dead/list", **query)["letters"]}

    def treat(self, *letters: dict[str, Any], **treatment: Any) -> list[tuple[str, str]]:
        """What became of letters: (outcome, words)."""
        named = [{name: one[name] for name in ("seq", "stored_at", "revision")} for one in letters]
        done = self.ok("dead/treat", letters=named, treatment=treatment)["done"]
        return [(one["outcome"], one["words"]) for one in done]

    def records(self, view: str = "all") -> dict[str, dict[str, Any]]:
        answer = self.get("records", view=view)
        assert answer.status_code == 200, answer.text
        return {one["msg_id"]: one for one in answer.json()["records"]}

    def settle(self, record: dict[str, Any], how: str, **more: Any) -> Any:
        return self.post(f"records/{record['key']}/settle", how=how, revision=record["revision"], **more)

    def audit(self) -> list[tuple[str, list[str], bool]]:
        return [(one["action"], one["ids"], one["ok"]) for one in self.get("audit").json()]

    def close(self) -> None:
        self.session.close()


@pytest.fixture
def browser(stage: Stage) -> Iterator[Browser]:
    with stage.console() as console:
        made = Browser(console.url)
        yield made
        made.close()


def command(stage: Stage, *arguments: str) -> Any:
    """A command of ours as the same operator."""
    env = {"NATS_URL": stage.server.url, "NATS_TELEGRAM_NKEY_SEED": stage.server.operator_seed}
    return CliRunner().invoke(main, arguments, env=env)


# Dead letters


def test_letters_are_listed_by_the_same_filters_as_by_the_command(stage: Stage, browser: Browser) -> None:
    stage.bury("a", "refused", 403)
    stage.bury("b", "expired", chat="@ops_room")
    stage.bury("c", "unreadable", payload=b"{")
    stage.bury("d", chat=None)
    assert list(browser.dead()) == ["d", "c", "b", "a"]
    assert list(browser.dead(reasons=["expired", "unreadable"])) == ["c", "b"]
    assert list(browser.dead(chat="default")) == ["d", "c"]
    assert list(browser.dead(msg_id="a", newer_than="1h")) == ["a"]
    found = browser.ok("dead/list")
    assert found["reasons"] == {"refused": 2, "expired": 1, "unreadable": 1}
    assert found["count"] == 4
    assert SECRET not in json.dumps(found)
    listed = json.loads(command(stage, "dead", "list", "--json").stdout)
    shared = ("seq", "reason", "msg_id", "error_code", "description", "attempts", "dead_at", "status")
    ours = [{name: one[name] for name in shared} for one in reversed(found["letters"])]
    assert ours == [{name: one[name] for name in shared} for one in listed]
    assert browser.post("dead/list", newer_than="soon").status_code == 400
    assert browser.post("dead/list", nonsense=1).status_code == 400


def test_a_text_is_shown_only_when_asked_for_which_is_written_down(stage: Stage, browser: Browser) -> None:
    seq = stage.bury("m1", text=f"<b>{SECRET}", parse_mode="HTML")
    full = browser.get(f"dead/{seq}")
    assert SECRET not in full.text
    assert dict(full.json()["headers"])["Publisher"] == "billing"
    assert full.json()["what"] == "Telegram refused it."
    assert browser.audit() == []
    body = browser.ok(f"dead/{seq}/body")
    assert body["text"] == f"<b>{SECRET}"
    assert "Can't find end tag" in body["verdict"]["fault"]["description"]
    assert browser.audit() == [("dead.show-text", [str(seq)], True)]
    assert browser.get("dead/99").status_code == 404
    assert browser.post("dead/99/body").status_code == 404


def test_a_letter_is_resent_once_by_page_page_and_command(stage: Stage, browser: Browser) -> None:
    stage.relay()
    stage.bury("m1", chat="7", text="hello")
    seen = browser.dead()["m1"]
    assert browser.treat(seen, act="resend") == [("done", "published as m1.r1")]
    stage.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
    # Of another tab, which still shows it as it was; also where it would send another copy.
    for again in (False, True):
        (outcome,) = browser.treat(seen, act="resend", again=again)
        assert outcome[0] == "left"
        assert outcome[1].startswith("resent by ada@desk (console) at ")
    assert "left alone" in command(stage, "dead", "resend", "1", "--yes").output
    assert browser.treat(seen, act="discard")[0][0] == "left"
    now = browser.dead()["m1"]
    assert (now["status"], now["resent_as"], now["by"]) == ("resent", "m1.r1", "ada@desk (console)")
    assert browser.treat(now, act="resend", again=True) == [("done", "published as m1.r2")]
    stage.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
    stage.assert_nothing_left()
    assert stage.texts() == ["hello", "hello"]


def test_two_tabs_that_resend_at_once_send_one_copy(stage: Stage, browser: Browser) -> None:
    stage.bury("m1", chat="7")
    seen = browser.dead()["m1"]
    together = threading.Barrier(2)
    outcomes: list[str] = []

    def press() -> None:
        together.wait(PATIENCE_SECONDS)
        outcomes.append(browser.treat(seen, act="resend")[0][0])

    tabs = [threading.Thread(target=press) for _ in range(2)]
    for tab in tabs:
        tab.start()
    for tab in tabs:
        tab.join(PATIENCE_SECONDS)
    assert "done" in outcomes
    with stage.server.client() as client:
        assert client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["state"]["messages"] == 1


def test_plain_text_and_another_chat(stage: Stage, browser: Browser) -> None:
    stage.relay()
    stage.bury("m1", text="<b>bold", parse_mode="HTML", chat="7")
    assert browser.post("dead/plan", query={}, treatment={"act": "resend", "chat": "ops"}).status_code == 400
    browser.treat(browser.dead()["m1"], act="resend", plain=True, chat="8")
    (message,) = stage.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
    assert (message.chat_id, message.raw_text) == (8, "bold")


def test_a_discard_is_noted_and_hidden_and_a_purge_wants_the_right(stage: Stage, browser: Browser) -> None:
    stage.bury("m1")
    assert browser.treat(browser.dead()["m1"], act="discard", why="said by phone") == [("done", "discarded")]
    assert browser.dead() == {}
    found = browser.dead(everything=True)["m1"]
    assert (found["status"], found["why"], found["by"]) == (
        "discarded",
        "said by phone",
        "ada@desk (console)",
    )
    named = {name: found[name] for name in ("seq", "stored_at", "revision")}
    answer = browser.post("dead/treat", letters=[named], treatment={"act": "discard", "purge": True})
    assert answer.status_code == 403
    assert "nats-permissions.conf" in answer.json()["description"]
    assert browser.audit()[0] == ("dead.discard", ["1"], False)
    assert browser.treat(found, act="resend", again=True)[0][0] == "done"


def test_many_are_planned_with_their_count_and_why_the_others_are_not(stage: Stage, browser: Browser) -> None:
    for number in range(4):
        stage.bury(f"m{number}")
    stage.bury("perhaps", "ambiguous", 504)
    stage.bury("no-envelope", "unreadable", payload=b"<xml>")
    browser.treat(browser.dead()["m0"], act="resend")
    plan = browser.ok("dead/plan", query={}, treatment={"act": "resend"})
    assert [one["seq"] for one in plan["ready"]] == [2, 3, 4]
    assert plan["more"] == 0
    assert {one["count"] for one in plan["against"]} == {1}
    words = " ".join(one["why"] for one in plan["against"])
    for part in ("it may have been sent", "no envelope", "resent before"):
        assert part in words
    plan = browser.ok("dead/plan", query={"reasons": ["refused"]}, treatment={"act": "discard"})
    assert [one["seq"] for one in plan["ready"]] == [1, 2, 3, 4]
    too_many = [plan["ready"][0]] * (MOST_AT_ONCE + 1)
    assert browser.post("dead/treat", letters=too_many, treatment={"act": "resend"}).status_code == 400
    browser.ok("dead/treat", letters=plan["ready"], treatment={"act": "discard"})
    assert list(browser.dead()) == ["no-envelope", "perhaps"]
    assert browser.audit()[0] == ("dead.discard", ["1", "2", "3", "4"], True)


# What is in doubt


def test_sent_again_it_is_sent_once_and_by_nobody_else(stage: Stage, browser: Browser) -> None:
    stage.relay()
    stage.lose("m1", chat="7")
    seen = browser.records("doubt")["m1"]
    assert browser.get(f"records/{seen['key']}").json()["chat"] == "7"
    answer = browser.settle(seen, "send-again")
    assert answer.json()["words"].startswith("m1: published again as sequence ")
    record = stage.until_record("m1", lambda record: record.status == SENT)
    assert (record.resolution, record.resolved_by) == ("send-again", "ada@desk (console)")
    late = browser.settle(seen, "send-again")
    assert late.status_code == 409
    assert late.json()["kind"] == "overtaken"
    assert "somebody else was first; nothing was changed here. Sent as " in late.json()["description"]
    by_command = command(stage, "ledger", "resolve", seen["key"], "--send-again", "--yes")
    assert "nothing is in doubt" in by_command.output
    stage.assert_nothing_left()
    assert len(stage.sandbox.messages(chat=7)) == 2  # the one whose answer was lost, and this
    assert browser.records("doubt") == {}
    # Its dead letter is put aside.
    assert browser.dead(everything=True)["m1"]["why"] == "ledger resolve: send-again"


def test_raced_by_a_command_nothing_is_sent_twice(stage: Stage, browser: Browser) -> None:
    stage.relay()
    stage.lose("m1", chat="7")
    seen = browser.records("doubt")["m1"]
    assert command(stage, "ledger", "resolve", seen["key"], "--cancel", "--yes").exit_code == 0
    late = browser.settle(seen, "send-again")
    assert late.status_code == 409
    assert "Cancelled: not sent any more." in late.json()["description"]
    assert browser.audit()[0] == ("ledger.send-again", [seen["key"]], False)
    stage.assert_nothing_left()
    assert len(stage.sandbox.messages(chat=7)) == 1


def test_taken_as_sent_replies_to_it_are_told(stage: Stage, browser: Browser) -> None:
    stage.relay()
    stage.lose("m1", chat="7", from_member="alice", route_id="r")
    seen = browser.records("doubt")["m1"]
    assert browser.settle(seen, "cancel", message_id=5).status_code == 400
    words = browser.settle(seen, "sent", message_id=4711).json()["words"]
    assert words.endswith("taken as sent, message 4711")
    found = browser.ok("link", chat="7", message_id=4711)
    assert (found["msg_id"], found["from_member"]) == ("m1", "alice")
    unknown = browser.post("link", chat="7", message_id=1)
    assert unknown.json()["description"] == NOT_AVAILABLE
    assert browser.post("link", chat="@ops_room", message_id=1).status_code == 400


def test_cancelled_it_is_never_sent(stage: Stage, browser: Browser) -> None:
    stage.relay()
    stage.lose("m1", chat="7")
    assert browser.settle(browser.records("doubt")["m1"], "cancel").json()["words"] == "m1: cancelled"
    record = stage.record("m1")
    assert record is not None
    assert record.status == CANCELLED
    assert "m1" in browser.records("unsent")


def test_what_was_begun_and_cut_off_is_offered_again(
    stage: Stage, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = stage.relay()
    stage.lose("m1", chat="7")
    relay.stop(10)
    seen = browser.records("doubt")["m1"]

    def cut(*_: Any) -> int:
        raise Disconnected("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "publish_again", cut)
        answer = browser.settle(seen, "send-again")
    assert answer.status_code == 502
    assert answer.json()["kind"] == "half-done"
    now = browser.records("doubt")["m1"]
    assert now["to_finish"] == "send-again"
    assert browser.settle(now, "send-again").status_code == 200
    assert browser.settle(now, "send-again").status_code == 200  # which does no harm
    stage.relay()
    stage.until_record("m1", lambda record: record.status == SENT)
    stage.assert_nothing_left()
    assert len(stage.sandbox.messages(chat=7)) == 2


# What became of a message


def test_a_messages_whole_past_is_told_in_order(stage: Stage, browser: Browser) -> None:
    stage.relay()
    stage.lose("m1", chat="7")
    browser.settle(browser.records("doubt")["m1"], "send-again")
    stage.until_record("m1", lambda record: record.status == SENT)
    found = browser.get("history", msg_id="m1").json()
    words = [one["words"] for one in found["past"]]
    assert words[0] == "First seen"
    assert any(one.startswith("Became dead letter 1 (ambiguous)") for one in words)
    assert any(one.startswith("Settled by ada@desk (console): to be sent again") for one in words)
    assert any(one.startswith("Sent as message ") for one in words)
    assert [one["at"] for one in found["past"]] == sorted(one["at"] for one in found["past"])
    assert found["links"][0]["msg_id"] == "m1"
    assert SECRET not in json.dumps(found)
    copies = browser.get("history", msg_id="nobody").json()
    assert (copies["records"], copies["letters"], copies["past"]) == ([], [], [])
    assert browser.get("history").status_code == 400


def test_copies_of_a_letter_are_part_of_its_past(stage: Stage, browser: Browser) -> None:
    stage.bury("m1")
    stage.bury("m1.r1", "gave_up")
    stage.bury("m10")
    found = browser.get("history", msg_id="m1").json()
    assert [one["msg_id"] for one in found["letters"]] == ["m1", "m1.r1"]


def test_without_a_ledger_it_says_so_and_shows_the_rest(stage: Stage, browser: Browser) -> None:
    stage.bury("m1")
    with stage.server.client() as client:
        client.api("STREAM.DELETE.KV_telegram_ledger")
    assert "does not exist" in browser.get("records", view="doubt").json()["off"]
    found = browser.get("history", msg_id="m1").json()
    assert "there is no ledger" in found["unknown"][0]
    assert found["letters"][0]["msg_id"] == "m1"


# Pausing


def test_the_bot_and_chats_are_paused_and_resumed_as_by_the_command(stage: Stage, browser: Browser) -> None:
    stage.relay()
    eventually(lambda: stage.connectors())
    words = browser.ok("pause", chat="7", lasting="10m", reason="moving  the\ngroup")["words"]
    assert words.startswith("chat 7 is paused; heard by 1 connector")
    status = json.loads(command(stage, "status", "--json").stdout)
    (pause,) = status["pauses"]
    assert (pause["chat"], pause["reason"]) == ("7", "moving the group")
    stage.publish(TelegramOutbound(msg_id="m1", chat="7", text="waits"))
    stage.publish(TelegramOutbound(msg_id="m2", chat="8", text="goes"))
    stage.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
    assert stage.texts() == ["goes"]
    assert browser.ok("resume", chat="7")["words"].startswith("resumed: chat 7; heard by 1")
    stage.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
    browser.ok("pause")
    assert browser.ok("resume", everything=True)["words"].startswith("resumed: the bot")
    assert browser.ok("resume", everything=True)["words"] == "nothing was paused"
    for wrong in ({"chat": "nobody"}, {"lasting": "soon"}, {"lasting": "400d"}, {"reason": "x" * 201}):
        assert browser.post("pause", **wrong).status_code == 400
    actions = [action for action, _, _ in browser.audit()]
    assert actions == ["resume", "resume", "pause", "resume", "pause"]


# NATS and rights


def test_a_missing_right_is_named(stage: Stage) -> None:
    settings = stage.server.settings(stage.server.publisher_seed)
    with Console(settings, Access()) as console:
        browser = Browser(console.url)
        answer = browser.post("dead/list")
        browser.close()
    assert answer.status_code == 403
    assert answer.json()["kind"] == "permission"
    assert "kv_telegram_state" in answer.json()["description"].lower()
    assert "deploy/nats-permissions.conf" in answer.json()["description"]


def test_the_watch_says_that_nats_is_away_and_heals(stage: Stage) -> None:
    watch = Watch(stage.operator)
    watch.start()
    try:
        picture = watch.after(0, PATIENCE_SECONDS)
        assert picture is not None
        assert picture.overview is not None
        assert picture.trouble == ""
        stage.server.kill()

        def until(is_well: bool) -> None:
            number = -1
            while True:
                found = watch.after(number, PATIENCE_SECONDS)
                assert found is not None
                if (found.trouble == "") is is_well:
                    return
                number = found.number

        until(is_well=False)
        stage.server.start()
        until(is_well=True)
    finally:
        watch.close()
    assert watch.after(0, PATIENCE_SECONDS) is None


def test_nobody_is_asked_while_nobody_looks_on(stage: Stage) -> None:
    watch = Watch(stage.operator)
    watch.start()
    with stage.server.client() as client:
        before = client.api("INFO")["api"]["total"]
        watch.acted()  # which is no wish to see
        assert client.api("INFO")["api"]["total"] <= before + 2
    watch.close()


# The process


def test_the_process_serves_logs_each_action_and_stops(stage: Stage) -> None:
    stage.bury("m1")
    env = {"NATS_URL": stage.server.url, "NATS_TELEGRAM_NKEY_SEED": stage.server.operator_seed}
    port = free_port()
    with Process("console", "--port", str(port), env={**env, "TELEGRAM_BOT_TOKEN": TOKEN}) as process:
        process.until(f"The operator's page: http://127.0.0.1:{port}/")
        browser = Browser(f"http://127.0.0.1:{port}/")
        url = f"http://127.0.0.1:{port}/"
        pages = [browser.session.get(url + path, timeout=60) for path in ("", "api/start")]
        browser.treat(browser.dead()["m1"], act="discard", why="said by phone")
        browser.ok("dead/1/body")
        browser.close()
        process.until("dead.show-text")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    secret = TOKEN.partition(":")[2]
    assert all(secret not in page.text for page in pages)
    assert secret not in process.output
    assert SECRET not in process.output
    lines = [json.loads(line) for line in process.output.splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line.get("action") == "dead.discard"]
    assert line["event"] == "console_action"
    assert line["ids"] == ["1"]
    assert line["address"] == "127.0.0.1"
    assert line["result"] == "1 done (why: said by phone)"
    assert line["who"].endswith(" (console)")


def test_a_platforms_port_wants_a_token_and_all_addresses(stage: Stage) -> None:
    env = {"NATS_URL": stage.server.url, "NATS_TELEGRAM_NKEY_SEED": stage.server.operator_seed}
    port = free_port()
    with Process("console", env={**env, "PORT": str(port)}) as process:
        assert process.wait() == 78
        assert "TG_CONSOLE_TOKEN is not set" in process.output
        assert "PORT is set" in process.output
    for wrong, words in (
        ("short", "is too easy to guess"),
        ("a" * 40, "is too easy to guess"),
        (TOKEN, "is a bot's token"),
    ):
        with Process("console", env={**env, "TG_CONSOLE_TOKEN": wrong}) as process:
            assert process.wait() == 78
            assert f"TG_CONSOLE_TOKEN {words}" in process.output
            assert wrong not in process.output
    with Process("console", env={**env, "PORT": str(port), "TG_CONSOLE_TOKEN": CONSOLE_TOKEN}) as process:
        process.until(f"http://0.0.0.0:{port}/ (it asks for TG_CONSOLE_TOKEN)")
        url = f"http://127.0.0.1:{port}/api"
        assert requests.get(f"{url}/start", timeout=60).status_code == 401
        login = requests.post(f"{url}/login", json={"token": CONSOLE_TOKEN}, timeout=60)
        assert "Secure" in login.headers["Set-Cookie"]
        process.until('"action": "login"')
        assert CONSOLE_TOKEN not in process.output


def test_a_taken_port_is_one_line(stage: Stage) -> None:
    env = {"NATS_URL": stage.server.url, "NATS_TELEGRAM_NKEY_SEED": stage.server.operator_seed}
    with Process("console", "--port", str(stage.server.port), env=env) as process:
        assert process.wait() == 1
        assert "telegram-connector console: cannot listen at 127.0.0.1: " in process.output
        assert "Traceback" not in process.output


def test_an_unexpected_error_says_nothing_of_a_message(
    stage: Stage, browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage.bury("m1")

    def broken(*_: Any) -> None:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(DeadLetters, "body", broken)
    with caplog.at_level(logging.INFO, "telegram_connector.console"):
        answer = browser.post("dead/1/body")
    assert answer.status_code == 500
    assert answer.json()["description"] == "internal error: ZeroDivisionError; the log says more"
    assert browser.audit() == [("dead.show-text", ["1"], False)]


def test_what_is_ambiguous_is_left_to_the_ledger(stage: Stage, browser: Browser) -> None:
    stage.bury("m1", "ambiguous", 504, chat=CHAT)
    ((outcome, words),) = browser.treat(browser.dead()["m1"], act="resend")
    assert outcome == "refused"
    assert "it may have been sent" in words
    assert eventually(lambda: browser.dead()["m1"]["status"] == "open")
    assert AMBIGUOUS not in browser.get("records", view="doubt").json()["statuses"]
