"""Who gets in, from where, and what is written down: the console's door, without any NATS behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from telegram_connector import web
from telegram_connector.console import Access
from telegram_connector.console.app import MAX_BODY_BYTES, Pages
from telegram_connector.console.audit import KEPT, Audit
from telegram_connector.console.guard import CSRF_HEADER, Guard
from telegram_connector.console.listeners import Listeners
from telegram_connector.console.sessions import IDLE_SECONDS, LONGEST_SECONDS, MOST, Sessions
from telegram_connector.console.throttle import (
    FORGOTTEN_SECONDS,
    FREE_TRIES,
    FREE_TRIES_OF_ALL,
    MOST_ADDRESSES,
    Throttle,
)
from telegram_connector.console.throttle import LONGEST_SECONDS as LONGEST_WAIT
from telegram_connector.console.watch import Watch
from telegram_connector.settings import NatsSettings

TOKEN = "correct-horse-battery-staple-42"
NOWHERE = NatsSettings(nats_url="nats://127.0.0.1:1", nats_auth="none")
LOCAL = "127.0.0.1:8082"
FAR = "console.example.org"
DRAFT = {"team": "Frontend", "member": "Alice", "text": "Found it."}


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Door:
    """The console's application, asked without a server or a NATS."""

    def __init__(self, access: Access) -> None:
        self.clock = Clock()
        self.audit = Audit()
        self.host = LOCAL if access.is_local else FAR
        guard = Guard(access, "ada@desk", self.audit, self.clock)
        self.app = Pages(NOWHERE, guard, self.audit, Watch(NOWHERE)).app()
        self.client: FlaskClient = self.app.test_client()

    def get(self, path: str = "/api/start", client: FlaskClient | None = None, **headers: str) -> Any:
        return (client or self.client).get(path, headers={"Host": self.host, **_named(headers)})

    def post(self, path: str = "/api/preview", body: Any = DRAFT, csrf: str = "", **headers: str) -> Any:
        more = {CSRF_HEADER: csrf} if csrf else {}
        return self.client.post(path, json=body, headers={"Host": self.host, **more, **_named(headers)})

    def csrf(self) -> str:
        found: str = self.get("/api/session").json["csrf"]
        return found

    def login(self, token: str = TOKEN, name: str = "Ada", **headers: str) -> Any:
        return self.post("/api/login", {"token": token, "name": name}, **headers)


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture
def local() -> Door:
    """On this machine, without a token."""
    return Door(Access())


@pytest.fixture
def far() -> Door:
    """On all addresses, behind a platform's router."""
    return Door(Access("0.0.0.0", TOKEN, routed=True))


# Who may listen where


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_no_address_but_loopback_is_served_without_a_token(host: str) -> None:
    with pytest.raises(ValueError, match=r"TG_CONSOLE_TOKEN is not set.*never to the bot's token"):
        Access(host)
    assert not Access(host, TOKEN).is_local


def test_neither_is_a_name_that_a_proxy_serves_nor_a_platforms_port() -> None:
    with pytest.raises(ValueError, match="under another name"):
        Access(names=frozenset({FAR}))
    with pytest.raises(ValueError, match="TG_CONSOLE_TOKEN"):
        Access(routed=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_none_and_may_have_one(host: str) -> None:
    assert Access(host).is_local
    assert Access(host, TOKEN).token == TOKEN


# Hosts and origins


@pytest.mark.parametrize("host", [LOCAL, "localhost:9000", "LOCALHOST", "[::1]:8082", "127.0.0.1"])
def test_this_machines_names_are_answered(local: Door, host: str) -> None:
    local.host = host
    assert local.get().status_code == 200
    assert local.get("/").status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example:8082", "127.0.0.1.evil.example", "localhost.evil.example:80", "192.0.2.7", "evil"]
)
@pytest.mark.parametrize("path", ["/", "/ui/page.js", "/api/session", "/api/start", "/nowhere"])
def test_a_name_that_was_pointed_here_is_not(local: Door, host: str, path: str) -> None:
    local.host = host
    answer = local.get(path)
    assert answer.status_code == 421
    assert answer.json["kind"] == "host"
    assert "csrf" not in answer.json


def test_behind_a_proxy_only_its_names_are_answered() -> None:
    door = Door(Access(token=TOKEN, names=frozenset({FAR})))
    assert door.get("/api/session").status_code == 200
    door.host = "127.0.0.1:8082"
    assert door.get("/api/session").status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": f"http://{LOCAL}", "Sec_Fetch_Site": "cross-site"},
    ],
)
def test_another_sites_page_gets_nothing_and_changes_nothing(local: Door, headers: dict[str, str]) -> None:
    csrf = local.csrf()
    for answer in (
        local.get("/api/session", **headers),
        local.get("/api/start", **headers),
        local.get("/api/events", **headers),
        local.post(csrf=csrf, **headers),
    ):
        assert answer.status_code == 403
        assert answer.json["kind"] == "origin"


