"""Bugs in the Raft core."""

from __future__ import annotations

from tests.simulation.mutants.plant import Edit, Mutant

CORE = (
    Mutant(
        "promises leave before the disk has them",
        "raftlog.core.member:Member.promise",
        "if not self.writes.hold_back(envelope, index):",
        "if True:",
    ),
    Mutant(
        "votes twice in a term",
        "raftlog.core.election:answer_vote",
        "may_vote = member.voted_for in (None, candidate)",
        "may_vote = True",
    ),
    Mutant(
        "votes without looking at the candidate's log",
        "raftlog.core.election:answer_vote",
        " or request.last < member.newest_ever",
        "",
        more=(
            Edit(
                "raftlog.core.election:answer_pre_vote",
                "request.last >= member.newest_ever",
                "True",
            ),
        ),
    ),
    Mutant(
        "votes by the log's length, not by its last term",
        "raftlog.core.election:answer_vote",
        "request.last < member.newest_ever",
        "request.last.index < member.terms.last.index",
        more=(
            Edit(
                "raftlog.core.election:answer_pre_vote",
                "request.last >= member.newest_ever",
                "request.last.index >= member.terms.last.index",
            ),
        ),
        script="tests/paper/test_raft_elections.py",
    ),
    Mutant(
        "counts its own vote before it is durable",
        "raftlog.core.election:Candidate.finish_write",
        " or not member.writes.hard_state_is_durable",
        "",
        equivalent="its request for votes waits for the same write, so nobody else votes before",
    ),
    Mutant(
        "a candidate keeps its term to itself until asked",
        "raftlog.core.member:Member.vote",
        "self.writes.save_hard_state(HardState(self.term, voted_for, bool(self.rejoining)))",
        "voted_for is None and self.writes.save_hard_state(HardState(self.term, None, bool(self.rejoining)))",
    ),
    Mutant(
        "wins with one vote less",
        "raftlog.core.quorum:quorum_size",
        "return voter_count // 2 + 1",
        "return max(1, voter_count // 2)",
    ),
    Mutant(
        "commits what one replica less than a quorum holds",
        "raftlog.core.quorum:reached_by_quorum",
        "(len(values) - 1) // 2",
        "len(values) // 2 + 1 if len(values) > 1 else 0",
    ),
    Mutant(
        "commits entries of earlier terms by counting (figure 8)",
        "raftlog.core.leader:Leader._advance_commit",
        "index <= member.commit_index or index < self._first_own_index",
        "index <= member.commit_index",
    ),
    Mutant(
        "does not look at the entry before an append",
        "raftlog.core.follower:Follower.receive_append",
        "elif member.terms.holds(previous):",
        "elif previous.index <= member.terms.last_index:",
    ),
    Mutant(
        "cuts its log at every append",
        "raftlog.core.follower:Follower._take_in",
        "held = member.terms.held_from(span.term, span.first)",
        "held = span.first - 1",
    ),
    Mutant(
        "believes the leader's commit index beyond what matches",
        "raftlog.core.follower:Follower.receive_append",
        "member.commit_to(min(request.commit_index, matched))",
        "member.commit_to(min(request.commit_index, member.terms.last_index))",
    ),
    Mutant(
        "a heartbeat tells everybody the whole commit index",
        "raftlog.core.leader:Leader._broadcast",
        "commit_index=progress.match_index",
        "commit_index=commit_index",
    ),
    Mutant(
        "a new leader appends nothing of its own",
        "raftlog.core.leader:Leader.__init__",
        "if has_tail:",
        "if False:",
    ),
    Mutant(
        "reads need no proof of leadership",
        "raftlog.core.read_index:ReadIndex.settle",
        "reads[0].round <= self._confirmed_round and ",
        "",
        script="tests/scenarios/test_raft_stories.py",
    ),
    Mutant(
        "reads do not wait for what earlier leaders committed",
        "raftlog.core.read_index:ReadIndex.ask",
        "max(self._member.commit_index, self._proven_index)",
        "self._member.commit_index",
    ),
    Mutant(
        "a lost append is never sent again",
        "raftlog.core.leader:Leader.receive_heartbeat_reply",
        "progress.probe_is_due = True",
        "pass",
    ),
    Mutant(
        "a rejected append is tried at the same place again",
        "raftlog.core.leader:Leader.receive_append_reply",
        "progress.probe_at(terms.compare_next(reply.hint), reply.match_index)",
        "progress.probe_is_due = True",
    ),
    Mutant(
        "falls asleep although followers are behind",
        "raftlog.core.leader:Leader._may_sleep",
        "settled_round > 0",
        "True",
    ),
    Mutant(
        "falls asleep on what was settled before the newest entries",
        "raftlog.core.leader:Leader._stir",
        "self._settled_round = 0",
        "pass",
    ),
    Mutant(
        "takes a round for settled that says less to a follower that is behind",
        "raftlog.core.leader:Leader._broadcast",
        "is_settled = False\n",
        "pass\n",
    ),
    Mutant(
        "the loss of their leader does not wake those who sleep",
        "raftlog.core.raft:Raft._wake",
        "and event.peer != self.leader\n",
        "and True\n",
    ),
    Mutant(
        "who has lost its leader waits for it all the same",
        "raftlog.core.follower:Follower.lose_leader",
        "self._timeout_ticks = 1 + turn",
        "self._timeout_ticks = (1 << 20) + turn",
    ),
    Mutant(
        "votes for whom its leader has called, whatever the log",
        "raftlog.core.election:answer_vote",
        "or request.last < member.newest_ever",
        "or (request.last < member.newest_ever and not request.is_transfer)",
        script="tests/paper/test_raft_elections.py",
    ),
    Mutant(
        "answers of earlier terms are taken for answers of this one",
        "raftlog.core.raft:Raft._receive",
        "message.term != self._member.term",
        "message.term > self._member.term",
        script="tests/scenarios/test_raft_stories.py",
    ),
    Mutant(
        "a term is entered with the vote of the last one",
        "raftlog.core.raft:Raft._enter_term",
        "voted_for=None",
        "voted_for=self._member.voted_for",
    ),
    Mutant(
        "a hand-over whose message was lost never ends",
        "raftlog.core.leader:Leader.tick",
        "if self._transfer is not None and now >= self._transfer.until_tick:",
        "if False:",
    ),
    Mutant(
        "a leader without a quorum stays",
        "raftlog.core.leader:Leader.tick",
        "now >= self._quorum_lost_tick and not self._hears_quorum()",
        "False",
    ),
    Mutant(
        "a deposed leader leaves its reads unanswered",
        "raftlog.core.leader:Leader.resign",
        "self._reads.refuse_all(leader)",
        "pass",
    ),
    Mutant(
        "a promise waits for its term, not for its entries",
        "raftlog.core.writes:Writes.hold_back",
        "max(covering, self._hard_state_write)",
        "self._hard_state_write",
    ),
    Mutant(
        "a write under way confirms what has replaced what was cut",
        "raftlog.core.writes:Writes.truncate",
        "min(covered, kept)",
        "covered",
        equivalent="entries come only after a promise of the same term, which waits for all earlier writes",
    ),
)
