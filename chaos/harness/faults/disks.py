"""Faults of disks that are slow, full, failing or without power, and of clocks, in the broker's own
process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from chaos.harness.arena import Arena, Draw
from chaos.harness.faults.steps import Steps, until_effective
from chaos.harness.shim.shim import Shim
from raftlog.wire import records


def slow_disk(arena: Arena, draw: Draw) -> Steps:
    """Each write and each sync of a broker takes longer."""
    delay_ms = draw.rng.choice((5, 20, 100, 500))
    return (yield from _shimmed(arena, draw, f"{delay_ms} ms", "slowed", lambda shim: shim.slow(delay_ms)))


def full_disk(arena: Arena, draw: Draw) -> Steps:
    """Writes of a broker fail: no space is left on its disk."""
    return (yield from _shimmed(arena, draw, "full", "refused_writes", lambda shim: shim.full(True)))


def read_only_disk(arena: Arena, draw: Draw) -> Steps:
    """The disk of a broker becomes read-only, which ends its replicas; they are opened again later."""
    return (
        yield from _shimmed(arena, draw, "read-only", "refused_changes", lambda shim: shim.read_only(True))
    )


def clock_jump(arena: Arena, draw: Draw) -> Steps:
    """The wall clock of a broker jumps, and jumps back at the end."""
    offset_ms = draw.rng.choice((200, 3_600_000, 5 * 86_400_000)) * draw.rng.choice((1, -1))
    text = f"{offset_ms / 1000:+,g} s"
    return (
        yield from _shimmed(arena, draw, text, "moved_clock_reads", lambda shim: shim.clock_offset(offset_ms))
    )


def failing_sync(arena: Arena, draw: Draw) -> Steps:
    """Syncs of a broker's replicas fail, which ends them; the broker is started again at the end."""
    broker = draw.broker()
    shim = arena.shims[broker]
    with arena.hold(broker):
        before = shim.effects()["failed_syncs"]
        shim.failing_sync(f"/{arena.topic}-")
        try:
            yield f"broker {broker}"
            until_effective(lambda: shim.effects()["failed_syncs"] - before)
        finally:
            shim.failing_sync("")
        if broker in arena.processes.running:
            arena.processes.kill(broker)
        arena.processes.launch(broker)
    return shim.effects()["failed_syncs"] - before


def failing_read(arena: Arena, draw: Draw) -> Steps:
    """Reads of a leader's replicas fail, which ends the replicas that read; they are opened again later."""
    broker = draw.broker(lambda: draw.leaders(arena.free))
    shim = arena.shims[broker]
    with arena.hold(broker):
        led = [row.partition for row in arena.partitions().values() if row.leader == broker]
        before = shim.effects()["failed_reads"]
        shim.failing_read(f"/{arena.topic}-")
        try:
            for partition in led:  # so that a short fault has an effect, too
                with contextlib.suppress(OSError, ValueError):  # an error, or an empty answer
                    path = records.FETCH.at(topic=arena.topic, partition=partition)
                    arena.cluster.get(f"{path}?offset=earliest&limit=1", broker=broker)
                if shim.effects()["failed_reads"] > before:
                    break
            yield f"broker {broker}: reads fail"
            until_effective(lambda: shim.effects()["failed_reads"] - before)
        finally:
            shim.heal()
        arena.bring_back(broker)
    return shim.effects()["failed_reads"] - before


def power_loss(arena: Arena, draw: Draw) -> Steps:
    """A broker's machine loses power: data that was not synced is lost."""
    return (yield from _powerless(arena, [draw.broker()]))


def power_loss_of_all(arena: Arena, draw: Draw) -> Steps:
    """All machines lose power at once."""
    return (yield from _powerless(arena, arena.free))


def _powerless(arena: Arena, brokers: list[int]) -> Steps:
    assert arena.powered is not None
    with arena.hold(*brokers):
        lost = arena.powered.lose_power(brokers)
        yield f"brokers {', '.join(map(str, brokers))}: {lost:,} bytes of logs lost"
        for broker in brokers:
            arena.processes.launch(broker)
    return len(brokers)


def _shimmed(arena: Arena, draw: Draw, text: str, effect: str, begin: Callable[[Shim], None]) -> Steps:
    """Change system calls of a broker until the fault ends; return how many calls were changed.

    All changes by the shim of the broker end together.
    """
    broker = draw.broker()
    shim = arena.shims[broker]
    with arena.hold(broker):
        before = shim.effects()[effect]
        begin(shim)
        try:
            yield f"broker {broker}: {text}"
            until_effective(lambda: shim.effects()[effect] - before)
        finally:
            shim.heal()
        arena.bring_back(broker)
    return shim.effects()[effect] - before
