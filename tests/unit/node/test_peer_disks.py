"""What brokers tell each other about their disks, and whose frames are dropped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from raftlog.node.cluster_time import ClockReading
from raftlog.node.codec import FrameKind, MalformedFrame, encode_frame, encode_heartbeats, split_frame
from raftlog.node.group_host import GroupHost
from raftlog.node.peer_disks import PeerDisks
from raftlog.storage.disk_age import Disk, DiskAge
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import Sync
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.syncs import in_a_task
from raftlog.types import NodeId
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.recording_receiver import RecordingReceiver
from tests.helpers.virtual_time import VirtualClock

ONE, TWO = NodeId(1), NodeId(2)
Result = TypeVar("Result")


class Side:
    """One broker: its disk, and the frames that it has sent."""

    def __init__(self, filesystem: FakeFilesystem, disk_id: str) -> None:
        filesystem.make_directories("/data")
        self.filesystem = filesystem
        self.sent: list[bytes] = []
        self.explained: list[str] = []  # why frames of processes that cannot be reached are dropped
        self.is_mutual = True  # this broker reaches the process that sends to it
        self.began_again = asyncio.Event()
        age = DiskAge.open(filesystem, "/data", disk_id, random.Random(disk_id))
        self.disks = PeerDisks(self, age, self.began_again.set, run_now)  # type: ignore[arg-type]

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """A part of a transport that is used."""
        self.sent.append(b"".join(buffers))
        return True

    def reaches(self, peer: NodeId) -> bool:
        """The other part of a transport that is used."""
        return self.is_mutual

    def refuse_unreached(self, peer: NodeId, why: str) -> None:
        """Note the reason of a refusal."""
        self.explained.append(why)

    def noted(self, peer: NodeId) -> Disk | None:
        """The disk of a peer, as this broker knows it after a power loss."""
        rest, disk = FakeFilesystem(), self.filesystem
        stored = {path: disk.stored(path, durable=True) for path in disk.paths()}
        rest.load({path: bytes(file.disk) for path, file in stored.items() if file is not None})
        return DiskAge.open(rest, "/data", "k", random.Random(1)).known_of(peer)

    def hand_over(self, other: Side, as_: NodeId) -> None:
        """All frames arrive at the other one."""
        sent, self.sent = self.sent, []
        for frame in sent:
            kind, head, _ = split_frame(memoryview(frame))
            assert kind is FrameKind.DISK
            other.disks.received(as_, head)


async def run_now(work: Callable[[], Result]) -> Result:
    return work()


async def aged(side: Side, intervals: int) -> None:
    """Let the disk of a side age."""
    before, running = side.disks.age.disk.age, asyncio.create_task(side.disks.run(1))
    async with asyncio.timeout(10):
        while side.disks.age.disk.age < before + intervals:
            await asyncio.sleep(0.001)
    running.cancel()


# requirement: F6
async def test_the_older_copy_is_refused_and_begins_again_and_another_disk_is_welcome() -> None:
    knower, aging = Side(FakeFilesystem(), "k"), Side(FakeFilesystem(), "d")
    copy = aging.filesystem.image()
    aging.disks.connected(ONE)
    await aged(aging, 3)
    assert len(aging.sent) >= 4  # at once, and with each interval
    aging.hand_over(knower, TWO)
    assert knower.disks.refused == {}

    older = FakeFilesystem()
    older.load(copy)
    restored = Side(older, "d")
    restored.disks.connected(ONE)
    restored.hand_over(knower, TWO)
    assert knower.disks.refused == {TWO: "d"}
    running = asyncio.create_task(restored.disks.run(60_000))
    knower.hand_over(restored, ONE)
    async with asyncio.timeout(10):
        await restored.began_again.wait()
        await running
    assert DiskAge.open(older, "/data", "d", random.Random(3)).is_older_copy

    restored.disks.age.begin_again("e")
    restored.disks.connected(ONE)
    restored.hand_over(knower, TWO)
    assert knower.disks.refused == {}
    known = knower.disks.age.known_of(TWO)
    assert known is not None
    assert (known.disk_id, known.age) == ("e", 0)


# requirement: F6
async def test_a_verdict_about_another_process_restarts_nobody() -> None:
    """A copy of the disk is started beside its original, or another disk with the same broker's id was."""
    knower, original = Side(FakeFilesystem(), "k"), Side(FakeFilesystem(), "d")
    copied = FakeFilesystem()
    copied.load(original.filesystem.image())
    original.disks.connected(ONE)
    await aged(original, 3)
    original.hand_over(knower, TWO)
    copy = Side(copied, "d")
    copy.disks.connected(ONE)
    copy.hand_over(knower, TWO)
    assert knower.disks.refused == {TWO: "d"}
    running = asyncio.create_task(original.disks.run(60_000))
    knower.hand_over(original, ONE)  # the answer goes to the address of the original
    verdict = encode_frame(FrameKind.DISK, [Disk("k", 1), Disk("e", 7), "another one"])
    original.disks.received(ONE, split_frame(memoryview(b"".join(verdict)))[1])
    await asyncio.sleep(1)
    assert not original.began_again.is_set()
    running.cancel()


