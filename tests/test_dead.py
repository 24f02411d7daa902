"""``dead`` against a real nats-server: listed, resent once whatever happens, discarded."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from telegram_connector import events
from telegram_connector.bridge import DeadLetters, NatsClient
from telegram_connector.bridge.client import AT_ONCE, PublishAck
from telegram_connector.bridge.deadletters import UNMARKED, Marked, Resent
from telegram_connector.cli import main
from telegram_connector.deadletter import dead_letter, fitting
from telegram_connector.delivery import DeliveryId
from telegram_connector.disposition import Terminal
from telegram_connector.envelope import TelegramOutbound, decode
from telegram_connector.errors import BridgeError, Disconnected, Unanswered
from telegram_connector.marks import Change, Leave, Refuse
from telegram_connector.sandbox import Sandbox
from tests.fakes import make_delivery
from tests.fleet import Fleet, numbered
from tests.nats_server import NatsServer
from tests.process import Process

pytestmark = pytest.mark.integration

OUTBOUND = "telegram.outbound"
SECRET = "the text that nobody may see"


class Desk:
    """An operator's desk: letters to put in, the commands, and what came out."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.count = 0

    def bury(
        self,
        msg_id: str,
        terminal: Terminal | None = None,
        *,
        payload: bytes | None = None,
        attempts: int = 1,
        omitted_below: int | None = None,
        **envelope: Any,
    ) -> int:
        """Put in a letter as the relay does; its sequence."""
        self.count += 1
        delivery = make_delivery(
            self.count,
            id=DeliveryId("TELEGRAM_OUTBOUND", self.count, 1_000 + self.count),
            envelope=TelegramOutbound(msg_id=msg_id, **{"text": SECRET, **envelope}),
            payload=payload,
            headers={"Nats-Msg-Id": msg_id},
        )
        letter = dead_letter(delivery, terminal or Terminal(400, "Bad Request: no"), attempts)
        if omitted_below is not None:
            letter = fitting(letter, omitted_below)
        with self.server.client() as client:
            return client.publish("telegram.dead", letter.payload, letter.headers).seq

    def bury_many(self, count: int) -> None:
        """Letters m0, m1, ... of one chat."""
        for n in range(count):
            self.bury(f"m{n}", chat="5", text=f"text {n}")

    def run(self, *arguments: str, seed: str | None = None, stdin: str | None = None, **env: str) -> Result:
        env = {
            "NATS_URL": self.server.url,
            "NATS_TELEGRAM_NKEY_SEED": seed or self.server.operator_seed,
            **env,
        }
        return CliRunner().invoke(main, ["dead", *arguments], env=env, input=stdin)

    def ok(self, *arguments: str, **more: Any) -> str:
        result = self.run(*arguments, **more)
        assert result.exit_code == 0, result.output
        return result.output

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ok("list", "--json", *arguments))
        return found

    def seqs(self, *arguments: str) -> list[int]:
        return [item["seq"] for item in self.listed(*arguments)]

    def statuses(self) -> dict[int, str]:
        return {item["seq"]: item["status"] for item in self.listed("--all")}

    def outbound(self) -> list[TelegramOutbound]:
        """What is in the outbound stream, in its order; ids in headers and bodies must agree."""
        found = []
        with self.server.client() as client:
            state = client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["state"]
            bodies = [{"seq": seq} for seq in range(max(1, state["first_seq"]), state["last_seq"] + 1)]
            for answer in client.api_each("STREAM.MSG.GET.TELEGRAM_OUTBOUND", bodies):
                assert isinstance(answer, dict), answer
                envelope = decode(base64.b64decode(answer["message"]["data"]))
                headers = base64.b64decode(answer["message"]["hdrs"]).decode()
                assert f"Nats-Msg-Id: {envelope.msg_id}\r\n" in headers
                found.append(envelope)
        return found

    def sent(self) -> list[str]:
        return [envelope.msg_id for envelope in self.outbound()]


@pytest.fixture
def desk(nats_server: NatsServer) -> Desk:
    return Desk(nats_server)


# list and show


