"""Positions in a partition as options: ``--from`` and ``--to``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from api.cli.output import wrong_usage
from raftlog.units import duration_ms

if TYPE_CHECKING:
    from raftlog.client.partition import Position

_NAMES = {
    "earliest": "earliest",
    "latest": "latest",
    "beginning": "earliest",  # as kcat
    "start": "earliest",  # as rpk
    "end": "latest",  # as both
}


def parse_position(option: str, text: str) -> Position:
    """The position in a text. Anything else is wrong usage."""
    if text in _NAMES:
        return _NAMES[text]
    if text.removeprefix("-").isdecimal() and text.isascii():
        return int(text)
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
    return when


def _ago(option: str, text: str, ago_ms: int) -> datetime:
    try:
        return max(datetime.now(UTC) - timedelta(milliseconds=ago_ms), datetime.fromtimestamp(0, UTC))
    except OverflowError:
        wrong_usage(f"{option} {text!r} is out of range")
