"""What ``status`` shows: the connectors' own figures, JetStream's, and both together."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from telegram_connector import events
from telegram_connector.cli import main
from telegram_connector.cli.status import rows
from telegram_connector.cli.watch import picture
from telegram_connector.disposition import Sent, Terminal, Transient
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.lanes import Item, Lanes
from telegram_connector.overview import Observatory, Overview
from telegram_connector.pauses import Pause, Pauses
from telegram_connector.rates import Rate
from telegram_connector.status import NAMED, Figures, decode, read_answers, work_of
from tests.fakes import make_delivery
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet, numbered


def operator_env(fleet: Fleet, seed: str = "") -> dict[str, str]:
    return {
        "NATS_URL": fleet.server.url,
        "NATS_TELEGRAM_NKEY_SEED": seed or fleet.server.operator_seed,
    }


def ask(fleet: Fleet, *options: str, seed: str = "") -> str:
    result = CliRunner().invoke(main, ["status", *options], env=operator_env(fleet, seed))
    assert result.exit_code == 0, result.output
    return result.output


def shown(fleet: Fleet, seed: str = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(fleet, "--json", seed=seed))
    return found


def until_shown(fleet: Fleet, condition: Any) -> dict[str, Any]:
    """Ask until the condition holds for the answer."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition(found := shown(fleet)):
        assert time.monotonic() < deadline, found
    return found


def until_answered(fleet: Fleet, count: int) -> dict[str, Any]:
    return until_shown(fleet, lambda found: len(found["connectors"]) == count)


# Rates and figures


def test_a_rate_is_per_minute_over_its_window():
    rate = Rate()
    for second in range(120):
        rate.note(float(second))
    assert rate.per_minute(119.9, 1) == 60
    assert rate.per_minute(119.9, 5) == 24
    assert rate.per_minute(119.9, 15) == 8
    assert rate.per_minute(119.9 + 60, 1) == 0
    assert rate.per_minute(119.9 + 900, 15) == 0


def test_a_rate_keeps_no_more_than_its_longest_window():
    rate = Rate()
    for second in range(0, 100_000, 5):
        rate.note(float(second))
    assert len(rate._buckets) == 180
    assert rate.per_minute(99_999.0, 15) == 12


def attempted(disposition: Any) -> events.Attempted:
    return events.Attempted(events.Subject("m", "5", None, 1), disposition, 0, 1.0, "ack", None)


def test_figures_count_what_became_of_messages():
    figures = Figures(lambda: 100.0, lambda: 1_700_000_000.0)
    assert figures.tally().last_sent_at is None
    for disposition in (Sent(1), Sent(2), Transient(429, "slow", 3.0), Terminal(403, "no", "refused")):
        figures.observe(attempted(disposition))
    figures.observe(events.ChatReleased("5"))
    tally = figures.tally()
    assert (tally.sent, tally.retried, tally.dropped) == (2, 1, {"refused": 1})
    assert tally.last_sent_at == "2023-11-14T22:13:20.000Z"
    assert tally.rates.sent == (2.0, 0.4, 0.13)
    assert tally.rates.dropped == (1.0, 0.2, 0.07)


def lanes_with_holds(chats: int) -> Lanes:
    lanes = Lanes(1000)
    sequence = 0
    for chat in range(chats):
        lanes.hold(str(chat), 50.0)
        for _ in range(chat % 7):
            sequence += 1
            delivery = make_delivery(sequence, "the secret text", str(chat))
            content = TelegramOutbound(msg_id="m", text="the secret text")
            lanes.add(Item(delivery, str(chat), content, 60.0), now=0.0)
    return lanes


def test_the_fullest_of_many_holds_are_listed_and_all_are_counted():
    work = work_of(lanes_with_holds(50), Pauses(), 3, now=20.0, wall=0.0)
    assert (len(work.holds), work.holds_in_all, work.unconfirmed) == (NAMED, 50, 3)
    assert [hold.waiting for hold in work.holds] == sorted((n % 7 for n in range(50)), reverse=True)[:NAMED]
    assert {hold.ends_in_seconds for hold in work.holds} == {30.0}
    assert work.waiting == sum(n % 7 for n in range(50)) == work.outstanding
    assert b"secret" not in msgspec.json.encode(work)


def test_pauses_are_listed_the_bots_first_and_no_longer_than_they_last():
    paused = Pauses(
        Pause(10.0, None, "maintenance"),
        {"5": Pause(10.0, 100.0, "x"), "6": Pause(0.0, 20.0), "4": Pause(1.0)},
    )
    work = work_of(lanes_with_holds(6), paused, 0, now=0.0, wall=40.0)
    assert [(p.chat, p.ends_in_seconds, p.waiting) for p in work.pauses] == [
        (None, None, 15),
        ("5", 60.0, 5),
        ("4", None, 4),
    ]
    assert work.pauses_in_all == 3


