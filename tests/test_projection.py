"""What may leave: each rule by its sentence, quoted from the rules that the projection follows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telegram_connector.delivery import Delivery, DeliveryId, Term
from telegram_connector.disposition import Ambiguous, Disposition, Sent, Terminal
from telegram_connector.envelope import TelegramOutbound, decode, encode, request_body
from telegram_connector.errors import ProjectionError
from telegram_connector.lanes import Item, Lanes
from telegram_connector.projection import (
    Context,
    Earlier,
    LocalMessage,
    ManualPublish,
    Member,
    Noise,
    Policy,
    Projected,
    Reason,
    ReplyToTurn,
    Route,
    Splitting,
    Topic,
    Withheld,
    group_state,
    msg_id,
    project,
    read_policy,
    text_hash,
)
from telegram_connector.settlement import Policy as SettlementPolicy
from telegram_connector.settlement import settle

ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

MEMBERS = (
    Member(name="lead", label="Lead"),
    Member(name="alice", label="Alice"),
    Member(name="bob"),
    Member(name="gone", active=False),
)
ROUTE = Route(
    id="r1",
    chat="-100200",
    topic=Topic(message_thread_id=7, state="active"),
    team="Frontend",
    state="active",
    members=MEMBERS,
)
TURN = ReplyToTurn(
    route_id="r1",
    inbound_key="telegram:-100200:55",
    inbound_message_id="in-1",
    conversation_id="c1",
    telegram_message_id=55,
)
ORDER = ManualPublish(route_id="r1", message_id="m1", requested_by="user")
POLICY = Policy()
SECRET = "s3cret words"


def message(**changes: Any) -> LocalMessage:
    fields = {
        "id": "m1",
        "sender": "lead",
        "to": "user",
        "source": "lead_process",
        "kind": "message",
        "text": "It is done.",
        "in_reply_to": "in-1",
    }
    return LocalMessage(**{**fields, **changes})


Record = TypeVar("Record", bound=msgspec.Struct)


def changed(record: Record, **changes: Any) -> Record:
    """Made anew and so checked, which ``msgspec.structs.replace`` of old does not do."""
    return type(record)(**{**msgspec.structs.asdict(record), **changes})


def route(**changes: Any) -> Route:
    return changed(ROUTE, **changes)


def policy(**changes: Any) -> Policy:
    return changed(POLICY, **changes)


def turn(**changes: Any) -> ReplyToTurn:
    return changed(TURN, **changes)


def asked(
    local: LocalMessage,
    by: Route = ROUTE,
    context: Context | None = TURN,
    rules: Policy = POLICY,
    earlier: Earlier | None = None,
) -> Projected | Withheld:
    return project(local, by, context, rules, earlier=earlier)


def leaves(result: Projected | Withheld) -> tuple[TelegramOutbound, ...]:
    assert isinstance(result, Projected), result
    assert result.decision.verdict == "eligible"
    for envelope in result.envelopes:
        assert decode(encode(envelope)) == envelope
    return result.envelopes


def why_not(result: Projected | Withheld) -> Reason:
    assert isinstance(result, Withheld), result
    assert result.decision.verdict == "withheld"
    return result.reason


# The domain tests


def test_a_leads_linked_reply_to_the_user_is_eligible():
    """`to=user` lead reply linked to provider route is eligible."""
    assert leaves(asked(message())) == (
        TelegramOutbound(
            msg_id="r1/m1",
            chat="-100200",
            text="[Frontend] Lead\nIt is done.",
            message_thread_id=7,
            reply_to_message_id=55,
            allow_sending_without_reply=True,
            route_id="r1",
            from_member="lead",
            visibility_decision_id=asked(message()).decision.decision_id,
        ),
    )


def test_a_teammates_linked_reply_to_the_user_is_eligible():
    """`to=user` teammate reply linked to provider route is eligible."""
    (envelope,) = leaves(asked(message(sender="alice", source="send_message")))
    assert (envelope.from_member, envelope.text) == ("alice", "[Frontend] Alice\nIt is done.")


def test_a_local_reply_without_a_link_is_not_eligible():
    """`to=user` local-only reply without route link is not eligible."""
    assert why_not(asked(message(), context=None)) is Reason.NO_LINK


def test_a_teammates_message_to_the_lead_is_not_eligible():
    """`to=lead` teammate message is not eligible."""
    assert why_not(asked(message(sender="alice", to="lead"))) is Reason.NOT_TO_USER


def test_a_leads_thought_addressed_to_nobody_is_not_eligible():
    """lead session thought without `to` is not eligible."""
    assert why_not(asked(message(source="lead_session", to=None))) is Reason.NO_RECIPIENT
    assert why_not(asked(message(source="lead_session", to=""))) is Reason.NO_RECIPIENT
    assert why_not(asked(message(source="lead_session"))) is Reason.LEAD_SESSION


def test_the_result_of_a_slash_command_is_not_eligible_by_default():
    """slash command result is not eligible by default."""
    assert why_not(asked(message(kind="slash_command_result"))) is Reason.SLASH_COMMAND_RESULT


def test_what_is_empty_without_agent_only_blocks_is_not_eligible():
    """agent-only block strips to empty and is not eligible."""
    text = f"<info_for_agent>{SECRET}</info_for_agent>\n"
    assert why_not(asked(message(text=text))) is Reason.ONLY_AGENT_BLOCKS


def test_json_noise_is_not_eligible():
    """JSON noise is not eligible."""
    assert why_not(asked(message(text='{"state": "idle"}'))) is Reason.JSON_NOISE
    assert why_not(asked(message(text='{"type": "idle_notification"}'))) is Reason.INBOX_NOISE


def test_a_disabled_route_blocks():
    """provider route disabled blocks eligibility."""
    assert why_not(asked(message(), route(state="disabled"))) is Reason.ROUTE_NOT_ACTIVE


def test_the_same_message_has_the_same_idempotency_key():
    """same internal message maps to same provider idempotency key."""
    keys = {
        leaves(result)[0].msg_id
        for result in (
            asked(message()),
            asked(message(text="Another text.")),
            asked(message(), context=ORDER),
            asked(message(), rules=policy(prefix="{member}: ")),
        )
    }
    assert keys == {msg_id("r1", "m1")}
    others = [leaves(asked(message(id="m2"))), leaves(asked(message(), route(id="r2"), turn(route_id="r2")))]
    assert not keys & {envelope.msg_id for (envelope,) in others}


def test_the_same_key_with_another_text_is_a_conflict():
    """same idempotency key with changed payload is conflict."""
    first = asked(message())
    earlier = Earlier(status="sent", text_hash=first.decision.text_hash)
    assert why_not(asked(message(), earlier=earlier)) is Reason.ALREADY_HANDLED
    changed = asked(message(text="Not that."), earlier=earlier)
    assert why_not(changed) is Reason.EDITED
    assert changed.decision.msg_id == first.decision.msg_id


# What must hold


def test_an_unknown_sender_is_not_eligible():
    """message.from is a known active team member or lead"""
    assert why_not(asked(message(sender="mallory"))) is Reason.SENDER_UNKNOWN
    assert why_not(asked(message(sender="Lead"))) is Reason.SENDER_UNKNOWN
    assert why_not(asked(message(sender="gone"))) is Reason.SENDER_INACTIVE


def test_an_unknown_source_does_not_leave():
    """message.source is user-visible by policy"""
    assert why_not(asked(message(source="new_feed"))) is Reason.SOURCE_UNKNOWN
    assert why_not(asked(message(source=""))) is Reason.SOURCE_UNKNOWN


def test_an_unknown_kind_does_not_leave():
    """message kind/source allowed by policy"""
    assert why_not(asked(message(kind="new_kind"))) is Reason.KIND_UNKNOWN
    assert why_not(asked(message(kind=""))) is Reason.KIND_UNKNOWN


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b\ufeff", "\u2800", "\r\n\r\n"])
def test_a_text_must_have_something_to_read(text: str):
    """message.text remains non-empty after sanitization"""
    assert why_not(asked(message(text=text))) is Reason.EMPTY


def test_a_message_is_linked_by_its_turn_its_conversation_or_an_order():
    """message is linked to a provider route or an explicit publish action"""
    leaves(asked(message(in_reply_to="in-1")))
    leaves(asked(message(in_reply_to=None, conversation_id="c1")))
    leaves(asked(message(in_reply_to=None), context=ORDER))
    assert why_not(asked(message(in_reply_to=None))) is Reason.NOT_LINKED
    assert why_not(asked(message(in_reply_to=None, conversation_id="c2"))) is Reason.NOT_LINKED
    without = turn(conversation_id=None)
    assert (
        why_not(asked(message(in_reply_to=None, conversation_id=None), context=without)) is Reason.NOT_LINKED
    )


def test_what_a_message_says_itself_about_its_turn_counts_more_than_its_conversation():
    """A visible reply proof with `relayOfMessageId` linked to a messenger inbound turn."""
    assert why_not(asked(message(in_reply_to="in-2", conversation_id="c1"))) is Reason.OTHER_TURN


@pytest.mark.parametrize("context", [turn(route_id="r2"), changed(ORDER, route_id="r2")])
def test_the_link_must_be_to_this_route(context: Context):
    """origin/reply context links message to provider route"""
    assert why_not(asked(message(), context=context)) is Reason.OTHER_ROUTE


def test_an_order_is_for_one_message_and_the_users():
    """A manual user action in our UI like "send this to Telegram"."""
    assert why_not(asked(message(), context=changed(ORDER, message_id="m2"))) is Reason.OTHER_MESSAGE
    assert why_not(asked(message(), context=changed(ORDER, requested_by="lead"))) is Reason.NOT_BY_USER


@pytest.mark.parametrize("status", ["sent", "pending", "send_in_flight", "send_ambiguous", "failed_terminal"])
@pytest.mark.parametrize("context", [TURN, ORDER, None])
def test_what_was_sent_to_the_route_is_not_sent_again(status: str, context: Context | None):
    """message has not already been sent to that provider route"""
    earlier = Earlier(status=status, text_hash=text_hash("It is done."))
    result = asked(message(), context=context, earlier=earlier)
    assert why_not(result) is Reason.ALREADY_HANDLED
    assert isinstance(result, Withheld)
    assert (result.status, result.decision.figures) == (status, f"status {status}")


def test_what_was_withheld_leaves_only_by_an_order():
    """Duplicate local message event. Ledger idempotency key returns existing provider status."""
    earlier = Earlier(status="cancelled", text_hash=text_hash("It is done."))
    assert why_not(asked(message(), earlier=earlier)) is Reason.ALREADY_HANDLED
    leaves(asked(message(), context=ORDER, earlier=earlier))
    stays = asked(message(to="lead"), context=ORDER, earlier=earlier)
    assert (why_not(stays), stays.decision.status) == (Reason.NOT_TO_USER, None)


@pytest.mark.parametrize("state", ["disabled", "", "ACTIVE", "paused"])
def test_a_route_must_be_active(state: str):
    """route is active"""
    assert why_not(asked(message(), route(state=state))) is Reason.ROUTE_NOT_ACTIVE
    assert why_not(asked(message(), route(state=state), ORDER)) is Reason.ROUTE_NOT_ACTIVE


def test_a_topic_must_be_active():
    """topic is active"""
    for state in ("closed", "", "Active"):
        closed = route(topic=Topic(message_thread_id=7, state=state))
        assert why_not(asked(message(), closed)) is Reason.TOPIC_NOT_ACTIVE


def test_a_chat_without_topics_needs_none():
    (envelope,) = leaves(asked(message(), route(topic=None)))
    assert envelope.message_thread_id is None


def test_the_policy_names_members():
    """outbound policy allows this member/source/kind"""
    rules = policy(members=frozenset({"lead"}))
    leaves(asked(message(), rules=rules))
    assert why_not(asked(message(sender="alice"), rules=rules)) is Reason.MEMBER_NOT_ALLOWED


# What is excluded whatever else holds


@pytest.mark.parametrize("name", ["user", "USER", " user "])
@pytest.mark.parametrize("context", [TURN, ORDER])
def test_the_users_own_message_is_excluded(name: str, context: Context):
    """message.from == "user" """
    by = route(members=(*MEMBERS, Member(name=name, label="User")))
    assert why_not(asked(message(sender=name), by, context)) is Reason.FROM_USER


def test_the_systems_message_is_excluded():
    """message.from == "system" """
    by = route(members=(*MEMBERS, Member(name="system")))
    assert why_not(asked(message(sender="system"), by)) is Reason.FROM_SYSTEM


@pytest.mark.parametrize(
    "to", ["lead", "alice", "*", "User", "user ", "user,lead", "\u0443ser", "cross_team"]
)
@pytest.mark.parametrize("context", [TURN, ORDER])
def test_what_is_not_to_the_user_is_excluded(to: str, context: Context):
    """message.to != "user" """
    assert why_not(asked(message(to=to), context=context)) is Reason.NOT_TO_USER


def test_a_slash_command_is_excluded_unless_mirrored():
    """messageKind == "slash_command" unless explicitly mirrored as a user command echo"""
    command = message(kind="slash_command", text="/status")
    assert why_not(asked(command)) is Reason.SLASH_COMMAND
    assert why_not(asked(command, context=ORDER)) is Reason.SLASH_COMMAND
    mirrored = policy(
        kinds=frozenset({"message", "slash_command"}),
        why_not_kinds={"slash_command_result": Reason.SLASH_COMMAND_RESULT},
    )
    leaves(asked(command, rules=mirrored))
    assert why_not(asked(message(kind="slash_command", sender="user"), rules=mirrored)) is Reason.FROM_USER


def test_a_slash_commands_result_is_excluded_unless_ordered():
    """messageKind == "slash_command_result" unless explicitly requested"""
    leaves(asked(message(kind="slash_command_result"), context=ORDER))
    other = changed(ORDER, message_id="m2")
    assert why_not(asked(message(kind="slash_command_result"), context=other)) is Reason.OTHER_MESSAGE
    never = policy(kinds_on_request=frozenset())
    result = asked(message(kind="slash_command_result"), context=ORDER, rules=never)
    assert why_not(result) is Reason.SLASH_COMMAND_RESULT


@pytest.mark.parametrize("kind", ["idle_notification", "shutdown_request", "task_assignment"])
def test_inbox_noise_is_excluded(kind: str):
    """isInboxNoiseMessage(text)"""
    for text in (json.dumps({"type": kind, "from": "alice"}), f'Note:\n{{ "type" :\n"{kind.upper()}" }}'):
        assert why_not(asked(message(text=text))) is Reason.INBOX_NOISE


def test_noise_of_thoughts_is_excluded():
    """isThoughtProtocolNoise(text)"""
    assert why_not(asked(message(text="No response  requested."))) is Reason.THOUGHT_NOISE
    leaves(asked(message(text="No response requested. But here is one.")))


def test_teammates_xml_alone_is_excluded():
    """only teammate-message XML blocks"""
    text = f'<teammate-message teammate_id="a">{SECRET}</teammate-message>' * 2
    assert why_not(asked(message(text=text))) is Reason.ONLY_PROTOCOL_BLOCKS


@pytest.mark.parametrize("kind", ["tool_summary", "command_output"])
def test_rows_of_tools_alone_are_excluded(kind: str):
    """tool-only rows with no human answer"""
    assert why_not(asked(message(kind=kind))) is Reason.TOOL_ONLY


def test_diagnostics_are_excluded():
    """debug diagnostics"""
    assert why_not(asked(message(kind="diagnostic"))) is Reason.DIAGNOSTIC


def test_prompts_to_retry_are_excluded():
    """runtime retry prompt text"""
    assert why_not(asked(message(kind="retry_prompt"))) is Reason.RETRY_PROMPT
    phrase = Noise(
        phrase="Your last reply was not delivered; send it again", reason=Reason.RETRY_PROMPT, at="start"
    )
    text = "YOUR LAST REPLY was not\ndelivered; send it again with the tool."
    assert why_not(asked(message(text=text), rules=policy(noise=(phrase,)))) is Reason.RETRY_PROMPT


def test_requests_for_permission_are_excluded():
    """permission_request JSON"""
    text = '{"type":"permission_request","tool":"Bash"}'
    for context in (TURN, ORDER):
        assert why_not(asked(message(text=text), context=context)) is Reason.PERMISSION_REQUEST
    assert why_not(asked(message(text=f"Please: {text}"))) is Reason.PERMISSION_REQUEST
    assert why_not(asked(message(kind="permission_request"))) is Reason.PERMISSION_REQUEST


SOURCES_THAT_STAY = {
    "user_sent": Reason.USER_SENT,
    "lead_session": Reason.LEAD_SESSION,
    "inbox": Reason.INBOX,
    "system_notification": Reason.SYSTEM_NOTIFICATION,
    "cross_team": Reason.CROSS_TEAM,
}


@pytest.mark.parametrize("source", SOURCES_THAT_STAY)
@pytest.mark.parametrize("context", [TURN, ORDER])
def test_visible_locally_is_not_fit_to_leave(source: str, context: Context):
    """If a message is visible in the local app, that does not automatically mean it is safe to send to
    Telegram.
    """
    assert why_not(asked(message(source=source), context=context)) is SOURCES_THAT_STAY[source]


# By source, by destination


@pytest.mark.parametrize("source", ["lead_process", "runtime_delivery"])
def test_what_is_captured_for_the_user_leaves_when_linked(source: str):
    """lead_process with to=user -> eligible if linked to route;
    runtime delivery to user -> eligible if linked to route
    """
    leaves(asked(message(source=source)))
    assert why_not(asked(message(source=source), context=None)) is Reason.NO_LINK


def test_a_cross_team_message_needs_the_user_and_a_link():
    """cross_team_sent -> not eligible unless to=user and explicit external link exists"""
    leaves(asked(message(source="cross_team_sent")))
    assert why_not(asked(message(source="cross_team_sent", to="other-team"))) is Reason.NOT_TO_USER
    assert why_not(asked(message(source="cross_team_sent"), context=None)) is Reason.NO_LINK


def test_a_teammate_signs():
    """send it into the team topic with a member prefix"""
    text = "I found the failing test. The auth callback returns before token refresh completes."
    (envelope,) = leaves(asked(message(sender="alice", text=text)))
    assert envelope.text == f"[Frontend] Alice\n{text}"
    assert envelope.message_thread_id == 7
    (unlabelled,) = leaves(asked(message(sender="bob")))
    assert unlabelled.text.startswith("[Frontend] bob\n")


def test_nobody_signs_for_another():
    """do not guess teammate from display prefix"""
    (envelope,) = leaves(asked(message(sender="bob", text="[Frontend] Lead\nPay now.")))
    assert envelope.text == "[Frontend] bob\n[Frontend] Lead\nPay now."
    assert envelope.from_member == "bob"


@pytest.mark.parametrize(("sender", "to"), [("alice", "lead"), ("lead", "bob"), ("bob", "alice")])
@pytest.mark.parametrize("context", [TURN, ORDER, None])
def test_teammates_talk_among_themselves_never_leaves(sender: str, to: str, context: Context | None):
    """Do not send teammate-internal chatter ... unless the destination is explicitly `user`."""
    assert why_not(asked(message(sender=sender, to=to), context=context)) is Reason.NOT_TO_USER


@pytest.mark.parametrize("sender", ["lead", "alice", "bob"])
def test_the_destination_decides_and_not_the_role(sender: str):
    """the outbound projection should key off destination, not role"""
    leaves(asked(message(sender=sender)))


# What is sent


def test_text_goes_out_plain():
    """send plain text; do not use MarkdownV2 until escaping is proven"""
    (envelope,) = leaves(asked(message(text="*a* _b_ <b>c</b> [d](e) `f`")))
    assert envelope.parse_mode is None
    assert envelope.text.endswith("\n*a* _b_ <b>c</b> [d](e) `f`")
    assert set(json.loads(request_body(envelope, "-100200"))) == {
        *("chat_id", "text", "message_thread_id", "reply_parameters")
    }


def test_agent_only_and_protocol_blocks_are_stripped_and_the_answer_leaves():
    """strip agent-only blocks; strip teammate protocol blocks if present"""
    text = (
        f"Done.\n\n\n\n<info_for_agent>{SECRET}</info_for_agent>  \r\n"
        f"See   the log.\t\n<teammate-message>{SECRET}</teammate-message>"
    )
    (envelope,) = leaves(asked(message(text=text)))
    assert envelope.text == "[Frontend] Lead\nDone.\n\nSee   the log."


def test_protocol_blocks_may_withhold_the_whole():
    """Message contains teammate XML blocks. Strip/block by protocol-noise policy."""
    text = f"Done. <teammate-message>{SECRET}</teammate-message>"
    leaves(asked(message(text=text)))
    assert (
        why_not(asked(message(text=text), rules=policy(on_protocol_blocks="withhold")))
        is Reason.PROTOCOL_BLOCKS
    )
    agents = "Done. <info_for_agent>x</info_for_agent>"
    leaves(asked(message(text=agents), rules=policy(on_protocol_blocks="withhold")))


def test_a_reply_names_the_inbound_message():
    """reply_to_provider_message_id = inbound Telegram message id; message_thread_id = team topic id"""
    (envelope,) = leaves(asked(message()))
    assert (envelope.reply_to_message_id, envelope.message_thread_id) == (55, 7)
    (unknown,) = leaves(asked(message(), context=turn(telegram_message_id=None)))
    (ordered,) = leaves(asked(message(), context=ORDER))
    for envelope in (unknown, ordered):
        assert envelope.reply_to_message_id is envelope.allow_sending_without_reply is None


def test_the_envelope_says_whose_reply_it_is():
    """ProviderMessageLink -> internal from member -> route to that teammate"""
    (envelope,) = leaves(asked(message(sender="alice")))
    assert (envelope.route_id, envelope.from_member, envelope.msg_id) == ("r1", "alice", "r1/m1")


def test_a_lost_topic_is_not_replaced_by_the_chat():
    """Topic route repair-required. Do not fallback to general chat."""
    for thread in (7, None):
        lost = route(topic=Topic(message_thread_id=thread, state="repair_required"))
        assert why_not(asked(message(), lost)) is Reason.TOPIC_REPAIR_REQUIRED
    with pytest.raises(ProjectionError, match="message_thread_id: missing"):
        Topic(message_thread_id=None, state="active")


def test_an_edit_is_not_sent_and_a_correction_is_a_message_of_its_own():
    """do not edit Telegram messages in MVP; send corrections as new messages only on explicit action"""
    earlier = Earlier(status="sent", text_hash=text_hash("It is done."))
    edited = message(text="It is not done.")
    for context in (TURN, ORDER):
        result = asked(edited, context=context, earlier=earlier)
        assert (why_not(result), result.decision.status) == (Reason.EDITED, "sent")
    order = ManualPublish(route_id="r1", message_id="m2", requested_by="user")
    leaves(asked(message(id="m2", text="It is not done.", in_reply_to=None), context=order))


def test_an_ambiguous_send_may_be_parked_by_policy():
    (envelope,) = leaves(asked(message(), rules=policy(on_ambiguous="park")))
    assert envelope.on_ambiguous == "park"


# Length


def test_a_text_at_the_limit_leaves_whole():
    """enforce max length"""
    room = 4096 - len("[Frontend] Lead\n")
    (envelope,) = leaves(asked(message(text="🙂" * room)))
    assert len(envelope.text) == 4096


def test_a_longer_text_is_refused_with_its_count():
    """payload too long and split policy disabled"""
    result = asked(message(text="x" * 5000))
    assert why_not(result) is Reason.TOO_LONG
    assert result.decision.figures == "5016 code points, at most 4096 in one message"


def test_a_longer_text_is_split_by_an_explicit_policy():
    """long text is rejected or handled by explicit split policy."""
    words = " ".join(f"word{number}" for number in range(1500))
    envelopes = leaves(asked(message(text=words), rules=policy(splitting=Splitting())))
    count = len(envelopes)
    assert count == 4
    assert [e.msg_id for e in envelopes] == [f"r1/m1/{part}" for part in (1, 2, 3, 4)]
    assert {(e.group, e.parts, e.chat, e.message_thread_id, e.from_member) for e in envelopes} == {
        ("r1/m1", 4, "-100200", 7, "lead")
    }
    assert [e.part for e in envelopes] == [1, 2, 3, 4]
    assert [e.reply_to_message_id for e in envelopes] == [55, None, None, None]
    assert len({e.visibility_decision_id for e in envelopes}) == 1
    said = []
    for envelope in envelopes:
        assert len(envelope.text) <= 4096
        first, *lines, last = envelope.text.split("\n")
        assert (first, last) == ("[Frontend] Lead", f"({envelope.part}/{count})")
        said.append("\n".join(lines))
    assert " ".join(said) == words


def test_more_parts_than_allowed_are_refused_with_both_counts():
    result = asked(message(text="word " * 5000), rules=policy(splitting=Splitting(max_parts=3)))
    assert why_not(result) is Reason.TOO_MANY_PARTS
    assert result.decision.figures == "25015 code points, at most 4096 in one message; 7 parts, at most 3"


def test_as_many_parts_as_allowed_leave():
    assert (
        len(leaves(asked(message(text="word " * 5000), rules=policy(splitting=Splitting(max_parts=7))))) == 7
    )


def test_a_short_text_is_no_group():
    (envelope,) = leaves(asked(message(), rules=policy(splitting=Splitting())))
    assert (envelope.group, envelope.part, envelope.parts) == (None, None, None)
    assert envelope.msg_id == "r1/m1"


@pytest.mark.parametrize("outcome", [Terminal(400, "no"), Ambiguous("no answer")])
def test_a_part_refused_or_in_doubt_does_not_drop_the_parts_after_it(outcome: Disposition):
    """part 1 sent / part 2 ambiguous / part 3 pending"""
    envelopes = leaves(asked(message(text="word " * 2000), rules=policy(splitting=Splitting())))
    lanes = Lanes(max_pending=10, senders=1)
    for number, envelope in enumerate(envelopes, 1):
        delivery = Delivery(DeliveryId("S", number, 0), encode(envelope), {}, "r", 1, 1e6)
        lanes.add(Item(delivery, envelope.chat or "", envelope, 1e6), 0.0)
    outcomes: list[Disposition] = [Sent(1), outcome, Sent(3)]
    commands = []
    for sent in outcomes:
        item = lanes.take(0.0, 0.0, 30.0)
        assert item is not None
        attempts = 4  # the last one, for what would be tried again
        rules = SettlementPolicy(ack_wait_seconds=60.0, max_attempts=5, backoff_seconds=1.0)
        settled = settle(
            sent,
            attempts=attempts,
            policy=rules,
            bot_wait_seconds=0.0,
            last_hand_over=False,
            random=lambda: 0.0,
        )
        commands.append(settled.command)
        lanes.done(item)
    assert isinstance(commands[1], Term)
    assert lanes.outstanding == 0
    assert len(commands) == len(envelopes) == 3


def test_the_groups_state_can_be_asked_for():
    """send chunks under one ledger group and be careful"""
    state = group_state(5, {1: "sent", 2: "send_ambiguous", 4: "failed_terminal", 5: "rate_limited"})
    assert (state.sent, state.in_doubt, state.failed, state.pending) == ((1,), (2,), (4,), (3, 5))
    assert not state.whole
    assert group_state(2, {1: "sent", 2: "sent"}).whole
    assert group_state(1, {1: "cancelled"}).failed == (1,)


# Decisions


def test_a_decision_is_the_same_for_the_same_and_another_for_what_differs():
    decisions = [
        asked(message()),
        asked(message(text="Other.")),
        asked(message(id="m2")),
        asked(message(), context=ORDER),
        asked(message(), context=None),
        asked(message(), context=turn(inbound_key="telegram:-100200:56")),
        asked(message(), route(state="off")),
        asked(message(), rules=policy(prefix="{member}: ")),
        asked(message(sender="alice")),
        asked(message(), earlier=Earlier(status="sent", text_hash=text_hash("It is done."))),
    ]
    ids = [result.decision.decision_id for result in decisions]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 64 for one in ids)
    assert asked(message()).decision == asked(message()).decision


def test_a_decision_is_made_for_the_ledger():
    decision = asked(message(to="lead")).decision
    assert decision == dataclasses.replace(
        decision,
        verdict="withheld",
        reason=Reason.NOT_TO_USER,
        message_id="m1",
        route_id="r1",
        msg_id="r1/m1",
        context="reply_to_provider_turn",
        text_hash=text_hash("It is done."),
        parts=0,
        status=None,
    )
    assert str(decision) == "withheld: It is addressed to somebody else than the user."
    eligible = asked(
        message(text="word " * 2000), context=ORDER, rules=policy(splitting=Splitting())
    ).decision
    assert (eligible.parts, eligible.context) == (3, "manual_publish")
    with pytest.raises(AttributeError):
        decision.verdict = "eligible"  # type: ignore[misc]


def test_a_message_shows_its_id_and_not_its_text():
    local = message(text=SECRET)
    assert repr(local) == "LocalMessage(id='m1')"
    assert local.__rich_repr__() == [("id", "m1")]


def test_ids_of_any_form_make_a_key_that_reads_back():
    assert msg_id("r/1", "m 1\n") == "r%2F1/m%201%0A"
    assert msg_id("a/b", "c") != msg_id("a", "b/c")
    assert msg_id("r", "m/1") != msg_id("r", "m") + "/1"
    (envelope,) = leaves(asked(message(id="Nats-Msg-Id: x\r\n🙂")))
    assert envelope.msg_id.isascii()
    assert envelope.msg_id.isprintable()


TEXTS = st.text(max_size=300) | st.lists(
    st.sampled_from(
        [SECRET, "<", ">", "[", "]", "info_for_agent", "/", "teammate-message", "{", '"', "```", "\n", " "]
    ),
    max_size=60,
).map("".join)


@ANY_SPEED
@given(TEXTS, st.sampled_from(["lead", "alice", "user", "?"]), st.sampled_from(["user", "lead", None]))
def test_whatever_the_text_the_answer_is_a_decision_and_holds_nothing_of_it(
    text: str, sender: str, to: str | None
):
    result = asked(message(text=text, sender=sender, to=to), rules=policy(splitting=Splitting()))
    assert SECRET not in str(result.decision)
    assert SECRET not in repr(result.decision)
    if isinstance(result, Projected):
        assert (sender in ("lead", "alice"), to) == (True, "user")
        for envelope in leaves(result):
            assert envelope.text.startswith(f"[Frontend] {sender.title()}\n")
            assert len(envelope.text) <= 4096


@ANY_SPEED
@given(st.sampled_from(Reason))
def test_every_reason_has_a_sentence_of_its_own(reason: Reason):
    assert reason.words.endswith(".")
    assert reason.value == reason.name.lower()
    assert sum(other.words == reason.words for other in Reason) == 1


PAGE = (Path(__file__).parents[1] / "docs" / "projection.md").read_text()


def test_every_reason_is_documented():
    for reason in Reason:
        assert f"| `{reason.value}` | {reason.words} |" in PAGE


def test_the_documented_example_runs(capsys: pytest.CaptureFixture[str]):
    example = PAGE.split("```python\n")[1].split("```")[0]
    exec(compile(example, "docs/projection.md", "exec"), {})
    said = PAGE.split("```text\n")[1].split("```")[0]
    assert capsys.readouterr().out == said


# What is not well made


@pytest.mark.parametrize(
    ("make", "faults"),
    [
        (lambda: message(id=""), ["id: "]),
        (lambda: message(id=5, text=None), ["id: ", "text: "]),
        (lambda: message(id="\ud83d"), ["id: "]),
        (lambda: message(id="x" * 256), ["id: "]),
        (lambda: message(to=["user"]), ["to: "]),
        (lambda: Member(name=""), ["name: "]),
        (lambda: Member(name="a", label="a\nb"), ["label: "]),
        (lambda: Member(name="x" * 65), ["name: "]),
        (lambda: Topic(message_thread_id=0, state="active"), ["message_thread_id: "]),
        (lambda: route(chat="SECRET"), ["chat: "]),
        (lambda: route(team="a\u202eb"), ["team: "]),
        (lambda: route(members=(MEMBERS[0], MEMBERS[0])), ["members: "]),
        (lambda: route(members=("lead",)), ["members: "]),
        (lambda: turn(telegram_message_id=-1), ["telegram_message_id: "]),
        (lambda: Earlier(status="sent", text_hash="SECRET"), ["text_hash: "]),
        (lambda: policy(prefix="no member"), ["prefix: "]),
        (lambda: policy(prefix="{member} {text}"), ["prefix: "]),
        (lambda: policy(prefix="{member.__class__}"), ["prefix: "]),
        (lambda: policy(prefix="{member!r:>9999}"), ["prefix: "]),
        (lambda: policy(prefix="{member}{member}"), ["prefix: "]),
        (lambda: policy(prefix="{member"), ["prefix: "]),
        (lambda: policy(prefix="{member}\u202e"), ["prefix: "]),
        (lambda: policy(prefix="{member}" + "x" * 65), ["prefix: "]),
        (lambda: policy(limit=4097), ["limit: "]),
        (lambda: policy(limit=511), ["limit: "]),
        (lambda: policy(kinds="message"), ["kinds: "]),
        (lambda: policy(kinds=frozenset({"message", "diagnostic"})), ["kinds: "]),
        (lambda: policy(sources=frozenset({"inbox"})), ["sources: "]),
        (lambda: policy(sources=frozenset({""})), ["sources: "]),
        (lambda: policy(kinds_on_request=frozenset({"message"})), ["kinds: "]),
        (lambda: policy(why_not_kinds={"x": Reason.ELIGIBLE}), ["why_not_kinds: "]),
        (lambda: policy(why_not_sources={"x": "SECRET"}), ["why_not_sources: "]),
        (lambda: policy(agent_blocks=("ok_name", "-")), ["agent_blocks[1]: "]),
        (lambda: policy(protocol_blocks=("Info-For-Agent",)), ["protocol_blocks[0]: "]),
        (lambda: policy(on_ambiguous="SECRET"), ["on_ambiguous: "]),
        (lambda: policy(on_protocol_blocks="SECRET"), ["on_protocol_blocks: "]),
        (lambda: Noise(phrase=" a b ", reason=Reason.DIAGNOSTIC), ["phrase: "]),
        (lambda: Noise(phrase="long enough", reason=Reason.ELIGIBLE), ["reason: "]),
        (lambda: Splitting(max_parts=1), ["max_parts: "]),
        (lambda: Splitting(max_parts=100), ["max_parts: "]),
        (lambda: Splitting(mark="{part}"), ["mark: "]),
    ],
)
def test_what_is_not_well_made_is_refused_by_name(make: Any, faults: list[str]):
    with pytest.raises(ProjectionError) as caught:
        make()
    assert len(caught.value.faults) == len(faults)
    assert all(found.startswith(fault) for found, fault in zip(caught.value.faults, faults, strict=True))
    assert "SECRET" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_a_policy_is_data():
    written = b"""{"sources": ["chat"], "kinds": ["answer"], "why_not_kinds": {"log": "diagnostic"},
        "agent_blocks": ["hidden"],
        "noise": [{"phrase": "heartbeat", "reason": "inbox_noise", "at": "whole"}],
        "prefix": "{member}: ", "splitting": {"max_parts": 3}}"""
    rules = read_policy(written)
    answer = message(source="chat", kind="answer", text="<hidden>x</hidden>Yes.")
    assert leaves(asked(answer, rules=rules))[0].text == "Lead: Yes."
    assert why_not(asked(message(source="chat", kind="log"), rules=rules)) is Reason.DIAGNOSTIC
    noise = message(source="chat", kind="answer", text="Heartbeat")
    assert why_not(asked(noise, rules=rules)) is Reason.INBOX_NOISE
    assert rules.splitting == Splitting(max_parts=3)
    assert read_policy(b"{}") == POLICY


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (b"", "the whole: not JSON"),
        (b"[" * 200_000, "the whole: "),
        (b"[]", "the whole: "),
        (b'{"prefx": "x"}', "the whole: "),
        (b'{"kinds": 5}', "kinds: "),
        (b'{"noise": [{"phrase": "heartbeat", "reason": "SECRET"}]}', "noise[0].reason: "),
        (b'{"prefix": "SECRET"}', "prefix: "),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused_by_name(written: bytes, fault: str):
    with pytest.raises(ProjectionError) as caught:
        read_policy(written)
    assert caught.value.faults[0].startswith(fault)
    assert "SECRET" not in str(caught.value)
