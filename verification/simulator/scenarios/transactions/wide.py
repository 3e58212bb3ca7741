"""A sink whose batches come near the limit of a frame between brokers, or exceed it (T13).

Its transactional ids, and the names of groups that take part in its transactions, are as long as possible.
Some records are as large as a frame. Decides: which requests are sent. Leaves to others: the limits
(``wide_odds``), and the check of sent frames (``network``).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.wire.limits import NAME_CHARACTERS_MAX
from transactions.batches import KEY_END
from transactions.records import Handle
from transactions.requests import AbortBatch, CommitBatch, Join, Open, Opened, Prepare
from verification.simulator.refusals import may_be_done
from verification.simulator.scenarios.transactions.clients import Story, TransactionClient, Write
from verification.simulator.scenarios.transactions.queries import PATIENCE_S, until_answered
from verification.simulator.scenarios.transactions.wide_odds import WideOdds
from verification.simulator.simulated_cluster import SimulatedCluster

NEAR: Final = "frame near its limit"
REFUSED: Final = "request above what a frame carries"
KEY: Final = "wide".ljust(NAME_CHARACTERS_MAX - 3, "-")
INCARNATION_CHARACTERS: Final = 64
GROUP_BYTES: Final = NAME_CHARACTERS_MAX + 2  # of a group in the row of a transaction
ABORTS_ODDS: Final = 0.2
LARGE_ODDS: Final = 0.4  # records that are as large as a frame, or so


class WideSink(TransactionClient):
    """Prepares and commits one batch after another, and aborts a refused batch."""

    def __init__(self, cluster: SimulatedCluster, odds: WideOdds, story: Story) -> None:
        super().__init__(cluster, "wide", story)
        self.refused = 0
        self._odds = odds
        self._limits = odds.frame_limits
        self._sequence = 0
        self._values = 0
        self._openings = 0

    async def run(self) -> None:
        """Begin batches until the producers of the run end; open transactions are then aborted after their
        timeout.
        """
        while self.cluster.is_producing:
            await self.cluster.rest()
            await asyncio.sleep(self.rng.expovariate(1.0) * self.story.odds.think_s)
            prepared: list[Handle] = []
            try:
                await self._one_batch(prepared)
            except RaftlogError:
                await self._abort(prepared)
                await self.pause()

    async def _one_batch(self, prepared: list[Handle]) -> None:
        odds, rng = self._odds, self.rng
        tasks = rng.randint(max(2, odds.handles - 1), odds.handles)
        size_bytes = rng.uniform(0.5, 1.5) * self._limits.decision_bytes_max
        groups = min(int(size_bytes / tasks / GROUP_BYTES), self._groups_max())
        work = [self._prepare(task, groups, prepared) for task in range(tasks)]
        for error in await asyncio.gather(*work, return_exceptions=True):
            if error is not None:
                raise error
        self._sequence += 1
        if rng.random() < ABORTS_ODDS:
            await self._abort(prepared)
            return
        batch = CommitBatch(key=KEY, sequence=self._sequence, handles=tuple(prepared))
        try:
            await until_answered(self, batch)
        except InvalidRequest as error:
            self._note_refused(error)
            await self._abort(prepared)

    async def _abort(self, prepared: list[Handle]) -> None:
        """Abort the prepared transactions. If no broker answers, their timeout aborts them."""
        if prepared:
            with contextlib.suppress(RaftlogError):
                await until_answered(self, AbortBatch(key=KEY, handles=tuple(prepared)))

    def _groups_max(self) -> int:
        """The number of groups of a transaction whose row stays far below the size limit of a write."""
        return self._limits.write_bytes_max // 2 // GROUP_BYTES

    async def _prepare(self, task: int, groups: int, prepared: list[Handle]) -> None:
        name = f"{KEY}{KEY_END}{task:02}"
        self._openings += 1
        incarnation = f"{self._openings}".rjust(INCARNATION_CHARACTERS, "0")
        reply = await until_answered(
            self,
            Open(transactional_id=name, timeout_ms=self.story.odds.timeout_ms, incarnation=incarnation),
        )
        assert isinstance(reply, Opened)
        handle = Handle(name, reply.producer_id, reply.epoch)
        self.begins(handle)
        await self._write(handle)
        names = tuple(f"{task}-{number}".ljust(NAME_CHARACTERS_MAX, "-") for number in range(groups))
        at_once = self._limits.chunk_bytes // GROUP_BYTES
        for first in range(0, groups, at_once):
            await until_answered(self, Join(transaction=handle, groups=names[first : first + at_once]))
        await until_answered(self, Prepare(transaction=handle, prepared_ms_max=self.story.odds.prepared_ms))
        prepared.append(handle)

    async def _write(self, handle: Handle) -> None:
        """Send a record until its outcome is known. A record above the limit of a frame is refused and never
        visible.
        """
        is_large = self.rng.random() < LARGE_ODDS
        padding = bytes(int(self.rng.uniform(0.6, 1.2) * self._odds.frame_bytes_max) if is_large else 10)
        self._values += 1
        write = Write(self.rng.choice(self.story.targets), (f"wide-{self._values}",))
        plain = build_batch(
            [Record(value=write.values[0].encode(), key=padding)], codec=Codec.NONE, timestamp_ms=1
        )
        data = with_producer(plain, handle.producer_id, handle.epoch, 0, in_transaction=True)
        self.story.writes.setdefault(handle, []).append(write)
        began_s = self.cluster.loop.now
        while write.offset is None:
            try:
                write.offset = (await self.send(handle, write.target, data)).base_offset
            except InvalidRequest as error:
                self._note_refused(error)
                write.is_refused = True
                return
            except RaftlogError as error:
                if not error.retryable or self.cluster.loop.now - began_s > PATIENCE_S:
                    raise
                await self.pause()

    def _note_refused(self, error: InvalidRequest) -> None:
        """Check that the refusal is permanent and names the size: other refusals of this kind are
        violations.
        """
        self.refused += 1
        is_size = "bytes" in str(error) or "too large" in str(error)
        if may_be_done(error) or error.retryable or not is_size:
            self.cluster.violated("I12 errors", f"{self.name}: {error!r}")