def test_a_bot_that_is_refused_says_so():
    lanes = Lanes(10)
    lanes.gate.close("Unauthorized", fault=True, now=0.0, jitter=0.0)
    bot = work_of(lanes, Pauses(), 0, now=0.25, wall=0.0).bot
    assert bot is not None
    assert (bot.reason, bot.fault, bot.held_seconds, bot.next_try_in_seconds) == (
        "Unauthorized",
        True,
        0.2,
        0.8,
    )


@pytest.mark.parametrize(
    "answer", [b"", b"null", b'{"v": 1}', b"[" * 9999, b'{"stream":"FLEET","seq":5}', b"\xff"]
)
def test_what_is_no_status_is_counted_and_left_out(answer: bytes):
    assert read_answers([answer], "S") == ([], 1)


# Against a real server


@pytest.mark.integration
def test_all_connectors_answer_and_one_is_active(fleet: Fleet) -> None:
    fleet.relay()
    fleet.publish(*numbered(10, 2))
    fleet.sandbox.wait(count=10, timeout_seconds=PATIENCE_SECONDS)
    fleet.relay()
    fleet.assert_nothing_left()
    found = until_answered(fleet, 2)
    active, standby = found["connectors"]
    assert (active["role"], standby["role"]) == ("active", "standby")
    assert (active["sending"], standby["sending"]) == (True, False)
    assert (active["tally"]["sent"], standby["tally"]["sent"]) == (10, 0)
    assert active["tally"]["rates"]["sent"][2] == 0.67  # 10 in a quarter of an hour
    assert active["tally"]["last_sent_at"] == found["last_sent_at"]
    assert active["id"] != standby["id"]
    assert found["backlog"] == {"count": 0, "oldest_at": None, "age_seconds": None}
    assert (found["outstanding"]["count"], found["pinned"], found["unknown"]) == (0, True, [])
    words = ask(fleet)
    assert "2 answered, 1 active\n" in words
    assert ": active, up " in words
    assert ": standby, up " in words


