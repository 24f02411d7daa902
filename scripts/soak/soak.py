"""A long run with kills of everything and faulty answers, and what it came to: see scripts/soak.sh --help."""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import faults
import verdict
from stage import Stage

from telegram_connector.bridge import NatsClient
from telegram_connector.deadletter import REASON
from telegram_connector.envelope import TelegramOutbound, decode, encode
from telegram_connector.errors import BridgeError
from telegram_connector.record import key_of
from telegram_connector.settings import Settings, variables
from telegram_connector.topology import LEDGER_BUCKET

TOKEN = "100001:" + "soak".ljust(35, "_")
OURS = ("TELEGRAM_", "NATS_", "TG_", "LOG_")
TAKEOVER_SECONDS = 3
# Beyond the time that publishing takes; a message that failed four times waits up to 8 s for its fifth.
LEAST_REST_SECONDS = 120.0
RELAY_ENV = {
    "TELEGRAM_BOT_TOKEN": TOKEN,
    "TELEGRAM_CHAT_ID": "1",
    "TG_ACK_WAIT_SECS": f"{faults.LEASE_SECONDS:g}",
    "TG_NAK_BACKOFF_SECS": "0.5",
    "LOG_LEVEL": "DEBUG",  # the most that may be printed: no secret at any level
    "LOG_FORMAT": "json",
}


