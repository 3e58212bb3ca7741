"""Exchange of disk ids and ages between brokers, so that no broker takes part with an older copy of its disk.

The first frame on each link names the sender's disk and its age (``raftlog.storage.disk_age``). So a broker
never acts on a message from a known older copy of a disk: the frame with the name arrives before the message.
The broker answers with the newer state that it knows, and drops all other frames of that peer until the peer
names another disk. A peer that cannot be reached, and so gets no answer, gets the reason for its log when it
dials again.

Decides: whose frames are dropped, and when this broker must stop because its disk is an older copy. Leaves to
others: which disk is an older copy (``disk_age``), and its treatment (``raftlog.hosting.opener``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from raftlog.node.blocking import RunBlocking
from raftlog.node.codec import FrameKind, MalformedFrame, encode_frame
from raftlog.node.network.transport import Transport
from raftlog.storage.disk_age import Disk, DiskAge, DiskRecord
from raftlog.types import NodeId

_log = logging.getLogger("raftlog.node")

AGES_MS: Final = 60_000
MARK_AGAIN_S: Final = 1.0


class _Name(msgspec.Struct, frozen=True, array_like=True):
    """The content of a ``DISK`` frame: the sender's disk, and the newer state that the sender knows."""

    mine: Disk
    newer: Disk | None = None  # a newer state of the disk that the receiver has named, which is refused
    refused_id: str = ""  # the id of the refused disk


class PeerDisks:
    """The exchange of one broker. ``on_older_copy`` is called when this broker's disk is an older copy."""

    def __init__(
        self,
        transport: Transport,
        age: DiskAge,
        on_older_copy: Callable[[], None],
        run_blocking: RunBlocking,
    ) -> None:
        self.age = age
        self.refused: dict[NodeId, str] = {}  # peers whose frames are dropped, and the ids of their disks
        self._older: set[NodeId] = set()  # refused peers whose disk is an older copy, and that get an answer
        self._unreached: dict[NodeId, Disk] = {}  # refused peers that name another disk than the known one
        self._transport = transport
        self._on_older_copy = on_older_copy
        self._run_blocking = run_blocking
        self._linked: set[NodeId] = set()
        self._is_found = False  # whether this disk is known to be an older copy
        self._rises_now = False  # whether the age must rise without waiting for the interval
        self._wake = asyncio.Event()

    def connected(self, peer: NodeId) -> None:
        """Send the name of this disk over a new link to a peer, before all other frames."""
        self._linked.add(peer)
        self._name(peer)
        if peer in self._unreached:
            self._judge(peer, self._unreached.pop(peer))
        if not self.age.is_named:
            self.age.is_named = self._rises_now = True
            self._wake.set()

    def lost(self, peer: NodeId) -> None:
        """Note that a link to a peer has ended."""
        self._linked.discard(peer)
        self._unreached.pop(peer, None)  # the next link may lead to another process

    def received(self, peer: NodeId, head: memoryview) -> None:
        """Handle the frame in which a peer names its disk. Raises ``MalformedFrame``."""
        try:
            name = msgspec.msgpack.decode(head, type=_Name)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFrame(f"the name of a disk is malformed: {error}") from error
        self._judge(peer, name.mine)
        if name.newer is not None and not self._is_found and self._is_older(name.newer, name.refused_id):
            _log.error(
                "broker %d knows a newer state of this disk: this disk is an older copy, such as a restored "
                "backup, and has lost votes and records; this broker restarts, and its replicas rejoin",
                peer,
            )
            self._is_found = True
            self._wake.set()

    async def run(self, interval_ms: int) -> None:
        """Raise the disk's age at intervals, and store the peers' disks; end when this disk is an
        older copy.
        """
        now = asyncio.get_running_loop().time
        rises_at = now() + interval_ms / 1000
        while not (self._is_found or await self._found_by(rises_at)):
            if self._rises_now or now() >= rises_at:
                self._rises_now, rises_at = False, now() + interval_ms / 1000
                await self._rise()
            else:
                await self._store(self.age.record())
        await self._mark_older_copy()
        self._on_older_copy()

    async def _found_by(self, time_s: float) -> bool:
        """Wait for a peer's finding until a time of the loop; return whether this disk is an older copy."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(time_s):
                await self._wake.wait()
        self._wake.clear()
        return self._is_found

    async def _mark_older_copy(self) -> None:
        """Record for the next start that this disk is an older copy.

        Without the record, the next start would take part in groups until a peer has reported this again.
        """
        while True:
            try:
                await self._run_blocking(self.age.mark_older_copy)
            except OSError as error:
                _log.error("cannot record that this disk is an older copy; retrying: %s", error)
                await asyncio.sleep(MARK_AGAIN_S)
            else:
                return

    async def _rise(self) -> None:
        if await self._store(self.age.next_record()):
            for peer in sorted(self._linked):
                self._name(peer)

    async def _store(self, record: DiskRecord) -> bool:
        """Store a record of the disks; return whether it is durable."""
        try:
            await self._run_blocking(lambda: self.age.keep(record))
        except OSError as error:
            _log.warning("cannot store the ages of disks; retrying: %s", error)
            return False
        return True

    def _judge(self, peer: NodeId, named: Disk) -> None:
        """Accept the frames of a peer that has named its disk, or drop them.

        A disk that differs from the known disk replaces it only if this node's own link reaches the process
        that named it. So of two processes with one broker's id, the process at the broker's address counts.
        """
        known = self.age.known_of(peer)
        self._unreached.pop(peer, None)
        if known is not None and known.disk_id != named.disk_id and not self._transport.reaches(peer):
            self._unreached[peer] = named
            self.refused[peer] = named.disk_id
            self._older.discard(peer)
            self._transport.refuse_unreached(peer, f"node {peer} has another disk than before")
        elif self.age.note(peer, named):
            self.refused.pop(peer, None)
            self._older.discard(peer)
            if self.age.known_of(peer) != known:
                self._wake.set()  # a restart of this broker must not forget the peer's newer disk
        else:
            self._refuse(peer, named)

    def _refuse(self, peer: NodeId, named: Disk) -> None:
        newer = self.age.known_of(peer)
        if peer not in self.refused and newer is not None:
            _log.error(
                "broker %d is refused: its disk is an older copy: disk %s of age %d, after %s of age %d",
                *(peer, named.disk_id, named.age, newer.disk_id, newer.age),
            )
        self.refused[peer] = named.disk_id
        self._older.add(peer)
        self._name(peer)
        if not self._transport.reaches(peer):
            self._transport.refuse_unreached(peer, f"the disk of node {peer} is an older copy")

    def _name(self, peer: NodeId) -> None:
        newer = self.age.known_of(peer) if peer in self._older else None
        name = _Name(self.age.disk, newer, self.refused.get(peer, ""))
        self._transport.send(peer, encode_frame(FrameKind.DISK, name))

    def _is_older(self, newer: Disk, refused_id: str) -> bool:
        """Whether a peer's finding is about this disk: another process with this broker's id may have named
        another.
        """
        return refused_id == self.age.disk.disk_id and not self.age.disk.continues(newer)
