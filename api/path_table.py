"""Finds the handler of a path, and the parameters that stand in it.

The same paths as aiohttp's router knows, tried in the same order; for requests that it does not see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from api.plain_requests import Handle

REMEMBERED_MAX: Final = 1024  # paths are mostly asked for again

_Found = tuple[Handle, Mapping[str, str]]


class PathTable:
    """Paths whose parameters are whole segments, such as ``/v1/topics/{topic}``."""

    def __init__(self) -> None:
        self._ways: dict[tuple[str, int], list[tuple[list[str], Handle]]] = {}
        self._found: dict[tuple[str, str], _Found] = {}

    def add(self, method: str, path: str, handle: Handle) -> None:
        """One more way; those that were added before are tried first."""
        segments = path.split("/")
        self._ways.setdefault((method, len(segments)), []).append((segments, handle))

    def find(self, method: str, path: str) -> _Found | None:
        """The first way that leads there."""
        found = self._found.get((method, path))
        if found is None:
            found = self._search(method, path.split("/"))
            if found is not None:
                if len(self._found) >= REMEMBERED_MAX:
                    self._found.clear()
                self._found[method, path] = found
        return found

    def _search(self, method: str, segments: list[str]) -> _Found | None:
        for way, handle in self._ways.get((method, len(segments)), ()):
            parameters = _parameters(way, segments)
            if parameters is not None:
                return handle, parameters
        return None


def _parameters(way: list[str], segments: list[str]) -> dict[str, str] | None:
    parameters: dict[str, str] = {}
    for wanted, segment in zip(way, segments, strict=True):
        if wanted.startswith("{"):
            if not segment:
                return None
            parameters[wanted[1:-1]] = segment
        elif wanted != segment:
            return None
    return parameters
