"""A pytest plugin with one fixture, `telegram_sandbox`.

It is loaded into every pytest run of a host that has this package installed, so it imports nothing until the
fixture is used, and a missing extra fails only the test that asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from telegram_connector.sandbox import Sandbox


@pytest.fixture
def telegram_sandbox() -> Iterator[Sandbox]:
    """A Bot API of the test's own on a free port; see docs/sandbox.md."""
    try:
        from telegram_connector.sandbox import Sandbox
    except ImportError as error:
        pytest.fail(str(error), pytrace=False)
    with Sandbox() as sandbox:
        yield sandbox
