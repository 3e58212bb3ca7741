"""Checks the host name of a request, and the origin of a web page that writes.

A browser sends the requests of any web page to any address that it can reach. A page can resolve its own name
to the broker (DNS rebinding), so ``Host`` must be a name that the broker knows; an IP address and
``localhost`` are always accepted. A page can also write without reading the response, so a write with a
foreign ``Origin`` is refused. Listed origins may write, and get CORS headers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Final

from api.http.requests import Request
from broker.addresses import names_of
from broker.ports import Services
from raftlog.errors import MisdirectedRequest, OriginNotAllowed
from raftlog.wire import headers

ALL: Final = "*"
REMEMBERED_MAX: Final = 1024
PREFLIGHT_AGE_S: Final = 3600

Headers = Mapping[str, str]

_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_HOST = re.compile(r"(?P<name>[^:\[\]]+?|\[[^\[\]]+\])\.?(:[0-9]*)?")
_EXPOSED = ", ".join(
    (
        headers.REQUEST_ID,
        headers.METADATA_VERSION,
        headers.LEADER,
        headers.NEXT_OFFSET,
        headers.HIGH_WATERMARK,
        headers.LOG_START_OFFSET,
        headers.LEADER_EPOCH,
        headers.SERVED_BY,
        headers.ARCHIVED,
        headers.WAIT_CAPPED,
        headers.TIMEOUT_CAPPED,
        "ETag",
        "Location",
        "Retry-After",
    )
)


class Access:
    """The access rules of one broker."""

    def __init__(self, services: Services) -> None:
        self._controller = services.controller
        self._names = services.own_names
        self._allowed_hosts = services.allowed_hosts
        self._origins = services.allowed_origins
        self._hosts: set[str | None] = {None}  # HTTP/1.0 may omit it, which browsers never do
        self._for_others: Headers = {"Vary": "Origin"} if self._origins - {ALL} else {}

    def admit(self, request: Request) -> Headers:
        """Check the host name and the origin of a request; return the CORS headers of its response.

        Raises ``MisdirectedRequest`` and ``OriginNotAllowed``.
        """
        host = request.headers.get("Host")
        if host not in self._hosts:
            self._check(host or "")
        origin = request.headers.get("Origin")
        if origin is None:
            return self._for_others
        for allowed in (ALL, origin.lower()):
            if allowed in self._origins:
                return {
                    **self._for_others,
                    "Access-Control-Allow-Origin": allowed,
                    "Access-Control-Expose-Headers": _EXPOSED,
                }
        if request.method not in _SAFE and not _is_same(origin, request.scheme, host or ""):
            raise OriginNotAllowed(
                f"a page of {origin[:100]!r} may not write to this broker; add the origin to the setting "
                "cors.allowed_origins"
            )
        return self._for_others

    def _check(self, host: str) -> None:
        """Check the host name of a request. Caches the result, except for a name that only the current list
        of brokers accepts.
        """
        name = _name_of(host)
        is_listed = not self._allowed_hosts.isdisjoint((ALL, name, host.lower()))
        if is_listed or name in self._names or _leads_nowhere_else(name):
            if len(self._hosts) >= REMEMBERED_MAX:
                self._hosts = {None}
            self._hosts.add(host)
            return
        brokers = self._controller.image.brokers.values()
        if name not in names_of(url for broker in brokers for url in (broker.http_url, broker.https_url)):
            raise MisdirectedRequest(
                f"Host {host[:100]!r} is not a name of this broker; add it to the setting http.allowed_hosts"
            )


def is_preflight(request: Request, shared: Headers) -> bool:
    """True for a CORS preflight request that comes from a listed origin."""
    return "Access-Control-Allow-Origin" in shared and "Access-Control-Request-Method" in request.headers


def preflight(methods: Iterable[str]) -> dict[str, str]:
    """Return the headers that permit a page of a listed origin to use a path with these methods."""
    return {
        "Access-Control-Allow-Methods": ", ".join(sorted(methods)),
        "Access-Control-Allow-Headers": "*",
        "Access-Control-Max-Age": str(PREFLIGHT_AGE_S),
    }


def _name_of(host: str) -> str:
    """Return the host name in ``name:port``, in lower case; empty if the text has another form."""
    found = _HOST.fullmatch(host)
    return found["name"].lower() if found else ""


def _leads_nowhere_else(name: str) -> bool:
    """True if the address of the host does not depend on DNS."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name == "localhost"
    return True


def _is_same(origin: str, scheme: str, host: str) -> bool:
    """True if the page came from this broker, or from a proxy with TLS that clients use for it.

    A page without TLS may have been changed on its way, so it may not write with TLS.
    """
    schemes = {scheme, "https"}
    return any(origin.lower() == f"{each}://{host.lower()}" for each in schemes)
