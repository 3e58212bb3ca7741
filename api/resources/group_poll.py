"""Handles polls: heartbeat, acknowledgement and fetch in one request, for clients without protocol state.

Decides: when a poll joins by itself, and from where it reads. A position comes from the request or from the
committed offsets, so a poll whose response was lost can be repeated without skipping a record. Leaves to
others: members and offsets (``groups``), records (``fetch``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

import msgspec
from aiohttp import web
from msgspec.structs import asdict

from api.http.bodies import read_json
from api.http.disconnects import has_client
from api.http.requests import client_of
from api.http.routes import Call, Route, json_response
from api.resources.group_bodies import GROUP, MEMBER, SESSION_MS, listed, milliseconds, name_of, selection_of
from api.resources.group_members import asked
from api.resources.json_answers import View
from api.resources.json_values import FORMATS
from api.resources.reading import first_page, read_at_once
from groups.requests import (
    Beat,
    Commit,
    GroupView,
    Heartbeat,
    Join,
    Joined,
    ReadGroup,
    Reply,
    Sync,
    Synced,
)
from partitions.values import FetchRequest, FetchResult, Start
from raftlog import errors
from raftlog.errors import InvalidRequest, OffsetOutOfRange
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.records.tags import TagSelection, tag_fields
from raftlog.types import Offset, TopicPartition
from raftlog.wire import bodies, members
from raftlog.wire import groups as wire

Partitions = Mapping[str, tuple[int, ...]]
MUST_JOIN = (errors.GroupNotFound, errors.MemberNotFound, errors.StaleGeneration, errors.RebalanceInProgress)
FENCED = (*MUST_JOIN, errors.InvalidRequest)
BYTES_PER_PARTITION = 1 << 20
BYTES_MAX = 4 << 20  # bytes of one response; one more partition may exceed it
JOIN_MS_MIN = 1_000  # minimum also for a poll that does not wait
_SIZE_BYTES = attrgetter("size_bytes")


@dataclass(slots=True)
class _Poll:
    """One poll request and its progress. ``ends_at`` is a time of the event loop."""

    call: Call
    group: str
    member: str
    wanted: wire.PollGroup
    ends_at: float
    generation: int
    ack_error: str = ""  # code of the error, if the acknowledgement was refused
    assignment: Partitions = field(default_factory=dict)
    selection: TagSelection | None = None  # tags that the member reads
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    deleted: list[wire.DeletedRange] = field(default_factory=list)

    def left_ms(self) -> int:
        """Return the remaining time of the poll, in milliseconds."""
        return ms_until(self.ends_at, at_least=0)

    def given(self) -> dict[TopicPartition, int]:
        """Return the start offsets that the request gives: after acknowledged records, or its positions.

        An acknowledgement that was refused, or that is of an earlier generation, gives no offsets: the member
        starts at the committed offsets, because other members may have read further.
        """
        is_acknowledged = not self.ack_error and self.generation == self.wanted.generation
        places = (*(self.wanted.ack if is_acknowledged else ()), *self.wanted.positions)
        return {TopicPartition(each.topic, each.partition): each.offset for each in places}

    def is_given(self, target: TopicPartition) -> bool:
        """Return whether the request gives a position in this partition."""
        return any(TopicPartition(each.topic, each.partition) == target for each in self.wanted.positions)


async def poll(call: Call) -> web.StreamResponse:
    """Commit acknowledged offsets, join the group if needed, and read records."""
    wanted = await read_json(call, wire.PollGroup)
    limits = call.services.limits
    wait_ms = min(milliseconds(wanted.wait, "wait", (0, limits.wait_ms_max)), limits.wait_ms_max)
    ends_at = deadline_in(wait_ms)
    state = _Poll(call, name_of(call, "group"), name_of(call, "member"), wanted, ends_at, wanted.generation)
    state.ack_error = await _acknowledge(state)
    records: list[bodies.Message] = []
    is_member = await _synced(state) or await _joined(state)
    while is_member:
        await call.services.topics.hear_of(
            (topic, max(some, default=0)) for topic, some in state.assignment.items()
        )
        await _place(state)
        records = await _records(state)
        if records or not state.left_ms():
            break
        is_member = not await _waited(state) or await _joined(state)
    return json_response(
        wire.PolledGroup(
            action="continue" if is_member else "rejoin",
            generation=state.generation,
            assignment=listed(state.assignment) if is_member else [],
            records=records,
            positions=[
                wire.Place(target.topic, target.partition, offset)
                for target, offset in sorted(state.positions.items())
            ],
            ack_error=state.ack_error,
            deleted=state.deleted,
        )
    )


# Membership.


async def _acknowledge(state: _Poll) -> str:
    """Commit the offsets that the client has processed; return the error's code if the member is fenced."""
    if not state.wanted.ack:
        return ""
    offsets = state.call.services.group_offsets
    newest = {
        (each.topic, each.partition): each for each in state.wanted.ack
    }  # the last offset of each partition counts
    await state.call.services.topics.hear_of(newest)
    request = Commit(
        group=state.group,
        offsets=tuple(
            offsets.placed(each.topic, each.partition, each.offset, -1, "")
            for each in newest.values()
            if not offsets.is_removed(each.topic, each.partition)
        ),
        member_id=state.member,
        generation=state.generation,
        client=client_of(state.call.request),
    )
    try:
        if request.offsets:
            await offsets.commit(request, timeout_ms=state.call.services.limits.control_timeout_ms)
    except FENCED as refusal:
        return refusal.code
    return ""


