"""Leaders and replicas that are moved by administrators while all else happens."""

from __future__ import annotations

import threading
import time
from typing import Final

from chaos.harness.arena import Arena, Draw, NoTarget
from chaos.harness.faults.steps import Steps
from raftlog import Client
from raftlog.errors import RaftlogError

TIMEOUT: Final = "5s"


def transfer_leaders(arena: Arena, draw: Draw) -> Steps:
    """Leaderships are transferred to random replicas, one after another, all the time."""
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
                        client.replicas.transfer_leadership(arena.topic, row.partition, to=to)
                        moved += 1
                    except (RaftlogError, TimeoutError):
                        time.sleep(0.05)  # no leader, or one that cannot hand over: as often as it likes

    mover = threading.Thread(target=keep_moving, name="transfer-leaders", daemon=True)
    mover.start()
    try:
        yield "all partitions"
    finally:
        ending.set()
        mover.join()
    return moved


def move_replicas(arena: Arena, draw: Draw) -> Steps:
    """A replica of a partition is removed, or moved to another broker, and put back at the end."""
    rows = arena.partitions()
    if not rows:
        raise NoTarget("no broker describes the partitions")
    partition = draw.rng.choice(sorted(rows))
    before = rows[partition].replicas
    leaving = draw.rng.choice(before)
    spare = [broker for broker in arena.cluster.brokers if broker not in before]
    wanted = [broker for broker in before if broker != leaving] + draw.rng.sample(spare, min(1, len(spare)))
    with Client(arena.cluster.bootstrap) as client:
        _set_replicas(client, arena.topic, partition, wanted)
        yield f"partition {partition}: {before} to {wanted}"
        row = arena.partitions().get(partition)
        _set_replicas(client, arena.topic, partition, before)
    return int(row is not None and (set(row.replicas) != set(before) or row.reassignment is not None))


def _set_replicas(client: Client, topic: str, partition: int, brokers: list[int]) -> None:
    """Until it is accepted. Raises ``NoTarget`` when it is not in time."""
    deadline = time.monotonic() + 30
    while True:
        try:
            client.replicas.set(topic, partition, brokers)
            return
        except (RaftlogError, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise NoTarget(f"the replicas of {topic}/{partition} could not be set: {error}") from error
            time.sleep(0.2)