def test_a_letter_is_listed_with_all_that_programs_need_and_without_its_text(desk: Desk) -> None:
    desk.bury("m1", Terminal(403, "Forbidden: bot was kicked"), chat="-100", kind="alert", attempts=3)
    (item,) = desk.listed()
    dead_at = datetime.fromisoformat(item.pop("dead_at").replace("Z", "+00:00"))
    assert abs((datetime.now(timezone.utc) - dead_at).total_seconds()) < 600
    assert item == {
        "seq": 1,
        "reason": "refused",
        "msg_id": "m1",
        "chat": "-100",
        "kind": "alert",
        "error_code": 403,
        "description": "Forbidden: bot was kicked",
        "attempts": 3,
        "resent": False,
        "status": "open",
    }
    table = desk.ok("list")
    assert "refused  403   -100  alert  3      open    m1      Forbidden: bot was kicked" in table
    assert "1 dead letter: 1 refused" in table
    assert SECRET not in table
    assert SECRET in desk.ok("list", "--text")
    assert desk.listed("--text")[0]["text"] == SECRET


def test_nothing_dead_is_an_empty_list(desk: Desk) -> None:
    assert desk.listed() == []
    assert desk.ok("list") == "0 dead letters\n"


def test_filters_combine_and_repeat(desk: Desk) -> None:
    desk.bury("a", chat="1", kind="alert")
    desk.bury("b", Terminal(0, "too old", "expired"), chat="1", kind="info")
    desk.bury("c", Terminal(0, "not JSON", "unreadable"), payload=b"{")
    desk.bury("d", Terminal(500, "Internal", "gave_up"), chat=None, kind="alert")
    assert desk.seqs("--reason", "refused") == [1]
    assert desk.seqs("--reason", "expired", "--reason", "unreadable") == [2, 3]
    assert desk.seqs("--chat", "1") == [1, 2]
    assert desk.seqs("--from-chat", "1", "--kind", "info") == [2]
    assert desk.seqs("--chat", "default") == [3, 4]
    assert desk.seqs("--kind", "alert", "--kind", "info") == [1, 2, 4]
    assert desk.seqs("--msg-id", "d", "--msg-id", "a", "--msg-id", "x") == [1, 4]
    assert desk.seqs("--msg-id", "c") == [3], "from the header, where the body has none"
    assert desk.seqs("--older-than", "1h") == []
    assert desk.seqs("--newer-than", "1h", "--older-than", "0s") == [1, 2, 3, 4]
    assert desk.run("list", "--reason", "nonsense").exit_code == 2
    assert desk.run("list", "--older-than", "soon").exit_code == 2


def test_ids_and_descriptions_cannot_speak_to_the_terminal(desk: Desk) -> None:
    desk.bury("m\x1b[31m\n\u202e1", Terminal(400, "no \x9b2J"))
    for shown in (desk.ok("list"), desk.ok("show", "1"), desk.ok("list", "--json")):
        assert not {"\x1b", "\x9b", "\u202e"} & set(shown)
    assert desk.listed()[0]["msg_id"] == "m\x1b[31m\n\u202e1"


def test_show_tells_everything_but_the_text_unless_asked(desk: Desk) -> None:
    desk.bury("m1", Terminal(400, "Bad Request: can't parse"), chat="5", text=f"{SECRET}\nsecond line")
    desk.bury("m2", payload=b"\x00\xff no JSON")
    shown = desk.ok("show", "1", "2")
    for words in ("1  refused 400  Bad Request: can't parse", "Tg-Orig-Msg-Id: m1", "status      open", "m2"):
        assert words in shown
    assert SECRET not in shown
    assert f"    {SECRET}\n    second line\n" in desk.ok("show", "1", "--text")
    (item,) = json.loads(desk.ok("show", "1", "--json"))
    assert item["stream_seq"] == 1
    assert item["headers"]["Tg-Dead-Reason"] == "refused"
    assert "text" not in item
    assert (
        CliRunner()
        .invoke(
            main,
            ["dead", "show", "2", "--raw"],
            env={"NATS_URL": desk.server.url, "NATS_TELEGRAM_NKEY_SEED": desk.server.operator_seed},
        )
        .stdout_bytes
        == b"\x00\xff no JSON"
    )
    assert desk.run("show", "1", "2", "--raw").exit_code == 2
    absent = desk.run("show", "1", "77")
    assert (absent.exit_code, "no such dead letter" in absent.output) == (1, True)
    assert "m1" in absent.output


