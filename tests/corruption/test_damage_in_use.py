"""What is damaged while its broker runs is repaired while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TypeVar

import pytest

from broker.broker import Broker
from partitions.metadata.image import MetadataImage
from partitions.replica.replica import PartitionReplica
from raftlog.errors import RaftlogError
from raftlog.repair.scrubber import REPLICA_S
from raftlog.repair.scrubbing import check_index, check_range, check_small_files, scrub_ranges
from raftlog.repair.verify import examine
from raftlog.storage.log_storage import LogChange
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.log_changes import truncate_prefix
from raftlog.types import METADATA_GROUP, Index
from tests.helpers.compacting import compact
from tests.helpers.synced_logs import log_of
from verification.corruption.cluster import RottingCluster
from verification.simulator.clients import TOPIC
from verification.simulator.machine import DATA_DIRECTORY, Machine

Result = TypeVar("Result")
DIRECTORY = f"{DATA_DIRECTORY}/__cluster_metadata/Partition-0"


async def until(holds: Callable[[], bool]) -> None:
    """In virtual time, which the cluster limits."""
    while not holds():
        await asyncio.sleep(0.05)


def leads(machine: Machine) -> bool:
    broker = machine.broker
    return broker is not None and broker.host.groups[METADATA_GROUP].is_ready


def image(machine: Machine) -> MetadataImage:
    assert machine.broker is not None
    return machine.broker.controller.image


def trouble(machine: Machine) -> str:
    """What is wrong with its metadata log."""
    return "" if machine.broker is None else machine.broker.supervisor.reason_of(METADATA_GROUP)


async def create(machine: Machine) -> None:
    """A topic; one replica is enough."""
    while True:
        with contextlib.suppress(RaftlogError):
            await machine.call(
                lambda broker: broker.controller.create_topic(
                    "orders", partitions=1, replication_factor=1, config={}, timeout_ms=1000
                )
            )
            return
        await asyncio.sleep(0.1)


# requirement: M3
def test_a_leader_that_finds_its_metadata_damaged_is_repaired_while_the_others_go_on() -> None:
    failures: list[str] = []
    versions: list[int] = []

    async def work(cluster: RottingCluster) -> None:
        *early, late = cluster.machines
        for machine in cluster.machines:
            machine.start()
        await until(lambda: all(machine.broker is not None for machine in cluster.machines))
        late.kill()
        FakeFilesystem.remove_tree(late.disk, "/data")
        await create(early[0])
        await until(lambda: any(leads(machine) for machine in early))
        failed = next(machine for machine in early if leads(machine))
        assert failed.broker is not None
        failed.broker.controller.subscribe(lambda image: versions.append(image.version))
        await asyncio.sleep(2.0)  # what is applied is in memory no more
        log = next(
            path for path in failed.disk.paths() if path.startswith(DIRECTORY) and path.endswith(".log")
        )
        failed.disk.flip_bit(log, 200)
        late.start()  # it needs the log from its beginning
        await until(lambda: bool(trouble(failed)))
        failures.append(trouble(failed))
        assert image(failed).topics  # it goes by what it has seen
        await until(lambda: not trouble(failed))
        await until(lambda: all(machine.broker is not None for machine in cluster.machines))
        await until(lambda: len({image(machine).version for machine in cluster.machines}) == 1)
        assert examine(failed.disk, DIRECTORY).is_clean

    assert RottingCluster("metadata in use", {}, work).go() == []
    assert failures[0].startswith("LogCorrupt: ")
    assert versions == sorted(versions)


async def filled(cluster: RottingCluster) -> None:
    """All brokers run and hold a few segments."""
    cluster.start_all()
    await cluster.create_topic()
    rng, acknowledged = random.Random(1), dict[int, bytes]()
    for _ in range(30):
        await cluster.produce(acknowledged, rng)
    await asyncio.sleep(1.0)


def one(cluster: RottingCluster, *, leads: bool) -> tuple[Machine, SegmentedLog]:
    """A machine whose replica leads or follows, and its log."""
    for machine in cluster.machines:
        if machine.broker is not None and replica(machine.broker).group.is_leader == leads:
            log = replica(machine.broker).group.log
            assert isinstance(log, SegmentedLog)
            return machine, log
    raise AssertionError("there is none")


# requirement: M3
@pytest.mark.parametrize("segment", [1, -1], ids=["closed", "active"])
def test_a_segment_that_nobody_reads_is_found_by_the_scrub_and_repaired(segment: int) -> None:
    repaired: list[int] = []

    async def work(cluster: RottingCluster) -> None:
        await filled(cluster)
        failed, log = one(cluster, leads=False)
        assert failed.broker is not None
        paths = [
            path for path in failed.disk.paths() if path.startswith(log.directory) and path.endswith(".log")
        ]
        assert len(paths) > 3
        assert len(failed.disk.read_file(paths[segment])) > 100
        failed.disk.flip_bit(paths[segment], 100)
        await failed.call(lambda broker: broker.scrubber.cycle())
        await until(lambda: failed.broker is not None and not failed.broker.manager.failures)
        assert examine(failed.disk, log.directory).is_clean
        repaired.append(failed.broker.repairer.counts.replicas_repaired)

    assert RottingCluster("a segment in use", {}, work).go() == []
    assert repaired == [1]


# requirement: M3
def test_a_scrub_beside_appends_truncations_and_retention_finds_no_damage() -> None:
    counts: list[tuple[int, int]] = []

    async def work(cluster: RottingCluster) -> None:
        await filled(cluster)
        sound, log = one(cluster, leads=False)
        assert sound.broker is not None
        broker = sound.broker
        checks: list[tuple[int, Callable[[], object]]] = []

        async def pretend(check: Callable[[], Result]) -> Result:
            """Something happens to the log between the taking and the doing."""
            if checks and isinstance(check, partial) and check.func is check_range:
                rested = check.args[1]
                if rested.path.startswith(log.directory) and rested.first == checks[0][0]:
                    checks.pop()[1]()
            return check()

        broker.scrubber.run_blocking = pretend
        group = replica(broker).group
        second, *_, newest = [each.base for each in log.closed_segments[1:]]
        changes: list[LogChange] = []

        def cut() -> None:
            """On the disk; it is finished when the scrub is."""
            log.cut(newest)
            changes.append(log.cut_change() or LogChange(lambda: None))
            changes[0].run()

        for while_checked, act in ((log.first_index, lambda: truncate_prefix(log, second)), (newest, cut)):
            checks[:] = [(while_checked, act)]
            removals = log.removals
            await broker.scrubber.cycle()
            while changes:
                changes.pop().finish()
            assert log.removals > removals
        counts.append((broker.scrubber.counts.damages_found, group.stopped is None))

    RottingCluster("a scrub beside the rest", {}, work).go()
    assert counts == [(0, True)]


@pytest.mark.parametrize("when", [check_range, check_index])
def test_a_scrub_beside_compaction_finds_no_damage(when: Callable[..., object]) -> None:
    counts: list[tuple[int, bool]] = []

    async def work(cluster: RottingCluster) -> None:
        cluster.keys = {}
        await filled(cluster)
        machine, log = one(cluster, leads=False)
        assert machine.broker is not None
        broker, first = machine.broker, log.closed_segments[0]
        is_compacted = False

        async def pretend(check: Callable[[], Result]) -> Result:
            """The log is compacted between the taking and the doing."""
            nonlocal is_compacted
            is_due = isinstance(check, partial) and check.func is when and not is_compacted
            if is_due and check.args[1].path.startswith(log.directory):  # type: ignore[attr-defined]
                compact(machine.disk, log)
                is_compacted = True
            return check()

        broker.scrubber.run_blocking = pretend
        await broker.scrubber.cycle()
        assert log.closed_segments[0].size_bytes < first.size_bytes
        group = replica(broker).group
        counts.append((broker.scrubber.counts.damages_found, group.stopped is None))

    RottingCluster("a scrub beside compaction", {}, work).go()
    assert counts == [(0, True)]


# requirement: M3
def test_an_unreadable_index_is_built_again() -> None:
    filesystem = FakeFilesystem()
    log = log_of(filesystem, 10)
    part, closed = scrub_ranges(log)[0], log.closed_segments[0]
    index = part.path.removesuffix(".log") + ".index"
    assert check_index(filesystem, part, closed) == []
    filesystem.fails_read = lambda path: path == index
    assert check_index(filesystem, part, closed) == [index]


# requirement: M3
def test_a_scrub_spreads_its_replicas_over_time() -> None:
    """A thousand idle logs that were read at once would keep the event loop busy."""
    begins: list[float] = []

    async def work(cluster: RottingCluster) -> None:
        await filled(cluster)
        machine, _ = one(cluster, leads=False)
        assert machine.broker is not None
        scrubber, loop = machine.broker.scrubber, asyncio.get_running_loop()

        async def run(check: Callable[[], Result]) -> Result:
            if isinstance(check, partial) and check.func is check_small_files:
                begins.append(loop.time())
            return check()

        scrubber.run_blocking = run
        await scrubber.cycle()
        await scrubber.cycle()

    RottingCluster("a scrub at rest", {}, work).go()
    assert len(begins) >= 4
    assert all(after - before >= 0.99 * REPLICA_S for before, after in pairwise(begins))


# requirement: M3
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_replica_with_an_unreadable_file_does_not_hide_the_damage_of_others(number: int) -> None:
    """Its slots are written again."""
    name, seen = "hard_state.a", list[tuple[list[str], bool]]()

    async def work(cluster: RottingCluster) -> None:
        await filled(cluster)
        machine, _ = one(cluster, leads=False)
        assert machine.broker is not None
        broker, checked, unreadable = machine.broker, list[str](), list[str]()

        async def run(check: Callable[[], Result]) -> Result:
            if isinstance(check, partial) and check.func is check_small_files:
                directory = check.args[1]
                checked.append(directory)
                if len(checked) == 1:
                    unreadable.append(f"{directory}/{name}")
                    before = machine.disk.read_file(unreadable[0])
                    machine.disk.overwrite(unreadable[0], before[:-1] + b"?")
                    raise OSError(number, "on purpose", unreadable[0])
            return check()

        broker.scrubber.run_blocking = run
        await broker.scrubber.cycle()
        assert broker.scrubber.counts.last_cycle_ended_ms > 0
        is_sound = name not in str(check_small_files(machine.disk, checked[0], Index(0))[1])
        seen.append((checked, is_sound))

    RottingCluster("an unreadable file", {}, work).go()
    [(checked, is_sound)] = seen
    assert len(checked) >= 2
    assert is_sound or number == errno.EMFILE  # then it is not known to be damaged


def replica(broker: Broker) -> PartitionReplica:
    return broker.manager.replicas[TOPIC, 0]
