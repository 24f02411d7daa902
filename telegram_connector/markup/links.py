"""What Telegram makes of an address: a link in its normal form, a mention, an emoji, a date, or nothing."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

MAX_USER_ID = 2**40 - 1
_INT32_MAX = 2**31 - 1
_INT64 = range(-(2**63), 2**63)

_SCHEME = re.compile(r"(tg|ton|tonsite):(?://)?", re.IGNORECASE | re.ASCII)
_PROTOCOL = re.compile(r"([^:/?#@\[\]]*)://")
_AUTHORITY = re.compile(r"[^/?#]*")
_BAD_IN_USER = re.compile(r"[^A-Za-z0-9.\-_!$,~*'();&+=:%\x80-\U0010ffff]|%(?![0-9A-Fa-f]{2})")
_BAD_IN_HOST = re.compile(r"[^A-Za-z0-9.\-_!$,~*'();&+=%\x80-\U0010ffff]|%(?![0-9A-Fa-f]{2})")
_SPACES = " \t\r\n\v\0"
_WHOLE = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class UnusableLink(Exception):
    """No link can be made of it; the text is Telegram's reason."""


def ascii_lower(text: str) -> str:
    """In lower case as Telegram does it: ASCII letters alone."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def whole(text: str, allowed: range = _INT64) -> int | None:
    """The number if it is written in the plainest way and in range."""
    # Longer ones are out of range anyway, and int() refuses very long ones.
    if len(text) > 20 or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if number in allowed else None


def checked(url: str) -> str:
    """The normal form of a link.

    Raises:
        UnusableLink: Telegram would drop it.
    """
    scheme = _SCHEME.match(url)
    if scheme is None:
        protocol, user, host, port, rest = _split(url)
        if "." not in host and not host.startswith("["):
            raise UnusableLink("Wrong HTTP URL")
        return f"{protocol}://{user + '@' if user else ''}{host}{f':{port}' if port else ''}{rest}"
    name, url = ascii_lower(scheme[1]), url[scheme.end() :]
    protocol, user, host, port, rest = _split(url)
    with_protocol = protocol == "https" or ascii_lower(url[:7]) == "http://"
    if with_protocol or user or port or host.startswith("["):
        raise UnusableLink("Wrong tg URL" if name == "tg" else "Wrong ton URL")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+" if name == "tonsite" else r"[A-Za-z0-9_-]+", host):
        raise UnusableLink("Unallowed characters in URL host")
    return f"{name}://{host}{rest[1:] if rest.startswith('/?') else rest}"


def user_id(url: str) -> int | None:
    """The user that ``tg://user?id=N`` mentions."""
    if ascii_lower(url[:3]) != "tg:":
        return None
    for name, value in _query(ascii_lower(url), "user"):
        if name == "id":
            return whole(value, range(1, MAX_USER_ID + 1))
    return None


def custom_emoji_id(url: str) -> str | None:
    """The emoji of ``tg://emoji?id=N``."""
    for name, value in _query(url, "emoji"):
        if name == "id":
            return emoji_number(value)
    return None


def emoji_number(text: str) -> str | None:
    """A custom emoji's number, which is any but 0."""
    return str(whole(text)) if whole(text) else None


def date_time(url: str) -> tuple[int, str] | None:
    """The seconds and format of ``tg://time?unix=N&format=F``."""
    seconds: int | None = None
    letters = ""
    for name, value in _query(url, "time"):
        if name == "unix":
            seconds = whole(value, range(1, _INT32_MAX + 1))
            if seconds is None:
                return None
        elif name == "format":
            letters = value
    written = date_format(letters)
    return None if seconds is None or written is None else (seconds, written)


def date_format(letters: str) -> str | None:
    """A date's format in Telegram's order: weekday, date, time; None if it is no format."""
    if letters in ("r", "R"):
        return "r"
    if set(letters) - set("tTdDwW"):
        return None
    day = "w" if set(letters) & set("wW") else ""
    # Where both the short and the long form are asked for, the short one wins.
    date = next((letter for letter in "dD" if letter in letters), "")
    time = next((letter for letter in "tT" if letter in letters), "")
    return day + date + time


def lenient_int32(text: str) -> int:
    """The number that a text begins with, as the original reads it: 0 without any, wrapped at 32 bits."""
    match = re.match(r"(-?)([0-9]*)", text, re.ASCII)
    sign, digits = (match[1], match[2]) if match else ("", "")
    # 10**32 is a multiple of 2**32: only the last digits count.
    number = int(digits[-32:] or "0") % 2**32
    signed = number - 2**32 if number > _INT32_MAX else number
    return -signed if sign and signed != -(2**31) else signed


def _query(url: str, host: str) -> Iterator[tuple[str, str]]:
    """The parameters of a ``tg:`` address of that host."""
    match = re.match(rf"tg:(?://)?{host}/?\?([^#]*)", url, re.IGNORECASE | re.ASCII)
    for parameter in match[1].split("&") if match else ():
        name, _, value = parameter.partition("=")
        yield name, value


def _split(url: str) -> tuple[str, str, str, int, str]:
    """Protocol, user, host, port (0 for none) and the rest, which begins with a slash."""
    begin, protocol = 0, "http"
    if match := _PROTOCOL.match(url):
        begin, protocol = match.end(), ascii_lower(match[1])
        if protocol not in ("http", "https"):
            raise UnusableLink("Unsupported URL protocol")
    match = _AUTHORITY.match(url, begin)
    authority = match[0] if match else ""
    user_and_host, port = _split_port(authority)
    user, _, host = user_and_host.rpartition("@")
    host = ascii_lower(host)
    _check_host(host, user)
    rest = url[begin + len(authority) :].rstrip(_SPACES)
    if not rest.startswith("/"):
        rest = f"/{rest}"
    return protocol, user, host, port, re.sub("[\0- ]", lambda found: f"%{ord(found[0]):02X}", rest)


def _split_port(authority: str) -> tuple[str, int]:
    last = max(authority.rfind(mark) for mark in ":]@")
    if last <= 0 or authority[last] != ":":
        return authority, 0
    digits = authority[last + 1 :]
    port = whole(digits.lstrip("0") or digits[-1:])
    if not port or not 0 < port <= 65535:
        raise UnusableLink("Wrong port number specified in the URL")
    return authority[:last], port


def _check_host(host: str, user: str) -> None:
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise UnusableLink("Wrong IPv6 address specified in the URL") from None
        if not re.fullmatch(r"[0-9a-f:.]*", host[1:-1]):
            raise UnusableLink("Wrong IPv6 URL host")
        return
    if not host:
        raise UnusableLink("URL host is empty")
    if host == ".":
        raise UnusableLink("Host is invalid")
    for part, name, bad in ((host, "host", _BAD_IN_HOST), (user, "userinfo", _BAD_IN_USER)):
        if found := bad.search(part):
            percent = found[0] == "%"
            raise UnusableLink(
                f"Wrong percent-encoded symbol in URL {name}"
                if percent
                else f"Disallowed character in URL {name}"
            )
