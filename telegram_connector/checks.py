"""What makes the value of a setting acceptable, one value at a time.

Each check returns the value in its normal form, or raises a fault whose text continues a sentence that begins
with the variable's name. No value is ever quoted: a secret pasted into the wrong variable must not end up in
a log.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

_SEED_LENGTH = 58
_LEAST_TOKEN = 24  # characters: 144 bits where they are random, and no word that anybody thinks of
_MAX_NAME_LENGTH = 255  # nats-server: JSMaxNameLen
_MAX_COUNT = 2**31 - 1
_MAX_PORT = 65535
_MAX_SECONDS = 366 * 86_400.0  # JetStream counts nanoseconds in 64 bits; a year is a typo already
_LEAST_RATE, _MOST_RATE = 0.01, 10_000.0  # Telegram's own highest is 1000 a second
_INT64 = range(-(2**63), 2**63)

# The letter after S in a seed says whose it is.
_SEED_OWNERS = {"A": "an account", "N": "a server", "C": "a cluster", "O": "an operator", "X": "a curve"}


class ValueFaultError(Exception):
    """One value is wrong; the text continues a sentence that begins with the variable's name."""


# --- reading -----------------------------------------------------------------------------------------------


def read_whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueFaultError("must be a whole number")
    return int(text)


def read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueFaultError("must be a number of seconds") from None