def test_this_page_and_programs_get_what_they_ask_for(local: Door) -> None:
    own = {"Origin": f"http://{LOCAL}", "Sec_Fetch_Site": "same-origin"}
    assert local.post(csrf=local.csrf(), **own).json["leaves"] is True
    assert local.post(csrf=local.csrf()).status_code == 200
    assert local.get(Sec_Fetch_Site="none").status_code == 200


@pytest.mark.parametrize("csrf", ["", "x", "é"])
@pytest.mark.parametrize("path", ["/api/dead/treat", "/api/pause", "/api/resume", "/api/dead/1/body"])
def test_a_change_without_the_pages_secret_is_refused(local: Door, csrf: str, path: str) -> None:
    answer = local.post(path, {}, csrf=csrf)
    assert answer.status_code == 403
    assert answer.json["kind"] == "csrf"
    assert local.audit.newest() == []


def test_a_form_of_another_site_is_no_json(local: Door) -> None:
    headers = {"Host": LOCAL, CSRF_HEADER: local.csrf()}
    answer = local.client.post("/api/preview", data="{}", content_type="text/plain", headers=headers)
    assert answer.status_code == 415


def test_nothing_is_changed_by_looking(local: Door) -> None:
    changing = {rule.rule for rule in local.app.url_map.iter_rules() if "POST" in (rule.methods or ())}
    asking = {rule.rule for rule in local.app.url_map.iter_rules() if "GET" in (rule.methods or ())}
    assert not changing & asking
    assert {rule for rule in changing if rule != "/api/login"} >= {"/api/pause", "/api/dead/treat"}


def test_what_is_too_large_or_no_json_is_refused_in_words(local: Door) -> None:
    headers = {"Host": LOCAL, CSRF_HEADER: local.csrf()}
    for body, status in ((b"{", 400), (b'"' + b"x" * MAX_BODY_BYTES + b'"', 413), (b"[1]", 400)):
        answer = local.client.post(
            "/api/preview", data=body, content_type="application/json", headers=headers
        )
        assert answer.status_code == status
        assert answer.json["description"]


# What every answer has


@pytest.mark.parametrize(
    "path", ["/", "/ui/page.js", "/api/session", "/api/nowhere", "/ui/../../settings.py"]
)
def test_every_answer_has_the_strict_headers(local: Door, path: str) -> None:
    answer = local.get(path)
    for name, value in web.HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "Strict-Transport-Security" not in answer.headers
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_without_nats_it_says_so_and_names_the_setting(local: Door) -> None:
    answer = local.post("/api/dead/list", {}, csrf=local.csrf())
    assert answer.status_code == 503
    assert answer.json["kind"] == "nats"
    assert "NATS_URL" in answer.json["description"]


# Logging in


def test_the_token_opens_it_and_the_cookie_is_strict(far: Door) -> None:
    assert far.get().status_code == 401
    assert far.get("/api/session").json == {"login": True, "who": None, "csrf": None}
    assert far.post(csrf="x").status_code == 401
    answer = far.login(X_Forwarded_For="6.6.6.6, 192.0.2.7")
    assert answer.status_code == 200
    (cookie,) = answer.headers.getlist("Set-Cookie")
    assert cookie.startswith("__Host-tg_console=")
    for flag in ("HttpOnly", "Secure", "SameSite=Strict", "Path=/", f"Max-Age={int(LONGEST_SECONDS)}"):
        assert flag in cookie
    assert "Domain" not in cookie
    assert TOKEN not in cookie
    assert answer.headers["Strict-Transport-Security"]
    client = _over_https(far, cookie)
    assert client("/api/start").json["who"] == "Ada (console, 192.0.2.7)"
    assert client("/api/session").json["csrf"] == answer.json["csrf"]


def _over_https(door: Door, cookie: str) -> Callable[..., Any]:
    pair = cookie.partition(";")[0]
    client = door.app.test_client(use_cookies=False)
    return lambda path: client.get(path, headers={"Host": door.host, "Cookie": pair})


def test_on_plain_loopback_the_cookie_is_not_bound_to_https() -> None:
    door = Door(Access(token=TOKEN))
    (cookie,) = door.login().headers.getlist("Set-Cookie")
    assert "Secure" not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert door.get().status_code == 200
    assert door.post(csrf=door.csrf()).status_code == 200
    assert door.post(csrf="another").status_code == 403


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), None, 5, ["x"]])
def test_a_wrong_token_is_refused_and_written_down_without_it(far: Door, token: Any) -> None:
    answer = far.login(token, X_Forwarded_For="192.0.2.7")
    assert answer.status_code == 403
    assert not answer.headers.getlist("Set-Cookie")
    (entry,) = far.audit.newest()
    assert (entry.action, entry.result, entry.ok) == ("login", "wrong token", False)
    assert entry.address == "192.0.2.7"


