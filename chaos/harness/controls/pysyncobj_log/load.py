"""Runs clients that append values to the leader, and records the history of what they saw."""

from __future__ import annotations

import asyncio
import base64
import random
import time
from itertools import count
from typing import Final

from chaos.harness.controls.pysyncobj_log.cluster import POLL_S, Cluster, ControlFailed, ask
from chaos.harness.controls.pysyncobj_log.messages import Append, Appended, Refused
from chaos.history import History, Outcome, Send

PRODUCERS: Final = 24
PADDING_BYTES: Final = 8_000  # random bytes, so that the library cannot compress them away
ANSWER_S: Final = 15.0
ACKNOWLEDGED_S: Final = 10.0
PAUSE_S: Final = 0.02


class Load:
    """The producers of a control; each sends one value at a time.

    After an unknown outcome a producer continues as another process of the history.
    """

    def __init__(self, cluster: Cluster, history: History, seed: int) -> None:
        self._cluster = cluster
        self._history = history
        self._rng = random.Random(seed)
        self._target: int | None = None
        self._processes = count()
        self._connections: dict[asyncio.StreamWriter, int] = {}

    def aim(self, node: int) -> None:
        """Send values to this node, the leader, from now on.

        The outcome of values that another node has not answered is unknown.
        """
        self._target = node
        for writer, other in self._connections.items():
            if other != node:
                writer.close()

    async def wait_for_acknowledged(
        self, values: int, when: str, *, within_s: float = ACKNOWLEDGED_S
    ) -> None:
        """Wait until ``values`` further values have been acknowledged. Raises ``ControlFailed``."""
        goal, begun_s = self._history.count(Outcome.ACKNOWLEDGED) + values, time.monotonic()
        while self._history.count(Outcome.ACKNOWLEDGED) < goal:
            if time.monotonic() > begun_s + within_s:
                raise ControlFailed(f"{when}, {values} acknowledgements took more than {within_s} s")
            await asyncio.sleep(POLL_S)

    async def run(self) -> None:
        """Run all producers until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(PRODUCERS):
                group.create_task(self._produce())

    async def _produce(self) -> None:
        while True:
            node = self._target
            if node is None:
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                reader, writer = await self._cluster.dial(node)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            self._connections[writer] = node
            try:
                await self._send_all(reader, writer, node)
            finally:
                del self._connections[writer]
                writer.close()
            await asyncio.sleep(PAUSE_S)

    async def _send_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: int) -> None:
        """Send values until a value is not acknowledged, or until another node is the leader."""
        process = next(self._processes)
        for number in count():
            padding = base64.b64encode(self._rng.randbytes(PADDING_BYTES)).decode()
            outcome = await self.send(process, Append(f"{process}.{number}", padding), reader, writer)
            if outcome is not Outcome.ACKNOWLEDGED or self._target != node:
                return

    async def send(
        self, process: int, value: Append, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Outcome:
        """Send one value with a single attempt, and return its outcome."""
        invoked_s = time.monotonic()
        outcome, offset = Outcome.UNKNOWN, None
        try:
            async with asyncio.timeout(ANSWER_S):
                match await ask(value, reader, writer):
                    case Appended(at):
                        outcome, offset = Outcome.ACKNOWLEDGED, at
                    case Refused():
                        outcome = Outcome.FAILED
        except (OSError, TimeoutError):
            pass
        finally:
            self._history.sends.append(
                Send(
                    process=process,
                    partition=0,
                    value=value.value,
                    invoked_s=invoked_s,
                    completed_s=time.monotonic(),
                    outcome=outcome,
                    offset=offset,
                )
            )
        return outcome
