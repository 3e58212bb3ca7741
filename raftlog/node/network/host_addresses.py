"""The IP addresses of a peer whose address is a host name.

A name may have several addresses, some of them unreachable, and may get other addresses later. A thread waits
for the resolver, possibly longer than an attempt to connect takes. So a peer has one query at a time: a
resolver that does not answer cannot use up the threads of this process. Brokers that have connected once find
each other again without the resolver.

Decides: which addresses an attempt tries, and in which order. Leaves to others: connecting (``tcp_links``).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any


class HostAddresses:
    """The addresses of one peer, for successive attempts to connect."""

    def __init__(self, host: str, port: int, patience_s: float) -> None:
        """Start without a query. ``patience_s``: the seconds that an attempt waits for the resolver."""
        self.port = port
        self._host = host
        self._patience_s = patience_s
        self._question: asyncio.Future[list[tuple[Any, ...]]] | None = None
        self._known = [host] if _is_ip(host) else []  # the last answer
        self._is_resolved = not self._known
        self._first = 0  # number of the address for the next attempt

    async def of_attempt(self) -> Sequence[str]:
        """The addresses for the next attempt, at least one.

        Raises the resolver's error, or ``TimeoutError``.
        """
        if self._is_resolved:
            try:
                await self._resolve()
            except Exception:  # too long a label gives a UnicodeError, and memory may be short
                if not self._known:
                    raise
        first = self._first % len(self._known)
        return [*self._known[first:], *self._known[:first]]

    def failed(self) -> None:
        """Note that this attempt has failed: the next attempt begins with another address."""
        self._first += 1

    def close(self) -> None:
        """Cancel the query to the resolver, because no attempt follows."""
        if self._question is not None:
            self._question.cancel()

    async def _resolve(self) -> None:
        if self._question is None:
            loop = asyncio.get_running_loop()
            found = loop.getaddrinfo(self._host, self.port, type=socket.SOCK_STREAM)
            self._question = asyncio.ensure_future(found)
            self._question.add_done_callback(_retrieved)
        async with asyncio.timeout(self._patience_s):
            await asyncio.wait([self._question])
        question, self._question = self._question, None
        self._known = list(dict.fromkeys(map(_host_of, question.result())))


def _host_of(found: tuple[Any, ...]) -> str:
    host, _, *more = found[4]
    return f"{host}%{more[1]}" if len(more) == 2 and more[1] else str(host)  # an address of one link of IPv6


def _retrieved(question: asyncio.Future[Any]) -> None:
    """Retrieve the error of a query whose result no attempt awaits: otherwise asyncio would log the error."""
    if not question.cancelled():
        question.exception()


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
