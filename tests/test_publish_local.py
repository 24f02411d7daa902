"""Local messages from decision to chat: on record before they are published, once, whatever crashes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telegram_connector import events
from telegram_connector.docket import BY_OPERATOR
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import EnvelopeError, PublishFailed
from telegram_connector.projection import (
    Context,
    Decision,
    Earlier,
    GroupState,
    LocalMessage,
    ManualPublish,
    Member,
    Policy,
    Reason,
    ReplyToTurn,
    Route,
    Splitting,
    Topic,
    text_hash,
)
from telegram_connector.publisher import Published, Publisher, Withheld
from telegram_connector.record import AMBIGUOUS, CANCELLED, PENDING, SENT, Record
from tests.fleet import TOKEN, Fleet
from tests.nats_server import PERMISSIONS, NatsServer
from tests.test_ledger_commands import Desk, until

ROOT = Path(__file__).parents[1]
BOT = TOKEN.partition(":")[0]
CHAT = -1001234567890
ROUTE = Route(
    id="r1",
    chat=str(CHAT),
    topic=None,
    team="Frontend",
    state="active",
    members=(Member(name="lead", label="Lead"), Member(name="alice", label="Alice")),
)
TURN = ReplyToTurn(route_id="r1", inbound_key="k", inbound_message_id="in-1")
ORDER = ManualPublish(route_id="r1", message_id="m1", requested_by="user")
IN_PARTS = Policy(limit=512, splitting=Splitting())
LONG = "\n".join(f"line {n:03}" for n in range(120))  # three parts of it

pytestmark = pytest.mark.integration


def local(text: str = "It is done.", **changes: Any) -> LocalMessage:
    fields = {
        "id": "m1",
        "sender": "alice",
        "to": "user",
        "source": "send_message",
        "kind": "message",
        "in_reply_to": "in-1",
    }
    return LocalMessage(text=text, **{**fields, **changes})


class Team:
    """A program with local messages, the bucket that it writes to, and what comes of it."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.desk = Desk(server)
        self.decisions: list[Decision] = []
        self.publisher = self.make()

    def make(self, **changes: Any) -> Publisher:
        seed = changes.pop("seed", self.server.root_seed)
        more = {"bot": BOT, "recorder": self.decisions.append, **changes}
        return Publisher(self.server.settings(seed), **more)

    def say(
        self,
        message: LocalMessage,
        context: Context | None = TURN,
        policy: Policy | None = None,
        route: Route = ROUTE,
        **more: Any,
    ) -> Published | Withheld:
        return self.publisher.publish_local(message, route, context, policy, timeout_seconds=60, **more)

    def leaves(self, *arguments: Any, **more: Any) -> Published:
        result = self.say(*arguments, **more)
        assert isinstance(result, Published), result
        return result

    def stays(self, *arguments: Any, **more: Any) -> tuple[Reason, str | None]:
        result = self.say(*arguments, **more)
        assert isinstance(result, Withheld), result
        return result.reason, result.status

    def outbound(self) -> list[TelegramOutbound]:
        return [envelope for envelope, _ in self.desk.outbound()]

    def record(self, msg_id: str = "r1/m1") -> dict[str, Any]:
        (found,) = [item for item in self.desk.listed() if item["msg_id"] == msg_id]
        return found

    def put(self, **changes: Any) -> None:
        """Change the one record that there is, as somebody else may."""
        fields = {**self.record(), **changes}
        self.desk.put(msgspec.convert({k: v for k, v in fields.items() if v is not None}, Record))

    def killed(self, where: str, text: str, policy: str = "Policy()") -> None:
        """The same message from a program that is killed, as kill -9 does, where `where` is called."""
        code = f"""
            import os, signal
            from telegram_connector import docket, publisher
            from telegram_connector.projection import Policy, Splitting
            from telegram_connector.settings import NatsSettings
            from tests.test_publish_local import BOT, ROUTE, TURN, local
            def end(*_):
                os.kill(os.getpid(), signal.SIGKILL)
            {where} = end
            sender = publisher.Publisher(NatsSettings.from_env(os.environ), bot=BOT)
            sender.publish_local(local({text!r}), ROUTE, TURN, {policy}, timeout_seconds=60)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={
                "PATH": os.environ.get("PATH", ""),
                "PYTHONPATH": str(ROOT),
                "NATS_URL": self.server.url,
                "NATS_TELEGRAM_NKEY_SEED": self.server.root_seed,
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.fixture
def team(nats_server: NatsServer) -> Iterator[Team]:
    team = Team(nats_server)
    with team.publisher:
        yield team


# From the decision to the chat


def test_a_teammates_reply_is_decided_recorded_published_sent_and_not_said_again(
    team: Team, fleet: Fleet
) -> None:
    published = team.leaves(local())
    assert [ack.duplicate for ack in published.acks] == [False]
    assert team.decisions == [published.decision]
    record = team.record()
    assert (record["status"], record["stream_seq"], record["attempts"]) == (PENDING, 1, 0)
    assert "Published as sequence 1; no connector has begun yet." in team.desk.ok("why", "r1/m1")
    assert team.stays(local()) == (Reason.ALREADY_HANDLED, PENDING)
    fleet.relay(ledger="kv", on_ambiguous="park")
    until(lambda: team.record()["status"] == SENT)  # under the same key: there is one record
    assert fleet.texts(CHAT) == ["[Frontend] Alice\nIt is done."]
    record = team.record()
    assert record["visibility_decision_id"] == published.decision.decision_id
    assert (record["from_member"], record["attempts"]) == ("alice", 1)
    assert team.stays(local()) == (Reason.ALREADY_HANDLED, SENT)
    assert team.stays(local("It is done!")) == (Reason.EDITED, SENT)
    assert team.stays(local(), None) == (Reason.ALREADY_HANDLED, SENT)
    assert team.stays(local(), ORDER) == (Reason.ALREADY_HANDLED, SENT)
    assert len(team.outbound()) == 1
    assert team.publisher.group_status("m1", ROUTE) == GroupState((1,), (), (), ())
    assert team.publisher.group_status("m2", ROUTE) is None


def test_a_duplicate_local_event_returns_the_existing_state_also_in_doubt(team: Team, fleet: Fleet) -> None:
    fleet.sandbox.set_fault({"reset": "after_accept", "method": "sendMessage"}, times=1)
    team.leaves(local())
    fleet.relay(ledger="kv", on_ambiguous="park")
    until(lambda: team.record()["status"] == AMBIGUOUS)
    assert team.stays(local()) == (Reason.ALREADY_HANDLED, AMBIGUOUS)
    assert team.publisher.group_status("m1", ROUTE) == GroupState((), (1,), (), ())


def test_why_a_local_reply_was_not_sent_has_an_answer(team: Team) -> None:
    assert team.stays(local(to="lead")) == (Reason.NOT_TO_USER, None)
    (decision,) = team.decisions
    record = team.record()
    assert (record["status"], record["reason"]) == (CANCELLED, "not_to_user")
    assert record["visibility_decision_id"] == decision.decision_id
    said = team.desk.ok("why", "r1/m1")
    assert "r1/m1 (route r1, by alice): Withheld: It is addressed to somebody else than the user." in said
    assert decision.decision_id in said
    assert team.stays(local(to="lead")) == (Reason.ALREADY_HANDLED, CANCELLED)
    assert team.outbound() == []


def test_what_was_withheld_leaves_by_an_order_and_under_the_same_record(team: Team, fleet: Fleet) -> None:
    assert team.stays(local(kind="slash_command_result")) == (Reason.SLASH_COMMAND_RESULT, None)
    assert team.stays(local(kind="slash_command_result"))[0] is Reason.ALREADY_HANDLED
    # Ordered, and still not fit to leave: the newest decision is on record.
    assert team.stays(local(kind="slash_command_result", to="lead"), ORDER) == (Reason.NOT_TO_USER, None)
    assert team.record()["reason"] == "not_to_user"
    team.leaves(local(kind="slash_command_result"), ORDER)
    fleet.relay(ledger="kv", on_ambiguous="park")
    until(lambda: team.record()["status"] == SENT)
    assert len(fleet.texts(CHAT)) == 1


def test_what_was_withheld_for_its_length_leaves_in_parts_by_an_order(team: Team) -> None:
    assert team.stays(local(LONG), TURN, Policy(limit=512)) == (Reason.TOO_LONG, None)
    said = team.desk.ok("why", "r1/m1")
    assert "It is longer than one message may be" in said
    assert "code points, at most 512 in one message, decision " in said
    assert len(team.leaves(local(LONG), ORDER, IN_PARTS).acks) == 3
    # One line a part, and none any more of the whole.
    assert re.findall(r"\(route r1, part (\d/\d)", team.desk.ok("why", "r1/m1")) == ["1/3", "2/3", "3/3"]


def test_what_an_operator_has_cancelled_no_order_revives(team: Team) -> None:
    team.leaves(local())
    team.put(status=CANCELLED, resolved_at="2026-07-01T10:00:00.000Z", resolved_by="ops", resolution="cancel")
    assert team.stays(local(), ORDER) == (Reason.ALREADY_HANDLED, BY_OPERATOR)
    assert len(team.outbound()) == 1


# Crashes: a real process, killed


def test_killed_between_record_and_publish_the_same_call_again_publishes(team: Team) -> None:
    team.killed("publisher.Publisher._send", "It is done.")
    assert team.outbound() == []
    assert "Was about to be published at " in team.desk.ok("why", "r1/m1")
    (ack,) = team.leaves(local()).acks
    assert (ack.seq, ack.duplicate) == (1, False)
    assert team.record()["stream_seq"] == 1


def test_killed_between_record_and_publish_and_edited_the_edit_is_what_leaves(
    team: Team, fleet: Fleet
) -> None:
    team.killed("publisher.Publisher._send", "It is done.")
    team.leaves(local("It is done now."))
    fleet.relay(ledger="kv", on_ambiguous="park")
    until(lambda: team.record()["status"] == SENT)
    assert fleet.texts(CHAT) == ["[Frontend] Alice\nIt is done now."]


def test_killed_between_record_and_publish_and_withheld_by_now_it_stays(team: Team) -> None:
    team.killed("publisher.Publisher._send", "It is done.")
    asleep = msgspec.structs.replace(ROUTE, state="disabled")
    assert team.stays(local(), route=asleep) == (Reason.ROUTE_NOT_ACTIVE, None)
    assert team.record()["status"] == CANCELLED
    assert team.stays(local()) == (Reason.ALREADY_HANDLED, CANCELLED)


def test_killed_before_the_receipt_is_noted_nothing_doubles(team: Team, fleet: Fleet) -> None:
    team.killed("docket.Docket.confirm", "It is done.")
    assert (len(team.outbound()), team.record()["stream_seq"]) == (1, None)
    (ack,) = team.leaves(local()).acks
    assert (ack.seq, ack.duplicate) == (1, True)
    # Long after, when the stream has forgotten the id: the relay's ledger has not.
    with team.server.client() as client:
        payload, _ = team.desk.outbound()[0]
        client.publish("telegram.outbound", msgspec.json.encode(payload))
    fleet.relay(ledger="kv", on_ambiguous="park")
    fleet.until_event(events.Bound)
    until(lambda: fleet.server.consumer()["ack_floor"]["stream_seq"] == 2)
    assert len(fleet.texts(CHAT)) == 1
    assert team.record()["status"] == SENT


def test_killed_before_the_receipt_is_noted_and_edited_the_text_in_the_stream_stands(
    team: Team, fleet: Fleet
) -> None:
    team.killed("docket.Docket.confirm", "It is done.")
    assert team.stays(local("It is done now.")) == (Reason.EDITED, PENDING)
    fleet.relay(ledger="kv", on_ambiguous="park")
    until(lambda: team.record()["status"] == SENT)  # and is no conflict
    assert fleet.texts(CHAT) == ["[Frontend] Alice\nIt is done."]


def test_killed_after_the_first_part_the_others_follow(team: Team) -> None:
    team.killed("docket.Docket.confirm", LONG, "Policy(limit=512, splitting=Splitting())")
    assert [envelope.msg_id for envelope in team.outbound()] == ["r1/m1/1"]
    assert team.publisher.group_status("m1", ROUTE) == GroupState((), (), (), (1, 2, 3))
    assert [ack.duplicate for ack in team.leaves(local(LONG), TURN, IN_PARTS).acks] == [True, False, False]
    assert [envelope.part for envelope in team.outbound()] == [1, 2, 3]
    assert team.stays(local(LONG), TURN, IN_PARTS) == (Reason.ALREADY_HANDLED, PENDING)
    assert team.stays(local(LONG + "!"), TURN, IN_PARTS) == (Reason.EDITED, PENDING)
    # Now it would be one message: what left in parts is not said again as a whole.
    assert team.stays(local(LONG)) == (Reason.ALREADY_HANDLED, PENDING)


# Parts


def test_a_part_refused_or_in_doubt_drops_none_after_it_and_the_groups_state_can_be_asked_for(
    team: Team, fleet: Fleet
) -> None:
    fleet.sandbox.set_fault({"reset": "after_accept", "method": "sendMessage"}, times=1)
    team.leaves(local(LONG), TURN, IN_PARTS)
    fleet.relay(ledger="kv", on_ambiguous="park")
    until(lambda: team.publisher.group_status("m1", ROUTE) == GroupState((2, 3), (1,), (), ()))
    assert [text.splitlines()[-1] for text in fleet.texts(CHAT)] == ["(1/3)", "(2/3)", "(3/3)"]


def test_parts_that_the_stream_has_are_not_published_when_the_rest_is(team: Team) -> None:
    team.leaves(local(LONG), TURN, IN_PARTS)
    # As it is when the second one never got there.
    record = team.record("r1/m1/2")
    fields = {name: value for name, value in record.items() if value is not None and name != "stream_seq"}
    team.desk.put(msgspec.convert(fields, Record))
    assert len(team.leaves(local(LONG), TURN, IN_PARTS).acks) == 1


# The seed's sentences about sending


def test_telegram_send_uses_the_thread_and_reply_parameters_and_no_parse_mode(
    team: Team, fleet: Fleet
) -> None:
    """Telegram send uses message_thread_id; uses reply_parameters when the inbound id is known; parse mode is
    omitted in MVP."""
    fleet.sandbox.set_chat(CHAT, type="supergroup", any_topic=True)
    route = msgspec.structs.replace(ROUTE, topic=Topic(message_thread_id=7, state="active"))
    turn = msgspec.structs.replace(TURN, telegram_message_id=55)
    team.leaves(local("<b>bold</b> *bold*"), turn, route=route)
    fleet.relay(ledger="kv", on_ambiguous="park")
    (message,) = fleet.sandbox.wait(count=1, timeout_seconds=60)
    assert message.params["message_thread_id"] == "7"
    assert json.loads(message.params["reply_parameters"])["message_id"] == 55
    assert "parse_mode" not in message.params
    assert message.raw_text == "[Frontend] Alice\n<b>bold</b> *bold*"


def test_long_text_is_rejected_or_handled_by_an_explicit_split_policy(team: Team) -> None:
    assert team.stays(local("x" * 5000)) == (Reason.TOO_LONG, None)
    assert team.outbound() == []
    assert len(team.leaves(local("x" * 5000, id="m2"), TURN, Policy(splitting=Splitting())).acks) == 2


# Without a ledger, and with one that cannot be used


def test_without_a_ledger_the_decision_goes_to_the_recorder_and_nothing_is_stored(team: Team) -> None:
    with team.make(bot=None, seed=team.server.publisher_seed) as publisher:
        withheld = publisher.publish_local(local(to="lead"), ROUTE, TURN)
        published = publisher.publish_local(local(), ROUTE, TURN)
        known = Earlier(status="sent", text_hash=text_hash("It is done."))
        again = publisher.publish_local(local("It was done."), ROUTE, TURN, earlier=known)
        with pytest.raises(ValueError, match="no ledger to ask"):
            publisher.group_status("m1", ROUTE)
    assert isinstance(withheld, Withheld)
    assert isinstance(published, Published)
    assert isinstance(again, Withheld)
    assert (again.reason, again.status) == (Reason.EDITED, "sent")
    assert team.decisions == [withheld.decision, published.decision, again.decision]
    assert team.desk.listed() == []
    assert len(team.outbound()) == 1


def test_a_recorder_that_fails_lets_nothing_out(team: Team) -> None:
    def fails(_decision: Decision) -> None:
        raise OSError("the disk is full")

    for bot in (None, BOT):
        with team.make(bot=bot, recorder=fails) as publisher, pytest.raises(OSError, match="disk is full"):
            publisher.publish_local(local(), ROUTE, TURN)
    assert team.outbound() == []
    assert team.desk.listed() == []


def test_the_rights_it_takes_are_the_documented_ones(team: Team) -> None:
    block = re.search(r"^# TELEGRAM_PROJECTOR (\{.*?^# \}$)", PERMISSIONS.read_text(), re.M | re.S)
    assert block is not None
    team.server.worker_permissions = re.sub("^# ", "", block[1], flags=re.M)
    team.server.reload()
    with team.make(seed=team.server.worker_seed) as publisher:
        assert isinstance(publisher.publish_local(local(), ROUTE, TURN), Published)
        assert isinstance(publisher.publish_local(local(id="m2", to="lead"), ROUTE, TURN), Withheld)
        assert publisher.group_status("m1", ROUTE) == GroupState((), (), (), (1,))
    # A publisher without them learns which ones, and publishes nothing unrecorded.
    with team.make(seed=team.server.publisher_seed) as publisher:
        with pytest.raises(PublishFailed, match=r"the ledger cannot be used: .*permission") as failed:
            publisher.publish_local(local(id="m3"), ROUTE, TURN)
        assert not failed.value.maybe_stored
        assert "kv_telegram_ledger" in str(failed.value).lower()
    assert len(team.outbound()) == 1


def test_a_ledger_that_is_not_there_is_named_and_nothing_leaves_unrecorded(team: Team) -> None:
    with team.server.client() as client:
        client.api("STREAM.DELETE.KV_telegram_ledger")
    with pytest.raises(PublishFailed, match="bucket telegram_ledger does not exist; make it with"):
        team.say(local())
    assert team.outbound() == []


def test_a_broker_that_is_down_fails_within_the_timeout(team: Team) -> None:
    team.server.kill()
    with pytest.raises(PublishFailed, match=r"r1/m1 is not stored: .*no connection|r1/m1 .*NATS"):
        team.publisher.publish_local(local(), ROUTE, TURN, timeout_seconds=0.5)


def test_a_broker_that_comes_up_within_the_timeout_gets_it_on_record(team: Team) -> None:
    team.server.kill()
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(team.say, local())
        with pytest.raises(PublishFailed):
            team.publisher.publish_local(local(id="m2"), ROUTE, TURN, timeout_seconds=0.3)
        team.server.start()
        assert isinstance(result.result(60), Published)
    assert [envelope.msg_id for envelope in team.outbound()] == ["r1/m1"]
    assert team.record()["stream_seq"] == 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # to fork is the host's choice
def test_a_forked_child_keeps_the_same_records_over_its_own_connection(team: Team) -> None:
    team.leaves(local())
    code = 1
    if (child := os.fork()) == 0:
        try:
            known = team.stays(local()) == (Reason.ALREADY_HANDLED, PENDING)
            code = 0 if known and team.leaves(local(id="m2")).acks[0].seq == 2 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert team.leaves(local(id="m3")).acks[0].seq == 3


def test_the_check_comes_before_the_record(team: Team) -> None:
    def refuses(_envelope: TelegramOutbound) -> None:
        raise EnvelopeError("text", "not on a Sunday")

    with team.make(check=refuses) as publisher, pytest.raises(EnvelopeError, match="Sunday"):
        publisher.publish_local(local(), ROUTE, TURN)
    assert team.desk.listed() == []


def test_many_at_once_publish_it_once(team: Team) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: team.say(local()), range(8)))
    assert len(team.outbound()) == 1
    assert any(isinstance(result, Published) for result in results)
    stays = {(r.reason, r.status) for r in results if isinstance(r, Withheld)}
    assert stays <= {(Reason.ALREADY_HANDLED, PENDING)}
    assert team.record()["stream_seq"] == 1


@pytest.mark.parametrize("bot", ["123:secret", "", "abc"])
def test_a_token_is_no_bots_id_and_is_not_quoted(nats_server: NatsServer, bot: str) -> None:
    with pytest.raises(ValueError, match="digits before the colon") as refused:
        Publisher(nats_server.settings(), bot=bot)
    assert "secret" not in str(refused.value)