# requirement: F6
@pytest.mark.parametrize("is_reached", [True, False])
async def test_an_older_copy_that_cannot_be_reached_reads_why_it_is_refused(is_reached: bool) -> None:
    """It runs where no other broker dials it, so that no answer arrives."""
    knower, aging, older = Side(FakeFilesystem(), "k"), Side(FakeFilesystem(), "d"), FakeFilesystem()
    copy = aging.filesystem.image()
    aging.disks.connected(ONE)
    await aged(aging, 3)
    aging.hand_over(knower, TWO)
    older.load(copy)
    restored = Side(older, "d")
    restored.disks.connected(ONE)
    knower.is_mutual = is_reached
    restored.hand_over(knower, TWO)
    assert knower.disks.refused == {TWO: "d"}
    assert knower.explained == ([] if is_reached else ["the disk of node 2 is an older copy"])


# requirement: F6
async def test_an_empty_disk_of_a_process_that_cannot_be_reached_replaces_nothing() -> None:
    """Settings were copied to another machine: its broker has the id of the one that the others dial."""
    knower, original, second = (Side(FakeFilesystem(), disk_id) for disk_id in "kde")
    original.disks.connected(ONE)
    original.hand_over(knower, TWO)
    knower.is_mutual = False
    second.disks.connected(ONE)
    second.hand_over(knower, TWO)
    assert knower.disks.refused == {TWO: "e"}
    assert knower.sent == [], "it gets no verdict"
    assert knower.explained == ["node 2 has another disk than before"]
    knower.is_mutual = True  # the link to the original is made again
    original.disks.connected(ONE)
    original.hand_over(knower, TWO)
    assert knower.disks.refused == {}
    known = knower.disks.age.known_of(TWO)
    assert known is not None
    assert known.disk_id == "d"


# requirement: F6
async def test_an_empty_disk_takes_part_once_its_process_is_reached() -> None:
    knower, original, replaced = (Side(FakeFilesystem(), disk_id) for disk_id in "kde")
    original.disks.connected(ONE)
    original.hand_over(knower, TWO)
    knower.is_mutual = False
    replaced.disks.connected(ONE)
    replaced.hand_over(knower, TWO)
    assert knower.disks.refused == {TWO: "e"}
    knower.is_mutual = True
    knower.disks.connected(TWO)
    assert knower.disks.refused == {}


# requirement: F6
async def test_an_empty_disk_gets_no_verdict_when_the_link_to_its_process_was_lost_meanwhile() -> None:
    knower, original, replaced = (Side(FakeFilesystem(), disk_id) for disk_id in "kde")
    original.disks.connected(ONE)
    original.hand_over(knower, TWO)
    knower.is_mutual = False
    replaced.disks.connected(ONE)
    replaced.hand_over(knower, TWO)
    knower.disks.lost(TWO)
    knower.disks.connected(TWO)
    knower.hand_over(replaced, ONE)
    running = asyncio.create_task(replaced.disks.run(1))
    await asyncio.sleep(0.01)
    running.cancel()
    assert not replaced.disks.age.is_older_copy


# requirement: F6
async def test_a_disk_that_another_one_has_replaced_begins_again() -> None:
    side = Side(FakeFilesystem(), "d")
    verdict = encode_frame(FrameKind.DISK, [Disk("k", 1), Disk("e", 0), "d"])
    side.disks.received(ONE, split_frame(memoryview(b"".join(verdict)))[1])
    async with asyncio.timeout(10):
        await side.disks.run(60_000)
    assert side.disks.age.is_older_copy


# requirement: F6
async def test_what_is_told_is_durable_and_a_full_disk_tells_nothing() -> None:
    side = Side(FakeFilesystem(), "d")
    side.disks.connected(ONE)
    side.filesystem.capacity_bytes = side.filesystem.used_bytes
    running = asyncio.create_task(side.disks.run(1))
    await asyncio.sleep(0.05)
    assert (side.disks.age.disk.age, len(side.sent)) == (0, 1)
    side.filesystem.capacity_bytes = None
    async with asyncio.timeout(10):
        while len(side.sent) < 2:
            await asyncio.sleep(0.001)
    running.cancel()
    assert side.disks.age.disk.age >= 1


