"""State of a Raft group's member in every role: term, vote, log shape, membership, commit index, outbox.

``Member`` keeps these fields consistent and gathers the next ``Ready``. Leaves to others: all
decisions about elections and replication (the roles).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from raftlog.core import invariants
from raftlog.core.entries import EntryKind
from raftlog.core.membership import Membership, Memberships
from raftlog.core.messages import AppendReply, AppendRequest, Envelope, Message, SnapshotOffer
from raftlog.core.ready import (
    FetchSnapshot,
    HardState,
    Ready,
    RefusalReason,
    Refused,
    Replicate,
    Restored,
    Role,
    RoleChange,
    Settled,
)
from raftlog.core.settings import RaftSettings
from raftlog.core.term_map import TermMap
from raftlog.core.writes import Writes
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term, Token, WriteId

if TYPE_CHECKING:
    from random import Random


class Member:
    """One member of a Raft group in any role. The roles read its fields; only its methods change them."""

    __slots__ = (
        "_commit_told",
        "_fetch_snapshot",
        "_membership_told",
        "_outgoing",
        "_rejoined_from",
        "_replicate",
        "_settled",
        "commit_index",
        "has_news",
        "id",
        "is_quiescent",
        "is_voter",
        "matched",
        "membership",
        "membership_index",
        "memberships",
        "peers",
        "rejoin_last",
        "rejoining",
        "rng",
        "role",
        "settings",
        "term",
        "terms",
        "unreachable",
        "voted_for",
        "voters",
        "writes",
    )

    def __init__(self, settings: RaftSettings, restored: Restored, rng: Random) -> None:
        """Start with the restored state."""
        self.settings = settings
        self.id = settings.node_id
        self.rng = rng
        self.role = Role.FOLLOWER
        self.memberships = Memberships(restored.snapshot.index, restored.membership, restored.memberships)
        self._adopt()
        self._membership_told = self.membership
        self.term = restored.hard_state.term
        self.voted_for = restored.hard_state.voted_for
        self.terms = TermMap(restored.snapshot, restored.terms, restored.last)
        # 0, or a random number unique to this incarnation of the replica: responses name it.
        self.rejoining = rng.getrandbits(62) + 1 if restored.hard_state.is_rejoining else 0
        self._rejoined_from = (
            0  # the incarnation that has just rejoined, until the hard state says so durably
        )
        self.matched = BEFORE_LOG.index  # up to here the log equals the log of this term's leader
        self.rejoin_last: Index | None = None  # the entries that this term's leader requires for rejoining
        self.writes = Writes(restored.last.index)
        # A hint beyond the log names entries that were never durable here, but are on other members.
        self.commit_index = Index(
            max(restored.snapshot.index, min(restored.commit_hint, restored.last.index))
        )
        self.is_quiescent = False
        self.unreachable: set[NodeId] = set()  # peers whose nodes the host cannot reach
        self.has_news = self.commit_index > restored.snapshot.index
        self._commit_told = restored.snapshot.index
        self._outgoing: list[Envelope] = []
        self._replicate: list[Replicate] = []
        self._settled: list[Settled] = []
        self._fetch_snapshot: FetchSnapshot | None = None

    @property
    def may_vote(self) -> bool:
        """Whether this member has lost neither votes nor acknowledged entries.

        The membership in force does not matter: a candidate may know a newer one, and without this vote
        no candidate might win (thesis 4.1). Whether a log names this member does not matter either: while a
        member rejoins, its log gets old memberships before the entries it had acknowledged under them.
        """
        return not self.rejoining

    @property
    def rejoining_told(self) -> int:
        """The ``rejoining`` number in replies that are sent before a write is durable.

        After rejoining has ended, the number stays until that end is durable: after a crash the member would
        rejoin again, and a leader that had counted the member could be left without a majority.
        """
        return self.rejoining or (0 if self.writes.hard_state_is_durable else self._rejoined_from)

    @property
    def newest_durable(self) -> EntryId:
        """The newest durable entry, which elections compare (5.4.1).

        All acknowledged entries are durable. Entries that are not durable may wait for long on a full disk:
        they must neither prevent a vote for a log without them, nor win an election.
        """
        index = self.writes.durable_index
        return EntryId(self.terms.term_at(index), index)

    @property
    def may_campaign(self) -> bool:
        """Whether the member may win an election: it is a voter, or was one at its commit index.

        The member may be the only one that has the entry that removes it; then no other can win (4.2.2).
        """
        return self.may_vote and self.memberships.votes_since(self.commit_index, self.id)

    def may_install(self, snapshot: EntryId) -> bool:
        """Whether a snapshot may replace the log: it is uncommitted, not in the log, and no write is open."""
        return (
            snapshot.index > self.commit_index and not self.terms.holds(snapshot) and self.writes.all_finished
        )

    def election_timeout(self) -> int:
        """The ticks to wait for a leader before a campaign: random, so that members seldom collide."""
        ticks = self.settings.election_ticks
        return self.rng.randint(ticks + 1, 2 * ticks)

    def enter_term(self, term: Term, voted_for: NodeId | None) -> None:
        """Enter a later term. Votes and accepted appends of that term are sent once the term is durable."""
        invariants.require_term_rises(self.term, term)
        self.term = term
        self.matched = BEFORE_LOG.index
        self.rejoin_last = None
        self._save_vote(voted_for)

    def vote(self, voted_for: NodeId | None) -> None:
        """Vote for a candidate in this term; the vote becomes durable with the next write."""
        if voted_for is not None:
            invariants.require_one_vote(self.term, self.voted_for, voted_for)
        self._save_vote(voted_for)

    def _save_vote(self, voted_for: NodeId | None) -> None:
        if self.writes.hard_state_is_durable:
            self._rejoined_from = 0
        self.voted_for = voted_for
        self.writes.save_hard_state(HardState(self.term, voted_for, bool(self.rejoining)))
        self.has_news = True

    def rejoined(self, leader: NodeId) -> None:
        """End rejoining: the log holds all acknowledged entries. The vote of this term goes to the leader."""
        incarnation, self.rejoining, self.rejoin_last = self.rejoining, 0, None
        self._save_vote(leader)
        self._rejoined_from = incarnation

    def append(
        self, term: Term, first: Index, last: Index, kind: EntryKind, membership: Membership | None = None
    ) -> None:
        """Add entries to the log and to the next write. A membership is in force at once (thesis 4.1)."""
        self.terms.append(term, first, last)
        self.writes.append(term, first, last, kind, membership)
        if membership is not None:
            self.memberships.append(last, membership)
            self._adopt()
        self.has_news = True

    def truncate(self, first_removed: Index) -> None:
        """Remove uncommitted entries from the log, and order their removal from the disk with the
        next write.
        """
        invariants.require_commit_spared(first_removed, self.commit_index)
        self.terms.truncate(first_removed)
        self.writes.truncate(first_removed)
        if self.memberships.truncate(first_removed):
            self._adopt()
        self.has_news = True

    def truncate_prefix(self, snapshot: EntryId) -> None:
        """Forget the log up to ``snapshot``. Do nothing if the log already begins there or later."""
        if snapshot.index > self.terms.snapshot.index:
            invariants.require_settled(snapshot, self.commit_index, self.writes.durable_index)
            self.terms.truncate_prefix(snapshot)
            self.memberships.truncate_prefix(snapshot.index)
            self._adopt()

    def restart(self, snapshot: EntryId, membership: Membership) -> None:
        """Restart the log after a snapshot replaced it: the snapshot's entry is committed, durable and
        applied.
        """
        invariants.require_may_install(snapshot, may_install=self.may_install(snapshot))
        self.terms = TermMap(snapshot, (), snapshot)
        self.writes.restart(snapshot.index)
        self.matched = snapshot.index
        self.memberships = Memberships(snapshot.index, membership, ())
        self._adopt()
        self.commit_index = self._commit_told = snapshot.index
        self.has_news = True

    def quiesce(self, match_indexes: Iterable[Index] = ()) -> None:
        """Need no ticks until the next input. ``match_indexes``: of all peers, if this member leads."""
        invariants.require_nothing_open(
            self.terms.last_index, match_indexes, writes_finished=self.writes.all_finished
        )
        self.is_quiescent = True

    def unquiesce(self) -> None:
        """Start to need ticks again."""
        self.is_quiescent = False

    def request_ready(self) -> None:
        """Make the next ``take_ready`` gather messages, although no other news requires it."""
        self.has_news = True

    def agree(self, matched: Index) -> None:
        """Note that, for this term, the log equals the log of the term's leader up to ``matched``."""
        self.matched = max(self.matched, matched)

    def require_for_rejoin(self, last: Index) -> None:
        """Note that the leader requires the entries up to ``last`` before this rejoining member counts."""
        self.rejoin_last = last

    def commit_to(self, index: Index) -> None:
        """Raise the commit index; a lower or equal index changes nothing."""
        if index > self.commit_index:
            invariants.require_commit_in_log(index, self.terms.last_index)
            self.commit_index = index
            self.has_news = True

    def send(self, to: NodeId, message: Message) -> None:
        """Put a message that waits for no write into the outbox."""
        self._outgoing.append(Envelope(to, message))
        self.has_news = True

    def refuse_append(self, to: NodeId, request: AppendRequest | SnapshotOffer) -> None:
        """Reject an append or a snapshot offer of an earlier term; the reply has the current term."""
        index = request.previous.index if isinstance(request, AppendRequest) else request.snapshot.index
        refusal = AppendReply(
            term=self.term, accepted=False, match_index=index, rejoining=self.rejoining_told
        )
        self.send(to, refusal)

    def send_when_durable(self, to: NodeId, message: Message, index: Index) -> None:
        """Send a message once the hard state, and the log up to ``index``, are durable."""
        envelope = Envelope(to, message)
        if not self.writes.hold_back(envelope, index):
            self._outgoing.append(envelope)
        self.has_news = True

    def replicate(self, request: Replicate) -> None:
        """Order the driver to send the entries that the request names."""
        self._replicate.append(request)

    def fetch(self, request: FetchSnapshot) -> None:
        """Order the driver to fetch a snapshot."""
        self._fetch_snapshot = request
        self.has_news = True

    def settle(self, settled: Settled) -> None:
        """Add the answer to a request to the next ``Ready``."""
        self._settled.append(settled)
        self.has_news = True

    def finish_write(self, write_id: WriteId) -> None:
        """Mark a write durable, and put the messages that waited for it into the outbox."""
        released = self.writes.finish(write_id)
        if self.writes.durable_index > self.terms.last_index:
            invariants.require_durable_in_log(self.writes.durable_index, self.terms.last_index)
        if released:
            self._outgoing += released
            self.has_news = True

    def hard_state_saved(self, write_id: WriteId) -> None:
        """Mark the hard state of a write durable, and release the messages that waited only for it."""
        released = self.writes.hard_state_saved(write_id)
        if released:
            self._outgoing += released
            self.has_news = True

    def gathered(self, role_change: RoleChange | None) -> Ready | None:
        """All work since the last call, as a ``Ready``; None if there is no work."""
        self.has_news = False
        write = self.writes.take()
        commit_index = None
        if self.commit_index > self._commit_told:
            commit_index = self._commit_told = self.commit_index
        send, replicate, settled = self._outgoing, self._replicate, self._settled
        membership = None
        if self.membership is not self._membership_told and self.membership != self._membership_told:
            membership = self._membership_told = self.membership
        fetch_snapshot = self._fetch_snapshot
        if fetch_snapshot is not None:
            self._fetch_snapshot = None
        if not (
            write
            or send
            or replicate
            or settled
            or role_change
            or commit_index is not None
            or membership
            or fetch_snapshot
        ):
            return None
        if send:
            self._outgoing = []
        if replicate:
            self._replicate = []
        if settled:
            self._settled = []
        return Ready(
            write=write,
            send=tuple(send),
            replicate=tuple(replicate),
            settled=tuple(settled),
            commit_index=commit_index,
            role_change=role_change,
            membership=membership,
            fetch_snapshot=fetch_snapshot,
        )

    def refuse(
        self, token: Token, leader: NodeId | None, reason: RefusalReason = RefusalReason.NOT_LEADER
    ) -> None:
        """Answer a request with a refusal that has the reason and the leader to ask instead."""
        self.settle(Refused(token, leader, reason))

    def _adopt(self) -> None:
        """Put the newest membership of the log in force, whether it is committed or not."""
        newest = self.memberships.newest
        self.membership = membership = newest.membership
        self.membership_index = newest.index  # the snapshot's if the log begins after it
        self.voters = membership.all_voters
        self.is_voter = self.id in self.voters
        self.peers = tuple(sorted(membership.members - {self.id}))
