"""NATS's side of a check-up: connection, permissions, streams, consumer and bucket. Only looks."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from telegram_connector import topology
from telegram_connector.bridge import NatsClient
from telegram_connector.bridge.link import ConnectError, PermissionDenied
from telegram_connector.checkup.finding import Finding, Severity, skip
from telegram_connector.checkup.rights import Permissions, Right, covers, needed, needed_by_ledger, overlap
from telegram_connector.checkup.skew import Reading, epoch_seconds, reading
from telegram_connector.errors import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND, ApiError, BridgeError
from telegram_connector.settings import Settings

NATS = "NATS"
PERMISSIONS = "permissions"
STREAM = "stream"
CONSUMER = "consumer"
DEAD_LETTERS = "dead letters"
SUBJECTS = "subjects"
BUCKET = "bucket"
LEDGER = "ledger"

NOT_ENABLED = (10039, 10076)  # for the account, on the server
WHO_AM_I = "$SYS.REQ.USER.INFO"
STREAM_NAMES = "$JS.API.STREAM.NAMES"
PROVISION = "make it with: telegram-connector provision"

Info: TypeAlias = dict[str, Any]
Refusal: TypeAlias = ApiError | PermissionDenied


class BrokerCheck:
    """Asks NATS with the worker's own credentials; makes and changes nothing."""

    names: tuple[str, ...] = (NATS, PERMISSIONS, STREAM, CONSUMER, DEAD_LETTERS, SUBJECTS, BUCKET)

    def __init__(self, settings: Settings, wall: Callable[[], float]) -> None:
        """Prepare; nothing is connected yet.

        Args:
            settings: As for the relay.
            wall: This machine's clock, in seconds of the epoch.
        """
        self.readings: list[Reading] = []
        self._settings = settings
        self._wall = wall
        if settings.ledger == "kv":
            self.names = (*self.names, LEDGER)

    def findings(self) -> Iterator[Finding]:
        """Look at one thing after the other; what depends on a failed one is skipped."""
        # Looked up here, on a thread that may be left behind: a look-up that hangs inside asyncio would keep
        # the interpreter from exiting.
        found = [url for url in self._settings.nats_servers if _resolves(url)]
        lost = len(self._settings.nats_servers) - len(found)
        if not found:
            yield Finding(NATS, "fault", "the host name cannot be resolved (NATS_URL)")
            yield from skip(self.names[1:], "there is no connection to NATS")
            return
        settings = replace(self._settings, nats_url=",".join(found))
        try:
            with NatsClient(settings, "telegram_connector check") as client:
                detail = f"{client.server}, nats-server {client.version}"
                if lost:
                    unknown = f"{lost} of the hosts in NATS_URL cannot be resolved"
                    yield Finding(NATS, "warning", f"{detail}; {unknown}")
                else:
                    yield Finding(NATS, "ok", detail)
                yield from _Inspection(client, settings, self._wall, self.readings).findings()
        except ConnectError as error:
            yield Finding(NATS, "fault", str(error))
            yield from skip(self.names[1:], "there is no connection to NATS")