async def _synced(state: _Poll) -> bool:
    """Return whether the member has its partitions in this generation, for which the broker makes the
    assignment.
    """
    request = Sync(group=state.group, member_id=state.member, generation=state.generation, is_auto=True)
    try:
        synced = await asked(state.call, request, Synced, max(state.left_ms(), JOIN_MS_MIN))
    except MUST_JOIN:
        return False
    state.assignment, state.selection = synced.assignment, TagSelection.in_fields(synced)
    state.positions.clear()
    return True


async def _joined(state: _Poll) -> bool:
    """Return whether the member has joined and has its partitions; False while the rebalance is still
    running.
    """
    request = await _join_request(state)
    try:
        joined = await asked(state.call, request, Joined, max(state.left_ms(), JOIN_MS_MIN))
    except errors.RebalanceInProgress:
        return False
    state.generation = joined.generation
    return await _synced(state)


async def _join_request(state: _Poll) -> Join:
    """Build the join of a member, with the subscription of the request; if there is none, with the known
    subscription.
    """
    wanted = state.wanted
    request = Join(
        group=state.group,
        member_id=state.member,
        topics=tuple(dict.fromkeys(wanted.topics or ())),
        session_timeout_ms=milliseconds(wanted.session_timeout, "session_timeout", SESSION_MS),
        client=state.call.request.remote or "",
        generation=state.generation,
        **tag_fields(selection_of(wanted)),
    )
    if wanted.topics is not None:
        return request
    limits = state.call.services.limits
    with contextlib.suppress(errors.GroupNotFound):
        view = await state.call.services.groups.ask(
            ReadGroup(group=state.group), timeout_ms=limits.control_timeout_ms
        )
        assert isinstance(view, GroupView)
        known = view.group.members.get(state.member)
        if known is not None:
            return msgspec.structs.replace(
                request,
                topics=known.topics,
                strategies=known.strategies,
                session_timeout_ms=known.session_timeout_ms,
                rebalance_timeout_ms=known.rebalance_timeout_ms,
                metadata=known.metadata,
                instance_id=known.instance_id,
                tags=known.tags,
                tags_all=known.tags_all,
                tags_none=known.tags_none,
            )
    raise InvalidRequest(
        f"topics: {state.member!r} is not a member of group {state.group}; name the topics to join with",
        field="topics",
    )


# Records.


async def _place(state: _Poll) -> None:
    """Find the positions of the assigned partitions whose position is not known yet."""
    is_removed = state.call.services.group_offsets.is_removed
    given, missing = state.given(), list[TopicPartition]()
    for topic, some in state.assignment.items():
        for number in some:
            target = TopicPartition(topic, number)
            if target in state.positions or is_removed(topic, number):
                continue
            if target in given:
                state.positions[target] = given[target]
            else:
                missing.append(target)
    if not missing:
        return
    offsets = state.call.services.group_offsets
    limits = state.call.services.limits
    committed = await offsets.positions(
        state.group,
        [(target.topic, target.partition) for target in missing],
        timeout_ms=limits.control_timeout_ms,
    )
    for target in missing:
        known = committed.get((target.topic, target.partition))
        with contextlib.suppress(
            errors.PartitionNotFound
        ):  # the partition was removed; the group is about to rebalance
            state.positions[target] = await _reset(state, target) if known is None else known


