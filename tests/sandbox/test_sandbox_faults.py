"""Faults by rule, on real sockets."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
import requests

from telegram_connector.sandbox import Drip, Reset, Rule, Sandbox, Say, Silence
from telegram_connector.sandbox.answers import Answer
from telegram_connector.sandbox.faults import Fault, parse_rule, read_rule

SEND = {"chat_id": "5", "text": "hi"}


def talk(sandbox: Sandbox, body: bytes = b"chat_id=5&text=hi", sent: int | None = None) -> bytes:
    """One sendMessage on a bare socket; what comes until the end, or ConnectionResetError."""
    head = (
        "POST /bot1:x/sendMessage HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=10) as connection:
        connection.sendall(head.encode() + body[:sent])
        received = b""
        while piece := connection.recv(65_536):
            received += piece
        return received


# -- on the wire -----------------------------------------------------------------------------------------


def test_reset_before_the_body_was_read(sandbox):
    sandbox.set_fault("reset-before", times=1)
    # The body is never sent, and the reset comes all the same.
    with pytest.raises(ConnectionResetError):
        talk(sandbox, sent=0)
    (call,) = sandbox.wait_requests(count=1)
    assert (call.accepted, call.status, call.body, call.params) == (False, None, b"", {})
    assert talk(sandbox).startswith(b"HTTP/1.1 200")


def test_reset_before_the_answer(sandbox):
    sandbox.set_fault({"reset": "before_answer", "chat": 5})
    with pytest.raises(ConnectionResetError):
        talk(sandbox)
    (call,) = sandbox.requests()
    assert (call.accepted, call.status, call.params["text"]) == (False, None, "hi")
    assert sandbox.count() == 0


def test_accept_then_drop(sandbox):
    sandbox.set_fault("reset-after")
    with pytest.raises(ConnectionResetError):
        talk(sandbox)
    (call,) = sandbox.requests()
    assert (call.accepted, call.status, call.message_id) == (True, None, 1)
    assert json.loads(call.answer)["result"]["text"] == "hi"
    assert [m.raw_text for m in sandbox.messages()] == ["hi"]


def test_half_a_body(sandbox):
    sandbox.set_fault("half-body")
    head, _, body = talk(sandbox).partition(b"\r\n\r\n")
    (call,) = sandbox.requests()
    assert f"Content-Length: {len(call.answer)}".encode() in head
    assert body == call.answer[: len(call.answer) // 2]
    assert call.accepted


def test_slow_drip(sandbox):
    sandbox.set_fault({"drip": {"bytes": 50, "interval_seconds": 0.02}})
    began = time.monotonic()
    body = talk(sandbox).partition(b"\r\n\r\n")[2]
    (call,) = sandbox.requests()
    assert body == call.answer
    pauses = (len(body) - 1) // 50
    assert pauses >= 3
    # A poll may come back a hair early.
    assert time.monotonic() - began >= pauses * 0.02 * 0.9


def test_silence_after_accepting(sandbox):
    sandbox.set_fault("timeout-after-accept")
    with pytest.raises(requests.ReadTimeout):
        requests.post(f"{sandbox.url}/bot1:x/sendMessage", json=SEND, timeout=0.3)
    assert [call.status for call in sandbox.wait_requests(accepted=True)] == [None]
    assert sandbox.count() == 1


def test_silence_ends_by_itself_with_a_reset(sandbox):
    sandbox.set_fault({"silence": {"seconds": 0.05, "when": "before_answer"}})
    with pytest.raises(ConnectionResetError):
        talk(sandbox)
    assert sandbox.count() == 0


def test_a_delay_holds_the_answer_back_but_not_the_message(sandbox):
    sandbox.set_fault({"delay_seconds": 30})
    answers: list[bytes] = []
    waiting = threading.Thread(target=lambda: answers.append(talk(sandbox)))
    waiting.start()
    assert [m.raw_text for m in sandbox.wait(count=1)] == ["hi"]
    assert answers == []
    sandbox.stop()
    waiting.join(timeout=10)
    assert answers == [b""]


def test_a_drip_ends_when_the_caller_hangs_up(sandbox):
    sandbox.set_fault({"drip": {"bytes": 1, "interval_seconds": 30}})
    with pytest.raises(requests.RequestException):
        requests.post(f"{sandbox.url}/bot1:x/sendMessage", json=SEND, timeout=0.2)
    sandbox.stop()


def test_a_page_instead_of_json(sandbox, api):
    sandbox.set_fault("html-502")
    answer = api("sendMessage", **SEND)
    assert (answer.status_code, answer.headers["Content-Type"]) == (502, "text/html")
    assert answer.text.startswith("<html>")


def test_a_refusal_behind_which_a_message_exists(sandbox, api):
    sandbox.set_fault("restart-500", accept=True)
    assert api("sendMessage", **SEND).status_code == 500
    (call,) = sandbox.requests()
    assert (call.accepted, call.status, call.description) == (True, 500, "Internal Server Error: restart")
    assert sandbox.count() == 1


def test_an_answer_of_ones_own(sandbox, api):
    rule = {"status": 418, "description": "I'm a teapot", "parameters": {"retry_after": 9}}
    sandbox.set_fault({"answer": rule, "headers": {"X-Kettle": "on", "Retry-After": "10"}})
    answer = api("sendMessage", **SEND)
    assert answer.json() == {
        "ok": False,
        "error_code": 418,
        "description": "I'm a teapot",
        "parameters": {"retry_after": 9},
    }
    assert (answer.headers["X-Kettle"], answer.headers["Retry-After"]) == ("on", "10")
    sandbox.clear_faults()
    sandbox.set_fault({"answer": {"status": 599, "body": "not json"}})
    answer = api("sendMessage", **SEND)
    assert (answer.status_code, answer.text) == (599, "not json")


def test_flood_and_migration_with_figures_of_ones_own(sandbox, api):
    sandbox.set_fault("flood", retry_after=7, times=1)
    answer = api("sendMessage", **SEND)
    assert answer.headers["Retry-After"] == "7"
    assert answer.json()["description"] == "Too Many Requests: retry after 7"
    assert answer.json()["parameters"] == {"retry_after": 7}
    sandbox.set_fault("migrated", migrate_to_chat_id=-1009)
    assert api("sendMessage", **SEND).json()["parameters"] == {"migrate_to_chat_id": -1009}


# -- which calls a rule meets ----------------------------------------------------------------------------


def statuses(api, count: int, **params: object) -> list[int]:
    return [api("sendMessage", **{**SEND, **params}).status_code for _ in range(count)]


def test_a_rule_about_one_chat_leaves_the_others_alone(sandbox, api):
    fault = sandbox.set_fault("blocked", chat=5)
    assert [*statuses(api, 2), *statuses(api, 1, chat_id=6)] == [403, 403, 200]
    assert (fault.matched, fault.fired) == (2, 2)
    sandbox.remove_fault(fault)
    assert statuses(api, 1) == [200]


def test_a_rule_about_a_method_and_a_text(sandbox, api):
    sandbox.set_fault("blocked", method="SENDMESSAGE", text="^m[0-9]$")
    assert statuses(api, 1, text="m1") == [403]
    assert statuses(api, 1, text="m10") == [200]
    assert api("getMe").status_code == 200


def test_nth_every_and_times(sandbox, api):
    sandbox.set_fault("blocked", nth=2)
    assert statuses(api, 3) == [200, 403, 200]
    sandbox.clear_faults()
    sandbox.set_fault("blocked", every=2, times=2)
    assert statuses(api, 7) == [200, 403, 200, 403, 200, 200, 200]


def test_chance_is_repeatable():
    def run(seed: int) -> list[bool]:
        fault = Fault(read_rule({"preset": "blocked", "probability": 0.5, "seed": seed}))
        return [fault.fires("sendMessage", SEND) for _ in range(100)]

    assert run(1) == run(1) != run(2)
    assert 20 < sum(run(1)) < 80


def test_the_first_rule_that_fires_decides_and_a_name_replaces(sandbox, api):
    sandbox.set_fault("blocked", times=1, name="first")
    sandbox.set_fault("kicked", name="second")
    assert [api("sendMessage", **SEND).json()["description"] for _ in range(2)] == [
        "Forbidden: bot was blocked by the user",
        "Forbidden: bot was kicked from the supergroup chat",
    ]
    sandbox.set_fault("chat_not_found", name="second")
    assert [fault.rule.name for fault in sandbox.faults] == ["first", "second"]
    assert statuses(api, 1) == [400]


def test_rules_of_the_same_preset_live_side_by_side(sandbox, api):
    sandbox.set_fault("blocked", chat=5)
    sandbox.set_fault("blocked", chat=6)
    assert statuses(api, 1, chat_id=5) == statuses(api, 1, chat_id=6) == [403]


def test_faults_from_a_file_and_from_texts(tmp_path, session):
    path = tmp_path / "faults.json"
    path.write_text(json.dumps({"faults": [{"preset": "blocked", "chat": 5}, "flood:chat=6,retry_after=3"]}))
    with Sandbox(faults=path) as sandbox:

        def send(chat_id: int) -> requests.Response:
            return session.get(f"{sandbox.url}/bot1:x/sendMessage?chat_id={chat_id}&text=hi", timeout=10)

        assert send(5).status_code == 403
        assert send(6).json()["parameters"] == {"retry_after": 3}
        assert send(7).status_code == 200


def test_rules_as_objects(sandbox, api):
    sandbox.set_fault(Rule(Say(Answer(500, b"{}")), nth=1))
    sandbox.set_fault(Rule(Drip(bytes=1000), nth=1))
    assert statuses(api, 2) == [500, 200]
    assert sandbox.requests()[1].fault == "drip"
    with pytest.raises(ValueError, match="into the rule itself"):
        sandbox.set_fault(Rule(Reset("after_accept")), nth=1)


@pytest.mark.parametrize(
    "value",
    [
        {"preset": "unheard-of"},
        {"preset": "blocked", "reset": "before_body"},
        {"preset": "blocked", "colour": "red"},
        {"action": "blocked"},
        {"preset": "blocked", "retry_after": 3},
        {"preset": "half-body", "retry_after": 3},
        {"reset": "after_accept", "retry_after": 3},
        {"preset": ["blocked"]},
        {"preset": "blocked", "times": "twice"},
        5,
        {"reset": "sometime"},
        {"reset": "before_body", "chat": 5},
        {"reset": "before_body", "text": "x"},
        {"silence": {"when": "before_body"}},
        {"drip": {"bytes": 0}},
        {"drip": {"pace": 1}},
        {"answer": {"description": "no status"}},
        {"preset": "blocked", "probability": 2},
        {"preset": "blocked", "nth": 0},
        {"preset": "blocked", "text": "("},
    ],
)
def test_rules_at_fault_are_refused(value):
    with pytest.raises(ValueError):  # noqa: PT011 - the words differ
        read_rule(value)


def test_rules_from_texts():
    assert parse_rule("timeout-after-accept").action == Silence(60.0, "after_accept")
    rule = parse_rule("blocked:chat=@ops,text=7,probability=0.5,delay_seconds=1")
    assert (rule.chat, rule.text, rule.probability, rule.delay_seconds) == ("@ops", "7", 0.5, 1)
    with pytest.raises(ValueError, match="key=value"):
        parse_rule("blocked:chat")
