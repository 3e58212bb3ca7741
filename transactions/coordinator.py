"""The coordinator of one partition of ``__transactions``: requests as in every coordinator, and markers.

Decides: when a marker is sent again. Leaves to others: what is written and answered (``decisions``),
appending (``raftlog.hosting``), how a marker comes to a partition (the port ``Markers``).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from raftlog.clock import Clock
from raftlog.errors import RaftlogError, UnknownPartition, UnknownTopic
from raftlog.hosting.coordinator import Coordinator, CoordinatorLog
from raftlog.hosting.decisions import Effect
from raftlog.records.batch import Batch
from transactions.decisions import Decisions
from transactions.outputs import Mark, Row
from transactions.records import KINDS, Handle, Participant
from transactions.requests import ListTransactions, ReadTransaction, Reply, Request
from transactions.state import TransactionsState

MARKER_MS: Final = 2_000  # for one attempt
PAUSE_MIN_S: Final = 0.02
PAUSE_MAX_S: Final = 1.0
_log = logging.getLogger("raftlog.transactions")


class Markers(Protocol):
    """Writes markers into partitions."""

    async def write(
        self,
        target: Participant,
        transaction: Handle,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        timeout_ms: int,
    ) -> None:
        """Return once the partition shows the outcome.

        Raises ``RaftlogError``, and ``UnknownTopic`` and ``UnknownPartition`` only if the partition is known
        to be gone.
        """


class TransactionCoordinator(Coordinator[Decisions, Request, Reply, Row]):
    """One partition. It is the derived state of its replica."""

    def __init__(self, name: str, clock: Clock, markers: Markers, *, id_retention_ms: int) -> None:
        super().__init__(name, clock, lambda row: KINDS.record_of(*row))
        self.state = TransactionsState()
        self._markers = markers
        self._id_retention_ms = id_retention_ms
        self._sending: set[asyncio.Task[None]] = set()

    # What the replica tells.

    def apply(self, entry: Batch) -> None:
        """See ``KeyedState.apply``."""
        self.state.apply(entry)

    def snapshot(self) -> bytes:
        """See ``KeyedState.snapshot``."""
        return self.state.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """See ``KeyedState.restore``."""
        self.state.restore(snapshot)

    def leads(self, log: CoordinatorLog | None) -> None:
        """This broker coordinates the transactions from now on, or no longer."""
        for task in self._sending:
            task.cancel()
        self._sending.clear()
        super().leads(log)

    # Hooks of the coordinator.

    def begin(self, now_ms: int) -> Decisions:
        """With the transactions as they are committed."""
        return Decisions(
            self.state,
            now_ms=now_ms,
            wall_ms=self._clock.wall_ms(),
            id_retention_ms=self._id_retention_ms,
        )

    def reads_only(self, request: Request) -> bool:
        """Descriptions of transactions."""
        return isinstance(request, ReadTransaction | ListTransactions)

    def perform(self, effect: Effect) -> None:
        """Send markers beside everything else."""
        assert isinstance(effect, Mark)
        assert self.decisions is not None
        task = asyncio.get_running_loop().create_task(self._send(effect, self.decisions))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, mark: Mark, decisions: Decisions) -> None:
        await asyncio.gather(*(self._send_one(mark, target) for target in mark.partitions))
        if decisions is self.decisions:
            decisions.completed(mark.transaction, self._now_ms(), self._clock.wall_ms())
            self.carry_out()

    async def _send_one(self, mark: Mark, target: Participant) -> None:
        """Until the partition has it, or is gone."""
        pause_s = PAUSE_MIN_S
        while True:
            try:
                await self._markers.write(
                    target,
                    mark.transaction,
                    is_commit=mark.is_commit,
                    coordinator_epoch=0 if self._log is None else self._log.leader_epoch,
                    timeout_ms=MARKER_MS,
                )
                return
            except (UnknownTopic, UnknownPartition):
                return
            except RaftlogError as error:
                _log.info("%s has no marker of %s yet: %s", target, mark.transaction, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
