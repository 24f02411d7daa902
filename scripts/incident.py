#!/usr/bin/env python
"""Two incidents, played through for real and written down in Markdown: docs/incident.md is what this printed.

A nats-server, the sandbox Bot API and a worker are started on loopback; the commands have an operator's NATS
permissions. Exit code 0 only when nothing was lost, doubled or out of order.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from telegram_connector.envelope import TelegramOutbound, encode  # noqa: E402
from telegram_connector.sandbox import Sandbox  # noqa: E402
from tests.nats_server import NatsServer, running_server  # noqa: E402
from tests.process import Process  # noqa: E402

TOKEN = "123456:" + "Ab-_" * 9
OPERATORS_CHAT = 1
CHATS = (-1001000000001, -1001000000002, -1001000000003, 4711, 4712)
PATIENCE_SECONDS = 300.0
COMMAND_SECONDS = 300
SHOWN_LINES = 6
IN_TWO_HUNDRED = 200
BEFORE_REVOKING = 60
FIGURES = (
    "token revoked for, s",
    "sent before",
    "refused `sendMessage`",
    "refused `getMe`",
    "restored until sending, s",
    "lost",
    "dead-lettered",
    "doubled",
    "out of order",
)


class Scene:
    """Server, sandbox and worker, and an operator at a shell."""

    def __init__(self, server: NatsServer, sandbox: Sandbox) -> None:
        self.server = server
        self.sandbox = sandbox
        self.faults: list[str] = []
        self._alerts = server.listen("telegram.alerts")
        ours = {"PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}", "NATS_URL": server.url}
        self._operator = {**ours, "NATS_TELEGRAM_NKEY_SEED": server.operator_seed, "LOGNAME": "ada"}
        self._service = {**ours, "NATS_TELEGRAM_NKEY_SEED": server.publisher_seed}

    def worker(self) -> Process:
        return Process(
            "run",
            env={
                "TELEGRAM_BOT_TOKEN": TOKEN,
                "TELEGRAM_CHAT_ID": str(OPERATORS_CHAT),
                "TELEGRAM_API_BASE_URL": self.sandbox.url,
                "NATS_URL": self.server.url,
                "NATS_TELEGRAM_NKEY_SEED": self.server.worker_seed,
            },
        )

    def publish(self, *envelopes: TelegramOutbound) -> None:
        """As a service in any language does, which checks nothing."""
        with self.server.client(self.server.publisher_seed) as client:
            for envelope in envelopes:
                client.publish("telegram.outbound", encode(envelope), {"Nats-Msg-Id": envelope.msg_id})

    def shell(self, line: str, code: int = 0, *, as_service: bool = False) -> None:
        """Run a line as the operator does and show it with its output; of a long one the beginning."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            env=self._service if as_service else self._operator,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        lines = [harmless(text) for text in done.stdout.splitlines()]
        if line.startswith("telegram-connector dead list") and len(lines) > SHOWN_LINES:
            lines[SHOWN_LINES:] = [f"[{len(lines) - SHOWN_LINES} more lines]"]
        print(f"$ {line}", *lines, *(harmless(text) for text in done.stderr.splitlines()), sep="\n")
        if done.returncode:
            print(f"[exit code {done.returncode}]")
        print()
        self.expect(f"exit code of {line!r}", done.returncode, code)

    def alert(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self._alerts.get(timeout=PATIENCE_SECONDS))
        return found

    def dead(self) -> int:
        with self.server.client() as client:
            return int(client.api("STREAM.INFO.TELEGRAM_DEAD")["state"]["messages"])

    def until_settled(self) -> None:
        """Wait until nothing is left to send or to settle."""
        until(lambda: sum(self.server.consumer()[n] for n in ("num_pending", "num_ack_pending")) == 0)

    def expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.faults.append(f"{what}: {found!r} instead of {wanted!r}")


def harmless(line: str) -> str:
    """Without what is this machine's alone."""
    line = line.replace(socket.gethostname(), "ops-1")
    return re.sub(r"pid \d+", "pid 17", line)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come about")
        pause.wait(0.1)


def order(number: int) -> TelegramOutbound:
    """What a service sends whose author forgot to escape: HTML with a bare less-than sign."""
    return TelegramOutbound(
        msg_id=f"order-{number}",
        chat=str(CHATS[number % len(CHATS)]),
        text=f"<b>Order {number}</b>: bought below limit, price < 0.45",
        parse_mode="HTML",
        kind="trade",
    )


