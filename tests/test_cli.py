"""The commands as users run them: real processes, real server, real signals."""

from __future__ import annotations

import base64
import json
import signal
import threading
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from telegram_connector.cli import main
from telegram_connector.cli.logs import MAX_LINE_BYTES, JsonLines, Scrubber
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet, numbered, worker_env
from tests.nats_server import NatsServer, running_server
from tests.process import Process

pytestmark = pytest.mark.integration


def invoke(*arguments: str, stdin: str | None = None, **env: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments, input=stdin, env=env)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("env", "missing"),
    [
        ({}, "TELEGRAM_BOT_TOKEN and NATS_URL"),
        ({"TELEGRAM_BOT_TOKEN": TOKEN}, "NATS_URL"),
        ({"NATS_URL": "nats://127.0.0.1:1", "TELEGRAM_BOT_TOKEN": "  "}, "TELEGRAM_BOT_TOKEN"),
    ],
)
def test_without_token_or_url_the_worker_is_dormant(env: dict[str, str], missing: str) -> None:
    with Process("run", env=env) as worker:
        assert worker.wait() == 0
        line = json.loads(worker.output.splitlines()[0])
        assert (line["level"], line["message"]) == ("WARNING", f"dormant: {missing} not set")


def test_wrong_settings_are_one_screen_with_every_fault_and_no_secret() -> None:
    seed = "SUAMIK_not_a_seed"
    env = {
        "TELEGRAM_BOT_TOKEN": "token-without-colon",
        "NATS_URL": "http://user:hunter2@host",
        "NATS_TELEGRAM_NKEY_SEED": seed,
        "TG_ACK_WAIT_SECS": "soon",
    }
    with Process("run", env=env) as worker:
        assert worker.wait() == 78
        for name in (*env, "TELEGRAM_CHAT_ID"):
            assert f"  {name}" in worker.output
        assert "Traceback" not in worker.output
        for secret in ("hunter2", seed, "token-without-colon", "soon"):
            assert secret not in worker.output


