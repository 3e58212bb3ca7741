"""Suggests a name in place of a topic that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The element of ``names`` that is most similar to ``name``; None if no element is similar."""
    import difflib  # rarely used, and slow to import

    return next(iter(difflib.get_close_matches(name, names, 1)), None)


def suggestion(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that suggests the most similar element of ``names``; empty if none is similar."""
    likely = nearest(name, names)
    return "" if likely is None else f" (did you mean {likely!r}?)"
