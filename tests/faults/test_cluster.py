"""Three nats-servers, stream, consumer and bucket replicated threefold, and what befalls such a cluster."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from telegram_connector import events, pauses, topology
from telegram_connector.pauses import Pause, Pauses
from telegram_connector.sandbox import Sandbox
from tests.faults.cluster import Cluster, running_cluster
from tests.faults.conftest import PATIENCE_SECONDS, FaultFleet

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SEND_SECONDS = 0.02


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def fleet(
    cluster: Cluster, sandbox: Sandbox, record_property: Callable[[str, object], None]
) -> Iterator[FaultFleet]:
    for node in cluster.nodes:
        if node.process is not None and node.process.poll() is not None:
            node.launch()
    cluster.provision()
    fleet = FaultFleet(cluster, sandbox, record_property)
    fleet.pace(SEND_SECONDS)
    fleet.relay()
    fleet.load(5)
    fleet.arrived(5)
    cluster.settle()
    yield fleet
    fleet.stop()


class Load:
    """Publishes all the while, in a thread; what the cluster does not take is tried again."""

    def __init__(self, fleet: FaultFleet) -> None:
        self._fleet = fleet
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._fleet.load(5)
            self._stop.wait(0.1)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


def test_leader_of_stream_and_consumer_killed(fleet: FaultFleet, cluster: Cluster) -> None:
    leader = cluster.nodes[0]
    cluster.gather(leader)
    fleet.load(40)
    fleet.arrived(15)
    leader.kill()
    killed = time.monotonic()
    fleet.resumed(killed, "kill")
    fleet.backlog_done(killed)
    fleet.assert_all_once_in_order()


def test_leadership_steps_down(fleet: FaultFleet, cluster: Cluster) -> None:
    fleet.load(60)
    for count, what in (
        (10, "CONSUMER.LEADER.STEPDOWN.TELEGRAM_OUTBOUND.tg_outbound"),
        (20, "STREAM.LEADER.STEPDOWN.TELEGRAM_OUTBOUND"),
        (30, "CONSUMER.LEADER.STEPDOWN.TELEGRAM_OUTBOUND.tg_outbound"),
    ):
        fleet.arrived(count)
        cluster.until(lambda w=what: cluster.api(w))  # type: ignore[misc]
    stepped = time.monotonic()
    fleet.resumed(stepped, "last step-down")
    fleet.backlog_done(stepped)
    fleet.assert_all_once_in_order()


def test_quorum_lost_and_regained(fleet: FaultFleet, cluster: Cluster) -> None:
    leader = cluster.leader(cluster.consumer)
    down = [node for node in cluster.nodes if node is not leader]
    fleet.load(400)
    fleet.arrived(15)
    for node in down:
        node.kill()
    killed = time.monotonic()
    cluster.until_without_quorum()
    fleet.until_no_send_may_start()
    attempted = len(fleet.of(events.Attempted))
    print(f"no send may start {time.monotonic() - killed:.2f} s after the kill; {attempted} attempts by then")
    assert attempted < 400
    cluster.until_without_quorum()
    assert len(fleet.of(events.Attempted)) <= attempted + 1  # it does not send without being heard
    for node in down:
        node.launch()
    back = time.monotonic()
    fleet.resumed(back, "both started again")
    fleet.backlog_done(back)
    fleet.assert_all_once_in_order()


def test_rolling_restart_under_load(fleet: FaultFleet, cluster: Cluster) -> None:
    with Load(fleet):
        for node in cluster.nodes:
            node.signal(signal.SIGTERM)
            assert node.process is not None
            node.process.wait(PATIENCE_SECONDS)
            node.launch()
            cluster.settle()
        settled = time.monotonic()
    fleet.resumed(settled, "last one current again")
    fleet.backlog_done(settled)
    fleet.assert_all_once_in_order()


def test_a_state_bucket_that_does_not_answer_is_used_once_it_does(
    fleet: FaultFleet, cluster: Cluster
) -> None:
    fleet.stop()
    alone = topology.state_bucket(1)
    cluster.until(lambda: cluster.api(f"STREAM.DELETE.{alone['name']}"))
    cluster.until(lambda: cluster.api(f"STREAM.CREATE.{alone['name']}", alone))
    paused = pauses.write(Pauses(None, {"105": Pause(time.time())}))
    with cluster.client() as client:
        client.publish(
            f"$KV.{topology.STATE_BUCKET}.{pauses.key('TELEGRAM_OUTBOUND', 'tg_outbound')}", paused
        )
    only = cluster.leader(lambda: cluster.stream(alone["name"]))
    only.kill()
    killed = time.monotonic()
    fleet.relay()
    fleet.resumed(killed, "kill")
    assert fleet.of(events.PausesUnreadable)
    assert not fleet.of(events.Paused)
    only.launch()
    fleet.until(lambda: fleet.of(events.Paused))
    assert fleet.of(events.Paused)[0].chat == "105"
    fleet.assert_all_once_in_order()
