"""Faults that give a broker too few descriptors or too little CPU."""

from __future__ import annotations

import contextlib
import resource
import socket
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from chaos.harness.arena import Arena, Draw, NoTarget
from chaos.harness.cgroups import limited_cpu
from chaos.harness.faults.steps import Steps, until_effective


def no_descriptors(arena: Arena, draw: Draw) -> Steps:
    """A broker may open no more files and connections than it has open (EMFILE)."""
    broker = draw.broker()
    shim = arena.shims[broker]
    with arena.hold(broker):
        if not arena.cluster.is_alive(broker):
            raise NoTarget(f"broker {broker} is starting: Python itself would fail to open its modules")
        pid = arena.processes.pid(broker)
        before = shim.effects()["refused_descriptors"]
        own, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        limit = next(number for number in count() if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))
        try:
            _connect(arena.cluster.url(broker))
            yield f"broker {broker}: {limit} descriptors"
            until_effective(lambda: shim.effects()["refused_descriptors"] - before)
        finally:
            if broker in arena.processes.running:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (own, hard))
        arena.bring_back(broker)
    return shim.effects()["refused_descriptors"] - before


def _connect(url: str) -> None:
    """Open one connection to a broker, so that the fault has an effect: the kernel accepts it, the broker
    cannot.
    """
    address = urlsplit(url)
    with contextlib.suppress(OSError):
        socket.create_connection((str(address.hostname), address.port or 0), timeout=1).close()


def little_cpu(arena: Arena, draw: Draw) -> Steps:
    """A broker has a small part of one CPU."""
    percent = draw.rng.choice((5, 10, 20))
    broker = draw.broker()
    with arena.hold(broker), limited_cpu(arena.processes.pid(broker), percent) as waits:
        yield f"broker {broker}: {percent} % of a CPU"
        return until_effective(waits)
