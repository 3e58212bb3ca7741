"""Implements one end of a simulated TCP connection, with the interface of asyncio's transports.

Decides: the effect of a program's calls at its end of a connection, and when its callbacks are called. Leaves
to others: when a piece arrives (``streams``).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from broker.listeners.handing_over import deliver
from verification.simulator.event_loop import Process, SimulatedLoop
from verification.simulator.scenarios.http.odds import StreamOdds

HIGH_WATER_BYTES: Final = 64 << 10
STALL_S: Final = (0.1, 1.5)  # until a kernel retransmits lost packets
_END: Final = b""


class Tap(Protocol):
    """Observes a broker's end of a connection."""

    def received(self, data: bytes) -> None:
        """Handle bytes that the broker's program receives."""

    def sent(self, data: bytes) -> None:
        """Handle bytes that the broker's program writes."""


class Network(Protocol):
    """The operations of the network that an end of a connection uses; implemented by ``streams``."""

    loop: SimulatedLoop
    rng: random.Random
    odds: StreamOdds
    is_calm: bool
    open: dict[StreamTransport, None]
    on_piece: Callable[[int], None]

    def has_power(self, host: str) -> bool:
        """True if a machine with this host name responds to packets, if only with a reset."""

    def delay(self, host: str) -> float:
        """Draw the latency of a piece from or to a host, in seconds."""


