"""Defines the interface of a request for handlers, for both parsers: aiohttp and ``fast_path``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from multidict import MultiMapping

from raftlog.hosting.budget import share_owner

Found = dict[Callable[..., object], Any]
"""Values that functions have computed from the head of a request, by function. Requests with equal heads may
share them.
"""


class Body(Protocol):
    """The body of a request, whose bytes can be read as they arrive."""

    def is_eof(self) -> bool:
        """True once all bytes have been read and no more will arrive."""

    def exception(self) -> BaseException | None:
        """The error that ended the body early; None if no error did."""

    def read_nowait(self, n: int = -1, /) -> bytes:
        """Return the bytes that have arrived and were not read yet."""

    async def readany(self) -> bytes:
        """Return the unread bytes that have arrived, or wait for the next bytes; empty at the end of the
        body.
        """


class Request(Protocol):
    """A request, as handlers see it."""

    @property
    def method(self) -> str:
        """The method, in capitals."""

    @property
    def scheme(self) -> str:
        """``https`` for a connection with TLS, else ``http``."""

    @property
    def path(self) -> str:
        """The decoded path, without the query."""

    @property
    def path_qs(self) -> str:
        """The path as it was sent, with the query."""

    @property
    def query_string(self) -> str:
        """The text of the query; empty without one."""

    @property
    def query(self) -> MultiMapping[str]:
        """The parameters of the query."""

    @property
    def headers(self) -> MultiMapping[str]:
        """The headers; names are case-insensitive."""

    @property
    def remote(self) -> str | None:
        """The address of the client."""

    @property
    def content_length(self) -> int | None:
        """The announced length of the body in bytes."""

    @property
    def content(self) -> Body:
        """The body."""

    @property
    def can_read_body(self) -> bool:
        """True if the request has a body."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection; None when it is closed."""


class RememberedRequest(Request, Protocol):
    """A request whose connection keeps the values that were computed from the head."""

    @property
    def found(self) -> Found:
        """The values that handlers have computed from the head."""


def client_of(request: Request) -> str:
    """Return the client whose share of the limits this request uses."""
    return share_owner(request.remote or "")
