"""Links: from a message in Telegram to the message it was, and back."""

from __future__ import annotations

import msgspec
import pytest

from telegram_connector.errors import ApiError, BridgeError, LedgerError, Unanswered
from telegram_connector.links import (
    NOT_AVAILABLE,
    Link,
    LinkNotFound,
    Links,
    by_message,
    by_msg_id,
    decode,
    encode,
    wait,
)
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import DAY, LINKS_BUCKET, NS, links_bucket
from tests.fake_records import DISCONNECTED, DONE, LOST, SILENT, FakeRecords

LINK = Link(
    bot="123",
    message_id=42,
    msg_id="m1",
    record="k",
    route_id="r",
    from_member="alice",
    sent_at="2026-01-01T00:00:00.000Z",
)


@pytest.fixture
def records() -> FakeRecords:
    return FakeRecords()


@pytest.fixture
def links(records: FakeRecords) -> Links:
    return Links(records, "123")


def store(links: Links, link: Link = LINK, chat: str = "-100", sent_to: str | None = None) -> None:
    for future in links.store(link, chat, sent_to or chat):
        future.result(0)


def test_what_a_message_was_is_found_by_telegram_s_id(links: Links) -> None:
    store(links)
    assert links.resolve("-100", 42) == LINK


def test_by_msg_id_it_is_found_in_the_chat_as_it_was_sent_to(links: Links) -> None:
    store(links, sent_to="@channel")
    assert links.sent_as("@channel", "m1", 1.0) == LINK
    assert links.sent_as("-100", "m1", 1.0) is None
    assert links.resolve("-100", 42) == LINK


@pytest.mark.parametrize(("chat", "message_id"), [("-100", 43), ("-101", 42)])
def test_what_is_not_known_is_not_guessed(links: Links, chat: str, message_id: int) -> None:
    store(links)
    with pytest.raises(LinkNotFound, match=NOT_AVAILABLE):
        links.resolve(chat, message_id)


def test_another_bot_s_message_ids_are_others(records: FakeRecords, links: Links) -> None:
    store(links)
    with pytest.raises(LinkNotFound):
        Links(records, "124").resolve("-100", 42)


def test_a_deleted_link_is_not_found(records: FakeRecords, links: Links) -> None:
    store(links)
    records.put(LINKS_BUCKET, by_message("123", "-100", 42), b"")
    with pytest.raises(LinkNotFound):
        links.resolve("-100", 42)


def test_the_latest_message_with_a_msg_id_is_the_one_that_is_replied_to(links: Links) -> None:
    store(links)
    store(links, msgspec.structs.replace(LINK, message_id=43))
    found = links.sent_as("-100", "m1", 1.0)
    assert found is not None
    assert found.message_id == 43
    assert links.resolve("-100", 42).message_id == 42


def test_no_chat_id_is_in_the_clear() -> None:
    for key in (by_message("123", "-100987654", 42), by_msg_id("123", "-100987654", "m1")):
        assert "987654" not in key
        assert key.replace(".", "").isalnum(), "a key is part of a NATS subject"


def test_any_msg_id_makes_a_key() -> None:
    keys = {
        by_msg_id("123", "7", msg_id) for msg_id in ("a", "a b", "a.b", "a.*", "é", "x" * 10_000, "\ud800")
    }
    assert len(keys) == 7
    assert all(key.replace(".", "").isalnum() and len(key) < 80 for key in keys)


@pytest.mark.parametrize("value", [b"{}", b"garbage", b"\xff", b"[" * 100_000, encode(LINK)[:-2]])
def test_a_link_that_cannot_be_read_is_said(records: FakeRecords, links: Links, value: bytes) -> None:
    records.put(LINKS_BUCKET, by_message("123", "-100", 42), value)
    with pytest.raises(LedgerError, match="a link cannot be read") as raised:
        links.resolve("-100", 42)
    assert not isinstance(raised.value, LinkNotFound)


def test_fields_of_another_version_are_ignored_and_older_links_read() -> None:
    assert decode(encode(LINK)[:-1] + b',"later":1}') == LINK
    old = b'{"bot":"123","message_id":42,"msg_id":"m1","sent_at":"x"}'
    assert decode(old) == Link(bot="123", message_id=42, msg_id="m1", sent_at="x")


def test_a_bucket_that_is_gone_does_not_look_like_an_empty_one(records: FakeRecords, links: Links) -> None:
    records.delete(LINKS_BUCKET)
    with pytest.raises(ApiError):
        links.resolve("-100", 42)
    assert all(isinstance(f.exception(0), ApiError) for f in links.store(LINK, "-100", "-100"))


@pytest.mark.parametrize("fate", [DISCONNECTED, LOST])
def test_that_it_cannot_be_read_now_is_no_answer(records: FakeRecords, links: Links, fate: str) -> None:
    store(links)
    records.script.append(fate)
    with pytest.raises(BridgeError):
        links.resolve("-100", 42)
    assert links.resolve("-100", 42) == LINK


def test_a_silent_server_is_waited_for_in_vain_for_so_long_only(records: FakeRecords, links: Links) -> None:
    records.script.append(SILENT)
    with pytest.raises(Unanswered):
        links.resolve("-100", 42, timeout_seconds=0.01)
    records.script.append(SILENT)
    with pytest.raises(Unanswered):
        wait(records.read(LINKS_BUCKET, "k"), -1.0)


# Stale


def test_a_stale_link_is_kept_and_says_so_whichever_way_it_is_found(links: Links) -> None:
    store(links)
    links.mark_stale("-100", 42, "now", 1.0)
    assert links.resolve("-100", 42) == msgspec.structs.replace(LINK, stale_at="now")
    found = links.sent_as("-100", "m1", 1.0)
    assert found is not None
    assert found.stale_at == "now"


def test_it_is_stale_since_the_first_time(links: Links) -> None:
    store(links)
    links.mark_stale("-100", 42, "first", 1.0)
    links.mark_stale("-100", 42, "second", 1.0)
    assert links.resolve("-100", 42).stale_at == "first"


def test_a_later_message_with_the_same_msg_id_is_not_stale(links: Links) -> None:
    store(links)
    store(links, msgspec.structs.replace(LINK, message_id=43))
    links.mark_stale("-100", 42, "now", 1.0)
    found = links.sent_as("-100", "m1", 1.0)
    assert found is not None
    assert (found.message_id, found.stale_at) == (43, None)


def test_what_is_not_known_cannot_become_stale(records: FakeRecords, links: Links) -> None:
    links.mark_stale("-100", 42, "now", 1.0)
    assert records.keys(LINKS_BUCKET) == []


def test_marking_that_was_cut_short_is_done_by_doing_it_again(records: FakeRecords, links: Links) -> None:
    store(links)
    records.script += [DONE, DONE, DONE, LOST]
    with pytest.raises(Unanswered):
        links.mark_stale("-100", 42, "now", 1.0)
    links.mark_stale("-100", 42, "now", 1.0)
    assert links.resolve("-100", 42).stale_at == "now"


# Kept


@pytest.mark.parametrize(("days", "kept"), [(1, 90), (90, 90), (365, 365)])
def test_links_are_kept_for_ninety_days_at_least_and_never_pruned_by_count(days: int, kept: int) -> None:
    bucket = links_bucket(NatsSettings(nats_url="nats://x", nats_auth="none", ledger_retention_days=days))
    assert bucket["max_age"] == kept * DAY * NS
    assert bucket.get("max_msgs", -1) == -1
    assert bucket.get("max_bytes", -1) == -1
