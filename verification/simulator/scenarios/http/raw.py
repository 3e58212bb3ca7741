"""Sends HTTP requests without a client library: in pieces of any size, and with disconnects at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from raftlog.errors import ConnectionLost, Detail, RaftlogError, from_code
from verification.simulator.scenarios.http.simulated_client import SimulatedClient
from verification.simulator.scenarios.http.transport import StreamTransport
from verification.simulator.scenarios.http.wire import Malformed, Reader

TIMEOUT_S: Final = 6.0


@dataclass(slots=True)
class RawAnswer:
    """One response. ``error`` is the error that its problem document describes."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])

    def number(self, header: str) -> int:
        """Return the value of a response header as an integer."""
        return int(self.headers[header])

    @property
    def error(self) -> RaftlogError | None:
        """The error that the problem document describes; None for a successful response."""
        if self.status < 400:
            return None
        body = self.json
        details: dict[str, Detail] = {name: body[name] for name in ("start", "end") if name in body}
        return from_code(body["code"], body["detail"], details)


@dataclass(slots=True, eq=False)
class RawConnection(asyncio.Protocol):
    """One connection to a broker. Responses come in the order of their requests."""

    answers: asyncio.Queue[RawAnswer | None] = field(default_factory=asyncio.Queue)
    events: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    transport: StreamTransport | None = None
    is_lost: bool = False
    _begun: RawAnswer | None = None
    _rest: bytes = b""

    def __post_init__(self) -> None:
        """Create the parser of responses."""
        self._reader = Reader(self._head, self._body, self._chunk)

    _reader: Reader = field(init=False, repr=False)

    @classmethod
    async def dial(cls, client: SimulatedClient, host: str) -> RawConnection:
        """Open a connection to a host. Raises ``ConnectionLost``."""
        made = cls()
        try:
            async with asyncio.timeout(2.0):
                made.transport, _ = await client.side.streams.connect(client.process, host, lambda: made)
        except (OSError, TimeoutError) as error:
            raise ConnectionLost(f"{host}: {error}", sent=False) from error
        return made

    def send(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Write a request."""
        assert self.transport is not None
        self.transport.write(request_bytes(method, target, headers, body))

    async def answer(self, timeout_s: float = TIMEOUT_S) -> RawAnswer:
        """Return the next response. Raises ``ConnectionLost``."""
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self.answers.get()
        except TimeoutError:
            self.disconnect()
            answer = None
        if answer is None:
            raise ConnectionLost("no answer came", sent=True)
        return answer

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RawAnswer:
        """Send one request and return its response. Raises ``ConnectionLost``."""
        if self.is_lost:
            raise ConnectionLost("the connection is closed", sent=False)
        self.send(method, target, headers, body)
        return await self.answer()

    def disconnect(self, *, by_reset: bool = True) -> None:
        """Close the connection by a reset, or cleanly."""
        if self.transport is not None:
            self.transport.abort() if by_reset else self.transport.close()

    # Callbacks of the transport.

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        try:
            self._reader.feed(data)
        except (Malformed, ValueError):
            self.disconnect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is closed and no more bytes arrive."""
        self.is_lost = True
        self.answers.put_nowait(None)
        self.events.put_nowait(None)

    def _head(self, first: str, headers: Mapping[str, str]) -> bool:
        self._begun = RawAnswer(int(first.split(" ")[1]), headers)
        return self._begun.status not in (204, 304)

    def _chunk(self, chunk: bytes) -> None:
        assert self._begun is not None
        if not self._begun.headers.get("content-type", "").startswith("text/event-stream"):
            self._begun.body += chunk
            return
        *events, self._rest = (self._rest + chunk).split(b"\n\n")
        for event in events:
            self.events.put_nowait(event)

    def _body(self, body: bytes) -> None:
        assert self._begun is not None
        self._begun.body += body
        self.answers.put_nowait(self._begun)
        self.events.put_nowait(None)


def request_bytes(
    method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> bytes:
    """Build the bytes of an HTTP request."""
    lines = [f"{method} {target} HTTP/1.1", "Host: simulated"]
    lines += [f"{name}: {text}" for name, text in (headers or {}).items()]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + body
