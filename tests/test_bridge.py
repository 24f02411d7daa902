"""The bridge by itself on a real nats-server: links, pulls, settlements, binding, the loop's thread."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import pytest

from telegram_connector import events
from telegram_connector.bridge import JetStreamSource, consumer
from telegram_connector.bridge.link import ConnectError, Link, PermissionDenied
from telegram_connector.bridge.loop import LoopThread
from telegram_connector.bridge.source import parse_reply
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import Delivery, DeliveryId, Missed, Reset, StandDown, Taken
from telegram_connector.errors import ApiError, Disconnected, Unanswered
from telegram_connector.settings import NatsSettings
from tests.nats_server import NatsServer, make_user

PATIENCE_SECONDS = 20.0
ACK_WAIT_SECONDS = 3.0
WORKER_MAY = (
    "$JS.API.STREAM.INFO.TELEGRAM_OUTBOUND",
    "$JS.API.STREAM.MSG.GET.TELEGRAM_OUTBOUND",
    "$JS.API.CONSUMER.INFO.TELEGRAM_OUTBOUND.tg_outbound",
    "$JS.API.CONSUMER.CREATE.TELEGRAM_OUTBOUND.tg_outbound.>",
    "$JS.API.CONSUMER.MSG.NEXT.TELEGRAM_OUTBOUND.tg_outbound",
    "$JS.ACK.TELEGRAM_OUTBOUND.tg_outbound.>",
    "$JS.API.STREAM.INFO.KV_telegram_state",
    "$JS.API.STREAM.MSG.GET.KV_telegram_state",
    "$KV.telegram_state.>",
)
T = TypeVar("T")

integration = pytest.mark.integration


class Bridge:
    """A source on a server, and what it says."""

    def __init__(self, server: NatsServer, **changes: Any) -> None:
        self.server = server
        self.clock = LeaseClock()
        self.ahead = 0.0
        self.events: list[events.Event] = []
        self.deaths: list[BaseException] = []
        self._changed = threading.Condition()
        self.source = JetStreamSource(
            server.settings(**{"ack_wait_seconds": ACK_WAIT_SECONDS, **changes}),
            self._observe,
            self.deaths.append,
            LeaseClock(lambda: time.monotonic() + self.ahead, lambda: time.time() + self.ahead),
        )
        self.source.start()

    def _observe(self, event: events.Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def until_event(self, kind: type, count: int = 1) -> Any:
        def found() -> list[events.Event]:
            return [e for e in self.events if isinstance(e, kind)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, PATIENCE_SECONDS), self.events
        return found()[count - 1]

    def next(
        self, timeout_seconds: float = PATIENCE_SECONDS, *, may_stand_down: bool = False
    ) -> Delivery | Reset | None:
        """The next delivery or reset; that this connector has become active is not looked at.

        Args:
            may_stand_down: Whether it may become standby meanwhile: a new consumer does not know its pin.
        """
        entry = self.source.next(timeout_seconds)
        while isinstance(entry, Taken) or (may_stand_down and isinstance(entry, StandDown)):
            entry = self.source.next(timeout_seconds)
        assert not isinstance(entry, StandDown | Missed)
        return entry

    def take(self, count: int, timeout_seconds: float = PATIENCE_SECONDS) -> list[Delivery]:
        """That many deliveries, which are asked for."""
        self.source.want(count)
        taken: list[Delivery] = []
        for _ in range(count):
            entry = self.next(timeout_seconds)
            assert isinstance(entry, Delivery), (entry, taken)
            taken.append(entry)
        return taken


@contextmanager
def bridge_on(server: NatsServer, **changes: Any) -> Iterator[Bridge]:
    bridge = Bridge(server, **changes)
    try:
        yield bridge
        assert not bridge.deaths
    finally:
        bridge.source.close(10)


@pytest.fixture
def bridge(nats_server: NatsServer) -> Iterator[Bridge]:
    with bridge_on(nats_server) as bridge:
        bridge.until_event(events.Bound)
        yield bridge


def publish(
    server: NatsServer,
    *bodies: bytes,
    headers: dict[str, str] | None = None,
    subject: str = "telegram.outbound",
) -> None:
    with server.client() as client:
        for body in bodies:
            client.publish(subject, body, headers)


def forbid(server: NatsServer, *fragments: str) -> None:
    """Take rights away from the worker."""
    left = ", ".join(f'"{s}"' for s in WORKER_MAY if not any(f in s for f in fragments))
    server.worker_permissions = (
        f'{{ publish: {{ allow: [ {left} ] }}, subscribe: {{ allow: ["_INBOX.tg_outbound.>"] }} }}'
    )
    server.reload()


def make_consumer(server: NatsServer, **changes: Any) -> None:
    config = {
        "durable_name": "tg_outbound",
        "name": "tg_outbound",
        "ack_policy": "explicit",
        "filter_subject": "telegram.outbound",
        **changes,
    }
    with server.client() as client:
        client.api(
            "CONSUMER.CREATE.TELEGRAM_OUTBOUND.tg_outbound.telegram.outbound",
            {"stream_name": "TELEGRAM_OUTBOUND", "config": config, "action": "create"},
        )


def make_stream_anew(server: NatsServer) -> None:
    from telegram_connector.topology import outbound_stream

    with server.client() as client:
        client.api("STREAM.DELETE.TELEGRAM_OUTBOUND")
        client.api("STREAM.CREATE.TELEGRAM_OUTBOUND", outbound_stream(server.settings()))


# Reply subjects


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.S.c.3.17.21.1795999999123456789.5",
        "$JS.ACK.hub.AHASH.S.c.3.17.21.1795999999123456789.5",
        "$JS.ACK._.AHASH.S.c.3.17.21.1795999999123456789.5.random",
    ],
)
def test_reply_subjects_with_and_without_a_domain(reply: str) -> None:
    assert parse_reply(reply) == (DeliveryId("S", 17, 1795999999123456789), 3)


# The loop's thread


def test_a_stopped_loop_leaves_no_future_unresolved() -> None:
    for _ in range(20):
        loop = LoopThread("test")
        loop.start()
        asked = [loop.submit(asyncio.sleep(60)) for _ in range(3)]
        stopper = threading.Thread(target=loop.stop, args=(PATIENCE_SECONDS,))
        stopper.start()
        asked += [loop.submit(asyncio.sleep(60)) for _ in range(20)]
        stopper.join()
        for future in asked:
            assert future.cancelled() or future.exception(PATIENCE_SECONDS) is not None


def test_a_stopped_loop_refuses_at_once() -> None:
    loop = LoopThread("test")
    loop.start()
    assert loop.stop(PATIENCE_SECONDS)
    with pytest.raises(Disconnected):
        loop.submit(asyncio.sleep(0)).result(PATIENCE_SECONDS)


def test_a_host_name_being_looked_up_holds_up_no_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, may_end = threading.Event(), threading.Event()

    def silent(*_: Any, **__: Any) -> Any:
        looking.set()
        may_end.wait(PATIENCE_SECONDS)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    loop = LoopThread("test")
    loop.start()
    before = set(threading.enumerate())
    asked = loop.submit(
        Link.open(NatsSettings(nats_url="nats://nowhere.invalid", nats_auth="none"), name="t")
    )
    assert looking.wait(PATIENCE_SECONDS)
    # Python waits at exit for every thread that is no daemon, and for all of a ThreadPoolExecutor.
    started = [t for t in threading.enumerate() if t not in before]
    from concurrent.futures.thread import _threads_queues

    assert started
    assert all(t.daemon and t not in _threads_queues for t in started)
    assert loop.stop(PATIENCE_SECONDS)
    assert asked.cancelled() or asked.exception(PATIENCE_SECONDS)
    may_end.set()


# Links


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_SECONDS))


@contextmanager
def impostor(*lines: bytes) -> Iterator[str]:
    """Something that is no nats-server: says `lines` with short pauses to whoever connects, then nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        connections = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                    connections.append(connection)
                    for line in lines:
                        connection.sendall(line)
                        threading.Event().wait(0.05)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"nats://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for connection in connections:
                connection.close()


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"INFO {not json\r\n",
        b"INFO []\r\n",
        b"INFO null\r\n",
        b'INFO {"nonce": 5, "auth_required": true}\r\n',
        b"INFO {}\r\n-ERR\r\n",
        b"x" * 100_000,
    ],
)
def test_whatever_a_server_says_is_a_connect_error(line: bytes) -> None:
    with impostor(line) as url, pytest.raises(ConnectError):
        run(Link.open(NatsSettings(nats_url=url, nats_nkey_seed=make_user()[0]), name="test"))


