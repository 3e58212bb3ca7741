"""The coordinator of one partition of ``__offsets``: what ``raftlog.hosting.coordinator`` does, for groups.

Decides: what a caller is told whose time is over. Leaves to others: what is written and answered
(``coordination``), appending (``raftlog.hosting``), which broker coordinates a group (``service``).

After an append that has failed, members keep their generation and get a whole session.
"""

from __future__ import annotations

from collections.abc import Mapping

from groups.coordination import Coordination
from groups.outputs import Row
from groups.records import KINDS
from groups.requests import Join, ReadGroup, Reply, Request, Sync
from groups.state import GroupsState
from groups.tally import Tally
from raftlog.clock import Clock
from raftlog.errors import CommitUnknown, RaftlogError, RebalanceInProgress
from raftlog.hosting.coordinator import Coordinator, CoordinatorLog
from raftlog.records.batch import Batch


class GroupCoordinator(Coordinator[Coordination, Request, Reply, Row]):
    """One partition. It is the derived state of its replica."""

    def __init__(
        self, name: str, clock: Clock, counts: Mapping[str, int], *, offsets_retention_ms: int
    ) -> None:
        """``counts`` are the partitions by topic, which the caller keeps up to date."""
        super().__init__(name, clock, lambda row: KINDS.record_of(*row))
        self.state = GroupsState()
        self.tally = Tally()
        self._counts = counts
        self._offsets_retention_ms = offsets_retention_ms

    @property
    def is_coordinating(self) -> bool:
        """Whether this broker answers for the groups of the partition."""
        return self.decisions is not None

    @property
    def coordinated(self) -> GroupsState | None:
        """The groups as they will be once all records are committed; None on other brokers."""
        return None if self.decisions is None else self.decisions.state

    # What the replica tells.

    def apply(self, entry: Batch) -> None:
        """See ``GroupsState.apply``."""
        self.state.apply(entry)

    def snapshot(self) -> bytes:
        """See ``GroupsState.snapshot``."""
        return self.state.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """See ``GroupsState.restore``."""
        self.state.restore(snapshot)

    def leads(self, log: CoordinatorLog | None) -> None:
        """This broker coordinates the groups from now on, or no longer."""
        self.tally.rebalances.clear()
        super().leads(log)

    def partitions_changed(self) -> None:
        """The partition counts have changed."""
        if self.decisions is not None:
            self.decisions.partitions_changed(self._now_ms())
            self.carry_out()

    async def summaries(self) -> list[tuple[str, str, int]]:
        """Name, state and number of members of each group. Raises ``NotLeader``."""
        decisions = await self.confirmed()
        groups = decisions.state.groups
        return [(name, decisions.state_of(name), len(each.members)) for name, each in groups.items()]

    # Hooks of the coordinator.

    def begin(self, now_ms: int) -> Coordination:
        """With the groups as they are committed."""
        return Coordination(
            self.state,
            self._counts,
            now_ms=now_ms,
            offsets_retention_ms=self._offsets_retention_ms,
            tally=self.tally,
        )

    def reads_only(self, request: Request) -> bool:
        """Views of a group."""
        return isinstance(request, ReadGroup)

    def too_late(self, request: Request, timeout_ms: int) -> RaftlogError:
        """A rebalance may last longer than a request."""
        if isinstance(request, Join | Sync):
            return RebalanceInProgress(
                f"the rebalance of group {request.group} is not over yet; repeat the request",
                retry_after_ms=0,
            )
        return CommitUnknown(f"group {request.group}: no answer within {timeout_ms} ms")
