"""Bugs in quiescence without unreachable members: what nodes learn of one another, and when."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_GROUPS = "tests/unit/node/test_leaderless_groups.py"
_BROKERS = "tests/scenarios/node/test_quiescent_without_a_minority.py"

QUIESCENCE = (
    Mutant(
        "a leader quiesces as if every peer were unreachable",
        "raftlog.core.leader:Leader._reachable",
        "if peer not in unreachable",
        "if not unreachable",
    ),
    Mutant(
        "a peer that speaks stays unreachable",
        "raftlog.core.raft:Raft._receive",
        "self.unreachable.discard(event.sender)",
        "pass",
    ),
    Mutant(
        "the loss of a peer is unknown to a leader that was elected later",
        "raftlog.core.raft:Raft._unquiesce",
        "self.unreachable.add(peer)",
        "pass",
    ),
    Mutant(
        "the return of a learner does not unquiesce its leader",
        "raftlog.core.raft:Raft._unquiesce",
        "peer not in self.unreachable:",
        "peer not in self.membership.voters:",
    ),
    Mutant(
        "a peer that was lost while it rejoined keeps its group active",
        "raftlog.core.peers:Peers.any_rejoins",
        " and peer not in unreachable",
        "",
        script="tests/unit/core/test_quiescence.py",
    ),
    Mutant(
        "late echoes unquiesce a leader",
        "raftlog.core.leader:Leader.is_late",
        "message.round < self._round",
        "False",
        script="tests/scenarios/node/test_quiescence_and_failure.py",
    ),
    Mutant(
        "a follower that disagrees does not unquiesce its leader",
        "raftlog.core.leader:Leader.is_late",
        "message.round < self._round",
        "True",
        script="tests/unit/core/test_quiescence.py",
    ),
    Mutant(
        "a late echo of a peer that rejoins is ignored",
        "raftlog.core.leader:Leader.is_late",
        " and not message.rejoining",
        "",
        script="tests/unit/core/test_quiescence.py",
    ),
    Mutant(
        "an echo of another term is ignored by a quiescent leader",
        "raftlog.core.leader:Leader.is_late",
        "message.term == self._member.term",
        "True",
        script="tests/unit/core/test_quiescence.py",
    ),
    Mutant(
        "a late echo of an unreachable peer is ignored",
        "raftlog.core.leader:Leader.is_late",
        "sender not in self._member.unreachable",
        "True",
        script="tests/unit/core/test_quiescence.py",
    ),
    Mutant(
        "a repeated loss unquiesces a leader",
        "raftlog.core.leader:Leader.depends_on",
        "return peer not in self._member.unreachable",
        "return True",
        script="tests/unit/core/test_quiescence.py",
    ),
    Mutant(
        "a loss that is over is not reported to a quiescent leader",
        "raftlog.node.leaderless_groups:LeaderlessGroups._tell",
        "if had_effect or not is_reachable",
        "if not is_reachable",
        script="tests/unit/node/test_leaderless_groups.py",
    ),
    Mutant(
        "a group that has another leader is not told who is unreachable",
        "raftlog.node.leaderless_groups:LeaderlessGroups._tell",
        "if had_effect or not is_reachable",
        "if had_effect",
        script=_GROUPS,
    ),
    Mutant(
        "a former member stays unreachable when it returns",
        "raftlog.node.leaderless_groups:LeaderlessGroups.peer_reachable",
        "if peer in group.unreachable",
        "if peer in group.membership.members",
        script=_GROUPS,
    ),
    Mutant(
        "a group that opens does not learn who is unreachable",
        "raftlog.node.group_host:GroupHost.open_group",
        "self._leaderless.opened(self._groups[group_id])",
        "pass",
        script=_BROKERS,
    ),
    Mutant(
        "a quiescent leader counts unreachable replicas as in sync",
        "raftlog.node.group.view:GroupView.in_sync",
        " - self._core.unreachable",
        "",
        script=_BROKERS,
    ),
    Mutant(
        "an unreachable replica is in sync again when its group unquiesces",
        "raftlog.node.group.replica_health:ReplicaHealth.quiesced_without",
        "self._left_out | unreachable",
        "self._left_out",
        script=_BROKERS,
    ),
)