def test_wrong_tokens_are_throttled_the_right_one_too_and_only_that_address(far: Door) -> None:
    for _ in range(FREE_TRIES):
        assert far.login("wrong", X_Forwarded_For="192.0.2.7").status_code == 403
    for token in ("wrong", TOKEN):
        answer = far.login(token, X_Forwarded_For="192.0.2.7")
        assert answer.status_code == 429
        assert answer.headers["Retry-After"] == "1"
    assert far.login(X_Forwarded_For="192.0.2.8").status_code == 200
    far.clock.now += 1.1
    assert far.login(X_Forwarded_For="192.0.2.7").status_code == 200


def test_a_session_ends_by_logging_out_idling_and_age(far: Door) -> None:
    cookie = far.login().headers["Set-Cookie"]
    ask = _over_https(far, cookie)
    for _ in range(int(LONGEST_SECONDS / IDLE_SECONDS) * 2 - 1):
        far.clock.now += IDLE_SECONDS / 2
        assert ask("/api/start").status_code == 200
    far.clock.now += IDLE_SECONDS / 2
    assert ask("/api/start").status_code == 401

    ask = _over_https(far, far.login().headers["Set-Cookie"])
    far.clock.now += IDLE_SECONDS - 1
    assert ask("/api/session").json["who"]  # which keeps nobody in
    far.clock.now += 1
    assert ask("/api/start").status_code == 401

    answer = far.login()
    pair, csrf = answer.headers["Set-Cookie"].partition(";")[0], answer.json["csrf"]
    headers = {"Host": far.host, "Cookie": pair, CSRF_HEADER: csrf}
    client = far.app.test_client(use_cookies=False)
    out = client.post("/api/logout", json={}, headers=headers)
    assert out.status_code == 200
    assert "Max-Age=0" in out.headers["Set-Cookie"]
    assert _over_https(far, pair)("/api/start").status_code == 401
    assert [entry.action for entry in far.audit.newest()][:2] == ["logout", "login"]


def test_a_name_must_be_printable_and_short(far: Door) -> None:
    for name in ("x" * 41, "a\x1b[2J"):
        assert far.login(name=name).status_code == 400
    assert far.login(name=" Ada \n Lovelace ").json["who"].startswith("Ada Lovelace (console, ")


# The parts of it


def test_waits_grow_are_capped_and_forgotten() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    waits = []
    for _ in range(FREE_TRIES + 12):
        throttle.wrong("a")
        waits.append(throttle.wait_seconds("a"))
    assert waits[: FREE_TRIES + 3] == [0.0] * (FREE_TRIES - 1) + [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == LONGEST_WAIT
    clock.now += FORGOTTEN_SECONDS + 1
    throttle.wrong("a")
    assert throttle.wait_seconds("a") == 0


def test_many_addresses_together_are_throttled_and_take_no_room() -> None:
    throttle = Throttle(Clock())
    for number in range(FREE_TRIES_OF_ALL):
        throttle.wrong(f"a{number}")
    assert throttle.wait_seconds("another") == 1.0
    for number in range(MOST_ADDRESSES + 50):
        throttle.wrong(f"b{number}")
    assert len(throttle._tries) == MOST_ADDRESSES


def test_sessions_are_bounded_and_found_by_their_secret_alone() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    first, _ = sessions.open("first")
    secrets = []
    for number in range(MOST):
        clock.now += 1
        secrets.append(sessions.open(str(number))[0])
    assert sessions.find(first) is None
    found = [sessions.find(secret) for secret in secrets]
    assert [session.who for session in found if session] == [str(number) for number in range(MOST)]
    assert len({session.csrf for session in found if session}) == MOST
    assert sessions.find("") is None


def test_an_action_is_one_structured_line(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(lambda: 0.0)
    with caplog.at_level(logging.INFO, "telegram_connector.console"):
        audit.note("ada", "127.0.0.1", "dead.resend", [str(n) for n in range(60)], "60 done\x1b[2J", ok=True)
        audit.note("ada", "127.0.0.1", "login", [], "wrong token", ok=False)
    done, refused = caplog.records
    assert done.levelno == logging.INFO
    assert vars(done) | {
        "event": "console_action",
        "action": "dead.resend",
        "who": "ada",
        "address": "127.0.0.1",
        "count": 60,
        "result": "60 done\\x1b[2J",
        "ok": True,
    } == vars(done)
    assert len(vars(done)["ids"]) == 50
    assert refused.levelno == logging.WARNING
    for _ in range(KEPT + 5):
        audit.note("ada", "127.0.0.1", "pause", [], "done", ok=True)
    assert len(audit.newest()) == KEPT


def test_only_so_many_pages_look_on_and_each_makes_room_once() -> None:
    listeners = Listeners(2)
    watch = Watch(NOWHERE)
    first = listeners.told(watch, lambda: True)
    second = listeners.told(watch, lambda: True)
    assert first is not None
    assert second is not None
    assert listeners.told(watch, lambda: True) is None
    first.close()
    first.close()
    assert listeners.told(watch, lambda: True) is not None
    assert listeners.told(watch, lambda: True) is None


def test_a_page_whose_session_is_over_is_told_so() -> None:
    watch = Watch(NOWHERE)
    told = Listeners().told(watch, lambda: False)
    assert told is not None
    assert list(told)[-1] == b"event: ended\ndata: {}\n\n"