def test_sigterm_with_a_send_in_flight_and_a_backlog(fleet: Fleet) -> None:
    fleet.sandbox.set_fault({"delay_seconds": 1.0}, nth=5)
    fleet.publish(*numbered(60, 3))
    with Process("run", env=worker_env(fleet)) as worker:
        fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
        for _ in range(3):  # again and again is the same
            worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert "stopped in" in worker.output
    sent = fleet.sandbox.count()
    with Process("run", env=worker_env(fleet)) as worker:
        fleet.sandbox.wait(count=60, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0
    assert 5 <= sent < 60
    assert sorted(fleet.texts()) == sorted(e.text for e in numbered(60, 3))
    for chat in range(100, 103):
        assert fleet.texts(chat) == [e.text for e in numbered(60, 3) if e.chat == str(chat)]


def test_a_worker_killed_outright_leaves_its_messages_to_the_next(fleet: Fleet) -> None:
    fleet.publish(*numbered(40, 4))
    with Process("run", env=worker_env(fleet, TG_ACK_WAIT_SECS="2")) as worker:
        fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
        worker.signal(signal.SIGKILL)
        worker.wait()
    with Process("run", env=worker_env(fleet, TG_ACK_WAIT_SECS="2")):
        fleet.sandbox.wait(count=40, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
    assert {e.text for e in numbered(40, 4)} == set(fleet.texts())
    # Only the send whose answer or ack was lost with the process may show twice.
    assert len(fleet.texts()) <= 42


def test_the_token_and_the_seed_are_printed_nowhere(fleet: Fleet) -> None:
    """At DEBUG, while each kind of failure happens."""
    faults = [
        *("srv_restart", "srv_502_html", "amb_504_html", "amb_200_html", "rl_html", "bot_401", "mig_current"),
        *("chat_blocked", "parse_html_tag", "body_empty_400", "reset-before", "reset-after", "half-body"),
    ]
    for number, fault in enumerate(faults):
        fleet.sandbox.set_fault(fault, nth=2 + 3 * number)  # in a row they would look like one long outage
    fleet.publish(*numbered(60, 6))
    seed = fleet.server.worker_seed
    with Process("run", env=worker_env(fleet, LOG_LEVEL="debug", TG_MAX_DELIVER="9")) as worker:
        fleet.sandbox.wait(count=57, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()  # so that the bot waits for nothing, and the next is sent at once
        fleet.sandbox.stop()
        fleet.publish(*numbered(3, 1, start=100))
        worker.until("not sent:")
        fleet.server.kill()
        worker.until("connection to NATS lost")
        fleet.server.worker_allowed = False
        fleet.server.start()
        worker.until("refuses our credentials")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        output = worker.output
    assert "urllib3" in output  # whose DEBUG line would hold the URL
    assert "sendMessage" in output
    for secret in (
        TOKEN,
        quote(TOKEN, safe=""),
        TOKEN.split(":")[1],
        seed,
        base64.b64encode(TOKEN.encode()).decode(),
    ):
        assert secret not in output
    for line in output.splitlines():
        json.loads(line)


def test_text_logs_are_for_people(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("chat_blocked", times=1)
    fleet.publish(*numbered(1, 1))
    with Process("run", env=worker_env(fleet, LOG_FORMAT="text")) as worker:
        worker.until("dropped (refused): Forbidden: bot was blocked by the user  nats_msg_id=m0 chat=100")
        assert "IS NOT TELEGRAM'S" in worker.output


def test_a_misspelt_variable_is_named(fleet: Fleet) -> None:
    with Process("run", env=worker_env(fleet, TG_MAX_DELIVERS="3")) as worker:
        worker.until("TG_MAX_DELIVERS is not a setting")


def test_what_is_misspelt_is_named_beside_what_is_missing() -> None:
    code, output = invoke("status", NATS_URL="nats://127.0.0.1:1", NATS_AUTH="", TG_DURABLE="x")
    assert code == 78
    assert "NATS_TELEGRAM_NKEY_SEED is not set" in output
    assert "TG_DURABLE is not a setting of this version" in output


@pytest.mark.parametrize("number", ["abc", "0", "-1", "1.5", "9" * 20])
@pytest.mark.parametrize("command", ["show", "resend", "discard"])
def test_what_is_no_number_of_a_dead_letter_is_named(command: str, number: str) -> None:
    code, output = invoke("dead", command, "--", number)
    assert code == 2
    assert f"'{number}' is no number of a dead letter; dead list has them" in output


def test_provision_is_idempotent_grows_and_never_shrinks() -> None:
    with running_server() as server:
        env = {"NATS_URL": server.url, "NATS_TELEGRAM_NKEY_SEED": server.admin_seed}
        buckets = ("KV_telegram_state", "KV_telegram_ledger", "KV_telegram_links")
        names = ("TELEGRAM_OUTBOUND", "TELEGRAM_DEAD", *buckets)
        for did in ("created", "exists"):
            assert invoke("provision", **env) == (0, "".join(f"{name}: {did}\n" for name in names))
        with server.client() as client:
            config = client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["config"]
            config |= {"max_age": 3600 * 10**9, "subjects": ["telegram.outbound", "other.subject"]}
            config |= {"duplicate_window": 600 * 10**9}
            client.api("STREAM.UPDATE.TELEGRAM_OUTBOUND", config)
        code, output = invoke("provision", **env)
        assert code == 0
        assert "TELEGRAM_OUTBOUND: grown; left as it is: duplicate_window is 600 s, expected 300 s" in output
        with server.client() as client:
            config = client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["config"]
        assert config["max_age"] == 24 * 3600 * 10**9
        assert config["subjects"] == ["other.subject", "telegram.outbound"]


def test_provision_names_an_overlap_and_missing_rights() -> None:
    with running_server() as server:
        with server.client() as client:
            client.api("STREAM.CREATE.FLEET", {"name": "FLEET", "subjects": ["telegram.>"]})
        env = {"NATS_URL": server.url, "NATS_TELEGRAM_NKEY_SEED": server.admin_seed}
        code, output = invoke("provision", **env)
        assert code == 1
        assert "another stream already takes telegram.outbound" in output
        assert "TG_SUBJECT" in output
        code, output = invoke("provision", **(env | {"NATS_TELEGRAM_NKEY_SEED": server.publisher_seed}))
        assert code == 1
        assert "permissions violation" in output.lower()


def test_publish_says_where_it_was_stored_and_what_was_there_already(nats_server: NatsServer) -> None:
    env = {"NATS_URL": nats_server.url, "NATS_TELEGRAM_NKEY_SEED": nats_server.publisher_seed}
    assert invoke("publish", "--msg-id", "a", "hello", **env) == (0, "a stored as sequence 1\n")
    code, output = invoke("publish", "--msg-id", "a", "hello", **env)
    assert (code, output) == (0, "a stored as sequence 1 (a duplicate: it was there already)\n")
    assert invoke("publish", "--msg-id", "b", "-", stdin="from stdin\n", **env)[0] == 0
    with nats_server.client() as client:
        stored = client.api("STREAM.MSG.GET.TELEGRAM_OUTBOUND", {"seq": 2})["message"]
    assert json.loads(base64.b64decode(stored["data"])) == {"msg_id": "b", "text": "from stdin\n"}


def test_publish_reads_many_envelopes_and_names_the_bad_line(nats_server: NatsServer) -> None:
    env = {"NATS_URL": nats_server.url, "NATS_TELEGRAM_NKEY_SEED": nats_server.publisher_seed}
    good = '{"msg_id":"a","text":"x"}\n\n{"msg_id":"b","text":"y"}\n'
    code, output = invoke("publish", "--envelopes", "-", stdin=good, **env)
    assert (code, output.count("stored")) == (0, 2)
    code, output = invoke("publish", "--envelopes", "-", stdin=good + '{"msg_id":"c"}', **env)
    assert code == 1
    assert "line 4, text" in output


@pytest.mark.integration
def test_publish_refuses_what_telegram_would_refuse_unless_told_not_to(nats_server: NatsServer) -> None:
    env = {"NATS_URL": nats_server.url, "NATS_TELEGRAM_NKEY_SEED": nats_server.publisher_seed}
    marked_up = ("publish", "--msg-id", "a", "--parse-mode", "HTML", "<b>never closed")
    code, output = invoke(*marked_up, **env)
    refusal = "can't parse entities: Can't find end tag corresponding to start tag \"b\" (at byte offset 0)"
    assert (code, output) == (1, f"telegram-connector publish: text: {refusal}\n")
    lines = '{"msg_id":"b","text":"fine"}\n{"msg_id":"c","text":"v1.2","parse_mode":"MarkdownV2"}\n'
    code, output = invoke("publish", "--envelopes", "-", stdin=lines, **env)
    assert code == 1
    assert output.startswith("telegram-connector publish: line 2, text: can't parse entities: Character '.'")
    # Nothing was published until now.
    assert invoke(*marked_up, "--no-check", **env) == (0, "a stored as sequence 1\n")
    code, output = invoke("publish", "--envelopes", "-", "--no-check", stdin=lines, **env)
    assert (code, output) == (0, "b stored as sequence 2\nc stored as sequence 3\n")


@pytest.mark.integration
def test_publish_without_a_stream_or_a_server(nats_server: NatsServer) -> None:
    env = {"NATS_URL": nats_server.url, "NATS_TELEGRAM_NKEY_SEED": nats_server.root_seed}
    code, output = invoke("publish", "x", **env, TG_SUBJECT="nobody.listens")
    assert code == 1
    assert "nobody answers nobody.listens" in output
    nats_server.stop()
    code, output = invoke("publish", "x", **env)
    assert code == 1
    assert "NATS_URL" in output
    assert "Traceback" not in output


def test_the_sandbox_command_announces_itself_and_stops() -> None:
    with Process("sandbox", "--port", "0", env={}) as process:
        process.until("TELEGRAM_API_BASE_URL=http://127.0.0.1:")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_long_log_lines_are_cut_and_stay_json() -> None:
    import logging

    record = logging.LogRecord("x", logging.ERROR, "f", 1, "words " + "é" * 9000, None, None)
    record.error_msg = "y" * 9000
    line = JsonLines(Scrubber(["secret:1"])).format(record)
    assert len(line.encode()) <= MAX_LINE_BYTES
    assert json.loads(line)["level"] == "ERROR"


def test_the_scrubber_knows_a_secret_in_json_and_in_urls() -> None:
    scrub = Scrubber(['1:a"b'])
    assert scrub('x 1:a"b y') == "x <redacted> y"
    assert scrub(json.dumps('1:a"b')) == '"<redacted>"'
    assert scrub('1%3Aa"b') == "<redacted>"


def test_embedding_needs_no_main_thread(fleet: Fleet) -> None:
    fleet.publish(*numbered(3, 1))

    def host() -> None:
        with_relay = fleet.relay()
        fleet.sandbox.wait(count=3, timeout_seconds=PATIENCE_SECONDS)
        with_relay.stop()

    thread = threading.Thread(target=host)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert fleet.texts() == [e.text for e in numbered(3, 1)]
