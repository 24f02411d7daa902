"""`telegram-connector check` against good and broken set-ups: real nats-server, sandbox Bot API."""

from __future__ import annotations

import json
import re
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from telegram_connector import topology
from telegram_connector.checkup import NAMES, Finding, check_up
from telegram_connector.checkup.broker import STREAM_NAMES, WHO_AM_I, BrokerCheck
from telegram_connector.checkup.rights import Permissions, Right, covers, needed, needed_by_ledger, overlap
from telegram_connector.checkup.skew import epoch_seconds, judge, reading
from telegram_connector.cli.check import check
from telegram_connector.sandbox import Sandbox
from telegram_connector.settings import NatsSettings, Settings
from tests.nats_server import PERMISSIONS, NatsServer, make_user
from tests.test_telegram_sockets import Server, certificate, serve, tls  # noqa: F401 - fixtures

TOKEN = "123456:" + "Ab-_" * 9
GROUP = -1001234567890

pytestmark = pytest.mark.integration


def deployed(*, verb: str = "publish") -> list[str]:
    """The worker's permissions in deploy/, but for what only this command asks."""
    block = PERMISSIONS.read_text().split("TELEGRAM_CONNECTOR {")[1].split("\n}")[0]
    of_verb = re.search(rf"{verb}: {{\s*allow: \[(.*?)\]", block, re.DOTALL)
    assert of_verb is not None
    return [s for s in re.findall(r'"([^"]+)"', of_verb[1]) if s not in (WHO_AM_I, STREAM_NAMES)]


class Setup:
    """A server and a sandbox, all well at first; it is looked at with the worker's credentials."""

    def __init__(self, server: NatsServer, sandbox: Sandbox) -> None:
        self.server = server
        self.sandbox = sandbox
        self.env = {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_CHAT_ID": str(GROUP),
            "NATS_URL": server.url,
            "NATS_TELEGRAM_NKEY_SEED": server.worker_seed,
            "TELEGRAM_API_BASE_URL": sandbox.url,
        }
        sandbox.set_chat(GROUP, title="Ops")
        self.permit()

    def permit(self, *more: str, without: str = "", bare: bool = False) -> None:
        """Give the worker the permissions of deploy/ and those of this command."""
        own = () if bare else (WHO_AM_I, STREAM_NAMES)
        subjects = json.dumps([s for s in (*deployed(), *own, *more) if s != without])
        self.server.worker_permissions = (
            f"{{ publish: {{ allow: {subjects} }}, allow_responses: true,"
            f' subscribe: {{ allow: ["_INBOX.tg_outbound.>", "telegram.status.tg_outbound"] }} }}'
        )
        self.server.reload()

    def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        with self.server.client() as client:
            return client.api(subject, body)

    def make_consumer(self, **changes: Any) -> None:
        standby = "deliver_subject" not in changes  # which a server refuses together
        config = {**topology.consumer(self.server.settings(), standby), **changes}
        body = {"stream_name": "TELEGRAM_OUTBOUND", "config": config, "action": "create"}
        self.api("CONSUMER.CREATE.TELEGRAM_OUTBOUND.tg_outbound", body)

    def check(self, *options: str, charset: str = "utf-8", **env: str) -> Result:
        result = CliRunner(charset=charset).invoke(check, options, env={**self.env, **env})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def lines(self, **env: str) -> tuple[int, list[str]]:
        """Exit code and what is not just well, white space evened out."""
        result = self.check(**env)
        for secret in (TOKEN, TOKEN.split(":")[1], self.env["NATS_TELEGRAM_NKEY_SEED"]):
            assert secret not in result.output
        return result.exit_code, [" ".join(x.split()) for x in result.output.splitlines() if x[0] != "✓"]

    def state(self) -> dict[str, Any]:
        """All that there is: streams with what is in them, and consumers."""
        with self.server.client() as client:
            streams = client.api("STREAM.LIST").get("streams") or []
            names = [stream["config"]["name"] for stream in streams]
            consumers = [client.api(f"CONSUMER.LIST.{name}").get("consumers") for name in names]
        kept = [(stream["config"], stream["state"]["messages"]) for stream in streams]
        made = [[(c["config"], c["num_pending"], c["delivered"]) for c in of or ()] for of in consumers]
        return {"streams": kept, "consumers": made}


