"""A first start, unsafe recoveries, and the trash of a broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar, cast

import pytest

from partitions.hosting.first_start import FirstStart
from partitions.hosting.trash import Trash
from partitions.reassignment.unsafe_recovery import Survey, survey
from partitions.routing import rpc
from partitions.routing.rpc import LogEnd
from raftlog.errors import ConnectionLost, InvalidRequest
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import decode_body, encode_body
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.types import EntryId, GroupId, Index, NodeId, Term, TopicPartition
from tests.helpers.virtual_time import VirtualClock

OTHERS = (NodeId(2), NodeId(3))


class Answering:
    """The other brokers: what each says, or nothing."""

    def __init__(self, **answers: bool | None) -> None:
        self.answers = {NodeId(int(name[1:])): answer for name, answer in answers.items()}

    async def call(self, peer: NodeId, *_: object, timeout_ms: int) -> tuple[bytes, memoryview]:
        answer = self.answers.get(peer)
        if answer is None:
            raise ConnectionLost("it is down", sent=False)
        return encode_body(answer), memoryview(b"")


class Host:
    """A host that hears some brokers, one of them later."""

    def __init__(self, calls: Answering, heard: set[int], later: int | None) -> None:
        self.calls, self.clock = calls, VirtualClock()
        self._heard, self._later = heard, later

    @property
    def reachable_peers(self) -> frozenset[NodeId]:
        is_later = self._later is not None and self.clock.monotonic() >= 0.8
        return frozenset(map(NodeId, {*self._heard, *({self._later} if is_later else ())}))


def first_start(
    others: Answering,
    *,
    heard: set[int],
    has_joined: bool = False,
    peers: tuple[NodeId, ...] = OTHERS,
    later: int | None = None,
    listens_s: float = 0.0,
) -> FirstStart:
    """One broker's, with an empty disk."""
    host = Host(others, heard, later)
    disk = FakeFilesystem()
    return FirstStart(
        cast("GroupHost", host),
        peers,
        disk,
        "/data/__metadata",
        ReplicaRegistry.open(disk, "/data", random.Random(1)),
        asyncio.to_thread,
        has_joined=has_joined,
        listens_s=listens_s,
    )


async def test_it_begins_only_when_all_others_say_that_they_know_no_cluster() -> None:
    assert not await first_start(Answering(n2=False, n3=False), heard={2, 3}).is_over()
    assert await first_start(Answering(n2=True), heard={2}).is_over()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await first_start(Answering(n2=False), heard={2}).is_over()


# requirement: F6
async def test_a_broker_that_is_in_no_file_proves_that_there_is_a_cluster() -> None:
    assert await first_start(Answering(n2=False, n3=False), heard={2, 3, 4}).is_over()


# requirement: F6
async def test_the_only_first_broker_listens_for_those_that_came_later() -> None:
    alone = first_start(Answering(), heard=set(), peers=(), later=4, listens_s=2.0)
    assert await alone.is_over(), "it has lost its disk"
    assert not await first_start(Answering(), heard=set(), peers=(), listens_s=2.0).is_over()


# requirement: F2
async def test_a_broker_that_has_joined_begins_none_whoever_answers() -> None:
    for answers in (Answering(n2=False, n3=False), Answering()):
        assert await first_start(answers, heard=set(), has_joined=True).is_over()


ORDERS = TopicPartition("orders", 3)


def group(*numbers: int) -> frozenset[NodeId]:
    return frozenset(NodeId(number) for number in numbers)


def end(term: int, index: int, *halves: frozenset[NodeId], commit: int = 5) -> LogEnd:
    return LogEnd(
        last=EntryId(Term(term), Index(index)),
        commit_index=Index(commit),
        halves=halves or (group(1, 2, 3),),
    )


def judged(**answers: LogEnd) -> Survey:
    replicas = (NodeId(1), NodeId(2), NodeId(3))
    return survey(ORDERS, replicas, {NodeId(int(name[1:])): found for name, found in answers.items()})


# requirement: F6
def test_the_last_term_decides_and_in_it_the_last_index() -> None:
    five = group(1, 2, 3, 4, 5)
    assert judged(n1=end(2, 90, five), n2=end(3, 10, five)).survivor == 2
    assert judged(n1=end(3, 11, five), n2=end(3, 10, five)).survivor == 1
    assert judged(n1=end(3, 11, five), n2=end(3, 10, five)).lost == (3, 4, 5)


