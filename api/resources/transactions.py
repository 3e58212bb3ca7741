"""Handles transactions: opens, ends, prepares, describes and lists them, and commits batches of prepared
transactions.

Leaves to others: the decisions (``transactions``), records of a transaction (``produce``).
"""

from __future__ import annotations

import re
from typing import TypeVar

from aiohttp import web

from api.http import pagination, parameters
from api.http.bodies import read_json
from api.http.producers import handle_of, own_handle_of, own_id
from api.http.requests import client_of
from api.http.routes import LIMIT, PAGE_TOKEN, Call, Parameter, Route, json_response
from api.http.steps import Steps
from api.resources.group_bodies import listed, milliseconds
from groups.records import by_topic
from raftlog.wire import transactions as wire
from raftlog.wire.limits import TRANSACTION_MS_MAX
from transactions.fencing import is_newest, outcome_of
from transactions.records import TRANSACTIONAL_ID, Handle, Transaction
from transactions.requests import (
    AbortBatch,
    AbortOpen,
    BeginRun,
    CommitBatch,
    Described,
    Done,
    End,
    Ended,
    OfOneId,
    Open,
    Opened,
    Prepare,
    ReadTransaction,
    Reply,
    RunBegun,
)
from transactions.sinks import check_request

TIMEOUT_MS = (100, TRANSACTION_MS_MAX)  # shortest, longest
PREPARED_MS_MIN = 1_000
STATES = ("open", "all")
_IDS = re.compile(TRANSACTIONAL_ID)
_Wanted = TypeVar("_Wanted", bound=Reply)


async def open_transaction(call: Call) -> web.StreamResponse:
    """Fence earlier producers of a transactional id, abort their open transaction, and begin a new one."""
    wanted = await read_json(call, wire.OpenTransaction)
    timeout_ms = milliseconds(wanted.timeout, "timeout", TIMEOUT_MS)
    after = None if wanted.after is None else handle_of(wanted.after, "after")
    name = own_id(wanted.transactional_id, "transactional_id")
    run_epoch = wanted.run_epoch or 0
    request = Open(
        transactional_id=name,
        timeout_ms=timeout_ms,
        after=after,
        run_epoch=run_epoch,
        client=client_of(call.request),
        incarnation=wanted.incarnation or "",
    )
    opened = await _ask(call, request, Opened)
    handle = Handle(wanted.transactional_id, opened.producer_id, opened.epoch)
    body = wire.OpenedTransaction(
        str(handle), handle.transactional_id, handle.producer_id, handle.epoch, timeout_ms
    )
    return json_response(body, 201, {"Location": wire.DESCRIBE.at(transaction=str(handle))})


async def list_transactions(call: Call) -> web.StreamResponse:
    """List open transactions, or the newest transaction of each transactional id."""
    open_only = parameters.one_of(call.query, "state", STATES) == "open"
    timeout_ms = call.services.limits.control_timeout_ms
    asked = pagination.asked_page(call.query, _IDS)
    page = await call.services.transactions.list_some(*asked, open_only=open_only, timeout_ms=timeout_ms)
    rows = [(name, (name, one)) for name, one in page.transactions.items()]
    shown, token = pagination.page(rows, call.query, _IDS)
    if token is None and page.has_more:
        token = shown[-1][0]
    return json_response(wire.TransactionList([_body(name, one) for name, one in shown], token))


async def get_transaction(call: Call) -> web.StreamResponse:
    """Describe one transaction, or the newest transaction of a transactional id."""
    name, handle = _named(call)
    described = await _ask(call, ReadTransaction(transactional_id=name), Described)
    body = _body(name, described.transaction)
    if handle is not None and not is_newest(handle, described.transaction):
        outcome = outcome_of(handle, described.transaction)
        body = wire.TransactionDescription(
            str(handle),
            name,
            outcome.producer_id,
            outcome.epoch,
            "committed" if outcome.is_committed else "aborted",
            [],
            described.transaction.timeout_ms,
            0,
            described.transaction.changed_ms,
        )
    return json_response(body)


async def commit(call: Call) -> web.StreamResponse:
    """Commit a transaction; the request may be repeated."""
    return await _end(call, own_handle_of(call.match_info["transaction"], "transaction"), is_commit=True)


async def abort(call: Call) -> web.StreamResponse:
    """Abort one transaction (the request may be repeated), or the open transaction of a transactional id."""
    name, handle = _named(call)
    if handle is not None:
        return await _end(call, handle, is_commit=False)
    newest = (await _ask(call, ReadTransaction(transactional_id=name), Described)).transaction
    number = newest.producer_id, newest.epoch
    return await _described_after(call, AbortOpen(transactional_id=name, transaction=number))


async def prepare(call: Call) -> web.StreamResponse:
    """Prepare a transaction: it accepts no more records, and waits for the decision about its batch."""
    wanted = await read_json(call, wire.PrepareTransaction)
    handle = own_handle_of(call.match_info["transaction"], "transaction")
    bounds = PREPARED_MS_MIN, call.services.limits.prepared_ms_max  # readers wait so long at most
    prepared_ms_max = milliseconds(wanted.timeout, "timeout", bounds)
    return await _described_after(call, Prepare(transaction=handle, prepared_ms_max=prepared_ms_max))


