"""Simulates a whole Raft group in memory: real cores, an unreliable network, slow disks, and a checker.

The network drops, repeats and reorders messages. A disk finishes writes later and in order; a crash keeps
finished writes and some prefix of the current write. Snapshots may be lost in transfer. ``faults`` has all
other faults, ``checker`` has the checks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import chain, cycle, islice
from typing import Any
from zlib import crc32

from raftlog.core.inputs import (
    AppendCut,
    ConfirmRead,
    HardStateSaved,
    Input,
    Propose,
    Receive,
    SnapshotInstalled,
    Tick,
    WriteFinished,
)
from raftlog.core.membership import Membership
from raftlog.core.messages import AppendRequest, Envelope, Message, VoteReply
from raftlog.core.raft import Raft, RaftSettings
from raftlog.core.ready import Appended, FetchSnapshot, ReadConfirmed, Ready, Refused, Replicate, Role
from raftlog.types import Index, NodeId, Token
from verification.simulator.raft_level.checker import Checker
from verification.simulator.raft_level.log import REJOINING, Disk, Fetch, Lineage, Log, Node
from verification.simulator.raft_level.odds import CALM, CoreOdds
from verification.simulator.raft_level.remembered import Remembered
from verification.simulator.result import Broken
from verification.simulator.trace import Trace

TICK = Tick()
STEP_S = 0.05
ROUNDS = 3  # of deliveries in a step
MOMENTS = ROUNDS + 1
LEADERS_EVERY = 4  # steps between checks that leaders hear a majority
MESSAGES_MAX = 40  # that one node may send per input in a step; more is a storm
MESSAGES_PER_WRITE = 4  # to each node: news of the commit and its answer, both repeated


class FaultPoints:
    """Hooks for the faults of a group. This base class injects none."""

    def pass_moment(self, moment: int, *, is_first: bool) -> None:
        """Inject the faults of this moment; faults at random times are injected at the first moment of a
        step.
        """

    def aim(self, kind: str, node: Node) -> None:
        """Handle a critical moment for this node."""

    def truncates(self, node: Node) -> None:
        """Handle a disk that is about to lose the end of its log, because the leader has other
        entries there.
        """

    def heal(self) -> None:
        """Inject no more faults from now on."""


class Group:
    """A group of ``size`` voters, and nodes that may become members; ``step`` lets one unit of time pass."""

    def __init__(
        self,
        size: int,
        seed: int,
        odds: CoreOdds | None = None,
        settings: dict[str, Any] | None = None,
        spares: int = 0,
        *,
        keeps_lines: bool = False,
    ) -> None:
        self._seed = seed
        self.odds = CoreOdds.drawn(random.Random(f"{seed} odds")) if odds is None else odds
        self.settings = self._drawn_settings() if settings is None else settings
        self._order_rng, self._network_rng, self._disk_rng = (
            random.Random(f"{seed} {name}") for name in ("order", "network", "disks")
        )
        self.now = 0
        self.trace = Trace(lambda: self.now * STEP_S, keeps_lines=keeps_lines)
        self.initial_membership = Membership(frozenset(NodeId(number) for number in range(1, size + 1)))
        self.nodes: dict[NodeId, Node] = {}
        self._lineage = Lineage()
        self._incarnations = 0
        self.checker = Checker(self.nodes, self.initial_membership, self._lineage)
        for node in sorted(self.initial_membership.voters):
            self._open(node, Disk(log=self.empty_log(), initial_membership=self.initial_membership))
        for spare in range(size + 1, size + 1 + spares):
            self._open(NodeId(spare), Disk(REJOINING, self.empty_log()))
        self.faults = FaultPoints()
        self.ask: Callable[[], None] = lambda: None  # the clients' requests of each step
        self.quiet_until = 0  # there are none before that step
        self.broken: set[tuple[NodeId, NodeId]] = set()  # one-way links that lose all messages
        self.slow: dict[tuple[NodeId, NodeId], int] = {}  # one-way links with additional steps of latency
        self.remembered = Remembered()
        self.sent = 0
        self.written = 0  # by all disks; one that was stalled finishes many writes in one step
        self.tokens = 0
        self.acknowledged = 0
        self.installed = 0
        self._wire: dict[int, list[tuple[NodeId, NodeId, Message]]] = {}  # by the step in which it is due
        self._timers: dict[int, list[Callable[[], None]]] = {}

    @property
    def on_the_wire(self) -> int:
        """The number of messages in flight to running nodes."""
        return sum(self.nodes[to].is_up for due in self._wire.values() for _, to, _ in due)

    def empty_log(self) -> Log:
        """Return an empty log; each append to it is compared with the appends to all other logs."""
        return Log((), self._lineage)

    # Time

    def step(self) -> None:
        """Let one unit of time pass: faults, ticks, requests, messages and disks, in random order."""
        self.now += 1
        for work in self._timers.pop(self.now, ()):
            work()
        self.faults.pass_moment(self.now * MOMENTS, is_first=True)
        sent, written = self.sent, self.written
        nodes = list(self.nodes.values())
        start = int(self._order_rng.random() * len(nodes))
        self.ask()
        for node in islice(cycle(nodes), start, start + len(nodes)):
            if node.is_up and not node.core.is_quiescent:
                self.feed(node, TICK)
            if self.now % LEADERS_EVERY == 0:
                self.checker.lead(node, self.now, self.settings["election_ticks"] + 2 * LEADERS_EVERY)
        for number in range(1, MOMENTS):
            self._deliver()
            self._move_disks()
            self.faults.pass_moment(self.now * MOMENTS + number, is_first=False)
        for node in list(self.nodes.values()):
            if node.is_up and node.fetch is not None and node.fetch.due <= self.now:
                self._install(node, node.fetch.request)
        for_writes = MESSAGES_PER_WRITE * (self.written - written)
        if self.sent - sent > len(nodes) * (MESSAGES_MAX * len(nodes) + for_writes):
            raise Broken("I17 messages are bounded", f"{self.sent - sent} in one step of {len(nodes)} nodes")

    def run(self, steps: int) -> None:
        """Run a number of steps."""
        for _ in range(steps):
            self.step()

    def later(self, steps: int, work: Callable[[], None]) -> None:
        """Call a function at the beginning of the step that follows after ``steps`` steps."""
        self._timers.setdefault(self.now + steps, []).append(work)

    def heal(self) -> None:
        """Inject no more faults from now on."""
        self.trace.note(None, "everything is healed")
        self.odds = CALM
        self.faults.heal()
        self._timers.clear()
        self.broken, self.slow = set(), {}
        self._wire = {self.now + 1: [item for step in sorted(self._wire) for item in self._wire[step]]}
        for node in list(self.nodes.values()):
            node.stalled_until = node.full_until = 0
            self.restart_from(node.id, node.disk)

    def retire(self) -> None:
        """Permanently stop nodes that are no longer members: they may not know of their removal."""
        for node in list(self.nodes.values()):
            if node.id not in self.checker.membership.members:
                node.is_up, node.is_retired = False, True

    # Events

    def feed(self, node: Node, event: Input) -> None:
        """Pass an event to one core, and carry out its outputs."""
        core = node.core
        if event is not TICK:
            node.note(event, self.now)
        was_quiescent = core.is_quiescent
        core.step(event)
        if was_quiescent and not core.is_quiescent:
            node.leads_since = self.now  # its followers begin to count again
        is_quiet = event is TICK
        while (ready := core.take_ready()) is not None:
            self._carry_out(node, ready)
            is_quiet = False
        if not is_quiet:
            self.checker.step(node)

    def propose(self, node: Node, index_count: int) -> None:
        """Propose a batch of ``index_count`` indexes at a node."""
        self.tokens += 1
        self.feed(node, Propose(Token(self.tokens), index_count))

    def read(self, node: Node) -> None:
        """Request a read index from a node."""
        self.tokens += 1
        node.reads[Token(self.tokens)] = Index(len(self.checker.committed) - 1)
        self.feed(node, ConfirmRead(Token(self.tokens)))

    def leader(self) -> Node | None:
        """The node that leads in the newest term, if it is up."""
        leading = [node for node in self.nodes.values() if node.is_up and node.core.role is Role.LEADER]
        return max(leading, key=lambda node: node.core.term, default=None)

    def crash(self, node: Node, rng: random.Random) -> None:
        """Crash a node. It loses all data that was not durable; any prefix of the current write may
        be kept.
        """
        node.is_up = False
        node.fetch = None
        if node.writes:
            node.disk.tear(node.writes[0], rng)
        node.writes.clear()

    def restart_from(self, node_id: NodeId, disk: Disk, *, is_new: bool = False) -> None:
        """Open a replica with a disk, unless the node is up or permanently stopped."""
        node = self.nodes[node_id]
        if is_new or not (node.is_up or node.is_retired):
            self._open(node_id, disk)
            self.trace.note(node_id, "starts empty" if is_new else "starts")

    def forget_messages(self, node: NodeId) -> None:
        """Note that the former process of a replica and its connections have ended."""
        self.remembered.forget(node)
        self.lose(node)

    def memberships_under_way(self) -> set[Membership]:
        """Return the memberships in entries that are in flight to a node, or may be sent to it again."""
        sent = chain(self.remembered.of_kind(AppendRequest), *self._wire.values())
        requests = [message for _, _, message in sent if isinstance(message, AppendRequest)]
        spans = [span for request in requests for span in request.spans]
        return {span.membership for span in spans if span.membership is not None}

    def lose(self, *ends: NodeId) -> None:
        """Drop the messages in flight from or to a node, or between two nodes."""
        for due, items in self._wire.items():
            self._wire[due] = [item for item in items if not {*ends} <= {*item[:2]}]

    def check_membership(self, node: Node, index: Index) -> None:
        """Check that a core knows which membership is in force at an index."""
        expected = node.log.membership_at(index, node.disk.initial_membership)
        if node.core.membership_at(index) != expected:
            found = node.core.membership_at(index)
            raise Broken(
                "I16 the newest membership counts", f"node {node.id} at {index}: {found}, not {expected}"
            )

    # Inside

    def _open(self, node_id: NodeId, disk: Disk) -> None:
        self._incarnations += 1
        settings = RaftSettings(node_id, **self.settings)
        rng = random.Random((self._seed << 16) + self._incarnations)
        core = Raft(settings, disk.restored(), rng)
        self.nodes[node_id] = Node(node_id, disk, core, disk.log.copy())
        self.checker.opened(self.nodes[node_id])

    def _drawn_settings(self) -> dict[str, Any]:
        rng = random.Random(f"{self._seed} settings")
        return {
            "election_ticks": rng.choice((4, 6, 15)) + 3 * (self.odds.delay_steps_max - 1),
            "heartbeat_ticks": 1,
            "appends_in_flight_max": rng.choice((1, 2, 16)),
            "quiesce_ticks": rng.choice((30, 60)),
            "announces_commits": rng.random() < 0.3,
        }

    def _install(self, node: Node, request: FetchSnapshot) -> None:
        """Complete the transfer of a snapshot, or note its failure. The log is replaced if the core permits
        it.
        """
        leader, snapshot = self.nodes[request.leader], request.snapshot
        if node.core.commit_index >= snapshot.index or (
            not leader.is_up
            or leader.disk.snapshot != snapshot
            or node.disk.is_older_copy
            or self._network_rng.random() < self.odds.drop
            or {(node.id, leader.id), (leader.id, node.id)} & self.broken
        ):
            node.fetch = None
        elif node.core.may_install(snapshot):
            node.fetch = None
            prefix = self.checker.committed.copy(snapshot.index + 1)
            if node.writes or len(prefix) <= snapshot.index or prefix.entries[-1].term != snapshot.term:
                raise Broken("I1 committed prefix", f"node {node.id} is offered {snapshot}, never committed")
            if not prefix.changes:
                node.disk.initial_membership = request.membership
            if request.membership != prefix.membership_at(snapshot.index, node.disk.initial_membership):
                raise Broken("I16 the newest membership counts", f"node {node.id} is offered {request}")
            node.disk.log, node.log, node.disk.snapshot = prefix, prefix.copy(), snapshot
            node.commit_told = snapshot.index
            for _ in range(self._network_rng.choice((1, 1, 2))):
                self.feed(node, SnapshotInstalled(snapshot, request.membership))
            self.check_membership(node, snapshot.index)
            self.checker.held(f"after node {node.id} installed {snapshot}")
            self.trace.note(node.id, f"installs {snapshot}")
            self.installed += 1

    def _carry_out(self, node: Node, ready: Ready) -> None:
        write = ready.write
        if write is not None:
            if write.truncate_from is not None:
                node.log.cut(write.truncate_from)
            for span in write.spans:
                node.log.append(span)
            node.writes.append(write)
            self.checker.write(node, write)
        if ready.fetch_snapshot is not None:
            fetch = node.fetch
            if fetch is None or fetch.request != ready.fetch_snapshot:
                node.fetch = Fetch(ready.fetch_snapshot, self.now + self._network_rng.randint(1, 20))
        for envelope in ready.send:
            self._send(node, envelope)
        for request in ready.replicate:
            self._send_entries(node, request)
        for settled in ready.settled:
            match settled:
                case ReadConfirmed(token, index):
                    asked = node.reads.pop(token)
                    if index < asked:
                        raise Broken(
                            "H stale-read", f"node {node.id} confirms {index}; {asked} was committed"
                        )
                case Refused(token):
                    node.reads.pop(token, None)
                    self.checker.refuse(node, settled, self.now, self.settings["election_ticks"])
                case Appended(_, entry):
                    if node.log.entries[entry.index].term != entry.term:
                        raise Broken("I9 no failed assertion", f"node {node.id}: {entry} is not there")
                    node.pending[entry.index] = entry.term
        if ready.commit_index is not None:
            self._commit(node, ready.commit_index)
        if ready.role_change is not None:
            change = ready.role_change
            self.trace.note(node.id, f"{change.role.value} in term {change.term}, leader {change.leader}")
            self.checker.role(node, change)
            if change.role is Role.LEADER:
                self.faults.aim("after winning", node)
                self.faults.aim("change after winning", node)

    def _commit(self, node: Node, commit_index: Index) -> None:
        if commit_index <= node.commit_told:
            raise Broken("I5 monotonic term and commit", f"node {node.id}: {commit_index} is reported again")
        node.commit_told = commit_index
        self.trace.note(node.id, f"commits {commit_index}")
        self.checker.commit(node, commit_index)
        for index in [index for index in node.pending if index <= commit_index]:
            self.acknowledged += node.log.entries[index].term == node.pending.pop(index)
        self.faults.aim("after a commit", node)

    def _send_entries(self, node: Node, request: Replicate) -> None:
        last = request.last
        is_cut = last > request.first and self._network_rng.random() < self.odds.cut
        if is_cut:
            last = Index(self._network_rng.randint(request.first, last - 1))
        previous = request.previous
        if previous.index < node.disk.snapshot.index or (
            previous.index >= 0 and node.log.entries[previous.index].term != previous.term
        ):
            raise Broken("I9 no failed assertion", f"node {node.id} is to read {request}")
        message = AppendRequest(
            term=request.term,
            previous=previous,
            spans=tuple(node.log.spans(request.first, last)),
            commit_index=request.commit_index,
        )
        self._send(node, Envelope(request.to, message))
        if is_cut:
            node.core.step(AppendCut(request.to, last))

    def _send(self, node: Node, envelope: Envelope) -> None:
        if node.disk.is_older_copy:
            return  # whatever it says, no other node acts on it
        to, message = envelope.to, envelope.message
        self.checker.sent(node, to, message)
        if type(message) is VoteReply and message.granted and not message.is_pre_vote:
            self.faults.aim("after a vote", node)
        self.remembered.note(node.id, to, message)
        rng, odds = self._network_rng, self.odds
        for _ in range(2 if odds.repeat and rng.random() < odds.repeat else 1):
            if not odds.drop or rng.random() >= odds.drop:
                self.sent += 1
                late = rng.randrange(odds.delay_steps_max) if odds.delay_steps_max > 1 else 0
                late += self.slow.get((node.id, to), 0)
                self._wire.setdefault(self.now + late, []).append((node.id, to, message))

    def _deliver(self) -> None:
        for step in [step for step in self._wire if step <= self.now]:
            due = self._wire.pop(step)
            if self.odds.delay_steps_max > 1:
                self._network_rng.shuffle(due)
            for sender, to, message in due:
                node = self.nodes[to]
                if node.is_up and (sender, to) not in self.broken:
                    said = f"{self.now} {sender} {to} {type(message).__name__} {message.term}"
                    self.trace.hash = crc32(said.encode(), self.trace.hash)
                    self.feed(node, Receive(sender, message))

    def _move_disks(self) -> None:
        for node in list(self.nodes.values()):
            if node.writes and node.is_up and self.now >= node.stalled_until:
                while node.writes and self._disk_rng.random() >= self.odds.write_delay:
                    if self.now < node.full_until and any(write.spans for write in node.writes):
                        self._save_hard_state(node)
                        break
                    self._finish_write(node)

    def _finish_write(self, node: Node) -> None:
        """Finish the oldest write in flight: make it durable, and send the messages that wait for it."""
        write = node.writes.popleft()
        self.written += 1
        if write.truncate_from is not None:
            self.faults.truncates(node)
        node.disk.keep(write)
        self.checker.held(f"after node {node.id} wrote")
        self._send_all(node, write.send_after)
        self.feed(node, WriteFinished(write.write_id))
        node.disk.commit_hint = min(node.core.commit_index, node.core.durable_index)
        self.faults.aim("after a sync", node)

    def _save_hard_state(self, node: Node) -> None:
        """Save the term and the vote after all earlier writes; entries that wait for space are not written
        yet.
        """
        while node.writes and not node.writes[0].spans:
            self._finish_write(node)
        saved = node.save_hard_state()
        if saved is not None:
            self._send_all(node, saved[1])
            self.feed(node, HardStateSaved(saved[0]))

    def _send_all(self, node: Node, messages: Iterable[Envelope]) -> None:
        """Send messages of the current term only.

        Messages of an earlier term are dropped: the node may since have voted as if it had not acknowledged
        their entries.
        """
        for envelope in messages:
            if envelope.message.term == node.core.term:
                self._send(node, envelope)