@integration
def test_requests_that_are_answered_denied_unserved_and_lost(nats_server: NatsServer) -> None:
    async def go() -> None:
        link = await Link.open(nats_server.settings(), name="test")
        assert (await link.api("STREAM.INFO.TELEGRAM_OUTBOUND"))["config"]["name"] == "TELEGRAM_OUTBOUND"
        started = time.monotonic()
        with pytest.raises(PermissionDenied) as denied:
            await link.api("STREAM.DELETE.TELEGRAM_OUTBOUND")
        assert denied.value.subject == "$JS.API.STREAM.DELETE.TELEGRAM_OUTBOUND"
        assert time.monotonic() - started < 2
        root = await Link.open(nats_server.settings(nats_server.root_seed), name="test")
        with pytest.raises(ApiError) as unserved:
            await root.request("nobody.here")
        assert unserved.value.code == 503
        await root.subscribe("silent", _ignore)
        with pytest.raises(Unanswered):
            await root.request("silent", timeout_seconds=0.2)
        waiting = asyncio.ensure_future(root.request("silent"))
        await asyncio.sleep(0.05)
        nats_server.kill()
        with pytest.raises(Unanswered):
            await waiting
        assert not root.alive
        with pytest.raises(Disconnected):
            await root.request("silent")
        await root.close()
        await link.close()

    run(go())


