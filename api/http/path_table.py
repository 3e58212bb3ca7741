"""Finds the route of a request by its path and method, and the parameters in the path.

The table serves the fast path as well as the requests that aiohttp parses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from api.http.routes import Route
from raftlog.errors import MethodNotAllowed, PathNotFound

REMEMBERED_MAX: Final = 1024  # cache: most paths are requested repeatedly

Methods = dict[str, Route]
_Found = tuple[Methods, Mapping[str, str]]


class PathTable:
    """Paths such as ``/v1/topics/{topic}``. A parameter is a segment, or the beginning of one:
    ``{id}:action``.

    If several paths match, the most specific path is used: an action before a whole segment.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        by_path: dict[str, Methods] = {}
        for route in routes:
            by_path.setdefault(route.path, {})[route.method] = route
        self._templates: dict[int, list[tuple[list[str], Methods]]] = {}
        for path in sorted(by_path, key=lambda path: [_vagueness(part) for part in path.split("/")]):
            template = path.split("/")
            self._templates.setdefault(len(template), []).append((template, by_path[path]))
        self._found: dict[str, _Found] = {}

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the route of a path as sent, and its unescaped parameters. HEAD has the route of GET.

        Raises ``PathNotFound``, or ``MethodNotAllowed`` with the methods of the path.
        """
        methods, parameters = self.at(path)
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = sorted([*methods, *(["HEAD"] if "GET" in methods else [])])
            raise MethodNotAllowed(
                f"{unquote(path)[:200]} supports {', '.join(allowed)} only", allowed=allowed
            )
        return route, parameters

    def at(self, path: str) -> _Found:
        """Return the routes of a path as sent, by method, and its unescaped parameters.

        Raises ``PathNotFound``.
        """
        return self._found.get(path) or self._search(path)

    def _search(self, path: str) -> _Found:
        segments = [unquote(segment) for segment in path.split("/")]
        for template, methods in self._templates.get(len(segments), ()):
            parameters = _parameters(template, segments)
            if parameters is not None:
                if len(self._found) >= REMEMBERED_MAX:
                    self._found.clear()
                self._found[path] = methods, parameters
                return methods, parameters
        raise PathNotFound(f"there is no resource at {unquote(path)[:200]}; /docs lists all paths")


def _vagueness(part: str) -> int:
    """Return the rank of a segment, the most specific first: 0 for a text, 1 for a parameter with a text
    after it, 2 for a parameter.
    """
    return part.startswith("{") + part.endswith("}")


def _parameters(template: list[str], segments: list[str]) -> dict[str, str] | None:
    parameters: dict[str, str] = {}
    for wanted, segment in zip(template, segments, strict=True):
        if not wanted.startswith("{"):
            if wanted != segment:
                return None
            continue
        name, _, suffix = wanted[1:].partition("}")
        if not segment.endswith(suffix) or len(segment) == len(suffix):
            return None
        parameters[name] = segment.removesuffix(suffix)
    return parameters
