"""The streams, the consumer and the buckets that are expected, as JetStream API data, and the difference to
what a server has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from telegram_connector.settings import NatsSettings

NS = 1_000_000_000
DAY = 24 * 3600
STATE_BUCKET = "telegram_state"
LEDGER_BUCKET = "telegram_ledger"
LINKS_BUCKET = "telegram_links"
LEAST_LINK_DAYS = 90

Config = dict[str, Any]

# What `provision` may enlarge on a stream that exists; it never shrinks and never deletes.
_GROWS = ("max_age", "duplicate_window", "num_replicas")


def outbound_stream(settings: NatsSettings, replicas: int = 1) -> Config:
    """The stream of envelopes: on file, for a day, duplicates known for five minutes (the seeds' figures)."""
    return {
        "name": settings.stream,
        "subjects": [settings.subject],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": 24 * 3600 * NS,
        "duplicate_window": 300 * NS,
        "num_replicas": replicas,
    }


def dead_stream(settings: NatsSettings, replicas: int = 1) -> Config:
    """The stream of dead letters: 30 days; storing one again within a day changes nothing."""
    return {
        "name": settings.dead_stream,
        "subjects": [settings.dead_subject],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": 30 * 24 * 3600 * NS,
        "duplicate_window": 24 * 3600 * NS,
        "num_replicas": replicas,
    }


def state_bucket(replicas: int = 1) -> Config:
    """The key-value bucket of attempts, migrations and the ack floor; nothing in it expires by itself."""
    return _bucket(STATE_BUCKET, replicas)


def ledger_bucket(settings: NatsSettings, replicas: int = 1) -> Config:
    """The key-value bucket of the ledger's records, each kept for a while after its last change."""
    return {**_bucket(LEDGER_BUCKET, replicas), "max_age": settings.ledger_retention_days * DAY * NS}


def links_bucket(settings: NatsSettings, replicas: int = 1) -> Config:
    """The key-value bucket of links: kept for 90 days at least (the seeds' figure), never pruned by count."""
    days = max(LEAST_LINK_DAYS, settings.ledger_retention_days)
    return {**_bucket(LINKS_BUCKET, replicas), "max_age": days * DAY * NS}


def _bucket(name: str, replicas: int) -> Config:
    return {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "num_replicas": replicas,
    }


def provisioned(settings: NatsSettings, replicas: int = 1) -> tuple[Config, ...]:
    """Everything that `provision` makes."""
    return (
        outbound_stream(settings, replicas),
        dead_stream(settings, replicas),
        state_bucket(replicas),
        ledger_bucket(settings, replicas),
        links_bucket(settings, replicas),
    )


GROUP = "active"


def consumer(settings: NatsSettings, standby: bool = True) -> Config:
    """The durable pull consumer; with `standby`, one connector at a time is pinned to it.

    Unlimited ``max_deliver``: a server stops redelivering without a word. No ``backoff`` (it distorts nak
    delays) and no ``inactive_threshold`` (it deletes durables too).
    """
    pinned = {
        "priority_groups": [GROUP],
        "priority_policy": "pinned_client",
        "priority_timeout": int(settings.takeover_seconds * NS),
    }
    return {
        "name": settings.durable,
        "durable_name": settings.durable,
        "description": "telegram_connector",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "ack_wait": int(settings.ack_wait_seconds * NS),
        "max_deliver": -1,
        "max_ack_pending": settings.max_pending,
        "filter_subject": settings.subject,
        **(pinned if standby else {}),
    }


# What of the consumer matters to us and can be updated; the rest is left as the server has it.
_CONSUMER_FIELDS = (
    "ack_wait",
    "max_deliver",
    "max_ack_pending",
    "filter_subject",
    "filter_subjects",
    "backoff",
    "inactive_threshold",
    "headers_only",
    "max_batch",
    "max_expires",
    "max_bytes",
    "priority_groups",
    "priority_policy",
    "priority_timeout",
)


def consumer_differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    """What must change for `found` to do what `expected` says: one sentence each."""
    return tuple(
        f"{name} is {_shown(name, found.get(name))}, expected {_shown(name, expected.get(name))}"
        for name in _CONSUMER_FIELDS
        if (found.get(name) or None) != (expected.get(name) or None)
    )


def consumer_unfit(found: Mapping[str, Any]) -> str:
    """What makes a consumer one that would lose messages or deliver none, in words; "" when it is fit."""
    if found.get("ack_policy") != "explicit":
        return f"has ack policy {found.get('ack_policy')} instead of explicit"
    if found.get("deliver_subject"):
        return "is a push consumer"
    if found.get("headers_only"):
        return "delivers headers only"
    if found.get("priority_policy", "none") not in ("none", "", "pinned_client"):
        return f"has the priority policy {found['priority_policy']}"
    return ""


def consumer_update(expected: Mapping[str, Any], found: Mapping[str, Any]) -> Config:
    """The consumer as found, with our fields as expected: what we do not know is kept."""
    merged = dict(found)
    for name in _CONSUMER_FIELDS:
        if name in expected:
            merged[name] = expected[name]
        else:
            merged.pop(name, None)
    return merged


def stream_differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    """How a stream differs from what is expected: one sentence each."""
    differences = []
    for name, value in expected.items():
        if name == "subjects":
            missing = sorted(set(value) - set(found.get(name) or ()))
            if missing:
                differences.append(f"subjects lack {', '.join(missing)}")
        elif (found.get(name) or None) != (value or None):
            differences.append(f"{name} is {_shown(name, found.get(name))}, expected {_shown(name, value)}")
    return tuple(differences)


def stream_update(expected: Mapping[str, Any], found: Mapping[str, Any]) -> Config | None:
    """`found` grown towards `expected`: subjects added, ages and replicas raised, nothing shrunk.

    None when there is nothing to grow.
    """
    merged = dict(found)
    merged["subjects"] = sorted(set(found.get("subjects") or ()) | set(expected["subjects"]))
    for name in _GROWS:
        # 0 means unlimited for max_age, so a stream that keeps for ever is larger than any.
        if name in expected and not (name == "max_age" and not found.get(name)):
            merged[name] = max(found.get(name) or 0, expected[name])
    return merged if merged != {**found, "subjects": sorted(found.get("subjects") or ())} else None


def _shown(name: str, value: Any) -> str:
    if value in (None, [], ""):
        return "unset"
    if name in ("priority_timeout", "ack_wait", "inactive_threshold", "max_age", "duplicate_window"):
        return f"{value / NS:.12g} s"
    return str(value)
