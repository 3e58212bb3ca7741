"""Adds offsets of consumer groups to transactions; the commit of a transaction commits the offsets.

Decides: the order of the steps. Leaves to others: which transaction is open (``transactions``), who may
commit (``groups``).
"""

from __future__ import annotations

from aiohttp import web

from api.http.bodies import read_json
from api.http.producers import own_handle_of
from api.http.routes import Call, Route, json_response
from api.resources.group_bodies import commit_of
from api.resources.transactions import TRANSACTION
from broker.ports import Services
from groups.requests import AddOffsets, Commit
from raftlog.wire import transactions as wire
from raftlog.wire.groups import AddOffsets as AddOffsetsBody
from transactions.records import Handle
from transactions.requests import Join


async def add_offsets(call: Call) -> web.StreamResponse:
    """Add offsets of a group to an open transaction; may be repeated."""
    wanted = await read_json(call, AddOffsetsBody)
    handle = own_handle_of(call.match_info["transaction"], "transaction")
    commit = await commit_of(call, wanted.group, wanted)
    if commit.offsets:  # empty if all were of removed partitions
        await add_to(call.services, handle, commit)
    return json_response(wire.OffsetsAdded(str(handle), wanted.group))


async def add_to(services: Services, handle: Handle, commit: Commit) -> None:
    """Add offsets to a transaction, whose commit commits the offsets. May be repeated.

    The group joins the transaction first, so that it learns the outcome even if the offsets arrive late.
    ``__offsets`` is created before that: when a transaction ends and the topic does not exist, no group has
    to be informed. Raises the errors of a plain commit and of a transaction that is not open, and
    ``OffsetsPending``.
    """
    timeout_ms = services.limits.control_timeout_ms
    await services.group_offsets.check(commit.offsets)
    await services.groups.ready(timeout_ms=timeout_ms)
    await services.transactions.ask(Join(transaction=handle, groups=(commit.group,)), timeout_ms=timeout_ms)
    request = AddOffsets(
        group=commit.group,
        offsets=commit.offsets,
        member_id=commit.member_id,
        generation=commit.generation,
        producer_id=handle.producer_id,
        epoch=handle.epoch,
        transaction=str(handle),
        client=commit.client,
    )
    await services.groups.ask(request, timeout_ms=timeout_ms)


ROUTES = (Route(wire.ADD_OFFSETS, add_offsets, (TRANSACTION,)),)
