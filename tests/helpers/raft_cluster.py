"""A whole Raft group in memory: real cores, a bad network, slow disks, and a judge.

The network drops, repeats and reorders; a disk finishes its writes later and in order, and a
crash keeps only what had finished, plus some prefix of the write it was at. Members come and go, logs
are cut in front, and snapshots get lost on their way. ``raft_judge`` says what must hold all the while.
"""

from __future__ import annotations

import random
from dataclasses import replace

from raftlog.core.inputs import (
    AppendCut,
    Campaign,
    ChangeMembership,
    ConfirmRead,
    Input,
    LogTruncatedPrefix,
    PeerUnreachable,
    Propose,
    Receive,
    SnapshotInstalled,
    Tick,
    TransferLeadership,
    WriteFinished,
)
from raftlog.core.membership import Membership
from raftlog.core.messages import AppendRequest, Envelope, Message
from raftlog.core.raft import Raft, RaftSettings
from raftlog.core.ready import (
    Appended,
    FetchSnapshot,
    ReadConfirmed,
    Ready,
    Refused,
    Replicate,
    Role,
)
from raftlog.types import EntryId, Index, NodeId, Token
from tests.helpers.raft_disk import Disk, Entry, Fetch, Node, append_span, membership_of, spans_of
from tests.helpers.raft_judge import Judge
from tests.helpers.raft_odds import CALM, Odds