def read_rate(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueFaultError("must be a number of messages") from None


def read_flag(text: str) -> bool:
    word = text.lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueFaultError("must be one of 1, 0, true, false, yes, no, on, off")


# --- checking one value ------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueFaultError("must be text")
    return value.strip()


def optional(check: Callable[[str], Any]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        text = _text(value)
        return check(text) if text else None

    return checked


def maybe(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """None, or what ``check`` allows."""

    def checked(value: Any) -> Any:
        return None if value is None else check(value)

    return checked


def whole(minimum: int, maximum: int = _MAX_COUNT) -> Callable[[Any], int]:
    def checked(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueFaultError("must be a whole number")
        if not minimum <= value <= maximum:
            raise ValueFaultError(f"must be at least {minimum} and at most {maximum}")
        return value

    return checked


def seconds(minimum: float, *, above: bool = False) -> Callable[[Any], float]:
    def checked(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueFaultError("must be a number of seconds")
        too_small = value <= minimum if above else value < minimum
        if not math.isfinite(value) or too_small or value > _MAX_SECONDS:
            words = "more than" if above else "at least"
            raise ValueFaultError(f"must be {words} {minimum:g} and at most {_MAX_SECONDS:g} seconds")
        return float(value)

    return checked


def rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueFaultError("must be a number of messages")
    if not _LEAST_RATE <= value <= _MOST_RATE:  # not a number fails this, too
        raise ValueFaultError(f"must be at least {_LEAST_RATE:g} and at most {_MOST_RATE:g} messages")
    return float(value)


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueFaultError("must be true or false")
    return value


def one_of(*words: str) -> Callable[[Any], str]:
    def checked(value: Any) -> str:
        text = _text(value)
        for word in words:
            if text.lower() == word.lower():
                return word
        raise ValueFaultError(f"must be {'one of ' if len(words) > 2 else ''}{' or '.join(words)}")

    return checked


def jetstream_name(value: Any) -> str:
    text = _text(value)
    # No such character may stand in the subjects that JetStream makes of the name.
    if not re.fullmatch(r"[^\s.*>/\\\x00-\x1f\x7f]+", text) or len(text) > _MAX_NAME_LENGTH:
        raise ValueFaultError("must be a JetStream name: no white space and none of . * > / \\")
    return text


def subject(value: Any) -> str:
    text = _text(value)
    tokens = text.split(".")
    if not all(re.fullmatch(r"[^\s*>\x00-\x1f\x7f]+|\*|>", token) for token in tokens) or ">" in tokens[:-1]:
        raise ValueFaultError(
            "must be a NATS subject: words joined by dots, without white space; "
            "* only as a whole word, > only as the last word"
        )
    return text


def plain_subject(value: Any) -> str:
    text = subject(value)
    if {"*", ">"} & set(text.split(".")):
        raise ValueFaultError("must be a NATS subject without wildcards: something is published to it")
    return text


def chat_id(value: Any) -> str:
    text = _text(value)
    if not text:
        raise ValueFaultError("is not set; it is the chat of messages that name none, and of alerts")
    if re.fullmatch(r"@[A-Za-z0-9_]{4,}", text):
        return text
    if re.fullmatch(r"-?[1-9][0-9]{0,18}", text) and int(text) in _INT64:
        return text
    raise ValueFaultError("must be a chat id (decimal, groups are negative) or @name")


def bot_token(value: Any) -> str:
    text = _text(value)
    # The Bot API server refuses a leading 0 and more than 80 bytes outright (telegram-bot-api, Client.cpp).
    if text and (len(text) > 80 or not re.fullmatch(r"[1-9][0-9]*:[A-Za-z0-9_-]{30,}", text)):
        raise ValueFaultError(
            "is not a bot token: digits, a colon, then about 35 letters, digits, _ or -, "
            "without quotes, spaces or the word bot"
        )
    return text


def console_token(text: str) -> str:
    """Check what opens the operator's page."""
    if re.fullmatch(r"[1-9][0-9]*:[A-Za-z0-9_-]{30,}", text):
        raise ValueFaultError("is a bot's token; it must be one of its own, which nothing else knows")
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueFaultError("has white space or letters in it that not every keyboard has")
    if len(text) < _LEAST_TOKEN or len(set(text)) < _LEAST_TOKEN // 3:
        raise ValueFaultError(
            f"is too easy to guess: take {_LEAST_TOKEN} random characters (openssl rand -base64 24)"
        )
    return text


def _split(url: str) -> SplitResult:
    """Split an absolute URL.

    Raises:
        ValueFaultError: It is no URL: white space, no host, a port that is no port.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueFaultError("is not a URL: its host or port cannot be read") from None
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ValueFaultError("is not a URL: it has white space in it")
    if not parts.hostname or port == 0:
        raise ValueFaultError("is not a URL: it names no host, or port 0")
    return parts


def nats_url(value: Any) -> str:
    servers = [item.strip() for item in _text(value).split(",") if item.strip()]
    if not servers:
        raise ValueFaultError("is not set")
    whole = []
    for server in servers:
        url = server if "://" in server else f"nats://{server}"
        parts = _split(url)
        if parts.scheme not in ("nats", "tls"):
            raise ValueFaultError("must begin with nats:// or tls://")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueFaultError("must be scheme, host and port only; several servers are parted by commas")
        whole.append(url.rstrip("/"))
    with_credentials = sum("@" in urlsplit(url).netloc for url in whole)
    if with_credentials not in (0, len(whole)):
        raise ValueFaultError("has credentials for some of its servers only; the others would refuse us")
    return ",".join(whole)


def user_seed(text: str) -> str:
    """Check a user's nkey seed, checksum included.

    The libraries raise five kinds of exception for a bad seed, or none: a mistyped one is only noticed by the
    server, as an authorization violation.
    """
    if re.search(r"['\"`]", text):
        raise ValueFaultError("has quotes in it; give the seed alone")
    if re.search(r"\s|\\", text):
        raise ValueFaultError("has white space or a backslash in it; give the seed alone, on one line")
    if text != text.upper():
        raise ValueFaultError("has lower-case letters; a seed is all upper case")
    if not re.fullmatch(r"[A-Z2-7]+", text):
        raise ValueFaultError("has characters that no seed has (only A to Z and 2 to 7)")
    if text[0] in "UANCOX":
        raise ValueFaultError("is a public key, not a seed; a user's seed begins with SU")
    if text[0] == "S" and text[1:2] in _SEED_OWNERS:
        raise ValueFaultError(f"is the seed of {_SEED_OWNERS[text[1]]}; a user's begins with SU")
    if not text.startswith("SU"):
        raise ValueFaultError("is not a seed; a user's seed begins with SU")
    if len(text) != _SEED_LENGTH:
        how = "is cut short" if len(text) < _SEED_LENGTH else "is too long"
        raise ValueFaultError(f"{how}: {len(text)} of {_SEED_LENGTH} characters")
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    is_seed = raw[0] & 0xF8 == 18 << 3
    is_user = (raw[0] & 0x07) << 5 | (raw[1] & 0xF8) >> 3 == 20 << 3
    body, checksum = raw[:-2], int.from_bytes(raw[-2:], "little")
    canonical = base64.b32encode(raw).decode("ascii").rstrip("=") == text
    if not (is_seed and is_user and canonical and binascii.crc_hqx(body, 0) == checksum):
        raise ValueFaultError("fails its checksum: probably a typo, or part of it is missing")
    return text


JWT_SECTION = re.compile(r"-{3,}BEGIN NATS USER JWT-{3,}\s+([\w.=-]+?)\s+-{3,}END")
SEED_SECTION = re.compile(r"-{3,}BEGIN USER NKEY SEED-{3,}\s+(.+?)\s+-{3,}END")


def creds(text: str) -> str:
    if "\\n" in text:
        raise ValueFaultError("has the two characters \\n where line ends belong")
    seed = SEED_SECTION.search(text)
    if not JWT_SECTION.search(text) or not seed:
        raise ValueFaultError(
            "is not a NATS credentials file: a user JWT and a user seed, each between its marks"
        )
    try:
        user_seed(seed[1])
    except ValueFaultError as fault:
        raise ValueFaultError(f"is at fault: the seed in it {fault}") from None
    return text


def _readable(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "it cannot be opened"
        raise ValueFaultError(f"names a file that cannot be read ({reason})") from None
    except ValueError:  # not UTF-8, or a NUL in the path
        raise ValueFaultError("names a file that cannot be read as text") from None


def creds_file(path: str) -> str:
    creds(_readable(path).strip())
    return path


def authority(text: str) -> str:
    pem = text if "-----BEGIN" in text else _readable(text)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise ValueFaultError("holds no certificates in PEM form") from None
    return text


def api_base_url(value: Any) -> str:
    text = _text(value).rstrip("/")
    parts = _split(text)
    if parts.scheme not in ("https", "http"):
        raise ValueFaultError("must begin with https://")
    if "@" in parts.netloc or parts.query or parts.fragment or text.endswith(("?", "#")):
        raise ValueFaultError("must not have a user, a query or a fragment")
    if re.search(r"/bot([0-9]|$)", parts.path):
        raise ValueFaultError("must end before /bot<token>; the connector adds that itself")
    return text


def proxy(url: str) -> str:
    scheme = _split(url).scheme
    if scheme not in ("http", "https", "socks4", "socks4a", "socks5", "socks5h"):
        raise ValueFaultError(
            "must begin with http://, https://, socks5h://, socks5://, socks4a:// or socks4://"
        )
    if scheme.startswith("socks") and importlib.util.find_spec("socks") is None:
        raise ValueFaultError("is a SOCKS proxy, which needs: pip install 'telegram-connector[socks]'")
    return url


def metrics_port(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueFaultError("must be a whole number")
    if not 1 <= value <= _MAX_PORT:
        raise ValueFaultError(f"must be a port: 1 to {_MAX_PORT}")
    if importlib.util.find_spec("prometheus_client") is None:
        raise ValueFaultError("needs: pip install 'telegram-connector[prometheus]'")
    return value


def address(value: Any) -> str:
    try:
        return str(ipaddress.ip_address(_text(value)))
    except ValueError:
        raise ValueFaultError("must be an IP address of this machine, e.g. 127.0.0.1 or 0.0.0.0") from None


def readable_path(path: str) -> str:
    if not os.access(path, os.R_OK):
        raise ValueFaultError("names a file or directory that cannot be read")
    return path


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def passwords_in(url: str) -> tuple[str, ...]:
    """Return what is secret in a URL: its password, or a user that stands alone (a NATS token)."""
    # Not urlsplit: what cannot be parsed may hold a password all the same.
    userinfo = re.match(r"(?:[A-Za-z0-9+.-]+://)?([^/?#]*)@", url)
    if not userinfo:
        return ()
    user, colon, password = userinfo[1].partition(":")
    secret = password if colon else user
    return tuple(dict.fromkeys(form for form in (secret, unquote(secret)) if form))
