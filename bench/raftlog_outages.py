"""Runs raftlog in row 9, with the faults of the chaos harness.

``python -m bench.raftlog_outages TRIALS`` prints the gaps of each kind of failure as JSON. If possible, the
command enters a network namespace of its own, in which packets can be dropped.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.outages import ISOLATION, KILL, RECOVERED_S, SILENCE, STOP, TRANSFER, Send, outages
from chaos.harness import namespaces
from chaos.harness.arena import Arena, Draw
from chaos.harness.faults import FAULTS
from chaos.harness.stage import Stage
from raftlog import Client

_FAULTS: Final = {KILL: "kill", STOP: "pause", ISOLATION: "isolate-fully", SILENCE: "drop-all"}


class RaftlogOutages:
    """Three brokers and a topic with one partition. Clients connect through the proxies."""

    def __init__(self, arena: Arena, faults: Mapping[str, str]) -> None:
        self.kinds = [*faults, TRANSFER]
        self._arena = arena
        self._faults = faults
        brokers = arena.cluster.brokers
        links = arena.links
        self._bootstrap = [links.url(broker) for broker in brokers] if links else arena.cluster.urls

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[RaftlogOutages]:
        """Run the brokers for the duration of the ``with`` block."""
        stage = Stage()
        possible = {fault.name for fault in stage.choose_faults([], 3)}
        if not namespaces.is_hub():
            possible.discard(_FAULTS[SILENCE])
        faults = {kind: fault for kind, fault in _FAULTS.items() if fault in possible}
        with (
            tempfile.TemporaryDirectory(prefix="raftlog-outages-") as name,
            stage.open(Path(name), brokers=3, partitions=1) as arena,
        ):
            yield cls(arena, faults)

    def wait_healthy(self) -> None:
        """Wait until the cluster is healthy; see ``Replicated``."""
        self._arena.wait_healthy(RECOVERED_S)

    @contextmanager
    def client(self) -> Iterator[Send]:
        """Yield a function that sends one record with a default client; see ``Replicated``."""
        with Client(self._bootstrap) as client:
            yield lambda number: client.send(self._arena.topic, number, partition=0)

    @contextmanager
    def failing(self, kind: str, trial: int) -> Iterator[None]:
        """Transfer the leadership, or inject a fault into the leader during the block; see ``Replicated``."""
        if kind == TRANSFER:
            row = self._arena.partitions()[0]
            to = next(broker for broker in row.replicas if broker != row.leader)
            with Client(self._bootstrap) as client:
                client.partitions.transfer_leadership(self._arena.topic, 0, to=to)
            yield
            return
        steps = FAULTS[self._faults[kind]].inject(self._arena, Draw(self._arena, trial, "leader"))
        next(steps)
        try:
            yield
        finally:
            next(steps, None)


def main() -> None:
    """Measure the gaps for the number of trials on the command line, and print them."""
    if namespaces.missing() is None and not namespaces.is_hub():
        namespaces.enter_hub()
    with RaftlogOutages.started() as system:
        print(json.dumps(outages(system, int(sys.argv[1]))))


if __name__ == "__main__":
    main()
