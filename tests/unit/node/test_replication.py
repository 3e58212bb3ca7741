"""What a leader sends: entries from memory and from the disk, and its last words."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from raftlog.core.inputs import AppendCut, AppendDropped
from raftlog.core.messages import Heartbeat, Message, TimeoutNow
from raftlog.core.ready import HardState, Replicate
from raftlog.errors import LogCorrupt
from raftlog.node.catch_up import BURST_S, CatchUpRate
from raftlog.node.group.ports import GroupEnvironment
from raftlog.node.group.recent_entries import RecentEntries
from raftlog.node.group.replication import Leading, Replication
from raftlog.records.batch import split_batches
from raftlog.storage.filesystem import Buffer
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import EntryId, GroupId, Index, NodeId, Term
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

ME, FURTHEST, BEHIND = NodeId(1), NodeId(2), NodeId(3)
GROUP, FIRST_TERM = GroupId(1), Term(1)


class Links:
    """Whatever is sent to whom."""

    node_id = ME

    def __init__(self) -> None:
        self.catch_up = CatchUpRate(ManualWallClock(), 0)
        self.sent: list[tuple[NodeId, type[Message]]] = []
        self.payloads: list[bytes] = []

    def send(self, group: GroupId, to: NodeId, message: Message, payload: Sequence[Buffer] = ()) -> bool:
        """It leaves."""
        self.sent.append((to, type(message)))
        self.payloads.append(b"".join(payload))
        return True

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Beside the rest."""
        return asyncio.get_running_loop().create_task(work)


@dataclass
class Leader:
    """A group that leads in term 1, with a log of closed segments that are applied."""

    log: SegmentedLog
    group_id: GroupId = GROUP
    term: Term = FIRST_TERM
    is_leader: bool = True
    failures: list[BaseException] = field(default_factory=list)

    def stop(self, error: BaseException) -> None:
        self.is_leader = False
        self.failures.append(error)


BATCH = len(storage_batch(0).data)


@dataclass
class Story:
    """Four batches, two a segment, and a follower that has none of them."""

    disk: FakeFilesystem = field(default_factory=FakeFilesystem)
    links: Links = field(default_factory=Links)
    inputs: list[AppendCut | AppendDropped] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = LogSettings(segment_bytes=2 * BATCH)
        log = SegmentedLog.open(self.disk, "/log", settings, ManualWallClock())
        log.save_hard_state(HardState(Term(1), None))
        for base in range(6):
            log.append([storage_batch(base)])
        sync = log.take_sync()
        assert sync is not None
        sync.run()
        log.sync_finished(sync)
        self.leader = Leader(log)
        environment, group = cast("GroupEnvironment", self.links), cast("Leading", self.leader)
        recent: RecentEntries[None] = RecentEntries(log)
        self.replication = Replication(group, recent, environment, self.inputs.append)

    def order(self, first: int, last: int) -> None:
        """As the core asks for it."""
        previous = EntryId(Term(1) if first else Term(0), Index(first - 1))
        self.replication.carry_out(
            Replicate(
                to=BEHIND,
                term=Term(1),
                previous=previous,
                first=Index(first),
                last=Index(last),
                commit_index=Index(3),
            )
        )

    async def settle(self) -> None:
        while self.replication._reading:
            await asyncio.sleep(0)

    @property
    def sent(self) -> list[list[int]]:
        """Which entries left, message by message."""
        return [[batch.base_offset for batch in split_batches(payload)] for payload in self.links.payloads]


@in_virtual_time
async def test_entries_of_closed_segments_are_read_on_a_thread() -> None:
    story = Story()
    story.order(0, 5)
    assert story.sent == []
    await story.settle()
    assert story.sent == [[0, 1, 2, 3, 4, 5]]
    story.order(4, 5)  # these are among the newest
    assert story.sent == [[0, 1, 2, 3, 4, 5], [4, 5]]


@in_virtual_time
async def test_what_is_ordered_while_entries_are_read_does_not_overtake_them() -> None:
    story = Story()
    story.order(0, 3)
    story.order(4, 5)
    assert (story.sent, story.inputs) == ([], [])
    await story.settle()
    assert story.sent == [[0, 1, 2, 3]]
    assert story.inputs == [AppendCut(BEHIND, Index(3))]  # so that the core orders 4 again


@pytest.mark.parametrize("change", ["leads no more", "leads in a later term"])
@in_virtual_time
async def test_entries_that_were_read_for_another_office_are_not_sent(change: str) -> None:
    story = Story()
    story.order(0, 5)
    if change == "leads no more":
        story.leader.is_leader = False
    else:
        story.leader.term = Term(2)
    await story.settle()
    assert (story.sent, story.inputs, story.leader.failures) == ([], [], [])


# requirement: M3
@in_virtual_time
async def test_damaged_entries_are_not_sent_and_end_the_leader() -> None:
    story = Story()
    story.disk.flip_bit("/log/00000000000000000002.log", 70)
    story.order(0, 5)
    await story.settle()
    assert (story.sent, story.inputs) == ([], [])
    assert [type(error) for error in story.leader.failures] == [LogCorrupt]


@in_virtual_time
async def test_entries_that_retention_removes_while_they_are_read_are_asked_for_again() -> None:
    story = Story()
    story.order(0, 5)
    story.leader.log.truncate_prefix(Index(4))
    await story.settle()
    assert (story.sent, story.inputs) == ([], [AppendDropped(BEHIND)])
    assert story.leader.failures == []


@pytest.mark.parametrize("mine", [{ME: Index(9)}, {}], ids=["a voter", "on its way out"])
def test_a_leader_that_ends_calls_the_furthest_of_the_others(mine: dict[NodeId, Index]) -> None:
    links = Links()
    environment, entries = cast("GroupEnvironment", links), cast("RecentEntries[None]", None)
    group = cast("Leading", Leader(cast("SegmentedLog", None)))
    replication: Replication[None] = Replication(group, entries, environment, lambda event: None)
    replication.call_election(Term(3), {**mine, BEHIND: Index(5), FURTHEST: Index(8)})
    assert links.sent == [(FURTHEST, Heartbeat), (BEHIND, Heartbeat), (FURTHEST, TimeoutNow)]


def test_what_nobody_has_used_for_hours_is_no_room_for_catching_up() -> None:
    clock = ManualWallClock()
    rate = CatchUpRate(clock, 1_000_000)
    clock.now_ms += 3_600_000
    left = 0
    while rate.has_room():
        rate.spend(10_000)
        left += 10_000
    assert left == 1_000_000 * BURST_S
    clock.now_ms += 100
    assert rate.has_room()
