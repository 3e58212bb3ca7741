"""The active controller measures silence, fences silent brokers, and answers by committed metadata."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from partitions.metadata.active import ActiveController, ControllerSettings
from partitions.metadata.commands import FenceBroker, UnfenceBroker, command_batch
from partitions.metadata.image import MetadataImage
from partitions.metadata.liveness import decide
from partitions.metadata.machine import MetadataMachine
from partitions.metadata.requests import CurrentVersion
from partitions.metadata.silence import WatchedSilence
from raftlog.core.membership import Membership
from raftlog.core.ready import HardState
from raftlog.node.group_host import GroupHost
from raftlog.records.batch import stamp
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.syncs import in_a_task
from raftlog.types import METADATA_GROUP, NodeId, Term
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.metadata_images import applied, cluster, register
from tests.helpers.quiet_listener import QuietListener
from tests.helpers.virtual_time import VirtualClock

TIMEOUT_MS = 1_000
STEP_MS = 400


def decided(
    *looks: tuple[float, set[int]], image: MetadataImage | None = None
) -> list[FenceBroker | UnfenceBroker]:
    """After looks at these times, at which these brokers were heard. The controller led from the first on."""
    image, silence = image or cluster(), WatchedSilence(STEP_MS)
    for now_ms, heard in looks:
        silence.look(now_ms, {broker: broker in heard for broker in image.brokers})
    return decide(image, silence.silent_ms, silence.heard, broker_timeout_ms=TIMEOUT_MS)


# requirement: ST4
def test_a_broker_is_fenced_once_it_was_silent_for_the_whole_time() -> None:
    before = [(0.0, {1, 2, 3}), (400, {1, 3}), (800, {1, 3})]
    assert decided(*before, (999, {1})) == []
    assert decided(*before, (1_000, {1})) == [FenceBroker(NodeId(2), "first")]


def test_a_new_controller_gives_everybody_the_whole_time() -> None:
    looks = [(10_000.0 + 250 * number, set[int]()) for number in range(5)]
    assert decided(*looks[:4]) == []
    assert len(decided(*looks)) == 3


def test_a_fenced_broker_is_taken_back_when_it_is_heard_again() -> None:
    image, _ = applied(FenceBroker(NodeId(2), "first"), to=cluster())
    assert decided((0, {1, 3}), (250, {1, 3}), image=image) == []
    assert decided((0, {1, 3}), (250, {1, 2, 3}), image=image) == [UnfenceBroker(NodeId(2), "first")]


def test_a_new_controller_takes_nobody_back_whom_it_has_not_heard() -> None:
    """At its first look the silence of each broker is 0."""
    image, _ = applied(FenceBroker(NodeId(2), "first"), to=cluster())
    assert decided((1_000, {1, 3}), image=image) == []


def test_a_pause_of_the_controller_fences_nobody() -> None:
    assert decided((0, {1, 2, 3}), (1_000_000, {1})) == []
    assert decided((0, {1, 2, 3}), (1_000_000, {1}), (1_000_600, {1}), (1_001_200, {1, 2})) == [
        FenceBroker(NodeId(3), "first")
    ]


ONE, TWO = NodeId(1), NodeId(2)
STEP = 1000


def watched(*looks: tuple[float, bool]) -> float:
    """The silence of broker 2 after looks at these times, at which it was heard or not."""
    silence = WatchedSilence(STEP)
    for now_ms, is_heard in looks:
        silence.look(now_ms, {ONE: True, TWO: is_heard})
    assert silence.silent_ms[ONE] == 0
    return silence.silent_ms[TWO]


# requirement: F1
def test_silence_is_the_time_between_looks_at_which_nothing_was_heard() -> None:
    assert watched((100, True), (350, False), (600, False)) == 500


def test_a_controller_that_has_just_begun_has_heard_no_silence() -> None:
    assert watched((10_000_000, False)) == 0
    assert watched((10_000_000, False), (10_000_250, False)) == 250


def test_one_message_ends_a_silence() -> None:
    assert watched((0, False), (900, False), (1000, True)) == 0
    assert watched((0, False), (900, False), (1000, True), (1100, False)) == 100


def test_a_pause_of_the_controller_or_a_jump_of_its_clock_is_nobodys_silence() -> None:
    assert watched((0, False), (10_000_000, False)) == STEP
    assert watched((0, False), (500, False), (-10_000_000, False)) == 500


def test_a_controller_that_leads_again_begins_again() -> None:
    silence = WatchedSilence(STEP)
    silence.look(0, {TWO: False})
    silence.look(900, {TWO: False})
    silence.begin_again()
    assert silence.silent_ms == {}
    silence.look(1800, {TWO: False})
    assert silence.silent_ms == {TWO: 0}


def test_a_broker_that_registers_later_begins_at_nothing() -> None:
    silence = WatchedSilence(STEP)
    silence.look(0, {ONE: True})
    silence.look(900, {ONE: True, TWO: True})
    assert silence.silent_ms == {ONE: 0, TWO: 0}


ME = NodeId(1)


async def syncs(works: Sequence[DiskWork]) -> list[OSError | None]:
    """A disk that takes a while."""
    for work in works:
        await asyncio.sleep(0.01)
        work.run()
    return [None for _ in works]


def broken(error: BaseException) -> None:
    raise AssertionError(repr(error))


def log_with_commands(count: int) -> SegmentedLog:
    """A log of metadata whose entries its broker does not yet know to be committed."""
    log = SegmentedLog.open(FakeFilesystem(), "/metadata", LogSettings(), VirtualClock())
    log.save_hard_state(HardState(Term(1), ME))
    for at in range(count):
        batch = command_batch(register(at + 1), timestamp_ms=0)
        log.append([stamp(batch.data, base_offset=at, leader_epoch=1, append_time_ms=0)])
    sync = log.take_sync()
    assert sync is not None
    sync.run()
    log.sync_finished(sync)
    return log


async def test_the_current_version_is_that_of_all_that_was_committed_before_the_question() -> None:
    """A controller that has just been elected has yet to apply what its predecessor committed."""
    transport = LoopNetwork(random.Random(1)).transport(ME)
    host = GroupHost(ME, transport, VirtualClock(), random.Random(1), in_a_task(syncs), on_fatal=broken)
    await host.start()
    machine = MetadataMachine()
    group = host.open_group(
        METADATA_GROUP, log_with_commands(3), machine, Membership(frozenset({ME})), QuietListener()
    )
    while not group.is_leader:
        await asyncio.sleep(0.001)
    assert machine.image.version == 0
    active = ActiveController(host, group, machine, ControllerSettings(cluster_id="c"), "b")
    assert (await active.handle(CurrentVersion(), 1000)).version == machine.image.version == 3
    await host.stop()
