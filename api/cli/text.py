"""Decodes escapes in option texts, such as ``\t`` for a tabulator."""

from __future__ import annotations

import re

from api.cli.output import wrong_usage

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_MEANINGS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def unescaped(option: str, text: str) -> bytes:
    """Return the bytes of a text after its escapes are decoded. An unknown escape is wrong usage."""

    def meaning(found: re.Match[bytes]) -> bytes:
        escape = found[1]
        if escape[:1] == b"x" and len(escape) == 3:
            return bytes.fromhex(escape[1:].decode())
        if escape not in _MEANINGS:
            wrong_usage(
                f"{option} {text!r} has the escape {found[0].decode()!r}; the escapes are "
                r"\n, \t, \r, \0, \\ and \x with two hexadecimal digits"
            )
        return _MEANINGS[escape]

    return _ESCAPE.sub(meaning, text.encode(errors="surrogateescape"))
