"""Faults by administrators, who move leaders and replicas during the run."""

from __future__ import annotations

import threading
import time
from typing import Final

from chaos.harness.arena import Arena, Draw, NoTarget
from chaos.harness.faults.steps import Steps, until_effective
from raftlog import Client
from raftlog.errors import RaftlogError
from raftlog.testing.waits import LIMIT_S

ASKED_S: Final = LIMIT_S
RESTORED_S: Final = 180.0  # other faults end during this time


def transfer_leaders(arena: Arena, draw: Draw) -> Steps:
    """Leaderships are transferred to random replicas, one after another, without a pause."""
    moved, ending = 0, threading.Event()

    def keep_moving() -> None:
        nonlocal moved
        with Client(arena.cluster.bootstrap) as client:
            while not ending.is_set():
                for row in arena.partitions().values():
                    others = [broker for broker in row.replicas if broker != row.leader]
                    if ending.is_set() or not others:
                        break
                    try:
                        to = draw.rng.choice(others)
                        client.partitions.transfer_leadership(arena.topic, row.partition, to=to)
                        moved += 1
                    except (RaftlogError, TimeoutError):
                        time.sleep(0.05)  # there is no leader, or the leader cannot hand over

    mover = threading.Thread(target=keep_moving, name="transfer-leaders", daemon=True)
    mover.start()
    try:
        yield "all partitions"
        until_effective(lambda: moved)
    finally:
        ending.set()
        mover.join()
    return moved


def move_replicas(arena: Arena, draw: Draw) -> Steps:
    """A replica of a partition is removed, or moved to another broker, and put back at the end."""
    with arena.hold_partition(draw) as row, Client(arena.cluster.bootstrap) as client:
        before = row.replicas
        leaving = draw.rng.choice(before)
        spare = [broker for broker in arena.cluster.brokers if broker not in before]
        wanted = [broker for broker in before if broker != leaving]
        wanted += draw.rng.sample(spare, min(1, len(spare)))
        try:
            _set_replicas(client, arena.topic, row.partition, wanted, ASKED_S)
        except (RaftlogError, TimeoutError) as error:
            _set_replicas(
                client, arena.topic, row.partition, before, RESTORED_S
            )  # the change may have been carried out
            raise NoTarget(f"the replicas of partition {row.partition} could not be set: {error}") from error
        yield f"partition {row.partition}: {before} to {wanted}"
        effects = until_effective(lambda: _is_moving(arena, row.partition, before))
        _set_replicas(client, arena.topic, row.partition, before, RESTORED_S)
    return effects


def _is_moving(arena: Arena, partition: int, before: list[int]) -> bool:
    now = arena.partitions().get(partition)
    return now is not None and (set(now.replicas) != set(before) or now.reassignment is not None)


def _set_replicas(client: Client, topic: str, partition: int, brokers: list[int], within_s: float) -> None:
    """Set the replicas of a partition, repeatedly until the change is accepted. Raises the last error after
    ``within_s``.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            client.partitions.set_replicas(topic, partition, brokers)
            return
        except (RaftlogError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
