"""The state of all groups of one partition of ``__offsets``: what its records add up to.

Every replica applies the committed records; only the coordinator, the leader, decides which are written
(``coordination``). Pure and deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator

from groups.records import KINDS, CommittedOffset, Group, GroupKey, Key, OffsetKey, Value
from raftlog.hosting.keyed_records import KeyedState

Target = tuple[str, int]  # topic and partition


class GroupsState(KeyedState[Key, Value]):
    """Groups and committed offsets by name. A group is here as long as it has a record of its own."""

    def __init__(self) -> None:
        super().__init__(KINDS)
        self.clear()

    def clear(self) -> None:
        """No groups."""
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[Target, CommittedOffset]] = {}

    def copy(self) -> GroupsState:
        """The same values, to be changed apart. A copy takes no snapshots."""
        copied = GroupsState().without_snapshots()
        copied.groups = dict(self.groups)
        copied.offsets = {group: dict(offsets) for group, offsets in self.offsets.items()}
        return copied

    def take(self, key: Key, value: Value | None) -> None:
        """What one record says."""
        if isinstance(key, GroupKey):
            if isinstance(value, Group):
                self.groups[key.group] = value
            else:
                self.groups.pop(key.group, None)
            return
        offsets = self.offsets.setdefault(key.group, {})
        if isinstance(value, CommittedOffset):
            offsets[key.topic, key.partition] = value
        else:
            offsets.pop((key.topic, key.partition), None)
        if not offsets:
            del self.offsets[key.group]

    def items(self) -> Iterator[tuple[Key, Value]]:
        """All keys and values, in order."""
        for name in sorted(self.groups):
            yield GroupKey(name), self.groups[name]
        for name in sorted(self.offsets):
            for (topic, partition), committed in sorted(self.offsets[name].items()):
                yield OffsetKey(name, topic, partition), committed