class _Inspection:
    """All that is looked at over one connection."""

    def __init__(
        self,
        client: NatsClient,
        settings: Settings,
        wall: Callable[[], float],
        readings: list[Reading],
    ) -> None:
        self._client = client
        self._settings = settings
        self._wall = wall
        self._readings = readings
        self._permissions: Permissions | None = None  # None: they are not known
        self._streams: dict[str, Info | Refusal] = {}
        self._takers: dict[str, list[str] | None] = {}

    def findings(self) -> Iterator[Finding]:
        steps = {
            PERMISSIONS: self._look_at_permissions,
            STREAM: self._look_at_stream,
            CONSUMER: self._look_at_consumer,
            DEAD_LETTERS: self._look_at_dead_letters,
            SUBJECTS: self._look_at_subjects,
            BUCKET: self._look_at_bucket,
            **({LEDGER: self._look_at_ledger} if self._settings.ledger == "kv" else {}),
        }
        names = list(steps)
        for number, (name, step) in enumerate(steps.items()):
            try:
                yield step()
            except BridgeError as error:
                yield Finding(name, "fault", f"{error} (NATS_URL)")
                yield from skip(names[number + 1 :], "NATS does not answer")
                return
            if name == STREAM and _lacks_jetstream(self._stream(self._settings.stream)):
                yield from skip(names[number + 1 :], "there is no JetStream")
                return

    # What is asked. A refusal is an answer; anything else that fails ends the inspection.

    def _ask(self, subject: str) -> Info | Refusal:
        asked_at = self._wall()
        try:
            answer = self._client.api(subject)
        except (ApiError, PermissionDenied) as refusal:
            return refusal
        said = epoch_seconds(answer.get("ts"))
        if said is not None and not self._readings:
            self._readings.append(reading("NATS", said, asked_at, self._wall()))
        return answer

    def _stream(self, name: str) -> Info | Refusal:
        if name not in self._streams:
            self._streams[name] = self._ask(f"STREAM.INFO.{name}")
        return self._streams[name]

    def _taken_by(self, subject: str) -> list[str] | None:
        """The streams that take a subject; None where that may not be asked."""
        if subject not in self._takers:
            self._takers[subject] = self._ask_taken_by(subject)
        return self._takers[subject]

    def _ask_taken_by(self, subject: str) -> list[str] | None:
        if self._permissions and not self._permissions.allow(Right("publish", STREAM_NAMES)):
            return None
        try:
            answer = json.loads(self._client.request(STREAM_NAMES, json.dumps({"subject": subject}).encode()))
        except (ApiError, PermissionDenied):
            return None
        return None if "error" in answer else [str(name) for name in answer.get("streams") or ()]

    # What is looked at.

    def _look_at_permissions(self) -> Finding:
        try:
            answer = json.loads(self._client.request(WHO_AM_I))
        except PermissionDenied:
            return Finding(
                PERMISSIONS,
                "note",
                f"not known: this user may not ask {WHO_AM_I}; what is missing shows below and in the log",
            )
        except ApiError:
            return Finding(PERMISSIONS, "note", "not known: this server does not tell")
        data = answer.get("data") or {}
        self._permissions = permissions = Permissions(data.get("permissions"))
        keeps_dead_letters = isinstance(self._stream(self._settings.dead_stream), dict)
        rights = needed(self._settings, keeps_dead_letters)
        if self._settings.ledger == "kv":
            rights += needed_by_ledger(self._parks)
        missing = [right for right in rights if not permissions.allow(right)]
        if missing:
            severity: Severity = "fault" if any(right.vital for right in missing) else "warning"
            listed = ", ".join(str(right) for right in missing)
            return Finding(PERMISSIONS, severity, f"missing: {listed} (see deploy/nats-permissions.conf)")
        user = str(data.get("user", ""))
        # Anything but a public key may be a secret: some servers name a token's user by the token.
        who = f"user {user}" if re.fullmatch(r"U[A-Z2-7]{55}", user) else "the user"
        return Finding(PERMISSIONS, "ok", f"{who} may do all that the worker does")

    def _look_at_stream(self) -> Finding:
        settings = self._settings
        match self._stream(settings.stream):
            case dict(info):
                differences = _stream_differences(topology.outbound_stream(settings), info["config"])
                state = info.get("state") or {}
                return _compared(STREAM, settings.stream, differences, f"{state.get('messages', 0)} messages")
            case ApiError(err_code=code) if code == STREAM_NOT_FOUND:
                takers = self._taken_by(settings.subject)
                if takers:
                    taken = f"but {', '.join(takers)} takes {settings.subject}"
                    return Finding(
                        STREAM,
                        "fault",
                        f"{settings.stream} does not exist, {taken}: set TG_STREAM to it, or narrow it",
                    )
                return Finding(STREAM, "fault", f"{settings.stream} does not exist; {PROVISION}")
            case refusal:
                return Finding(STREAM, "fault", _words(refusal, f"$JS.API.STREAM.INFO.{settings.stream}"))

    def _look_at_consumer(self) -> Finding:
        settings = self._settings
        if not isinstance(self._stream(settings.stream), dict):
            return Finding(CONSUMER, "skipped", "skipped: the stream is not known")
        where = f"CONSUMER.INFO.{settings.stream}.{settings.durable}"
        info = self._ask(where)
        if isinstance(info, ApiError) and info.err_code == CONSUMER_NOT_FOUND:
            return Finding(CONSUMER, "note", f"{settings.durable} does not exist yet: the worker makes it")
        if not isinstance(info, dict):
            return Finding(CONSUMER, "fault", _words(info, f"$JS.API.{where}"))
        config = info["config"]
        unusable = _why_unusable(config)
        if unusable:
            return Finding(
                CONSUMER, "fault", f"{settings.durable} {unusable}: delete it, or set TG_DURABLE_NAME"
            )
        differences = topology.consumer_differences(topology.consumer(settings, self._client.pins), config)
        if config.get("max_deliver", -1) > 0:
            return Finding(
                CONSUMER,
                "fault",
                f"{settings.durable} differs: {'; '.join(differences)}; after so many hand-overs a message "
                "is kept back without a word. The worker changes it where it may",
            )
        if differences:
            return Finding(
                CONSUMER,
                "warning",
                f"{settings.durable} differs: {'; '.join(differences)}; the worker changes it where it may",
            )
        if info.get("paused"):
            return Finding(CONSUMER, "warning", f"{settings.durable} is paused")
        waiting, out = info.get("num_pending", 0), info.get("num_ack_pending", 0)
        return Finding(CONSUMER, "ok", f"{settings.durable}, {waiting} waiting, {out} handed over")

    def _look_at_dead_letters(self) -> Finding:
        name = self._settings.dead_stream
        expected = topology.dead_stream(self._settings)
        return self._look_at_optional(DEAD_LETTERS, name, name, expected, "what is refused is not kept")

    def _look_at_bucket(self) -> Finding:
        expected = topology.state_bucket()
        lacking = "attempts and holds do not outlive the worker"
        return self._look_at_optional(BUCKET, expected["name"], topology.STATE_BUCKET, expected, lacking)

    def _look_at_ledger(self) -> Finding:
        """Both of its buckets, in one finding that is as bad as the worse of them."""
        settings = self._settings
        records, links = topology.ledger_bucket(settings), topology.links_bucket(settings)
        lacking = "nothing is sent (TG_ON_AMBIGUOUS=park)" if self._parks else "what is sent is not recorded"
        found = [
            self._look_at_optional(LEDGER, bucket["name"], name, bucket, without)
            for name, bucket, without in (
                (topology.LEDGER_BUCKET, records, lacking),
                (topology.LINKS_BUCKET, links, "replies cannot be told"),
            )
        ]
        severity: Severity = next((f.severity for f in found if f.severity != "ok"), "ok")
        if self._parks and not isinstance(self._stream(records["name"]), dict):
            severity = "fault"
        return Finding(LEDGER, severity, "; ".join(dict.fromkeys(f.detail for f in found)))

    @property
    def _parks(self) -> bool:
        return self._settings.on_ambiguous == "park"

    def _look_at_optional(
        self, check: str, stream: str, shown: str, expected: topology.Config, lacking: str
    ) -> Finding:
        match self._stream(stream):
            case dict(info):
                return _compared(check, shown, _stream_differences(expected, info["config"]))
            case ApiError(err_code=code) if code == STREAM_NOT_FOUND:
                return Finding(check, "warning", f"{shown} does not exist: {lacking}; {PROVISION}")
            case refusal:
                return Finding(
                    check, "warning", f"{_words(refusal, f'$JS.API.STREAM.INFO.{stream}')}: {lacking}"
                )

    def _look_at_subjects(self) -> Finding:
        """Whether dead letters and alerts stay clear of the envelopes."""
        settings = self._settings
        apart = {"TG_DEAD_SUBJECT": settings.dead_subject, "TG_ALERT_SUBJECT": settings.alert_subject}
        within = [name for name, subject in apart.items() if overlap(settings.subject, subject)]
        if within:
            return Finding(
                SUBJECTS,
                "fault",
                f"TG_SUBJECT takes {_and(apart[name] for name in within)} too, so the worker would relay its "
                f"own reports: narrow TG_SUBJECT, or set {_and(within)}",
            )
        taken: dict[str, dict[str, None]] = {}  # streams in the way, and the settings concerned
        stream = self._stream(settings.stream)
        if isinstance(stream, dict):
            for name, subject in apart.items():
                if any(overlap(pattern, subject) for pattern in stream["config"].get("subjects") or ()):
                    taken.setdefault(settings.stream, {})[name] = None
        others = self._taken_by(settings.dead_subject)
        for other in others or ():
            if other != settings.dead_stream:
                taken.setdefault(other, {})["TG_DEAD_SUBJECT"] = None
        if taken:
            listed = "; ".join(f"{name} takes {_and(apart[s] for s in of)}" for name, of in taken.items())
            concerned = dict.fromkeys(setting for of in taken.values() for setting in of)
            return Finding(
                SUBJECTS,
                "warning",
                f"{listed}, which are not for it: narrow its subjects, or set {_and(concerned)}",
            )
        if others is None and not isinstance(stream, dict):
            return Finding(
                SUBJECTS, "skipped", f"skipped: the stream is not known, {STREAM_NAMES} not allowed"
            )
        unseen = "" if others is not None else f" (other streams not seen: {STREAM_NAMES} is not allowed)"
        return Finding(SUBJECTS, "ok", f"{_and(apart.values())} are apart from {settings.subject}{unseen}")