class Cluster:
    """A group of ``size`` voters, with spare nodes; ``step`` lets one unit of time pass."""

    def __init__(
        self,
        size: int,
        seed: int,
        odds: Odds | None = None,
        settings: dict[str, int] | None = None,
        spares: int = 0,
    ) -> None:
        self.rng = random.Random(seed)
        self.odds = Odds.drawn(self.rng) if odds is None else odds
        self.settings = self._drawn_settings() if settings is None else settings
        self.birth = Membership(frozenset(NodeId(number) for number in range(1, size + 1)))
        self.now = 0
        self.nodes: dict[NodeId, Node] = {}
        for node in sorted(self.birth.voters):
            self.nodes[node] = self._opened(node, Disk(birth=self.birth))
        for spare in range(size + 1, size + 1 + spares):
            self.nodes[NodeId(spare)] = self._opened(NodeId(spare), Disk())
        self.judge = Judge(self.nodes, self.birth)
        self.wire: list[tuple[int, int, NodeId, NodeId, Message]] = []  # due, order, from, to, message
        self.sent = 0
        self.broken: set[tuple[NodeId, NodeId]] = set()  # one-way links that lose everything
        self.tokens = 0
        self.reads: dict[Token, Index] = {}
        self.reads_confirmed = 0
        self.installed = 0
        self.wiped = 0

    @property
    def committed(self) -> list[Entry]:
        """All that was ever committed."""
        return self.judge.committed

    # Time

    def step(self) -> None:
        """One unit of time: faults, requests, messages, disks and ticks, in a drawn order."""
        self.now += 1
        self._maybe_faults()
        for node_id in self.rng.sample(sorted(self.nodes), len(self.nodes)):
            node = self.nodes[node_id]
            if not node.is_up:
                continue
            self._maybe_requests(node)
            if not node.core.is_asleep:
                self.feed(node, Tick())
        for _ in range(3):
            self._deliver()
            self._move_disks()
        for node in list(self.nodes.values()):
            if node.is_up and node.fetch is not None and node.fetch.due <= self.now:
                self._install(node, node.fetch.request)

    def run(self, steps: int) -> None:
        """Let time pass."""
        for _ in range(steps):
            self.step()

    def heal(self) -> None:
        """From now on nothing goes wrong any more."""
        self.odds = CALM
        self.broken = set()
        for node in list(self.nodes.values()):
            node.stalled_until = 0
            if not node.is_up:
                self.restart(node)

    def retire(self) -> None:
        """Nodes that take no part any more, and may not know it, go for good."""
        for node in list(self.nodes.values()):
            if node.id not in self.judge.membership.members:
                node.is_up, node.is_retired = False, True

    # Events

    def feed(self, node: Node, event: Input) -> None:
        """Step one core and do the work it hands out."""
        node.core.step(event)
        while (ready := node.core.take_ready()) is not None:
            self._carry_out(node, ready, event)
        self.judge.judge(node)

    def propose(self, node: Node, index_count: int) -> None:
        """Offer a batch."""
        self.tokens += 1
        self.feed(node, Propose(Token(self.tokens), index_count))

    def leader(self) -> Node | None:
        """The leader of the newest term, if one is up."""
        leading = [node for node in self.nodes.values() if node.is_up and node.core.role is Role.LEADER]
        return max(leading, key=lambda node: node.core.term, default=None)

    def crash(self, node: Node) -> None:
        """Lose all that was not durable; the write at hand may have got half-way."""
        node.is_up = False
        node.fetch = None
        if node.writes:
            torn = node.writes[0]
            part = self.rng.randrange(4)
            if part:
                node.disk.keep(torn, truncation=part >= 2, spans=False)
            if part == 3:
                for span in torn.spans:
                    kept = self.rng.randint(span.first - 1, span.last)
                    if kept >= span.first:
                        append_span(node.disk.log, replace(span, last=Index(kept)))
                    if kept < span.last:
                        break
        node.writes.clear()

    def restart(self, node: Node) -> None:
        """Open the replica again."""
        self.nodes[node.id] = self._opened(node.id, node.disk)

    def finish_write(self, node: Node) -> None:
        """The oldest write in flight becomes durable, and its promises leave."""
        write = node.writes.popleft()
        node.disk.keep(write)
        self.judge.judge_commits_held(node)
        for envelope in write.send_after:
            self._send(node, envelope)
        self.feed(node, WriteFinished(write.write_id))
        node.disk.commit_hint = min(node.core.commit_index, node.core.durable_index)

    # Inside

    def _opened(self, node_id: NodeId, disk: Disk) -> Node:
        settings = RaftSettings(node_id, **self.settings)
        seed = random.Random(self.rng.random())
        return Node(node_id, disk, Raft(settings, disk.restored(), seed), list(disk.log))

    def _maybe_faults(self) -> None:
        odds, rng = self.odds, self.rng
        if rng.random() < odds.partition:
            self._break_links()
        for node in list(self.nodes.values()):
            if rng.random() < odds.stall:
                node.stalled_until = self.now + rng.randint(5, 80)
            if rng.random() < odds.crash and node.is_up:
                self.crash(node)
            elif not node.is_up and not node.is_retired and rng.random() < 0.05:
                self.restart(node)
            if rng.random() < odds.wipe:
                self._maybe_wipe(node)

    def _break_links(self) -> None:
        """Everything is whole again, a side is cut off, the leader is, or single directions are."""
        rng, ids = self.rng, sorted(self.nodes)
        leader = self.leader()
        match rng.randrange(5):
            case 0:
                side = set(rng.sample(ids, len(ids) // 2))
            case 1 | 2 if leader is not None:
                # A leader that goes on taking proposals, with too few behind it, and disks that lag.
                others = [other for other in ids if other != leader.id]
                side = {leader.id, *rng.sample(others, rng.randint(0, max(0, (len(ids) - 1) // 2 - 1)))}
                for member in sorted(side):
                    self.nodes[member].stalled_until = self.now + rng.choice([0, 100, 200, 300])
            case 3:
                self.broken = {(one, other) for one in ids for other in ids if rng.random() < 0.3}
                return
            case _:
                side = set()
        self.broken = {(one, other) for one in ids for other in ids if (one in side) != (other in side)}

    def _drawn_settings(self) -> dict[str, int]:
        rng = self.rng
        return {
            "election_ticks": rng.choice([4, 6, 15]) + 3 * (self.odds.delay_steps_max - 1),
            "heartbeat_ticks": 1,
            "appends_in_flight_max": rng.choice([1, 2, 16]),
            "quiet_ticks": rng.choice([30, 60]),
        }

    def _maybe_requests(self, node: Node) -> None:
        odds, rng = self.odds, self.rng
        others = [other for other in sorted(self.nodes) if other != node.id]
        if rng.random() < odds.propose:
            for _ in range(rng.choice([1, 1, 3])):
                self.propose(node, rng.choice([1, 1, 5]))
        if rng.random() < odds.read:
            self.tokens += 1
            self.reads[Token(self.tokens)] = Index(len(self.committed) - 1)
            self.feed(node, ConfirmRead(Token(self.tokens)))
        if others and rng.random() < odds.unreachable:
            self.feed(node, PeerUnreachable(rng.choice(others)))
        if others and rng.random() < odds.transfer:
            self.feed(node, TransferLeadership(rng.choice(others)))
        if rng.random() < odds.campaign:
            self.feed(node, Campaign())
        if rng.random() < odds.change:
            self.tokens += 1
            self.feed(node, ChangeMembership(Token(self.tokens), self._drawn_target(node)))
        if rng.random() < odds.cut_prefix:
            self._cut_prefix(node)

    def _drawn_target(self, node: Node) -> Membership:
        """One or two steps away from what is in force: in, up, down and out; or a wild one."""
        rng, now = self.rng, node.core.membership
        voters, learners = set(now.voters), set(now.learners)
        for _ in range(rng.choice([1, 1, 2, 3])):
            other = rng.choice(sorted(self.nodes))
            if other in learners and rng.random() < 0.8:
                learners.discard(other)
                voters.add(other)
            elif other in voters or other in learners:
                voters.discard(other)
                learners.discard(other)
                if rng.random() < 0.3:
                    learners.add(other)
            else:
                (learners if rng.random() < 0.9 else voters).add(other)
        return Membership(frozenset(voters), frozenset(learners))

    def _cut_prefix(self, node: Node) -> None:
        """The log loses some of its beginning, as retention does it."""
        settled = min(node.core.commit_index, node.core.durable_index)
        if settled > node.disk.snapshot.index:
            index = Index(self.rng.randint(node.disk.snapshot.index + 1, settled))
            node.disk.snapshot = EntryId(node.log[index].term, index)
            in_force = membership_of(node.disk.birth, node.log[: index + 1])
            assert node.core.membership_at(index) == in_force
            self.feed(node, LogTruncatedPrefix(node.disk.snapshot))

    def _maybe_wipe(self, node: Node) -> None:
        """A replica that was removed for good is deleted; only term and vote are kept for a next life."""
        if node.id in self.judge.membership.members or not node.log:
            return
        known = len(self.committed)
        for other in self.nodes.values():
            if other.id != node.id and any(
                entry.membership is not None and node.id in entry.membership.members
                for entry in other.log[known:]
            ):
                return
        if not any(node.id in (entry.membership or self.birth).members for entry in self.committed):
            return
        disk = Disk(hard_state=node.disk.hard_state)
        self.nodes[node.id] = self._opened(node.id, disk)
        self.wire = [item for item in self.wire if node.id not in item[2:4]]
        self.wiped += 1

    def _install(self, node: Node, request: FetchSnapshot) -> None:
        """The transfer has ended, or has failed; the log is replaced where the core allows it."""
        leader, snapshot = self.nodes[request.leader], request.snapshot
        if node.core.commit_index >= snapshot.index or (
            not leader.is_up
            or leader.disk.snapshot != snapshot
            or self.rng.random() < self.odds.drop
            or {(node.id, leader.id), (leader.id, node.id)} & self.broken
        ):
            node.fetch = None
        elif node.core.may_install(snapshot):
            node.fetch = None
            assert not node.writes
            prefix = self.committed[: snapshot.index + 1]
            assert prefix[-1].term == snapshot.term, "a snapshot of what was never committed"
            if not any(entry.membership for entry in prefix):
                node.disk.birth = request.membership
            assert request.membership == membership_of(node.disk.birth, prefix)
            node.disk.log, node.log, node.disk.snapshot = list(prefix), list(prefix), snapshot
            node.commit_told = snapshot.index
            for _ in range(self.rng.choice([1, 1, 2])):
                self.feed(node, SnapshotInstalled(snapshot, request.membership))
            assert node.core.membership == request.membership
            self.judge.judge_commits_held(node)
            self.installed += 1

    def _carry_out(self, node: Node, ready: Ready, event: Input) -> None:
        if ready.write is not None:
            if ready.write.truncate_from is not None:
                del node.log[ready.write.truncate_from :]
            for span in ready.write.spans:
                append_span(node.log, span)
            node.writes.append(ready.write)
            self.judge.judge_write(node, ready.write)
        if ready.fetch_snapshot is not None:
            fetch = node.fetch
            if fetch is None or fetch.request != ready.fetch_snapshot:
                node.fetch = Fetch(ready.fetch_snapshot, self.now + self.rng.randint(1, 20))
        for envelope in ready.send:
            self._send(node, envelope)
        for request in ready.replicate:
            self._send_entries(node, request)
        for settled in ready.settled:
            match settled:
                case ReadConfirmed(token, index):
                    assert index >= self.reads.pop(token), "a read was confirmed below what was committed"
                    self.reads_confirmed += 1
                case Refused(token, _):
                    self.reads.pop(token, None)
                case Appended(_, entry):
                    assert node.log[entry.index].term == entry.term
        if ready.commit_index is not None:
            assert ready.commit_index > node.commit_told
            node.commit_told = ready.commit_index
            self.judge.judge_commit(node, ready.commit_index)
        if ready.role_change is not None:
            self.judge.judge_role(node, ready.role_change)

    def _send_entries(self, node: Node, request: Replicate) -> None:
        last = request.last
        cut = last > request.first and self.rng.random() < self.odds.cut
        if cut:
            last = Index(self.rng.randint(request.first, last - 1))
        spans = spans_of(node.log, request.first, last)
        assert request.previous.index >= node.disk.snapshot.index, "what was cut away cannot be read"
        if request.previous.index >= 0:
            assert node.log[request.previous.index].term == request.previous.term
        message = AppendRequest(
            term=request.term,
            previous=request.previous,
            spans=tuple(spans),
            commit_index=request.commit_index,
        )
        self._send(node, Envelope(request.to, message))
        if cut:
            node.core.step(AppendCut(request.to, last))

    def _send(self, node: Node, envelope: Envelope) -> None:
        self.judge.judge_promise(node, envelope.message)
        rng, odds = self.rng, self.odds
        copies = 2 if rng.random() < odds.repeat else 1
        for _ in range(copies):
            if rng.random() >= odds.drop:
                self.sent += 1
                due = self.now + rng.randrange(odds.delay_steps_max)
                order = self.sent if odds.delay_steps_max == 1 else rng.randrange(1 << 30)
                self.wire.append((due, order, node.id, envelope.to, envelope.message))

    def _deliver(self) -> None:
        due = [item for item in self.wire if item[0] <= self.now]
        self.wire = [item for item in self.wire if item[0] > self.now]
        for _, _, sender, to, message in sorted(due, key=lambda item: item[:2]):
            node = self.nodes[to]
            if node.is_up and (sender, to) not in self.broken:
                self.feed(node, Receive(sender, message))

    def _move_disks(self) -> None:
        for node in list(self.nodes.values()):
            if node.is_up and self.now >= node.stalled_until:
                while node.writes and self.rng.random() >= self.odds.write_delay:
                    self.finish_write(node)