@pytest.fixture
def setup(nats_server: NatsServer) -> Iterator[Setup]:
    with Sandbox(strict=True) as sandbox:
        yield Setup(nats_server, sandbox)
        assert sandbox.count() == 0
        assert {call.method for call in sandbox.requests()} <= {"getMe", "getChat", "getChatMember"}


def test_a_good_setup(setup: Setup) -> None:
    setup.make_consumer()
    before = setup.state()
    result = setup.check()
    assert result.exit_code == 0
    lines = [re.sub(r"\s+", " ", line) for line in result.output.splitlines()]
    port, server = setup.sandbox.port, setup.server
    assert lines[:4] == [
        "✓ settings complete",
        f"✓ Bot API http://127.0.0.1:{port}, plain http; not Telegram's own server",
        "✓ token the bot is @sandbox_123456_bot",
        "✓ default chat supergroup Ops: the bot is member and may write",
    ]
    assert re.fullmatch(rf"✓ NATS 127\.0\.0\.1:{server.port}, nats-server \d+\.\d+\.\d+", lines[4])
    assert re.fullmatch(r"✓ permissions user U[A-Z2-7]{55} may do all that the worker does", lines[5])
    assert lines[6:11] == [
        "✓ stream TELEGRAM_OUTBOUND, 0 messages",
        "✓ consumer tg_outbound, 0 waiting, 0 handed over",
        "✓ dead letters TELEGRAM_DEAD",
        "✓ subjects telegram.dead and telegram.alerts are apart from telegram.outbound",
        "✓ bucket telegram_state",
    ]
    assert re.fullmatch(r"✓ clock within \S+ s of the Bot API and within \S+ s of NATS", lines[11])
    assert lines[12:] == ["no fault"]
    assert setup.state() == before


def test_nothing_is_made_where_there_is_nothing(setup: Setup) -> None:
    for config in topology.provisioned(setup.server.settings()):
        name = config["name"]
        setup.api(f"STREAM.DELETE.{name}")
    code, lines = setup.lines()
    assert code == 1
    assert lines == [
        "✗ stream TELEGRAM_OUTBOUND does not exist; make it with: telegram-connector provision",
        "- consumer skipped: the stream is not known",
        "! dead letters TELEGRAM_DEAD does not exist: what is refused is not kept; "
        "make it with: telegram-connector provision",
        "! bucket telegram_state does not exist: attempts and holds do not outlive the worker; "
        "make it with: telegram-connector provision",
        "1 fault",
    ]
    assert setup.state() == {"streams": [], "consumers": []}


def test_the_permissions_of_deploy_are_enough_and_say_what_they_cannot_see(setup: Setup) -> None:
    setup.permit(bare=True)
    code, lines = setup.lines()
    assert code == 0
    assert lines == [
        "· permissions not known: this user may not ask $SYS.REQ.USER.INFO; "
        "what is missing shows below and in the log",
        "· consumer tg_outbound does not exist yet: the worker makes it",
        "no fault",
    ]


def test_what_the_worker_needs_is_what_deploy_gives() -> None:
    rights = needed(NatsSettings(nats_url="nats://x", nats_auth="none")) + needed_by_ledger(parks=True)
    for verb in ("publish", "subscribe"):
        given = deployed(verb=verb)
        asked = [right.subject for right in rights if right.verb == verb and not right.answer]
        assert [subject for subject in asked if not any(covers(g, subject) for g in given)] == []
        assert [g for g in given if not any(covers(g, subject) for subject in asked)] == []
    assert [str(right) for right in rights if right.answer] == ["allow_responses"]
    assert "allow_responses:" in PERMISSIONS.read_text()


