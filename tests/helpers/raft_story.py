"""Transcripts: a file of commands to a small Raft group, with what each must bring about.

A file is prose (lines beginning with ``#``) and blocks: a command, a line ``----``, then the
expected output up to the next empty line. ``RAFT_STORIES_REWRITE=1`` writes what happened instead
of comparing; understand the difference before you commit it.

Nothing happens by itself: messages wait until ``deliver`` or ``settle``, writes until ``finish`` or
``settle``, time stands still but for ``tick``. The commands are the methods of ``Story`` that begin
with ``do_``; their docstrings say how they are used.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from raftlog.core import inputs, ready
from raftlog.core.entries import EntryKind
from raftlog.core.membership import Membership
from raftlog.core.messages import AppendRequest, Envelope, Message
from raftlog.core.raft import Raft, RaftSettings
from raftlog.types import EntryId, Index, NodeId, Term, Token
from tests.helpers.raft_words import (
    describe_membership,
    describe_message,
    describe_settled,
    describe_span,
    describe_value,
    numbers,
)
from verification.simulator.raft_level.log import Disk, Entry, Node

Arguments = dict[str, str]
REJOINING = ready.HardState(Term(0), None, is_rejoining=True)
MARKS = {EntryKind.LEADER_CHANGE: "*", EntryKind.MEMBERSHIP: "m"}


class Story:
    """One group, driven command by command; ``tell`` returns what a command brought about."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.voters: frozenset[NodeId] = frozenset()
        self.wire: list[tuple[NodeId, NodeId, Message]] = []
        self.lines: list[str] = []
        self.tokens = 0
        self.fetches: dict[NodeId, ready.FetchSnapshot] = {}

    def tell(self, command: str) -> str:
        """Carry out one line."""
        self.lines = []
        verb, *words = command.split()
        plain = [word for word in words if "=" not in word]
        named = dict(word.split("=", 1) for word in words if "=" in word)
        method = getattr(self, f"do_{verb.replace('-', '_')}")
        method(plain, named)
        return "\n".join(self.lines) or "ok"

    # Building

    def do_cluster(self, plain: list[str], named: Arguments) -> None:
        """``cluster 3 election_ticks=15``: so many members with empty logs."""
        self.settings = {"election_ticks": 15, "heartbeat_ticks": 3} | {
            name: int(value) for name, value in named.items()
        }
        self.voters = frozenset(NodeId(number) for number in range(1, int(plain[0]) + 1))
        for node in sorted(self.voters):
            self.nodes[node] = self._opened(node, Disk(initial_membership=Membership(self.voters)))

    def do_spare(self, plain: list[str], named: Arguments) -> None:
        """``spare 4``: a node with an empty log that nobody has made a member."""
        node = NodeId(int(plain[0]))
        self.nodes[node] = self._opened(node, Disk(hard_state=REJOINING))

    def do_log(self, plain: list[str], named: Arguments) -> None:
        """``log 1 runs=1x3,4x2 term=4 commit=2``: what node 1 finds on its disk; three of term 1 ..."""
        disk = Disk(initial_membership=Membership(self.voters))
        for run in filter(None, named.get("runs", "").split(",")):
            term, count = run.split("x")
            disk.log.extend([Entry(Term(int(term)), EntryKind.DATA)] * int(count))
        newest = disk.log.entries[-1].term if disk.log else 0
        disk.hard_state = ready.HardState(Term(int(named.get("term", newest))), None)
        disk.commit_hint = Index(int(named.get("commit", -1)))
        node = NodeId(int(plain[0]))
        self.nodes[node] = self._opened(node, disk)

    # Inputs

    def do_tick(self, plain: list[str], named: Arguments) -> None:
        """``tick 1 15``: time passes for one node; stops early when something comes of it."""
        node = self._node(plain)
        for count in range(1, int(plain[1]) + 1 if len(plain) > 1 else 2):
            if node.core.is_quiescent:
                self.lines.append(f"{node.id} is quiescent and gets no tick")
                return
            self._feed(node, inputs.Tick())
            if self.lines:
                self.lines.insert(0, f"after {count} ticks")
                return

    def do_pass(self, plain: list[str], named: Arguments) -> None:
        """``pass 20``: time passes for all, messages and writes at once; only what changes roles is told."""
        told: list[str] = []
        for _ in range(int(plain[0])):
            for node in self._running():
                if not node.core.is_quiescent:
                    self._feed(node, inputs.Tick())
            self.do_settle([], {})
            told += [
                line
                for line in self.lines
                if " becomes " in line or "quiescent" in line or "unquiesces" in line
            ]
            self.lines = []
        self.lines = told

    def do_campaign(self, plain: list[str], named: Arguments) -> None:
        """``campaign 1``: hold an election."""
        self._feed(self._node(plain), inputs.Campaign())

    def do_propose(self, plain: list[str], named: Arguments) -> None:
        """``propose 1 2 3``: node 1 is offered a batch of 2 and a batch of 3, together."""
        node = self._node(plain)
        for count in plain[1:] or ["1"]:
            self.tokens += 1
            node.core.step(inputs.Propose(Token(self.tokens), int(count)))
        self._gather(node)

    def do_read(self, plain: list[str], named: Arguments) -> None:
        """``read 1``: ask for a read index."""
        self.tokens += 1
        self._feed(self._node(plain), inputs.ConfirmRead(Token(self.tokens)))

    def do_transfer(self, plain: list[str], named: Arguments) -> None:
        """``transfer 1 to=2``: hand leadership over."""
        self._feed(self._node(plain), inputs.TransferLeadership(NodeId(int(named["to"]))))

    def do_change(self, plain: list[str], named: Arguments) -> None:
        """``change 1 voters=1,2,3 learners=4``: leader 1 is asked for a membership."""
        self.tokens += 1
        target = Membership(numbers(named.get("voters")), numbers(named.get("learners")))
        self._feed(self._node(plain), inputs.ChangeMembership(Token(self.tokens), target))

    def do_cut(self, plain: list[str], named: Arguments) -> None:
        """``cut 1 at=4``: the log of node 1 begins after index 4 now."""
        node, index = self._node(plain), Index(int(named["at"]))
        node.disk.snapshot = EntryId(node.log.entries[index].term, index)
        self._feed(node, inputs.LogTruncatedPrefix(node.disk.snapshot))

    def do_install(self, plain: list[str], named: Arguments) -> None:
        """``install 3``: the snapshot that node 3 was to fetch last has come; ``install 3 twice``."""
        node = self._node(plain)
        request = self.fetches[node.id]
        snapshot = request.snapshot
        if not node.core.may_install(snapshot):
            self.lines.append(f"{node.id} must not install {describe_value(snapshot)}")
            if node.core.commit_index < snapshot.index:
                return
        else:
            node.log = self.nodes[request.leader].log.copy(snapshot.index + 1)
            node.disk.log, node.disk.snapshot = node.log.copy(), snapshot
            node.disk.initial_membership = request.membership
        for _ in range(2 if "twice" in plain else 1):
            self._feed(node, inputs.SnapshotInstalled(snapshot, request.membership))

    def do_members(self, plain: list[str], named: Arguments) -> None:
        """``members``: the membership that each node goes by, and where it stands in its log."""
        for node in self.nodes.values():
            status = node.core.status()
            stands = f"since {status.membership_index}" if status.membership_index >= 0 else "from birth"
            down = ", down" if not node.is_up else ""
            self.lines.append(f"{node.id}: {describe_membership(status.membership)} {stands}{down}")

    def do_unreachable(self, plain: list[str], named: Arguments) -> None:
        """``unreachable 1 peer=2``: node 1 has lost its connection to 2."""
        self._feed(self._node(plain), inputs.PeerUnreachable(NodeId(int(named["peer"]))))

    def do_limit(self, plain: list[str], named: Arguments) -> None:
        """``limit entries=2``: the driver sends no more than that in one append."""
        self.settings_limit = int(named["entries"])

    # The world

    def do_deliver(self, plain: list[str], named: Arguments) -> None:
        """``deliver from=1 to=2``: the messages on the wire that match; ``deliver twice`` repeats each."""
        for sender, to, message in self._picked(named):
            for _ in range(2 if "twice" in plain else 1):
                if self.nodes[to].is_up:
                    self._feed(self.nodes[to], inputs.Receive(sender, message))

    def do_drop(self, plain: list[str], named: Arguments) -> None:
        """``drop to=3``: the network loses the messages on the wire that match."""
        for sender, to, message in self._picked(named):
            self.lines.append(f"lost {describe_message(sender, to, message)}")

    def do_finish(self, plain: list[str], named: Arguments) -> None:
        """``finish 1``: the oldest write of node 1 is durable."""
        node = self._node(plain)
        assert node.writes, f"node {node.id} has no write in flight"
        self._finish(node)

    def do_settle(self, plain: list[str], named: Arguments) -> None:
        """``settle``: deliver and finish until nothing moves; ``settle quiet`` tells nothing of it;
        ``settle without=3,4`` loses whatever goes to or comes from nodes 3 and 4."""
        without = numbers(named.get("without"))
        before = list(self.lines)
        for _ in range(1000):
            self.wire = [item for item in self.wire if without.isdisjoint(item[:2])]
            busy = [node for node in self._running() if node.writes]
            if not self.wire and not busy:
                break
            for node in busy:
                self._finish(node)
            self.do_deliver([], {})
        else:
            raise AssertionError("the group never comes to rest")
        if "quiet" in plain:
            self.lines = before

    def do_crash(self, plain: list[str], named: Arguments) -> None:
        """``crash 1``: what was not durable is lost."""
        node = self._node(plain)
        node.is_up = False
        node.writes.clear()

    def do_restart(self, plain: list[str], named: Arguments) -> None:
        """``restart 1``: open it again from its disk."""
        node = self._node(plain)
        self.nodes[node.id] = self._opened(node.id, node.disk)
        self._gather(self.nodes[node.id])

    def do_forget(self, plain: list[str], named: Arguments) -> None:
        """``forget 2``: a replica is deleted or loses its disk; the next one begins empty."""
        self.nodes[self._node(plain).id] = self._opened(self._node(plain).id, Disk(hard_state=REJOINING))

    def do_logs(self, plain: list[str], named: Arguments) -> None:
        """``logs``: the term of every entry, the commit index and the durable index of each node."""
        for node in self.nodes.values():
            terms = " ".join(
                str(term) + MARKS.get(kind, "")
                for term, kind, _ in node.log.entries[node.disk.snapshot.index + 1 :]
            )
            cut = f"... {node.disk.snapshot.index} | " if node.disk.snapshot.index >= 0 else ""
            core = node.core
            self.lines.append(
                f"{node.id}: [{cut}{terms}] commit={core.commit_index} durable={core.durable_index}"
                + ("" if node.is_up else " down")
            )

    def do_roles(self, plain: list[str], named: Arguments) -> None:
        """``roles``: what each node is doing."""
        for node in self.nodes.values():
            core = node.core
            quiescent = (", rejoining" if core.status().is_rejoining else "") + (
                ", quiescent" if core.is_quiescent else ""
            )
            down = ", down" if not node.is_up else ""
            self.lines.append(
                f"{node.id}: {core.role.value} in term {core.term}, leader {core.leader}{quiescent}{down}"
            )

    # Inside

    settings_limit = 1_000_000

    def _opened(self, node: NodeId, disk: Disk) -> Node:
        settings = RaftSettings(node, **self.settings)
        core = Raft(settings, disk.restored(), random.Random(int(node)))
        return Node(node, disk, core, disk.log.copy())

    def _node(self, plain: list[str]) -> Node:
        return self.nodes[NodeId(int(plain[0]))]

    def _running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up]

    def _picked(self, named: Arguments) -> list[tuple[NodeId, NodeId, Message]]:
        def matches(item: tuple[NodeId, NodeId, Message]) -> bool:
            sender, to, message = item
            return (
                named.get("from", str(sender)) == str(sender)
                and named.get("to", str(to)) == str(to)
                and named.get("what", type(message).__name__) == type(message).__name__
            )

        picked = [item for item in self.wire if matches(item)]
        self.wire = [item for item in self.wire if not matches(item)]
        return picked

    def _feed(self, node: Node, event: inputs.Input) -> None:
        was_quiescent = node.core.is_quiescent
        node.core.step(event)
        if was_quiescent and not node.core.is_quiescent:
            self.lines.append(f"{node.id} unquiesces")
        self._gather(node)
        if node.core.is_quiescent and not was_quiescent:
            self.lines.append(f"{node.id} becomes quiescent")

    def _finish(self, node: Node) -> None:
        write = node.writes.popleft()
        node.disk.keep(write)
        self.lines.append(f"{node.id} has write {write.write_id}")
        for envelope in write.send_after:
            self._send(node, envelope)
        self._feed(node, inputs.WriteFinished(write.write_id))
        node.disk.commit_hint = min(node.core.commit_index, node.core.durable_index)

    def _gather(self, node: Node) -> None:
        while (work := node.core.take_ready()) is not None:
            if work.role_change is not None:
                change = work.role_change
                self.lines.append(
                    f"{node.id} becomes {change.role.value} in term {change.term}, leader {change.leader}"
                )
            if work.commit_index is not None:
                self.lines.append(f"{node.id} commits {work.commit_index}")
            if work.write is not None:
                self._write(node, work.write)
            for settled in work.settled:
                self.lines.append(f"{node.id} answers {describe_settled(settled)}")
            for envelope in work.send:
                self._send(node, envelope)
            for request in work.replicate:
                self._send_entries(node, request)
            if work.membership is not None:
                self.lines.append(f"{node.id} goes by {describe_membership(work.membership)}")
            if work.fetch_snapshot is not None:
                fetch = self.fetches[node.id] = work.fetch_snapshot
                self.lines.append(
                    f"{node.id} fetches snapshot {describe_value(fetch.snapshot)} of {fetch.leader}"
                )

    def _write(self, node: Node, write: ready.Write) -> None:
        parts: list[str] = []
        if write.hard_state is not None:
            rejoining = " rejoining" if write.hard_state.is_rejoining else ""
            parts.append(f"term={write.hard_state.term} vote={write.hard_state.voted_for}{rejoining}")
        if write.truncate_from is not None:
            parts.append(f"truncate from {write.truncate_from}")
            node.log.cut(write.truncate_from)
        for span in write.spans:
            parts.append(describe_span(span))
            node.log.append(span)
        after = f", then {len(write.send_after)} messages" if write.send_after else ""
        self.lines.append(f"{node.id} writes {write.write_id}: {', '.join(parts)}{after}")
        node.writes.append(write)

    def _send(self, node: Node, envelope: Envelope) -> None:
        self.lines.append(describe_message(node.id, envelope.to, envelope.message))
        self.wire.append((node.id, envelope.to, envelope.message))

    def _send_entries(self, node: Node, request: ready.Replicate) -> None:
        last = Index(min(request.last, request.first + self.settings_limit - 1))
        spans = tuple(node.log.spans(request.first, last))
        message = AppendRequest(
            term=request.term, previous=request.previous, spans=spans, commit_index=request.commit_index
        )
        self._send(node, Envelope(request.to, message))
        if last < request.last:
            node.core.step(inputs.AppendCut(request.to, last))


def retell(path: Path) -> str:
    """The file again, with what really happened under each command."""
    story = Story()
    told: list[str] = []
    blocks = path.read_text().split("\n")
    position = 0
    while position < len(blocks):
        line = blocks[position]
        position += 1
        told.append(line)
        if not line or line.startswith("#"):
            continue
        if position < len(blocks) and blocks[position] == "----":
            while position < len(blocks) and blocks[position]:
                position += 1
        told += ["----", *story.tell(line).split("\n")]
    return "\n".join(told)
