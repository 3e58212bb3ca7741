"""Injects faults into a group of bare cores, at random times and at critical moments.

Decides: which fault is injected when, and its effect. A moment is a quarter of a step; faults are injected
between two rounds of deliveries. With a schedule exactly the scheduled faults are injected, at their moments.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from raftlog.core.inputs import (
    Campaign,
    ChangeMembership,
    LogTruncatedPrefix,
    PeerUnreachable,
    Receive,
    TransferLeadership,
)
from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import Role
from raftlog.types import EntryId, Index, NodeId, Token
from verification.simulator.raft_level.group import FaultPoints, Group
from verification.simulator.raft_level.log import REJOINING, Disk, Node
from verification.simulator.raft_level.odds import CALM
from verification.simulator.raft_level.older_copies import OLDER_COPY, OLDER_TAIL, OlderCopies
from verification.simulator.raft_level.reachability import tell_end, tell_loss, tell_return
from verification.simulator.schedule import Fault, Schedule

NO_FAULTS: Final = frozenset({"change membership", "cut prefix"})
"""Requests that are drawn and injected as faults are, but are not counted as faults."""

DEPOSED_STEPS: Final = 80  # within which another one is elected, or the leader is heard again

Strike = Callable[[random.Random, Node], bool]
"""A function that injects a fault; returns true if it had an effect. Faults without effect are not counted.
"""


class CoreFaults(FaultPoints):
    """Injects faults until ``heal`` is called."""

    def __init__(self, group: Group, seed: int, schedule: Schedule | None) -> None:
        self.counts: Counter[str] = Counter()
        self.happened: list[Fault] = []
        self._group = group
        group.faults = self
        self._seed = seed
        self._rng = random.Random(f"{seed} faults")
        self._odds = group.odds
        self._copies = OlderCopies(group)
        self._planned: dict[int, list[Fault]] | None = None
        self._aims: list[tuple[str, NodeId]] = []
        self._strikes: dict[str, Strike] = {
            "crash": self._crash,
            "absent": self._absent,
            "cut links": self._cut_links,
            "slow links": self._slow_links,
            "stall": self._stall,
            "fill the disk": self._fill,
            "replay": self._replay,
            "unreachable": self._unreachable,
            "transfer": self._transfer,
            "campaign": self._campaign,
            "change membership": self._change,
            "cut prefix": self._cut_prefix,
            "wipe": self._wipe,
            "forget": self._forget,
            OLDER_COPY: self._restore,
            "depose": self._depose,
            OLDER_TAIL: self._restore_tail,
            "after a vote": self._crash,
            "after winning": self._isolate,
            "after a commit": self._crash,
            "after a sync": self._crash,
            "change after winning": self._change,
        }
        if schedule is not None:
            self._odds = replace(CALM)
            self._planned = {}
            for fault in schedule:
                self._planned.setdefault(int(fault.at), []).append(fault)
        planned = {fault.kind for fault in schedule or ()}
        self._makes_copies = not planned.union(self._odds.timed).isdisjoint((OLDER_COPY, OLDER_TAIL))

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of faults that are counted, of which a run draws some."""
        return frozenset(self._strikes) - NO_FAULTS

    def truncates(self, node: Node) -> None:
        """Handle a disk that is about to lose the end of its log, because the leader has other
        entries there.
        """
        if self._makes_copies:
            self._copies.make(node)
            self.aim(OLDER_TAIL, node)

    def heal(self) -> None:
        """Inject no more faults from now on."""
        self._makes_copies = False
        self._copies.heal(random.Random(f"{self._seed} older copies"))
        self._odds = CALM
        self._planned = None
        self._aims.clear()

    def aim(self, kind: str, node: Node) -> None:
        """Inject a fault of a kind into this node at a critical moment, with the probability of the kind."""
        chance = self._odds.aimed.get(kind)
        if chance and self._rng.random() < chance:
            self._aims.append((kind, node.id))

    def pass_moment(self, moment: int, *, is_first: bool) -> None:
        """Inject the faults of this moment; faults at random times are injected at the first moment of a
        step.
        """
        if is_first and self._makes_copies:
            self._copies.step()
        if self._planned is not None:
            for fault in self._planned.get(moment, ()):
                self._strike(fault)
            return
        if self._aims:
            aims, self._aims = self._aims, []
            for kind, node in aims:
                self._strike(Fault(len(self.happened), moment, kind, node))
        if is_first:
            for kind, chance in self._odds.timed.items():
                if self._rng.random() < chance:
                    self._strike(Fault(len(self.happened), moment, kind))

    def _strike(self, fault: Fault) -> None:
        group, rng = self._group, fault.rng(self._seed)
        node = group.nodes[NodeId(fault.node)] if fault.node else rng.choice(list(group.nodes.values()))
        if not node.is_up:
            return
        group.trace.note(node.id, f"fault {fault.number}: {fault.kind}")
        self.happened.append(fault)
        if self._strikes[fault.kind](rng, node) and fault.kind not in NO_FAULTS:
            self.counts[fault.kind] += 1

    # The faults.

    def _crash(self, rng: random.Random, node: Node) -> bool:
        self._group.crash(node, rng)
        disk = node.disk
        self._group.later(1 + int(rng.expovariate(0.05)), lambda: self._group.restart_from(node.id, disk))
        return True

    def _absent(self, rng: random.Random, node: Node) -> bool:
        """Stop a node for long, while no requests are sent: the others may become quiescent without it."""
        group, steps = self._group, rng.randint(60, 160)
        if rng.random() < 0.3:
            group.feed(node, Campaign())
        group.crash(node, rng)
        group.lose(node.id)
        tell_loss(group, node.id, rng)
        group.quiet_until = group.now + steps + rng.choice((0, 60))

        def returns() -> None:
            if not (rng.random() < 0.3 and self._forget(rng, node)):
                group.restart_from(node.id, node.disk)
            tell_return(group, node.id, rng)

        group.later(steps, returns)
        return True

    def _stall(self, rng: random.Random, node: Node) -> bool:
        node.stalled_until = self._group.now + rng.randint(5, 80)
        return True

    def _fill(self, rng: random.Random, node: Node) -> bool:
        node.full_until = self._group.now + rng.randint(5, 120)
        return True

    def _campaign(self, rng: random.Random, node: Node) -> bool:
        self._group.feed(node, Campaign())
        return True

    def _unreachable(self, rng: random.Random, node: Node) -> bool:
        """Break a connection, often of a leader, mostly with messages in flight; only one side is
        notified.
        """
        node = (self._group.leader() if rng.random() < 0.5 else None) or node
        peer = self._other(rng, node)
        if peer is not None:
            if rng.random() < 0.7:
                self._group.lose(node.id, peer)
            self._group.feed(node, PeerUnreachable(peer))
            tell_return(self._group, peer, rng, to=node.id)
        return peer is not None and node.core.role is Role.LEADER

    def _transfer(self, rng: random.Random, node: Node) -> bool:
        leader = self._group.leader() or node
        peer = self._other(rng, leader)
        if peer is not None:
            leader.transfer_asked = self._group.now
            self._group.feed(leader, TransferLeadership(peer))
        return peer is not None and leader.core.role is Role.LEADER

    def _other(self, rng: random.Random, node: Node) -> NodeId | None:
        others = [other for other in self._group.nodes if other != node.id]
        return rng.choice(others) if others else None

    def _replay(self, rng: random.Random, node: Node) -> bool:
        """Deliver old messages again, as a network does that delivers copies late."""
        again = self._group.remembered.drawn(rng, rng.choice((1, 3, 10)))
        for sender, to, message in again:
            receiver = self._group.nodes[to]
            if receiver.is_up:
                self._group.feed(receiver, Receive(sender, message))
        return bool(again)

    def _isolate(self, rng: random.Random, node: Node) -> bool:
        self._cut_off({node.id})
        self._group.later(rng.randint(3, 60), self._group.broken.clear)
        return True

    def _cut_links(self, rng: random.Random, node: Node) -> bool:
        """Isolate some nodes, perhaps the leader with a few followers, or cut single directions."""
        group, ids = self._group, sorted(self._group.nodes)
        leader = group.leader()
        match rng.randrange(5):
            case 0:
                self._cut_off(set(rng.sample(ids, len(ids) // 2)))
            case 1 | 2 if leader is not None:
                # A leader that continues to accept proposals, with too few followers, and disks that lag.
                others = [other for other in ids if other != leader.id]
                side = {leader.id, *rng.sample(others, rng.randint(0, max(0, (len(ids) - 1) // 2 - 1)))}
                for member in sorted(side):
                    group.nodes[member].stalled_until = group.now + rng.choice((0, 100, 200, 300))
                self._cut_off(side)
            case 3:
                group.broken = {(one, other) for one in ids for other in ids if rng.random() < 0.3}
            case _:
                group.broken = set()
        return bool(group.broken)

    def _slow_links(self, rng: random.Random, node: Node) -> bool:
        """Slow some links: a message may arrive in a later term, in which the leader may be the
        former one.
        """
        group, ids = self._group, sorted(self._group.nodes)
        steps_max = 5 * group.settings["election_ticks"]
        group.slow = {
            (one, other): rng.randint(1, steps_max) for one in ids for other in ids if rng.random() < 0.3
        }
        group.later(rng.randint(1, 2 * steps_max), group.slow.clear)
        return bool(group.slow)

    def _cut_off(self, side: set[NodeId]) -> None:
        ids = list(self._group.nodes)
        self._group.broken = {
            (one, other) for one in ids for other in ids if (one in side) != (other in side)
        }

    def _change(self, rng: random.Random, node: Node) -> bool:
        """Change the membership by one or two steps: add, promote, demote or remove members; or request a
        random membership.
        """
        node = self._group.leader() or node
        now = node.core.membership
        if not self._rejoining() & now.all_voters <= node.core.status().rejoining.keys():
            # with less than a majority left, and a leader that does not know it, nothing is committed
            return False
        voters, learners = set(now.voters), set(now.learners)
        for _ in range(rng.choice((1, 1, 2, 3))):
            other = rng.choice(sorted(self._group.nodes))
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
        self._group.tokens += 1
        target = Membership(frozenset(voters), frozenset(learners))
        self._group.feed(node, ChangeMembership(Token(self._group.tokens), target))
        return True

    def _cut_prefix(self, rng: random.Random, node: Node) -> bool:
        """Remove a part of the beginning of the log, as retention does."""
        settled = min(node.core.commit_index, node.core.durable_index)
        is_possible = settled > node.disk.snapshot.index
        if is_possible:
            index = Index(rng.randint(node.disk.snapshot.index + 1, settled))
            node.disk.snapshot = EntryId(node.log.entries[index].term, index)
            self._group.check_membership(node, index)
            self._group.feed(node, LogTruncatedPrefix(node.disk.snapshot))
        return is_possible

    def _wipe(self, rng: random.Random, node: Node) -> bool:
        """Delete a permanently removed replica; the next replica on its node begins with an empty disk."""
        group, committed = self._group, self._group.checker.committed
        if node.id in group.checker.membership.members or not len(node.log):
            return False
        known = len(committed)
        for other in group.nodes.values():
            coming = (other.log.entries[index].membership for index in other.log.changes if index >= known)
            if other.id != node.id and any(member and node.id in member.members for member in coming):
                return False
        earlier = [committed.entries[index].membership for index in committed.changes]
        was_member = node.id in group.initial_membership.members or any(
            member and node.id in member.members for member in earlier
        )
        if was_member:
            group.forget_messages(node.id)
            group.checker.deleted(node.id)
            group.restart_from(node.id, Disk(REJOINING, group.empty_log()), is_new=True)
        return was_member

    def _forget(self, rng: random.Random, node: Node) -> bool:
        """Replace a node's disk by an empty one, although its replica has voted and acknowledged entries."""
        group = self._group
        if not self._may_lose(node):
            return False
        group.lose(node.id)  # its connections have broken
        group.restart_from(node.id, empty_disk(group, node), is_new=True)
        tell_end(group, node.id)
        tell_return(group, node.id, rng)
        return True

    def _restore(self, rng: random.Random, node: Node) -> bool:
        """Replace a node's disk by an older copy of it."""
        return self._copies.restore(rng, self._may_lose)

    def _restore_tail(self, rng: random.Random, node: Node) -> bool:
        """Start the node on the copy of its disk from before a truncation, some steps later: the removed
        entries are back.
        """
        self._group.later(rng.randint(2, 15), lambda: self._copies.restore_of(node.id, rng, self._may_lose))
        return self._may_lose(node)

    def _depose(self, rng: random.Random, node: Node) -> bool:
        """Let a leader append entries that no other node gets; connect it again when another node leads."""
        group, leader = self._group, self._group.leader()
        if leader is None or leader.core.membership.voters <= {leader.id}:
            return False
        self._cut_off({leader.id})
        for _ in range(rng.choice((1, 3, 8))):
            group.propose(leader, rng.choice((1, 5)))
        until = group.now + DEPOSED_STEPS

        def look() -> None:
            newest = group.leader()
            if group.now >= until or (newest is not None and newest.id != leader.id):
                group.later(rng.randint(1, 10), group.broken.clear)
            else:
                group.later(1, look)

        look()
        return True

    def _may_lose(self, node: Node) -> bool:
        """Return whether the disk of a node may lose votes and acknowledgements.

        Disks that have lost votes or acknowledgements must be a minority of any membership that may be in
        force. They must also be a minority of the next membership: a learner that has caught up may be about
        to vote.
        """
        group = self._group
        memberships = {group.checker.membership, group.checker.deciders}
        memberships |= {other.core.membership for other in group.nodes.values()}
        memberships |= group.memberships_under_way()
        gone = self._rejoining() | {node.id}
        for membership in memberships:
            voting = [half | (membership.learners & {node.id}) for half in membership.halves]
            if any(node.id in half and 2 * len(half & gone) >= len(half) for half in voting):
                return False
        return True

    def _rejoining(self) -> set[NodeId]:
        return {node.id for node in self._group.nodes.values() if node.disk.has_lost}


def empty_disk(group: Group, node: Node) -> Disk:
    """Return an empty disk that takes the place of a disk with votes and acknowledgements."""
    initial_membership = NOBODY if group.checker.committed.changes else node.disk.initial_membership
    lost = node.disk.lost_with_it
    group.checker.forgot(node.id)
    return Disk(REJOINING, group.empty_log(), initial_membership=initial_membership, lost=lost)