class StreamTransport(asyncio.Transport):
    """One end of a connection, which behaves as asyncio's transports do."""

    def __init__(
        self,
        network: Network,
        process: Process,
        host: str,
        remote: str,
        port: int,
        *,
        is_server: bool = False,
    ) -> None:
        super().__init__()
        self.process = process
        self.host = host  # the broker's, on both ends
        self.is_server = is_server
        self.peer: StreamTransport | None = None
        self.tap: Tap | None = None
        self.is_lost = False
        self._network = network
        self._address = (remote, port) if is_server else (host, 80)
        self._protocol: asyncio.Protocol | None = None
        self._is_closing = False
        self._is_paused = False
        self._is_full = False  # the program must pause writing
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._waiting = bytearray()  # written, not sent
        self._under_way = 0  # sent, not received by the other program
        self._free_at = 0.0
        self._arrived: deque[bytes] = deque()  # arrived, not received; an empty one is the end
        self._has_ended = False  # nothing is written after this

    def begin(self, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
        """Create the program's protocol, and connect it with this end."""
        made = factory()
        self._protocol = cast("asyncio.Protocol", made)
        if not self.is_lost:
            made.connection_made(self)
            self._hand_over()
        return made

    def delay(self) -> float:
        """Draw the delay of a piece of data that is sent now, in seconds."""
        return self._network.delay(self.host)

    # Calls of the program.

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return the address of the other end; no other information is available."""
        return self._address if name == "peername" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver received bytes to another protocol from now on."""
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the current protocol."""
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        """True if the connection is closed, or will be closed once all written bytes are sent."""
        return self._is_closing

    def is_reading(self) -> bool:
        """True if received bytes are delivered to the program."""
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        """Stop the delivery of received bytes: they accumulate at this end, and then unsent bytes at the
        other end.
        """
        self._is_paused = True

    def resume_reading(self) -> None:
        """Continue the delivery: accumulated bytes are delivered in the loop's next turn."""
        if self._is_paused:
            self._is_paused = False
            self._network.loop.later_in(self.process, 0.0, self._hand_over)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the numbers of unsent bytes at which the program is asked to pause and to resume writing."""
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that have not been sent."""
        return len(self._waiting)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes now, or when the other end has room for them."""
        if self._is_closing or self._has_ended or not data:
            return
        if self.tap is not None:
            self.tap.sent(bytes(data))
        self._waiting += data
        self._push()
        if len(self._waiting) > self._high and not self._is_full and not self._is_closing:
            self._is_full = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: object) -> None:
        """Write all buffers as one piece of data."""
        self.write(b"".join(cast("list[bytes]", list_of_data)))

    def can_write_eof(self) -> bool:
        """Return True: a program can close its sending direction and still receive."""
        return True

    def write_eof(self) -> None:
        """Close the sending direction."""
        if not self._has_ended and not self._is_closing:
            self._has_ended = True
            self._push()

    def close(self) -> None:
        """Send all written bytes, then close the connection."""
        if self._is_closing:
            return
        self._is_closing = True
        if any(self._arrived):  # never to be read: a kernel resets such a connection
            self._waiting.clear()
            self._reset_peer()
        self._push()

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are lost."""
        if self.is_lost:
            return
        self._is_closing = True
        self._waiting.clear()
        self._reset_peer()
        self._lose(None)

    # Events of the network.

    def vanish(self) -> None:
        """End this end without notifying the program, because its process has ended."""
        self.is_lost = self._is_closing = True
        self._waiting.clear()
        self._network.open.pop(self, None)

    def reset_soon(self, delay: float) -> None:
        """Reset this end after a delay, in seconds."""
        self._network.loop.later_in(
            self.process, delay, self._lose, ConnectionResetError(104, "connection reset by peer")
        )

    def break_connection(self) -> None:
        """Reset both ends of the connection; bytes in flight are lost."""
        for end in (self, self.peer):
            if end is not None and not end.is_lost:
                end._is_closing = True
                end._arrived.clear()
                end.reset_soon(0.0)

    def _reset_peer(self) -> None:
        peer = self.peer
        if peer is not None and not peer.is_lost:
            peer.reset_soon(max(self._free_at - self._network.loop.now, self.delay()))

    def _lose(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = self._is_closing = True
        self._waiting.clear()
        self._arrived.clear()
        self._network.open.pop(self, None)
        if self._protocol is not None:
            self._network.loop.later_in(self.process, 0.0, self._protocol.connection_lost, error)

    def _push(self) -> None:
        """Send as many bytes as the other end has room for, in one or more pieces; then the end of the
        stream, if it is due.
        """
        network = self._network
        while self._waiting and not self.is_lost:
            room = network.odds.window_bytes - self._under_way
            if room <= 0:
                return
            size = min(room, len(self._waiting))
            if not network.is_calm:
                if network.odds.reset_odds and network.rng.random() < network.odds.reset_odds:
                    self.break_connection()
                    return
                if network.odds.cut_odds and network.rng.random() < network.odds.cut_odds:
                    size = network.rng.randint(1, size)
            piece = bytes(self._waiting[:size])
            del self._waiting[:size]
            self._under_way += size
            self._send(piece)
        if self.is_lost or self._waiting:
            return
        if self._is_closing:
            self._has_ended = True
            self._send(_END)
            self._lose(None)
        elif self._has_ended:
            self._send(_END)

    def _send(self, piece: bytes) -> None:
        network, peer = self._network, self.peer
        assert peer is not None
        network.on_piece(len(piece))
        self._free_at = max(self._free_at, network.loop.now + self.delay())
        if not network.is_calm and network.rng.random() < network.odds.stall_odds:
            self._free_at += network.rng.uniform(*STALL_S)
        if peer.process.is_alive:
            network.loop.at_in(peer.process, self._free_at, peer._arrive, piece)
        elif network.has_power(self.host):
            self.reset_soon(self._free_at - network.loop.now + self.delay())

    def _arrive(self, piece: bytes) -> None:
        if self.is_lost or self._is_closing:
            peer = self.peer
            if piece and peer is not None and not peer.is_lost:
                peer.reset_soon(self.delay())
            return
        self._arrived.append(piece)
        if self._protocol is not None:
            self._hand_over()

    def _hand_over(self) -> None:
        """Deliver received bytes to the program, unless it has paused reading."""
        while self._arrived and not self._is_paused and not self._is_closing:
            if self._arrived[0] == _END:
                self._arrived.popleft()
                if not cast("asyncio.Protocol", self._protocol).eof_received():
                    self.close()
                return
            parts = []
            while self._arrived and self._arrived[0] != _END:
                parts.append(self._arrived.popleft())
            data = b"".join(parts)
            if self.tap is not None:
                self.tap.received(data)
            deliver(self.get_protocol, data)
            self._taken(len(data))

    def _taken(self, size: int) -> None:
        """Note that the program has read bytes, so that the other end may send more."""
        peer = self.peer
        assert peer is not None
        peer._under_way -= size
        if peer._waiting and not peer.is_lost and peer.process.is_alive:
            self._network.loop.later_in(peer.process, self.delay(), peer._resume)

    def _resume(self) -> None:
        self._push()
        if self._is_full and len(self._waiting) <= self._low and not self.is_lost:
            self._is_full = False
            self.get_protocol().resume_writing()