def test_the_ledger_is_looked_at_where_there_is_one_and_not_mentioned_else(setup: Setup) -> None:
    assert "ledger" not in setup.check().output
    code, lines = setup.lines(TG_LEDGER="kv")
    assert (code, lines[1:]) == (0, ["no fault"])
    assert "✓ ledger        telegram_ledger; telegram_links\n" in setup.check(TG_LEDGER="kv").output


def test_without_its_bucket_the_ledger_records_nothing_or_holds_everything_up(setup: Setup) -> None:
    setup.api("STREAM.DELETE.KV_telegram_ledger")
    missing = "ledger telegram_ledger does not exist: {}; make it with: telegram-connector provision; "
    code, lines = setup.lines(TG_LEDGER="kv")
    assert code == 0
    assert lines[1] == f"! {missing.format('what is sent is not recorded')}telegram_links"
    code, lines = setup.lines(TG_LEDGER="kv", TG_ON_AMBIGUOUS="park")
    assert code == 1
    assert lines[1] == f"✗ {missing.format('nothing is sent (TG_ON_AMBIGUOUS=park)')}telegram_links"
    setup.api("STREAM.DELETE.KV_telegram_links")
    assert "telegram_links does not exist: replies cannot be told" in setup.lines(TG_LEDGER="kv")[1][1]


def test_a_bucket_that_forgets_earlier_than_the_settings_say(setup: Setup) -> None:
    _, lines = setup.lines(TG_LEDGER="kv", TG_LEDGER_RETENTION_DAYS="100")
    assert lines[1] == (
        "! ledger telegram_ledger differs: max_age is 2592000 s, expected 8640000 s; "
        "telegram_links differs: max_age is 7776000 s, expected 8640000 s"
    )


@pytest.mark.parametrize(
    ("subject", "parked"),
    [("$JS.API.STREAM.MSG.GET.KV_telegram_ledger", "✗"), ("$KV.telegram_links.>", "!")],
)
def test_a_missing_permission_of_the_ledger(setup: Setup, subject: str, parked: str) -> None:
    setup.permit(without=subject)
    assert "permissions" not in " ".join(setup.lines()[1])
    words = f"permissions missing: publish {subject} (see deploy/nats-permissions.conf)"
    assert setup.lines(TG_LEDGER="kv")[1][0] == f"! {words}"
    assert setup.lines(TG_LEDGER="kv", TG_ON_AMBIGUOUS="park")[1][0] == f"{parked} {words}"


def test_an_administrator_without_permissions_of_its_own(setup: Setup) -> None:
    code, lines = setup.lines(NATS_TELEGRAM_NKEY_SEED=setup.server.root_seed)
    assert (code, lines[1:]) == (0, ["no fault"])


def test_a_missing_permission(setup: Setup) -> None:
    setup.permit(without="$JS.ACK.TELEGRAM_OUTBOUND.tg_outbound.>")
    code, lines = setup.lines()
    assert code == 1
    assert lines[0] == (
        "✗ permissions missing: publish $JS.ACK.TELEGRAM_OUTBOUND.tg_outbound.> "
        "(see deploy/nats-permissions.conf)"
    )


def test_a_missing_permission_that_the_worker_can_do_without(setup: Setup) -> None:
    setup.permit(without="telegram.alerts")
    code, lines = setup.lines()
    assert code == 0
    assert lines[0].startswith("! permissions missing: publish telegram.alerts (")


def test_a_dead_letter_that_may_not_be_stored_blocks_only_where_there_is_a_stream(setup: Setup) -> None:
    setup.permit(without="telegram.dead")
    assert setup.lines()[1][0].startswith("✗ permissions missing: publish telegram.dead (")
    setup.api("STREAM.DELETE.TELEGRAM_DEAD")
    assert setup.lines()[1][0].startswith("! permissions missing: publish telegram.dead (")


def test_a_permission_that_shows_where_it_is_needed(setup: Setup) -> None:
    setup.permit(bare=True, without="$JS.API.STREAM.INFO.TELEGRAM_OUTBOUND")
    code, lines = setup.lines()
    assert code == 1
    assert "✗ stream permission missing: publish $JS.API.STREAM.INFO.TELEGRAM_OUTBOUND" in lines
    assert "- consumer skipped: the stream is not known" in lines


