"""Rows of commits: committed offsets, and offsets that wait for the end of a transaction. Pure.

The offsets of a transaction are in one row per producer until the transaction ends. Then the offsets are
written as committed offsets or dropped, and the row is deleted.

Decides: which offsets count, and which commits are refused while a transaction is open. Leaves to others: who
may commit (``coordination``), that a transaction is open (``unconfirmed``), its outcome (``transactions``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from groups.records import CommittedOffset, OffsetKey, TransactionKey, TransactionOffsets
from groups.requests import AddOffsets, Commit, EndOffsets, OffsetCommit, PendingOffset
from groups.state import GroupsState, Target
from raftlog.errors import InvalidRequest, OffsetsPending, ProducerFenced, RaftlogError, TransactionAborted
from raftlog.hosting.known_topics import KnownTopics
from raftlog.wire.groups import TRANSACTION_OFFSETS_MAX

PENDING_MAX: Final = TRANSACTION_OFFSETS_MAX  # so that one batch can have all of them
PENDING_BYTES_MAX: Final = 4 << 20
RETRY_AFTER_MS: Final = 100

Row = tuple[OffsetKey | TransactionKey, CommittedOffset | TransactionOffsets | None]


def committed_rows(state: GroupsState, ask: Commit, wall_ms: int) -> list[Row]:
    """The rows of a commit without a transaction. If a partition is listed twice, its last offset counts.

    Raises ``OffsetsPending``.
    """
    check_free(state, ask.group, (_target(commit) for commit in ask.offsets))
    known = state.offsets.get(ask.group, {})
    newest = {
        OffsetKey(ask.group, commit.topic, commit.partition): _committed(ask, commit, wall_ms)
        for commit in ask.offsets
        if ask.may_rewind or not _is_late(ask, commit, known)
    }
    return [*newest.items()]


def added_row(state: GroupsState, ask: AddOffsets, wall_ms: int) -> Row:
    """The row of a transaction's waiting offsets after the offsets of ``ask`` are added.

    Raises ``ProducerFenced`` if a later transaction has begun, ``OffsetsPending`` and ``InvalidRequest``.
    """
    before = state.transactions.get(ask.group, {}).get(ask.producer_id)
    if before is not None and ask.epoch < before.epoch:
        raise has_ended(ask, before.epoch)
    check_free(state, ask.group, (_target(commit) for commit in ask.offsets), producer_id=ask.producer_id)
    known = state.offsets.get(ask.group, {})
    kept: dict[Target, CommittedOffset] = {}
    if before is not None and before.epoch == ask.epoch:
        kept = {(topic, partition): offset for topic, partition, offset in before.offsets}
    for commit in ask.offsets:
        target = _target(commit)
        is_late = _is_below(commit, kept[target]) if target in kept else _is_late(ask, commit, known)
        if not is_late:
            kept[target] = _committed(ask, commit, wall_ms)
    row = TransactionOffsets(
        epoch=ask.epoch,
        transaction=ask.transaction,
        offsets=tuple((*target, kept[target]) for target in sorted(kept)),
        changed_ms=wall_ms,
    )
    _check_size(row)
    return TransactionKey(ask.group, ask.producer_id), row


def has_kept(state: GroupsState, ask: AddOffsets) -> bool:
    """Whether the group already stores waiting offsets of the transaction of ``ask``."""
    before = state.transactions.get(ask.group, {}).get(ask.producer_id)
    return before is not None and before.epoch == ask.epoch and bool(before.offsets)


def why_ended(ask: AddOffsets, end: EndOffsets) -> RaftlogError:
    """The error for offsets that arrive after the end of their transaction, or of a later transaction."""
    if ask.epoch == end.epoch and not end.is_commit:
        return TransactionAborted(
            f"transaction {ask.transaction} was aborted, so group {ask.group} refuses its offsets"
        )
    return has_ended(ask, end.epoch + 1)


def has_ended(ask: AddOffsets, current_epoch: int) -> ProducerFenced:
    """The error for offsets of a transaction that is not the newest of its producer."""
    return ProducerFenced(
        f"transaction {ask.transaction} has ended, so group {ask.group} refuses further offsets of it",
        current_epoch=current_epoch,
    )


def ended_rows(state: GroupsState, ask: EndOffsets, wall_ms: int) -> list[Row]:
    """The rows that the end of a transaction writes; empty if a later transaction of its producer has begun.

    The deletion is written even if no offset was added: the write proves leadership, since another leader may
    have the offsets.
    """
    before = state.transactions.get(ask.group, {}).get(ask.producer_id)
    if before is not None and ask.epoch < before.epoch:
        return []
    rows: list[Row] = []
    if before is not None and before.epoch == ask.epoch and ask.is_commit:
        rows += [
            (OffsetKey(ask.group, topic, partition), msgspec.structs.replace(offset, committed_ms=wall_ms))
            for topic, partition, offset in before.offsets
        ]
    return [*rows, (TransactionKey(ask.group, ask.producer_id), None)]


def starts_of_added(
    group: str,
    before: Mapping[str, int],
    now: Mapping[str, int],
    known: Mapping[Target, CommittedOffset],
    consumed: Mapping[str, str],
    wall_ms: int,
    beginnings: Mapping[tuple[str, int], int],
) -> list[Row]:
    """The rows that let a group read partitions added to a consumed topic from their start.

    ``consumed`` is the result of ``consumed_topics`` for ``known``. An offset below a partition's beginning
    belongs to a removed partition with an equal number. A group without a committed offset of a topic does
    not consume the topic.
    """
    rows: list[Row] = []
    for topic, topic_id in sorted(consumed.items()):
        for partition in range(before.get(topic, now.get(topic, 0)), now.get(topic, 0)):
            start, committed = beginnings.get((topic_id, partition), 0), known.get((topic, partition))
            if committed is None or committed.topic_id != topic_id or committed.offset < start:
                row = CommittedOffset(offset=start, topic_id=topic_id, committed_ms=wall_ms)
                rows.append((OffsetKey(group, topic, partition), row))
    return rows


def consumed_topics(known: Mapping[Target, CommittedOffset], topic_ids: Mapping[str, str]) -> dict[str, str]:
    """The topics in which a group has an offset, by name with their ids.

    ``topic_ids`` are the current ids.
    """
    newest: dict[str, CommittedOffset] = {}
    for (topic, _), committed in known.items():
        is_current = topic_ids.get(topic, committed.topic_id) == committed.topic_id
        if is_current and (topic not in newest or newest[topic].committed_ms < committed.committed_ms):
            newest[topic] = committed
    return {topic: committed.topic_id for topic, committed in newest.items()}


def fences(state: GroupsState) -> Iterator[TransactionKey]:
    """The keys of rows without offsets, which earlier releases kept after each end of a transaction."""
    for group, producers in state.transactions.items():
        for producer_id, row in producers.items():
            if not row.offsets:
                yield TransactionKey(group, producer_id)


def offsets_of_removed(state: GroupsState, group: str, topics: KnownTopics) -> list[OffsetKey]:
    """The keys of a group's offsets in partitions that were removed and not added again."""
    return [
        OffsetKey(group, topic, partition)
        for (topic, partition), committed in state.offsets.get(group, {}).items()
        if partition >= topics.counts.get(topic, partition + 1)
        and committed.offset < topics.beginnings.get((committed.topic_id, partition), 0)
    ]


