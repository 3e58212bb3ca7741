"""Handles groups and their committed offsets: lists, describes, commits, resets and deletes them.

Leaves to others: who may commit (``groups``), members (``group_members``, ``group_poll``).
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from api.http import pagination, parameters
from api.http.bodies import read_json
from api.http.requests import client_of
from api.http.routes import (
    LIMIT,
    PAGE_TOKEN,
    Call,
    Parameter,
    Route,
    json_response,
)
from api.resources.group_bodies import GROUP, commit_of, group_body, name_of, offset_body, partitions_of
from groups.requests import Commit, DeleteGroup, DeleteOffsets, GroupView
from raftlog import errors
from raftlog.errors import InvalidRequest
from raftlog.types import TopicPartition
from raftlog.wire import groups as wire

Target = tuple[str, int]


async def list_groups(call: Call) -> web.StreamResponse:
    """List all groups by name."""
    service = call.services.groups
    asked = pagination.asked_page(call.query, pagination.NAMES)
    found = [(each.group, each) for each in await service.list_groups(*asked)]
    shown, token = pagination.page(found, call.query, pagination.NAMES)
    rows = [
        wire.GroupSummary(each.group, each.state, each.members, _coordinator(call, each.group))
        for each in shown
    ]
    return json_response(wire.GroupList(rows, token))


async def get_group(call: Call) -> web.StreamResponse:
    """Describe one group with its members and its lag."""
    name = name_of(call, "group")
    view = await _view(call, name)
    lags = await call.services.group_offsets.lags(view)
    return json_response(group_body(name, view, lags, _coordinator(call, name)))


async def delete_group(call: Call) -> web.StreamResponse:
    """Delete a group without members, and its committed offsets."""
    request = DeleteGroup(group=name_of(call, "group"))
    await call.services.groups.ask(request, timeout_ms=call.services.limits.control_timeout_ms)
    return web.Response(status=204)


async def get_coordinator(call: Call) -> web.StreamResponse:
    """Return the broker that coordinates a group, also for a group that does not exist yet."""
    timeout_ms = call.services.limits.control_timeout_ms
    partition, broker = await call.services.groups.coordinator(name_of(call, "group"), timeout_ms=timeout_ms)
    url = call.services.url_of(broker, call.request.scheme)
    return json_response(wire.CoordinatorDescription(partition, broker, url))


async def list_rebalances(call: Call) -> web.StreamResponse:
    """List the newest rebalances of a group."""
    view = await _view(call, name_of(call, "group"))
    rows = [
        wire.Rebalance(
            generation=each.generation,
            reason=each.reason,
            began_at=each.began_ms,
            duration_ms=each.duration_ms,
            members_before=each.members_before,
            members_after=each.members_after,
        )
        for each in reversed(view.group.rebalances)
    ]
    return json_response(wire.RebalanceList(rows))


async def get_offsets(call: Call) -> web.StreamResponse:
    """Return the committed offsets of a group, the lag of each partition, and the offsets in open
    transactions.
    """
    view = await _view(call, name_of(call, "group"))
    offsets = call.services.group_offsets
    if parameters.one_of(call.query, "stable", ("false", "true")) == "true":
        offsets.check_stable(view, _taken_over(view, call.query.get("member_id")))
    is_wanted = parameters.one_of(call.query, "lag", ("true", "false")) == "true"
    lags = await offsets.lags(view) if is_wanted else offsets.without_lag(view)
    pending = [
        wire.PendingOffset(each.topic, each.partition, each.offset.offset, each.transaction)
        for each in view.pending
    ]
    return json_response(wire.GroupOffsetList([offset_body(lag) for lag in lags], pending))


async def commit_offsets(call: Call) -> web.StreamResponse:
    """Commit offsets: as a member of a group, or for a group without members."""
    wanted = await read_json(call, wire.CommitOffsets)
    name, offsets = name_of(call, "group"), call.services.group_offsets
    request = msgspec.structs.replace(await commit_of(call, name, wanted), may_rewind=wanted.allow_rewind)
    if request.offsets:  # empty if all were of removed partitions
        await offsets.commit(request, timeout_ms=call.services.limits.control_timeout_ms)
    return web.Response(status=204)


async def reset_offsets(call: Call) -> web.StreamResponse:
    """Reset the committed offsets of a group; with ``dry_run``, only return the changes."""
    wanted = await read_json(call, wire.ResetOffsets)
    name = name_of(call, "group")
    if (wanted.to is None) == (wanted.shift is None):
        raise InvalidRequest("to: send either to or shift", field="to")
    is_dry = parameters.one_of(call.query, "dry_run", ("false", "true")) == "true"
    before = await _committed(call, name)
    changes = [
        wire.OffsetChange(topic, partition, before.get((topic, partition)), after)
        for (topic, partition), after in sorted((await _wanted(call, wanted, before)).items())
    ]
    if not is_dry and changes:
        offsets = call.services.group_offsets
        commits = tuple(offsets.placed(each.topic, each.partition, each.after, -1, "") for each in changes)
        request = Commit(
            group=name,
            offsets=commits,
            may_rewind=True,
            is_forced=wanted.force,
            client=client_of(call.request),
        )
        await offsets.commit(request, timeout_ms=call.services.limits.control_timeout_ms)
    return json_response(wire.OffsetsReset(is_dry, changes))


async def delete_offsets(call: Call) -> web.StreamResponse:
    """Delete committed offsets of some partitions."""
    wanted = await read_json(call, wire.DeleteGroupOffsets)
    targets = tuple((each.topic, number) for each in wanted.partitions for number in each.partitions)
    request = DeleteOffsets(group=name_of(call, "group"), targets=targets)
    await call.services.groups.ask(request, timeout_ms=call.services.limits.control_timeout_ms)
    return web.Response(status=204)


def _taken_over(view: GroupView, member_id: str | None) -> set[Target]:
    """Return the partitions of a member; without a member, all partitions with an offset in an open
    transaction.
    """
    if member_id is None:
        return {(each.topic, each.partition) for each in view.pending}
    member = view.group.members.get(member_id)
    if member is None:
        raise errors.MemberNotFound(f"member_id: {member_id[:64]!r} is not a member of the group; join again")
    return {(topic, number) for topic, numbers in member.assignment.items() for number in numbers}


async def _view(call: Call, name: str) -> GroupView:
    limits = call.services.limits
    return await call.services.group_offsets.view(name, timeout_ms=limits.control_timeout_ms)


async def _committed(call: Call, name: str) -> dict[Target, int]:
    """Return the committed offsets of a group by partition; empty if the group does not exist."""
    try:
        view = await _view(call, name)
    except errors.GroupNotFound:
        return {}
    return {(topic, partition): committed.offset for topic, partition, committed in view.offsets}


async def _wanted(call: Call, wanted: wire.ResetOffsets, before: dict[Target, int]) -> dict[Target, int]:
    """Return the offsets that a reset sets, each within the bounds of its partition."""
    found: dict[Target, int] = {}
    topics = call.services.topics
    await topics.hear_of((topic, 0) for topic in wanted.topics or ())
    targets = dict.fromkeys(_targets(call, wanted, before))
    await topics.hear_of(targets)
    for topic, number in targets:
        target = TopicPartition(topic, number)
        call.services.group_offsets.placed(topic, number, 0, -1, "")  # raises if the partition does not exist
        gateway = call.services.gateway
        start, _ = await gateway.offset_at(target, parameters.position("earliest", "to"))
        end, _ = await gateway.offset_at(target, parameters.position("latest", "to"), committed_only=False)
        if wanted.shift is not None:
            after = before.get((topic, number), start) + wanted.shift
        else:
            position = parameters.position_or_time(wanted.to or "", "to")
            after = position if isinstance(position, int) else (await gateway.offset_at(target, position))[0]
        found[topic, number] = min(max(after, start), end)
    return found


def _targets(call: Call, wanted: wire.ResetOffsets, before: dict[Target, int]) -> list[Target]:
    if wanted.partitions is not None:
        return [(topic, n) for topic, some in partitions_of(wanted.partitions).items() for n in some]
    if wanted.topics is not None:
        topics = call.services.controller.image.topics
        counts = {name: len(topics[name].partitions) if name in topics else 1 for name in wanted.topics}
        return [(name, number) for name, count in counts.items() for number in range(count)]
    if not before:
        raise InvalidRequest(
            "topics: the group has no committed offsets; name topics or partitions", field="topics"
        )
    return list(before)


def _coordinator(call: Call, name: str) -> int | None:
    found = call.services.groups.coordinator_of(name)
    return None if found is None else found[1]


ROUTES = (
    Route(wire.LIST, list_groups, (LIMIT, PAGE_TOKEN)),
    Route(wire.DESCRIBE, get_group, (GROUP,)),
    Route(wire.DELETE, delete_group, (GROUP,)),
    Route(wire.COORDINATOR, get_coordinator, (GROUP,)),
    Route(wire.REBALANCES, list_rebalances, (GROUP,)),
    Route(
        wire.OFFSETS,
        get_offsets,
        (
            GROUP,
            Parameter(
                "lag",
                "`false`: only the offsets, without requests to other brokers",
                {"type": "string", "enum": ["true", "false"], "default": "true"},
            ),
            Parameter(
                "stable",
                "`true`: refuse while an open transaction may still commit an offset, for consumers that are "
                "about to read from the committed offsets",
                {"type": "string", "enum": ["false", "true"], "default": "false"},
            ),
            Parameter(
                "member_id",
                "with `stable=true`: only offsets of this member's partitions count",
                {"type": "string", "maxLength": wire.MEMBER_ID_CHARACTERS_MAX},
            ),
        ),
    ),
    Route(wire.COMMIT, commit_offsets, (GROUP,)),
    Route(
        wire.RESET,
        reset_offsets,
        (
            GROUP,
            Parameter(
                "dry_run",
                "`true`: only show the changes",
                {"type": "string", "enum": ["false", "true"], "default": "false"},
            ),
        ),
    ),
    Route(wire.DELETE_OFFSETS, delete_offsets, (GROUP,)),
)