def broken_markup(scene: Scene, count: int) -> None:
    """Publish broken markup, see it refused, resend it plain, and count what arrived."""
    print(f"## {count} messages with broken markup\n")
    print(
        f"A service publishes {count} messages to {len(CHATS)} chats, as HTML, with a `<` that its author"
        " forgot to escape. Telegram\nrefuses them all. `TELEGRAM_CHAT_ID` is told:\n"
    )
    orders = [order(number) for number in range(1, count + 1)]
    scene.publish(*orders)
    heard: list[dict[str, object]] = []
    while sum(int(str(a["count"])) for a in heard) < count:
        heard.append(scene.alert())
    scene.sandbox.wait(len(heard), OPERATORS_CHAT, timeout_seconds=PATIENCE_SECONDS)
    scene.until_settled()
    print("```text")
    for message in scene.sandbox.messages(chat=OPERATORS_CHAT):
        print(message.raw_text)
    print("```\n\nand on `telegram.alerts` there were, in short:\n\n```json")
    for alert in heard:
        print(json.dumps({name: alert[name] for name in ("v", "type", "count", "reasons", "not_stored")}))
    print("```\n\nThe operator looks:\n\n```console")
    scene.shell("telegram-connector status")
    scene.shell("telegram-connector dead list --newer-than 1h")
    scene.shell("telegram-connector dead show 1 --text")
    scene.shell("telegram-connector dead show 1 --raw | telegram-connector lint --envelope -", code=1)
    print("```\n\nThe service is mended; what it publishes from now on arrives:\n\n```console")
    scene.shell(
        f"telegram-connector publish --chat {CHATS[0]} --parse-mode HTML --msg-id order-{count + 1}"
        f" '<b>Order {count + 1}</b>: bought below limit, price &lt; 0.45'",
        as_service=True,
    )
    scene.sandbox.wait(1, CHATS[0], timeout_seconds=PATIENCE_SECONDS)
    print("```\n\nWhat was refused is sent without its parse mode:\n\n```console")
    scene.shell("telegram-connector dead resend --plain --reason refused --yes")
    scene.sandbox.wait(count + 1 + len(heard), timeout_seconds=PATIENCE_SECONDS)
    scene.until_settled()
    scene.shell("telegram-connector dead resend --plain --reason refused --yes")
    scene.shell("telegram-connector dead list")
    print("```\n\nWhat the sandbox received, in each chat:\n")
    print("| chat | published | received | doubled | in order | without a parse mode |")
    print("|---|---|---|---|---|---|")
    for chat in CHATS:
        wanted = [e.msg_id.partition("-")[2] for e in orders if e.chat == str(chat)]
        got = [m for m in scene.sandbox.messages(chat=chat) if "&lt;" not in m.raw_text]
        numbers = [re.findall(r"Order (\d+)", m.raw_text)[0] for m in got]
        plain = sum(not m.parse_mode for m in got)
        print(
            f"| `{chat}` | {len(wanted)} | {len(got)} | {len(numbers) - len(set(numbers))}"
            f" | {'yes' if numbers == wanted else 'NO'} | {plain} |"
        )
        scene.expect(f"what arrived in {chat}", numbers, wanted)
    scene.expect("dead letters", scene.dead(), count)
    print()


def revoked_token(scene: Scene, outages: Sequence[float]) -> None:
    """Revoke the token in the middle of 200 messages, for so many seconds each time, and restore it."""
    print("## A token revoked and restored\n")
    print(
        f"In the middle of {IN_TWO_HUNDRED} messages to {len(CHATS)} chats the token is revoked, and after a"
        " while restored. Meanwhile:\n\n```console"
    )
    rows = []
    for round_, seconds in enumerate(outages):
        rows.append(_one_outage(scene, round_, seconds))
    print("```\n")
    print(f"| {' | '.join(FIGURES)} |\n|{'---|' * len(FIGURES)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    print(
        "\n`getMe` is asked after 1, 2, 4 … 60 s, so sending goes on at most 60 s (and a tenth) after the"
        " token works again;\na restart tries at once. No message but the first met the refusal."
    )


def _one_outage(scene: Scene, round_: int, seconds: float) -> tuple[object, ...]:
    sandbox, dead = scene.sandbox, scene.dead()
    sandbox.clear()
    sandbox.clear_faults()
    sandbox.set_fault({"delay_seconds": 0.01})  # so that there is a middle
    texts = [f"round {round_} message {n}" for n in range(IN_TWO_HUNDRED)]
    scene.publish(
        *(
            TelegramOutbound(msg_id=f"r{round_}-{n}", chat=str(CHATS[n % len(CHATS)]), text=text)
            for n, text in enumerate(texts)
        )
    )
    sandbox.wait(BEFORE_REVOKING, timeout_seconds=PATIENCE_SECONDS)
    sandbox.revoke(TOKEN)
    ends = time.monotonic() + seconds
    sandbox.wait_requests(1, status=401, timeout_seconds=PATIENCE_SECONDS)
    sent = sandbox.count()
    if round_ == 0:
        scene.shell("telegram-connector status")
    threading.Event().wait(max(0.0, ends - time.monotonic()))
    sandbox.restore(TOKEN)
    restored = sandbox.clock.now()
    sandbox.wait(IN_TWO_HUNDRED, timeout_seconds=PATIENCE_SECONDS)
    scene.until_settled()
    went_on = next(c.at for c in sandbox.requests(accepted=True) if c.at > restored)
    got = {m.raw_text for m in sandbox.messages()}
    failures = (
        len(set(texts) - got),
        scene.dead() - dead,
        len(sandbox.duplicates()),
        len(sandbox.order_breaks()),
    )
    scene.expect(f"lost, dead, doubled, out of order after {seconds:g} s", failures, (0, 0, 0, 0))
    refused = [len(sandbox.requests(method=m, status=401)) for m in ("sendMessage", "getMe")]
    return (f"{seconds:g}", sent, *refused, f"{went_on - restored:.1f}", *failures)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500, help="with broken markup (500)")
    outages = [10.0, 60.0, 300.0]
    parser.add_argument("--outages", type=float, nargs="*", default=outages, help="seconds each (10 60 300)")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    print(
        "# An incident, played through\n\n"
        "Printed by `scripts/incident.py`, which starts a nats-server, the sandbox Bot API and a worker, and"
        " runs the\ncommands with an operator's NATS permissions. Host and process are replaced, long lists"
        " cut; the rest is as it came.\n"
    )
    with running_server() as server, Sandbox() as sandbox:
        server.provision()
        scene = Scene(server, sandbox)
        with scene.worker() as worker:
            worker.until_match("bound to|created from")
            broken_markup(scene, options.messages)
            if options.outages:
                revoked_token(scene, options.outages)
            worker.signal(signal.SIGTERM)
            scene.expect("exit code of the worker", worker.wait(), 0)
    for fault in scene.faults:
        print(f"NOT AS IT SHOULD BE: {fault}", file=sys.stderr)
    return 1 if scene.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
