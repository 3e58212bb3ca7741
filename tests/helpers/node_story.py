"""Random faults against brokers with Raft groups: persistent producers, and the final checks.

``tell(seed)`` draws the rates of faults, lets producers write during them, heals everything and
checks: no acknowledged batch is lost, moved or changed, none is in a log twice, all logs and producer
tables are equal, every group serves and becomes quiescent.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

from partitions.replica.producer_table import ProducerTable
from partitions.values import QUORUM
from raftlog.errors import CommitUnknown, Rejected
from raftlog.node.group_host import HostSettings
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import GroupId, NodeId
from tests.helpers.compacting import records_in, stored
from tests.helpers.node_cluster import LOG_SETTINGS, ClusterNode, NodeCluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import run_virtual

TROUBLE_S = 10.0
PRODUCERS = 3
KEYS = 5


@dataclass
class Story:
    """The outcomes of the producers."""

    acknowledged: dict[tuple[GroupId, int, int], tuple[int, bytes]] = field(default_factory=dict)
    keys: dict[tuple[GroupId, int, int], bytes] = field(default_factory=dict)
    unknown: int = 0
    refused: int = 0
    crashes: int = 0


@dataclass(frozen=True)
class Odds:
    """Probabilities per broker and step of 50 ms."""

    crash: float
    power: float  # of a crash
    cut: float
    lose: float  # a link breaks and is made again
    stall_link: float
    stall_disk: float
    slow_disk: float
    full: float
    transfer: float
    drop: float  # of frames, without a break: worse than TCP does
    stop: float
    rot: float  # a disk fails for good: the group on it ends until its broker is started anew
    pause_s: float  # between two batches of a producer
    compact: float = 0.0

    @classmethod
    def drawn(cls, rng: random.Random) -> Odds:
        """Each fault is often absent, sometimes rare, sometimes frequent."""

        def odds(most: float) -> float:
            return rng.choice([0.0, 0.0, 0.2, 1.0]) * most

        return cls(
            crash=odds(0.02),
            power=rng.choice([0.0, 0.5, 1.0]),
            cut=odds(0.03),
            lose=odds(0.05),
            stall_link=odds(0.03),
            stall_disk=odds(0.03),
            slow_disk=odds(0.05),
            full=odds(0.02),
            transfer=odds(0.03),
            drop=rng.choice([0.0, 0.0, 0.05, 0.2]),
            stop=odds(0.01),
            rot=odds(0.01),
            pause_s=rng.choice([0.02, 0.1, 0.3]),
        )


def tell(seed: int, *, groups: int = 2, nodes: int = 3, compacts: bool = False) -> Story:
    """One run from its beginning to its end."""
    return run_virtual(_tell(seed, groups, nodes, compacts=compacts))


async def _tell(seed: int, groups: int, nodes: int, *, compacts: bool) -> Story:
    rng = random.Random(f"story {seed}")
    odds = Odds.drawn(rng)
    settings = HostSettings(quiet_ticks=20)
    log_settings = LOG_SETTINGS
    if compacts:
        odds = replace(odds, compact=rng.choice([0.02, 0.2]))
        log_settings = LogSettings(segment_bytes=1500, index_interval_bytes=512)
    cluster = NodeCluster(seed, nodes=nodes, groups=groups, settings=settings, log_settings=log_settings)
    story = Story()
    await cluster.start()
    is_over = asyncio.Event()
    producers = [
        asyncio.create_task(_produce(cluster, story, group_id, number, is_over, odds.pause_s))
        for group_id in cluster.group_ids
        for number in range(PRODUCERS)
    ]
    for _ in range(round(TROUBLE_S / 0.05)):
        await asyncio.sleep(0.05)
        for broker in cluster.brokers.values():
            await _trouble(cluster, story, broker, odds, rng)
        assert [error for broker in cluster.brokers.values() for error in broker.fatal] == []
    await _heal(cluster, rng)
    await cluster.until(lambda: all(cluster.leader(group_id) for group_id in cluster.group_ids), 20.0)
    is_over.set()
    await asyncio.wait_for(asyncio.gather(*producers), 30.0)
    await cluster.settled()
    await cluster.quiescent()
    for group_id in cluster.group_ids:
        if compacts:
            check_compacted(cluster, story, group_id)
        else:
            _check(cluster, story, group_id)
    await cluster.stop()
    return story


async def _produce(
    cluster: NodeCluster, story: Story, group_id: GroupId, number: int, is_over: asyncio.Event, pause_s: float
) -> None:
    """Write batch after batch; retry each until it is acknowledged."""
    rng = random.Random(f"producer {cluster.seed} {group_id} {number}")
    producer, sequence = 1000 + number, 0
    while not is_over.is_set():
        count = rng.choice([1, 1, 3])
        value = b"%d/%d " % (producer, sequence) + b"x" * rng.choice([0, 10, 200, 2000])
        key = b"%d" % rng.randrange(KEYS)
        body = batch_of(*[value] * count, producer=producer, sequence=sequence, key=key)
        node: NodeId | None = None
        while True:
            up = cluster.up
            broker = next((b for b in up if b.node_id == node), None) or (rng.choice(up) if up else None)
            node = None
            if broker is not None:
                try:
                    receipt = await broker.replicas[group_id].append(body, acks=QUORUM, timeout_ms=700)
                except CommitUnknown:
                    story.unknown += 1
                except Rejected as error:
                    story.refused += 1
                    leader = error.details.get("leader")
                    node = NodeId(leader) if isinstance(leader, int) else None
                else:
                    story.acknowledged[group_id, producer, sequence] = (receipt.base_offset, value)
                    story.keys[group_id, producer, sequence] = key
                    break
            await asyncio.sleep(rng.uniform(0.005, 0.05))
        sequence += count
        await asyncio.sleep(pause_s)


async def _trouble(
    cluster: NodeCluster, story: Story, broker: ClusterNode, odds: Odds, rng: random.Random
) -> None:
    network, me = cluster.network, broker.node_id
    other = rng.choice([node for node in cluster.nodes if node != me])
    if not broker.is_up:
        if rng.random() < 0.1:
            await _start(broker)
        return
    if rng.random() < odds.crash:
        story.crashes += 1
        broker.crash(rng if rng.random() < odds.power else None)
        return
    if rng.random() < odds.stop and not broker.is_rotten:
        broker.disk.set()
        await broker.stop()
        return
    if rng.random() < odds.rot:
        folder = f"/group-{rng.choice(cluster.group_ids)}/"
        broker.filesystem.fails_sync = lambda path: path.startswith(folder)
        broker.is_rotten = True
    if broker.stopped and rng.random() < 0.1:
        broker.crash(rng if rng.random() < odds.power else None)
        return
    if rng.random() < odds.cut:
        if rng.random() < 0.5:
            network.cut_both(me, other)
        else:
            network.cut(me, other)
    if rng.random() < odds.lose:
        broker.transport.disconnect(other)
    if rng.random() < odds.stall_link:
        network.stall(me, other)
    if rng.random() < odds.drop:
        network.drop(me, other, odds.drop)
    if rng.random() < 0.15:
        network.heal(me, other)
    if rng.random() < odds.stall_disk:
        broker.disk.clear()
    elif rng.random() < 0.2:
        broker.disk.set()
    broker.sync_s = rng.choice([0.0, 0.002, 0.3]) if rng.random() < odds.slow_disk else broker.sync_s
    if rng.random() < odds.full:
        broker.filesystem.capacity_bytes = broker.filesystem.used_bytes + rng.choice([0, 100, 2000])
        broker.has_room = rng.random() < 0.7
    elif rng.random() < 0.1:
        broker.filesystem.capacity_bytes = None
        broker.has_room = True
    if rng.random() < odds.compact and not broker.stopped:
        for group_id in cluster.group_ids:
            broker.begin_to_compact(group_id)
    if rng.random() < odds.transfer:
        for group in broker.groups.values():
            group.transfer_leadership(other)


async def _start(broker: ClusterNode) -> None:
    """A broker that cannot open its logs on a full disk is not started until space is free."""
    broker.filesystem.capacity_bytes = None
    broker.filesystem.fails_sync = lambda path: False
    broker.is_rotten = False
    broker.has_room = True
    await broker.start()


async def _heal(cluster: NodeCluster, rng: random.Random) -> None:
    cluster.network.heal_all()
    for broker in cluster.brokers.values():
        broker.filesystem.capacity_bytes = None
        broker.has_room = True
        broker.sync_s = 0.002
        broker.disk.set()
        broker.filesystem.fails_sync = lambda path: False
        if broker.is_rotten and broker.is_up:
            broker.crash(rng if rng.random() < 0.5 else None)
        if not broker.is_up:
            await broker.start()


def check_compacted(cluster: NodeCluster, story: Story, group_id: GroupId) -> None:
    """The checks after healing, of logs that were compacted at different times."""
    logs = [broker.groups[group_id].log for broker in cluster.up]
    found = [{record.offset: record for record in records_in(stored(log))} for log in logs]
    newest = [{record.key: record.offset for record in records.values()} for records in found]
    assert all(each == newest[0] for each in newest), "replicas differ in the newest record of a key"
    for records in found:
        for record in records.values():
            assert all(other.get(record.offset, record) == record for other in found)
        live = {(record.key, record.offset): record for record in records.values()}
        for (group, producer, sequence), (offset, value) in story.acknowledged.items():
            if group != group_id:
                continue
            here = records.get(offset)
            if here is None:
                key = story.keys[group, producer, sequence]
                assert any(k == key and at > offset for k, at in live), f"{offset} is lost, key {key!r}"
            else:
                assert here.value == value, f"another value at {offset}"
    tables = [broker.replicas[group_id].machine.producers for broker in cluster.up]
    for log, table in zip(logs, tables, strict=True):
        again = ProducerTable()
        for batch in stored(log):
            again.apply(batch.header)
        assert {each: again.get(each) for each in again} == {each: tables[0].get(each) for each in tables[0]}
        assert {each: table.get(each) for each in table} == {each: tables[0].get(each) for each in tables[0]}


def _check(cluster: NodeCluster, story: Story, group_id: GroupId) -> None:
    """The checks after healing."""
    logs = cluster.logs(group_id)
    assert all(batch.data == other.data for log in logs for batch, other in zip(log, logs[0], strict=True))
    at = {batch.header.base_offset: batch for batch in logs[0]}
    for (group, producer, sequence), (offset, value) in story.acknowledged.items():
        if group == group_id:
            batch = at.get(offset)
            assert batch is not None, f"acknowledged at {offset}, and nothing is there"
            found = (batch.header.producer_id, batch.header.base_sequence)
            assert found == (producer, sequence), f"another batch at {offset}"
            assert value in bytes(batch.data), f"another value at {offset}"
    sequenced = [(b.header.producer_id, b.header.base_sequence) for b in logs[0] if b.header.has_producer]
    assert len(sequenced) == len(set(sequenced)), "a batch stands in the log twice"
    table = ProducerTable()
    for batch in logs[0]:
        table.apply(batch.header)
    for broker in cluster.up:
        assert broker.replicas[group_id].machine.producers.snapshot() == table.snapshot()
