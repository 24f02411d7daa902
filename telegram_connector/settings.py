"""What the connector is told from outside: frozen, checked as a whole, silent about secrets.

``Settings.from_env(mapping)`` reads variables, ``Settings(...)`` reads none; both check the same and report
every fault at once, each beginning with the variable's name. No value is ever quoted: a secret pasted into
the wrong variable must not end up in a log.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import ipaddress
import math
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # absent from typeshed

from .errors import SettingsError

_TELEGRAM = "api.telegram.org"
_SEED_LENGTH = 58
_MAX_NAME_LENGTH = 255  # nats-server: JSMaxNameLen
_MAX_COUNT = 2**31 - 1
_MAX_SECONDS = 366 * 86_400.0  # JetStream counts nanoseconds in 64 bits; a year is a typo already
_INT64 = range(-(2**63), 2**63)

# The letter after S in a seed says whose it is.
_SEED_OWNERS = {"A": "an account", "N": "a server", "C": "a cluster", "O": "an operator", "X": "a curve"}


class _FaultError(Exception):
    """One value is wrong; the text continues a sentence that begins with the variable's name."""


@dataclass(frozen=True)
class _Rule:
    """How one field is read and checked.

    Attributes:
        names: Its variables, the one that faults name first.
        read: Text of the environment to value.
        check: Value to normalised value; also what ``Settings(...)`` goes through.
    """

    names: tuple[str, ...]
    read: Callable[[str], Any]
    check: Callable[[Any], Any]


def _setting(
    *names: str, default: Any, check: Callable[[Any], Any], read: Any = str, shown: bool = True
) -> Any:
    return field(default=default, repr=shown, metadata={"rule": _Rule(names, read, check)})


def _rule(item: Field[Any]) -> _Rule:
    rule: _Rule = item.metadata["rule"]
    return rule


# --- reading -----------------------------------------------------------------------------------------------


def _read_whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise _FaultError("must be a whole number")
    return int(text)


def _read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _FaultError("must be a number of seconds") from None


def _read_flag(text: str) -> bool:
    word = text.lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise _FaultError("must be one of 1, 0, true, false, yes, no, on, off")


# --- checking one value ------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _FaultError("must be text")
    return value.strip()


