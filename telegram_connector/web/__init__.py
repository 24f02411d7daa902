"""What the project's own pages are made of: shared parts, and the headers under which they are served.

A page is one HTML file with its own style sheet and modules beside it; the server that shows it serves its
folder, and ``parts`` as ``parts/`` below it, so that a module imports ``./parts/dom.js`` wherever it is.
Parts know no page and no server:

* ``base.css``: colours for light and dark, type, fields, buttons, badges, panels, dialogs;
* ``message.css``: a message as Telegram shows it;
* ``dom.js``: elements made of nodes and text, never of markup;
* ``icons.js``: the icons;
* ``entities.js``: a text with its entities;
* ``links.js``: where a link leads, before anybody goes there;
* ``source.js``: a text as it was written, with a spot in it marked;
* ``api.js``: asking a server in JSON;
* ``live.js``: server-sent events that outlive the server;
* ``keyboard.js``: keys of the page as a whole, and the list of them;
* ``theme.js``: the switch between light and dark.

Nothing is built, nothing comes from elsewhere, and nothing is inline, so that the policy below can be strict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

_CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

# Only files of our own, no inline script or style, no markup made of strings (Trusted Types), no frames.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Another version's page may have been served at the same address a minute ago.
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class File:
    """A file of a page.

    Attributes:
        body: Its bytes.
        content_type: As in the header.
    """

    body: bytes
    content_type: str


def parts() -> Mapping[str, File]:
    """The shared parts by their names, each beginning with ``parts/``."""
    return {f"parts/{name}": file for name, file in files(__name__, "parts").items()}


def files(package: str, folder: str) -> Mapping[str, File]:
    """The files of a page in a folder of a package, by their names.

    Raises:
        ValueError: A file is of a kind that no page has.
    """
    return {
        item.name: File(item.read_bytes(), _content_type(item.name))
        for item in (resources.files(package) / folder).iterdir()
        if item.is_file()
    }


def _content_type(name: str) -> str:
    kind = name.rpartition(".")[2]
    if kind not in _CONTENT_TYPES:
        raise ValueError(f"a page has no file such as {name}")
    return _CONTENT_TYPES[kind]
