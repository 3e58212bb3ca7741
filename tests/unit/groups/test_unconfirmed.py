"""Offsets in a transaction of which nobody can say whether it is open."""

from __future__ import annotations

import pytest

from groups.coordinator import GroupCoordinator
from groups.requests import AddOffsets, OffsetCommit
from raftlog.errors import CommitUnknown, ConnectionLost, NoLeader, NotLeader, Overloaded, RaftlogError
from raftlog.hosting.known_topics import KnownTopics
from tests.helpers.instant_groups import InstantLog, NoJobs, TopicsOnly
from tests.helpers.virtual_time import VirtualClock


@pytest.mark.parametrize(
    "error", [NoLeader("none"), NotLeader("not here"), CommitUnknown("no answer"), ConnectionLost("closed")]
)
async def test_offsets_of_a_transaction_that_nobody_can_confirm_are_refused_by_the_leader(
    error: RaftlogError,
) -> None:
    """Not as by a broker that does not lead the group: the caller would ask the next one, and be in doubt."""

    async def check_open(added: AddOffsets) -> None:
        raise error

    topics = TopicsOnly(KnownTopics({"orders": 1}))
    coordinator = GroupCoordinator(
        "__offsets/0", VirtualClock(), topics, NoJobs(), check_open, offsets_retention_ms=1 << 40
    )
    coordinator.leads(InstantLog(coordinator))
    offset = OffsetCommit(topic="orders", topic_id="t1", partition=0, offset=1)
    added = AddOffsets(group="g", offsets=(offset,), producer_id=7, epoch=0, transaction="copy-7@7.0")
    with pytest.raises(Overloaded, match="no offset was added"):
        await coordinator.ask(added, 1_000)
    assert not coordinator.state.transactions