# requirement: F6
async def test_what_peers_tell_is_durable_at_once_and_ages_no_disk() -> None:
    """A broker that ran beside the newer disk for a moment refuses the older copy after its restart."""
    knower, aging = Side(FakeFilesystem(), "k"), Side(FakeFilesystem(), "d")
    aging.disks.connected(ONE)
    running = asyncio.create_task(knower.disks.run(60_000))
    for _ in range(2):
        await aged(aging, 1)
        aging.hand_over(knower, TWO)
        async with asyncio.timeout(10):
            while knower.noted(TWO) != knower.disks.age.known_of(TWO):
                await asyncio.sleep(0.001)
    assert (knower.disks.age.disk.age, knower.sent) == (0, []), "else two brokers would age by turns"
    running.cancel()


# requirement: F6
async def test_a_disk_ages_at_its_interval_however_often_peers_tell_theirs() -> None:
    knower, aging = Side(FakeFilesystem(), "k"), Side(FakeFilesystem(), "d")
    aging.disks.connected(ONE)
    knower.disks.connected(TWO)
    async with asyncio.timeout(10):
        running = asyncio.create_task(knower.disks.run(50))
        while knower.disks.age.disk.age < 3:
            await aged(aging, 1)
            aging.hand_over(knower, TWO)
    running.cancel()


# requirement: F6
async def test_an_older_copy_on_a_full_disk_waits_for_room_before_it_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raftlog.node.peer_disks.MARK_AGAIN_S", 0.001)
    side = Side(FakeFilesystem(), "d")
    side.filesystem.capacity_bytes = side.filesystem.used_bytes
    (verdict,) = encode_frame(FrameKind.DISK, [Disk("k", 1), Disk("d", 9), "d"])
    side.disks.received(TWO, split_frame(memoryview(verdict))[1])
    running = asyncio.create_task(side.disks.run(60_000))
    await asyncio.sleep(0.05)
    assert not side.began_again.is_set()
    side.filesystem.capacity_bytes = None
    async with asyncio.timeout(10):
        await running
    assert side.began_again.is_set()
    assert side.disks.age.is_older_copy


async def test_a_peer_without_a_link_is_told_nothing() -> None:
    side = Side(FakeFilesystem(), "d")
    side.disks.connected(ONE)
    side.disks.lost(ONE)
    await aged(side, 2)
    assert len(side.sent) == 1


@pytest.mark.parametrize("content", [None, [], [["d"]], [["d", "x"]], [[1, 2]], [["d", 1], "newer"]])
async def test_a_name_that_makes_no_sense_costs_the_connection(content: object) -> None:
    side = Side(FakeFilesystem(), "d")
    (frame,) = encode_frame(FrameKind.DISK, content)
    with pytest.raises(MalformedFrame):
        side.disks.received(TWO, split_frame(memoryview(frame))[1])
    assert side.disks.age.known_of(TWO) is None


async def _now(work: Callable[[], Result]) -> Result:
    return work()


async def _syncs(syncs: Sequence[Sync]) -> list[OSError | None]:
    return [None for _ in syncs]


def named(disk: Disk) -> memoryview:
    return memoryview(b"".join(encode_frame(FrameKind.DISK, (disk, None))))


# requirement: F6
async def test_frames_of_an_older_copy_are_dropped_until_another_disk_is_named() -> None:
    filesystem = FakeFilesystem()
    filesystem.make_directories("/data")
    network = LoopNetwork(random.Random(1))
    transport, peer = (network.member(node, (ONE, TWO)) for node in (ONE, TWO))
    disks = PeerDisks(transport, DiskAge.open(filesystem, "/data", "d", random.Random(1)), lambda: None, _now)
    host = GroupHost(
        ONE, transport, VirtualClock(), random.Random(1), in_a_task(_syncs), on_fatal=print, disks=disks
    )
    await peer.start(RecordingReceiver())
    await host.start()
    await asyncio.sleep(0.1)
    heartbeat = memoryview(encode_heartbeats(ClockReading(0, 0), []))
    for disk, is_heard in ((Disk("e", 5), True), (Disk("e", 3), False), (Disk("f", 1), True)):
        host.peer_lost(TWO)
        host.frame_received(TWO, named(disk))
        host.frame_received(TWO, heartbeat)
        assert host.is_reachable(TWO) == is_heard
    await host.stop()


# requirement: F6
async def test_a_name_from_an_earlier_link_replaces_no_disk() -> None:
    """The process that gave it was never reached, and the next link leads to another one."""
    knower, original, second = (Side(FakeFilesystem(), disk_id) for disk_id in "kde")
    original.disks.connected(ONE)
    original.hand_over(knower, TWO)
    knower.is_mutual = False
    second.disks.connected(ONE)
    second.hand_over(knower, TWO)
    knower.disks.lost(TWO)
    knower.is_mutual = True
    knower.disks.connected(TWO)
    known = knower.disks.age.known_of(TWO)
    assert known is not None
    assert known.disk_id == "d"
    assert knower.disks.refused == {TWO: "e"}, "until the other process names its disk"