def test_a_wrong_token(setup: Setup) -> None:
    setup.sandbox.revoke(TOKEN)
    code, lines = setup.lines()
    assert code == 1
    assert lines[:2] == [
        "✗ token refused: Unauthorized (TELEGRAM_BOT_TOKEN)",
        "- default chat skipped: the bot is not known",
    ]


def test_a_server_that_is_no_bot_api(setup: Setup) -> None:
    setup.sandbox.set_token(TOKEN, "bot_404_method")
    _, lines = setup.lines()
    assert lines[0].startswith("✗ token Not Found: method not found: is that a Bot API server?")


def test_no_bot_api(setup: Setup) -> None:
    setup.sandbox.stop()
    code, lines = setup.lines()
    assert code == 1
    assert lines[:3] == [
        f"✗ Bot API {setup.sandbox.url}: Connection refused (TELEGRAM_API_BASE_URL)",
        "- token skipped: the Bot API cannot be reached",
        "- default chat skipped: the Bot API cannot be reached",
    ]


def test_a_bot_api_in_trouble(setup: Setup) -> None:
    setup.sandbox.set_fault("srv_502_html")
    code, lines = setup.lines()
    assert code == 1
    assert lines[0] == "✗ token getMe brought no answer that says anything: HTTP 502 without a description"


def test_a_stranger_in_place_of_the_bot_api(
    setup: Setup,
    serve: Callable[..., Server],  # noqa: F811
    tls: ssl.SSLContext,  # noqa: F811
) -> None:
    server = serve(lambda _sock: None, context=tls)
    _, lines = setup.lines(TELEGRAM_API_BASE_URL=server.url)
    assert re.fullmatch(
        rf"✗ Bot API {server.url} at (127\.0\.0\.1|::1)\S*( \S+)?: TLS certificate refused: .*"
        r" \(REQUESTS_CA_BUNDLE\)",
        lines[0],
    )
    assert server.requests == []


def test_through_a_proxy_no_name_is_looked_up_and_its_password_not_shown(setup: Setup) -> None:
    setup.sandbox.stop()  # whose port is now one that refuses
    proxy = f"http://user:hunter2@127.0.0.1:{setup.sandbox.port}"
    result = setup.check(TELEGRAM_API_BASE_URL="https://api.telegram.invalid", HTTPS_PROXY=proxy)
    assert (
        f"✗ Bot API       https://api.telegram.invalid, through the proxy 127.0.0.1:{setup.sandbox.port}: "
        "proxy: Connection refused (HTTPS_PROXY)" in result.output
    )
    assert "hunter2" not in result.output


def test_a_name_that_nobody_knows(setup: Setup) -> None:
    _, lines = setup.lines(TELEGRAM_API_BASE_URL="https://nowhere.invalid", NATS_URL="nats://nowhere.invalid")
    assert lines[0] == (
        "✗ Bot API https://nowhere.invalid: the host name cannot be resolved (TELEGRAM_API_BASE_URL)"
    )
    assert lines[3] == "✗ NATS the host name cannot be resolved (NATS_URL)"
    assert lines[-2:] == ["- clock skipped: nobody told the time soon enough", "2 faults"]


def test_one_of_several_servers_is_unknown(setup: Setup) -> None:
    code, lines = setup.lines(NATS_URL=f"nats://nowhere.invalid,{setup.server.url}")
    assert code == 0
    assert lines[0].startswith(f"! NATS 127.0.0.1:{setup.server.port}, nats-server ")
    assert lines[0].endswith("; 1 of the hosts in NATS_URL cannot be resolved")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("kicked", "Forbidden: bot was kicked from the supergroup chat"),
        ("left", "Forbidden: bot is not a member of the supergroup chat"),
        ("not_found", "Bad Request: chat not found"),
    ],
)
def test_a_chat_that_the_bot_is_not_in(setup: Setup, state: str, words: str) -> None:
    setup.sandbox.set_chat(GROUP, state=state)
    code, lines = setup.lines()
    assert code == 1
    assert lines[0] == (
        f"✗ default chat {GROUP}: {words} "
        "(TELEGRAM_CHAT_ID; telegram-connector chats shows the ids of chats that wrote to the bot)"
    )


