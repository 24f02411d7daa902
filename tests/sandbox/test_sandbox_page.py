"""What the page asks of the sandbox, and what it is told; the page itself is tested in a browser."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from telegram_connector import web
from telegram_connector.sandbox import Clock, Sandbox, listeners

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
STATIC = Path(web.__file__).parents[1] / "sandbox" / "static"
FILES = sorted([*STATIC.iterdir(), *(Path(web.__file__).parent / "parts").iterdir()])


class Told:
    """A page's stream of events, read as it comes."""

    def __init__(self, sandbox: Sandbox, after: str = "", last: str = "") -> None:
        self._answer = requests.get(
            f"{sandbox.url}/_sandbox/events",
            params={"after": after} if after else {},
            headers={"Last-Event-ID": last} if last else {},
            stream=True,
            timeout=10,
        )
        self.status = self._answer.status_code
        self._lines = self._answer.iter_lines(chunk_size=1, decode_unicode=True)

    def next(self) -> tuple[str, str, Any]:
        """The next event's id, kind and data."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if not line and "event" in fields:
                return fields.get("id", ""), fields["event"], json.loads(fields["data"])
            name, _, value = line.partition(": ")
            fields[name] = value
        raise EOFError

    def until(self, kind: str) -> tuple[str, Any]:
        """The id and data of the next event of that kind."""
        while True:
            number, found, data = self.next()
            if found == kind:
                return number, data

    def close(self) -> None:
        self._answer.close()


@pytest.fixture
def told(sandbox) -> Iterator[Any]:
    opened: list[Told] = []

    def open_one(**given: str) -> Told:
        opened.append(Told(sandbox, **given))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def ask(sandbox, session):
    def asking(path: str, **params: object) -> Any:
        return session.get(f"{sandbox.url}/_sandbox/{path}", params=params, timeout=10).json()

    return asking


def test_a_browser_gets_the_page_and_all_others_the_list(sandbox, session):
    page = session.get(sandbox.url, headers=BROWSER, timeout=10)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.content == (STATIC / "index.html").read_bytes()
    for accept in ("*/*", "application/json"):
        listed = session.get(sandbox.url, headers={"Accept": accept}, timeout=10)
        assert "POST /_sandbox/check" in listed.json()["control"]


def test_every_file_is_served_under_the_strict_policy(sandbox, session):
    names = [*(path.name for path in STATIC.iterdir()), *web.parts()]
    assert len(names) > 20
    for name in names:
        answer = session.get(f"{sandbox.url}/_sandbox/ui/{name}", timeout=10)
        assert answer.status_code == 200
        assert answer.headers["Content-Security-Policy"] == web.CONTENT_SECURITY_POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert session.get(f"{sandbox.url}/_sandbox/ui/../control.py", timeout=10).status_code == 404
    assert session.get(f"{sandbox.url}/_sandbox/ui/nothing.js", timeout=10).status_code == 404


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_in_the_files_makes_markup_of_text_or_asks_elsewhere(path):
    text = path.read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function"):
        assert word not in text
    allowed = {"http://www.w3.org/2000/svg"}
    addresses = {word.strip("\"';>)") for word in text.split() if "://" in word}
    assert {a.partition("=")[2].strip('"') or a for a in addresses} <= allowed
    assert "style=" not in text


def test_a_file_that_no_page_has_is_an_error():
    with pytest.raises(ValueError, match="no file such as"):
        web.files("telegram_connector", "sandbox")


def test_the_state_has_chats_with_their_newest_entry(sandbox, api, ask):
    sandbox.set_chat(9, first_name="Grace", state="blocked")
    api("sendMessage", chat_id=5, text="one")
    api("sendMessage", chat_id=5, text="two")
    api("sendMessage", chat_id=9, text="no")
    api("sendMessage", chat_id="@", text="nowhere")
    api("getMe")
    api("sendMessage", text="no chat at all")
    state = ask("state")
    chats = {chat["place"]: chat for chat in state["chats"]}
    assert set(chats) == {"9", "5", "@", ""}
    assert (chats["5"]["count"], chats["5"]["newest"]["text"]) == (2, "two")
    assert (chats["9"]["title"], chats["9"]["newest"]["outcome"]) == ("Grace", "refused")
    assert (chats["@"]["type"], chats[""]["type"]) == ("", "")
    assert (state["faults"], state["flood"], state["standing"]) == ([], None, True)
    assert {preset["name"] for preset in state["one_click"]} <= set(ask("presets"))
    assert all(preset["words"] for preset in state["one_click"])


def test_entries_are_asked_for_in_pieces(sandbox, api, ask):
    for number in range(7):
        api("sendMessage", chat_id=5 + number % 2, text=f"m{number}")

    def texts(**params: object) -> list[str]:
        return [entry["message"]["text"] for entry in ask("entries", chat=5, **params)]

    assert texts() == ["m0", "m2", "m4", "m6"]
    assert texts(count=2) == ["m4", "m6"]
    number = ask("entries", chat=5)[2]["number"]
    assert texts(before=number, count=1) == ["m2"]
    assert texts(after=number - 1, count=1) == ["m4"]
    assert [entry["message"]["text"] for entry in ask("search", words="M6")] == ["m6"]
    assert ask("search", words="") == []


def test_what_became_of_a_call_in_a_word(sandbox, api, ask):
    def outcome() -> str:
        return ask("entries", chat=5)[-1]["outcome"]

    api("sendMessage", chat_id=5, text="fine")
    assert outcome() == "sent"
    sandbox.say(5, "hello")
    assert outcome() == "heard"
    api("sendMessage", chat_id=5, text="<b", parse_mode="HTML")
    assert outcome() == "refused"
    for fault, expected in (
        ({"preset": "flood", "retry_after": 7}, "held"),
        ({"preset": "restart-500", "accept": True}, "unclear"),
        ({"reset": "before_answer"}, "unanswered"),
        ({"reset": "after_accept"}, "unclear"),
        ({"preset": "half-body", "name": "by another name"}, "unclear"),
    ):
        sandbox.set_fault(fault, times=1)
        with contextlib.suppress(requests.RequestException):
            api("sendMessage", chat_id=5, text=f"text {fault}")
        assert outcome() == expected, fault
    held = next(entry for entry in ask("entries", chat=5) if entry["outcome"] == "held")
    assert held["hold"] == {"until": 1_700_000_007.0, "words": "Too Many Requests: retry after 7"}


def test_a_refusal_has_its_spot_only_where_it_is_about_the_text(sandbox, api, ask):
    api("sendMessage", chat_id=5, text="é <b", parse_mode="HTML")
    assert ask("entries", chat=5)[-1]["position"] == 2
    sandbox.set_chat(5, state="blocked")
    api("sendMessage", chat_id=5, text="fine")
    assert ask("entries", chat=5)[-1]["position"] is None


def test_the_same_refusal_again_and_again_is_one_entry(sandbox, api, ask):
    sandbox.set_fault("flood", chat=5, times=30)
    for _ in range(30):
        api("sendMessage", chat_id=5, text="same")
    api("sendMessage", chat_id=5, text="same")
    refused, sent = ask("entries", chat=5)
    assert (refused["count"], len(refused["calls"])) == (30, 20)
    assert (sent["outcome"], sent["count"]) == ("sent", 1)
    assert refused["calls"][-1]["seq"] == 30


def test_an_edit_and_a_deletion_stay_with_their_message(sandbox, api, ask):
    sandbox.set_chat(-7, username="ops")
    api("sendMessage", chat_id=-7, text="one")
    api("editMessageText", chat_id="@ops", message_id=1, text="two")
    api("editMessageText", chat_id=-7, message_id=1, text="two")  # not modified: an entry of its own
    api("deleteMessage", chat_id=-7, message_id=1)
    message, refused = ask("entries", chat=-7)
    assert [call["method"] for call in message["calls"]] == [
        "sendMessage",
        "editMessageText",
        "deleteMessage",
    ]
    assert (message["message"]["text"], message["message"]["edits"]) == ("two", ["one"])
    assert message["message"]["deleted"]
    assert refused["reply"] == {"message_id": 1, "number": None, "author": "", "text": "Deleted message"} or (
        refused["reply"]["number"] == message["number"]
    )
    raw = ask("raw", number=message["number"])["calls"]
    assert json.loads(raw[0]["body"]) == {"chat_id": -7, "text": "one"}
    assert json.loads(raw[0]["answer"])["ok"]
    assert "secret" not in json.dumps(raw)
    assert ask("raw", number=999)["description"].endswith("no such entry, or it is forgotten")


@pytest.mark.parametrize("odd", ["[1]", "{", '{"message_id": []}', "[" * 5000])
def test_odd_reply_parameters_are_no_reply(odd, sandbox, api, ask):
    api("sendMessage", chat_id=5, text="x", reply_parameters=odd)
    entry = ask("entries", chat=5)[-1]
    assert entry.get("message", entry)["reply"] is None


def test_the_check_is_that_of_lint(sandbox, session):
    def check(body: object) -> Any:
        return session.post(f"{sandbox.url}/_sandbox/check", json=body, timeout=10)

    refused = check({"text": "é\n<b", "parse_mode": "HTML"}).json()
    assert (refused["ok"], refused["fault"]["line"], refused["fault"]["column"]) == (False, 2, 1)
    taken = check({"text": "<b>a</b> config.py", "parse_mode": "HTML"}).json()
    assert taken["entities"] == [{"type": "bold", "offset": 0, "length": 1}]
    assert taken["warnings"][0]["words"].startswith("config.py becomes a link")
    for wrong in ({"text": 5}, [], {}):
        assert check(wrong).status_code == 400
    assert sandbox.requests() == []


def test_what_happens_is_told(sandbox, api, told):
    listener = told()
    _, hello = listener.until("hello")
    listener.until("reset")
    api("sendMessage", chat_id=5, text="one")
    number, entry = listener.until("entry")
    assert (entry["message"]["text"], entry["outcome"]) == ("one", "sent")
    assert number.startswith(hello["run"])
    sandbox.say(5, "two", reply_to_message_id=1)
    _, entry = listener.until("entry")
    assert (entry["message"]["text"], entry["message"]["reply"]["text"]) == ("two", "one")
    api("editMessageText", chat_id=5, message_id=1, text="three")
    assert listener.until("entry")[1]["message"]["text"] == "three"
    sandbox.clear()
    listener.until("clear")
    for change in (
        lambda: sandbox.set_fault("flood"),
        lambda: sandbox.remove_fault(sandbox.faults[0]),
        sandbox.clear_faults,
        lambda: sandbox.set_flood("strict"),
        lambda: sandbox.set_chat(5, first_name="Ada"),
    ):
        change()
        listener.until("state")


def test_who_comes_back_goes_on_where_it_was(sandbox, api, ask, told):
    after = ask("state")["after"]
    api("sendMessage", chat_id=5, text="one")
    first = told(after=after)
    number, _ = first.until("entry")
    first.close()
    api("sendMessage", chat_id=5, text="two")
    again = told(after=after, last=number)
    assert again.until("entry")[1]["message"]["text"] == "two"


@pytest.mark.parametrize("unknown", ["other-1", "nonsense", "{run}-99", "{run}-x", "{run}-0"])
def test_who_missed_what_nobody_knows_any_more_starts_over(unknown, monkeypatch):
    monkeypatch.setattr("telegram_connector.sandbox.timeline._KEPT_CHANGES", 3)
    with Sandbox() as small:
        for _ in range(4):
            small.say(5, "hello")
        listener = Told(small, after=unknown.format(run=small.world.timeline.run))
        assert listener.next()[1] == "hello"
        number, kind, _ = listener.next()
        assert (kind, number) == ("reset", f"{small.world.timeline.run}-4")
        listener.close()


def test_nothing_happening_is_told_too(sandbox, told, ask, monkeypatch):
    monkeypatch.setattr(listeners, "HEARTBEAT_SECONDS", 0.05)
    assert told(after=ask("state")["after"]).until("beat")[1] == {"now": 1_700_000_000.0}


def test_so_many_may_look_on_and_no_more(sandbox, session, monkeypatch):
    events = f"{sandbox.url}/_sandbox/events"
    head = b"GET /_sandbox/events HTTP/1.1\r\nHost: x\r\n\r\n"
    connections = []
    for _ in range(listeners.MAX_LISTENERS):
        connections.append(socket.create_connection(("127.0.0.1", sandbox.port), timeout=10))
        connections[-1].sendall(head)
        assert connections[-1].recv(12) == b"HTTP/1.1 200"
    refused = session.get(events, timeout=10)
    assert (refused.status_code, "close one" in refused.json()["description"]) == (503, True)
    # Room is made by who hung up, though nothing was written to it since.
    connections.pop().close()
    with session.get(events, stream=True, timeout=10) as answer:
        assert answer.status_code == 200
    for connection in connections:
        connection.close()


def test_a_listener_that_takes_nothing_is_dropped_and_blocks_nobody(sandbox, api, monkeypatch):
    monkeypatch.setattr(listeners, "SLOW_SECONDS", 0.2)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", sandbox.port))
        slow.sendall(b"GET /_sandbox/events HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"
        streaming = next(t for t in threading.enumerate() if t.name == "sandbox-connection")
        # Far more than fits into the buffers between the two.
        for number in range(1500):
            assert api("sendMessage", chat_id=5, text=f"{number} " + "x" * 4000).status_code == 200
        streaming.join(30)
        assert not streaming.is_alive()
    assert sandbox.count() == 1500


def test_stopping_ends_every_stream(sandbox, told):
    listener = told()
    listener.until("reset")
    sandbox.stop()
    with pytest.raises((EOFError, requests.RequestException)):
        listener.until("entry")
    assert not any(thread.name.startswith("sandbox") for thread in threading.enumerate())


def test_only_so_many_entries_are_kept(session):
    with Sandbox(keep=10, clock=Clock.frozen()) as sandbox:
        for number in range(25):
            sandbox.say(5, f"m{number}")
        entries = sandbox.world.timeline.entries("5", count=99)
        assert [entry.message.text for entry in entries] == [f"m{number}" for number in range(15, 25)]
        assert sandbox.world.timeline.number_of(5, 1) is None
        assert sandbox.world.timeline.number_of(5, 25) == 25


def test_a_chat_is_exported_and_loaded(sandbox, api, ask, tmp_path):
    sandbox.set_chat(-1001, title="Ops", topics=[{"id": 7, "name": "deploys"}], slow_mode_seconds=0)
    api("sendMessage", chat_id=-1001, text="<b>one</b>", parse_mode="HTML", message_thread_id=7)
    api("sendMessage", chat_id=-1001, text="<b", parse_mode="HTML")
    sandbox.say(-1001, "two", first_name="Ada", reply_to_message_id=8)
    api("editMessageText", chat_id=-1001, message_id=8, text="three")
    fixture = ask("export", chat=-1001)
    assert "secret" not in json.dumps(fixture)
    assert [message["text"] for message in fixture["messages"]] == ["three", "two"]
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(fixture))
    with Sandbox(chats=path) as other:
        assert other.world.roster.known("-1001") == sandbox.world.roster.known("-1001")
        before, after = (one.world.timeline.entries("-1001") for one in (sandbox, other))
        before = [entry.message for entry in before if entry.message]
        assert [(m.text, m.edits, m.reply_to_message_id) for m in before] == [
            (m.message.text, m.message.edits, m.message.reply_to_message_id) for m in after
        ]
        assert other.count() == 0
        url = f"{other.url}/bot123456:secret/sendMessage"
        answer = requests.post(url, json={"chat_id": -1001, "text": "next"}, timeout=10).json()
        assert answer["result"]["message_id"] == 10
    assert ask("export", chat=999)["description"].endswith("no such chat")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"chat_id": 5, "text": "x"}, "a message needs chat_id, message_id, text"),
        ("x", "a message needs"),
        ({"chat_id": 5, "message_id": 1, "text": "x", "colour": "red"}, "unknown in a message: colour"),
        ({"chat_id": "5", "message_id": 1, "text": "x"}, "chat_id of a message cannot be '5'"),
        ({"chat_id": 5, "message_id": True, "text": "x"}, "message_id of a message cannot be True"),
        ({"chat_id": 5, "message_id": 0, "text": "x"}, "message_id of a message is at least 1"),
        ({"chat_id": 5, "message_id": 1, "text": "x", "deleted": 1}, "deleted of a message cannot be 1"),
    ],
)
def test_a_wrong_message_in_a_file_is_named(message, words, tmp_path):
    path = tmp_path / "chats.json"
    path.write_text(json.dumps({"messages": [message]}))
    with pytest.raises(ValueError, match=words):
        Sandbox(chats=path)


def test_a_message_in_a_file_has_a_chat(tmp_path):
    path = tmp_path / "chats.json"
    path.write_text(json.dumps({"messages": [{"chat_id": 5, "message_id": 3, "text": "x"}]}))
    with pytest.raises(ValueError, match="message 3 is in chat 5: no such chat"):
        Sandbox(chats=path, strict=True)
    assert [chat.id for chat in Sandbox(chats=path).world.roster.all()] == [5]


def test_a_reply_to_nothing_is_refused(sandbox, session):
    with pytest.raises(ValueError, match="no message 7 in chat 5"):
        sandbox.say(5, "hello", reply_to_message_id=7)
    body = {"chat": 5, "text": "hello", "reply_to_message_id": 7}
    answer = session.post(f"{sandbox.url}/_sandbox/updates", json=body, timeout=10)
    assert (answer.status_code, answer.json()["description"]) == (400, "no message 7 in chat 5")


def test_the_wheel_has_every_file_of_the_pages(tmp_path):
    root = Path(web.__file__).parents[2]
    source = tmp_path / "source"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "telegram_connector", source / "telegram_connector", ignore=skipped)
    for name in ("setup.py", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(root / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--use-pep517", "-w", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {str(path.relative_to(root)) for path in FILES} <= packed
