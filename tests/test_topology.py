"""What JetStream should look like, and how far a server is from it."""

from __future__ import annotations

import pytest

from telegram_connector import topology
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import NS

SETTINGS = NatsSettings(nats_url="nats://127.0.0.1:4222", nats_auth="none")
STREAM = topology.outbound_stream(SETTINGS)
CONSUMER = topology.consumer(SETTINGS)
# What a server adds to what it was given.
AS_FOUND = {**CONSUMER, "max_waiting": 512, "num_replicas": 0, "metadata": {"_nats.ver": "2.12.1"}}


def test_the_stream_is_the_seeds():
    assert (STREAM["name"], STREAM["subjects"]) == ("TELEGRAM_OUTBOUND", ["telegram.outbound"])
    assert (STREAM["storage"], STREAM["retention"]) == ("file", "limits")
    assert (STREAM["max_age"], STREAM["duplicate_window"]) == (86_400 * NS, 300 * NS)


def test_the_consumer_redelivers_without_end_and_filters_our_subject():
    assert CONSUMER["max_deliver"] == -1
    assert CONSUMER["filter_subject"] == SETTINGS.subject
    assert CONSUMER["ack_policy"] == "explicit"
    assert CONSUMER["ack_wait"] == 60 * NS
    assert not {"backoff", "inactive_threshold"} & CONSUMER.keys()


def test_everything_provisioned_takes_the_replicas():
    assert {config["num_replicas"] for config in topology.provisioned(SETTINGS, replicas=3)} == {3}


# Consumer


def test_a_consumer_as_made_does_not_differ():
    assert topology.consumer_differences(CONSUMER, AS_FOUND) == ()


@pytest.mark.parametrize(
    ("field", "found", "sentence"),
    [
        ("ack_wait", 30 * NS, "ack_wait is 30 s, expected 60 s"),
        ("max_deliver", 5, "max_deliver is 5, expected -1"),
        ("max_ack_pending", 1000, "max_ack_pending is 1000, expected 10000"),
        ("filter_subject", "", "filter_subject is unset, expected telegram.outbound"),
        ("filter_subjects", ["a", "b"], "filter_subjects is ['a', 'b'], expected unset"),
        ("backoff", [NS], "backoff is [1000000000], expected unset"),
        ("inactive_threshold", 2_592_000 * NS, "inactive_threshold is 2592000 s, expected unset"),
    ],
)
def test_a_difference_is_a_sentence_and_the_update_removes_it(field: str, found: object, sentence: str):
    config = {**AS_FOUND, field: found}
    assert topology.consumer_differences(CONSUMER, config) == (sentence,)
    assert topology.consumer_differences(CONSUMER, topology.consumer_update(CONSUMER, config)) == ()


@pytest.mark.parametrize("nothing", [None, "", [], 0])
def test_unset_fields_are_no_difference_however_the_server_writes_that(nothing: object):
    assert topology.consumer_differences(CONSUMER, {**AS_FOUND, "backoff": nothing}) == ()


def test_an_update_keeps_what_it_does_not_know():
    found = {
        **AS_FOUND,
        "ack_wait": NS,
        "sample_freq": "10",
        "new": 1,
    }
    update = topology.consumer_update(CONSUMER, found)
    assert update == {**found, "ack_wait": 60 * NS}
    assert found["ack_wait"] == NS, "what was found is left alone"


# Streams


def test_a_stream_as_made_does_not_differ_and_needs_no_update():
    found = {**STREAM, "max_bytes": -1, "sealed": False}
    assert topology.stream_differences(STREAM, found) == ()
    assert topology.stream_update(STREAM, found) is None


def test_more_subjects_are_no_difference_and_stay():
    found = {**STREAM, "subjects": ["telegram.outbound", "more"]}
    assert topology.stream_differences(STREAM, found) == ()
    assert topology.stream_update(STREAM, found) is None


def test_a_missing_subject_is_named_and_added():
    found = {**STREAM, "subjects": ["other"]}
    assert topology.stream_differences(STREAM, found) == ("subjects lack telegram.outbound",)
    update = topology.stream_update(STREAM, found)
    assert update is not None
    assert update["subjects"] == ["other", "telegram.outbound"]


def test_a_small_stream_grows():
    found = {**STREAM, "max_age": 3600 * NS, "duplicate_window": 120 * NS, "num_replicas": 1}
    expected = topology.outbound_stream(SETTINGS, replicas=3)
    assert topology.stream_update(expected, found) == {**expected, "subjects": ["telegram.outbound"]}
    assert topology.stream_differences(expected, found) == (
        "max_age is 3600 s, expected 86400 s",
        "duplicate_window is 120 s, expected 300 s",
        "num_replicas is 1, expected 3",
    )


@pytest.mark.parametrize(
    "larger",
    [{"max_age": 30 * 86_400 * NS}, {"max_age": 0}, {"duplicate_window": 3600 * NS}, {"num_replicas": 5}],
)
def test_a_larger_stream_is_never_shrunk(larger: dict[str, int]):
    assert topology.stream_update(STREAM, {**STREAM, **larger}) is None


def test_growing_one_thing_shrinks_no_other():
    found = {**STREAM, "max_age": 0, "num_replicas": 1, "duplicate_window": NS}
    update = topology.stream_update(topology.outbound_stream(SETTINGS, 3), found)
    assert update == {**found, "num_replicas": 3, "duplicate_window": 300 * NS}


def test_what_cannot_be_changed_is_told_and_left():
    found = {**STREAM, "storage": "memory", "retention": "workqueue"}
    assert topology.stream_differences(STREAM, found) == (
        "retention is workqueue, expected limits",
        "storage is memory, expected file",
    )
    assert topology.stream_update(STREAM, found) is None
