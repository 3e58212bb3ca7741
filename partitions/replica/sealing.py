"""Sealing a decommissioned partition: its log says from where on it takes no records of producers.

Decides: when a seal is written, and which produce is refused. Leaves to others: which partitions are
decommissioned (the metadata), the state (``sealed``), and removing the partition (``reassignment.removal``).

A produce is refused only once the seal is committed, by a leader that has just proved that it leads. Each
later leader has the entry, whatever metadata it knows. So the refusal is definite: also an earlier attempt of
the same batch, which a network has delayed, is never stored. Batches with a sequence that were stored before
the seal are still recognised, so a repeated attempt gets its receipt.
"""

from __future__ import annotations

import asyncio

from partitions.replica.machine import PartitionMachine
from partitions.replica.sealed import OPEN
from partitions.replica.serving import Serving
from raftlog.clock import Clock
from raftlog.errors import CommitUnknown, NoLeader, PartitionDecommissioned
from raftlog.node.group.pending_requests import Proposal
from raftlog.records.control import Seal, seal_batch, seal_in
from raftlog.units import counted


class Sealing:
    """The seal of one replica, while it leads."""

    def __init__(self, serving: Serving, machine: PartitionMachine, clock: Clock) -> None:
        self._serving = serving
        self._state = machine.sealed
        self._clock = clock
        self._wanted = OPEN  # as the metadata here says
        self._writable = serving.target.partition  # partitions of the topic that take records
        self._proposal: Proposal[None] | None = None
        self._knows_earlier = False  # all seals of earlier leaders, in this leader epoch

    def want(self, seal: Seal, writable: int) -> None:
        """The metadata is newer."""
        self._wanted = seal
        self._writable = writable

    @property
    def is_due(self) -> bool:
        """Whether the log does not say yet what the metadata here says."""
        return self._is_newer and self._wanted.is_sealed != self._state.newest.is_sealed

    def check_open(self) -> None:
        """Raise ``PartitionDecommissioned`` unless a batch may be appended now.

        It is definite after ``settle`` and a proof of leadership. A partition taken into use again is
        open once its log says so: behind a seal no batch may be on its way.
        """
        is_sealed = self._state.newest.is_sealed or (self._is_newer and self._wanted.is_sealed)
        if is_sealed or self._is_being_written or not (self._knows_earlier or self._knows_all()):
            target = self._serving.target
            writable = min(self._writable, target.partition)
            raise PartitionDecommissioned(
                f"{target} is decommissioned and takes no more records; topic {target.topic} takes them in "
                f"{counted(writable, 'partition')}: send to one of 0 to {writable - 1}, or name no partition",
                topic=target.topic,
                partition=target.partition,
                partitions=writable,
            )

    async def settle(self, deadline: float) -> None:
        """Return once the log says what the metadata here says, and this leader has applied it.

        Raises ``NotLeader``, ``NoLeader``, ``StorageFull``.
        """
        serving = self._serving
        await serving.ready(deadline)
        while self.is_due or self._is_being_written:
            if not self._is_being_written:
                # It may use the disk's reserve, as it ends the growth of the log.
                batch = seal_batch(self._wanted, timestamp_ms=self._clock.wall_ms())
                self._proposal = serving.group.propose([batch], frees_room=True)
            assert self._proposal is not None
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.shield(self._proposal.outcome)
            except (TimeoutError, CommitUnknown) as late:
                raise NoLeader(
                    f"{serving.target} is being decommissioned, or taken into use again: {late}; retry",
                    retry_after_ms=200,
                ) from None
            await serving.ready(deadline)

    def new_epoch(self) -> None:
        """Only the log knows what becomes of what was proposed."""
        self._proposal = None
        self._knows_earlier = False

    @property
    def _is_newer(self) -> bool:
        return self._wanted.version > self._state.newest.version

    @property
    def _is_being_written(self) -> bool:
        return self._proposal is not None and not self._proposal.outcome.done()

    def _knows_all(self) -> bool:
        """Whether no entry that this leader has not applied yet can be a seal.

        A leader that is ready stays so in its epoch: only it writes entries, so the answer is kept.
        """
        if self._serving.is_ready:
            self._knows_earlier = True
            return True
        rest = self._serving.group.unapplied
        return rest is not None and all(seal_in(batch) is None for batch in rest)