def test_a_chat_that_moved(setup: Setup) -> None:
    setup.sandbox.set_chat(-7, state="migrated", migrated_to=GROUP)
    code, lines = setup.lines(TELEGRAM_CHAT_ID="-7")
    assert code == 0
    assert lines[0] == f"! default chat -7 has become a supergroup: set TELEGRAM_CHAT_ID={GROUP}"


def test_a_private_chat_was_started(setup: Setup) -> None:
    setup.sandbox.set_chat(5, first_name="Ada\n\x1b[31m", username="ada", state="blocked")
    output = setup.check(TELEGRAM_CHAT_ID="5").output
    assert (
        "✓ default chat  private Ada [31m @ada: started; "
        "whether it blocked the bot shows at the next send\n" in output
    )
    assert not setup.sandbox.requests(method="getChatMember")


@pytest.mark.parametrize(
    ("chat", "member", "words"),
    [
        ({}, {"status": "kicked"}, "✗ the bot was removed from it"),
        ({}, {"status": "left"}, "✗ the bot is not in it"),
        ({}, {"status": "restricted", "is_member": False}, "✗ the bot is not in it"),
        ({}, {"status": "restricted", "can_send_messages": False}, "✗ the bot is restricted there"),
        ({}, {"status": "restricted", "can_send_messages": True}, "✓ the bot is restricted and may write"),
        ({}, {"status": "creator"}, "✓ the bot is creator and may write"),
        (
            {"permissions": {"can_send_messages": False}},
            {"status": "member"},
            "✗ only administrators may write there",
        ),
        (
            {"permissions": {"can_send_messages": False}},
            {"status": "administrator"},
            "✓ the bot is administrator and may write",
        ),
        ({"slow_mode_delay": 30}, {"status": "member"}, "✓ the bot is member and may write, every 30 s"),
        ({"type": "channel"}, {"status": "member"}, "✗ the bot must be an administrator of a channel"),
        ({"type": "channel"}, {"status": "administrator"}, "✗ the bot lacks the right to post messages"),
        (
            {"type": "channel"},
            {"status": "administrator", "can_post_messages": True},
            "✓ the bot is administrator and may write",
        ),
        ({}, None, "✗ is the bot in it? HTTP 200 without a readable answer"),
    ],
)
def test_whether_the_bot_may_write(
    setup: Setup, chat: dict[str, Any], member: dict[str, Any] | None, words: str
) -> None:
    full = {"id": GROUP, "type": "supergroup", "title": "Ops", **chat}
    for method, result in (("getChat", full), ("getChatMember", member)):
        body = json.dumps({"ok": True, "result": result})
        setup.sandbox.set_fault({"method": method, "answer": {"status": 200, "body": body}})
    result = setup.check()
    assert f"{words[0]} default chat  {full['type']} Ops: {words[2:]}" in result.output
    assert result.exit_code == (words[0] == "✗")


def test_no_nats(setup: Setup) -> None:
    setup.server.kill()
    code, lines = setup.lines()
    assert code == 1
    assert lines[0].startswith(f"✗ NATS 127.0.0.1:{setup.server.port}: ")
    assert lines[0].endswith(" (NATS_URL)")
    assert lines[1:] == [
        *(f"- {name} skipped: there is no connection to NATS" for name in BrokerCheck.names[1:]),
        "1 fault",
    ]


def test_a_seed_that_the_server_does_not_know(setup: Setup) -> None:
    code, lines = setup.lines(NATS_TELEGRAM_NKEY_SEED=make_user()[0])
    assert code == 1
    assert lines[0] == "✗ NATS the server refuses our credentials (NATS_TELEGRAM_NKEY_SEED)"
    assert lines[1] == "- permissions skipped: there is no connection to NATS"


