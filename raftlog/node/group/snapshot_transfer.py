"""The transfer of a snapshot to a replica whose log ends before the leader's log begins.

Decides: how the state is sent (in chunks over ``rpc``, one at a time, each with its checksum), and which part
is kept when a call fails: all received bytes, as long as the next offer is of an equal snapshot and its
source has equal bytes. If a leader has lost the state, another member can send it: the state after an index
is equal everywhere, so any member whose log begins there has it. Leaves to others: when a snapshot is offered
(``core``), and whether it is still needed when it has arrived (``raft_group``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from raftlog.core.raft import Raft
from raftlog.core.ready import FetchSnapshot
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.node.computing import decoded
from raftlog.node.group.view import GroupView
from raftlog.node.reading import on_thread
from raftlog.node.rpc import Calls, decode_body
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.storage.filesystem import Buffer
from raftlog.types import EntryId, GroupId, Index, NodeId, Term

SERVICE: Final = Service("snapshot", CallClass.REPAIR)
CHUNK_TIMEOUT_MS: Final = 5000

_log = logging.getLogger("raftlog.node")


class _Ask(msgspec.Struct, frozen=True, array_like=True):
    group_id: GroupId
    term: Term  # of the entry just before the leader's log
    index: Index
    offset: int


class _Chunk(msgspec.Struct, frozen=True, array_like=True):
    length: int  # of the whole state
    checksum: int  # its CRC-32C
    chunk_checksum: int


class SnapshotService:
    """The sending side of one broker, for all of its groups: sends the state before the start of a log."""

    def __init__(self, calls: Calls, groups: Callable[[], Mapping[GroupId, GroupView]]) -> None:
        self._chunk_bytes = calls.frame_limits.chunk_bytes
        self._groups = groups
        self._newest: tuple[GroupId, Index, bytes, int] | None = None  # probably the next one to be requested
        calls.serve(SERVICE, self._serve)

    async def _serve(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, _Ask)
        state, checksum = await self._state(ask)
        chunk = memoryview(state)[ask.offset : ask.offset + self._chunk_bytes]
        return msgspec.msgpack.encode(_Chunk(len(state), checksum, crc32c(chunk))), [chunk]

    async def _state(self, ask: _Ask) -> tuple[bytes, int]:
        log = self._group(ask).log
        start = log.first_index
        if self._newest is None or self._newest[:2] != (ask.group_id, start):
            state = await on_thread(lambda: log.states.load(start))
            self._group(ask)  # the log may begin elsewhere meanwhile
            if state is None:
                raise InvalidRequest(f"this broker has no state at {start}; wait until its log begins later")
            self._newest = (ask.group_id, start, state, crc32c(state))
        return self._newest[2:]

    def _group(self, ask: _Ask) -> GroupView:
        group = self._groups().get(ask.group_id)
        if group is None or group.stopped is not None:
            raise InvalidRequest(f"group {ask.group_id} is not open on this broker")
        start = group.log.first_index
        if start != ask.index + 1 or group.log.term_at(ask.index) != ask.term:
            raise InvalidRequest(f"the log begins at {start} now, not after {ask.index} of term {ask.term}")
        return group


class SnapshotTransfer:
    """The receiving side in one group: at most one snapshot at a time, in memory until it is complete."""

    def __init__(
        self,
        node_id: NodeId,
        group_id: GroupId,
        calls: Calls,
        arrived: Callable[[], None] = lambda: None,
        restoring: Callable[[bytes], Callable[[], None]] = lambda state: lambda: None,
    ) -> None:
        """Start without a snapshot. ``restoring`` decodes a received snapshot on a thread.

        ``arrived`` is called once a snapshot is complete and decoded.
        """
        self._node_id = node_id
        self._group_id = group_id
        self._calls = calls
        self._chunk_bytes = calls.frame_limits.chunk_bytes
        self._arrived = arrived
        self._restoring = restoring
        self._request: FetchSnapshot | None = None
        self._manifest: tuple[int, int] | None = None
        self._received = bytearray()
        self._task: asyncio.Task[None] | None = None
        # The snapshot to install, and the call that then gives its state to the machine.
        self.whole: tuple[FetchSnapshot, bytes, Callable[[], None]] | None = None

    def want(self, request: FetchSnapshot) -> None:
        """Fetch a snapshot unless this is in progress or done; continue an earlier attempt."""
        if self._request == request and (self._task is not None or self.whole is not None):
            return
        if self._request is None or self._request.snapshot != request.snapshot:
            self.drop()
        self._cancel()
        self._request = request
        self._task = asyncio.get_running_loop().create_task(self._fetch(request))

    def may_install(self, core: Raft) -> bool:
        """Whether the received snapshot may replace the log now.

        While a write is unfinished the snapshot waits, so the caller asks again. If another leader has sent
        the entries meanwhile, the snapshot is dropped.
        """
        if self.whole is None:
            return False
        snapshot = self.whole[0].snapshot
        if core.may_install(snapshot):
            return True
        if core.commit_index >= snapshot.index:
            self.drop()
        return False

    def taken(self) -> tuple[FetchSnapshot, bytes, Callable[[], None]]:
        """Remove and return the received snapshot: its request, its state, and the function that adopts the
        state.
        """
        assert self.whole is not None
        whole = self.whole
        self.drop()
        return whole

    def drop(self) -> None:
        """Discard the received snapshot."""
        self._cancel()
        self._request = self._manifest = self.whole = None
        self._received = bytearray()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _fetch(self, request: FetchSnapshot) -> None:
        try:
            state = await self.fetch(request)
            become = await decoded(lambda: self._restoring(state), len(state))
        except RaftlogError as error:
            _log.warning(
                "group %d: the snapshot at %s from broker %d is incomplete (%d bytes have arrived): %s",
                self._group_id,
                request.snapshot,
                request.leader,
                len(self._received),
                error,
            )
            if self._manifest is not None and len(self._received) >= self._manifest[0]:
                self._manifest, self._received = None, bytearray()
            self._task = None  # the next offer starts or continues a fetch
            return
        self._task = None
        self.whole = (request, state, become)
        self._arrived()

    async def fetch(self, request: FetchSnapshot) -> bytes:
        """Fetch the whole state and check it: from the leader, or from another member whose log begins there.

        Raises ``RaftlogError``; received bytes are kept for the next attempt.
        """
        refusals = []
        others = sorted(request.membership.members - {request.leader, self._node_id})
        for source in (request.leader, *others):
            try:
                return await self._fetch_from(source, request)
            except InvalidRequest as refusal:
                refusals.append(refusal)
        raise refusals[0]

    async def _fetch_from(self, source: NodeId, request: FetchSnapshot) -> bytes:
        while self._manifest is None or len(self._received) < self._manifest[0]:
            await self._fetch_chunk(source, request.snapshot)
        if crc32c(self._received) != self._manifest[1]:
            raise InvalidRequest("the received state is not the one that was announced")
        return bytes(self._received)

    async def _fetch_chunk(self, source: NodeId, snapshot: EntryId) -> None:
        offset = len(self._received)
        ask = _Ask(self._group_id, snapshot.term, snapshot.index, offset)
        head, payload = await self._calls.call(
            source, SERVICE, msgspec.msgpack.encode(ask), timeout_ms=CHUNK_TIMEOUT_MS
        )
        try:
            chunk = msgspec.msgpack.decode(head, type=_Chunk)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"the answer is not a chunk of a snapshot: {error}") from None
        if self._manifest != (chunk.length, chunk.checksum):
            self._manifest = (chunk.length, chunk.checksum)
            if offset:  # another broker's bytes differ: start again with its own
                self._received = bytearray()
                return
        expected = min(self._chunk_bytes, chunk.length - offset)
        if crc32c(payload) != chunk.chunk_checksum or len(payload) != expected:
            raise InvalidRequest(f"the chunk at {offset} is damaged")
        self._received += payload
