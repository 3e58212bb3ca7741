"""The name that somebody may have meant who named a topic that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar one of ``names``; None if none is similar."""
    import difflib  # rarely used, and slow to import

    return next(iter(difflib.get_close_matches(name, names, 1)), None)