def test_it_is_needed_only_where_no_majority_answers() -> None:
    assert not judged(n1=end(2, 9), n3=end(2, 9)).is_needed
    assert judged(n1=end(2, 9)).is_needed
    # Two of the four that answer might agree, but not in both halves of the change under way.
    assert judged(n1=end(2, 9, group(1), group(1, 2, 3))).is_needed
    assert not judged(n1=end(2, 9, group(1), group(1, 2, 3)), n2=end(2, 8)).is_needed


def test_a_log_that_names_nobody_counts_for_nothing() -> None:
    found = judged(n1=end(2, 9), n2=end(0, -1, group()))
    assert found.is_needed
    assert (found.survivor, found.lost) == (1, (2, 3))


def test_without_any_log_there_is_nothing_to_recover_from() -> None:
    found = judged(n2=end(0, -1, group()))
    assert (found.survivor, found.is_needed, found.lost) == (None, True, (1, 2, 3))
    assert "cannot be recovered" in found.estimate


def test_the_phrase_names_what_is_given_up_and_changes_with_it() -> None:
    found = judged(n1=end(2, 9))
    assert found.phrase == "recover orders/3 from broker 1 without brokers 2, 3"
    assert judged(n2=end(2, 9)).phrase != found.phrase
    assert "offset 9 in term 2" in found.estimate
    assert "6 offsets to be committed" in found.estimate
    assert found.lines == ["broker 1: log ends at offset 9 in term 2, committed up to 5"]


def test_calls_about_replicas_are_read_as_they_were_written_and_nothing_else_is() -> None:
    place = (ORDERS, GroupId(7))
    bodies = (
        rpc.Append(place, "quorum", 1000),
        rpc.Transfer(place, None, 1000),
        rpc.Prepared(place, 3),
        rpc.PreparedAnswer(is_open=True, is_rejoining=False),
        rpc.DeleteAnswer(True),
        end(2, 9, group(1, 2), group(3)),
    )
    for body in bodies:
        assert decode_body(encode_body(body), type(body)) == body
        for wrong in (b"", b"\xc1", b"\x90", b"\xa1\xff", b"\x91" * 5000, encode_body([place])):
            with pytest.raises(InvalidRequest, match=type(body).__name__):
                decode_body(wrong, type(body))


FOLDER = "/data/orders-0123/Partition-1"
HOUR_MS = 3_600_000
Result = TypeVar("Result")