def test_thousands_are_read_some_dozens_at_a_time(desk: Desk) -> None:
    letter = dead_letter(make_delivery(1), Terminal(400, "no"), 1)
    with desk.server.client() as client:
        for n in range(3000):
            client.publish("telegram.dead", letter.payload, {**letter.headers, "Nats-Msg-Id": str(n)})
        client.api("STREAM.MSG.DELETE.TELEGRAM_DEAD", {"seq": 1500})
        asked = Watched(desk.server)
        with asked:
            letters = desk_letters(asked, desk.server).letters()
            assert next(letters).seq == 1
            assert asked.read == AT_ONCE, "no more than what one batch holds"
            assert [letter.seq for letter in letters] == [n for n in range(2, 3001) if n != 1500]
    assert len(desk.listed()) == 2999


# resend


class Watched(NatsClient):
    """A client that notes what it does, and does what a test wants before and after it publishes."""

    def __init__(self, server: NatsServer, seed: str | None = None) -> None:
        super().__init__(server.settings(seed or server.operator_seed), "tests")
        self.read = 0
        self.published: list[str] = []
        self.before: Callable[[str], None] = lambda subject: None
        self.after: Callable[[str], None] = lambda subject: None

    def api_each(self, subject: str, bodies: Any) -> Any:
        self.read += len(bodies)
        return super().api_each(subject, bodies)

    def publish(self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None) -> PublishAck:
        self.before(subject)
        receipt = super().publish(subject, payload, headers)
        self.published.append(subject)
        self.after(subject)
        return receipt


def desk_letters(
    client: NatsClient, server: NatsServer, by: str = "one", clock: Callable[[], float] | None = None
) -> DeadLetters:
    return DeadLetters(client, server.settings(), by, lambda: "2026-01-01T00:00:00.000Z", clock)


def resend_all(letters: DeadLetters, change: Change = Change(), again: bool = False) -> list[Any]:  # noqa: B008
    marks = letters.marks()
    return [
        letters.resend(letter, marks.get(letter.seq, UNMARKED), change, again) for letter in letters.letters()
    ]


def test_what_is_resent_arrives_in_order_is_marked_and_stays_resent(desk: Desk) -> None:
    desk.bury_many(20)
    assert "20 resent" in desk.ok("resend", "--all", "--yes")
    assert desk.sent() == [f"m{n}.r1" for n in range(20)]
    assert [e.text for e in desk.outbound()] == [f"text {n}" for n in range(20)]
    items = desk.listed()
    assert all(item["resent"] and item["status"] == "resent" for item in items)
    assert [item["resent_as"] for item in items] == desk.sent()
    assert "@" in items[0]["by"]
    assert "0 resent; 20 left alone" in desk.ok("resend", "--all", "--yes")
    assert len(desk.sent()) == 20
    assert "2 resent" in desk.ok("resend", "3", "1", "--again", "--yes")
    assert desk.sent()[20:] == ["m0.r2", "m2.r2"]


def test_a_resent_letter_reaches_telegram_and_dies_again_as_a_new_letter(nats_server: NatsServer) -> None:
    with Sandbox() as sandbox:
        fleet, desk = Fleet(nats_server, sandbox), Desk(nats_server)
        try:
            sandbox.set_fault("msg_parse_mode", chat=100, times=3)
            fleet.relay()
            fleet.until_event(events.Bound)
            broken = [
                replace(envelope, text=f"<b>{envelope.text}", parse_mode="HTML")
                for envelope in numbered(3, 1)
            ]
            fleet.publish(*broken)
            fleet.assert_nothing_left()
            assert desk.seqs("--reason", "refused") == [1, 2, 3]
            assert fleet.texts() == []
            desk.ok("resend", "--plain", "--reason", "refused", "--yes")
            sandbox.wait(count=3, timeout_seconds=60)
            assert fleet.texts() == ["text 0", "text 1", "text 2"]
            fleet.assert_nothing_left()
            sandbox.set_fault("chat_blocked", chat=100, times=1)
            desk.ok("resend", "2", "--again", "--plain", "--yes")
            fleet.assert_nothing_left()
            (again,) = desk.listed("--msg-id", "m1.r2")
            assert (again["seq"], again["status"]) == (4, "open")
            assert "Tg-Resent-Of: 2" in desk.ok("show", "4")
        finally:
            fleet.stop()