@pytest.mark.integration
def test_an_answer_names_held_chats_and_holds_neither_text_nor_token(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("flood", chat=100, retry_after=300)
    fleet.relay()
    fleet.publish(*numbered(20, 2))
    fleet.sandbox.wait(count=10, chat=101, timeout_seconds=PATIENCE_SECONDS)
    found = until_shown(fleet, lambda f: f["connectors"] and f["connectors"][0]["work"]["awaited"])
    (hold,) = found["connectors"][0]["work"]["holds"]
    assert hold["chat"] == "100"
    assert 290 < hold["ends_in_seconds"] < 331
    assert found["outstanding"]["count"] == 10
    assert found["outstanding"]["age_seconds"] >= 0
    with fleet.server.client() as client:
        (answer,) = client.gather("telegram.status.tg_outbound", b"", 1.0)
    assert decode(answer).work.holds_in_all == 1
    for secret in (b"text ", TOKEN.encode(), TOKEN.split(":")[1].encode(), fleet.server.worker_seed.encode()):
        assert secret not in answer
    assert "chat 100 held for another " in ask(fleet)


@pytest.mark.integration
def test_when_nobody_answers_what_jetstream_knows_is_shown(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("chat_blocked", chat=100)
    relay = fleet.relay()
    fleet.publish(*numbered(3, 1))
    fleet.until(lambda: len(fleet.of(events.Attempted)) == 3)
    fleet.assert_nothing_left()
    relay.stop(10)
    fleet.publish(*numbered(5, 1, start=3))
    found = shown(fleet)
    assert found["connectors"] == []
    assert found["backlog"]["count"] == 5
    assert 0 <= found["backlog"]["age_seconds"] < PATIENCE_SECONDS
    assert found["backlog"]["oldest_at"].endswith("Z")
    assert found["dead_letters"] == {"count": 3, "read": 3, "by_reason": {"refused": 3}}
    assert (found["ambiguous"], found["last_sent_at"], found["pauses"]) == (0, None, [])
    words = ask(fleet)
    assert "none answered; the above is what JetStream alone knows" in words
    assert "3 (3 refused)" in words
    assert "5 waiting, the oldest for " in words


@pytest.mark.integration
def test_before_there_is_a_consumer_or_a_stream_it_says_what_is_missing(fleet: Fleet) -> None:
    found = shown(fleet)
    assert found["backlog"] is None
    assert found["unknown"] == ["backlog: consumer not found (404/10014)"]
    with fleet.server.client() as client:
        client.api("STREAM.DELETE.TELEGRAM_DEAD")
    assert "dead letters: stream not found (404/10059)" in shown(fleet)["unknown"]


@pytest.mark.integration
def test_a_connector_whose_token_is_refused_answers(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("token-revoked")
    fleet.relay()
    fleet.publish(*numbered(3, 1))
    assert fleet.until_event(events.BotHeld).fault
    found = until_shown(fleet, lambda f: f["connectors"] and f["connectors"][0]["work"]["bot"])
    bot = found["connectors"][0]["work"]["bot"]
    assert (bot["fault"], bot["reason"]) == (True, "Unauthorized")
    assert "BOT PAUSED, its token or account is refused for " in ask(fleet)


@pytest.mark.integration
def test_it_answers_again_after_a_lost_connection(fleet: Fleet) -> None:
    fleet.relay()
    until_answered(fleet, 1)
    fleet.server.kill()
    fleet.until_event(events.ConnectionLost)
    fleet.server.start()
    fleet.until_event(events.Connected, 2)
    connector = until_answered(fleet, 1)["connectors"][0]
    assert connector["connected_seconds"] <= connector["up_seconds"]


@pytest.mark.integration
def test_without_the_rights_of_this_version_it_relays_and_says_once_what_is_missing(fleet: Fleet) -> None:
    allowed = '"$JS.API.>", "$JS.ACK.>", "$KV.>", "telegram.dead", "telegram.alerts"'
    old = f'publish: {{ allow: [ {allowed} ] }}, subscribe: {{ allow: ["_INBOX.tg_outbound.>"'
    fleet.server.worker_permissions = f"{{ {old}] }} }}"
    fleet.server.reload()
    fleet.relay()
    missing = fleet.until_event(events.StatusUnanswered)
    assert missing.reason == "NATS permission missing for telegram.status.tg_outbound"
    fleet.publish(*numbered(10, 2))
    fleet.sandbox.wait(count=10, timeout_seconds=PATIENCE_SECONDS)
    fleet.server.kill()
    fleet.server.start()
    fleet.until_event(events.Connected, 2)
    fleet.publish(*numbered(10, 2, start=10))
    fleet.sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
    assert "none answered, yet one pulls" in ask(fleet)
    assert len(fleet.of(events.StatusUnanswered)) == 1
    assert not fleet.of(events.BindFailed)
    assert "permission" not in fleet.of(events.ConnectionLost)[0].reason
    # One that may listen and not answer.
    fleet.server.worker_permissions = f'{{ {old}, "telegram.status.tg_outbound"] }} }}'
    fleet.server.reload()
    fleet.server.kill()
    fleet.server.start()
    fleet.until_event(events.Connected, 3)
    until_shown(fleet, lambda _: len(fleet.of(events.StatusUnanswered)) == 2)
    assert "allow_responses" in fleet.of(events.StatusUnanswered)[1].reason


@pytest.mark.integration
def test_nothing_is_published_to_a_subject_that_is_no_inbox(fleet: Fleet) -> None:
    fleet.relay()
    until_answered(fleet, 1)
    heard = fleet.server.listen("telegram.alerts")
    with fleet.server.client() as client:
        link = client._open()
        for reply in ("telegram.alerts", f"{link.new_inbox()}"):
            client._wait(client._loop.submit(link.publish("telegram.status.tg_outbound", b"", reply=reply)))
        # Requests are answered one after the other: this one comes after those.
        assert len(client.gather("telegram.status.tg_outbound", b"", 1.0)) == 1
    assert heard.empty()


@pytest.mark.integration
def test_the_workers_own_user_may_ask_and_is_told_what_it_may_not_see(fleet: Fleet) -> None:
    denied = "$JS.API.STREAM.MSG.GET.TELEGRAM_DEAD"
    fleet.server.worker_permissions = f'{{ publish: {{ deny: ["{denied}"] }} }}'
    fleet.server.reload()
    fleet.sandbox.set_fault("chat_blocked", chat=100)
    fleet.relay()
    fleet.publish(*numbered(1, 1))
    fleet.until_event(events.Attempted)
    fleet.assert_nothing_left()
    until_answered(fleet, 1)
    found = shown(fleet, seed=fleet.server.worker_seed)
    assert found["dead_letters"] == {"count": 1, "read": 0, "by_reason": None}
    assert found["connectors"][0]["tally"]["dropped"] == {"refused": 1}
    assert found["unknown"] == [f"reasons: NATS permission missing for {denied}"]
    assert found["ambiguous"] is None


@pytest.mark.integration
def test_a_stream_that_takes_the_request_too_is_not_taken_for_a_connector(fleet: Fleet) -> None:
    with fleet.server.client() as client:
        client.api("STREAM.CREATE.FLEET", {"name": "FLEET", "subjects": ["telegram.status.>"]})
    fleet.relay()
    found = until_answered(fleet, 1)
    assert found["unknown"] == ["connectors: 1 answers on telegram.status.tg_outbound are no status"]


@pytest.mark.integration
def test_looking_again_reads_only_new_dead_letters(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.sandbox.set_fault("chat_blocked", chat=100)
    fleet.relay()
    settings = fleet.server.settings(fleet.server.operator_seed)
    with fleet.server.client(fleet.server.operator_seed) as client:
        observatory = Observatory(client, settings, 0.1)
        assert client._link is not None
        read: list[int] = []
        api_each = client._link.api_each

        def counting(subject: str, bodies: Any) -> Any:
            read.append(len(bodies))
            return api_each(subject, bodies)

        monkeypatch.setattr(client._link, "api_each", counting)
        for drops in (3, 4):
            fleet.publish(*numbered(drops, 1, start=3 * (drops - 3)))
            fleet.until(lambda: len(fleet.of(events.Attempted)) >= 3 + 4 * (drops - 3))  # noqa: B023
            fleet.assert_nothing_left()
            dead = observatory.look().dead_letters
            assert dead is not None
            assert dead.by_reason == {"refused": 3 + 4 * (drops - 3)}
        assert read == [3, 4]
        with fleet.server.client() as root:
            root.api("STREAM.MSG.DELETE.TELEGRAM_DEAD", {"seq": 2})
        dead = observatory.look().dead_letters
        assert dead is not None
        assert (dead.count, dead.by_reason) == (6, {"refused": 6})


@pytest.mark.integration
def test_without_nats_it_fails_in_words(fleet: Fleet) -> None:
    fleet.server.kill()
    result = CliRunner().invoke(main, ["status"], env=operator_env(fleet))
    assert result.exit_code == 1
    assert result.output.startswith("telegram-connector status: ")
    assert "NATS_URL" in result.output


# The live picture


def drawn(overview: Overview | None, trouble: str = "") -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    console.print(picture(overview, trouble))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.integration
def test_the_picture_shows_the_same_and_what_is_the_matter(fleet: Fleet) -> None:
    fleet.relay()
    until_answered(fleet, 1)
    settings = fleet.server.settings(fleet.server.operator_seed)
    with fleet.server.client(fleet.server.operator_seed) as client:
        overview = Observatory(client, settings, 0.5).look()
    text = drawn(overview, "the connection was lost")
    assert "the connection was lost; trying again" in text
    for name, _ in rows(overview):
        assert name in text
    assert "NATS" in drawn(None, "no server answers")


@pytest.mark.integration
def test_watch_draws_on_a_terminal_until_ctrl_c(fleet: Fleet) -> None:
    fleet.relay()
    until_answered(fleet, 1)
    ours, theirs = pty.openpty()
    env = {**operator_env(fleet), "PATH": os.environ.get("PATH", ""), "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "telegram_connector", "status", "--watch", "--wait", "0.2"]
    process = subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = bytearray()
    drew = threading.Event()

    def read() -> None:
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other end is closed
                return
            output.extend(chunk)
            if output.count(b"1 answered") >= 2:
                drew.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert drew.wait(PATIENCE_SECONDS), bytes(output)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0, bytes(output)
    finally:
        process.kill()
        process.wait()
        reader.join(PATIENCE_SECONDS)
        os.close(ours)
    assert b"Traceback" not in output


def test_watch_wants_a_terminal_and_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"NATS_URL": "nats://127.0.0.1:1", "NATS_AUTH": "none"}
    result = CliRunner().invoke(main, ["status", "--watch"], env=env)
    assert (result.exit_code, "draws on a terminal" in result.output) == (2, True)
    assert CliRunner().invoke(main, ["status", "--watch", "--json"], env=env).exit_code == 2

    for name in [n for n in sys.modules if n.split(".")[0] == "rich" or n.endswith("cli.watch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys.modules["telegram_connector.cli.status"], "on_terminal", lambda: True)
    result = CliRunner().invoke(main, ["status", "--watch"], env=env)
    assert (result.exit_code, "telegram-connector[watch]" in result.output) == (1, True)
