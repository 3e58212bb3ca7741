"""A log on pysyncobj, which loses acknowledged writes: docs/decisions/0018-pysyncobj-is-a-control.md.

``run`` is a small chaos run: three processes (``node``) with relays between them (``links``) and clients
(``load``); the leader is killed while a follower catches up over a slow link.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path
from typing import Final

from chaos.checkers import check, count_lost
from chaos.harness.controls import ControlResult
from chaos.harness.controls.pysyncobj_log.cluster import NODES, POLL_S, Cluster, ControlFailed
from chaos.harness.controls.pysyncobj_log.load import Load
from chaos.harness.controls.pysyncobj_log.messages import Append
from chaos.history import History, Outcome, Poll
from raftlog.testing.waits import LIMIT_S

__all__ = ["ControlFailed", "run"]

NAME: Final = "pysyncobj"
ROUNDS_MAX: Final = 12  # one round is nearly always enough on an idle machine
BACKLOG: Final = 48  # values: far more than one message of the library contains
STILL_S: Final = 0.15  # after a cut, until no acknowledgement is on its way
SHORT_S: Final = 3.0  # the longest wait until the follower's log is short
READER: Final = 1_000_000  # its number as a process


def run(seed: int, directory: Path, *, has_slow_links: bool = True) -> ControlResult:
    """Run the control once, in this directory, and check the history of its clients. Raises
    ``ControlFailed``.

    Without slow links, the leader is killed once and no other fault is injected: then no write may be lost.
    """
    directory.mkdir(parents=True, exist_ok=True)
    history = History()
    rounds = asyncio.run(_run(random.Random(seed), directory, history, has_slow_links))
    anomalies = check(history)
    lost = count_lost(anomalies)
    return ControlResult(
        name=NAME,
        is_guilty=lost > 0,
        lost=lost,
        acknowledged=history.count(Outcome.ACKNOWLEDGED),
        detail=f"leaders killed: {len(rounds)}, anomalies: {len(anomalies)}"
        + (f", the first: {anomalies[0].kind}, {anomalies[0].detail}" if anomalies else "")
        + "".join(f"; {trouble}" for trouble in rounds if trouble),
    )


async def _run(rng: random.Random, directory: Path, history: History, has_slow_links: bool) -> list[str]:
    cluster = Cluster(directory)
    load = Load(cluster, history, rng.getrandbits(32))
    rounds: list[str] = []  # the trouble of each round
    try:
        await cluster.open()
        producing = asyncio.create_task(load.run())
        try:
            while len(rounds) < ROUNDS_MAX:
                rounds.append(await _round(cluster, load, rng, has_slow_links))
                if not has_slow_links or await _has_lost(cluster, history):
                    break
        finally:
            producing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await producing
        await _final_read(cluster, load, history)
    finally:
        await cluster.close()
    return rounds


async def _round(cluster: Cluster, load: Load, rng: random.Random, has_slow_links: bool) -> str:
    """Kill the leader while only one follower has the acknowledged values.

    Returns a text about a problem; empty if there was none.
    """
    leader = await cluster.settled()
    load.aim(leader)
    trouble = ""
    try:
        if has_slow_links:
            await _depend_on_one_follower(cluster, load, rng, leader)
        else:
            await load.wait_for_acknowledged(BACKLOG + 1, "without a fault", within_s=LIMIT_S)
    except ControlFailed as error:
        trouble = str(error)  # the kill may lose nothing then, and another round is needed
    cluster.kill(leader)
    await cluster.heal()
    load.aim(await cluster.leader())
    try:
        await load.wait_for_acknowledged(1, "after the kill")
    except ControlFailed as error:
        trouble += f" {error}"
    cluster.start(leader)
    return trouble


async def _depend_on_one_follower(cluster: Cluster, load: Load, rng: random.Random, leader: int) -> None:
    """Let one follower fall behind and catch up over a slow link, while the other follower is cut off."""
    behind, other = rng.sample([node for node in NODES if node != leader], 2)
    for link in cluster.links(behind):
        link.be_slow(delay_s=rng.uniform(0.08, 0.15), bytes_per_s=rng.uniform(900_000, 1_200_000))
    await load.wait_for_acknowledged(1, "at the beginning")  # messages to the follower are under way
    for link in cluster.links(behind):
        await link.cut()
    await load.wait_for_acknowledged(BACKLOG, "with one follower cut off")
    for link in cluster.links(other):
        await link.cut()
    await asyncio.sleep(STILL_S)
    await cluster.link(leader, behind).open()
    await load.wait_for_acknowledged(1, "over the slow link")
    await _wait_until_short(cluster, leader, behind)
    await asyncio.sleep(rng.uniform(0, 0.1))


async def _wait_until_short(cluster: Cluster, leader: int, behind: int) -> None:
    """Wait until the follower has deleted entries that the leader knows to be committed, at most
    ``SHORT_S``.
    """
    deadline = time.monotonic() + SHORT_S
    while time.monotonic() < deadline:
        leading, following = await cluster.state(leader), await cluster.state(behind)
        if leading and following and leading.committed - following.entries > BACKLOG * 0.6:
            return
        await asyncio.sleep(POLL_S)


async def _has_lost(cluster: Cluster, history: History) -> bool:
    """Return whether the leader lacks acknowledged values.

    A new leader may at first show values that it deletes later.
    """
    found = set(await cluster.values(await cluster.leader()))
    return any(send.outcome is Outcome.ACKNOWLEDGED and send.value not in found for send in history.sends)


async def _final_read(cluster: Cluster, load: Load, history: History) -> None:
    """Add a final read to the history: stop all nodes without a fault, start them again, and read from the
    leader.
    """
    await cluster.settled()
    for node in NODES:
        cluster.stop(node)
    for node in NODES:
        cluster.start(node)
    leader = await cluster.settled()
    # A leader has applied all committed entries once it acknowledges a value of its own term.
    reader, writer = await cluster.dial(leader)
    outcome = await load.send(READER, Append("the last", ""), reader, writer)
    writer.close()
    if outcome is not Outcome.ACKNOWLEDGED:
        raise ControlFailed("the leader acknowledges nothing after the faults")
    invoked_s = time.monotonic()
    values = await cluster.values(leader)
    history.final.append(
        Poll(
            process=READER,
            partition=0,
            invoked_s=invoked_s,
            completed_s=time.monotonic(),
            records=tuple(enumerate(values)),
        )
    )
