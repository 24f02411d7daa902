"""The ledger's record: its key, what must not change under it, and how it may go on."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Concluded,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import LedgerError
from telegram_connector.record import (
    AMBIGUOUS,
    CANCELLED,
    IN_FLIGHT,
    INTERRUPTED,
    PENDING,
    RATE_LIMITED,
    RETRYABLE,
    SENT,
    STATUSES,
    TERMINAL,
    Record,
    begin,
    chat_hash,
    decode,
    encode,
    fresh,
    key_of,
    merged,
    outcome,
    payload_hash,
    shown,
    timestamp,
)

NOW = 1_700_000_000.0
AT = "2023-11-14T22:13:20.000Z"
ENVELOPE = TelegramOutbound(msg_id="m1", chat="7", text="hello")

# What the design says, and beside it what only follows from it.
DESIGN = {
    PENDING: {IN_FLIGHT},
    IN_FLIGHT: {SENT, RATE_LIMITED, AMBIGUOUS, TERMINAL, RETRYABLE, PENDING},
    RATE_LIMITED: {PENDING},
    RETRYABLE: {PENDING},
    AMBIGUOUS: {SENT, PENDING, CANCELLED},
    SENT: set(),
    TERMINAL: set(),
    CANCELLED: set(),
}
FOLLOWS = {
    # Given up, expired, refused before a send, or withheld.
    PENDING: {RETRYABLE, TERMINAL, CANCELLED},
    # By way of pending, in one write; given up; closed by hand.
    RATE_LIMITED: {IN_FLIGHT, TERMINAL, CANCELLED},
    RETRYABLE: {IN_FLIGHT, TERMINAL, CANCELLED},
    AMBIGUOUS: {TERMINAL},  # given up under retry
    CANCELLED: {PENDING},  # withheld, and then published by hand
}


def record(status: str = IN_FLIGHT, **changes: object) -> Record:
    made = fresh("123", ENVELOPE, "7", NOW, stream_seq=5, status=status)
    return msgspec.structs.replace(made, **{"attempts": 1, "nonce": "theirs", **changes})


def other(**changes: object) -> TelegramOutbound:
    return msgspec.structs.replace(ENVELOPE, **changes)


# Keys and hashes


def test_the_same_message_to_the_same_place_has_the_same_key() -> None:
    assert key_of("123", ENVELOPE) == key_of("123", other(text="changed", kind="alert"))
    assert len(key_of("123", ENVELOPE)) == 64


@pytest.mark.parametrize(
    "changed",
    [other(msg_id="m2"), other(chat="8"), other(chat=None), other(message_thread_id=7), other(route_id="r")],
)
def test_another_message_or_place_has_another_key(changed: TelegramOutbound) -> None:
    assert key_of("123", changed) != key_of("123", ENVELOPE)


def test_another_bot_has_another_key() -> None:
    assert key_of("124", ENVELOPE) != key_of("123", ENVELOPE)


def test_with_a_route_the_chat_does_not_count() -> None:
    assert key_of("1", other(route_id="r", chat="7")) == key_of("1", other(route_id="r", chat="8"))


@given(
    st.lists(st.text(max_size=4), min_size=3, max_size=3),
    st.lists(st.text(max_size=4), min_size=3, max_size=3),
)
def test_parts_of_a_key_do_not_run_together(ours: list[str], theirs: list[str]) -> None:
    def key(parts: list[str]) -> str:
        return key_of(parts[0], other(route_id=parts[1] or "-", msg_id=parts[2]))

    same = (ours[0], ours[1] or "-", ours[2]) == (theirs[0], theirs[1] or "-", theirs[2])
    assert (key(ours) == key(theirs)) == same


@pytest.mark.parametrize(
    "changed",
    [
        other(text="hello "),
        other(parse_mode="HTML"),
        other(message_thread_id=7),
        other(reply_to_message_id=7),
        other(reply_to="m0"),
        other(disable_notification=True),
        other(disable_notification=False),
        other(link_preview=False),
    ],
)
def test_text_parse_mode_and_options_count_for_the_payload(changed: TelegramOutbound) -> None:
    assert payload_hash(changed) != payload_hash(ENVELOPE)


@pytest.mark.parametrize(
    "changed",
    [
        other(msg_id="m2"),
        other(kind="alert"),
        other(on_ambiguous="park"),
        other(expires_at="2999-01-01T00:00:00Z"),
        other(from_member="alice"),
    ],
)
def test_what_does_not_reach_telegram_does_not_count_for_the_payload(changed: TelegramOutbound) -> None:
    assert payload_hash(changed) == payload_hash(ENVELOPE)


def test_neither_the_text_nor_the_chat_is_in_a_record() -> None:
    envelope = TelegramOutbound(msg_id="m1", chat="-100123456789", text="a secret")
    value = encode(fresh("123", envelope, "-100123456789", NOW))
    assert b"secret" not in value
    assert b"123456789" not in value
    assert decode(value).chat_hash == chat_hash("123", "-100123456789")


# Reading and writing


def test_what_is_written_can_be_read() -> None:
    full = record(AMBIGUOUS, reason="x", message_id=4, link_missing=True, last_error_code=0, last_error="why")
    assert decode(encode(full)) == full


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"[]", b"\xff", b"not json", b"[" * 100_000, b'{"key": 1}', encode(record())[:-3]],
)
def test_what_cannot_be_read_is_said_without_quoting_it(value: bytes) -> None:
    with pytest.raises(LedgerError, match="cannot be read"):
        decode(value)


def test_a_status_of_another_version_is_not_guessed_at() -> None:
    value = json.loads(encode(record())) | {"status": "asleep"}
    with pytest.raises(LedgerError, match="does not know"):
        decode(json.dumps(value).encode())


def test_fields_of_another_version_are_ignored() -> None:
    value = json.loads(encode(record())) | {"later": 1}
    assert decode(json.dumps(value).encode()) == record()


def test_what_is_shown_has_the_design_s_fields_and_no_nonce() -> None:
    wanted = (
        "key provider bot msg_id payload_hash chat_hash message_thread_id route_id group part "
        "visibility_decision_id status message_id reply_to attempts next_attempt_at ambiguous_since "
        "last_error_code last_error link_missing stream_seq created_at updated_at sent_at resolved_by "
        "resolved_at"
    )
    fields = shown(record())
    assert set(wanted.split()) <= set(fields)
    assert "nonce" not in fields
    assert fields["message_id"] is None


def test_times_are_utc_to_the_millisecond() -> None:
    assert timestamp(NOW) == AT
    assert timestamp(NOW + 0.0015) in ("2023-11-14T22:13:20.001Z", "2023-11-14T22:13:20.002Z")
    assert timestamp(NOW) < timestamp(NOW + 0.001) < timestamp(NOW + 1)


# Transitions


@pytest.mark.parametrize(("old", "new"), list(itertools.product(STATUSES, STATUSES)))
def test_a_record_moves_as_the_design_says_and_no_other_way(old: str, new: str) -> None:
    allowed = new in DESIGN[old] | FOLLOWS.get(old, set())
    if allowed:
        moved = record(old).to(new, "later", reason="r")
        assert (moved.status, moved.updated_at, moved.reason) == (new, "later", "r")
    else:
        with pytest.raises(LedgerError, match=f"a record that is {old} cannot become {new}"):
            record(old).to(new, "later")


def test_what_was_sent_or_refused_stays_so() -> None:
    assert not any(DESIGN[final] or FOLLOWS.get(final) for final in (SENT, TERMINAL))


# Begin


FIRST = fresh("123", ENVELOPE, "7", NOW + 60, stream_seq=9)


@pytest.mark.parametrize("parks", [False, True])
def test_what_was_never_seen_may_begin(parks: bool) -> None:
    begun = begin(None, FIRST, parks)
    assert begun == (FIRST, None)
    assert (FIRST.status, FIRST.attempts) == (IN_FLIGHT, 1)


@pytest.mark.parametrize("parks", [False, True])
@pytest.mark.parametrize("status", STATUSES)
def test_the_same_key_with_another_payload_is_a_conflict_whatever_became_of_it(
    status: str, parks: bool
) -> None:
    changed = fresh("123", other(text="another"), "7", NOW)
    write, says = begin(record(status), changed, parks)
    assert write is None
    assert isinstance(says, Terminal)
    assert says.reason == "conflict"


@pytest.mark.parametrize("parks", [False, True])
@pytest.mark.parametrize(
    ("found", "says"),
    [
        (record(SENT, message_id=3), Concluded(SENT)),
        (record(CANCELLED, resolved_at=AT), Concluded(CANCELLED)),
        (
            record(TERMINAL, reason="gave_up", last_error_code=502, last_error="Bad Gateway"),
            Terminal(502, "Bad Gateway", "gave_up"),
        ),
        (record(TERMINAL), Terminal(0, "failed before", "refused")),
    ],
)
def test_what_is_settled_is_not_sent_again(found: Record, says: Disposition, parks: bool) -> None:
    assert begin(found, FIRST, parks) == (None, says)


def test_in_flight_means_in_doubt_once_somebody_else_finds_it() -> None:
    write, says = begin(record(), FIRST, parks=True)
    assert says == Ambiguous(INTERRUPTED, parked=True)
    assert write is not None
    assert (write.status, write.ambiguous_since, write.attempts) == (AMBIGUOUS, FIRST.updated_at, 1)


def test_in_doubt_stays_so_under_park() -> None:
    found = record(AMBIGUOUS, last_error="no answer in time")
    assert begin(found, FIRST, parks=True) == (None, Ambiguous("no answer in time", parked=True))


@pytest.mark.parametrize("status", [IN_FLIGHT, AMBIGUOUS])
def test_in_doubt_is_tried_again_under_retry(status: str) -> None:
    write, says = begin(record(status, ambiguous_since=AT), FIRST, parks=False)
    assert says is None
    assert write is not None
    assert (write.status, write.attempts) == (IN_FLIGHT, 2)


@pytest.mark.parametrize("parks", [False, True])
@pytest.mark.parametrize("status", [PENDING, RATE_LIMITED, RETRYABLE, CANCELLED])
def test_what_was_surely_not_sent_begins_again(status: str, parks: bool) -> None:
    found = record(status, attempts=4, next_attempt_at=AT, chat_hash="before a migration", reason="why")
    write, says = begin(found, FIRST, parks)
    assert says is None
    assert write is not None
    assert (write.status, write.attempts, write.next_attempt_at) == (IN_FLIGHT, 5, None)
    assert (write.stream_seq, write.chat_hash) == (FIRST.stream_seq, FIRST.chat_hash)
    assert (write.created_at, write.updated_at) == (found.created_at, FIRST.updated_at)
    assert write.reason is None, "it says why it was withheld, and it is not any more"


# Outcome


@pytest.mark.parametrize(
    ("disposition", "status"),
    [
        (Sent(4), SENT),
        (Sent(None), SENT),
        (Ambiguous("no answer in time"), AMBIGUOUS),
        (Ambiguous("Bad Gateway", 502, parked=True), AMBIGUOUS),
        (Terminal(403, "Forbidden"), TERMINAL),
        (Transient(429, "slow down", 5.0), RATE_LIMITED),
        (Transient(429, "slow down"), RATE_LIMITED),
        (Transient(502, "Bad Gateway"), PENDING),
        (Transient(0, "internal"), PENDING),
        (Unavailable("no connection"), RETRYABLE),
        (BotFault(401, "Unauthorized"), RETRYABLE),
        (Migrated("-100"), PENDING),
    ],
)
def test_what_an_answer_comes_to(disposition: Disposition, status: str) -> None:
    after = outcome(record(), disposition, NOW + 2)
    assert after.status == status
    assert after.updated_at == timestamp(NOW + 2)
    assert after.attempts == 1


def test_a_success_leaves_no_trace_of_earlier_failures() -> None:
    before = record(ambiguous_since=AT, last_error_code=0, last_error="no answer in time")
    after = outcome(before, Sent(4), NOW + 2)
    assert (after.message_id, after.sent_at) == (4, timestamp(NOW + 2))
    assert (after.ambiguous_since, after.last_error_code, after.last_error) == (None, None, None)


def test_flood_control_says_when_to_try_again() -> None:
    assert outcome(record(), Transient(429, "x", 35.0), NOW).next_attempt_at == timestamp(NOW + 35)
    assert outcome(record(), Transient(429, "x"), NOW).next_attempt_at is None


def test_since_when_it_is_in_doubt_is_the_first_time() -> None:
    assert outcome(record(), Ambiguous("x"), NOW).ambiguous_since == AT
    assert outcome(record(ambiguous_since="before"), Ambiguous("x"), NOW).ambiguous_since == "before"


def test_a_late_answer_settles_what_is_in_doubt() -> None:
    assert outcome(record(AMBIGUOUS), Sent(4), NOW).status == SENT


def test_an_answer_to_what_is_settled_is_of_no_use() -> None:
    with pytest.raises(LedgerError, match="cannot become"):
        outcome(record(SENT), Sent(4), NOW)


# Merged


def ours(status: str, **changes: object) -> Record:
    return record(status, nonce="ours", **changes)


@pytest.mark.parametrize("status", [SENT, RATE_LIMITED, AMBIGUOUS, TERMINAL, RETRYABLE, PENDING])
def test_over_our_own_begin_or_nothing_ours_is_written_as_it_is(status: str) -> None:
    assert merged(None, ours(status)) == ours(status)
    assert merged(record(IN_FLIGHT), ours(status)) == ours(status)


def test_what_is_stored_already_is_not_written_again() -> None:
    assert merged(ours(SENT), ours(SENT)) is None


@pytest.mark.parametrize("found", [record(AMBIGUOUS, ambiguous_since=AT), record(IN_FLIGHT, attempts=2)])
def test_that_it_was_sent_is_written_over_anybody_s_doubt(found: Record) -> None:
    after = merged(found, ours(SENT, message_id=4, sent_at=AT))
    assert after is not None
    assert (after.status, after.message_id, after.ambiguous_since) == (SENT, 4, None)
    assert after.attempts == found.attempts
    assert after.nonce == "ours", "else a write that nobody confirmed is not recognised"


@pytest.mark.parametrize("status", [RATE_LIMITED, RETRYABLE, PENDING, TERMINAL, AMBIGUOUS])
def test_what_came_of_an_earlier_send_says_nothing_about_a_later_one(status: str) -> None:
    assert merged(record(IN_FLIGHT, attempts=2), ours(status)) is None


@pytest.mark.parametrize("status", [RATE_LIMITED, RETRYABLE, PENDING, TERMINAL, AMBIGUOUS])
def test_only_a_success_settles_another_s_doubt(status: str) -> None:
    assert merged(record(AMBIGUOUS), ours(status)) is None


@pytest.mark.parametrize(("found", "after"), list(itertools.product((SENT, TERMINAL, CANCELLED), STATUSES)))
def test_what_an_operator_or_another_has_settled_stands(found: str, after: str) -> None:
    assert merged(record(found), ours(after)) is None


@pytest.mark.parametrize("found", [PENDING, RATE_LIMITED, RETRYABLE])
def test_that_it_was_sent_is_written_over_the_wish_to_send_it_again(found: str) -> None:
    after = merged(record(found, next_attempt_at=AT), ours(SENT, message_id=4))
    assert after is not None
    assert (after.status, after.message_id, after.next_attempt_at) == (SENT, 4, None)


def test_a_missing_link_is_noted_on_what_is_on_record_as_sent() -> None:
    after = merged(record(SENT, message_id=4), ours(SENT, message_id=4, link_missing=True))
    assert after is not None
    assert (after.status, after.link_missing) == (SENT, True)
    assert merged(record(SENT, message_id=5), ours(SENT, message_id=4, link_missing=True)) is None
