"""Secrets taken out of what is about to be shown."""

from __future__ import annotations

import json
from collections.abc import Iterable

REDACTED = "<redacted>"


class Scrubber:
    """Replaces secrets by their exact value, also as they look inside JSON and URLs."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for s in secrets if s for form in (s, json.dumps(s)[1:-1], s.replace(":", "%3A"))}
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, line: str) -> str:
        for form in self._forms:
            line = line.replace(form, REDACTED)
        return line
