"""The state of all groups of one partition of ``__offsets``, derived from the partition's records.

Every replica applies the committed records; only the leader, as coordinator, decides which records are
written (``coordination``). Pure and deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from groups.records import (
    KINDS,
    CommittedOffset,
    Group,
    GroupKey,
    Key,
    OffsetKey,
    TransactionKey,
    TransactionOffsets,
    Value,
)
from groups.requests import TopicGroup
from queues.records import Job, JobKey, Queue, QueueKey
from raftlog.hosting.budget import Usage, share_owner
from raftlog.hosting.keyed_records import KeyedState
from raftlog.hosting.names import Names
from raftlog.records.tags import HasTags

ROW_BYTES: Final = 600  # approximate memory of a row on each replica, without its texts
TAG_BYTES: Final = 60  # approximate memory of a tag, without its text
Target = tuple[str, int]  # topic and partition
Slot = tuple[str, int]  # topic and slot of a job
Each = TypeVar("Each")
Kept = TypeVar("Kept")


class GroupsState(KeyedState[Key, Value]):
    """Groups and their offsets by group name. A group exists as long as it has a ``Group`` record.

    ``used`` counts the bytes of each group, ``used_by_client`` the bytes by the address that created the
    group. Jobs have a separate limit (``room``): ``reasons`` counts the bytes of the reasons of failures, by
    group.
    """

    def __init__(self) -> None:
        super().__init__(KINDS)
        self.clear()

    def clear(self) -> None:
        """Remove all groups."""
        self.groups: dict[str, Group] = {}
        self.names = Names()  # of the groups
        self.used, self.used_by_client = Usage(), Usage()
        self.reasons = Usage()
        self.offsets: dict[str, dict[Target, CommittedOffset]] = {}
        self.transactions: dict[str, dict[int, TransactionOffsets]] = {}  # by producer id
        self.pending: dict[
            str, dict[Target, int]
        ] = {}  # producer whose transaction has an offset of the target
        self.queues: dict[str, dict[Target, Queue]] = {}
        self.jobs: dict[str, dict[Slot, Job]] = {}

    def copy(self) -> GroupsState:
        """Copy the state, for independent changes. The copy makes no snapshots."""
        copied = GroupsState().without_snapshots()
        copied.groups, copied.names = dict(self.groups), self.names.copy()
        copied.reasons = self.reasons.copy()
        copied.used, copied.used_by_client = self.used.copy(), self.used_by_client.copy()
        copied.offsets = {group: dict(offsets) for group, offsets in self.offsets.items()}
        copied.transactions = {group: dict(producers) for group, producers in self.transactions.items()}
        copied.pending = {group: dict(targets) for group, targets in self.pending.items()}
        copied.queues = {group: dict(targets) for group, targets in self.queues.items()}
        copied.jobs = {group: dict(slots) for group, slots in self.jobs.items()}
        return copied

    def take(self, key: Key, value: Value | None) -> None:
        """Apply one record."""
        name = key.group
        growth, client = self.growth(key, value), self._client(name)
        self._take(key, value)
        if (creator := self._client(name)) != client:
            self.used_by_client.add(client, -self.used.of(name))
            self.used_by_client.add(creator, self.used.of(name))
        self.used.add(name, growth)
        self.used_by_client.add(creator, growth)

    def growth(self, key: Key, value: Value | None) -> int:
        """The bytes by which this record makes the state larger; negative if the state becomes smaller."""
        return _size_of(key, value) - _size_of(key, self._value(key))

    def _client(self, name: str) -> str:
        group = self.groups.get(name)
        return "" if group is None else share_owner(group.client)  # older versions wrote whole addresses

    def _value(self, key: Key) -> Value | None:
        match key:
            case GroupKey(name):
                return self.groups.get(name)
            case OffsetKey(name, topic, partition):
                return self.offsets.get(name, {}).get((topic, partition))
            case TransactionKey(name, producer_id):
                return self.transactions.get(name, {}).get(producer_id)
            case QueueKey(name, topic, partition):
                return self.queues.get(name, {}).get((topic, partition))
        return None  # jobs do not count here

    def _take(self, key: Key, value: Value | None) -> None:
        match key:
            case GroupKey(name):
                self.names.put(name, is_there=isinstance(value, Group))
                _set(self.groups, name, value if isinstance(value, Group) else None)
            case OffsetKey(name, topic, partition):
                committed = value if isinstance(value, CommittedOffset) else None
                _set_in(self.offsets, name, (topic, partition), committed)
            case TransactionKey(name, producer_id):
                added = value if isinstance(value, TransactionOffsets) else None
                before = self.transactions.get(name, {}).get(producer_id)
                pending = self.pending.get(name, {})
                for topic, partition, _ in before.offsets if before is not None else ():
                    if pending.get((topic, partition)) == producer_id:  # compaction may have removed an end
                        _set_in(self.pending, name, (topic, partition), None)
                for topic, partition, _ in added.offsets if added is not None else ():
                    _set_in(self.pending, name, (topic, partition), producer_id)
                _set_in(self.transactions, name, producer_id, added)
            case QueueKey(name, topic, partition):
                _set_in(self.queues, name, (topic, partition), value if isinstance(value, Queue) else None)
            case JobKey(name, topic, slot):
                before_job = self.jobs.get(name, {}).get((topic, slot))
                self.reasons.add(name, _reason_bytes(value) - _reason_bytes(before_job))
                _set_in(self.jobs, name, (topic, slot), value if isinstance(value, Job) else None)

    def of_topic(self, name: str, topic: str, topic_id: str) -> TopicGroup | None:
        """The members and offsets that a group has for a topic; None if it has neither."""
        group = self.groups.get(name)
        members = () if group is None else group.members.values()
        offsets, queues = self.offsets.get(name, {}), self.queues.get(name, {})
        partitions = {each for each, row in offsets.items() if (each[0], row.topic_id) == (topic, topic_id)}
        worked = {each for each, row in queues.items() if (each[0], row.topic_id) == (topic, topic_id)}
        found = TopicGroup(
            group=name,
            members=sum(topic in member.topics for member in members),
            partitions=len(partitions | worked),
            is_queue=bool(worked),
            open_jobs=sum(each == topic for each, _ in self.jobs.get(name, {})) if worked else 0,
        )
        return found if found.members or found.partitions else None

    def items(self) -> Iterator[tuple[Key, Value]]:
        """All keys and values, sorted by kind and key."""
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


def _size_of(key: Key, value: Value | None) -> int:
    """Approximate memory of a row in bytes: texts count twice, decoded and encoded."""
    match value:
        case CommittedOffset():
            return ROW_BYTES + 2 * (len(key.group) + _bytes_of(value.metadata) + len(value.member_id))
        case TransactionOffsets(offsets=offsets):
            texts = sum(len(topic) + _bytes_of(offset.metadata) for topic, _, offset in offsets)
            return ROW_BYTES * (1 + len(offsets)) + 2 * texts
        case Group():
            return ROW_BYTES + 2 * len(msgspec.msgpack.encode(value))
        case Queue():
            return ROW_BYTES + tags_bytes(value)
    return 0  # for jobs, and without a value


def tags_bytes(holder: HasTags) -> int:
    """Approximate memory of the tags of a queue in bytes."""
    names = (*holder.tags, *holder.tags_all, *holder.tags_none)
    return sum(TAG_BYTES + _bytes_of(tag) for tag in names) if names else 0


def _reason_bytes(value: Value | None) -> int:
    return 3 * _bytes_of(value.reason) if isinstance(value, Job) else 0


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


def _set(rows: dict[Each, Kept], key: Each, value: Kept | None) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


def _set_in(groups: dict[str, dict[Each, Kept]], name: str, key: Each, value: Kept | None) -> None:
    """Set or delete a row of a group. If the group has no rows left, delete its dict."""
    rows = groups.setdefault(name, {})
    _set(rows, key, value)
    if not rows:
        del groups[name]
