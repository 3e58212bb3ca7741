"""Decoders of JSON bodies. Each decoder is created once, and only one thread at a time creates a decoder.

msgspec (0.22) creates the description of a struct at its first decoding, and shows it to other threads before
it is complete: a thread that decodes an equal struct meanwhile reads a null pointer, which ends the process.
The threads of a client may decode equal structs at the start of an application. So decoders of structs are
created by this module, or when a module is imported.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar

import msgspec

Body = TypeVar("Body")

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for invalid bytes.

``RecursionError`` means that the bytes are nested too deeply.
"""

_MAKING: Final = threading.Lock()
_made: Final[dict[type, msgspec.json.Decoder[Any]]] = {}


def decoder_of(kind: type[Body]) -> msgspec.json.Decoder[Body]:
    """The decoder of a body type. For any thread."""
    found = _made.get(kind)
    if found is None:
        with _MAKING:
            found = _made[kind] = msgspec.json.Decoder(kind)
    return found