async def _reset(state: _Poll, target: TopicPartition) -> int:
    """Return the start offset of a partition without a committed offset.

    If the start is the current end, commits it first.
    """
    if state.wanted.reset == "fail":
        raise OffsetOutOfRange(
            f"reset: group {state.group} has no committed offset of {target}, and reset is 'fail'; commit an "
            "offset, or choose 'earliest' or 'latest'",
            field="reset",
        )
    position = Start.EARLIEST if state.wanted.reset == "earliest" else Start.LATEST
    offset, _ = await state.call.services.gateway.offset_at(target, position)
    if position is Start.LATEST:
        offsets = state.call.services.group_offsets
        request = Commit(
            group=state.group,
            offsets=(offsets.placed(target.topic, target.partition, offset, -1, ""),),
            member_id=state.member,
            generation=state.generation,
            client=client_of(state.call.request),
        )
        with contextlib.suppress(*FENCED):
            await offsets.commit(request, timeout_ms=state.call.services.limits.control_timeout_ms)
    return offset


async def _records(state: _Poll) -> list[bodies.Message]:
    """Return records of all assigned partitions in turn, beginning with another partition in each poll.

    An archive that does not answer is an error only if no partition has records.
    """
    call, found = state.call, list[bodies.Message]()
    unavailable: errors.ArchiveUnavailable | None = None
    size_bytes = 0
    targets = sorted(state.positions)
    first = call.services.rng.randrange(len(targets)) if targets else 0
    with call.admission.answers.turn(partial(has_client, call.request)) as turn:
        for target in targets[first:] + targets[:first]:
            limit = state.wanted.limit - len(found)
            if limit <= 0 or size_bytes >= BYTES_MAX:
                break
            position = Offset(state.positions[target])
            request = FetchRequest(
                position=position, bytes_max=BYTES_PER_PARTITION, **tag_fields(state.selection)
            )
            view = View(target=target, format=FORMATS[0], limit=limit, wanted=state.selection)
            try:
                _, page = await first_page(partial(read_at_once, call, target), view, request, turn)
            except OffsetOutOfRange as error:
                _pass_deleted(state, target, error)
                continue
            except errors.ArchiveUnavailable as error:
                unavailable = error
                continue
            except errors.PartitionNotFound:
                del state.positions[target]  # the partition was removed; the group is about to rebalance
                continue
            state.positions[target] = page.next_offset
            size_bytes += sum(map(_SIZE_BYTES, page.records))
            found += [
                bodies.Message(**asdict(record), topic=target.topic, partition=target.partition)
                for record in page.records
            ]
    if unavailable is not None and not found:
        raise unavailable
    return found


def _pass_deleted(state: _Poll, target: TopicPartition, error: OffsetOutOfRange) -> None:
    """Continue at the nearest offset of the log, because retention or a recovery has removed records.

    Raises the error if ``reset`` is "fail". Raises it also if the request gives a position above the end,
    which is an error of the client.
    """
    offset = state.positions[target]
    nearest = error.nearest(offset)
    if state.wanted.reset == "fail" or (state.is_given(target) and nearest < offset):
        raise error
    state.positions[target] = nearest
    if nearest > offset:
        state.deleted.append(wire.DeletedRange(target.topic, target.partition, offset, nearest))


async def _waited(state: _Poll) -> bool:
    """Wait for records, a rebalance or the end of the wait time; return whether the member must join
    again.
    """
    call, wait_ms = state.call, state.left_ms()
    fetches = [
        call.services.gateway.fetch(
            target,
            FetchRequest(
                position=Offset(offset), bytes_max=1, wait_ms=wait_ms, **tag_fields(state.selection)
            ),
        )
        for target, offset in state.positions.items()
    ]
    request = Heartbeat(
        group=state.group, member_id=state.member, generation=state.generation, wait_ms=wait_ms
    )
    beating = call.services.groups.ask(request, timeout_ms=wait_ms + call.services.limits.control_timeout_ms)
    with call.admission.parked.hold(client_of(call.request), 1 + len(fetches)):
        beat = await call.disconnect_watcher.park(call.request, _first(beating, fetches))
    return isinstance(beat, Beat) and beat.must_rejoin


async def _first(
    beating: Coroutine[None, None, Reply], fetches: Sequence[Coroutine[None, None, FetchResult]]
) -> Reply | None:
    """Return the response to the heartbeat if it comes before the responses to the fetches; otherwise
    None.
    """
    heartbeat = asyncio.ensure_future(beating)
    tasks: set[asyncio.Task[Reply] | asyncio.Task[FetchResult]] = {heartbeat}
    tasks |= {asyncio.ensure_future(fetch) for fetch in fetches}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return await heartbeat if heartbeat.done() else None
    except MUST_JOIN:
        return Beat(must_rejoin=True)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


ROUTES = (Route(members.POLL, poll, (GROUP, MEMBER)),)