async def _ignore(_: Any) -> None:
    pass


@integration
def test_wrong_credentials_say_so_without_naming_them(nats_server: NatsServer) -> None:
    seed = make_user()[0]
    with pytest.raises(ConnectError) as refused:
        run(Link.open(nats_server.settings(seed), name="test"))
    assert refused.value.operator_fault
    assert refused.value.setting == "NATS_TELEGRAM_NKEY_SEED"
    assert seed not in repr(refused.value)


# Pulling


@integration
def test_a_publishers_headers_are_no_status(bridge: Bridge) -> None:
    """An empty body with a Status header looks like the server's own words; it must not be swallowed."""
    publish(bridge.server, b"", headers={"Status": "100"})
    publish(bridge.server, b"", headers={"Status": "409", "Description": "Consumer Deleted"})
    publish(bridge.server, b"body", headers={"Status": "503"})
    taken = bridge.take(3, timeout_seconds=2)
    assert [d.payload for d in taken] == [b"", b"", b"body"]
    assert not [e for e in bridge.events if isinstance(e, events.ConsumerGone)]


@integration
def test_more_is_delivered_when_more_is_wanted_and_not_before(bridge: Bridge) -> None:
    publish(bridge.server, *(b"%d" % n for n in range(20)))
    assert [d.id.sequence for d in bridge.take(3)] == [1, 2, 3]
    assert bridge.next(0.3) is None
    assert [d.id.sequence for d in bridge.take(17)] == list(range(4, 21))


@integration
def test_what_was_on_its_way_when_pulling_stopped_is_there_after_a_wake(bridge: Bridge) -> None:
    """A worker that stops wakes its reader, who may be gone; what lies behind the wake is given back."""
    publish(bridge.server, *(b"%d" % n for n in range(50)))
    bridge.source.wake()
    bridge.source.want(50)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while bridge.source._deliveries.qsize() < 10 and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    bridge.source.stop_pulling(2)
    found = 0
    while bridge.next(0.0) is not None:
        found += 1
    assert found == bridge.server.consumer()["num_ack_pending"] > 0


@integration
def test_a_server_that_is_slow_at_the_stop_does_not_lose_the_settlements(bridge: Bridge) -> None:
    import signal

    publish(bridge.server, b"1", b"2")
    one, two = bridge.take(2)
    bridge.server.signal(signal.SIGSTOP)
    timer = threading.Timer(1.0, bridge.server.signal, (signal.SIGCONT,))
    timer.start()
    bridge.source.stop_pulling(0.3)
    # The PONG for a flush that was given up comes with the next word of the server.
    assert bridge.source.ack(one).result(PATIENCE_SECONDS)
    timer.join()
    started = time.monotonic()
    assert bridge.source.ack(two).result(PATIENCE_SECONDS)
    assert time.monotonic() - started < 2
    assert not [e for e in bridge.events if isinstance(e, events.ConnectionLost)]


