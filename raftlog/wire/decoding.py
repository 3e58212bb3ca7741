"""Decoders of JSON bodies, each created once, by one thread at a time.

msgspec (0.22) creates the description of a struct at its first decoding, and shows it to other threads before
it is complete: a thread that decodes an equal struct meanwhile reads a null pointer, which ends the process.
A client's threads do so when an application starts. So decoders of structs are created here, or when a module
is imported.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar

import msgspec

Body = TypeVar("Body")

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for untrusted bytes. ``RecursionError``: the bytes are nested too deeply."""

_MAKING: Final = threading.Lock()
_made: Final[dict[type, msgspec.json.Decoder[Any]]] = {}


def decoder_of(kind: type[Body]) -> msgspec.json.Decoder[Body]:
    """The decoder of a body type. For any thread."""
    found = _made.get(kind)
    if found is None:
        with _MAKING:
            found = _made[kind] = msgspec.json.Decoder(kind)
    return found
