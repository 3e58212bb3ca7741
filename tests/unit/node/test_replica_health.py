"""The health of replicas, their snapshots, and groups that break an invariant."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec
import pytest

from partitions.metadata.topic_config import complete
from partitions.replica.machine import PartitionMachine
from partitions.replica.replica import PartitionReplica
from raftlog.clock import SystemClock
from raftlog.core.membership import Membership
from raftlog.core.messages import VoteReply
from raftlog.core.ready import RaftStatus, Role
from raftlog.errors import (
    InvalidRequest,
    InvariantViolated,
    LogCorrupt,
    MachineFailed,
    Overloaded,
    RecordTooLarge,
)
from raftlog.node.frame_limits import FRAME_LIMITS
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group.replica_health import ReplicaHealth
from raftlog.node.group.snapshot_transfer import SERVICE, SnapshotService
from raftlog.node.group.view import GroupView
from raftlog.node.group_host import GroupHost
from raftlog.node.network.transport import Transport
from raftlog.node.rpc import Calls, Handler
from raftlog.records.batch import Batch, Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.state_machine import StateMachine
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import Sync
from raftlog.testing.memory_log import MemoryLog
from raftlog.testing.syncs import in_a_task
from raftlog.types import EntryId, GroupId, Index, NodeId, Term, TopicPartition
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.storage_batches import storage_batch
from tests.helpers.virtual_time import eventually

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = frozenset({ONE, TWO, THREE})


def status(last: int, match: int, heard_ticks_ago: int) -> RaftStatus:
    """A leader's view, in which broker 3 is always well."""
    return RaftStatus(
        role=Role.LEADER,
        term=Term(1),
        leader=ONE,
        last=EntryId(Term(1), Index(last)),
        durable_index=Index(last),
        commit_index=Index(last),
        match_index={ONE: Index(last), TWO: Index(match), THREE: Index(last)},
        heard_ticks_ago={TWO: heard_ticks_ago, THREE: 0},
        is_quiescent=False,
    )


def health() -> ReplicaHealth:
    """Of a leader whose office has just begun."""
    found = ReplicaHealth(ONE, Membership(ALL), tick_ms=50)
    found.forget()
    return found


def test_everyone_has_the_benefit_of_the_doubt_once() -> None:
    found = health()
    for tick in range(21):
        assert found.in_sync(status(9, -1, tick), None, 1000) == ALL
        found.observe(status(9, -1, tick))
    assert found.in_sync(status(9, -1, 21), None, 1000) == {ONE, THREE}
    found.forget()
    assert found.in_sync(status(9, -1, 21), None, 1000) == ALL


def test_a_replica_under_load_keeps_up_although_it_is_always_a_little_behind() -> None:
    found = health()
    for tick in range(200):
        now = status(100 * tick, 100 * tick - 300, heard_ticks_ago=1)
        found.observe(now)
        assert found.in_sync(now, None, 1000) == ALL
    assert found.in_sync(status(1000, 700, 1), 300, 1000) == {ONE, THREE}
    assert found.in_sync(status(1000, 700, 1), 301, 1000) == ALL


def test_a_silent_replica_falls_out_although_the_log_does_not_move() -> None:
    found = health()
    for tick in range(40):
        found.observe(status(9, 9, tick % 3))
        assert found.in_sync(status(9, 9, tick % 3), None, 1000) == ALL
    for tick in range(30):
        found.observe(status(9, 9, tick))
    assert found.in_sync(status(9, 9, 30), None, 1000) == {ONE, THREE}
    for _ in range(2):  # the first answer says how far it was, the second that it is up to date now
        found.observe(status(9, 9, 0))
    assert found.in_sync(status(9, 9, 0), None, 1000) == ALL


def test_a_replica_without_which_a_group_became_quiescent_lags_until_it_has_caught_up() -> None:
    found = health()
    found.observe(status(9, 9, 0), frozenset({TWO}))
    assert found.in_sync(status(9, 9, 1), None, 1000) == ALL
    found.quiesced_without(frozenset({TWO}))
    found.observe(status(9, 9, 0), frozenset({TWO}))  # all are given time when the group unquiesces
    found.observe(status(9, 9, 1), frozenset({TWO}))
    assert found.in_sync(status(9, 9, 1), None, 1000) == {ONE, THREE}
    for heard_ticks_ago in (2, 3, 0):
        found.observe(status(12, 9, heard_ticks_ago))
    assert found.in_sync(status(12, 9, 0), None, 1000) == {ONE, THREE}
    found.observe(status(12, 12, 0))
    assert found.in_sync(status(12, 12, 0), None, 1000) == ALL


@dataclass
class States:
    """By the index at which a log may begin."""

    kept: dict[int, bytes]

    def load(self, base: Index) -> bytes | None:
        return self.kept.get(base)


@dataclass
class Log:
    """The part of a log that the health of a replica needs."""

    first_index: int
    states: States

    def term_at(self, index: Index) -> Term:
        return Term(3)


@dataclass
class Group:
    """A group that this broker leads."""

    log: Log
    stopped: BaseException | None = None


def group(first_index: int, **kept: bytes) -> Group:
    """Its log begins there; ``at_10=b"..."`` is a state that is kept."""
    return Group(Log(first_index, States({int(name[3:]): state for name, state in kept.items()})))


def service_of(groups: dict[int, Group]) -> Handler:
    calls = Calls(cast("Transport", None), first_id=0)
    SnapshotService(calls, lambda: cast("dict[GroupId, GroupView]", groups))
    return calls._services[SERVICE.name][1]


async def ask(service: Handler, number: int, index: int, term: int = 3) -> bytes:
    """The state behind this entry."""
    head = msgspec.msgpack.encode([number, term, index, 0])
    _, payload = await service(NodeId(2), head, memoryview(b""))
    return b"".join(payload)


