"""The leader: appends proposals, decides which entries are committed, confirms reads, and notices a lost
quorum.

Leaves to others: the messages to each peer (``appends``), which peers count (``peers``), and the steps of a
membership change (``changes``). Entries are sent when the driver calls ``take_ready``, so that proposals made
together are sent together. Time is counted in ticks since the election.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from raftlog.core.appends import Appends
from raftlog.core.changes import Changes
from raftlog.core.entries import EntryKind
from raftlog.core.invariants import require_elected
from raftlog.core.member import Member
from raftlog.core.membership import Membership
from raftlog.core.messages import (
    NO_ROUND,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    TimeoutNow,
)
from raftlog.core.peers import Peers
from raftlog.core.progress import Progress
from raftlog.core.read_index import ReadIndex
from raftlog.core.ready import Appended, RefusalReason, Role
from raftlog.core.role_state import RoleState
from raftlog.types import EntryId, Index, NodeId, Token

_HEARD_TICK: Final = attrgetter("heard_tick")
_MATCH_INDEX: Final = attrgetter("match_index")
_ROUND: Final = attrgetter("round")


@dataclass(frozen=True, slots=True)
class _Transfer:
    """A leadership transfer in progress; the leader refuses proposals meanwhile."""

    to: NodeId
    until_tick: int


class Leader(RoleState):
    """The role of a member that leads."""

    __slots__ = (
        "_active_round",
        "_active_tick",
        "_appends",
        "_changes",
        "_first_own_index",
        "_heartbeat_tick",
        "_now",
        "_peers",
        "_quorum_lost_tick",
        "_reads",
        "_round",
        "_transfer",
        "_work_is_due",
    )

    def __init__(self, member: Member) -> None:
        """Start to lead in the present term of ``member``."""
        last = member.terms.last_index
        has_tail = last > member.commit_index
        super().__init__(member, Role.LEADER, member.id)
        require_elected(
            member.term, member.id, member.voted_for, is_durable=member.writes.hard_state_is_durable
        )
        self._now = 0
        self._first_own_index = Index(last + 1)
        self._peers = Peers(member, Index(last + 1))
        self._appends = Appends(member, self._peers)
        self._reads = ReadIndex(member, Index(last + 1) if has_tail else last)
        self._transfer: _Transfer | None = None
        self._round = 0  # of heartbeats
        self._heartbeat_tick = 1
        self._quorum_lost_tick = (
            member.settings.election_ticks
        )  # the leader steps down at this tick unless a quorum has replied
        self._active_tick = 0  # the last tick with activity other than heartbeats
        self._active_round = 0  # the newest heartbeat round at that tick
        self._work_is_due = True
        if has_tail:
            # Commits entries of earlier leaders: only entries of this leader's term may be counted (5.4.2).
            member.append(member.term, self._first_own_index, self._first_own_index, EntryKind.LEADER_CHANGE)
        self._changes = Changes(member, self._peers)
        member.request_ready()

    @property
    def is_sticky(self) -> bool:
        """True: this member is itself the leader that is alive; check-quorum notices a lost quorum."""
        return True

    @property
    def match_index(self) -> Mapping[NodeId, Index]:
        """For each voter, the index up to which its durable log is known to equal the leader's."""
        own = {self._member.id: self._member.writes.durable_index}
        return (own if self._member.is_voter else {}) | self._peers.match_index(
            self._member.membership.all_voters
        )

    @property
    def learner_match_index(self) -> Mapping[NodeId, Index]:
        """For each non-voting learner, the index up to which its durable log equals the leader's."""
        membership = self._member.membership
        return self._peers.match_index(membership.learners - membership.all_voters)

    @property
    def awaiting_snapshot(self) -> frozenset[NodeId]:
        """Peers that need a snapshot, because they need entries that are deleted from the leader's log."""
        return self._peers.awaiting_snapshot

    @property
    def rejoining(self) -> Mapping[NodeId, frozenset[NodeId]]:
        """Peers that rejoin, each with the voters that have yet to confirm this leader for that peer."""
        return self._peers.rejoining

    @property
    def heard_ticks_ago(self) -> Mapping[NodeId, int]:
        """Ticks since each peer's last reply."""
        return {peer: self._now - progress.heard_tick for peer, progress in self._peers.progress.items()}

    def depends_on(self, peer: NodeId) -> bool:
        """Whether ``peer`` is not known to be unreachable: a leader needs the replies of all such peers."""
        return peer not in self._member.unreachable

    def tick(self) -> Role | None:
        """Send heartbeats; step down without a quorum (thesis 6.2); end a transfer that takes too long."""
        self._now = now = self._now + 1
        if now >= self._quorum_lost_tick and not self._hears_quorum():
            return Role.FOLLOWER
        if self._transfer is not None and now >= self._transfer.until_tick:
            self._transfer = None
        if now >= self._heartbeat_tick:
            self._beat()
        return None

    def write_finished(self) -> Role | None:
        """Commit entries that are now durable on a quorum, and take the next step of a leadership
        transfer.
        """
        change = self._advance_commit()
        if self._transfer is not None:
            self._try_transfer()
        return change

    def unquiesced(self) -> None:
        """Count the silence of every peer from now on, and send heartbeats at the next tick."""
        for progress in self._peers.progress.values():
            progress.restart_silence(self._now)
        self._quorum_lost_tick = self._now + self._member.settings.election_ticks
        self._heartbeat_tick = self._now + 1
        self._reads.expect_no_echo()
        self._mark_active()

    def resign(self, leader: NodeId | None) -> None:
        """Refuse all waiting reads with the name of the new leader: this member no longer leads."""
        self._reads.refuse_all(leader)

    def campaign(self) -> None:
        """Do nothing: a leader needs no election."""

    def propose(self, token: Token | None, index_count: int) -> None:
        """Append the indexes at once; followers get the new entries when the driver calls ``take_ready``."""
        member = self._member
        if self._transfer is not None:
            if token is not None:
                member.refuse(token, None, RefusalReason.TRANSFERRING)
            return
        first = Index(member.terms.last_index + 1)
        member.append(member.term, first, Index(first + index_count - 1), EntryKind.DATA)
        if token is not None:
            member.settle(Appended(token, EntryId(member.term, first)))
        self._work_is_due = True
        self._mark_active()

    def change_membership(self, token: Token, target: Membership) -> None:
        """Append the first step to ``target``; the next step follows its commit (thesis 4.3)."""
        member = self._member
        if self._transfer is not None:
            member.refuse(token, None, RefusalReason.TRANSFERRING)
            return
        reason = self._changes.refusal(target)
        if reason is not None:
            member.refuse(token, member.id, reason)
            return
        member.settle(Appended(token, self._changes.begin(target, self._now)))
        self._work_is_due = True
        self._mark_active()

    def confirm_read(self, token: Token) -> None:
        """Queue a linearizable read; reads that arrive during a heartbeat round wait for the next round."""
        self._reads.ask(token, self._round)
        self._confirm_reads()
        self._mark_active()

    def transfer(self, to: NodeId) -> None:
        """Transfer leadership once ``to`` holds the whole log and all entries are committed.

        The transfer is given up after an election timeout.
        """
        progress = self._peers.progress.get(to)
        if progress is None or progress.rejoining or to not in self._member.membership.voters:
            return
        self._transfer = _Transfer(to, self._now + self._member.settings.election_ticks)
        self._mark_active()
        self._try_transfer()

    def peer_unreachable(self, peer: NodeId) -> None:
        """Stop sending entries to ``peer``: appends in flight may be lost. End a transfer to ``peer``."""
        progress = self._peers.progress.get(peer)
        if progress is None:
            return
        progress.lose_contact(self._now, self._member.settings.heartbeat_ticks)
        if self._transfer is not None and self._transfer.to == peer:
            self._transfer = None
        self._mark_active()

    def peer_reachable(self) -> None:
        """Keep the group active until the reachable peer has the whole log."""
        self._mark_active()

    def append_dropped(self, to: NodeId) -> None:
        """Probe ``to`` again after its next reply, as after a broken connection."""
        self.peer_unreachable(to)

    def append_cut(self, to: NodeId, last: Index) -> None:
        """Send ``to`` the entries after ``last``, as far as the limit of appends in flight allows."""
        progress = self._peers.progress.get(to)
        if progress is not None and progress.cut(last):
            self._call_for_work()

    def receive_append_reply(self, sender: NodeId, reply: AppendReply) -> Role | None:
        """Learn up to which index a follower's log equals this log, or at which index to probe next."""
        progress, last_index = self._peers.progress.get(sender), self._member.terms.last_index
        if progress is None:
            return None
        progress.heard(reply.rejoining, self._now, self._round + 1, last_index)
        change = None
        if reply.accepted:
            if reply.match_index > last_index:
                return None
            if progress.accepted(reply.match_index, self._now):
                self._mark_active()
                if reply.match_index > self._member.commit_index:
                    change = self._advance_commit()
                if self._transfer is not None:
                    self._try_transfer()
        elif reply.hint is not None and progress.rejects(reply.match_index):
            terms = self._member.terms
            log_start = terms.snapshot.index
            if reply.hint.index < log_start or reply.match_index <= log_start:
                progress.need_snapshot()  # The logs differ even where this log begins.
            else:
                progress.probe_at(terms.compare_next(reply.hint), reply.match_index)
                self._mark_active()
        if self._appends.may_be_due(sender, progress):
            self._call_for_work()
        return change

    def receive_heartbeat_reply(self, sender: NodeId, reply: HeartbeatReply) -> None:
        """Note which heartbeat round a follower has echoed, and probe a follower that makes no progress."""
        now, progress = self._now, self._peers.progress.get(sender)
        if progress is None:
            return
        progress.heard(reply.rejoining, now, self._round + 1, self._member.terms.last_index)
        if progress.echoed(reply.round) and self._reads:
            self._confirm_reads()
        if self._peers.any_rejoins:
            self._peers.answer_rejoining(sender, now, self._round)
            self._mark_active()
        if progress.is_stalled(self._appends.last_for(sender), now, self._member.settings):
            progress.request_probe()
        if progress.probe_is_due:
            self._call_for_work()

    def gather(self) -> None:
        """Put heartbeats for reads, probes and entries into the outbox."""
        if not self._work_is_due:
            return
        self._work_is_due = False
        if self._reads.needs_round:
            self._broadcast(quiesces=False)
        self._appends.send(self._now, self._round)

    def _call_for_work(self) -> None:
        self._work_is_due = True
        self._member.request_ready()

    def _mark_active(self) -> None:
        """Keep the group active: it becomes quiescent ``quiesce_ticks`` after the last call."""
        self._active_tick = self._now
        self._active_round = self._round

    def _hears_quorum(self) -> bool:
        heard_tick = self._peers.reached_by_quorum(self._now, _HEARD_TICK)
        self._quorum_lost_tick = heard_tick + self._member.settings.election_ticks
        return self._now < self._quorum_lost_tick

    def _beat(self) -> None:
        settings = self._member.settings
        self._heartbeat_tick = self._now + settings.heartbeat_ticks
        quiesces = self._now - self._active_tick >= settings.quiesce_ticks and self._may_quiesce()
        self._broadcast(quiesces=quiesces)
        if quiesces:
            self._member.quiesce(map(_MATCH_INDEX, self._reachable()))
        if self._peers.leaving:
            self._peers.drop_removed(self._now)

    def _broadcast(self, *, quiesces: bool) -> None:
        """Begin a heartbeat round. Class ``Heartbeat`` says which commit index each follower gets."""
        member = self._member
        commit_index = member.commit_index
        self._round += 1
        self._reads.round_began(self._round)
        heartbeat = Heartbeat(
            term=member.term,
            commit_index=commit_index,
            round=self._round,
            quiesces=quiesces,
            commit_term=member.terms.term_at(commit_index),
        )
        for peer, progress in self._peers.progress.items():
            if progress.match_index >= commit_index:
                member.send(peer, heartbeat)
            else:
                held = member.terms.entry_at(progress.match_index)
                behind = Heartbeat(
                    term=member.term, commit_index=held.index, round=self._round, commit_term=held.term
                )
                member.send(peer, behind)
        if self._reads:  # a leader that is a quorum by itself waits for no echo
            self._confirm_reads()

    def is_late(self, sender: NodeId, message: Message) -> bool:
        """Whether a message is the echo of an old heartbeat round, which must not make the group active.

        A follower that does not become quiescent echoes the newest round, so its reply is not late. A
        reminder echoes no round, since the follower may have missed the newest one.

        Old echoes are normal if a message takes longer than a heartbeat interval. Messages of an unreachable
        sender are never late: a leader that became quiescent without the sender must hear them.
        """
        return (
            isinstance(message, HeartbeatReply)
            and sender not in self._member.unreachable
            and message.term == self._member.term
            and NO_ROUND < message.round < self._round
            and not message.rejoining
        )

    def _may_quiesce(self) -> bool:
        """Whether every reachable peer holds the whole log and knows its commit index.

        A peer knows the commit index once it has echoed a round that began after the last activity.
        Unreachable peers do not count; ``peer_reachable`` reports their return. At least a quorum is always
        reachable: a leader that does not hear a quorum steps down before it may become quiescent.

        A peer may have lost its files and rejoined since its last reply, and its later replies may be lost.
        Its match index is then unknown, and the leader continues to send heartbeats.
        """
        active_round, last = self._active_round, self._member.terms.last_index
        return (
            not self._reads
            and self._transfer is None
            and self._member.writes.all_finished
            and not self._peers.any_rejoins
            and all(
                progress.round > active_round and progress.match_index >= last
                for progress in self._reachable()
            )
        )

    def _reachable(self) -> list[Progress]:
        unreachable = self._member.unreachable
        return [progress for peer, progress in self._peers.progress.items() if peer not in unreachable]

    def _advance_commit(self) -> Role | None:
        """Commit entries that are durable on a quorum, if the last of them is of this term (Raft
        5.3, 5.4.2).
        """
        member = self._member
        index = Index(self._peers.reached_by_quorum(member.writes.durable_index, _MATCH_INDEX))
        if index <= member.commit_index or index < self._first_own_index:
            return None
        member.commit_to(index)
        self._reads.settle()
        self._mark_active()
        self._work_is_due = True
        open_index = self._changes.open_index
        if open_index is not None and index >= open_index:
            return self._advance_change()
        return None

    def _advance_change(self) -> Role | None:
        """Take the next step of a membership change; step down if the last step removes this
        voter (4.2.2).
        """
        member = self._member
        is_over = self._changes.advance(self._now)
        if member.is_voter or not is_over:
            return None
        matches = self._peers.match_index(member.membership.voters)
        if matches:
            successor = max(sorted(matches), key=matches.__getitem__)
            self._send_timeout_now(successor, min(member.commit_index, matches[successor]))
        return Role.FOLLOWER

    def _send_timeout_now(self, to: NodeId, commit_index: Index) -> None:
        member = self._member
        held = member.terms.entry_at(commit_index)
        member.send(to, TimeoutNow(term=member.term, commit_index=held.index, commit_term=held.term))

    def _confirm_reads(self) -> None:
        self._reads.confirm(self._peers.reached_by_quorum(self._round, _ROUND))
        if self._reads.needs_round:
            self._call_for_work()

    def _try_transfer(self) -> None:
        """Order the target to campaign once it holds the whole log and all entries are committed."""
        member, transfer = self._member, self._transfer
        if transfer is None:
            return
        match_index = self._peers.progress[transfer.to].match_index
        if match_index == member.commit_index == member.terms.last_index:
            self._send_timeout_now(transfer.to, match_index)
