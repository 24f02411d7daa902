"""Records that check themselves when they are made: types first, then what each has to say of its own."""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from telegram_connector.errors import ProjectionError

# No half of a surrogate pair, which no wire carries.
_TEXT = r"^[^\ud800-\udfff]+\Z"
# Long enough for any identifier; JetStream carries the ids in a header.
Word = typing.Annotated[str, msgspec.Meta(max_length=255, pattern=_TEXT)]
Label = typing.Annotated[str, msgspec.Meta(max_length=64, pattern=_TEXT)]


class Checked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record whose fields have the types they are declared with.

    Raises:
        ProjectionError: Something is wrong; names every field at fault, and no value.
    """

    def __post_init__(self) -> None:
        faults = []
        for name, kind in _fields(type(self)).items():
            try:
                value = msgspec.convert(getattr(self, name), kind)
            except msgspec.ValidationError as error:
                faults.append(f"{name}: {_without_value(error)}")
            else:
                msgspec.structs.force_setattr(self, name, value)
        if not faults:
            faults = list(self._faults())
        if faults:
            raise ProjectionError(type(self).__name__, faults)

    def _faults(self) -> Iterator[str]:
        """What is wrong although each type is right, one fault each, beginning with the field's name."""
        return iter(())


@functools.cache
def _fields(record: type[Checked]) -> dict[str, Any]:
    hints = typing.get_type_hints(record, include_extras=True)
    return {name: hints[name] for name in record.__struct_fields__}


def _without_value(error: msgspec.ValidationError) -> str:
    words, _, path = str(error).partition(" - at `$")
    if words.startswith("Invalid "):
        words = "a value that is not allowed"  # the only words that may quote it
    elif "matching regex" in words:
        words = "empty, or not of the form that it must have"
    return f"{words} at {path.strip('`')}" if path.strip("`") else words