async def test_each_group_gives_out_its_own_state() -> None:
    service = service_of({1: group(10, at_10=b"one"), 2: group(10, at_10=b"two")})
    for _ in range(2):
        assert await ask(service, 1, 9) == b"one"
        assert await ask(service, 2, 9) == b"two"


async def test_a_log_that_begins_later_gives_out_a_later_state() -> None:
    led = group(10, at_10=b"at ten", at_20=b"at twenty")
    service = service_of({1: led})
    assert await ask(service, 1, 9) == b"at ten"
    led.log.first_index = 20
    assert await ask(service, 1, 19) == b"at twenty"
    with pytest.raises(InvalidRequest, match="begins at 20"):
        await ask(service, 1, 9)


async def test_a_state_is_not_given_out_to_who_asks_for_another_term() -> None:
    with pytest.raises(InvalidRequest, match="of term 2"):
        await ask(service_of({1: group(10, at_10=b"one")}), 1, 9, term=2)


ME, SEVEN, EIGHT = NodeId(1), GroupId(7), GroupId(8)


class Raises:
    """A machine that cannot take any state."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Raise the error of the test."""
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
def test_the_group_that_cannot_be_opened_is_named_first() -> None:
    process, error = Process(), InvariantViolated("a table of another release")
    with pytest.raises(InvariantViolated):
        process.open(SEVEN, error)
    assert process.told == [("broken", SEVEN), ("fatal", error)]


@pytest.mark.parametrize(
    ("error", "failure"),
    [(MemoryError(), "no memory"), (ValueError("a table of another release"), "could not restore its state")],
)
def test_a_machine_that_fails_costs_its_replica_alone(error: Exception, failure: str) -> None:
    process = Process()
    with pytest.raises((MachineFailed, OSError), match=failure):
        process.open(SEVEN, error)
    assert process.told == [], "nothing is noted: the replica is opened again later"


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
        """Raise the error of the test."""
        raise self._error


async def leading(
    process: Process,
    log: MemoryLog | None = None,
    machine: StateMachine[Batch, None] | None = None,
    *,
    group_id: GroupId = SEVEN,
    is_internal: bool = False,
) -> RaftGroup[None]:
    """A group of one replica, which leads."""
    listener = PartitionReplica(TopicPartition("t", 0), (ME,), complete({}, 1), process.host.clock)
    group = process.host.open_group(
        group_id,
        log or MemoryLog(),
        machine or PartitionMachine(),
        Membership(frozenset({ME})),
        listener,
        campaign_first=True,
        is_internal=is_internal,
    )
    await eventually(lambda: group.is_ready)
    return group


@pytest.mark.parametrize("error", [OSError(errno.EIO, "a sector is gone"), LogCorrupt("a flipped bit")])
async def test_a_disk_that_takes_no_entry_ends_its_replica_alone(error: OSError | LogCorrupt) -> None:
    process, ended = Process(), list[BaseException]()
    process.host.on_replica_failed = lambda group, error: ended.append(error)
    group = await leading(process, Broken(error))
    group.propose([storage_batch(0)])
    await eventually(lambda: group.stopped is not None)
    assert (group.stopped, ended, process.told) == (error, [error], [])


class Failing(PartitionMachine):
    """A machine that cannot take in what is committed."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def apply(self, entry: Batch) -> None:
        """Raise the error of the test."""
        raise self._error


@pytest.mark.parametrize(
    ("error", "failure"), [(MemoryError(), "no memory"), (OverflowError("too large"), "OverflowError")]
)
async def test_an_entry_that_a_machine_cannot_take_in_ends_its_replica_alone(
    error: Exception, failure: str
) -> None:
    process, ended = Process(), list[BaseException]()
    process.host.on_replica_failed = lambda group, error: ended.append(error)
    group = await leading(process, machine=Failing(error))
    group.propose([storage_batch(0)])
    await eventually(lambda: group.stopped is not None)
    assert isinstance(group.stopped, MachineFailed | OSError)
    assert failure in str(group.stopped)
    assert (ended, process.told) == ([group.stopped], []), "no other group, nor the process"


async def test_a_batch_that_no_message_carries_is_refused_with_nothing_written() -> None:
    process = Process()
    group = await leading(process)
    end = group.last_index
    large = build_batch([Record(value=b"x" * FRAME_LIMITS.batch_bytes_max)], codec=Codec.NONE, timestamp_ms=0)
    (batch,) = split_batches(large)
    with pytest.raises(RecordTooLarge, match="send less") as refusal:
        group.propose([storage_batch(0), batch])
    assert refusal.value.is_definite
    assert group.last_index == end
    group.propose([storage_batch(0)])
    assert group.last_index == end + 1


async def test_a_message_that_no_frame_carries_costs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()

    def refuses(peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        raise ValueError("frame has 40000000 bytes: send at most 33554432")

    monkeypatch.setattr(process.host._transport, "send", refuses)
    assert not process.host.send(SEVEN, NodeId(2), VoteReply(term=Term(1), asked=Term(1), granted=True))
    assert process.told == []


# requirement: C2
async def test_internal_topics_go_on_where_users_records_wait() -> None:
    process = Process()
    users = await leading(process)
    internal = await leading(process, group_id=EIGHT, is_internal=True)
    process.host.uncommitted.bytes_max = -1
    with pytest.raises(Overloaded):
        users.propose([storage_batch(0)])
    internal.propose([storage_batch(0)])
    process.host.uncommitted_internal.bytes_max = -1
    with pytest.raises(Overloaded):
        internal.propose([storage_batch(0)])
