"""Runs three nodes as processes, with a link between each pair."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from chaos.harness.controls.pysyncobj_log.links import Link
from chaos.harness.controls.pysyncobj_log.messages import (
    LINE_BYTES_MAX,
    Answer,
    Describe,
    Read,
    Request,
    State,
    Values,
)
from chaos.harness.controls.pysyncobj_log.node import Settings
from chaos.ports import free_ports
from raftlog.__main__ import command_of
from raftlog.testing.waits import LIMIT_S

NODES: Final = (0, 1, 2)
WAIT_S: Final = LIMIT_S
POLL_S: Final = 0.02
ASK_S: Final = LIMIT_S

_ANSWERS = msgspec.json.Decoder(Answer)


class ControlFailed(Exception):
    """The control proves nothing: in the given time its nodes elected no leader, or acknowledged no value."""


async def ask(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer | None:
    """Send a request on an open connection and return the response; None if the connection ended. Raises
    ``OSError``.
    """
    writer.write(msgspec.json.encode(request) + b"\n")
    await writer.drain()
    line = await reader.readline()
    return _ANSWERS.decode(line) if line.endswith(b"\n") else None


class Cluster:
    """The nodes and the links between them. Of two nodes, the node with the higher number connects, as the
    library does by addresses.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        first = free_ports(3 * len(NODES))
        # The library compares addresses as text: a node dials addresses that are less than its own.
        self._link_ports = {(1, 0): first, (2, 0): first + 1, (2, 1): first + 2}
        self._own_ports = [first + len(NODES) + node for node in NODES]
        self._client_ports = [first + 2 * len(NODES) + node for node in NODES]
        self._links = {pair: Link(port, self._own_ports[pair[1]]) for pair, port in self._link_ports.items()}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    async def open(self) -> None:
        """Open the links and start all nodes."""
        await self.heal()
        for node in NODES:
            self.start(node)

    def start(self, node: int) -> None:
        """Start a node. It recovers from its journal if it has one."""
        settings = Settings(
            own=_address(self._own_ports[node]),
            others=[_address(self._port_of(other, of=node)) for other in NODES if other != node],
            client_port=self._client_ports[node],
            journal=str(self._directory / f"journal-{node}"),
        )
        command = [*command_of(f"{__package__}.node"), msgspec.json.encode(settings).decode()]
        with (self._directory / f"node-{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def _port_of(self, other: int, *, of: int) -> int:
        return self._link_ports.get((of, other), self._own_ports[other])

    def kill(self, node: int) -> None:
        """Send SIGKILL to a node; return when its process has ended."""
        with self._processes.pop(node) as process:
            process.kill()

    def stop(self, node: int) -> None:
        """Stop a node without a kill: it closes its journal and ends."""
        self._processes.pop(node).communicate()  # closes its input, which ends it

    async def close(self) -> None:
        """End all processes and links."""
        for node in list(self._processes):
            self.kill(node)
        for link in self._links.values():
            await link.cut()

    def link(self, one: int, other: int) -> Link:
        """The link between two nodes."""
        return self._links[max(one, other), min(one, other)]

    def links(self, node: int) -> list[Link]:
        """Return the links between a node and each other node."""
        return [link for pair, link in self._links.items() if node in pair]

    async def heal(self) -> None:
        """Restore all links: they are not cut, and pass bytes without delay."""
        for link in self._links.values():
            link.be_fast()
            await link.open()

    async def dial(self, node: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to a node, as a client does. Raises ``OSError``."""
        return await asyncio.open_connection("127.0.0.1", self._client_ports[node], limit=LINE_BYTES_MAX)

    async def request(self, node: int, request: Request) -> Answer | None:
        """Send a request on a new connection and return the response; None without a response."""
        try:
            async with asyncio.timeout(ASK_S):
                reader, writer = await self.dial(node)
                try:
                    return await ask(request, reader, writer)
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None

    async def state(self, node: int) -> State | None:
        """Return the state of one node; None without a response."""
        answer = await self.request(node, Describe())
        return answer if isinstance(answer, State) else None

    async def values(self, node: int) -> list[str]:
        """Return all values that a node has applied. Raises ``ControlFailed``."""
        answer = await self.request(node, Read())
        if not isinstance(answer, Values):
            raise ControlFailed(f"node {node} does not answer a read")
        return answer.values

    async def leader(self) -> int:
        """Return the node that leads in the highest term. Raises ``ControlFailed``."""
        return await self._find_leader(followed_by=0)

    async def settled(self) -> int:
        """Return the leader of the highest term, once both other nodes follow it. Raises
        ``ControlFailed``.
        """
        return await self._find_leader(followed_by=len(NODES) - 1)

    async def _find_leader(self, *, followed_by: int) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while loop.time() < deadline:
            states = {node: state for node in self._processes if (state := await self.state(node))}
            newest = max((state.term for state in states.values()), default=0)
            following = sum(state.term == newest for state in states.values()) - 1
            for node, state in states.items():
                if state.is_leader and state.term == newest and following >= followed_by:
                    return node
            await asyncio.sleep(POLL_S)
        raise ControlFailed(f"no leader after {WAIT_S} s")


def _address(port: int) -> str:
    return f"127.0.0.1:{port}"
