"""The whole relay on this machine, and a demonstration of it: see scripts/run_local.sh --help."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ambient import OF_NATS, OF_TELEGRAM, OURS, Plan
from children import Child, Children, Failed, Interrupted, Overdue
from demo import HELLO, LEVELS, LOCAL, Demo, Sandbox, Witness, WorkerLog
from local_nats import LocalNats

ROOT = Path(__file__).resolve().parents[1]
CONNECTOR = [sys.executable, "-m", "telegram_connector"]
DELIVERY_SECONDS = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run until told to stop; returns the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until something was started there is nothing to stop
    options = parser().parse_args(arguments)
    ambient = {name for name, value in os.environ.items() if name.startswith(OURS) and value.strip()}
    used = (OF_TELEGRAM if options.telegram else set()) | (OF_NATS if options.nats else set())
    ignored = sorted(ambient - used - {"NATS_SERVER_BIN"})
    if ignored:
        print(f"Ignored, although your environment has them: {', '.join(ignored)}", flush=True)
    try:
        plan = Plan.of(options, ignored)
        if plan.claims and not confirmed(plan.claims, options.yes):
            return 1
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="telegram-connector-", ignore_cleanup_errors=True) as folder:
        return Run(plan, Path(folder)).to_the_end(options.once)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="scripts/run_local.sh",
        allow_abbrev=False,
        description="Runs a nats-server, a sandbox Bot API and the worker on this machine, and sends a few "
        "messages through them. TELEGRAM_*, NATS_* and TG_* of your environment are ignored, so nothing "
        "reaches a real chat; NATS_SERVER_BIN may name another nats-server. Ctrl-C stops all of it.",
    )
    made.add_argument("--once", action="store_true", help="exit 0 as soon as the messages have arrived")
    made.add_argument(
        "--telegram",
        action="store_true",
        help=f"send one message to real Telegram, by your {', '.join(sorted(OF_TELEGRAM))}",
    )
    made.add_argument(
        "--nats",
        action="store_true",
        help="use the NATS server of your NATS_* (and TG_STREAM, TG_SUBJECT, TG_DURABLE_NAME); "
        "nothing is provisioned there",
    )
    made.add_argument("--yes", action="store_true", help="do not ask before using either")
    return made


def confirmed(claims: Sequence[str], yes: bool) -> bool:
    """Tell what will be used, and ask unless that was answered beforehand."""
    print("This run uses", flush=True)
    for claim in claims:
        print(f"  - {claim}", flush=True)
    if yes:
        return True
    if not sys.stdin.isatty():
        print("There is no terminal to ask on: give --yes if that is meant.", file=sys.stderr)
        return False
    try:
        answer = input("Go on? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("Nothing was started.")
    return False


class Run:
    """One run: what it starts, and what becomes of its messages."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._children = Children(folder, self._hear)
        self._say = self._children.say
        level = plan.base.get("LOG_LEVEL", "").strip()
        self._is_level = not level or level in LEVELS  # else the worker will say what it thinks of it
        self._log = WorkerLog(level if self._is_level else "")

    def to_the_end(self, once: bool) -> int:
        """Start everything, show the messages arrive, go on until told to stop; returns the exit code."""
        started = time.monotonic()
        code = 0
        with self._children:
            try:
                self._work(once)
            except Interrupted as reason:
                self._say(f"{reason}: stopping.")
                code = 1 if once else 0
            except Failed as error:
                self._say(f"\nFAILED. {error}\n\nStopping what still runs.")
                code = 1
        self._say(f"All stopped, after {time.monotonic() - started:.1f} s.")
        return code

    def _work(self, once: bool) -> None:
        plan, children = self._plan, self._children
        given = plan.nats
        worker, publisher, operator = (given,) * 3 if given is not None else self._nats_server()
        sandbox = self._sandbox() if plan.telegram is None else None
        telegram = sandbox.variables if sandbox else plan.telegram
        if sandbox:
            self._say(f"See the chats in a browser: {sandbox.url}/")
            self._say(f"Sandbox Bot API: {sandbox.url}  (what it got: {sandbox.url}/_sandbox/messages)")
        publish = self._line(publisher, "publish 'Hello'")
        self._say(f"Publish from another terminal:\n  {publish}")
        self._say(
            f"Look at it as an operator (also: pause, dead, ledger):\n  {self._line(operator, 'status')}"
        )
        self._say(f"The same in a browser:\n  {self._line(operator, 'console')}")
        env = {**plan.base, **worker, **(telegram or {})}
        if self._is_level:
            env["LOG_LEVEL"] = "DEBUG"
        children.start("worker", [*CONNECTOR, "run"], env, ROOT)
        self._say(f"Started {children}.")
        demos = [HELLO] if plan.claims else LOCAL
        self._publish(demos, {**plan.base, **publisher})
        try:
            self._show(demos, sandbox or self._log)
        except Overdue as error:
            if once:
                raise
            self._say(f"NOT AS IT SHOULD BE. {error} The worker's lines may say why.")
        if not once:
            self._say("Showing the worker's log. Ctrl-C stops all of it.")
            while True:
                children.watch()

    def _nats_server(self) -> tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]:
        """Start and provision a server; returns the variables of worker, publisher and operator."""
        plan, children = self._plan, self._children
        nats = LocalNats(self._folder)
        children.start("nats-server", nats.command, plan.base, self._folder)
        url = children.until(nats.url, "nats-server")
        worker, publisher, operator, provisioner = (
            {"NATS_URL": url, "NATS_TELEGRAM_NKEY_SEED": user.seed}
            for user in (nats.worker, nats.publisher, nats.operator, nats.provisioner)
        )
        children.run("provision", [*CONNECTOR, "provision"], {**plan.base, **provisioner}, ROOT)
        return worker, publisher, operator

    def _sandbox(self) -> Sandbox:
        child = self._children.start("sandbox", [*CONNECTOR, "sandbox", "--port", "0"], self._plan.base, ROOT)
        return Sandbox(self._children.until(lambda: _announced(child), "the sandbox's address"))

    def _line(self, env: Mapping[str, str], command: str) -> str:
        # Ambient variables that are ignored here would count there.
        unset = [f"-u {name}" for name in self._plan.ignored if name in OF_NATS - set(env)]
        given = [f"{name}={shlex.quote(value)}" for name, value in env.items() if not self._plan.nats]
        return " ".join([*(["env", *unset] if unset else []), *given, shlex.join(CONNECTOR), command])

    def _publish(self, demos: Sequence[Demo], env: Mapping[str, str]) -> None:
        envelopes = self._folder / "envelopes"
        envelopes.write_text("\n".join(demo.envelope for demo in demos), encoding="utf-8")
        self._children.run("publish", [*CONNECTOR, "publish", "--envelopes", str(envelopes)], env, ROOT)
        self._say(f"Published {len(demos)} message{'s' if len(demos) > 1 else ''}.")

    def _show(self, demos: Sequence[Demo], witness: Witness) -> None:
        """Print what becomes of each message, in the order of publishing."""
        for demo in demos:
            ask = partial(witness.outcome, demo)
            outcome = self._children.until(ask, f"what becomes of {demo.what}", DELIVERY_SECONDS)
            self._say(f"  {demo.what}: {outcome}")
        self._say("All as it should be.")

    def _hear(self, child: Child, line: str) -> None:
        if child.name == "worker" and self._log.is_worth_showing(line):
            self._say(line)


def _announced(sandbox: Child) -> str | None:
    names = (line.partition("TELEGRAM_API_BASE_URL=") for line in sandbox.lines)
    return next((url.strip() for _, found, url in names if found), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