async def begin_run(call: Call) -> web.StreamResponse:
    """Register a run of a sink; the request may be repeated."""
    wanted = await read_json(call, wire.BeginRun)
    request = BeginRun(
        key=wanted.sink_key,
        owner=wanted.owner,
        run=wanted.run,
        sequence=wanted.sequence,
        is_takeover=wanted.takeover,
        client=client_of(call.request),
    )
    begun = await _ask(call, request, RunBegun)
    return json_response(wire.BegunRun(wanted.sink_key, begun.epoch or None, begun.is_committed))


async def commit_batch(call: Call) -> web.StreamResponse:
    """Commit prepared transactions together, once for each sequence of the sink."""
    wanted = await read_json(call, wire.CommitBatch)
    handles = _handles(wanted.transactions)
    request = CommitBatch(
        key=wanted.sink_key,
        sequence=wanted.sequence,
        handles=handles,
        run=wanted.run or "",
        run_epoch=wanted.run_epoch or 0,
        client=client_of(call.request),
    )
    check_request(request)
    await call.services.transactions.ask(request, timeout_ms=call.services.limits.control_timeout_ms)
    return json_response(wire.EndedBatch(wanted.sink_key, "committed", wanted.transactions))


async def abort_batch(call: Call) -> web.StreamResponse:
    """Abort prepared transactions."""
    wanted = await read_json(call, wire.AbortBatch)
    handles = _handles(wanted.transactions)
    request = AbortBatch(key=wanted.sink_key, handles=handles, run_epoch=wanted.run_epoch or 0)
    check_request(request)
    await call.services.transactions.ask(request, timeout_ms=call.services.limits.control_timeout_ms)
    return json_response(wire.EndedBatch(wanted.sink_key, "aborted", wanted.transactions))


async def _ask(call: Call, request: OfOneId, wanted: type[_Wanted]) -> _Wanted:
    limits = call.services.limits
    reply = await call.services.transactions.ask(request, timeout_ms=limits.control_timeout_ms)
    assert isinstance(reply, wanted)
    return reply


async def _described_after(call: Call, request: AbortOpen | Prepare) -> web.StreamResponse:
    """Change the transaction of a transactional id, and describe the newest transaction of the id."""
    steps, name = Steps(), request.transactional_id
    await steps.take(_ask(call, request, Done))
    described = await steps.take(_ask(call, ReadTransaction(transactional_id=name), Described))
    return json_response(_body(name, described.transaction))


async def _end(call: Call, handle: Handle, *, is_commit: bool) -> web.StreamResponse:
    ended = await _ask(call, End(transaction=handle, is_commit=is_commit), Ended)
    following = Handle(handle.transactional_id, handle.producer_id, ended.next_epoch)
    body = wire.EndedTransaction(
        str(handle),
        "committed" if ended.is_committed else "aborted",
        None if ended.next_epoch < 0 else str(following),
    )
    return json_response(body)


def _named(call: Call) -> tuple[str, Handle | None]:
    """Return the transactional id in the path, and the transaction if the path names a transaction."""
    text = call.match_info["transaction"]
    if _IDS.fullmatch(text):
        return text, None
    handle = handle_of(text, "transaction")
    return handle.transactional_id, handle


def _handles(texts: list[str]) -> tuple[Handle, ...]:
    return tuple(handle_of(text, "transactions") for text in texts)


def _body(name: str, found: Transaction) -> wire.TransactionDescription:
    return wire.TransactionDescription(
        str(Handle(name, found.producer_id, found.epoch)),
        name,
        found.producer_id,
        found.epoch,
        found.state.value,
        listed(by_topic(iter(found.partitions))),
        found.timeout_ms,
        found.began_ms,
        found.changed_ms,
        list(found.groups),
    )


TRANSACTION = Parameter(
    "transaction",
    "the `id` of a transaction",
    {"type": "string", "maxLength": wire.ID_CHARACTERS_MAX},
    "path",
)
_EITHER = Parameter(
    "transaction",
    "the `id` of a transaction, or a transactional id",
    {"type": "string", "maxLength": wire.ID_CHARACTERS_MAX},
    "path",
)

ROUTES = (
    Route(wire.OPEN, open_transaction),
    Route(
        wire.LIST,
        list_transactions,
        (
            Parameter(
                "state",
                "`open`: only transactions that are not complete",
                {"type": "string", "enum": list(STATES), "default": STATES[0]},
            ),
            LIMIT,
            PAGE_TOKEN,
        ),
    ),
    Route(wire.DESCRIBE, get_transaction, (_EITHER,)),
    Route(wire.COMMIT, commit, (TRANSACTION,)),
    Route(wire.ABORT, abort, (_EITHER,)),
    Route(wire.PREPARE, prepare, (TRANSACTION,)),
    Route(wire.BEGIN_RUN, begin_run),
    Route(wire.COMMIT_BATCH, commit_batch),
    Route(wire.ABORT_BATCH, abort_batch),
)
