"""Bugs in what a replica that may have forgotten does, and in what others make of it."""

from __future__ import annotations

from chaos.simulator.odds import FORGET, Odds
from tests.helpers.planted_bugs import Mutant

_CORE = "tests/unit/core/test_rejoin.py"


def loses_files(odds: Odds) -> bool:
    """Whether machines of a run lose files, or come back with older ones."""
    return FORGET in odds.timed


REJOIN = (
    Mutant(
        "a replica that rejoins is answered for each of its late replies",
        "raftlog.core.progress:Progress.take_rejoin_answer",
        " or self._answered_tick >= now",
        "",
        script="tests/unit/core/test_rejoin.py",
    ),
    Mutant(
        "a replica that began empty votes as soon as its log names it",
        "raftlog.core.member:Member.may_vote",
        "return not self.rejoining",
        "return self.memberships.have_named(self.id)",
        needs=loses_files,
    ),
    Mutant(
        "a leader counts a replica that rejoins",
        "raftlog.core.peers:Peers.reached_by_quorum",
        "-1 if peer.rejoining else reached(peer)",
        "reached(peer)",
        script=_CORE,
    ),
    Mutant(
        "a majority is enough for a voter that rejoins",
        "raftlog.core.peers:Peers.may_answer",
        "return confirmed and not (is_voter and self._unconfirmed(peer, progress))",
        "return confirmed",
        script=_CORE,
    ),
    Mutant(
        "a leader answers a replica that rejoins without being confirmed",
        "raftlog.core.peers:Peers.may_answer",
        "return confirmed and not (is_voter and self._unconfirmed(peer, progress))",
        "return True",
        script=_CORE,
    ),
    Mutant(
        "a reply to another incarnation counts",
        "raftlog.core.follower:Follower.receive_rejoin_response",
        "response.rejoining == self._member.rejoining",
        "self._member.rejoining",
        script=_CORE,
    ),
    Mutant(
        "a replica has rejoined before its log is durable up to the required index",
        "raftlog.core.follower:Follower._has_rejoined",
        "min(member.matched, member.writes.durable_index) >= last",
        "member.matched >= last",
        script=_CORE,
    ),
    Mutant(
        "a replica that rejoins takes its log for equal to that of the next leader",
        "raftlog.core.member:Member.enter_term",
        "self.matched = BEFORE_LOG.index",
        "pass",
        script=_CORE,
    ),
    Mutant(
        "a leader that was silent has to send its log again",
        "raftlog.core.raft:Raft._follow",
        "follower = Follower(self, sender)",
        "self.matched = -1; follower = Follower(self, sender)",
        script=_CORE,
    ),
    Mutant(
        "a replica that has rejoined may vote once more in the same term",
        "raftlog.core.member:Member.rejoined",
        "self._save_vote(leader)",
        "self._save_vote(None)",
        script=_CORE,
    ),
    Mutant(
        "the required index of a former leader still counts for a rejoining replica",
        "raftlog.core.member:Member.enter_term",
        "self.rejoin_last = None",
        "pass",
        script=_CORE,
    ),
    Mutant(
        "a reply to an earlier heartbeat carries its round",
        "raftlog.core.raft:Raft._settle_term",
        "round=messages.NO_ROUND,",
        "round=message.round,",
        script=_CORE,
    ),
    Mutant(
        "a refusal of an earlier term counts in this one",
        "raftlog.core.election:Candidate.receive_vote",
        "reply.asked == self._asked and reply.is_pre_vote",
        "reply.is_pre_vote",
        script=_CORE,
    ),
    Mutant(
        "a log that became shorter is probed only above its acknowledged index",
        "raftlog.core.progress:Progress.probe_at",
        "if rejected <= self.match_index:",
        "if False:",
        script=_CORE,
    ),
    Mutant(
        "a broker that lost its metadata log starts a new cluster",
        "partitions.hosting.first_start:FirstStart.is_over",
        "if await self._run_blocking(lambda: has_lived(self._filesystem, self._directory)):",
        "if await self._run_blocking(lambda: True):",
        script="tests/unit/partitions/test_first_start.py",
    ),
    Mutant(
        "an empty metadata log passes for that of a first start",
        "partitions.hosting.first_start:FirstStart._knows_by_files",
        "return self._registry.has_held(METADATA_GROUP)",
        "return False",
        equivalent="the other brokers still say that there is a cluster",
    ),
    Mutant(
        "slots of a creation that was cut short pass for those of a replica",
        "raftlog.storage.recovery:has_lived",
        "return not is_incomplete or _has_entries_or_state(filesystem, directory, names)",
        "return True",
        script="tests/unit/partitions/test_opener.py",
    ),
    Mutant(
        "a creation that was cut short is finished as that of a voter",
        "raftlog.storage.durable_state:DurableState.open",
        "is_rejoining |= newest is not None and newest.state.hard_state.is_rejoining",
        "pass",
        script="tests/unit/storage/test_slots.py",
    ),
    Mutant(
        "a replica whose folder is gone passes for a new one",
        "raftlog.hosting.opener:LogOpener.open",
        "is_lost = self.registry.has_held(group_id) and not has_lived(self.filesystem, directory)",
        "is_lost = False",
        script="tests/unit/hosting/test_opener.py",
    ),
    Mutant(
        "a disk that lost its registry keeps its id",
        "raftlog.storage.replica_registry:ReplicaRegistry.open",
        'known = kept or _Kept("", [])',
        'known = kept or _Kept(disk_id or "", [])',
        script="tests/unit/storage/test_replica_registry.py",
    ),
    Mutant(
        "a rejoining replica campaigns after a leadership transfer",
        "raftlog.core.follower:Follower.receive_timeout_now",
        "member.is_voter and member.may_vote",
        "member.is_voter",
        script=_CORE,
    ),
    Mutant(
        "a rejoining replica commits what its leader knew of its earlier log",
        "raftlog.core.follower:Follower.receive_heartbeat",
        " and not member.rejoining",
        "",
        script=_CORE,
    ),
)
