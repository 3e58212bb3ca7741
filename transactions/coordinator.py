"""Coordinator of one partition of ``__transactions``: handles requests, and sends outcomes.

Decides: when an outcome is sent again. Leaves to others: the records and answers (``decisions``), appending
(``raftlog.hosting``), how an outcome reaches partitions and groups (the port ``Markers``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from raftlog.clock import TrustedClock
from raftlog.errors import GroupNotFound, PartitionNotFound, TopicNotFound
from raftlog.hosting.coordinator import Coordinator
from raftlog.hosting.decisions import Effect
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from transactions.decisions import Decisions
from transactions.outputs import Mark, Row
from transactions.records import KINDS, Handle, Participant
from transactions.requests import (
    READS,
    BeginRun,
    Join,
    Open,
    Prepare,
    Reply,
    Request,
)
from transactions.room import KEYS_BYTES_MAX, STATE_BYTES_MAX
from transactions.state import TransactionsState
from transactions.tally import Tally

MARKER_MS: Final = 2_000  # for one attempt
PAUSE_MIN_S: Final = 0.02
PAUSE_MAX_S: Final = 1.0
_log = logging.getLogger("raftlog.transactions")

Target = TypeVar("Target")


class Markers(Protocol):
    """Sends the outcome of a transaction to partitions and groups."""

    async def write(
        self,
        target: Participant,
        transaction: Handle,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        timeout_ms: int,
    ) -> None:
        """Write the marker of a transaction into a partition; return once the marker is committed.

        Raises ``RaftlogError``. ``TopicNotFound`` and ``PartitionNotFound`` are raised only if the partition
        surely was deleted.
        """

    async def end_offsets(self, group: str, transaction: Handle, *, is_commit: bool, timeout_ms: int) -> None:
        """Let a group commit or drop the offsets of a transaction; return once the group has done so.

        Raises ``RaftlogError``. ``GroupNotFound`` is raised only if the offsets of all groups surely were
        deleted.
        """


class TransactionCoordinator(Coordinator[Decisions, Request, Reply, Row]):
    """Coordinator of the transactions of one partition; the derived state of its replica."""

    reads = READS

    def __init__(
        self,
        name: str,
        clock: TrustedClock,
        markers: Markers,
        *,
        id_retention_ms: int,
        key_retention_ms: int,
        state_bytes_max: int = STATE_BYTES_MAX,
        keys_bytes_max: int = KEYS_BYTES_MAX,
        frame_limits: FrameLimits = FRAME_LIMITS,
    ) -> None:
        self.state = TransactionsState()
        super().__init__(name, clock, lambda row: KINDS.record_of(*row), self.state, frame_limits)
        self.tally = Tally()
        self._markers = markers
        self._id_retention_ms = id_retention_ms
        self._key_retention_ms = key_retention_ms
        self._state_bytes_max = state_bytes_max
        self._keys_bytes_max = keys_bytes_max

    # Hooks of the coordinator.

    def begin(self, now_ms: int, before: Decisions | None) -> Decisions:
        """Make the decisions of a leader, beginning with the committed state of the transactions."""
        return Decisions(
            self.state,
            now_ms=now_ms,
            wall_ms=self._clock.wall_ms(),
            id_retention_ms=self._id_retention_ms,
            key_retention_ms=self._key_retention_ms,
            state_bytes_max=self._state_bytes_max,
            keys_bytes_max=self._keys_bytes_max,
            decision_bytes_max=self.frame_limits.decision_bytes_max,
            tally=self.tally,
            before=before,
        )

    def needs_room(self, request: Request) -> bool:
        """Whether the request needs disk space, because it begins or extends a transaction."""
        return isinstance(request, Open | Join | Prepare | BeginRun)

    def perform(self, effect: Effect) -> None:
        """Send the outcome of a transaction in a background task."""
        assert isinstance(effect, Mark)
        assert self.decisions is not None
        self.do_beside(self._send(effect, self.decisions))

    async def _send(self, mark: Mark, decisions: Decisions) -> None:
        partitions = (self._counted(mark, target, self._write) for target in mark.partitions)
        groups = (self._counted(mark, group, self._end_offsets) for group in mark.groups)
        await asyncio.gather(*partitions, *groups)
        if decisions is self.decisions:
            decisions.completed(mark.transaction, self._now_ms(), self._clock.wall_ms())
            self.carry_out()

    async def _counted(
        self, mark: Mark, target: Target, tell: Callable[[Mark, Target], Awaitable[None]]
    ) -> None:
        self.tally.markers_unwritten += 1
        try:
            await self._until_known(mark, target, tell)
        finally:
            self.tally.markers_unwritten -= 1

    async def _write(self, mark: Mark, target: Participant) -> None:
        await self._markers.write(
            target,
            mark.transaction,
            is_commit=mark.is_commit,
            coordinator_epoch=0 if self._log is None else self._log.leader_epoch,
            timeout_ms=MARKER_MS,
        )

    async def _end_offsets(self, mark: Mark, group: str) -> None:
        await self._markers.end_offsets(
            group, mark.transaction, is_commit=mark.is_commit, timeout_ms=MARKER_MS
        )

    async def _until_known(
        self, mark: Mark, target: Target, tell: Callable[[Mark, Target], Awaitable[None]]
    ) -> None:
        """Repeat ``tell`` until the target (partition or group) has the outcome, or was deleted."""
        pause_s = PAUSE_MIN_S
        what = f"the outcome of {mark.transaction} for {target}"
        while (error := await self.tried(tell(mark, target), what)) is not None:
            if isinstance(error, TopicNotFound | PartitionNotFound | GroupNotFound):
                return
            self.tally.marker_retries += 1
            _log.info("%s has not received the outcome of %s yet: %s", target, mark.transaction, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
