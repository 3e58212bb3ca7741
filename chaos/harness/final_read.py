"""Reads every partition from every broker that has a replica of it, at the end of a run.

A broker serves reads of the partitions that it leads, so leadership is transferred to each replica in turn.
All replicas must have equal values; differences are anomalies.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from chaos.checkers import Anomaly
from chaos.cluster_view import ClusterFailed
from chaos.harness.arena import Arena
from chaos.history import History, Poll
from chaos.http_client import Client as HttpClient
from raftlog import Client
from raftlog.errors import RaftlogError
from raftlog.testing.waits import LIMIT_S, states

PROCESS_MIN: Final = 1_000_000  # the readers' process numbers; those of the load are smaller

Records = tuple[tuple[int, str], ...]


def read_every_broker(arena: Arena, history: History) -> list[Anomaly]:
    """Append the final reads to the history; return an anomaly for each replica that differs. Raises
    ``ClusterFailed``.
    """
    found = []
    topic = arena.topic
    with Client(arena.cluster.bootstrap) as admin:
        for partition, row in sorted(arena.partitions().items()):
            first: dict[int, str] | None = None
            for broker in row.replicas:
                _lead(admin, topic, partition, broker)
                process = PROCESS_MIN + len(history.final)
                polls = asyncio.run(_read(arena.cluster.url(broker), topic, partition, process))
                history.final += polls
                records = {offset: value for poll in polls for offset, value in poll.records}
                first = records if first is None else first
                if differing := sorted(dict(first.items() ^ records.items())):
                    detail = f"broker {broker} and broker {row.replicas[0]} differ at {differing[0]}"
                    found.append(Anomaly("diverged-replica", partition, detail))
    return found


def _lead(admin: Client, topic: str, partition: int, broker: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            if admin.partitions.describe(topic, partition).leader == broker:
                return
            admin.partitions.transfer_leadership(topic, partition, to=broker)
            reason = "another broker leads"
        except (RaftlogError, TimeoutError) as error:
            reason = str(error)
            time.sleep(0.1)
        if time.monotonic() > deadline:
            raise ClusterFailed(f"broker {broker} cannot lead {topic}/{partition}: {reason}\n{states()}")


async def _read(url: str, topic: str, partition: int, process: int) -> list[Poll]:
    """Read a partition from its start to its end, through the broker at ``url``."""
    polls: list[Poll] = []
    offset, end, deadline = 0, -1, time.monotonic() + LIMIT_S
    async with HttpClient([url], topic, random.Random(0)) as client:
        while offset < end or end < 0:
            invoked_s = time.monotonic()
            try:
                page = await client.fetch(partition, offset, wait_ms=0, binary=True)
            except RaftlogError as error:
                if time.monotonic() > deadline:
                    raise ClusterFailed(f"{topic}/{partition} cannot be read at {url}: {error}") from error
                await asyncio.sleep(0.1)
                continue
            polls.append(
                Poll(
                    process=process,
                    partition=partition,
                    invoked_s=invoked_s,
                    completed_s=time.monotonic(),
                    records=page.records,
                )
            )
            offset, end = page.next_offset, page.high_watermark
    return polls
