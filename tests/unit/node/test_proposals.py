"""Waits end once and in order, and what a leader replicates of its proposals."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from raftlog.core.entries import EntryKind, EntrySpan
from raftlog.core.inputs import AppendCut, AppendDropped
from raftlog.core.messages import Heartbeat, Message, TimeoutNow
from raftlog.core.ready import HardState, ReadConfirmed, Refused, Replicate
from raftlog.errors import CommitUnknown, InvariantViolated, LogCorrupt, NotLeader, Overloaded
from raftlog.node.catch_up import BURST_S, CatchUpRate
from raftlog.node.group import recent_entries
from raftlog.node.group.pending_requests import UNSETTLED_READS_MAX, Proposal, UncommittedBytes, Waits
from raftlog.node.group.ports import GroupEnvironment
from raftlog.node.group.recent_entries import RecentEntries
from raftlog.node.group.replication import Leading, Replication
from raftlog.node.network.transport import Transport
from raftlog.node.rpc import Calls
from raftlog.records.batch import split_batches
from raftlog.storage.filesystem import Buffer
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.log_changes import truncate_prefix
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import EntryId, GroupId, Index, NodeId, Term
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch


def in_log(recent: RecentEntries[str], base: int, count: int = 1, term: int = 1) -> Proposal[str]:
    """A proposal that the core has appended, and has had written."""
    proposal = staged(recent, base, count, term)
    recent.name(EntrySpan(Term(term), proposal.first, proposal.last))
    cast("MemoryLog", recent._log).append(recent.unwritten())
    return proposal


def staged(recent: RecentEntries[str], base: int, count: int = 1, term: int = 1) -> Proposal[str]:
    """A proposal that the core has given indexes to."""
    batches = [storage_batch(base, count, epoch=term)]
    proposal: Proposal[str] = Proposal(Index(base), Term(term), batches)
    recent.propose(proposal, batches)
    return proposal


def entries(shared: UncommittedBytes | None = None) -> RecentEntries[str]:
    """Of an empty log."""
    log = MemoryLog()
    log.save_hard_state(HardState(Term(2), None))
    return RecentEntries(log, shared)


def apply(recent: RecentEntries[str], reply: str) -> None:
    """The machine takes the next entry in."""
    entry = recent.next_to_apply(Index(0))
    assert entry is not None
    recent.applied(entry, reply)


async def test_proposals_end_when_their_own_last_batch_is_applied() -> None:
    recent = entries()
    first, second = in_log(recent, 0, 2), in_log(recent, 2)
    size = recent.uncommitted_bytes
    apply(recent, "a")
    assert (first.outcome.result(), second.outcome.done()) == ("a", False)
    assert recent.uncommitted_bytes == size - first.size_bytes
    apply(recent, "b")
    assert (second.outcome.result(), recent.uncommitted_bytes, recent.size_bytes) == ("b", 0, 0)


async def test_a_proposal_of_several_batches_ends_with_the_last_of_them() -> None:
    recent = entries()
    batches = [storage_batch(0), storage_batch(1)]
    proposal: Proposal[str] = Proposal(Index(0), Term(1), batches)
    recent.propose(proposal, batches)
    apply(recent, "a")
    assert not proposal.outcome.done()
    apply(recent, "b")
    assert proposal.outcome.result() == "b"


async def test_what_another_leader_put_in_a_proposals_place_does_not_acknowledge_it() -> None:
    recent = entries()
    proposal = in_log(recent, 0)
    recent.truncate(Index(0))
    assert isinstance(proposal.outcome.exception(), CommitUnknown)
    assert (recent.uncommitted_bytes, recent.size_bytes, recent.named_index) == (0, 0, -1)
    recent.stage([storage_batch(0, epoch=2)])
    recent.name(EntrySpan(Term(2), Index(0), Index(0)))
    apply(recent, "not ours")
    assert recent.uncommitted_bytes == 0


async def test_a_proposal_that_stands_elsewhere_than_it_was_stamped_is_a_broken_invariant() -> None:
    for span in (EntrySpan(Term(1), Index(1), Index(1)), EntrySpan(Term(2), Index(0), Index(0))):
        recent = entries()
        staged(recent, 0)
        with pytest.raises(InvariantViolated):
            recent.name(span)


async def test_entries_that_the_core_makes_stand_before_what_is_staged_behind_them() -> None:
    recent = entries()
    staged(recent, 1)
    recent.name(EntrySpan(Term(1), Index(0), Index(0), EntryKind.LEADER_CHANGE), storage_batch(0))
    assert (recent.named_index, recent.has_unwritten) == (0, True)
    recent.name(EntrySpan(Term(1), Index(1), Index(1)))
    assert [batch.base_offset for batch in recent.unwritten()] == [0, 1]


async def test_old_entries_are_dropped_unless_somebody_waits_or_the_log_lacks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent_entries, "RECENT_BYTES_MAX", 1)
    recent = entries()
    recent.stage([storage_batch(0)])
    recent.name(EntrySpan(Term(1), Index(0), Index(0)))
    recent.drop_written()
    assert recent.first_index == 0  # the log lacks it
    cast("MemoryLog", recent._log).append(recent.unwritten())
    in_log(recent, 1)
    recent.drop_written()
    assert recent.first_index == 1  # somebody waits for it
    recent.leadership_lost()
    recent.drop_written()
    assert (recent.first_index, recent.size_bytes) == (2, 0)


async def test_losing_the_office_ends_every_wait() -> None:
    waits, recent = Waits(), entries()
    proposal = in_log(recent, 0)
    durable, replicated = waits.until_durable(Index(0)), waits.until_replicated(Index(0), 2)
    _, read = waits.read()
    ready = waits.until_ready()
    for _ in range(2):  # the second time must not matter
        recent.leadership_lost()
        waits.leadership_lost()
    for future, kind in ((proposal.outcome, CommitUnknown), (durable, CommitUnknown), (read, NotLeader)):
        assert isinstance(future.exception(), kind)
    assert isinstance(replicated.exception(), CommitUnknown)
    assert ready.result() is None
    assert not waits.counts_replicas
    assert recent.uncommitted_bytes == 0


async def test_waiters_that_have_gone_are_passed_over() -> None:
    waits, recent = Waits(), entries()
    proposal = in_log(recent, 0)
    token, read = waits.read()
    other_token, other = waits.read()
    durable, replicated = waits.until_durable(Index(0)), waits.until_replicated(Index(0), 2)
    assert waits.counts_replicas
    for future in (proposal.outcome, read, durable, replicated):
        future.cancel()
    await asyncio.sleep(0)
    waits.settle(ReadConfirmed(token, Index(0)))
    waits.settle(Refused(other_token, NodeId(2)))
    assert isinstance(other.exception(), NotLeader)
    apply(recent, "a")
    waits.durable(Index(0))
    waits.replicated(lambda index: 0)
    assert not waits.counts_replicas
    assert recent.uncommitted_bytes == 0


async def test_who_waits_no_longer_for_another_role_leaves_nothing() -> None:
    waits = Waits()
    gone, stays = waits.until_role_changes(), waits.until_role_changes()
    gone.cancel()
    await asyncio.sleep(0)
    assert list(waits._role_changes) == [stays]
    waits.role_changed()
    assert stays.done()
    assert not waits._role_changes


# requirement: N2
async def test_what_waits_is_bounded_for_all_groups_of_a_broker_together() -> None:
    shared = UncommittedBytes(bytes_max=1)
    one, other, exempt = entries(shared), entries(shared), entries()
    one.check_room()
    in_log(one, 0)
    with pytest.raises(Overloaded, match="broker") as refused:
        other.check_room()
    assert refused.value.is_definite
    assert refused.value.details["retry_after_ms"]
    exempt.check_room()
    apply(one, "a")
    other.check_room()


# requirement: N2
async def test_a_replica_that_ends_gives_back_what_it_had_of_the_bound() -> None:
    shared = UncommittedBytes(bytes_max=1)
    recent = entries(shared)
    written, unsettled = in_log(recent, 0), staged(recent, 1)
    assert shared.total == recent.uncommitted_bytes == written.size_bytes + unsettled.size_bytes
    recent.leadership_lost()
    assert shared.total == recent.uncommitted_bytes == 0
    assert isinstance(unsettled.outcome.exception(), CommitUnknown)


async def test_who_has_stopped_waiting_leaves_nothing_behind() -> None:
    waits = Waits()
    for _ in range(100):
        for future in (waits.until_durable(Index(5)), waits.until_ready(), waits.until_role_changes()):
            future.cancel()
    await asyncio.sleep(0)
    assert [*waits._durable, *waits._ready, *waits._role_changes] == []


async def test_reads_that_a_leader_cannot_confirm_are_bounded() -> None:
    waits = Waits()
    tokens = []
    for _ in range(UNSETTLED_READS_MAX):
        token, future = waits.read()
        future.cancel()
        tokens.append(token)
    with pytest.raises(Overloaded):
        waits.read()
    waits.settle(ReadConfirmed(tokens[0], Index(3)))
    waits.read()


ME, FURTHEST, BEHIND = NodeId(1), NodeId(2), NodeId(3)
GROUP, FIRST_TERM = GroupId(1), Term(1)


class Links:
    """Whatever is sent to whom."""

    node_id = ME

    def __init__(self) -> None:
        self.calls = Calls(cast("Transport", None), first_id=0)
        self.catch_up = CatchUpRate(ManualWallClock(), 0)
        self.sent: list[tuple[NodeId, type[Message]]] = []
        self.payloads: list[bytes] = []

    def send(self, group: GroupId, to: NodeId, message: Message, payload: Sequence[Buffer] = ()) -> bool:
        """Take every message."""
        self.sent.append((to, type(message)))
        self.payloads.append(b"".join(payload))
        return True

    def begin(self, work: Coroutine[None, None, None], group: GroupId) -> asyncio.Task[None]:
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
        self.replication = Replication(group, recent, environment, environment, self.inputs.append)

    def order(self, first: int, last: int) -> None:
        """Order the entries for which the core asks."""
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


async def test_entries_of_closed_segments_are_read_on_a_thread() -> None:
    story = Story()
    story.order(0, 5)
    assert story.sent == []
    await story.settle()
    assert story.sent == [[0, 1, 2, 3, 4, 5]]
    story.order(4, 5)  # these are among the newest
    assert story.sent == [[0, 1, 2, 3, 4, 5], [4, 5]]


async def test_what_is_ordered_while_entries_are_read_does_not_overtake_them() -> None:
    story = Story()
    story.order(0, 3)
    story.order(4, 5)
    assert (story.sent, story.inputs) == ([], [])
    await story.settle()
    assert story.sent == [[0, 1, 2, 3]]
    assert story.inputs == [AppendCut(BEHIND, Index(3))]  # so that the core orders 4 again


@pytest.mark.parametrize("change", ["leads no more", "leads in a later term"])
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
async def test_damaged_entries_are_not_sent_and_end_the_leader() -> None:
    story = Story()
    story.disk.flip_bit("/log/00000000000000000002.log", 70)
    story.order(0, 5)
    await story.settle()
    assert (story.sent, story.inputs) == ([], [])
    assert [type(error) for error in story.leader.failures] == [LogCorrupt]


async def test_entries_that_retention_removes_while_they_are_read_are_asked_for_again() -> None:
    story = Story()
    story.order(0, 5)
    truncate_prefix(story.leader.log, Index(4))
    await story.settle()
    assert (story.sent, story.inputs) == ([], [AppendDropped(BEHIND)])
    assert story.leader.failures == []


@pytest.mark.parametrize("mine", [{ME: Index(9)}, {}], ids=["a voter", "on its way out"])
def test_a_leader_that_ends_calls_the_furthest_of_the_others(mine: dict[NodeId, Index]) -> None:
    links = Links()
    environment, entries = cast("GroupEnvironment", links), cast("RecentEntries[None]", None)
    group = cast("Leading", Leader(cast("SegmentedLog", None)))
    replication: Replication[None] = Replication(group, entries, environment, environment, lambda event: None)
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