def test_a_copy_goes_where_and_how_the_operator_says(desk: Desk) -> None:
    desk.bury("m1", chat="5", text="<b>x", parse_mode="HTML", expires_at="2026-01-01T00:00:00Z")
    desk.bury("m2", chat="6")
    desk.ok("resend", "--from-chat", "5", "--chat", "@somewhere", "--plain", "--yes")
    assert desk.outbound() == [TelegramOutbound(msg_id="m1.r1", chat="@somewhere", text="x")]
    assert desk.run("resend", "--all", "--chat", "somewhere", "--yes").exit_code == 2
    assert desk.statuses() == {1: "resent", 2: "open"}


@pytest.mark.parametrize("command", ["resend", "discard"])
def test_nothing_happens_to_letters_that_nobody_chose_or_confirmed(desk: Desk, command: str) -> None:
    desk.bury_many(2)
    for arguments in ((), ("--yes",), ("--all", "1", "--yes"), ("--all", "--kind", "x", "--yes"), ("--all",)):
        result = desk.run(command, *arguments)
        assert result.exit_code == 2, result.output
    assert "2 dead letters" in result.output
    assert "--yes" in result.output
    assert desk.sent() == []
    assert set(desk.statuses().values()) == {"open"}


@pytest.mark.parametrize(("answer", "sent"), [("y\n", 2), ("n\n", 0), ("\n", 0)])
def test_a_person_is_asked_with_the_count(
    desk: Desk, answer: str, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.bury_many(2)
    monkeypatch.setattr("telegram_connector.cli.records.attended", lambda: True)
    result = desk.run("resend", "--all", stdin=answer)
    assert "Resend 2 dead letters?" in result.output
    assert (result.exit_code, len(desk.sent())) == (0 if sent else 1, sent)


def test_what_must_not_or_cannot_be_sent_is_refused_by_name_and_the_rest_goes(desk: Desk) -> None:
    desk.bury("m1", Terminal(0, "timed out", "ambiguous"))
    desk.bury("m2", Terminal(0, "text: missing", "unreadable"), payload=b'{"msg_id": "m2"}')
    desk.bury("m3")
    result = desk.run("resend", "--all", "--yes")
    assert result.exit_code == 1
    assert "1: it may have been sent: see ledger list, and settle it with ledger resolve" in result.output
    assert "2: it is no envelope that could be sent: text: missing" in result.output
    assert "1 resent; 2 refused" in result.output
    assert desk.sent() == ["m3.r1"]
    assert desk.run("resend", "1", "--again", "--yes").exit_code == 1
    absent = desk.run("resend", "3", "77", "--yes")
    assert (absent.exit_code, "77" in absent.output) == (1, True)


def test_a_body_that_did_not_fit_comes_from_the_outbound_stream_while_it_is_there(desk: Desk) -> None:
    with desk.server.client() as client:
        original = b'{"msg_id":"big","text":"x"}'
        seq = client.publish(OUTBOUND, original, {"Nats-Msg-Id": "big"}).seq
        at = client.api("STREAM.MSG.GET.TELEGRAM_OUTBOUND", {"seq": seq})["message"]["time"]
        whole, _, decimals = at.removesuffix("Z").partition(".")
        stored = int(datetime.fromisoformat(whole + "+00:00").timestamp()) * 10**9 + int(
            decimals.ljust(9, "0")
        )
        for stored_at, payload in ((stored, original), (stored + 1, original)):
            delivery = make_delivery(seq, id=DeliveryId("TELEGRAM_OUTBOUND", seq, stored_at), payload=payload)
            letter = fitting(dead_letter(delivery, Terminal(413, "too large"), 1), 1)
            assert letter.payload == b""
            client.publish("telegram.dead", letter.payload, letter.headers)
    assert "x" in desk.ok("show", "1", "--text").splitlines()[-1]
    result = desk.run("resend", "--all", "--yes")
    assert "1 resent; 1 refused" in result.output
    assert "2: its body did not fit, and the outbound stream has it no more" in result.output
    assert desk.sent() == ["big", "big.r1"]


# Interrupted, and two at once


@pytest.mark.parametrize("error", [Disconnected("cut"), Unanswered("no answer")])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("subject", [OUTBOUND, "$KV.telegram_state.dead.2"])
@pytest.mark.parametrize("nth", [1, 2])
def test_cut_off_anywhere_a_rerun_sends_the_same_id_and_none_twice(
    desk: Desk, error: BridgeError, where: str, subject: str, nth: int
) -> None:
    """Before or after the claim, the copy (of the first or the second letter) and the mark."""
    desk.bury_many(3)
    seen: list[str] = []

    def cut(to: str) -> None:
        seen.extend([to] if to == subject else [])
        if seen.count(subject) == nth and to == subject:
            raise error

    with Watched(desk.server) as client:
        setattr(client, where, cut)
        with pytest.raises(BridgeError, match=str(error)):
            resend_all(desk_letters(client, desk.server))
    with Watched(desk.server) as client:
        assert len(resend_all(desk_letters(client, desk.server))) == 3
    assert desk.sent() == ["m0.r1", "m1.r1", "m2.r1"]
    assert set(desk.statuses().values()) == {"resent"}


def test_a_copy_that_is_there_is_found_and_not_left_to_the_duplicate_window(desk: Desk) -> None:
    """The window is five minutes, the stream keeps a day: a rerun may come in between."""
    desk.bury("m1")

    def cut(subject: str) -> None:
        if subject == OUTBOUND:
            raise Unanswered("no answer")

    with Watched(desk.server) as client:
        client.after = cut
        with pytest.raises(Unanswered):
            resend_all(desk_letters(client, desk.server))
    with Watched(desk.server) as client:
        assert resend_all(desk_letters(client, desk.server)) == [Resent("m1.r1", 1, already=True)]
        assert OUTBOUND not in client.published


def test_where_the_stream_does_not_reach_back_to_the_claim_nothing_is_sent_unasked(desk: Desk) -> None:
    desk.bury("m1")

    def cut(subject: str) -> None:
        if subject == OUTBOUND:
            raise Unanswered("no answer")

    with Watched(desk.server) as client:
        client.after = cut
        with pytest.raises(Unanswered):
            resend_all(desk_letters(client, desk.server))
    with desk.server.client() as root:
        root.api("STREAM.PURGE.TELEGRAM_OUTBOUND")
    result = desk.run("resend", "1", "--yes")
    assert result.exit_code == 1
    assert "may have been sent" in result.output
    assert desk.sent() == []
    desk.ok("resend", "1", "--again", "--yes")
    assert desk.sent() == ["m1.r2"]
    assert desk.statuses() == {1: "resent"}


@pytest.mark.parametrize("again", [False, True])
def test_another_operator_between_any_two_steps_doubles_nothing(desk: Desk, again: bool) -> None:
    """All that the second does happens before a step of the first (claim, copy, mark) or after the last."""
    desk.bury_many(4)
    if again:
        desk.ok("resend", "--all", "--yes")
    with Watched(desk.server) as first, Watched(desk.server) as second:
        one, two = desk_letters(first, desk.server, "one"), desk_letters(second, desk.server, "two")
        marks = {"one": one.marks(), "two": two.marks()}
        letters = list(one.letters())

        def step(who: DeadLetters, by: str, letter: Any) -> Any:
            return who.resend(letter, marks[by].get(letter.seq, UNMARKED), Change(), again)

        for letter, where in zip(letters, (1, 2, 3, 0), strict=True):
            count = 0

            def interfere(subject: str, letter: Any = letter, where: int = where) -> None:
                nonlocal count
                count += 1
                if count == where:
                    step(two, "two", letter)

            first.before = interfere
            step(one, "one", letter)
            step(two, "two", letter)
    n = 2 if again else 1
    assert desk.sent()[4 * (n - 1) :] == [f"m{i}.r{n}" for i in range(4)]
    assert set(desk.statuses().values()) == {"resent"}


def test_an_operator_whose_machine_slept_looks_again_before_sending(desk: Desk) -> None:
    """Another one has finished the claim meanwhile, longer ago than the stream knows duplicates."""
    desk.bury("m1")
    now = [0.0]
    with Watched(desk.server) as sleeper, Watched(desk.server) as other:
        one = desk_letters(sleeper, desk.server, "one", lambda: now[0])

        def sleep(subject: str) -> None:
            sleeper.after = lambda subject: None
            now[0] += 3600
            assert resend_all(desk_letters(other, desk.server, "two")) == [Resent("m1.r1", 1)]

        sleeper.after = sleep  # after the claim
        assert resend_all(one) == [Resent("m1.r1", 1, already=True)]
        assert OUTBOUND not in sleeper.published
    assert desk.sent() == ["m1.r1"]


def test_a_claim_with_other_options_is_not_finished_as_something_else(desk: Desk) -> None:
    desk.bury("m1", chat="5")

    def cut(subject: str) -> None:
        if subject == OUTBOUND:
            raise Disconnected("cut")

    with Watched(desk.server) as client:
        client.before = cut
        with pytest.raises(Disconnected):
            resend_all(desk_letters(client, desk.server), Change("@elsewhere"))
    result = desk.run("resend", "1", "--yes")
    assert (result.exit_code, "to @elsewhere" in result.output) == (1, True)
    assert desk.statuses() == {1: "claimed"}
    desk.ok("resend", "1", "--chat", "@elsewhere", "--yes")
    assert [(e.msg_id, e.chat) for e in desk.outbound()] == [("m1.r1", "@elsewhere")]


def test_two_letters_with_one_id_are_two_messages_unless_they_say_the_same(desk: Desk) -> None:
    for text in ("one", "other", "one", "third"):
        desk.bury("m", text=text, chat="5")
    assert "3 resent; 1 sent already" in desk.ok("resend", "--all", "--yes")
    assert [(e.msg_id, e.text) for e in desk.outbound()] == [
        ("m.r1", "one"),
        ("m.r2", "other"),
        ("m.r3", "third"),
    ]
    assert [item["resent_as"] for item in desk.listed()] == ["m.r1", "m.r2", "m.r1", "m.r3"]


def test_two_commands_at_once_send_each_letter_once_and_in_order(desk: Desk) -> None:
    desk.bury_many(150)
    env = {"NATS_URL": desk.server.url, "NATS_TELEGRAM_NKEY_SEED": desk.server.operator_seed}
    command = ("dead", "resend", "--all", "--yes")
    with Process(*command, env=env) as one, Process(*command, env=env) as two:
        assert (one.wait(), two.wait()) == (0, 0), one.output + two.output
    assert desk.sent() == [f"m{n}.r1" for n in range(150)]
    assert set(desk.statuses().values()) == {"resent"}


@pytest.mark.parametrize("number", [2, 15, 9])
def test_a_command_that_is_stopped_or_killed_is_run_again(desk: Desk, number: int) -> None:
    desk.bury_many(60)
    heard = desk.server.listen(OUTBOUND)
    env = {"NATS_URL": desk.server.url, "NATS_TELEGRAM_NKEY_SEED": desk.server.operator_seed}
    with Process("dead", "resend", "--all", "--yes", "--rate", "5", env=env) as process:
        for _ in range(3):
            heard.get(timeout=60)
        process.signal(number)
        code = process.wait()
        if number != 9:
            assert code == 1
            assert "to go: run it again" in process.output
            assert "claimed" not in desk.statuses().values()
    assert 3 <= len(desk.sent()) < 60
    desk.ok("resend", "--all", "--yes")
    assert desk.sent() == [f"m{n}.r1" for n in range(60)]


def test_a_rate_is_kept(desk: Desk) -> None:
    desk.bury_many(4)
    start = time.monotonic()
    desk.ok("resend", "--all", "--yes", "--rate", "10")
    assert time.monotonic() - start >= 0.3


def test_a_letter_of_a_stream_that_was_made_anew_is_not_taken_for_an_old_one(desk: Desk) -> None:
    desk.bury("old")
    desk.ok("resend", "1", "--yes")
    with desk.server.client() as root:
        config = root.api("STREAM.INFO.TELEGRAM_DEAD")["config"]
        root.api("STREAM.DELETE.TELEGRAM_DEAD")
        root.api("STREAM.CREATE.TELEGRAM_DEAD", config)
    desk.bury("new")
    assert desk.statuses() == {1: "open"}
    desk.ok("resend", "1", "--yes")
    assert desk.sent() == ["old.r1", "new.r1"]


def test_two_environments_share_the_bucket_and_not_the_marks(desk: Desk) -> None:
    desk.bury("m1")
    desk.ok("resend", "1", "--yes")
    other = {"TG_DEAD_STREAM": "OTHER_DEAD", "TG_DEAD_SUBJECT": "other.dead"}
    with desk.server.client() as root:
        root.api("STREAM.CREATE.OTHER_DEAD", {"name": "OTHER_DEAD", "subjects": ["other.dead"]})
        letter = dead_letter(make_delivery(1), Terminal(400, "no"), 1)
        root.publish("other.dead", letter.payload, letter.headers)
    desk.ok("discard", "1", "--yes", seed=desk.server.root_seed, **other)
    assert desk.statuses() == {1: "resent"}


# discard


def test_what_is_discarded_is_put_aside_with_who_and_why_and_can_be_brought_back(desk: Desk) -> None:
    desk.bury_many(3)
    assert "2 dead letters discarded" in desk.ok("discard", "1", "3", "--why", "a test", "--yes")
    assert desk.seqs() == [2]
    assert "2 discarded not shown" in desk.ok("list")
    item = desk.listed("--all")[0]
    assert (item["status"], item["why"], item["resent"]) == ("discarded", "a test", False)
    assert "discarded by" in desk.ok("show", "1")
    assert "1 resent; 2 left alone" in desk.ok("resend", "--all", "--yes")
    desk.ok("resend", "1", "--again", "--yes")
    assert desk.sent() == ["m1.r1", "m0.r1"]
    assert "0 dead letters discarded" not in desk.ok("discard", "--all", "--yes")
    assert desk.seqs() == []
    desk.ok("resend", "1", "--again", "--yes")
    assert desk.sent()[-1] == "m0.r2", "a discard does not forget which ids were used"


def test_a_discard_gives_way_to_somebody_who_was_first(desk: Desk) -> None:
    desk.bury("m1")
    with Watched(desk.server) as client:
        letters = desk_letters(client, desk.server)
        (letter,) = letters.letters()
        assert letters.resend(letter, UNMARKED, Change()) == Resent("m1.r1", 1)
        assert not letters.discard(letter, UNMARKED, None)
        seen = letters.marks()[1]
        assert letters.discard(letter, seen, None)
        assert isinstance(letters.resend(letter, seen, Change(), again=True), Leave)
    assert desk.statuses() == {1: "discarded"}


def test_purge_deletes_for_good_and_wants_the_right_to(desk: Desk) -> None:
    desk.bury_many(3)
    denied = desk.run("discard", "1", "--purge", "--yes")
    assert denied.exit_code == 1
    assert "NATS does not allow it" in denied.output
    assert "$JS.API.STREAM.MSG.DELETE.TELEGRAM_DEAD" in denied.output
    root = desk.server.root_seed
    desk.ok("discard", "1", "2", "--purge", "--yes", seed=root)
    assert list(desk.statuses()) == [3]
    assert desk.run("discard", "1", "--purge", "--yes", seed=root).exit_code == 1
    with Watched(desk.server, root) as client:
        letters = desk_letters(client, desk.server)
        letter = letters.letter(3)
        assert letter is not None
        letters.purge(letter)
        letters.purge(letter)  # gone already
    assert desk.statuses() == {}


# What is wrong is said


def test_an_operators_rights_are_enough_and_others_lack_some(desk: Desk) -> None:
    """All tests here run with the operator's rights of deploy/; these are the others."""
    desk.bury("m1")
    # The worker's user may look, to count what is in doubt, but not resend.
    assert "m1" in desk.ok("list", seed=desk.server.worker_seed)
    worker = desk.run("resend", "1", "--yes", seed=desk.server.worker_seed)
    assert worker.exit_code == 1
    assert "NATS does not allow it" in worker.output
    assert "telegram.outbound" in worker.output
    assert desk.run("list", seed=desk.server.publisher_seed).exit_code == 1


def test_a_reader_without_the_right_to_change_lists_and_cannot_resend(desk: Desk) -> None:
    desk.bury("m1")
    desk.server.worker_permissions = """{
      publish: { allow: [
        "$JS.API.STREAM.INFO.TELEGRAM_DEAD", "$JS.API.STREAM.MSG.GET.TELEGRAM_DEAD"
        "$JS.API.STREAM.INFO.KV_telegram_state", "$JS.API.STREAM.MSG.GET.KV_telegram_state"
      ] }
      subscribe: { allow: ["_INBOX.tg_outbound.>"] }
    }"""
    desk.server.reload()
    assert "m1" in desk.ok("list", seed=desk.server.worker_seed)
    assert "m1" in desk.ok("show", "1", seed=desk.server.worker_seed)
    for command in ("resend", "discard"):
        result = desk.run(command, "1", "--yes", seed=desk.server.worker_seed)
        assert result.exit_code == 1
        assert "NATS does not allow it" in result.output
    assert desk.statuses() == {1: "open"}


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("TELEGRAM_DEAD", "there is no stream TELEGRAM_DEAD: make it with telegram-connector provision"),
        ("TELEGRAM_OUTBOUND", "there is no stream TELEGRAM_OUTBOUND"),
        ("KV_telegram_state", "bucket telegram_state does not exist; make it with"),
    ],
)
def test_what_is_not_there_is_one_line(desk: Desk, missing: str, words: str) -> None:
    desk.bury("m1")
    with desk.server.client() as root:
        root.api(f"STREAM.DELETE.{missing}")
    result = desk.run("resend", "--all", "--yes")
    assert result.exit_code == 1
    assert words in result.output
    assert "Traceback" not in result.output
    if missing == "KV_telegram_state":
        assert [(i["seq"], i["resent"]) for i in desk.listed()] == [(1, False)], "nobody has marked anything"


