"""A broken invariant ends the process, and the group in which it broke is named before that."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Sequence

import pytest

from partitions.metadata.topic_config import complete
from partitions.replica.machine import PartitionMachine
from partitions.replica.replica import PartitionReplica
from raftlog.clock import SystemClock
from raftlog.core.membership import Membership
from raftlog.errors import InvariantViolated, LogCorrupt
from raftlog.node.group_host import GroupHost
from raftlog.records.batch import Batch
from raftlog.storage.log_storage import Sync
from raftlog.testing.memory_log import MemoryLog
from raftlog.testing.syncs import in_a_task
from raftlog.types import GroupId, NodeId, TopicPartition
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.storage_batches import storage_batch

ME, SEVEN, EIGHT = NodeId(1), GroupId(7), GroupId(8)


class Raises:
    """A machine that cannot take any state."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def restore(self, snapshot: bytes) -> None:
        """It never works."""
        raise self._error

    def apply(self, entry: Batch) -> None:
        """Not reached."""

    def snapshot(self) -> bytes:
        """Not reached."""
        return b""


class Process:
    """A host, and in which order it reported what."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []
        self.host = GroupHost(
            ME,
            LoopNetwork(random.Random(1)).transport(ME),
            SystemClock(),
            random.Random(1),
            in_a_task(self._sync),
            on_fatal=lambda error: self.told.append(("fatal", error)),
            note_broken=lambda group, error: self.told.append(("broken", group)),
        )

    async def _sync(self, syncs: Sequence[Sync]) -> list[OSError | None]:
        return [None for _ in syncs]

    def open(self, group: GroupId, error: BaseException) -> None:
        """Open a group whose machine raises this."""
        replica = PartitionReplica(TopicPartition("t", 0), (ME,), complete({}, 1), self.host.clock)
        self.host.open_group(group, MemoryLog(), Raises(error), Membership(frozenset({ME})), replica)


# A group that breaks an invariant ends its broker once; the next start stops and reports the group.
@pytest.mark.parametrize("kind", [InvariantViolated, ValueError])
def test_the_group_that_cannot_be_opened_is_named_first(kind: Callable[[str], BaseException]) -> None:
    process, error = Process(), kind("a table of another release")
    with pytest.raises(type(error)):
        process.open(SEVEN, error)
    assert process.told == [("broken", SEVEN), ("fatal", error)]


def test_what_follows_from_a_broken_invariant_is_no_other_groups_fault() -> None:
    process = Process()
    for group in (SEVEN, EIGHT):
        with pytest.raises(InvariantViolated):
            process.open(group, InvariantViolated("wrong"))
    assert [told for what, told in process.told if what == "broken"] == [SEVEN]


def test_damage_is_no_broken_invariant() -> None:
    process = Process()
    with pytest.raises(LogCorrupt):
        process.open(SEVEN, LogCorrupt("a flipped bit"))
    assert process.told == []


class Broken(MemoryLog):
    """A log whose disk gives this error."""

    def __init__(self, error: OSError | LogCorrupt) -> None:
        super().__init__()
        self._error = error

    def append(self, batches: Sequence[Batch]) -> None:
        """It never works."""
        raise self._error


@pytest.mark.parametrize("error", [OSError(errno.EIO, "a sector is gone"), LogCorrupt("a flipped bit")])
@in_virtual_time
async def test_a_disk_that_takes_no_entry_ends_its_replica_alone(error: OSError | LogCorrupt) -> None:
    process, ended = Process(), list[BaseException]()
    process.host.on_replica_failed = lambda group, error: ended.append(error)
    listener = PartitionReplica(TopicPartition("t", 0), (ME,), complete({}, 1), process.host.clock)
    group = process.host.open_group(
        SEVEN, Broken(error), PartitionMachine(), Membership(frozenset({ME})), listener, campaign_first=True
    )
    async with asyncio.timeout(5):
        while not group.is_leader:
            await asyncio.sleep(0)
    group.propose([storage_batch(0)])
    async with asyncio.timeout(5):
        while group.stopped is None:
            await asyncio.sleep(0)
    assert (group.stopped, ended, process.told) == (error, [error], [])
