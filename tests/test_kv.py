"""The key-value bucket of commands against a real nats-server."""

from __future__ import annotations

import pytest

from telegram_connector.bridge import KeyValue
from telegram_connector.bridge.kv import Entry, NoBucket
from tests.nats_server import NatsServer

pytestmark = pytest.mark.integration


def test_whoever_is_second_is_told_and_changes_nothing(nats_server: NatsServer) -> None:
    with nats_server.client() as client:
        bucket = KeyValue(client, "telegram_state")
        first = bucket.create("a.1", b"one")
        assert first is not None
        assert bucket.create("a.1", b"two") is None
        assert bucket.get("a.1") == Entry(b"one", first)
        second = bucket.update("a.1", b"three", first)
        assert second is not None
        assert bucket.update("a.1", b"four", first) is None
        assert bucket.get_each(["a.2", "a.1"]) == [None, Entry(b"three", second)]


def test_a_deleted_key_can_be_created_again(nats_server: NatsServer) -> None:
    with nats_server.client() as client:
        bucket = KeyValue(client, "telegram_state")
        bucket.create("a", b"one")
        client.publish("$KV.telegram_state.a", b"", {"KV-Operation": "DEL"})
        assert bucket.get("a") is None
        assert bucket.create("a", b"two") is not None
        assert bucket.create("a", b"three") is None
        found = bucket.get("a")
        assert found is not None
        assert found.value == b"two"


def test_keys_are_listed_by_pattern(nats_server: NatsServer) -> None:
    with nats_server.client() as client:
        bucket = KeyValue(client, "telegram_state")
        assert bucket.keys() == []
        for n in range(200):
            bucket.create(f"dead.{n}", b"x")
        bucket.create("dead.OTHER.1", b"x")
        bucket.create("holds", b"x")
        assert sorted(bucket.keys("dead.*")) == sorted(f"dead.{n}" for n in range(200))
        assert len(bucket.keys()) == 202


def test_a_bucket_that_is_not_there_is_named(nats_server: NatsServer) -> None:
    with nats_server.client() as client:
        bucket = KeyValue(client, "nowhere")
        for use in (bucket.keys, lambda: bucket.get("a"), lambda: bucket.create("a", b"x")):
            with pytest.raises(NoBucket, match="bucket nowhere does not exist"):
                use()
