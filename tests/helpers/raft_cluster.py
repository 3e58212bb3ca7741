"""A whole Raft group in memory: real cores, a bad network, slow disks, and a judge.

The network drops, repeats and reorders; a disk finishes its writes later and in order, and a
crash keeps only what had finished, plus some prefix of the write it was at. The judge looks from
outside, after every step, at what Raft promises.
"""

from __future__ import annotations

import random

from raftlog.core.entries import EntrySpan
from raftlog.core.inputs import (
    AppendCut,
    Campaign,
    ConfirmRead,
    Input,
    PeerUnreachable,
    Propose,
    Receive,
    Tick,
    TransferLeadership,
    WriteFinished,
)
from raftlog.core.messages import AppendReply, AppendRequest, Envelope, Message, VoteReply, VoteRequest
from raftlog.core.raft import Raft, RaftSettings
from raftlog.core.ready import (
    Appended,
    ReadConfirmed,
    Ready,
    Refused,
    Replicate,
    Role,
    RoleChange,
)
from raftlog.types import Index, NodeId, Term, Token
from tests.helpers.raft_disk import Disk, Entry, Node, append_span
from tests.helpers.raft_odds import CALM, Odds


class Cluster:
    """A group of ``size`` members; ``step`` lets one unit of time pass."""

    def __init__(
        self, size: int, seed: int, odds: Odds | None = None, settings: dict[str, int] | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.odds = Odds.drawn(self.rng) if odds is None else odds
        self.settings = self._drawn_settings() if settings is None else settings
        self.voters = frozenset(NodeId(number) for number in range(1, size + 1))
        self.now = 0
        self.nodes = {node: self._opened(node, Disk()) for node in sorted(self.voters)}
        self.wire: list[tuple[int, int, NodeId, NodeId, Message]] = []  # due, order, from, to, message
        self.sent = 0
        self.broken: set[tuple[NodeId, NodeId]] = set()  # one-way links that lose everything
        self.leaders: dict[Term, NodeId] = {}
        self.committed: list[Entry] = []
        self.tokens = 0
        self.reads: dict[Token, Index] = {}
        self.reads_confirmed = 0

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

    # Events

    def feed(self, node: Node, event: Input) -> None:
        """Step one core and do the work it hands out."""
        node.core.step(event)
        while (ready := node.core.take_ready()) is not None:
            self._carry_out(node, ready, event)
        self._judge(node)

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
        if node.writes:
            torn = node.writes[0]
            part = self.rng.randrange(4)
            if part:
                node.disk.keep(torn, truncation=part >= 2, spans=False)
            if part == 3:
                for span in torn.spans:
                    kept = self.rng.randint(span.first - 1, span.last)
                    if kept >= span.first:
                        append_span(node.disk.log, EntrySpan(span.term, span.first, Index(kept), span.kind))
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
        self._judge_commits_held(node)
        for envelope in write.send_after:
            self._send(node, envelope)
        self.feed(node, WriteFinished(write.write_id))
        node.disk.commit_hint = min(node.core.commit_index, node.core.durable_index)

    # Inside

    def _opened(self, node_id: NodeId, disk: Disk) -> Node:
        settings = RaftSettings(node_id, **self.settings)
        seed = random.Random(self.rng.random())
        return Node(node_id, disk, Raft(settings, disk.restored(self.voters), seed), list(disk.log))

    def _maybe_faults(self) -> None:
        odds, rng = self.odds, self.rng
        if rng.random() < odds.partition:
            self._break_links()
        for node in list(self.nodes.values()):
            if rng.random() < odds.stall:
                node.stalled_until = self.now + rng.randint(5, 80)
            if rng.random() < odds.crash and node.is_up:
                self.crash(node)
            elif not node.is_up and rng.random() < 0.05:
                self.restart(node)

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

    def _carry_out(self, node: Node, ready: Ready, event: Input) -> None:
        if ready.write is not None:
            if ready.write.truncate_from is not None:
                del node.log[ready.write.truncate_from :]
            for span in ready.write.spans:
                append_span(node.log, span)
            node.writes.append(ready.write)
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
                    assert node.log[entry.index][0] == entry.term
        if ready.commit_index is not None:
            assert ready.commit_index > node.commit_told
            node.commit_told = ready.commit_index
            self._judge_commit(node, ready.commit_index)
        if ready.role_change is not None:
            self._judge_role(node, ready.role_change)

    def _send_entries(self, node: Node, request: Replicate) -> None:
        last = request.last
        cut = last > request.first and self.rng.random() < self.odds.cut
        if cut:
            last = Index(self.rng.randint(request.first, last - 1))
        spans: list[EntrySpan] = []
        for index in range(request.first, last + 1):
            term, kind = node.log[index]
            if spans and spans[-1].term == term and spans[-1].kind is kind:
                spans[-1] = EntrySpan(term, spans[-1].first, Index(index), kind)
            else:
                spans.append(EntrySpan(term, Index(index), Index(index), kind))
        if request.previous.index >= 0:
            assert node.log[request.previous.index][0] == request.previous.term
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
        self._judge_promise(node, envelope.message)
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

    # The judge

    def _judge_role(self, node: Node, change: RoleChange) -> None:
        if change.role is not Role.LEADER:
            return
        assert self.leaders.setdefault(change.term, node.id) == node.id, f"two leaders in term {change.term}"
        assert node.disk.hard_state.term >= change.term, "a leader whose term is not durable"
        assert node.log[: len(self.committed)] == self.committed, "a leader lacks committed entries"

    def _judge_commit(self, node: Node, commit_index: Index) -> None:
        prefix = node.log[: commit_index + 1]
        assert len(prefix) == commit_index + 1, "committed more than the log holds"
        known = len(self.committed)
        assert prefix[:known] == self.committed[: len(prefix)], "committed prefixes differ"
        if len(prefix) > known:
            self.committed = prefix
            holders = sum(other.disk.log[: len(prefix)] == prefix for other in self.nodes.values())
            assert holders > len(self.nodes) // 2, "committed without a durable quorum"

    def _judge_commits_held(self, node: Node) -> None:
        """What is committed never leaves a quorum's disks: looked at whenever a disk has changed."""
        committed = self.committed
        holders = sum(other.disk.log[: len(committed)] == committed for other in self.nodes.values())
        assert holders > len(self.nodes) // 2, f"an acknowledged record was lost by node {node.id}"

    def _judge_promise(self, node: Node, message: Message) -> None:
        disk = node.disk
        if isinstance(message, AppendReply) and message.accepted:
            assert disk.hard_state.term >= message.term, "accepted in a term that is not durable"
            if node.core.term == message.term:
                held = disk.log[: message.match_index + 1]
                assert held == node.log[: message.match_index + 1], "accepted what is not durable"
                assert len(held) == message.match_index + 1, "accepted what is not durable"
        elif (isinstance(message, VoteReply) and message.granted and not message.is_pre_vote) or (
            isinstance(message, VoteRequest) and not message.is_pre_vote
        ):
            assert disk.hard_state.term >= message.term, "a vote that may be forgotten"

    def _judge(self, node: Node) -> None:
        core = node.core
        assert core.last.index == len(node.log) - 1
        assert core.commit_index <= core.last.index
        assert core.durable_index <= core.last.index
        assert node.disk.log[: core.durable_index + 1] == node.log[: core.durable_index + 1], "not durable"
        if core.is_asleep:
            assert not node.writes

    def judge_logs(self) -> None:
        """Two logs that hold the same entry hold the same entries before it (log matching)."""
        nodes = list(self.nodes.values())
        for first in nodes:
            for second in nodes:
                shared = min(len(first.log), len(second.log))
                same = [first.log[index] == second.log[index] for index in range(shared)]
                if any(same):
                    newest = max(index for index in range(shared) if same[index])
                    assert all(same[: newest + 1]), f"logs of {first.id} and {second.id} do not match"
