"""Converts groups to JSON, and parses the common parts of requests about groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from random import Random

import msgspec

from api.http import parameters
from api.http.requests import client_of
from api.http.routes import Call, Parameter
from groups.offsets import OffsetLag
from groups.records import by_topic
from groups.requests import Commit, GroupView
from raftlog import units
from raftlog.errors import InvalidRequest
from raftlog.records.tags import HasTags, TagSelection
from raftlog.wire import groups as wire
from raftlog.wire.limits import NAME_CHARACTERS_MAX, NAME_PATTERN
from raftlog.wire.tags import InvalidSelection, checked_selection

SESSION_MS = (100, 1_800_000)  # shortest, longest
REBALANCE_MS = (100, 3_600_000)
HEARTBEATS_PER_SESSION = 3
MEMBER_ID_BYTES = 16  # a member proves itself by its id
_NAME = re.compile(NAME_PATTERN)

GROUP = Parameter("group", "name of a group", {"type": "string", "maxLength": NAME_CHARACTERS_MAX}, "path")
MEMBER = Parameter(
    "member", "id of a member", {"type": "string", "maxLength": wire.MEMBER_ID_CHARACTERS_MAX}, "path"
)


def name_of(call: Call, field: str) -> str:
    """Return the name of a group or member in the path: ``field`` is ``group`` or ``member``. Raises
    ``InvalidRequest``.
    """
    name = call.match_info[field]
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{field} is {name[:64]!r}; send 1 to {NAME_CHARACTERS_MAX} of A-Z a-z 0-9 . _ -", field=field
        )
    return name


def new_member_id(rng: Random) -> str:
    """Create an id for a member that joins without an id."""
    return f"m-{rng.randbytes(MEMBER_ID_BYTES).hex()}"


def milliseconds(value: wire.Duration, field: str, bounds: tuple[int, int]) -> int:
    """Parse a time in a body: milliseconds, or a text such as ``10s``. Raises ``InvalidRequest``."""
    found = units.duration_ms(value) if isinstance(value, str) else value
    low, high = bounds
    if found is None or not low <= found <= high:
        raise InvalidRequest(
            f"{field} is {str(value)[:64]!r}; send a time from {parameters.duration_text(low)} to "
            f"{parameters.duration_text(high)}",
            field=field,
        )
    return found


async def commit_of(call: Call, group: str, wanted: wire.MemberOffsets) -> Commit:
    """Build the commit of the offsets in a body. Names mean the current topics, and removed partitions are
    left out.

    Raises ``TopicNotFound``, ``PartitionNotFound`` and ``InvalidRequest``.
    """
    if wanted.generation >= 0 and wanted.member_id is None:
        raise InvalidRequest("member_id is missing: a commit with a generation needs it", field="member_id")
    await call.services.topics.hear_of((each.topic, each.partition) for each in wanted.offsets)
    offsets = call.services.group_offsets
    newest = {
        (each.topic, each.partition): each for each in wanted.offsets
    }  # the last offset of each partition counts
    return Commit(
        group=group,
        offsets=tuple(
            offsets.placed(each.topic, each.partition, each.offset, each.leader_epoch, each.metadata)
            for each in newest.values()
            if not offsets.is_removed(each.topic, each.partition)
        ),
        member_id=wanted.member_id or "",
        generation=wanted.generation,
        client=client_of(call.request),
    )


def metadata_of(raw: msgspec.Raw | msgspec.UnsetType) -> bytes:
    """Return the metadata of a group member, unchanged. Raises ``InvalidRequest`` above the limit of
    bytes.
    """
    metadata = b"" if isinstance(raw, msgspec.UnsetType) else bytes(raw)
    if len(metadata) > wire.METADATA_BYTES_MAX:
        raise InvalidRequest(
            f"metadata: {len(metadata)} bytes; send at most {wire.METADATA_BYTES_MAX}", field="metadata"
        )
    return metadata


def selection_of(wanted: HasTags) -> TagSelection | None:
    """Return the selection of the records that a member reads or a queue delivers; an empty list selects
    nothing special and is ignored.
    """
    try:
        return checked_selection(wanted.tags or None, wanted.tags_all or None, wanted.tags_none or None)
    except InvalidSelection as error:
        raise InvalidRequest(str(error), field=error.field) from None


def partitions_of(given: Iterable[wire.TopicPartitions]) -> dict[str, tuple[int, ...]]:
    """Group partitions by topic. A partition that is named twice appears twice."""
    return by_topic((each.topic, number) for each in given for number in each.partitions)


def listed(partitions: Mapping[str, tuple[int, ...]]) -> list[wire.TopicPartitions]:
    """Return partitions, grouped by topic, as JSON."""
    return [wire.TopicPartitions(topic, list(numbers)) for topic, numbers in sorted(partitions.items())]


def group_body(
    name: str, view: GroupView, lags: Iterable[OffsetLag], coordinator: int | None
) -> wire.GroupDescription:
    """Return a group as JSON, with its members."""
    lag, lag_s = sums(lags)
    group = view.group
    members = [
        wire.GroupMember(
            member_id=member_id,
            topics=list(member.topics),
            assignment=listed(member.assignment),
            strategies=list(member.strategies),
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            metadata=msgspec.Raw(member.metadata or b"null"),
            client=member.client,
            instance_id=member.instance_id,
            tags=list(member.tags),
            tags_all=list(member.tags_all),
            tags_none=list(member.tags_none),
        )
        for member_id, member in sorted(group.members.items())
    ]
    return wire.GroupDescription(
        group=name,
        state=view.state,
        generation=group.generation,
        leader=group.leader,
        strategy=group.strategy,
        coordinator=coordinator,
        members=members,
        lag=lag,
        lag_seconds=lag_s,
    )


def sums(lags: Iterable[OffsetLag]) -> tuple[int | None, float | None]:
    """Return the sum of the lags of all partitions in records, and the longest lag in seconds."""
    known = list(lags)
    if any(each.lag is None for each in known):
        return None, None
    return sum(each.lag or 0 for each in known), max((each.lag_s or 0.0 for each in known), default=0.0)


def offset_body(lag: OffsetLag) -> wire.GroupOffset:
    """Return one committed offset and its lag as JSON."""
    committed = lag.committed
    return wire.GroupOffset(
        topic=lag.topic,
        partition=lag.partition,
        committed_offset=committed.offset,
        last_consumed_offset=committed.offset - 1,
        high_watermark=lag.high_watermark,
        lag=lag.lag,
        lag_seconds=lag.lag_s,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        timestamp=committed.committed_ms,
        generation=committed.generation,
        member_id=committed.member_id,
    )