def check_free(
    state: GroupsState, group: str, targets: Iterable[Target], *, producer_id: int | None = None
) -> None:
    """Raise ``OffsetsPending`` if a transaction of another producer has a waiting offset of one of
    ``targets``.
    """
    pending = state.pending.get(group, {})
    for topic, partition in targets:
        owner = pending.get((topic, partition))
        if owner is not None and owner != producer_id:
            raise still_pending(topic, partition, state.transactions[group][owner].transaction)


def still_pending(topic: str, partition: int, transaction: str) -> OffsetsPending:
    """The error for a partition that has an offset in an open transaction."""
    return OffsetsPending(
        f"offsets: the open transaction {transaction} has an offset of {topic}/{partition}; retry after the "
        "transaction, or abort it",
        transaction=transaction,
        retry_after_ms=RETRY_AFTER_MS,
    )


def pending_offsets(transactions: Mapping[int, TransactionOffsets]) -> tuple[PendingOffset, ...]:
    """The waiting offsets of one group, sorted by topic and partition."""
    found = [
        PendingOffset(topic=topic, partition=partition, offset=offset, transaction=row.transaction)
        for row in transactions.values()
        for topic, partition, offset in row.offsets
    ]
    return tuple(sorted(found, key=lambda each: (each.topic, each.partition)))


def _target(commit: OffsetCommit) -> Target:
    return commit.topic, commit.partition


def _is_late(ask: Commit | AddOffsets, commit: OffsetCommit, known: Mapping[Target, CommittedOffset]) -> bool:
    """Whether a commit is below a commit of an equal generation that arrived earlier."""
    before = known.get(_target(commit))
    if before is None or ask.generation < 0 or before.generation != ask.generation:
        return False
    return _is_below(commit, before)


def _is_below(commit: OffsetCommit, before: CommittedOffset) -> bool:
    return before.topic_id == commit.topic_id and commit.offset < before.offset


def _committed(ask: Commit | AddOffsets, commit: OffsetCommit, wall_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=commit.offset,
        topic_id=commit.topic_id,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        committed_ms=wall_ms,
        generation=ask.generation,
        member_id=ask.member_id,
    )


def _check_size(row: TransactionOffsets) -> None:
    if len(row.offsets) > PENDING_MAX:
        raise InvalidRequest(
            f"offsets: a transaction has at most {PENDING_MAX} offsets of a group; send fewer partitions",
            field="offsets",
        )
    size = sum(len(topic) + 4 * len(offset.metadata) + 300 for topic, _, offset in row.offsets)
    if size > PENDING_BYTES_MAX:
        raise InvalidRequest(
            f"offsets: the offsets of a group in a transaction exceed {PENDING_BYTES_MAX} bytes; send less "
            "metadata",
            field="offsets",
        )
