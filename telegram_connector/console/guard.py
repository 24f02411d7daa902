"""What stands before every request: its host, where it comes from, who asks, and that they mean it.

Without a token, whoever is on this machine may use the page, and pages of strangers in their browsers must
not: a name that was pointed here (DNS rebinding) is known by the Host header, a request of another site's by
Origin and Sec-Fetch-Site, and every change has to come with a secret that only this page can read.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from flask import Flask, Response, g, jsonify, request

from telegram_connector import web
from telegram_connector.console.access import Access
from telegram_connector.console.audit import Audit
from telegram_connector.console.sessions import LONGEST_SECONDS, Session, Sessions
from telegram_connector.console.throttle import Throttle

CSRF_HEADER = "X-Csrf-Token"
COOKIE = "tg_console"
SAFE = ("GET", "HEAD")
LONGEST_NAME = 40
_OPEN = {"/api/login", "/api/session"}  # for those who are not logged in


class Refused(Exception):
    """Raised when a request must not be served.

    Attributes:
        status: Of the answer.
        kind: What it is about, for the page.
        retry_seconds: When to try again; None for not at all.
    """

    def __init__(self, status: int, kind: str, words: str, retry_seconds: float | None = None) -> None:
        self.status = status
        self.kind = kind
        self.retry_seconds = retry_seconds
        super().__init__(words)


class Guard:
    """Lets requests in, or not.

    Args:
        access: Who may reach the page.
        operator: Who they are that need no token.
        clock: Monotonic seconds.
    """

    def __init__(
        self, access: Access, operator: str, audit: Audit, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._access = access
        self._audit = audit
        self._clock = clock
        self._sessions = Sessions(clock)
        self._throttle = Throttle(clock)
        self._own = Session(f"{operator} (console)", secrets.token_urlsafe(32), 0.0, 0.0)

    def add_to(self, app: Flask) -> None:
        """Stand before all that the app serves."""
        app.before_request(self._let_in)
        app.after_request(self._dress)
        app.register_error_handler(Refused, _say)
        app.add_url_rule("/api/session", "session", self.session)
        app.add_url_rule("/api/login", "login", self.login, methods=["POST"])
        app.add_url_rule("/api/logout", "logout", self.logout, methods=["POST"])

    # What the page asks

    def session(self) -> Response:
        """Whether somebody is logged in, and the secret that changes have to come with."""
        session = self._session(use=False)
        return jsonify(
            login=self._access.token is not None,
            who=session.who if session else None,
            csrf=session.csrf if session else None,
        )

    def login(self) -> Response:
        """Open a session for who has the token."""
        address, given = address_of(self._access), request.get_json()
        if self._access.token is None:
            raise Refused(400, "login", "this page asks for no token")
        wait = self._throttle.wait_seconds(address)
        if wait > 0:
            words = f"too many wrong tokens; try again in {math.ceil(wait)} s"
            raise Refused(429, "throttled", words, wait)
        name = " ".join(str(given.get("name") or "").split()) if isinstance(given, dict) else ""
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise Refused(400, "login", f"a name has at most {LONGEST_NAME} printable characters")
        token = given.get("token") if isinstance(given, dict) else None
        if not isinstance(token, str) or not _same(token.strip(), self._access.token):
            self._throttle.wrong(address)
            self._audit.note(name or "somebody", address, "login", [], "wrong token", ok=False)
            raise Refused(403, "login", "that is not the token of this page")
        self._throttle.right(address)
        secret, session = self._sessions.open(f"{name or 'somebody'} (console, {address})")
        self._audit.note(session.who, address, "login", [], "logged in", ok=True)
        answer = jsonify(login=True, who=session.who, csrf=session.csrf)
        answer.set_cookie(
            self._cookie,
            secret,
            max_age=int(LONGEST_SECONDS),
            httponly=True,
            samesite="Strict",
            secure=not self._access.is_local,
            path="/",
        )
        return answer

    def logout(self) -> Response:
        """End the session."""
        secret = request.cookies.get(self._cookie, "")
        session = self._sessions.find(secret)
        self._sessions.close(secret)
        if session is not None:
            self._audit.note(session.who, address_of(self._access), "logout", [], "logged out", ok=True)
        answer = jsonify(login=True, who=None, csrf=None)
        answer.delete_cookie(
            self._cookie, path="/", httponly=True, samesite="Strict", secure=not self._access.is_local
        )
        return answer

    def still_there(self) -> Callable[[], bool]:
        """Whether the session of this request goes on, to be asked later on and again."""
        if self._access.token is None:
            return lambda: True
        secret = request.cookies.get(self._cookie, "")
        return lambda: self._sessions.find(secret, use=False) is not None

    # What happens to every request

    def _let_in(self) -> None:
        if not self._access.answers_to(request.host):
            raise Refused(421, "host", "this page is not served under that name")
        g.address = address_of(self._access)
        if not request.path.startswith("/api/"):
            return
        self._same_site()
        changes = request.method not in SAFE
        session = self._session(use=request.path not in ("/api/events", "/api/session"))
        if request.path not in _OPEN:
            if session is None:
                raise Refused(401, "login", "log in first: the session is over, or there is none")
            g.who = session.who
            if changes and not _same(request.headers.get(CSRF_HEADER, ""), session.csrf):
                raise Refused(403, "csrf", "this did not come from the page as it is now; load it again")
        if changes and request.mimetype != "application/json":
            raise Refused(415, "type", "a change is asked for in JSON")

    def _same_site(self) -> None:
        """Refuse what another site's page asks for; programs that are no browser say nothing of it."""
        site = request.headers.get("Sec-Fetch-Site")
        origin = request.headers.get("Origin")
        if site not in (None, "same-origin", "none"):
            raise Refused(403, "origin", "another site's page asked for this")
        if origin is not None and urlsplit(origin).netloc.lower() != request.host.lower():
            raise Refused(403, "origin", "another site's page asked for this")

    def _session(self, *, use: bool) -> Session | None:
        if self._access.token is None:
            return self._own
        return self._sessions.find(request.cookies.get(self._cookie, ""), use=use)

    @property
    def _cookie(self) -> str:
        # The prefix has the browser refuse it from anywhere but this very host, and over plain http.
        return COOKIE if self._access.is_local else f"__Host-{COOKIE}"

    def _dress(self, answer: Response) -> Response:
        for name, value in web.HEADERS.items():
            answer.headers[name] = value
        answer.headers["X-Frame-Options"] = "DENY"
        if not self._access.is_local:
            answer.headers["Strict-Transport-Security"] = "max-age=31536000"
        return answer


def address_of(access: Access) -> str:
    """Where a request comes from; a platform's router adds whom it speaks for at the end."""
    if access.routed:
        return request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()[:64] or "unknown"
    return request.remote_addr or "unknown"


def _same(given: str, wanted: str) -> bool:
    """Whether they are the same; the time that it takes says nothing of either."""
    one, other = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, wanted))
    return hmac.compare_digest(one, other)


def _say(refused: Refused) -> Response:
    answer = jsonify(description=str(refused), kind=refused.kind)
    answer.status_code = refused.status
    if refused.retry_seconds is not None:
        answer.headers["Retry-After"] = str(math.ceil(refused.retry_seconds))
    return answer
