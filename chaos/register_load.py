"""Writes and reads committed offsets as registers: each register has one writer and many readers, through any
broker.

Decides: which offsets are committed and read, and when a writer uses another register. Leaves to others: the
check (``checkers.commits``).

A register is the committed offset of one partition in a group without members. In half of the registers the
offset also decreases. A writer whose commit has an unknown outcome leaves the register: the commit may still
take effect, even twice, because brokers repeat it.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from itertools import count
from typing import Final

from chaos.history import Commit, Committed, History, Look, Outcome
from chaos.http_client import Client
from raftlog.errors import GroupNotFound, RaftlogError
from raftlog.wire import groups, media_types

WRITES_MAX: Final = 100  # writes to one register, so that the search for an order stays small
PAUSE_S_MAX: Final = 0.3
_JSON: Final = {"Content-Type": media_types.JSON}


class RegisterLoad:
    """Writers and readers of registers, on the event loop of their workload."""

    def __init__(self, history: History, topic: str, stopping: threading.Event) -> None:
        self._history = history
        self._topic = topic
        self._stopping = stopping
        self._numbers = count()
        self._live: dict[int, tuple[str, int]] = {}  # the current register of each writer

    async def write(self, client: Client, writer: int) -> None:
        """Commit offsets to one register after another."""
        while not self._stopping.is_set():
            await self._pause(client)
            if not self._history.looks:
                continue  # no offset is known to exist yet
            look = client.rng.choice(self._history.looks[-100:])
            self._live[writer] = f"register-{next(self._numbers)}", look.partition
            await self._write_one(client, *self._live[writer], look)

    async def read(self, client: Client) -> None:
        """Read the registers that are being written, through one broker after another."""
        while not self._stopping.is_set():
            await self._pause(client)
            if self._live:
                await self._read_one(client, *client.rng.choice([*self._live.values()]))
            client.rotate()

    async def read_all(self, clients: Sequence[Client], deadline: float) -> bool:
        """Read every register once more through each of these clients; return whether all reads succeeded."""
        registers = sorted({(commit.group, commit.partition) for commit in self._history.commits})

        async def read_through(client: Client) -> bool:
            for register in registers:
                while not await self._read_one(client, *register):
                    if time.monotonic() > deadline:
                        return False
                    await self._pause(client)
            return True

        return all(await asyncio.gather(*map(read_through, clients)))

    async def _write_one(self, client: Client, group: str, partition: int, look: Look) -> None:
        count_max = min(WRITES_MAX, look.high_watermark)
        offsets = client.rng.sample(range(look.high_watermark + 1), count_max)
        rewinds = client.rng.random() < 0.5
        for offset in offsets if rewinds else sorted(offsets):
            row = {"topic": self._topic, "partition": partition, "offset": offset}
            body = json.dumps({"offsets": [row], "allow_rewind": rewinds}).encode()
            invoked_s = time.monotonic()
            outcome = await self._commit(client, group, body)
            self._history.commits.append(
                Commit(
                    group=group,
                    partition=partition,
                    offset=offset,
                    invoked_s=invoked_s,
                    completed_s=time.monotonic(),
                    outcome=outcome,
                )
            )
            if outcome is Outcome.UNKNOWN or self._stopping.is_set():
                return
            await self._pause(client)

    async def _commit(self, client: Client, group: str, body: bytes) -> Outcome:
        try:
            await client.call("PUT", groups.COMMIT.at(group=group), body, _JSON)
        except RaftlogError as error:
            client.rotate()
            return Outcome.FAILED if error.is_definite else Outcome.UNKNOWN
        return Outcome.ACKNOWLEDGED

    async def _read_one(self, client: Client, group: str, partition: int) -> bool:
        """Read a register; return whether there was a response."""
        invoked_s = time.monotonic()
        try:
            _, data, _ = await client.call("GET", f"{groups.OFFSETS.at(group=group)}?lag=false", None, {})
        except GroupNotFound:
            rows = []
        except RaftlogError:
            return False
        else:
            rows = json.loads(data)["items"]
        found = [row["committed_offset"] for row in rows if row["partition"] == partition]
        self._history.committed.append(
            Committed(
                group=group,
                partition=partition,
                offset=found[0] if found else None,
                invoked_s=invoked_s,
                completed_s=time.monotonic(),
            )
        )
        return True

    async def _pause(self, client: Client) -> None:
        await asyncio.sleep(client.rng.uniform(0, PAUSE_S_MAX))
