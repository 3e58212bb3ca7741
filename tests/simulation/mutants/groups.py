"""Bugs in the coordinator of consumer groups."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_REBALANCES = "tests/unit/groups/test_rebalances.py"
_OFFSETS = "tests/unit/groups/test_committed_offsets.py"

GROUPS = (
    Mutant(
        "a member commits in an earlier generation of its group",
        "groups.membership:Membership._member",
        "if generation != group.generation:",
        "if generation > group.generation:",
    ),
    Mutant(
        "a member commits what another owns",
        "groups.coordination:Coordination._check_committer",
        "if commit.partition not in member.assignment.get(commit.topic, ()):",
        "if False:",
        script=_OFFSETS,
    ),
    Mutant(
        "a member commits before its generation has a plan",
        "groups.membership:Membership.committer",
        "if isinstance(self._phase, _Planning):",
        "if False:",
        script=_OFFSETS,
    ),
    Mutant(
        "a late commit takes an offset back",
        "groups.commits:_is_below",
        "and commit.offset < before.offset",
        "and False",
    ),
    Mutant(
        "a late commit of an earlier topic counts",
        "groups.commits:_is_below",
        "before.topic_id == commit.topic_id",
        "True",
        script=_OFFSETS,
    ),
    Mutant(
        "a group rebalances without waiting for all members",
        "groups.membership:Membership._end_joining_if_all_have",
        "self.group.members.keys() <= joining.joined.keys()",
        "joining.joined.keys()",
        script=_REBALANCES,
    ),
    Mutant(
        "a broker that does not know the topic of offsets yet denies all groups",
        "groups.service:GroupService.ask",
        "count = await self._topic.confirmed_count(timeout_ms)",
        "pass",
        script="tests/unit/groups/test_commits_in_doubt.py",
    ),
    Mutant(
        "a commit that is being appended is reported as not stored when the coordinator is deposed",
        "raftlog.hosting.coordinator:Coordinator._end_in_doubt",
        "for waiting in self._appending.then:",
        "for waiting in self._appending.then[:0]:",
        script="tests/unit/groups/test_commits_in_doubt.py",
    ),
    Mutant(
        "each look after a stall of the coordinator waits for heartbeats again",
        "raftlog.hosting.coordinator:Coordinator._tick",
        "self._hears_until_s is None and ",
        "",
        script="tests/unit/groups/test_coordinator_clock.py",
    ),
    Mutant(
        "a dead member keeps its partitions",
        "groups.membership:Membership.tick",
        'self._remove(dead, f"the session of member {dead[0]} expired", now_ms, wall_ms)',
        "self._sessions = {each: end for each, end in self._sessions.items() if each not in dead}",
    ),
    Mutant(
        "a generation begins again with the number of the last",
        "groups.generations:next_generation",
        "generation = before.generation + 1",
        "generation = before.generation or 1",
    ),
    Mutant(
        "a member that joined has no session",
        "groups.membership:Membership._end_joining",
        "self._touch(member_id, member, now_ms)",
        "pass",
    ),
    Mutant(
        "a next coordinator gives no sessions",
        "groups.membership:Membership.take_over",
        "self._touch(member_id, member, now_ms)",
        "pass",
    ),
    Mutant(
        "a next coordinator forgets a rebalance that is due",
        "groups.membership:Membership.take_over",
        "if group.rebalance_due:",
        "if False:",
    ),
    Mutant(
        "a next coordinator does not wait for the plan",
        "groups.membership:Membership.take_over",
        "elif group.members and not group.has_plan:",
        "elif False:",
    ),
    Mutant(
        "a next coordinator misses other partitions",
        "groups.membership:Membership.take_over",
        "self.look_at_partitions(now_ms)",
        "pass",
    ),
    Mutant(
        "partitions that change during a rebalance are missed",
        "groups.membership:Membership._set_plan",
        "self.look_at_partitions(now_ms)",
        "pass",
    ),
    Mutant(
        "a leader without a plan stays",
        "groups.membership:Membership.tick",
        'self._remove((leader,), f"leader {leader} sent no plan", now_ms, wall_ms)',
        "self._phase = None",
        script=_REBALANCES,
    ),
    Mutant(
        "a follower that waits for a plan is not told of the next rebalance",
        "groups.membership:Membership._begin",
        "self._answer_waiting(lambda each: self._rebalancing(), kind=_Kind.SYNC)",
        "pass",
        script=_REBALANCES,
    ),
    Mutant(
        "a waiting heartbeat is not answered when a rebalance begins",
        "groups.membership:Membership._begin",
        "self._answer_waiting(lambda each: Beat(must_rejoin=True), kind=_Kind.HEARTBEAT)",
        "pass",
        script=_REBALANCES,
    ),
    Mutant(
        "a repeated join begins a rebalance",
        "groups.membership:Membership.join",
        "if member is not None and is_repeated and generations.is_same(member, ask):",
        "if False:",
        script=_REBALANCES,
    ),
    Mutant(
        "a static member that restarts is two members",
        "groups.membership:Membership._same_instance",
        "if not ask.instance_id:",
        "if True:",
        script=_REBALANCES,
    ),
    Mutant(
        "a static member that restarts twice is two members",
        "groups.membership:Membership._same_instance",
        "if self._joining is not None:",
        "if False:",
        script=_REBALANCES,
    ),
    Mutant(
        "a plan is taken as it comes",
        "groups.membership:Membership._set_plan",
        "if problem is not None:",
        "if False:",
        script=_REBALANCES,
    ),
    Mutant(
        "a cooperative plan gives away what its owner may still read",
        "groups.generations:problem_of_plan",
        "if problem is not None or group.strategy != COOPERATIVE:",
        "if True:",
        script=_REBALANCES,
    ),
    Mutant(
        "anybody commits for a group in use",
        "groups.coordination:Coordination._commit",
        "if not ask.is_forced or ask.member_id or ask.generation >= 0:",
        "if ask.member_id or ask.generation >= 0:",
        script=_OFFSETS,
    ),
    Mutant(
        "a group in use is deleted",
        "groups.coordination:Coordination._receive",
        'self._check_unused(name, "delete it")',
        "pass",
        script=_OFFSETS,
    ),
    Mutant(
        "offsets of a group in use expire",
        "groups.coordination:Coordination._expire",
        "is_used = group.members or name in self._memberships",
        "is_used = False",
        script=_OFFSETS,
    ),
    Mutant(
        "a snapshot of groups lacks the offsets",
        "raftlog.hosting.keyed_records:KeyedState.put",
        "if self._rows is not None:",
        "if self._rows is not None and 'Group' in type(key).__name__:",
        script=_OFFSETS,
    ),
)