@integration
@pytest.mark.parametrize(
    "limits", [{"max_batch": 1}, {"max_expires": 2_000_000_000}, {"headers_only": True}], ids=str
)
def test_limits_that_pulls_would_break_are_taken_off(nats_server: NatsServer, limits: dict[str, Any]) -> None:
    make_consumer(nats_server, **limits)
    publish(nats_server, b"whole")
    with bridge_on(nats_server) as bridge:
        assert bridge.take(1)[0].payload == b"whole"
        assert bridge.until_event(events.ConsumerUpdated)


@integration
def test_a_consumer_that_will_not_serve_us_is_named(nats_server: NatsServer) -> None:
    make_consumer(nats_server, priority_groups=["g"], priority_policy="overflow")
    forbid(nats_server, "CONSUMER.CREATE")
    with bridge_on(nats_server) as bridge:
        bridge.source.want(1)
        failed = bridge.until_event(events.BindFailed)
        assert failed.operator_fault
        assert "priority policy overflow" in failed.cause


# Binding


@integration
@pytest.mark.parametrize(
    "config", [{"ack_policy": "none"}, {"ack_policy": "all"}, {"deliver_subject": "push.here"}], ids=str
)
def test_a_consumer_that_would_lose_messages_is_not_bound(
    nats_server: NatsServer, config: dict[str, Any]
) -> None:
    make_consumer(nats_server, **config)
    publish(nats_server, b"kept")
    with bridge_on(nats_server) as bridge:
        bridge.source.want(1)
        failed = bridge.until_event(events.BindFailed)
        assert failed.operator_fault
        assert failed.setting == "TG_DURABLE_NAME"
        assert bridge.next(0.3) is None


@integration
def test_headers_only_that_may_not_be_changed_is_not_bound(nats_server: NatsServer) -> None:
    make_consumer(nats_server, headers_only=True)
    forbid(nats_server, "CONSUMER.CREATE")
    with bridge_on(nats_server) as bridge:
        assert "headers only" in bridge.until_event(events.BindFailed).cause


@integration
def test_differences_that_may_not_be_changed_are_a_warning(nats_server: NatsServer) -> None:
    make_consumer(nats_server, ack_wait=20_000_000_000)
    forbid(nats_server, "CONSUMER.CREATE")
    publish(nats_server, b"1")
    with bridge_on(nats_server) as bridge:
        differs = bridge.until_event(events.ConsumerDiffers)
        assert any("ack_wait is 20 s" in d for d in differs.differences)
        assert differs.finite_max_deliver is None
        assert bridge.take(1)[0].payload == b"1"
        assert bridge.source.ack_wait_seconds() == 20


# Rights that are missing


@integration
@pytest.mark.parametrize(
    ("fragment", "subject"),
    [
        ("MSG.NEXT", "$JS.API.CONSUMER.MSG.NEXT"),
        ("CONSUMER.INFO", "$JS.API.CONSUMER.INFO"),
        ("CONSUMER.CREATE", "$JS.API.CONSUMER.CREATE"),
        ("STREAM.INFO.TELEGRAM", "$JS.API.STREAM.INFO"),
    ],
)
def test_a_missing_right_is_named_within_seconds(
    nats_server: NatsServer, fragment: str, subject: str
) -> None:
    forbid(nats_server, fragment)
    with bridge_on(nats_server) as bridge:
        bridge.source.want(1)
        failed = bridge.until_event(events.BindFailed)
        assert failed.operator_fault
        assert failed.cause.startswith(f"NATS permission missing for {subject}")


@integration
def test_without_the_right_to_settle_sending_stops_and_says_so(nats_server: NatsServer) -> None:
    forbid(nats_server, "$JS.ACK")
    publish(nats_server, b"1", b"2")
    with bridge_on(nats_server) as bridge:
        for delivery in bridge.take(2):
            bridge.source.ack(delivery)
        failed = bridge.until_event(events.BindFailed)
        assert failed.cause.startswith("NATS permission missing for $JS.ACK")
        assert not bridge.source.may_send(1)


