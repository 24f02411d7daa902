"""The assert API, in Python and over HTTP."""

from __future__ import annotations

import re
import threading

import pytest
import requests

from telegram_connector.sandbox import Sandbox


@pytest.fixture
def send(api):
    def sending(chat: int, *texts: str) -> None:
        for text in texts:
            api("sendMessage", chat_id=chat, text=text)

    return sending


@pytest.fixture
def control(sandbox, session):
    def asking(verb: str, path: str, body: object = None, **params: object):
        answer = session.request(verb, f"{sandbox.url}/_sandbox/{path}", json=body, params=params, timeout=20)
        return answer.json()

    return asking


def test_messages_by_chat_and_text(sandbox, send):
    send(5, "m1", "m10")
    send(6, "m1")
    assert [m.chat_id for m in sandbox.messages(text="m1")] == [5, 6]
    assert [m.raw_text for m in sandbox.messages(text=re.compile("m1"), chat=5)] == ["m1", "m10"]
    assert (sandbox.count(), sandbox.count(chat=6), sandbox.count(text="nothing")) == (3, 1, 0)
    assert [m.seq for m in sandbox.messages()] == [1, 2, 3]


def test_requests_know_what_was_asked_and_answered(sandbox, api):
    api("sendMessage", chat_id=5, text="hi")
    api("sendMessage", chat_id=5, text="")
    api("getMe")
    first, second, third = sandbox.requests()
    assert (first.verb, first.method, first.status, first.accepted) == ("POST", "sendMessage", 200, True)
    assert first.body == b'{"chat_id": 5, "text": "hi"}'
    assert first.headers["Content-Type"] == "application/json"
    assert (second.accepted, second.description) == (False, "Bad Request: message text is empty")
    assert third.at == 1_700_000_000
    assert [c.seq for c in sandbox.requests("SendMessage", chat=5, accepted=False)] == [2]
    assert [c.method for c in sandbox.requests(status=200)] == ["sendMessage", "getMe"]


def test_the_token_is_nowhere_in_the_record(sandbox, api):
    api("sendMessage", chat_id=5, text="hi")
    assert sandbox.requests()[0].bot_id == 123456
    assert "secret" not in repr(vars(sandbox.requests()[0]))
    assert "secret" not in repr(sandbox.messages())


def test_waiting_for_what_comes(sandbox, send):
    sender = threading.Thread(target=send, args=(5, "m1", "m2", "m3"))
    sender.start()
    assert [m.raw_text for m in sandbox.wait(count=3, timeout_seconds=10)] == ["m1", "m2", "m3"]
    sender.join()
    assert sandbox.wait(count=1, chat=5, text="m2", timeout_seconds=0)[0].message_id == 2


def test_waiting_in_vain_says_what_was_seen(sandbox, send):
    send(5, "m1")
    with pytest.raises(TimeoutError, match=r"1 of 2 messages when 0 s had gone by; seen: 5: 'm1'"):
        sandbox.wait(count=2, timeout_seconds=0)
    with pytest.raises(TimeoutError, match=r"0 of 1 messages .* seen: nothing"):
        sandbox.wait(chat=6, timeout_seconds=0.01)
    with pytest.raises(TimeoutError, match=r"1 of 2 calls .* sendMessage 5 -> 200"):
        sandbox.wait_requests(count=2, timeout_seconds=0.01)


def test_waiting_for_a_refusal(sandbox, api):
    sandbox.set_fault("blocked")
    caller = threading.Thread(target=api, args=("sendMessage",), kwargs={"chat_id": 5, "text": "hi"})
    caller.start()
    assert sandbox.wait_requests(status=403)[0].chat_id == "5"
    caller.join()


def test_stopping_ends_a_wait():
    with Sandbox() as sandbox:
        errors: list[str] = []
        waiting = threading.Event()

        def wait() -> None:
            waiting.set()
            with pytest.raises(TimeoutError) as caught:
                sandbox.wait(timeout_seconds=60)
            errors.append(str(caught.value))

        waiter = threading.Thread(target=wait)
        waiter.start()
        waiting.wait(10)
        sandbox.stop()
        waiter.join(10)
    assert errors == ["0 of 1 messages when the sandbox stopped; seen: nothing"]


def test_duplicates(sandbox, send):
    send(5, "m1", "m2", "m1")
    send(6, "m1")
    assert [[m.message_id for m in group] for group in sandbox.duplicates()] == [[1, 3]]


def test_order(sandbox, send):
    send(5, "[api] m1", "[api] m3", "no number", "[api] m2", "[api] m1", "[api] m4")
    send(6, "2 of 9", "1 of 9")
    assert sandbox.order()[6] == ["2 of 9", "1 of 9"]
    assert [(b.earlier, b.later) for b in sandbox.order_breaks()] == [("[api] m3", "[api] m2")]
    assert [(b.chat_id, b.later) for b in sandbox.order_breaks(r"(\d+) of")] == [(6, "1 of 9")]


def test_clearing_forgets_what_was_received_and_nothing_else(sandbox, api, send):
    send(5, "m1")
    sandbox.set_fault("blocked", chat=6)
    sandbox.clear()
    assert (sandbox.messages(), sandbox.requests(), len(sandbox.faults)) == ([], [], 1)
    sent = api("sendMessage", chat_id=5, text="m2", reply_to_message_id=1).json()["result"]
    assert (sent["message_id"], sent["reply_to_message"]["text"]) == (2, "m1")
    assert api("editMessageText", chat_id=5, message_id=1, text="m1!").status_code == 200
    assert [m.raw_text for m in sandbox.messages()] == ["m2"]


