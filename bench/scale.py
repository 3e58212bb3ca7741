"""Measures the metadata state machine and the controller's decisions for a cluster of a given size.

Decides: which operations are measured, and how. Network and disk are not measured, since their cost does not
depend on the size of the metadata; heartbeats are an exception, and are counted. Run it with ``python -m
bench.scale --brokers 100 --partitions 10000``; ``docs/scale.md`` has the results.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Final

from partitions.metadata.balancing import PartitionLoad, propose
from partitions.metadata.commands import (
    CreateTopic,
    FenceBroker,
    RegisterBroker,
    ReplicasChanged,
    SetClusterId,
    SetReplicas,
)
from partitions.metadata.features import NEWEST
from partitions.metadata.healing import dead_brokers, healing_counts, plan_healing
from partitions.metadata.image import MetadataImage
from partitions.metadata.liveness import decide
from partitions.metadata.machine import apply_command, decode_image, encode_image
from partitions.metadata.move_planner import MoveReplicas
from partitions.metadata.placement import place
from partitions.metadata.planner import PlannerLimits, plan
from partitions.metadata.plans import missing_brokers
from partitions.metadata.voters import wanted_voters
from raftlog.types import NodeId

FACTOR: Final = 3
TOPIC_PARTITIONS: Final = 100
RACKS: Final = "abc"
HEARTBEATS_PER_S: Final = 10
MOVES_MAX: Final = 10
REPEATS: Final = 5


class Sized:
    """Metadata of a given size, built by the commands that a cluster would use."""

    def __init__(self, brokers: int, partitions: int) -> None:
        self.image = MetadataImage()
        self._apply(SetClusterId("c" * 32, "b" * 32, NEWEST))
        for number in range(1, brokers + 1):
            self._apply(_broker(number))
        racks = {node: broker.rack for node, broker in self.image.brokers.items()}
        rows = place(racks, (), partitions, FACTOR)
        for first in range(0, partitions, TOPIC_PARTITIONS):
            name = f"topic-{first // TOPIC_PARTITIONS}"
            self._apply(CreateTopic(name, f"{first:032x}", rows[first : first + TOPIC_PARTITIONS]))

    def _apply(self, command: SetClusterId | RegisterBroker | CreateTopic) -> None:
        self.image, _ = apply_command(self.image, command, self.image.version + 1)


def _broker(number: int) -> RegisterBroker:
    url = f"http://log{number}.example:7070"
    rack = RACKS[number % len(RACKS)]
    return RegisterBroker(
        NodeId(number), f"{number:032x}", url, f"log{number}.example", 7170, rack, f"{number:032x}"
    )


def measured(work: Callable[[], object]) -> float:
    """Measure the median processor time of a call of ``work``, in milliseconds."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        times.append(1000 * (time.process_time() - began))
    return sorted(times)[REPEATS // 2]


def healed(image: MetadataImage, lost: NodeId) -> tuple[int, int, float]:
    """Replace a lost broker in all partitions.

    Returns the numbers of moves and commands, and the controller's processor time in milliseconds.
    """
    image, _ = apply_command(image, FenceBroker(lost, f"{lost:032x}"), image.version + 1)
    heard = frozenset(image.brokers) - {lost}
    silent = {node: 0.0 if node in heard else 1e9 for node in image.brokers}
    began, moves, commands = time.process_time(), 0, 0
    while healing_counts(image, dead_brokers(image, silent, 300_000)).to_restore:
        leaving = dead_brokers(image, silent, 300_000)
        due = plan_healing(
            image, leaving, heard, frozenset(), moves_max=MOVES_MAX, replicas_per_broker_max=4000
        )
        for move in due:
            command = plan(move, image, PlannerLimits())
            assert isinstance(command, SetReplicas)
            image, _ = apply_command(image, command, image.version + 1)
        for move in due:
            image = _arrived(image, move)
        moves += len(due)
        commands += 2 * len(due)
    return moves, commands, 1000 * (time.process_time() - began)


def _arrived(image: MetadataImage, move: MoveReplicas) -> MetadataImage:
    topic = image.topics[move.name]
    partition = topic.partitions[move.partition]
    report = ReplicasChanged(
        move.name,
        topic.topic_id,
        move.partition,
        partition.group_id,
        partition.target,
        100,
        partition.version,
    )
    return apply_command(image, report, image.version + 1)[0]


def decisions(image: MetadataImage) -> dict[str, Callable[[], object]]:
    """By name, the operations on metadata that brokers perform again and again."""
    snapshot = encode_image(image)
    brokers = list(image.brokers)
    heard, voters = frozenset(brokers), frozenset(brokers[:5])
    silent = dict.fromkeys(brokers, 0.0)
    one = image.topics["topic-0"]
    move = SetReplicas(
        one.name, one.topic_id, 0, one.partitions[0].replicas[::-1], one.partitions[0].replicas
    )
    joined = apply_command(image, _broker(len(brokers) + 1), image.version + 1)[0]
    loads = {
        part.group_id: PartitionLoad(part.group_id * 1000, 1.0)
        for topic in image.topics.values()
        for part in topic.partitions
    }
    return {
        "snapshot encoded": lambda: encode_image(image),
        "snapshot decoded (a broker that starts)": lambda: decode_image(snapshot),
        "one command about a partition": lambda: apply_command(image, move, image.version + 1),
        "voters derived, ten times a second on the controller": lambda: wanted_voters(
            image, voters, (), heard, ()
        ),
        "liveness, four times a second on the controller": lambda: decide(
            image, silent, heard, broker_timeout_ms=3000
        ),
        "missing brokers, each second on every broker": lambda: missing_brokers(image),
        "replicas of a lost broker planned, each time the metadata change": lambda: plan_healing(
            image,
            frozenset(brokers[:1]),
            heard - {brokers[0]},
            frozenset(),
            moves_max=MOVES_MAX,
            replicas_per_broker_max=4000,
        ),
        "a plan for one more broker": lambda: propose(joined, list(joined.brokers), loads, 100 << 20),
    }


def main() -> None:
    """Print one line for each figure."""
    parser = argparse.ArgumentParser(description="Measure metadata and controller at a size.")
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10_000)
    wanted = parser.parse_args()
    began = time.process_time()
    image = Sized(wanted.brokers, wanted.partitions).image
    built_ms = 1000 * (time.process_time() - began)
    snapshot = encode_image(image)
    tracemalloc.start()
    copy = decode_image(snapshot)
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert copy == image
    moves, commands, healing_ms = healed(image, next(iter(image.brokers)))
    frames = (wanted.brokers - 1) * HEARTBEATS_PER_S
    figures = {
        "metadata built by commands": f"{built_ms:.0f} ms",
        "memory of the image": f"{memory / (1 << 20):.1f} MiB",
        "snapshot": f"{len(snapshot) / (1 << 20):.2f} MiB",
        **{name: f"{measured(work):.3f} ms" for name, work in decisions(image).items()},
        "a lost broker": f"{moves} moves, {commands} commands, {healing_ms:.0f} ms of the controller",
        "heartbeats with quiescent groups": f"{frames} frames/s sent by each broker, and as many received",
    }
    for name, value in figures.items():
        sys.stdout.write(f"{name}: {value}\n")


if __name__ == "__main__":
    main()
