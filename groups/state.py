"""The state of all groups of one partition of ``__offsets``: what its records add up to.

Every replica applies the committed records; only the coordinator, the leader, decides which are written
(``coordination``). Pure and deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from groups.records import (
    KINDS,
    CommittedOffset,
    Group,
    GroupKey,
    Job,
    JobKey,
    Key,
    OffsetKey,
    Queue,
    QueueKey,
    TransactionKey,
    TransactionOffsets,
    Value,
)
from raftlog.hosting.keyed_records import KeyedState

Target = tuple[str, int]  # topic and partition
Slot = tuple[str, int]  # topic and slot of a job
Each = TypeVar("Each")
Kept = TypeVar("Kept")


class GroupsState(KeyedState[Key, Value]):
    """Groups and their offsets by name. A group is here as long as it has a record of its own."""

    def __init__(self) -> None:
        super().__init__(KINDS)
        self.clear()

    def clear(self) -> None:
        """No groups."""
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[Target, CommittedOffset]] = {}
        self.transactions: dict[str, dict[int, TransactionOffsets]] = {}  # by producer id
        self.pending: dict[str, dict[Target, int]] = {}  # the producer whose transaction has an offset there
        self.queues: dict[str, dict[Target, Queue]] = {}
        self.jobs: dict[str, dict[Slot, Job]] = {}

    def copy(self) -> GroupsState:
        """The same values, to be changed apart. A copy takes no snapshots."""
        copied = GroupsState().without_snapshots()
        copied.groups = dict(self.groups)
        copied.offsets = {group: dict(offsets) for group, offsets in self.offsets.items()}
        copied.transactions = {group: dict(producers) for group, producers in self.transactions.items()}
        copied.pending = {group: dict(targets) for group, targets in self.pending.items()}
        copied.queues = {group: dict(targets) for group, targets in self.queues.items()}
        copied.jobs = {group: dict(slots) for group, slots in self.jobs.items()}
        return copied

    def take(self, key: Key, value: Value | None) -> None:
        """What one record says."""
        match key:
            case GroupKey(name):
                _set(self.groups, name, value if isinstance(value, Group) else None)
            case OffsetKey(name, topic, partition):
                committed = value if isinstance(value, CommittedOffset) else None
                _set_in(self.offsets, name, (topic, partition), committed)
            case TransactionKey(name, producer_id):
                added = value if isinstance(value, TransactionOffsets) else None
                before = self.transactions.get(name, {}).get(producer_id)
                pending = self.pending.get(name, {})
                for topic, partition, _ in before.offsets if before is not None else ():
                    if pending.get((topic, partition)) == producer_id:  # compaction may have left out an end
                        _set_in(self.pending, name, (topic, partition), None)
                for topic, partition, _ in added.offsets if added is not None else ():
                    _set_in(self.pending, name, (topic, partition), producer_id)
                _set_in(self.transactions, name, producer_id, added)
            case QueueKey(name, topic, partition):
                _set_in(self.queues, name, (topic, partition), value if isinstance(value, Queue) else None)
            case JobKey(name, topic, slot):
                _set_in(self.jobs, name, (topic, slot), value if isinstance(value, Job) else None)

    def items(self) -> Iterator[tuple[Key, Value]]:
        """All keys and values, in order."""
        for name in sorted(self.groups):
            yield GroupKey(name), self.groups[name]
        for name in sorted(self.offsets):
            for (topic, partition), committed in sorted(self.offsets[name].items()):
                yield OffsetKey(name, topic, partition), committed
        for name in sorted(self.transactions):
            for producer_id, added in sorted(self.transactions[name].items()):
                yield TransactionKey(name, producer_id), added
        for name in sorted(self.queues):
            for (topic, partition), queue in sorted(self.queues[name].items()):
                yield QueueKey(name, topic, partition), queue
        for name in sorted(self.jobs):
            for (topic, slot), job in sorted(self.jobs[name].items()):
                yield JobKey(name, topic, slot), job


def _set(rows: dict[Each, Kept], key: Each, value: Kept | None) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


def _set_in(groups: dict[str, dict[Each, Kept]], name: str, key: Each, value: Kept | None) -> None:
    """A group without rows has no dict."""
    rows = groups.setdefault(name, {})
    _set(rows, key, value)
    if not rows:
        del groups[name]
