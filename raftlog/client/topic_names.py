"""Suggests a name in place of a topic that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar one of ``names``; None if none is similar."""
    import difflib  # rarely used, and slow to import

    return next(iter(difflib.get_close_matches(name, names, 1)), None)


def suggestion(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that names the most similar one of ``names``; empty if none is similar."""
    likely = nearest(name, names)
    return "" if likely is None else f" (did you mean {likely!r}?)"