def test_without_nats_and_without_settings(nats_server: NatsServer) -> None:
    desk = Desk(nats_server)
    nats_server.kill()
    result = desk.run("list")
    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)
    assert "NATS_URL" in result.output
    assert CliRunner().invoke(main, ["dead", "list"]).exit_code == 78
    wild = desk.run("resend", "--all", "--yes", TG_SUBJECT="telegram.>")
    assert (wild.exit_code, "wildcard" in wild.output) == (2, True)


def test_a_stream_that_takes_the_subject_for_itself_gets_nothing(desk: Desk) -> None:
    desk.bury("m1")
    with desk.server.client() as root:
        root.api("STREAM.DELETE.TELEGRAM_OUTBOUND")
        root.api("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": [OUTBOUND]})
        root.api("STREAM.CREATE.TELEGRAM_OUTBOUND", {"name": "TELEGRAM_OUTBOUND", "subjects": ["x"]})
    assert desk.run("resend", "1", "--yes").exit_code == 1
    with desk.server.client() as root:
        assert root.api("STREAM.INFO.OTHER")["state"]["messages"] == 0


def test_a_refusal_and_what_another_has_done_are_told_apart(desk: Desk) -> None:
    desk.bury("m1", Terminal(0, "?", "ambiguous"))
    with Watched(desk.server) as client:
        letters = desk_letters(client, desk.server)
        (letter,) = letters.letters()
        assert isinstance(letters.resend(letter, Marked(None, 0), Change()), Refuse)
        assert client.published == []
