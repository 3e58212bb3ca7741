"""Sorted names. The cost of reading a page of names depends on the size of the page, not on all names."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Names:
    """A sorted set of names."""

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = sorted(names)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def copy(self) -> Names:
        """An independent copy of the names."""
        copied = Names()
        copied._names = list(self._names)
        return copied

    def put(self, name: str, *, is_there: bool) -> None:
        """Add a name if it is missing, or remove it if it exists, as ``is_there`` says."""
        at = bisect_left(self._names, name)
        was_there = self._names[at : at + 1] == [name]
        if is_there and not was_there:
            self._names.insert(at, name)
        elif was_there and not is_there:
            del self._names[at]

    def after(self, name: str, count_max: int) -> list[str]:
        """The first names after ``name``, in order, at most ``count_max``."""
        first = bisect_right(self._names, name)
        return self._names[first : first + count_max]

    def beginning_with(self, prefix: str) -> list[str]:
        """All names with this prefix, in order."""
        names, first = self._names, bisect_left(self._names, prefix)
        return names[first : bisect_left(names, True, first, key=lambda name: not name.startswith(prefix))]