def _and(names: Any) -> str:
    return " and ".join(names)


def _words(refusal: Refusal, subject: str) -> str:
    if isinstance(refusal, PermissionDenied):
        return f"permission missing: publish {subject}"
    if _lacks_jetstream(refusal):
        return "JetStream is not enabled for this account (NATS_URL)"
    return str(refusal)


def _lacks_jetstream(answer: Info | Refusal) -> bool:
    # 0: nobody serves its subjects at all.
    return isinstance(answer, ApiError) and answer.code == 503 and answer.err_code in (0, *NOT_ENABLED)


def _compared(check: str, shown: str, differences: tuple[str, ...], well: str = "") -> Finding:
    if differences:
        lacks = any(difference.startswith("subjects lack") for difference in differences)
        severity: Severity = "fault" if lacks and check == STREAM else "warning"
        return Finding(check, severity, f"{shown} differs: {'; '.join(differences)}")
    return Finding(check, "ok", f"{shown}, {well}" if well else shown)


def _stream_differences(expected: topology.Config, found: Info) -> tuple[str, ...]:
    """As in `topology`; any number of replicas is right, and a wider subject takes what a narrower would."""
    subjects = found.get("subjects") or []
    seen = [want for want in expected["subjects"] if any(covers(have, want) for have in subjects)]
    replicas = found.get("num_replicas", 1)
    return topology.stream_differences({**expected, "num_replicas": replicas}, {**found, "subjects": seen})


def _why_unusable(config: Info) -> str:
    """What no update can change."""
    if config.get("deliver_subject"):
        return "is a push consumer"
    if config.get("ack_policy") != "explicit":
        return f"has ack_policy {config.get('ack_policy')}, expected explicit"
    return ""


def _resolves(url: str) -> bool:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    try:
        socket.getaddrinfo(parts.hostname, parts.port or 4222, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return True