@integration
@pytest.mark.parametrize("fragment", ["MSG.GET.KV", "INFO.KV"])
def test_a_bucket_that_may_not_be_read_is_as_good_as_none(nats_server: NatsServer, fragment: str) -> None:
    forbid(nats_server, fragment)
    with bridge_on(nats_server) as bridge:
        assert "permission" in bridge.until_event(events.StateUnavailable).reason
        bridge.until_event(events.Bound)
        assert bridge.source.get("attempts").result(PATIENCE_SECONDS) is None


# The store and the ack floor


@integration
def test_documents_are_kept_and_a_deleted_one_is_none(bridge: Bridge) -> None:
    assert bridge.source.get("attempts").result(PATIENCE_SECONDS) is None
    bridge.source.put("attempts", b"[1]").result(PATIENCE_SECONDS)
    assert bridge.source.get("attempts").result(PATIENCE_SECONDS) == b"[1]"
    publish(bridge.server, b"", headers={"KV-Operation": "DEL"}, subject="$KV.telegram_state.attempts")
    assert bridge.source.get("attempts").result(PATIENCE_SECONDS) is None


@integration
def test_a_deleted_floor_is_none(nats_server: NatsServer) -> None:
    key = "$KV.telegram_state.ack_floor.TELEGRAM_OUTBOUND.tg_outbound"
    publish(nats_server, b"", headers={"KV-Operation": "DEL"}, subject=key)
    with bridge_on(nats_server) as bridge:
        assert bridge.until_event(events.Bound).start_sequence is None


@integration
def test_an_unreadable_floor_is_said_and_repeats_nothing(nats_server: NatsServer) -> None:
    key = "$KV.telegram_state.ack_floor.TELEGRAM_OUTBOUND.tg_outbound"
    publish(nats_server, b"not json", subject=key)
    with bridge_on(nats_server) as bridge:
        assert "ack_floor" in bridge.until_event(events.BindFailed).cause
        publish(nats_server, b"", headers={"KV-Operation": "DEL"}, subject=key)
        bridge.until_event(events.Bound)


# Settling


@integration
def test_a_redelivery_supersedes_what_is_pending_for_the_last_hand_over(nats_server: NatsServer) -> None:
    forbid(nats_server, "$JS.ACK")
    publish(nats_server, b"1")
    with bridge_on(nats_server, ack_wait_seconds=1) as bridge:
        (first,) = bridge.take(1)
        pending = bridge.source.ack(first)
        assert not bridge.source.may_send(0)
        (second,) = bridge.take(1)
        assert (second.id, second.hand_over) == (first.id, 2)
        assert pending.result(PATIENCE_SECONDS) is False
        assert bridge.source.may_send(0)


@integration
def test_an_ack_is_tried_over_a_reconnect(bridge: Bridge) -> None:
    publish(bridge.server, b"1")
    (first,) = bridge.take(1)
    threading.Event().wait(0.5)  # the hand-over reaches the disk up to 100 ms later
    bridge.server.kill()
    bridge.until_event(events.ConnectionLost)
    pending = bridge.source.ack(first)
    bridge.server.start()
    assert pending.result(PATIENCE_SECONDS)
    assert bridge.server.consumer()["num_ack_pending"] == 0


@integration
def test_a_nak_outside_the_lease_is_not_sent(bridge: Bridge) -> None:
    publish(bridge.server, b"1")
    (first,) = bridge.take(1)
    bridge.ahead = ACK_WAIT_SECONDS + 1
    assert bridge.source.nak(first, 0).result(PATIENCE_SECONDS) is False
    assert bridge.next(0.3) is None


@integration
def test_an_extension_outside_the_lease_is_not_sent(bridge: Bridge) -> None:
    publish(bridge.server, b"1")
    (first,) = bridge.take(1)
    assert bridge.source.extend([first]).result(PATIENCE_SECONDS) is not None
    bridge.ahead = ACK_WAIT_SECONDS + 1
    assert bridge.source.extend([first]).result(PATIENCE_SECONDS) is None


