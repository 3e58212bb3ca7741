"""Parses positions in a partition, for options such as ``--from`` and ``--to``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from api.cli.output import wrong_usage
from raftlog.units import duration_ms
from raftlog.wire.limits import INT64_MAX

if TYPE_CHECKING:
    from raftlog.client.partition import Position

_OFFSET: Final = re.compile("-?[0-9]+")
_OFFSET_CHARACTERS_MAX: Final = len(str(-INT64_MAX))
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_NAMES = {
    "earliest": "earliest",
    "latest": "latest",
    "beginning": "earliest",  # the name in kcat
    "start": "earliest",  # the name in rpk
    "end": "latest",  # the name in both
}


def parse_position(option: str, text: str) -> Position:
    """Parse a text as a position. A text that is not a position is wrong usage."""
    if text in _NAMES:
        return _NAMES[text]
    if _OFFSET.fullmatch(text):
        return _offset(option, text)
    ago_ms = duration_ms(text)
    if ago_ms is not None:
        return _ago(option, text, ago_ms)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        wrong_usage(
            f"{option} {text!r} is not a position; use earliest, latest, an offset, -N for the last N, a "
            f"duration such as 10m for ten minutes ago, or a time such as 2026-01-31T12:00:00Z"
        )
    if when.tzinfo is None:
        wrong_usage(f"{option} {text!r} has no time zone; write {when.isoformat()}Z for UTC")
    if when < _EPOCH:
        wrong_usage(f"{option} {text!r} is before 1970; write earliest for the first record")
    return when


def _offset(option: str, text: str) -> int:
    if len(text) > _OFFSET_CHARACTERS_MAX or abs(int(text)) > INT64_MAX:
        wrong_usage(f"{option} exceeds {INT64_MAX}, the largest offset")
    if text.startswith("-") and not int(text):
        wrong_usage(f"{option} {text!r} is not a position; write latest for new records only, 0 for all")
    return int(text)


def _ago(option: str, text: str, ago_ms: int) -> datetime:
    try:
        return max(datetime.now(UTC) - timedelta(milliseconds=ago_ms), _EPOCH)
    except OverflowError:
        wrong_usage(f"{option} {text!r} is out of range")