def test_a_stream_that_differs(setup: Setup) -> None:
    config = setup.api("STREAM.INFO.TELEGRAM_OUTBOUND")["config"]
    setup.api("STREAM.UPDATE.TELEGRAM_OUTBOUND", {**config, "max_age": 3600 * 10**9})
    code, lines = setup.lines()
    assert code == 0
    assert lines[0] == "! stream TELEGRAM_OUTBOUND differs: max_age is 3600 s, expected 86400 s"
    setup.api("STREAM.UPDATE.TELEGRAM_OUTBOUND", {**config, "subjects": ["other"]})
    code, lines = setup.lines()
    assert code == 1
    assert lines[0] == "✗ stream TELEGRAM_OUTBOUND differs: subjects lack telegram.outbound"


def test_a_consumer_that_differs(setup: Setup) -> None:
    setup.make_consumer(ack_wait=30 * 10**9)
    code, lines = setup.lines()
    assert code == 0
    assert lines[0] == (
        "! consumer tg_outbound differs: ack_wait is 30 s, expected 60 s; the worker changes it where it may"
    )


def test_a_consumer_that_gives_up(setup: Setup) -> None:
    setup.make_consumer(max_deliver=5)
    code, lines = setup.lines()
    assert code == 1
    assert lines[0].startswith("✗ consumer tg_outbound differs: max_deliver is 5, expected -1; ")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deliver_subject": "x"}, "is a push consumer"),
        ({"ack_policy": "all"}, "has ack_policy all, expected explicit"),
    ],
)
def test_a_consumer_that_cannot_be_used(setup: Setup, changes: dict[str, Any], words: str) -> None:
    setup.make_consumer(**changes)
    code, lines = setup.lines()
    assert code == 1
    assert lines[0] == f"✗ consumer tg_outbound {words}: delete it, or set TG_DURABLE_NAME"


def test_a_paused_consumer(setup: Setup) -> None:
    setup.make_consumer(pause_until="2099-01-01T00:00:00Z")
    assert "! consumer tg_outbound is paused" in setup.lines()[1]


def test_a_stream_that_takes_everything(setup: Setup) -> None:
    setup.api("STREAM.DELETE.TELEGRAM_DEAD")
    config = setup.api("STREAM.INFO.TELEGRAM_OUTBOUND")["config"]
    setup.api("STREAM.UPDATE.TELEGRAM_OUTBOUND", {**config, "subjects": ["telegram.>"]})
    for bare in (False, True):
        setup.permit(bare=bare)
        code, lines = setup.lines()
        assert code == 0
        assert (
            "! subjects TELEGRAM_OUTBOUND takes telegram.dead and telegram.alerts, which are not for it: "
            "narrow its subjects, or set TG_DEAD_SUBJECT and TG_ALERT_SUBJECT" in lines
        )
        assert not any("stream" in line.split()[1] for line in lines)  # a wider stream is no difference


def test_another_stream_that_takes_everything(setup: Setup) -> None:
    for name in ("TELEGRAM_OUTBOUND", "TELEGRAM_DEAD"):
        setup.api(f"STREAM.DELETE.{name}")
    setup.api("STREAM.CREATE.FLEET", {"name": "FLEET", "subjects": ["telegram.>"]})
    code, lines = setup.lines()
    assert code == 1
    assert (
        "✗ stream TELEGRAM_OUTBOUND does not exist, but FLEET takes telegram.outbound: "
        "set TG_STREAM to it, or narrow it" in lines
    )
    assert (
        "! subjects FLEET takes telegram.dead, which are not for it: "
        "narrow its subjects, or set TG_DEAD_SUBJECT" in lines
    )
    setup.permit(bare=True)
    assert "- subjects skipped: the stream is not known, $JS.API.STREAM.NAMES not allowed" in setup.lines()[1]