class Clocks:
    """Both stand still unless they are told to go on."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.wall = 1_700_000_000_000
        self.is_trusted = True

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return self.wall

    def trusted_ms(self) -> int | None:
        return self.wall if self.is_trusted else None

    def pass_ms(self, ms: int) -> None:
        self.now_s += ms / 1000
        self.wall += ms


async def at_once(work: Callable[[], Result]) -> Result:
    return work()


def trash_on(
    filesystem: FakeFilesystem, clocks: Clocks, *, has_room: Callable[[], bool] = lambda: True
) -> Trash:
    return Trash(filesystem, "/data", clocks, at_once, delay_ms=HOUR_MS, has_room=has_room)


def with_folder() -> FakeFilesystem:
    filesystem = FakeFilesystem()
    filesystem.make_directories(FOLDER)
    filesystem.replace_file(f"{FOLDER}/0.log", b"records")
    return filesystem


def entries(filesystem: FakeFilesystem) -> list[str]:
    return filesystem.list_directory("/data/trash")


# requirement: T7
async def test_a_folder_in_the_trash_is_whole_and_goes_after_the_delay() -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash = trash_on(filesystem, clocks)
    trash.put(FOLDER, "moved-away")
    assert not filesystem.exists(FOLDER)
    kept = "/data/trash/1700000000000-moved-away/orders-0123/Partition-1/0.log"
    assert filesystem.read_file(kept) == b"records"
    await trash.look()
    assert trash.size_bytes == len(b"records")
    clocks.pass_ms(HOUR_MS - 1)
    await trash.look()
    assert filesystem.exists(kept)
    clocks.pass_ms(1)
    await trash.look()
    assert entries(filesystem) == []
    assert trash.size_bytes == 0


def test_what_comes_twice_at_one_time_is_kept_twice_and_what_is_not_there_makes_no_entry() -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash = trash_on(filesystem, clocks)
    trash.put(FOLDER, "deleted")
    trash.put(FOLDER, "deleted")
    assert len(entries(filesystem)) == 1
    filesystem.make_directories(FOLDER)
    filesystem.replace_file(f"{FOLDER}/0.log", b"others")
    trash.put(FOLDER, "deleted")
    assert entries(filesystem) == ["1700000000000-deleted", "1700000000001-deleted"]


# requirement: T7
async def test_a_clock_that_nobody_confirms_removes_nothing_after_a_restart() -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash_on(filesystem, clocks).put(FOLDER, "deleted")
    again = trash_on(filesystem, clocks)
    clocks.wall, clocks.is_trusted = clocks.wall + 10_000 * HOUR_MS, False
    await again.look()
    clocks.now_s += 2 * HOUR_MS / 1000
    await again.look()
    assert (len(entries(filesystem)), again.size_bytes) == (1, len(b"records"))
    clocks.is_trusted = True
    await again.look()
    assert entries(filesystem) == []


async def test_a_clock_that_is_set_removes_nothing_early_while_the_broker_runs() -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash = trash_on(filesystem, clocks)
    trash.put(FOLDER, "deleted")
    await trash.look()
    clocks.wall += 10 * HOUR_MS
    await trash.look()
    assert len(entries(filesystem)) == 1
    clocks.pass_ms(HOUR_MS)
    await trash.look()
    assert entries(filesystem) == []


@pytest.mark.parametrize(("wall_passed_ms", "left_ms"), [(HOUR_MS - 60_000, 60_000), (-HOUR_MS, HOUR_MS)])
async def test_the_delay_goes_on_after_a_restart_and_is_never_longer_than_the_setting(
    wall_passed_ms: int, left_ms: int
) -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash_on(filesystem, clocks).put(FOLDER, "deleted")
    clocks.wall += wall_passed_ms
    again = trash_on(filesystem, clocks)
    await again.look()
    clocks.pass_ms(left_ms - 1)
    await again.look()
    assert len(entries(filesystem)) == 1
    clocks.pass_ms(1)
    await again.look()
    assert entries(filesystem) == []


async def test_without_room_the_oldest_goes_at_once_one_at_a_look_and_only_until_there_is_room() -> None:
    filesystem, clocks = with_folder(), Clocks()
    room = [False, True]
    trash = trash_on(filesystem, clocks, has_room=lambda: room.pop(0) if room else True)
    for _ in range(3):
        filesystem.make_directories(FOLDER)
        filesystem.replace_file(f"{FOLDER}/0.log", b"records")
        trash.put(FOLDER, "deleted")
        clocks.pass_ms(1000)
    await trash.look()
    assert entries(filesystem) == ["1700000001000-deleted", "1700000002000-deleted"]
    await trash.look()
    assert len(entries(filesystem)) == 2


async def test_what_an_operator_puts_there_stays() -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash = trash_on(filesystem, clocks, has_room=lambda: False)
    filesystem.make_directories("/data/trash/notes")
    await trash.look()
    assert entries(filesystem) == ["notes"]


async def test_wherever_the_power_goes_the_folder_is_whole_at_one_place() -> None:
    crashes = 0
    for after in range(12):
        for seed in range(10):
            filesystem, clocks = with_folder(), Clocks()
            filesystem.crash_after_changes = after
            try:
                trash_on(filesystem, clocks).put(FOLDER, "deleted")
            except PowerLost:
                crashes += 1
            filesystem.lose_power(random.Random(seed))
            assert [filesystem.read_file(path) for path in filesystem.paths()] == [b"records"]
            if filesystem.exists(FOLDER):
                trash_on(filesystem, clocks).put(FOLDER, "deleted")
            again = trash_on(filesystem, clocks)
            await again.look()
            clocks.pass_ms(2 * HOUR_MS)
            await again.look()
            assert filesystem.paths() == []
            assert entries(filesystem) == []
    assert crashes > 20
