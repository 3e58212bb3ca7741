"""Checks the committed records of one group, and the answers to its members."""

from __future__ import annotations

from groups.records import CommittedOffset, Group, GroupKey, Key, OffsetKey, Value
from groups.requests import Commit, Joined, Request, Synced
from groups.state import GroupsState
from raftlog.errors import RaftlogError
from verification.simulator.refusals import Attempts
from verification.simulator.result import Broken

ONE_OWNER = "C1 one owner of a partition in a generation"
RISES = "C2 generations rise by one"
FENCED = "C3 only the owner commits, in the current generation"
NEVER_FALLS = "C4 an offset never falls within a generation"
KEPT = "C5 acknowledged offsets are kept"
REFUSED = "C5 a commit that is refused as not done is never visible"
TOLD = "C6 members are told what is committed"
SETTLES = "C7 a group without faults settles"

Target = tuple[str, int]
Position = tuple[OffsetKey, str, int, int]
"""A commit of an offset: the offset's key, the member and its generation, and the offset."""


class GroupChecker:
    """Checks every committed record of the group, in order, and every answer to a member."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.state = GroupsState()
        self._told: dict[int, dict[str, dict[Target, None]]] = {}  # by generation and member
        self._members: dict[int, set[str]] = {}  # of each generation that was committed
        self._topics: dict[tuple[int, str], tuple[str, ...]] = {}
        self._plans: dict[tuple[int, str], dict[str, tuple[int, ...]]] = {}
        self._added: set[Target] = set()  # partitions that are new in the newest generation
        self._commits: Attempts[Position] = Attempts(REFUSED)

    @property
    def group(self) -> Group:
        """The committed state of the group."""
        return self.state.groups.get(self._group) or Group()

    def committed(self, key: Key, value: Value | None) -> None:
        """Process one record, as every replica applies it."""
        before, is_own = self.group, key.group == self._group
        if is_own and isinstance(key, GroupKey) and isinstance(value, Group):
            self._check_group(before, value)
        elif is_own and isinstance(key, OffsetKey) and isinstance(value, CommittedOffset):
            self._check_offset(before, key, value)
        self.state.put(key, value)
        if isinstance(key, OffsetKey) and isinstance(value, CommittedOffset):
            self._check_refused(key, value)

    def _check_refused(self, key: OffsetKey, value: CommittedOffset) -> None:
        is_start = key.group == self._group and not value.member_id  # of a partition that was added
        if not is_start:
            self._commits.seen((key, value.member_id, value.generation, value.offset))

    def sends(self, request: Request) -> None:
        """Note a request before it is first sent."""
        for position in _positions(request):
            self._commits.sends(position)

    def refused(self, request: Request, error: RaftlogError) -> None:
        """Note a request that was answered with an error."""
        for position in _positions(request):
            self._commits.refused(position, error)

    def joined(self, member: str, reply: Joined) -> None:
        """Check the generation in the answer to a member."""
        if member not in self._members.get(reply.generation, ()):
            raise Broken(TOLD, f"{member} gets generation {reply.generation}, but is not a member of it")

    def subscribed(self, member: str, generation: int, topics: tuple[str, ...]) -> None:
        """Note the topics to which a member subscribed when it joined, once the join is answered."""
        written = self._topics.get((generation, member))
        if written != topics:
            raise Broken(TOLD, f"{member} joins {generation} with {topics}; the log has {written}")

    def synced(self, member: str, reply: Synced) -> None:
        """Check the partitions in the answer to a member."""
        plan = self._plans.get((reply.generation, member))
        if plan is None or dict(reply.assignment) != plan:
            raise Broken(TOLD, f"{member} gets {reply}, its plan is {plan}")

    def acknowledged(self, member: str, generation: int, target: Target, offset: int) -> None:
        """Check that an acknowledged commit of an offset is committed."""
        found = self.state.offsets.get(self._group, {}).get(target)
        if found is None or (found.generation == generation and found.offset < offset):
            raise Broken(KEPT, f"{member} committed {offset} in {generation}; the log has {found}")

    def _check_group(self, before: Group, after: Group) -> None:
        if after.generation not in (before.generation, before.generation + 1):
            raise Broken(RISES, f"{before.generation} is followed by {after.generation}")
        if after.generation == before.generation and not set(after.members) <= set(before.members) | {
            member_id
            for member_id, member in after.members.items()
            if any(old.instance_id == member.instance_id != "" for old in before.members.values())
        }:
            raise Broken(RISES, f"generation {after.generation} has new members: {sorted(after.members)}")
        if after.generation != before.generation:
            self._added = {
                (topic, number)
                for topic, count in after.partition_counts.items()
                for number in range(before.partition_counts.get(topic, count), count)
            }
        self._members.setdefault(after.generation, set()).update(after.members)
        self._topics |= {(after.generation, each): member.topics for each, member in after.members.items()}
        if not after.has_plan:
            return
        owners: dict[Target, str] = {}
        for member_id, member in after.members.items():
            for topic, numbers in member.assignment.items():
                for number in numbers:
                    if (topic, number) in owners:
                        raise Broken(ONE_OWNER, f"{topic}/{number}: {owners[topic, number]} and {member_id}")
                    owners[topic, number] = member_id
            self._plans[after.generation, member_id] = dict(member.assignment)
        if before.has_plan and before.generation == after.generation:
            self._check_same_owners(before, after)

    def _check_same_owners(self, before: Group, after: Group) -> None:
        """Check that the plan of a generation does not change, except when members leave or static
        members are replaced.
        """
        plans = [sorted(member.assignment.items()) for member in before.members.values()]
        for member_id, member in after.members.items():
            if sorted(member.assignment.items()) not in plans:
                raise Broken(ONE_OWNER, f"the plan of {after.generation} changes for {member_id}")

    def _check_offset(self, group: Group, key: OffsetKey, value: CommittedOffset) -> None:
        target = key.topic, key.partition
        member = group.members.get(value.member_id)
        is_owner = member is not None and key.partition in member.assignment.get(key.topic, ())
        known = self.state.offsets.get(self._group, {}).get(target)
        if not value.member_id and value.offset == 0 and known is None and target in self._added:
            return  # the start of a partition that is new in this generation
        if value.generation != group.generation or not group.has_plan or not is_owner:
            raise Broken(FENCED, f"{target} is committed by {value.member_id} in {value.generation}: {group}")
        if known is not None and known.generation == value.generation and known.offset > value.offset:
            raise Broken(NEVER_FALLS, f"{target}: {known.offset}, then {value.offset}")

    def settled(self, living: set[str], targets: set[Target]) -> None:
        """Check at the end that all running members belong to the group, and that together they own all
        partitions.
        """
        group = self.group
        owned = {
            (topic, number)
            for member in group.members.values()
            for topic, numbers in member.assignment.items()
            for number in numbers
        }
        if set(group.members) != living or (living and owned != targets):
            raise Broken(
                SETTLES, f"members {sorted(group.members)} own {sorted(owned)}; {sorted(living)} live"
            )


def _positions(request: Request) -> list[Position]:
    if not isinstance(request, Commit):
        return []
    return [
        (
            OffsetKey(request.group, each.topic, each.partition),
            request.member_id,
            request.generation,
            each.offset,
        )
        for each in request.offsets
    ]