@integration
def test_handles_from_before_a_stream_was_made_anew_settle_nothing(bridge: Bridge) -> None:
    """The late ack of the old message 1 must not settle the new message 1."""
    publish(bridge.server, b"old 1", b"old 2")
    old = bridge.take(2)
    pending = bridge.source.nak(old[0], 0.0)
    assert pending.result(PATIENCE_SECONDS)
    bridge.source.want(2)  # a live pull hears of it at once
    make_stream_anew(bridge.server)
    bridge.until_event(events.Bound, 2)
    publish(bridge.server, b"new 1")
    bridge.source.want(2)
    entries = [bridge.next(may_stand_down=True) for _ in range(2)]
    while not isinstance(entries[-1], Delivery) or entries[-1].payload != b"new 1":
        entries.append(bridge.next(may_stand_down=True))
    assert any(isinstance(entry, Reset) for entry in entries)
    assert bridge.source.ack(old[0]).result(PATIENCE_SECONDS) is False
    assert bridge.source.ack(old[1]).result(PATIENCE_SECONDS) is False
    assert bridge.source.extend([old[1]]).result(PATIENCE_SECONDS) is None
    assert bridge.server.consumer()["num_ack_pending"] == 1
    assert bridge.source.may_send(0)
    assert bridge.source.ack(entries[-1]).result(PATIENCE_SECONDS)


@integration
@pytest.mark.parametrize("what", ["durable", "stream"])
def test_what_is_made_anew_at_once_is_another_one(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """However soon: times of creation are compared with a tolerance, for servers that round their own."""
    monkeypatch.setattr(consumer, "SAME_SECONDS", 1e6)
    bridge.source.want(1)  # a live pull hears of it at once
    if what == "stream":
        make_stream_anew(bridge.server)
    else:
        with bridge.server.client() as client:
            client.api("CONSUMER.DELETE.TELEGRAM_OUTBOUND.tg_outbound")
    bridge.until_event(events.Bound, 2)
    entry = bridge.source.next(PATIENCE_SECONDS)
    assert entry == Reset(f"the {'consumer' if what == 'durable' else 'stream'} was made anew")


@integration
def test_only_what_is_certainly_gone_is_not_present(bridge: Bridge) -> None:
    publish(bridge.server, b"1", b"2")
    with bridge.server.client() as client:
        client.api("STREAM.MSG.DELETE.TELEGRAM_OUTBOUND", {"seq": 1})
    assert bridge.source.present(1).result(PATIENCE_SECONDS) is False
    assert bridge.source.present(2).result(PATIENCE_SECONDS) is True
    with bridge.server.client() as client:
        client.api("STREAM.DELETE.TELEGRAM_OUTBOUND")
    assert bridge.source.present(2).result(PATIENCE_SECONDS) is None


# Reconnecting and stopping


@integration
def test_a_server_that_throws_us_out_again_and_again_is_not_stormed() -> None:
    info = b'INFO {"server_id": "x", "version": "2.11.0", "max_payload": 1048576, "headers": true}\r\n'
    with impostor(info + b"PONG\r\n", b"-ERR 'Slow Consumer'\r\n") as url:
        said: list[events.Event] = []
        source = JetStreamSource(NatsSettings(nats_url=url, nats_auth="none"), said.append, _fail)
        source.start()
        threading.Event().wait(2.0)
        source.close(5)
        assert 1 < sum(isinstance(e, events.Connected) for e in said) < 10  # without a pause some 40


@integration
@pytest.mark.parametrize("lines", [(), (b"INFO {}\r\n",), (b'INFO {"tls_required": true}\r\n',)], ids=str)
def test_closing_while_connecting_takes_no_longer_than_it_may(lines: tuple[bytes, ...]) -> None:
    with impostor(*lines) as url:
        source = JetStreamSource(NatsSettings(nats_url=url, nats_auth="none"), events.ignore, _fail)
        source.start()
        threading.Event().wait(0.3)
        started = time.monotonic()
        assert source.close(5)
        assert time.monotonic() - started < 4


def _fail(error: BaseException) -> None:
    raise error


@integration
def test_nothing_is_left_behind_by_starting_and_stopping(nats_server: NatsServer) -> None:
    before = set(threading.enumerate())
    noise: list[Any] = []
    for pause in (0.0, 0.005, 0.02, 0.1, 0.0, 0.05):
        with bridge_on(nats_server) as bridge:
            bridge.source._loop.call(_note_noise, noise.append)
            bridge.source.want(5)
            threading.Event().wait(pause)
    assert [t for t in threading.enumerate() if t not in before and t.is_alive()] == []
    assert noise == []


def _note_noise(note: Callable[[Any], None]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: note(context))