def test_a_subject_that_takes_everything(setup: Setup) -> None:
    code, lines = setup.lines(TG_SUBJECT="telegram.*")
    assert code == 1
    assert (
        "✗ subjects TG_SUBJECT takes telegram.dead and telegram.alerts too, so the worker would relay "
        "its own reports: narrow TG_SUBJECT, or set TG_DEAD_SUBJECT and TG_ALERT_SUBJECT" in lines
    )


def test_an_account_without_jetstream_and_a_password_in_the_url(setup: Setup) -> None:
    setup.server.extra = 'accounts { BARE { users = [ { user: bare, password: "hunter2" } ] } }'
    setup.server.reload()
    url = setup.server.url.replace("//", "//bare:hunter2@")
    result = setup.check(NATS_URL=url, NATS_TELEGRAM_NKEY_SEED="")
    assert result.exit_code == 1
    assert "✓ permissions   the user may do all that the worker does\n" in result.output
    assert "✗ stream        JetStream is not enabled for this account (NATS_URL)\n" in result.output
    assert "- bucket        skipped: there is no JetStream\n" in result.output
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("env", "missing"),
    [
        ({"NATS_URL": ""}, "NATS_URL"),
        ({"NATS_URL": " ", "TELEGRAM_BOT_TOKEN": ""}, "TELEGRAM_BOT_TOKEN and NATS_URL"),
    ],
)
def test_dormant(setup: Setup, env: dict[str, str], missing: str) -> None:
    code, lines = setup.lines(**env)
    assert code == 1
    assert lines == [
        f"✗ settings dormant: {missing} not set",
        *(f"- {name} skipped: a dormant worker does nothing" for name in NAMES),
        "1 fault",
    ]
    assert setup.sandbox.requests() == []


def test_wrong_settings_are_all_named(setup: Setup) -> None:
    code, lines = setup.lines(TELEGRAM_CHAT_ID="", TG_ACK_WAIT_SECS="soon")
    assert code == 78
    assert {line.split()[2] for line in lines[:2]} == {"TELEGRAM_CHAT_ID", "TG_ACK_WAIT_SECS"}
    assert lines[2:] == [*(f"- {name} skipped: settings are wrong" for name in NAMES), "2 faults"]
    assert "soon" not in " ".join(lines)


def test_a_misspelt_variable(setup: Setup) -> None:
    code, lines = setup.lines(TG_MAX_DELIVERS="3")
    assert code == 0
    assert lines[0] == "! settings TG_MAX_DELIVERS is not a setting of this version"


def test_json(setup: Setup) -> None:
    setup.sandbox.revoke(TOKEN)
    result = setup.check("--json", TG_MAX_DELIVERS="3")
    document = json.loads(result.output)
    assert result.exit_code == 1
    assert document["ok"] is False
    assert [c["name"] for c in document["checks"]] == ["settings", "settings", *NAMES]
    found = {c["name"]: (c["ok"], c["severity"]) for c in document["checks"]}
    assert found["settings"] == (False, "warning")
    assert found["token"] == (False, "fault")
    assert found["default chat"] == (None, "skipped")
    assert found["consumer"] == (None, "note")
    assert found["stream"] == (True, "ok")
    assert set(document["checks"][0]) == {"name", "ok", "severity", "detail"}
    setup.sandbox.restore(TOKEN)
    result = setup.check("--json")
    assert (result.exit_code, json.loads(result.output)["ok"]) == (0, True)


def test_a_terminal_that_knows_ascii_only(setup: Setup) -> None:
    setup.sandbox.set_chat(GROUP, title="Ops é")
    output = setup.check(charset="ascii", TG_MAX_DELIVERS="3", NATS_URL=setup.server.url).output
    assert output.isascii()
    assert [line[0] for line in output.splitlines()[:5]] == ["+", "!", "+", "+", "+"]
    assert "supergroup Ops ?" in output


# What hangs: the budget ends it. Nothing here waits for it to be spent but the one side that hangs.


