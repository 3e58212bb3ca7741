"""Nodes of pysyncobj in one process: a clock that tests set, and links that deliver when they are told to."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from pysyncobj import FAIL_REASON, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from chaos.harness.controls.pysyncobj_log.replicated import ReplicatedLog

SEND_EVERY_S = 0.1  # the library's own period of heartbeats and entries
JUST_ABOVE_S = 1e-6


class Links:
    """One first-in, first-out queue for each direction between two nodes. No message is lost."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], deque[object]] = {}
        self._ports: dict[str, Port] = {}

    def attach(self, port: Port) -> None:
        """This is the node of that name from now on."""
        self._ports[port.name] = port

    def put(self, source: str, target: str, message: object) -> None:
        """Send."""
        self._queues.setdefault((source, target), deque()).append(copy.deepcopy(message))

    def waiting(self, source: str, target: str) -> int:
        """The number of messages under way in this direction."""
        return len(self._queues.get((source, target), ()))

    def deliver(self, source: str, target: str, messages: int | None = None) -> None:
        """The oldest messages arrive; by default all."""
        queue = self._queues.get((source, target), deque())
        for _ in range(len(queue) if messages is None else messages):
            self._ports[target]._onMessageReceived(Node(source), queue.popleft())


class Port(Transport):  # type: ignore[misc]
    """The transport of one node."""

    def __init__(self, links: Links, name: str) -> None:
        super().__init__(None, None, [])
        self.name = name
        self._links = links
        links.attach(self)

    def connect(self, other: str) -> None:
        """The connection to another node is open."""
        self._onNodeConnected(Node(other))

    def send(self, node: Node, message: object) -> bool:
        """The link accepts everything."""
        self._links.put(self.name, node.id, message)
        return True


class SteppedCluster:
    """A log of named nodes. Nothing happens until a test says so.

    ``election_timeouts_s``: after this time without a leader a node campaigns.
    """

    def __init__(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, election_timeouts_s: dict[str, float]
    ) -> None:
        self.links = Links()
        self._directory = directory
        self._timeouts = election_timeouts_s
        self._now_s = 1.0
        self._nodes: dict[str, ReplicatedLog] = {}
        monkeypatch.setattr("pysyncobj.syncobj.monotonicTime", lambda: self._now_s)
        for name in election_timeouts_s:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a node from its journal."""
        timeout_s = self._timeouts[name]
        conf = SyncObjConf(
            autoTick=False,
            journalFile=str(self._directory / f"journal-{name}"),
            raftMinTimeout=timeout_s,
            raftMaxTimeout=timeout_s + JUST_ABOVE_S,
            connectionTimeout=2 * timeout_s,
        )
        port = Port(self.links, name)
        others = [other for other in self._timeouts if other != name]
        self._nodes[name] = ReplicatedLog(Node(name), [Node(other) for other in others], conf, port)
        for other in others:
            port.connect(other)

    def crash(self, name: str) -> None:
        """The process is gone; its journal and what it has sent remain."""
        self._nodes.pop(name)._doDestroy()

    def close(self) -> None:
        """Close all journals."""
        for name in list(self._nodes):
            self.crash(name)

    @property
    def leaders(self) -> list[str]:
        """The nodes that believe to lead."""
        return [name for name, node in self._nodes.items() if node._isLeader()]

    def log_length(self, name: str) -> int:
        """The number of entries in the log of a node, the library's own among them."""
        return int(self._nodes[name]._getRaftLogSize())

    def values(self, name: str) -> list[str]:
        """The values that a node has applied."""
        return self._nodes[name].values

    def append(self, name: str, value: str, padding: str, acknowledged: Callable[[int], None]) -> None:
        """A client sends a value to a node, which appends it in its next tick."""

        def answer(offset: int | None, reason: int) -> None:
            if reason == FAIL_REASON.SUCCESS and offset is not None:
                acknowledged(offset)

        self._nodes[name].append(value, padding, callback=answer)

    def tick(self, name: str, *, after_s: float = SEND_EVERY_S + JUST_ABOVE_S) -> None:
        """One turn of a node's loop: by default when it next sends to its followers."""
        self._now_s += after_s
        self._nodes[name].doTick()

    def campaign(self, name: str) -> None:
        """The election timeout of a node passes."""
        self.tick(name, after_s=self._timeouts[name] + 2 * JUST_ABOVE_S)

    def exchange(self, one: str, other: str) -> None:
        """Both directions deliver until nothing is under way."""
        while self.links.waiting(one, other) or self.links.waiting(other, one):
            self.links.deliver(one, other)
            self.links.deliver(other, one)

    def settle(self, leader: str, *, rounds: int = 4) -> None:
        """All nodes run and reach one another until they have applied the same."""
        for _ in range(rounds):
            self.tick(leader)
            for name in self._nodes:
                if name != leader:
                    self.exchange(leader, name)
                    self.tick(name, after_s=0)