def main(arguments: Sequence[str]) -> int:
    """Run it; returns the exit code."""
    options = parser().parse_args(arguments)
    if fault := _fault(options):
        parser().error(fault)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="telegram-connector-soak-"))
    try:
        story = Soak(options, folder).run()
        found = verdict.judge(story)
    except KeyboardInterrupt:
        print("Interrupted: all stopped.", file=sys.stderr)
        return 130
    finally:
        if options.keep:
            print(f"Logs are kept in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(_figures(options, story, found)) if options.json else verdict.table(story, found))
    return 1 if found.broken else 0


def _fault(options: argparse.Namespace) -> str:
    """What is wrong with the options, in words; "" for nothing."""
    if not 1 <= options.messages <= 40_000:  # the sandbox keeps the newest 50,000 calls
        return "--messages is from 1 to 40000"
    if min(options.chats, options.connectors) < 1 or min(options.relay_kills, options.server_kills) < 0:
        return "--chats and --connectors are at least 1, kills at least 0"
    if not 0 <= options.faulty < 1:
        return "--faulty is from 0 to less than 1"
    return "" if options.minutes > 0 else "--minutes is more than 0"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="scripts/soak.sh",
        allow_abbrev=False,
        description="Publishes messages through relays and a nats-server that are killed again and again, to "
        "a sandbox Bot API that answers wrongly now and then, and looks whether any was lost, sent twice "
        "without need, or out of order, and whether a secret was printed. Loopback only. Exit code 1 when a "
        "promise is broken.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument("--messages", type=int, default=10_000, help="at most 40000")
    made.add_argument("--chats", type=int, default=200)
    made.add_argument("--relay-kills", type=int, default=20, help="half by SIGKILL, half by SIGTERM")
    made.add_argument("--server-kills", type=int, default=10, help="by SIGKILL")
    made.add_argument("--faulty", type=float, default=0.05, help="share of faulty answers, 0 to 1")
    made.add_argument("--connectors", type=int, default=2, help="how many run on the one durable")
    made.add_argument("--ledger", action="store_true", help="with TG_LEDGER=kv")
    made.add_argument("--park", action="store_true", help="and TG_ON_AMBIGUOUS=park: nothing is sent twice")
    made.add_argument("--seed", type=int, default=1, help="of messages, kills and faults")
    made.add_argument(
        "--minutes",
        type=float,
        default=20.0,
        help="publishing and kills are spread over half of it; it may last no longer than this (at least "
        f"{LEAST_REST_SECONDS:.0f} s after publishing)",
    )
    made.add_argument("--json", action="store_true", help="figures for programs instead of the table")
    made.add_argument("--keep", action="store_true", help="keep the logs of all processes, and say where")
    return made


class Soak:
    """One run. Messages, kills and faults follow from the seed; how they meet does not."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._random = random.Random(options.seed)
        self._publishing_seconds = options.minutes * 60 / 2
        self._published: dict[str, tuple[str, float]] = {}
        self._published_by_id: dict[str, str] = {}
        self._done = threading.Event()
        base = {name: value for name, value in os.environ.items() if not name.upper().startswith(OURS)}
        base = {name: value for name, value in base.items() if not name.upper().endswith("_PROXY")}
        base |= {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
        relay = dict(RELAY_ENV)
        if "TG_STANDBY_TAKEOVER_SECS" in variables(Settings):
            relay["TG_STANDBY_TAKEOVER_SECS"] = str(TAKEOVER_SECONDS)
        if options.ledger or options.park:
            relay |= {"TG_LEDGER": "kv", "TG_ON_AMBIGUOUS": "park" if options.park else "retry"}
        if options.park:  # each parked message is told to the operator's chat: nothing that was published
            relay["META_ALERT_ON_DROP"] = "false"
        self._stage = Stage(folder, base, relay)

    def run(self) -> verdict.Story:
        """Start everything, publish, kill, wait, stop everything; returns what happened."""
        with self._stage:
            started = time.monotonic()
            rules = faults.rules(self._options.faulty, self._options.seed)
            self._stage.start(rules, self._options.connectors)
            self._say(f"Started; publishing for {self._publishing_seconds:.0f} s.")
            publisher = threading.Thread(target=self._publish, name="publisher", daemon=True)
            publisher.start()
            kills = self._kill(time.monotonic())
            left = LEAST_REST_SECONDS + max(
                0.0, self._options.minutes * 60 - self._publishing_seconds - LEAST_REST_SECONDS
            )
            unfinished = self._rest(publisher, left)
            seconds = time.monotonic() - started
            story = self._story(kills, unfinished, seconds)
            self._done.set()
            return story

    def _publish(self) -> None:
        options = self._options
        chance = random.Random(options.seed + 1)
        pause = self._publishing_seconds / options.messages
        begun = time.monotonic()
        number = 0
        while not self._done.is_set() and number < options.messages:
            try:
                with self._stage.server.client(self._stage.server.publisher_seed) as client:
                    while number < options.messages and not self._done.wait(
                        max(0.0, begun + number * pause - time.monotonic())
                    ):
                        self._publish_one(client, number, chance)
                        number += 1
            except BridgeError:
                self._done.wait(0.05)  # the server was killed; the same message once more, by the same id

    def _publish_one(self, client: NatsClient, number: int, chance: random.Random) -> None:
        # Drawn by the message's number, so that a repeat is the same.
        chance.seed(self._options.seed * 1_000_003 + number)
        chat = str(1000 + chance.randrange(self._options.chats))
        text = f"soak {number} {'x' * chance.choice((1, 30, 200, 1500))}"
        envelope = TelegramOutbound(msg_id=f"soak-{number}", chat=chat, text=text)
        client.publish("telegram.outbound", encode(envelope), {"Nats-Msg-Id": envelope.msg_id})
        self._published[text] = (chat, time.time())
        self._published_by_id[envelope.msg_id] = chat

    def _kill(self, begun: float) -> list[verdict.Kill]:
        """Kill and restart, spread over the time of publishing."""
        options = self._options
        whats: list[tuple[str, signal.Signals]] = [
            ("relay", signal.SIGTERM if n % 2 else signal.SIGKILL) for n in range(options.relay_kills)
        ]
        whats += [("server", signal.SIGKILL)] * options.server_kills
        self._random.shuffle(whats)
        span = self._publishing_seconds / max(1, len(whats))
        kills = []
        for number, (what, how) in enumerate(whats):
            at = begun + (number + 0.1 + 0.8 * self._random.random()) * span
            self._pause_until(at)
            kills.append(self._kill_one(what, how))
            self._say(f"{kills[-1].name}: {len(self._published)} published, {self._accepted()} sent")
        return kills

    def _kill_one(self, what: str, how: signal.Signals) -> verdict.Kill:
        number = self._random.randrange(self._options.connectors)
        if how == signal.SIGTERM:
            self._stage.await_started(number)
        at = time.time()
        code = 0
        if what == "server":
            self._stage.kill_server()
            self._stage.start_server()
        else:
            code = self._stage.end_relay(number, how)
            self._stage.start_relay(number)
        return verdict.Kill(at, what, how.name, time.time(), code)

    def _rest(self, publisher: threading.Thread, seconds: float) -> str:
        """Wait until all is sent and settled; returns what was left when the time was over."""
        deadline = time.monotonic() + self._publishing_seconds + seconds
        while publisher.is_alive():
            if time.monotonic() > deadline:
                return f"published {len(self._published)} of {self._options.messages}"
            self._pause_until(time.monotonic() + 0.2)
        deadline = time.monotonic() + seconds
        while True:
            info = self._stage.server.consumer()
            left = (info["num_pending"], info["num_ack_pending"])
            if left == (0, 0):
                return ""
            if time.monotonic() > deadline:
                return f"{left[0]} messages never handed over, {left[1]} not settled"
            self._pause_until(time.monotonic() + 0.5)

    def _story(self, kills: list[verdict.Kill], unfinished: str, seconds: float) -> verdict.Story:
        stage = self._stage
        pinned = bool(stage.server.consumer()["config"].get("priority_groups"))
        # One goes on while another's last seconds are looked at, so the record is read before they stop.
        with stage.server.client() as client:
            in_stream = client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["state"]["messages"]
            dead, parked = self._dead_letters(client)
            on_record = self._records(client) if self._options.ledger or self._options.park else {}
        for number in range(self._options.connectors):
            stage.await_started(number)
        codes = [stage.end_relay(number, signal.SIGTERM) for number in range(self._options.connectors)]
        ends = [verdict.Kill(time.time(), "relay", "SIGTERM", time.time(), code) for code in codes if code]
        record = stage.ask("requests?method=sendMessage")
        secrets = {"token": TOKEN, "token's secret": TOKEN.partition(":")[2]}
        for name in ("worker", "publisher", "admin", "root"):
            secrets[f"{name}'s seed"] = getattr(stage.server, f"{name}_seed")
        return verdict.Story(
            published=dict(self._published),
            sends=[
                verdict.Sent(
                    call["at"],
                    call["chat_id"] if "chat_id" in call else call["params"].get("chat_id", ""),
                    call["params"].get("text", ""),
                    call["accepted"],
                    call["fault"],
                )
                for call in record
            ],
            kills=[*kills, *ends],
            dead=dead,
            parks=self._options.park,
            parked=parked,
            on_record=on_record,
            in_stream=in_stream,
            told=stage.told(secrets),
            strict=pinned or self._options.connectors == 1,
            remembers=self._options.connectors == 1,
            unfinished=unfinished,
            seconds=seconds,
        )

    def _dead_letters(self, client: NatsClient) -> tuple[list[str], dict[str, str]]:
        """Those that no soak should have, in words; of those in doubt the text and the ledger's word."""
        dead, parked = [], {}
        for number in range(client.api("STREAM.INFO.TELEGRAM_DEAD")["state"]["messages"]):
            message = client.api("STREAM.MSG.GET.TELEGRAM_DEAD", {"seq": number + 1})["message"]
            headers = base64.b64decode(message["hdrs"]).decode()
            if self._options.park and f"{REASON}: ambiguous\r\n" in headers:
                envelope = decode(base64.b64decode(message["data"]))
                subject = f"$KV.{LEDGER_BUCKET}.{key_of(TOKEN.partition(':')[0], envelope)}"
                stored = client.api(f"STREAM.MSG.GET.KV_{LEDGER_BUCKET}", {"last_by_subj": subject})
                record = json.loads(base64.b64decode(stored["message"]["data"]))
                parked[envelope.text] = record["status"]
            else:
                dead.append(f"sequence {number + 1} of TELEGRAM_DEAD")
        return dead, parked

    def _records(self, client: NatsClient) -> Counter[str]:
        """How many records the ledger has in each state."""
        found: Counter[str] = Counter()
        for n in range(self._options.messages):
            chat = self._published_by_id.get(f"soak-{n}")
            if chat is None:
                continue
            key = key_of(TOKEN.partition(":")[0], TelegramOutbound(msg_id=f"soak-{n}", chat=chat, text="x"))
            subject = f"$KV.{LEDGER_BUCKET}.{key}"
            try:
                stored = client.api(f"STREAM.MSG.GET.KV_{LEDGER_BUCKET}", {"last_by_subj": subject})
            except BridgeError:
                found["none"] += 1
            else:
                found[json.loads(base64.b64decode(stored["message"]["data"]))["status"]] += 1
        return found

    def _accepted(self) -> int:
        return int(self._stage.ask("count")["count"])

    def _pause_until(self, at: float) -> None:
        """Wait, watching the relays meanwhile.

        Raises:
            RuntimeError: One ended by itself.
        """
        while (left := at - time.monotonic()) > 0:
            if ended := self._stage.ended():
                raise RuntimeError("; ".join(ended))
            time.sleep(min(left, 0.2))

    def _say(self, words: str) -> None:
        if not self._options.json:
            print(words, file=sys.stderr, flush=True)


def _figures(options: argparse.Namespace, story: verdict.Story, found: verdict.Verdict) -> dict[str, Any]:
    return {
        "options": vars(options),
        "published": len(story.published),
        "lost": len(found.lost),
        "dead_lettered": len(story.dead),
        "doubles": [asdict(double) for double in found.doubles],
        "reasons": dict(found.reasons),
        "order_breaks": found.breaks,
        "order_promised": story.strict,
        "strange": found.strange,
        "secrets_printed": list(story.told),
        "sends": len(story.sends),
        "faulty": sum(bool(send.fault) for send in story.sends),
        "kills": [asdict(kill) for kill in story.kills],
        "resumed_seconds": found.resumed,
        "caught_up_seconds": found.caught_up,
        "seconds": story.seconds,
        "broken": found.broken,
    }


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