def test_a_bot_api_that_never_answers(setup: Setup) -> None:
    setup.sandbox.set_fault({"method": "getMe", "silence": {"seconds": 300, "when": "before_answer"}})
    settings = Settings.from_env(setup.env)
    found = list(check_up(settings, budget_seconds=1.0))
    assert [f.name for f in found] == list(NAMES)
    side = [f for f in found[:3] if f.severity != "ok"]
    assert side[0].severity == "fault"
    assert {f.severity for f in side[1:]} <= {"skipped"}
    assert found[2].severity == "skipped"


def test_a_nats_server_that_is_frozen(setup: Setup) -> None:
    settings = Settings.from_env(setup.env)
    setup.server.signal(signal.SIGSTOP)
    try:
        found = list(check_up(settings, budget_seconds=1.0))
    finally:
        setup.server.signal(signal.SIGCONT)
    assert [f.name for f in found] == list(NAMES)
    assert found[3] == Finding("NATS", "fault", "no answer within 1 s")
    assert {f.detail for f in found[4:10]} == {"skipped: NATS did not answer"}


def test_a_clock_that_is_wrong(setup: Setup) -> None:
    settings = Settings.from_env(setup.env)
    *_, clock = check_up(settings, wall=lambda: time.time() - 60)
    assert clock.severity == "warning"
    assert re.fullmatch(
        r"this machine is \d+ s behind the Bot API and \d+ s behind NATS: "
        r"holds and expiry of messages go by its clock",
        clock.detail,
    )


# The pure parts.


def test_a_reading_knows_its_doubt() -> None:
    slow = reading("x", 1000.0, 990.0, 1010.0)
    assert (slow.ahead_seconds, slow.doubt_seconds) == (0.0, 10.0)
    assert judge([slow]).severity == "skipped"
    assert judge([reading("x", 1030.0, 990.0, 1010.0)]).severity == "warning"
    assert judge([reading("x", 1006.0, 1000.0, 1000.0)]).detail.startswith("this machine is 6 s behind x")
    assert judge([reading("x", 990.0, 1000.0, 1000.0)]).detail.startswith("this machine is 10 s ahead of x")
    assert judge([reading("x", 1006.0, 1000.0, 1004.0)]).severity == "ok"
    assert judge([reading("x", 1000.0, 1000.5, 1000.5, step=1.0)]).detail == "within 0.5 s of x"
    assert judge([]).severity == "skipped"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00.123456789Z", 60.123456789),
        ("1970-01-01T00:01:00", None),
        ("soon", None),
        (None, None),
    ],
)
def test_times_of_nats(text: str | None, seconds: float | None) -> None:
    assert epoch_seconds(text) == seconds


@pytest.mark.parametrize(
    ("pattern", "subject", "whole", "part"),
    [
        ("a.b", "a.b", True, True),
        ("a.b", "a.c", False, False),
        ("a.*", "a.b", True, True),
        ("a.b", "a.*", False, True),
        ("a.*", "a.*", True, True),
        ("a.>", "a.b.c", True, True),
        ("a.>", "a", False, False),
        ("a.>", "a.>", True, True),
        ("a.*", "a.>", False, True),
        ("a.b", "a.>", False, True),
        (">", "a.>", True, True),
        ("a.b.c", "a.b", False, False),
        ("a.b", "a.b.c", False, False),
    ],
)
def test_subjects(pattern: str, subject: str, whole: bool, part: bool) -> None:
    assert covers(pattern, subject) is whole
    assert overlap(pattern, subject) is overlap(subject, pattern) is part


def test_denied_permissions_and_queues() -> None:
    told = {"publish": {"allow": [">"], "deny": ["a.b"]}, "subscribe": {"allow": ["x.> queue"]}}
    permissions = Permissions(told)
    assert not permissions.allow(Right("publish", "a.>"))
    assert permissions.allow(Right("publish", "b"))
    assert permissions.allow(Right("subscribe", "x.y"))
    assert not permissions.allow(Right("subscribe", "y"))
    for everything in (None, {}, {"publish": {}}, "?"):
        assert Permissions(everything).allow(Right("publish", "b"))