def _optional(check: Callable[[str], Any]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        text = _text(value)
        return check(text) if text else None

    return checked


def _whole(minimum: int) -> Callable[[Any], int]:
    def checked(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _FaultError("must be a whole number")
        if not minimum <= value <= _MAX_COUNT:
            raise _FaultError(f"must be at least {minimum} and at most {_MAX_COUNT}")
        return value

    return checked


def _seconds(minimum: float, *, above: bool = False) -> Callable[[Any], float]:
    def checked(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _FaultError("must be a number of seconds")
        too_small = value <= minimum if above else value < minimum
        if not math.isfinite(value) or too_small or value > _MAX_SECONDS:
            words = "more than" if above else "at least"
            raise _FaultError(f"must be {words} {minimum:g} and at most {_MAX_SECONDS:g} seconds")
        return float(value)

    return checked


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _FaultError("must be true or false")
    return value


def _one_of(*words: str) -> Callable[[Any], str]:
    def checked(value: Any) -> str:
        text = _text(value)
        for word in words:
            if text.lower() == word.lower():
                return word
        raise _FaultError(f"must be {' or '.join(words)}")

    return checked


def _name(value: Any) -> str:
    text = _text(value)
    # No such character may stand in the subjects that JetStream makes of the name.
    if not re.fullmatch(r"[^\s.*>/\\\x00-\x1f\x7f]+", text) or len(text) > _MAX_NAME_LENGTH:
        raise _FaultError("must be a JetStream name: no white space and none of . * > / \\")
    return text


def _subject(value: Any) -> str:
    text = _text(value)
    tokens = text.split(".")
    if not all(re.fullmatch(r"[^\s*>\x00-\x1f\x7f]+|\*|>", token) for token in tokens) or ">" in tokens[:-1]:
        raise _FaultError(
            "must be a NATS subject: words joined by dots, without white space; "
            "* only as a whole word, > only as the last word"
        )
    return text


def _chat_id(value: Any) -> str:
    text = _text(value)
    if not text:
        raise _FaultError("is not set; it is the chat of messages that name none, and of alerts")
    if re.fullmatch(r"@[A-Za-z0-9_]{4,}", text):
        return text
    if re.fullmatch(r"-?[1-9][0-9]{0,18}", text) and int(text) in _INT64:
        return text
    raise _FaultError("must be a chat id (decimal, groups are negative) or @name")


def _bot_token(value: Any) -> str:
    text = _text(value)
    # The Bot API server refuses a leading 0 and more than 80 bytes outright (telegram-bot-api, Client.cpp).
    if text and (len(text) > 80 or not re.fullmatch(r"[1-9][0-9]*:[A-Za-z0-9_-]{30,}", text)):
        raise _FaultError(
            "is not a bot token: digits, a colon, then about 35 letters, digits, _ or -, "
            "without quotes, spaces or the word bot"
        )
    return text


def _split(url: str) -> SplitResult:
    """Split an absolute URL.

    Raises:
        _FaultError: It is no URL: white space, no host, a port that is no port.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _FaultError("is not a URL: its host or port cannot be read") from None
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise _FaultError("is not a URL: it has white space in it")
    if not parts.hostname or port == 0:
        raise _FaultError("is not a URL: it names no host, or port 0")
    return parts


def _nats_url(value: Any) -> str:
    servers = [item.strip() for item in _text(value).split(",") if item.strip()]
    if not servers:
        raise _FaultError("is not set")
    whole = []
    for server in servers:
        url = server if "://" in server else f"nats://{server}"
        parts = _split(url)
        if parts.scheme not in ("nats", "tls"):
            raise _FaultError("must begin with nats:// or tls://")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise _FaultError("must be scheme, host and port only; several servers are parted by commas")
        whole.append(url.rstrip("/"))
    with_credentials = sum("@" in urlsplit(url).netloc for url in whole)
    if with_credentials not in (0, len(whole)):
        raise _FaultError("has credentials for some of its servers only; the others would refuse us")
    return ",".join(whole)


def _seed(text: str) -> str:
    """Check a user's nkey seed, checksum included.

    The libraries raise five kinds of exception for a bad seed, or none: a mistyped one is only noticed by the
    server, as an authorization violation.
    """
    if re.search(r"['\"`]", text):
        raise _FaultError("has quotes in it; give the seed alone")
    if re.search(r"\s|\\", text):
        raise _FaultError("has white space or a backslash in it; give the seed alone, on one line")
    if text != text.upper():
        raise _FaultError("has lower-case letters; a seed is all upper case")
    if not re.fullmatch(r"[A-Z2-7]+", text):
        raise _FaultError("has characters that no seed has (only A to Z and 2 to 7)")
    if text[0] in "UANCOX":
        raise _FaultError("is a public key, not a seed; a user's seed begins with SU")
    if text[0] == "S" and text[1:2] in _SEED_OWNERS:
        raise _FaultError(f"is the seed of {_SEED_OWNERS[text[1]]}; a user's begins with SU")
    if not text.startswith("SU"):
        raise _FaultError("is not a seed; a user's seed begins with SU")
    if len(text) != _SEED_LENGTH:
        how = "is cut short" if len(text) < _SEED_LENGTH else "is too long"
        raise _FaultError(f"{how}: {len(text)} of {_SEED_LENGTH} characters")
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    is_seed = raw[0] & 0xF8 == 18 << 3
    is_user = (raw[0] & 0x07) << 5 | (raw[1] & 0xF8) >> 3 == 20 << 3
    body, checksum = raw[:-2], int.from_bytes(raw[-2:], "little")
    canonical = base64.b32encode(raw).decode("ascii").rstrip("=") == text
    if not (is_seed and is_user and canonical and binascii.crc_hqx(body, 0) == checksum):
        raise _FaultError("fails its checksum: probably a typo, or part of it is missing")
    return text


_JWT_SECTION = re.compile(r"-{3,}BEGIN NATS USER JWT-{3,}\s+([\w.=-]+?)\s+-{3,}END")
_SEED_SECTION = re.compile(r"-{3,}BEGIN USER NKEY SEED-{3,}\s+(.+?)\s+-{3,}END")


def _creds(text: str) -> str:
    if "\\n" in text:
        raise _FaultError("has the two characters \\n where line ends belong")
    seed = _SEED_SECTION.search(text)
    if not _JWT_SECTION.search(text) or not seed:
        raise _FaultError(
            "is not a NATS credentials file: a user JWT and a user seed, each between its marks"
        )
    try:
        _seed(seed[1])
    except _FaultError as fault:
        raise _FaultError(f"is at fault: the seed in it {fault}") from None
    return text


def _readable(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "it cannot be opened"
        raise _FaultError(f"names a file that cannot be read ({reason})") from None
    except ValueError:  # not UTF-8, or a NUL in the path
        raise _FaultError("names a file that cannot be read as text") from None


def _creds_file(path: str) -> str:
    _creds(_readable(path).strip())
    return path


def _ca(text: str) -> str:
    pem = text if "-----BEGIN" in text else _readable(text)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise _FaultError("holds no certificates in PEM form") from None
    return text


def _api_base_url(value: Any) -> str:
    text = _text(value).rstrip("/")
    parts = _split(text)
    if parts.scheme not in ("https", "http"):
        raise _FaultError("must begin with https://")
    if "@" in parts.netloc or parts.query or parts.fragment or text.endswith(("?", "#")):
        raise _FaultError("must not have a user, a query or a fragment")
    if re.search(r"/bot([0-9]|$)", parts.path):
        raise _FaultError("must end before /bot<token>; the connector adds that itself")
    return text


def _ca_bundle(path: str) -> str:
    if not os.access(path, os.R_OK):
        raise _FaultError("names a file or directory that cannot be read")
    return path


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _passwords(url: str) -> tuple[str, ...]:
    """Return what is secret in a URL: its password, or a user that stands alone (a NATS token)."""
    # Not urlsplit: what cannot be parsed may hold a password all the same.
    userinfo = re.match(r"(?:[A-Za-z0-9+.-]+://)?([^/?#]*)@", url)
    if not userinfo:
        return ()
    user, colon, password = userinfo[1].partition(":")
    secret = password if colon else user
    return tuple(dict.fromkeys(form for form in (secret, unquote(secret)) if form))


# --- the settings ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NatsSettings:
    """What it takes to reach NATS: enough for the bridge, a publisher and the command line.

    Attributes:
        nats_url: Servers, parted by commas, ``nats://`` or ``tls://``.
        nats_nkey_seed: Seed of our nkey user.
        nats_creds: Text of a credentials file.
        nats_creds_file: Path of one.
        nats_auth: ``"none"`` where there is no authentication on purpose.
        nats_ca: PEM text, or the path of a PEM file, of the authority that signed the server's certificate.
        durable: Name of the durable consumer.
        stream: Name of the stream.
        subject: What the consumer filters on, and where to publish to.
        ack_wait_seconds: How long a delivery is ours before JetStream hands it out again.
        max_pending: How many deliveries may be unsettled at a time.

    Raises:
        SettingsError: Anything is missing or wrong; lists every fault.
    """

    nats_url: str = _setting("NATS_URL", default="", check=_nats_url, shown=False)
    nats_nkey_seed: str | None = _setting(
        "NATS_TELEGRAM_NKEY_SEED", default=None, check=_optional(_seed), shown=False
    )
    nats_creds: str | None = _setting("NATS_CREDS", default=None, check=_optional(_creds), shown=False)
    nats_creds_file: str | None = _setting("NATS_CREDS_FILE", default=None, check=_optional(_creds_file))
    nats_auth: str | None = _setting("NATS_AUTH", default=None, check=_optional(_one_of("none")))
    nats_ca: str | None = _setting("NATS_CA", default=None, check=_optional(_ca), shown=False)
    durable: str = _setting("TG_DURABLE_NAME", default="tg_outbound", check=_name)
    stream: str = _setting("TG_STREAM", default="TELEGRAM_OUTBOUND", check=_name)
    subject: str = _setting("TG_SUBJECT", default="telegram.outbound", check=_subject)
    ack_wait_seconds: float = _setting("TG_ACK_WAIT_SECS", default=60.0, check=_seconds(1), read=_read_number)
    max_pending: int = _setting("TG_MAX_PENDING", default=10_000, check=_whole(1), read=_read_whole)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> NatsSettings:
        """Read the settings from ``env``; a variable that is empty or white space counts as unset.

        Raises:
            SettingsError: Anything is missing or wrong; lists every fault.
        """
        return cls(**_read(cls, env))

    def __post_init__(self) -> None:
        faults = []
        for item in fields(self):
            rule = _rule(item)
            try:
                object.__setattr__(self, item.name, rule.check(getattr(self, item.name)))
            except _FaultError as fault:
                faults.append(f"{rule.names[0]} {fault}")
        faults += self._joint_faults({fault.split(" ", 1)[0] for fault in faults})
        if faults:
            raise SettingsError(_in_order(type(self), faults))

    def _joint_faults(self, at_fault: set[str]) -> list[str]:
        """Return what only shows when several fields are seen together.

        Args:
            at_fault: Variables that are known to be wrong by themselves; nothing is derived from them.
        """
        ways = [
            rule.names[0]
            for item in fields(self)
            if (rule := _rule(item)).names[0] in _AUTH_VARIABLES and getattr(self, item.name)
        ]
        if "NATS_URL" not in at_fault and any(_passwords(url) for url in self.nats_servers):
            ways.insert(0, "NATS_URL")
        if len(ways) > 1:
            how = [f"{name} (credentials in it)" if name == "NATS_URL" else name for name in ways]
            return [f"{' and '.join(how)} contradict each other: give one way to log in to NATS"]
        if not ways and not at_fault & {"NATS_URL", *_AUTH_VARIABLES}:
            return [
                "NATS_TELEGRAM_NKEY_SEED is not set, and neither is NATS_CREDS, NATS_CREDS_FILE "
                "or credentials in NATS_URL; NATS_AUTH=none says that the server wants none"
            ]
        return []

    @property
    def nats_servers(self) -> tuple[str, ...]:
        """The servers one by one, credentials included."""
        return tuple(self.nats_url.split(",")) if self.nats_url else ()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value that logs must be scrubbed of."""
        found = [self.nats_nkey_seed or "", self.nats_creds or ""]
        for section in (_JWT_SECTION, _SEED_SECTION):
            found += section.findall(self.nats_creds or "")
        for url in self.nats_servers:
            found += _passwords(url)
        return tuple(dict.fromkeys(secret for secret in found if secret))


_AUTH_VARIABLES = ("NATS_TELEGRAM_NKEY_SEED", "NATS_CREDS", "NATS_CREDS_FILE", "NATS_AUTH")


@dataclass(frozen=True, kw_only=True)
class Settings(NatsSettings):
    """Everything the relay is told.

    Without a bot token or a NATS URL it is dormant: nothing else is checked and nothing raised.

    Attributes:
        bot_token: The bot's token.
        chat_id: Chat of envelopes that name none, and of alerts: decimal or ``@name``.
        api_base_url: Bot API server, without a trailing slash.
        allow_http: Whether plain http may go to another host than this one.
        max_deliver: Failed attempts after which a message is given up.
        nak_backoff_seconds: Wait after the first failed attempt; it doubles with each further one.
        drain_seconds: Budget of a stop.
        log_level: ``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``.
        log_format: ``json`` or ``text``.
        https_proxy: Proxy towards the Bot API; ``proxy_url`` says whether it is used.
        no_proxy: Hosts that are reached without it, parted by commas.
        ca_bundle: File or directory of authorities that the Bot API's certificate is checked against.
    """

    bot_token: str = _setting("TELEGRAM_BOT_TOKEN", default="", check=_bot_token, shown=False)
    chat_id: str = _setting("TELEGRAM_CHAT_ID", default="", check=_chat_id)
    api_base_url: str = _setting(
        "TELEGRAM_API_BASE_URL", default=f"https://{_TELEGRAM}", check=_api_base_url, shown=False
    )
    allow_http: bool = _setting("TG_ALLOW_HTTP", default=False, check=_flag, read=_read_flag)
    max_deliver: int = _setting("TG_MAX_DELIVER", default=5, check=_whole(1), read=_read_whole)
    nak_backoff_seconds: float = _setting(
        "TG_NAK_BACKOFF_SECS", default=30.0, check=_seconds(0, above=True), read=_read_number
    )
    drain_seconds: float = _setting("TG_DRAIN_SECS", default=25.0, check=_seconds(0), read=_read_number)
    log_level: str = _setting("LOG_LEVEL", default="INFO", check=_one_of("DEBUG", "INFO", "WARNING", "ERROR"))
    log_format: str = _setting("LOG_FORMAT", default="json", check=_one_of("json", "text"))
    https_proxy: str | None = _setting(
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        default=None,
        check=_optional(str),
        shown=False,
    )
    no_proxy: str | None = _setting("no_proxy", "NO_PROXY", default=None, check=_optional(str))
    ca_bundle: str | None = _setting(
        "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", default=None, check=_optional(str)
    )

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the settings from ``env``; a variable that is empty or white space counts as unset.

        Raises:
            SettingsError: Not dormant, and anything is missing or wrong; lists every fault.
        """
        return cls(**_read(cls, env))

    def __post_init__(self) -> None:
        if self.dormant:
            return
        super().__post_init__()

    def _joint_faults(self, at_fault: set[str]) -> list[str]:
        faults = super()._joint_faults(at_fault)
        if "TELEGRAM_API_BASE_URL" in at_fault:
            return faults
        api = urlsplit(self.api_base_url)
        if api.scheme == "http" and not self.allow_http and not _is_loopback(api.hostname or ""):
            faults.append(
                "TELEGRAM_API_BASE_URL must begin with https://: over http the token can be read on the way. "
                "TG_ALLOW_HTTP=1 allows it to a host other than this one"
            )
        try:
            _check_proxy(self.proxy_url)
        except _FaultError as fault:
            faults.append(f"{api.scheme.upper()}_PROXY (or ALL_PROXY) {fault}")
        try:
            if self.ca_bundle and api.scheme == "https":
                _ca_bundle(self.ca_bundle)
        except _FaultError as fault:
            faults.append(f"REQUESTS_CA_BUNDLE (or CURL_CA_BUNDLE) {fault}")
        return faults

    @property
    def dormant(self) -> tuple[str, ...]:
        """Which of the two variables that wake the relay are missing; empty when it is to run."""
        pairs = (("TELEGRAM_BOT_TOKEN", self.bot_token), ("NATS_URL", self.nats_url))
        return tuple(name for name, value in pairs if value is None or not str(value).strip())

    @property
    def api_is_telegram(self) -> bool:
        """Whether messages go to Telegram's own server, to real chats."""
        return (urlsplit(self.api_base_url).hostname or "") == _TELEGRAM

    @property
    def proxy_url(self) -> str | None:
        """The proxy that the Bot API is reached through, credentials included; None for none."""
        api = urlsplit(self.api_base_url)
        host = api.hostname or ""
        if not self.https_proxy or _is_loopback(host):
            return None
        # With its port, so that NO_PROXY may name one; the function looks at its arguments only.
        if proxy_bypass_environment(api.netloc if api.port else host, {"no": self.no_proxy or ""}):
            return None
        return self.https_proxy if "://" in self.https_proxy else f"http://{self.https_proxy}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value that logs must be scrubbed of."""
        proxy = self.https_proxy or ""
        of_proxy = _passwords(proxy if "://" in proxy else f"http://{proxy}")
        return tuple(dict.fromkeys((*filter(None, (self.bot_token,)), *super().secrets, *of_proxy)))


def _check_proxy(url: str | None) -> None:
    if url is None:
        return
    scheme = _split(url).scheme
    if scheme not in ("http", "https", "socks4", "socks4a", "socks5", "socks5h"):
        raise _FaultError("must begin with http://, https://, socks5h://, socks5://, socks4a:// or socks4://")
    if scheme.startswith("socks") and importlib.util.find_spec("socks") is None:
        raise _FaultError("is a SOCKS proxy, which needs: pip install 'telegram-connector[socks]'")


def variables(cls: type[NatsSettings]) -> tuple[str, ...]:
    """Return every environment variable that ``cls.from_env`` looks at."""
    return tuple(name for item in fields(cls) for name in _rule(item).names)


def unknown_variables(env: Iterable[str]) -> tuple[str, ...]:
    """Return the names in ``env`` that look like ours (``TG_``) but are no setting: probably typos."""
    known = set(variables(Settings))
    return tuple(sorted(name for name in env if name.startswith("TG_") and name not in known))


def _read(cls: type[NatsSettings], env: Mapping[str, str]) -> dict[str, Any]:
    """Turn variables into arguments of ``cls``.

    Raises:
        SettingsError: A value cannot be read, unless the settings are dormant.
    """
    found: dict[str, Any] = {}
    faults = []
    for item in fields(cls):
        rule = _rule(item)
        text = _proxy_from(env) if item.name == "https_proxy" else _first(env, rule.names)
        if not text:
            continue
        try:
            found[item.name] = rule.read(text)
        except _FaultError as fault:
            faults.append(f"{rule.names[0]} {fault}")
    if issubclass(cls, Settings) and not (found.get("bot_token") and found.get("nats_url")):
        return {name: _sound(cls, name, value) for name, value in found.items()}
    if faults:
        try:
            cls(**found)
        except SettingsError as error:
            faults += error.faults
        raise SettingsError(_in_order(cls, faults))
    return found


def _sound(cls: type[NatsSettings], name: str, value: Any) -> Any:
    """Return a dormant setting, or its default where it is wrong: the log is still set up by it."""
    item = next(item for item in fields(cls) if item.name == name)
    try:
        return _rule(item).check(value)
    except _FaultError:
        # These two are kept, so that `dormant` does not call them unset.
        return value if name in ("bot_token", "nats_url") else item.default


def _first(env: Mapping[str, str], names: Iterable[str]) -> str:
    return next((text for name in names if (text := env.get(name, "").strip())), "")


def _proxy_from(env: Mapping[str, str]) -> str:
    """Return the proxy for the Bot API's scheme, else the one for all; lower case wins, as in urllib."""
    scheme = "http" if env.get("TELEGRAM_API_BASE_URL", "").strip().lower().startswith("http:") else "https"
    names = [form for word in (f"{scheme}_proxy", "all_proxy") for form in (word, word.upper())]
    return _first(env, names)


def _in_order(cls: type[NatsSettings], faults: Iterable[str]) -> list[str]:
    """Sort faults as their variables are listed."""
    known = variables(cls)
    return sorted(faults, key=lambda fault: known.index(re.split(r"\W", fault, maxsplit=1)[0]))
