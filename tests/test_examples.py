"""The examples as they stand, against a real nats-server, a relay and the sandbox Bot API."""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from telegram_connector.projection import Reason
from telegram_connector.sandbox import Sandbox
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet
from tests.nats_server import NatsServer
from tests.process import Process
from tests.test_ledger_commands import Desk

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.integration


@pytest.fixture
def fleet(nats_server: NatsServer) -> Iterator[Fleet]:
    """A relay that sends what the examples publish."""
    with Sandbox() as sandbox:
        fleet = Fleet(nats_server, sandbox)
        fleet.relay()
        yield fleet
        fleet.stop()


def example(fleet: Fleet, name: str, *arguments: str, **env: str) -> Process:
    nats = {"NATS_URL": fleet.server.url, "NATS_TELEGRAM_NKEY_SEED": fleet.server.publisher_seed}
    script = ROOT / "examples" / name
    return Process(*arguments, env={"PYTHONPATH": str(ROOT), "CHAT": "42", **nats, **env}, script=script)


def received(fleet: Fleet, count: int) -> list[str]:
    fleet.sandbox.wait(count=count, timeout_seconds=PATIENCE_SECONDS)
    return fleet.texts(42)


def test_the_eight_lines_of_the_readme(fleet: Fleet, tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().split("### From your program: eight lines", 1)[1]
    code = section.split("```python\n", 1)[1].split("```", 1)[0]
    assert len([line for line in code.splitlines() if line]) <= 8
    script = tmp_path / "eight.py"
    script.write_text(code)
    with example(fleet, str(script)) as program:
        assert program.wait() == 0, program.output
        assert program.output == "1 False\n"
    assert received(fleet, 1) == ["Filled at 0.45"]


def test_send_one(fleet: Fleet) -> None:
    for words in ("stored as 1\n", "stored as 1, as before\n"):
        with example(fleet, "send_one.py", "backup", "done") as script:
            assert script.wait() == 0, script.output
            assert script.output == words
    assert received(fleet, 1) == ["backup done"]
    with example(fleet, "send_one.py", " ") as script:
        assert script.wait() == 1
        assert script.output == "text: text must be non-empty: it is white space\n"


def test_log_handler(fleet: Fleet) -> None:
    with example(fleet, "log_handler.py", DATABASE_PASSWORD="hunter22") as program:
        assert program.wait() == 0, program.output
        assert "INFO shop.orders: order 100" in program.output
    with fleet.server.client() as client:
        count = client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["state"]["messages"]
    texts = received(fleet, count)
    assert 1 <= len(texts) <= 2
    assert "order 100 failed" in texts[-1]
    assert texts[-1].endswith("RuntimeError: the bank refuses, password <redacted>")
    assert "hunter22" not in "".join(texts)


def test_prefork_web(fleet: Fleet) -> None:
    with example(fleet, "prefork_web.py", "0") as service:
        service.until_match(r"listening on \d+")
        port = int(service.output.split()[-1])

        def post(path: str, body: bytes) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body) as answer:
                return str(answer.read().decode())

        answers = [post(f"/orders/{n}", b"text=hello+%d" % n) for n in range(20)]
        assert sorted(int(a.split()[2]) for a in answers) == list(range(1, 21))
        assert "stored as 1 by" in post("/orders/0", b"text=hello+0")
        with pytest.raises(urllib.error.HTTPError) as refused:
            post("/orders/99", b"text=")
        assert (refused.value.code, refused.value.read()) == (400, b"text: empty\n")
        refused.value.close()
        assert received(fleet, 20) == [f"hello {n}" for n in range(20)]
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


def test_prefork_tasks(fleet: Fleet) -> None:
    with example(fleet, "prefork_tasks.py", "12") as program:
        assert program.wait() == 0, program.output
        assert re.fullmatch(r"13 tasks in [1-9]+ workers made 12 messages\n", program.output)
    assert sorted(received(fleet, 12)) == sorted(f"order {n} shipped" for n in range(12))


def test_teammate_reply(nats_server: NatsServer) -> None:
    with Sandbox() as sandbox:
        fleet = Fleet(nats_server, sandbox)
        fleet.relay(ledger="kv")
        env = {"BOT": TOKEN.partition(":")[0], "NATS_TELEGRAM_NKEY_SEED": nats_server.root_seed}
        with example(fleet, "teammate_reply.py", **env) as program:
            assert program.wait() == 0, program.output
            first, second, third = program.output.splitlines()
        assert first == f"m1 eligible: {Reason.ELIGIBLE.words}"
        assert second == f"m2 withheld: {Reason.NOT_TO_USER.words}"
        assert third.startswith(f"m1 withheld: {Reason.EDITED.words} (status ")
        assert received(fleet, 1) == ["[Frontend] Alice\nFound it: a stale cache."]
        fleet.stop()
    assert f"Withheld: {Reason.NOT_TO_USER.words}" in Desk(nats_server).ok("why", "r1/m2")
