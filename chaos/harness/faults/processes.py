"""Faults that kill, pause and restart brokers."""

from __future__ import annotations

import time
from pathlib import Path

from chaos.harness.arena import Arena, Draw
from chaos.harness.faults.steps import Steps


def kill(arena: Arena, draw: Draw) -> Steps:
    """A broker is killed (SIGKILL), and started again at the end."""
    broker = draw.broker()
    with arena.hold(broker):
        arena.processes.kill(broker)
        yield f"broker {broker}"
        arena.processes.launch(broker)
    return 1


def kill_in_recovery(arena: Arena, draw: Draw) -> Steps:
    """A broker is killed, started, and killed again while it recovers."""
    broker = draw.broker()
    with arena.hold(broker):
        arena.processes.kill(broker)
        arena.processes.launch(broker)
        time.sleep(draw.rng.uniform(0.2, 1.5))
        arena.processes.kill(broker)
        yield f"broker {broker}"
        arena.processes.launch(broker)
    return 2


def kill_all(arena: Arena, draw: Draw) -> Steps:
    """All brokers are killed at once, and started again at the end."""
    brokers = arena.free
    with arena.hold(*brokers):
        for broker in brokers:
            arena.processes.kill(broker)
        yield "brokers " + ", ".join(map(str, brokers))
        for broker in brokers:
            arena.processes.launch(broker)
    return len(brokers)


def pause(arena: Arena, draw: Draw) -> Steps:
    """A broker's process is stopped (SIGSTOP), and continues at the end."""
    broker = draw.broker()
    with arena.hold(broker):
        arena.processes.pause(broker)
        try:
            yield f"broker {broker}"
            stat = Path(f"/proc/{arena.processes.pid(broker)}/stat").read_text()
        finally:
            arena.processes.resume(broker)
    return int(stat.rpartition(")")[2].split()[0] == "T")


def restart(arena: Arena, draw: Draw) -> Steps:
    """A broker stops cleanly (SIGTERM), and is started again at the end."""
    broker = draw.broker()
    with arena.hold(broker):
        arena.processes.stop(broker)
        yield f"broker {broker}"
        arena.processes.launch(broker)
    return 1