def test_only_the_newest_are_kept(session):
    with Sandbox(keep=3) as sandbox:
        for n in range(5):
            url = f"{sandbox.url}/bot1:x/sendMessage?chat_id=5&text=m{n}"
            session.get(url, timeout=10)
        assert [m.raw_text for m in sandbox.messages()] == ["m2", "m3", "m4"]
        assert [c.seq for c in sandbox.requests()] == [3, 4, 5]
        with pytest.raises(ValueError, match="only 3 messages are kept"):
            sandbox.wait(count=4)


# -- over HTTP -------------------------------------------------------------------------------------------


def test_the_index_lists_what_can_be_asked(sandbox, session):
    index = session.get(sandbox.url, timeout=10).json()
    assert "GET /_sandbox/messages" in index["control"]


def test_asking_over_http(send, control):
    send(5, "m1", "m2\u2028", "m1", "a0")
    assert control("GET", "health") == {"ok": True}
    assert [m["raw_text"] for m in control("GET", "messages", pattern="^m2")] == ["m2\u2028"]
    assert control("GET", "count", chat=5, text="m1") == {"count": 2}
    (call,) = control("GET", "requests", method="sendmessage", chat="5", status=200, accepted="true")[:1]
    assert (call["accepted"], call["bot_id"]) == (True, 123456)
    assert [len(group) for group in control("GET", "duplicates")] == [2]
    assert control("GET", "order")["chats"] == {"5": ["m1", "m2\u2028", "m1", "a0"]}
    assert control("GET", "order")["breaks"] == [{"chat_id": 5, "earlier": "m2\u2028", "later": "a0"}]
    assert control("GET", "order", pattern="m([0-9])")["breaks"] == []
    assert control("GET", "wait", count=2, text="m1", timeout=5)["ok"] is True
    waited = control("GET", "wait", count=9, timeout=0.01)
    assert (waited["ok"], len(waited["messages"])) == (False, 4)
    assert "4 of 9 messages" in waited["description"]
    assert control("POST", "clear") == {"ok": True}
    assert control("GET", "messages") == []


def test_changing_over_http(sandbox, api, control):
    control("PUT", "faults", {"faults": [{"preset": "blocked", "chat": 5}, "kicked:chat=6"]})
    control("POST", "faults", {"preset": "flood", "chat": 7, "name": "seven"})
    assert [api("sendMessage", chat_id=chat, text="x").status_code for chat in (5, 6, 7)] == [403, 403, 429]
    listed = control("GET", "faults")
    assert [(f["name"], f["matched"], f["fired"]) for f in listed] == [
        ("blocked", 1, 1),
        ("kicked", 1, 1),
        ("seven", 1, 1),
    ]
    assert len(control("DELETE", "faults", name="seven")) == 2
    assert control("DELETE", "faults") == []
    assert "timeout-after-accept" in control("GET", "presets")

    control("PUT", "chats", [{"id": -5, "state": "kicked"}, {"id": 5, "title": "x"}])
    assert api("sendMessage", chat_id=-5, text="x").status_code == 403
    control("PUT", "chats", {"id": -5, "state": "ok"})
    assert api("sendMessage", chat_id=-5, text="x").status_code == 200
    assert {chat["id"] for chat in control("GET", "chats")} >= {5, -5}

    control("PUT", "tokens", {"token": "123456:secret", "state": "revoked"})
    assert api("getMe").status_code == 401
    control("PUT", "tokens", {"token": "123456:secret", "state": "ok"})
    (bot,) = control("GET", "tokens")
    assert (bot["id"], bot["state"]) == (123456, "ok")
    assert "secret" not in repr(bot)

    assert control("PUT", "clock", {"set": 1000, "advance_seconds": 5}) == {"now": 1005, "standing": True}
    assert control("PUT", "clock", {"run": True})["standing"] is False
    assert control("GET", "clock")["now"] > 1e9
    assert control("PUT", "flood", {"flood": "telegram"})["limits"]["per_group_minute"] == 20
    assert control("PUT", "flood", {"flood": "off"})["limits"] is None

    assert control("POST", "updates", {"chat": 5, "text": "/start"})["raw_text"] == "/start"
    assert api("getUpdates").json()["result"][0]["message"]["text"] == "/start"


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("PUT", "faults", [{"preset": "unheard-of"}]),
        ("PUT", "faults", [5]),
        ("PUT", "chats", [5]),
        ("PUT", "chats", {"id": 5, "topics": 7}),
        ("PUT", "chats", {"state": "ok"}),
        ("PUT", "chats", {"id": 5, "state": "asleep"}),
        ("PUT", "tokens", {"token": "1:x"}),
        ("PUT", "tokens", "not an object"),
        ("PUT", "flood", {"flood": "much"}),
        ("PUT", "clock", {"set": "noon"}),
        ("PUT", "clock", [1]),
        ("POST", "updates", {"chat": "x", "text": ""}),
        ("GET", "messages?pattern=(", None),
        ("GET", "messages?chat=x", None),
        ("PUT", "messages", None),
        ("GET", "nothing", None),
    ],
)
def test_what_the_control_api_cannot_do_is_said(verb, path, body, sandbox, session):
    answer: requests.Response = session.request(verb, f"{sandbox.url}/_sandbox/{path}", json=body, timeout=10)
    assert 400 <= answer.status_code < 500
    assert answer.json()["description"]
