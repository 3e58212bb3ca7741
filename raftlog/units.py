"""Amounts with units, parsed and written: ``250ms``, ``14d``, ``10GiB``, ``1 record``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

DIGITS_MAX: Final = 12  # of an amount
MILLISECONDS: Final[Mapping[str, int]] = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_BYTES: Final[Mapping[str, int]] = {
    "b": 1,
    **{f"{letter}b": 1_000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1_024**power for power, letter in enumerate("kmgt", 1)},
}
_AMOUNT: Final = re.compile(rf"([0-9]{{1,{DIGITS_MAX}}})([A-Za-z]{{1,3}})")


def duration_ms(text: str) -> int | None:
    """The milliseconds of a whole number with ms, s, m, h or d; ``None`` for any other text."""
    return _amount(text, MILLISECONDS)


def size_bytes(text: str) -> int | None:
    """The bytes of a whole number with B, kB to TB (powers of 1,000) or KiB to TiB (powers of 1,024)."""
    return _amount(text.lower(), _BYTES)


def counted(number: int, noun: str) -> str:
    """The number and its noun, with an s unless the number is 1: ``1 record``, ``2 records``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _amount(text: str, units: Mapping[str, int]) -> int | None:
    found = _AMOUNT.fullmatch(text)
    unit = None if found is None else units.get(found[2])
    return None if found is None or unit is None else int(found[1]) * unit
