"""Formats numbers and times of a report, with their units."""

from __future__ import annotations

import math

from api.svg import moment


def count(number: int) -> str:
    """Format a count: 12,345."""
    return f"{number:,}"


def several(number: int, noun: str) -> str:
    """Format a count with its noun in singular or plural: 1 fault, 2 faults, 1 anomaly, 2 anomalies."""
    plural = f"{noun[:-1]}ies" if noun.endswith("ly") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def percent(share: float) -> str:
    """Format a share as a percentage, rounded down: the text is 100 % only if the share is complete."""
    return f"{math.floor(share * 10_000 + 1e-6) / 100:.2f} %" if share < 1 else "100 %"


def duration(seconds: float) -> str:
    """Format a duration: 850 ms, 2.35 s, 12.3 s, 2 min 5 s, 1 h 2 min. An infinite duration means that no
    response came.
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms" if seconds else "0 s"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds == math.inf:
        return "no end"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def exact_moment(seconds: float) -> str:
    """Format a time of the run for tables, with tenths of a second: 12:05.3."""
    tenths = round(seconds * 10)
    return f"{moment(tenths // 10)}.{tenths % 10}"


def axis(number: float) -> str:
    """Format a number at an axis: 0, 50, 2,500, 12 k, 2.5 M."""
    for limit, unit in ((1e6, " M"), (1e4, " k")):
        if number >= limit:
            return f"{number / {' M': 1e6, ' k': 1e3}[unit]:g}{unit}"
    return f"{number:,g}"
