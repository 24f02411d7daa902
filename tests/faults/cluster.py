"""Three nats-servers as one cluster: everything replicated threefold, nodes killed and started one by one."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from telegram_connector.bridge import NatsClient
from telegram_connector.errors import STREAM_NOT_FOUND, ApiError, BridgeError
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import provisioned
from tests.nats_server import NatsServer, binary, free_port

SIZE = 3
PATIENCE_SECONDS = 60.0
_OF_ONE_NODE = ("folder", "port", "extra", "process", "_listeners")


class Node(NatsServer):
    """One server of a cluster; alone it never has JetStream up, so starting does not wait for it."""

    def launch(self) -> None:
        """Start the process, without waiting for anything."""
        self.write_config()
        with (self.folder / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                [binary(), "-c", str(self.folder / "server.conf")], stdout=subprocess.DEVNULL, stderr=stderr
            )


class Cluster:
    """What tests need of a `NatsServer`, over three of them."""

    def __init__(self, folder: Path) -> None:
        self.nodes: list[Node] = []
        routes = [free_port() for _ in range(SIZE)]
        for number, route in enumerate(routes):
            home = folder / f"n{number}"
            home.mkdir()
            node = Node(home)
            if self.nodes:  # the same users everywhere
                shared = {k: v for k, v in vars(self.nodes[0]).items() if k not in _OF_ONE_NODE}
                vars(node).update(shared)
            peers = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
            node.extra = f"""
                server_name: n{number}
                cluster {{ name: faults, listen: "127.0.0.1:{route}", routes: [{peers}] }}
            """
            self.nodes.append(node)

    @property
    def url(self) -> str:
        return ",".join(node.url for node in self.nodes)

    @property
    def worker_seed(self) -> str:
        return self.nodes[0].worker_seed

    @property
    def publisher_seed(self) -> str:
        return self.nodes[0].publisher_seed

    def settings(self, seed: str | None = None, **changes: Any) -> NatsSettings:
        return replace(self.nodes[0].settings(seed), **{"nats_url": self.url, **changes})

    def client(self, seed: str | None = None) -> NatsClient:
        """A client with all rights, or with those of `seed`, on any node that is up."""
        return NatsClient(self.settings(seed or self.nodes[0].root_seed), "tests")

    def start(self) -> None:
        """Start all and wait for a JetStream leader."""
        for node in self.nodes:
            node.launch()
        self.until(lambda: self.api("INFO"))

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def until(self, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer that is true, through elections and outages."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if answer := ask():
                    return answer
                problem: object = answer
            except BridgeError as error:
                problem = error
            for node in self.nodes:
                log = node.folder / "server.log"
                assert node.process is None or node.process.poll() in (None, 0, -9), log.read_text()[-500:]
            assert time.monotonic() < deadline, problem
            threading.Event().wait(0.05)

    def until_without_quorum(self) -> None:
        """Ask for the stream until nobody answers for it any more, or its leader sees itself alone.

        A leader may go on answering for a long time (seen: a minute) while it can store nothing.
        """

        def alone() -> bool:
            try:
                cluster = self.stream()["cluster"]
            except BridgeError:
                return True
            return not cluster.get("leader") or all(r.get("offline") for r in cluster.get("replicas") or ())

        self.until(alone)

    def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        with self.client() as client:
            return client.api(subject, body)

    def provision(self) -> None:
        """Make stream, dead letters and bucket afresh with three replicas."""
        for config in provisioned(self.settings(), SIZE):
            self.until(lambda name=config["name"]: self._gone(name))  # type: ignore[misc]
            self.until(lambda c=config: self.api(f"STREAM.CREATE.{c['name']}", c))  # type: ignore[misc]

    def _gone(self, stream: str) -> bool:
        try:
            self.api(f"STREAM.DELETE.{stream}")
        except ApiError as error:
            if error.err_code == STREAM_NOT_FOUND:
                return True
            raise
        return True

    def consumer(self, durable: str = "tg_outbound", stream: str = "TELEGRAM_OUTBOUND") -> dict[str, Any]:
        return self.api(f"CONSUMER.INFO.{stream}.{durable}")

    def stream(self, name: str = "TELEGRAM_OUTBOUND") -> dict[str, Any]:
        return self.api(f"STREAM.INFO.{name}")

    def node(self, name: str) -> Node:
        return self.nodes[int(name.removeprefix("n"))]

    def leader(self, info: Callable[[], dict[str, Any]]) -> Node:
        """The node that leads what `info` tells of."""
        return self.node(self.until(lambda: info().get("cluster", {}).get("leader")))

    def settle(self) -> None:
        """Wait until all replicas of stream, bucket and consumer are current."""

        def current(info: dict[str, Any]) -> bool:
            cluster = info["cluster"]
            replicas = cluster.get("replicas") or []
            return (
                bool(cluster.get("leader"))
                and len(replicas) == SIZE - 1
                and all(r["current"] and not r.get("offline") for r in replicas)
            )

        self.until(lambda: current(self.stream()))
        self.until(lambda: current(self.stream("KV_telegram_state")))
        self.until(lambda: current(self.consumer()))

    def gather(self, leader: Node) -> None:
        """Have `leader` lead both the stream and the consumer."""
        name = f"n{self.nodes.index(leader)}"
        for kind, info in (
            ("STREAM.LEADER.STEPDOWN.TELEGRAM_OUTBOUND", self.stream),
            ("CONSUMER.LEADER.STEPDOWN.TELEGRAM_OUTBOUND.tg_outbound", self.consumer),
        ):
            if self.leader(info) is not leader:
                self.until(lambda k=kind: self.api(k, {"placement": {"preferred": name}}))  # type: ignore[misc]
                self.until(lambda i=info: i().get("cluster", {}).get("leader") == name)  # type: ignore[misc]


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A started cluster, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="nats-cluster-") as folder:
        cluster = Cluster(Path(folder))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
