"""Builds the response to a produce: one receipt for each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiohttp import web

from api.http.errors import problem
from api.http.routes import Call, json_response
from partitions.values import AppendReceipt, Durability
from raftlog.errors import RaftlogError
from raftlog.wire import bodies


def produced(
    call: Call,
    created_ms: Sequence[int | None],
    groups: Mapping[int, Sequence[int]],
    outcomes: Mapping[int, AppendReceipt | RaftlogError],
    now_ms: int,
) -> web.Response:
    """Return the response with the receipts in the order of the records: 200 if all partitions succeeded,
    else 207.

    ``created_ms`` are the timestamps that the records brought.
    """
    answer = receipts_of(call, created_ms, groups, outcomes, now_ms)
    is_complete = all(isinstance(outcome, AppendReceipt) for outcome in outcomes.values())
    return json_response(answer, 200 if is_complete else 207)


def receipts_of(
    call: Call,
    created_ms: Sequence[int | None],
    groups: Mapping[int, Sequence[int]],
    outcomes: Mapping[int, AppendReceipt] | Mapping[int, AppendReceipt | RaftlogError],
    now_ms: int,
) -> bodies.Produced:
    """Return the body of the response."""
    receipts: list[bodies.RecordReceipt | None] = [None] * len(created_ms)
    for partition, numbers in groups.items():
        outcome = outcomes[partition]
        if isinstance(outcome, RaftlogError):
            outcome.details.setdefault("partition", partition)
            body = problem(outcome, instance=call.request.path, request_id=call.request_id)
            failed = bodies.RecordReceipt(status=int(str(body["status"])), problem=body)
            for number in numbers:
                receipts[number] = failed
            continue
        for offset, number in enumerate(numbers, outcome.base_offset):
            timestamp = stored_ms(outcome, created_ms[number], now_ms)
            receipts[number] = bodies.RecordReceipt(partition, offset, timestamp)
    good = [outcome.durability for outcome in outcomes.values() if isinstance(outcome, AppendReceipt)]
    return bodies.Produced([receipt for receipt in receipts if receipt], _weakest(good))


def stored_ms(receipt: AppendReceipt, created_ms: int | None, now_ms: int) -> int:
    """Return the timestamp with which a record was stored; ``created_ms`` is the timestamp that the record
    brought.
    """
    if receipt.timestamp_ms is not None:
        return receipt.timestamp_ms
    return now_ms if created_ms is None else created_ms


def _weakest(durabilities: Sequence[Durability]) -> bodies.RecordDurability | None:
    """Return the weakest durability of the successful partitions; None if no partition succeeded."""
    if len(durabilities) <= 1:
        return durability_body(durabilities[0]) if durabilities else None
    return bodies.RecordDurability(
        durabilities[0].acks,
        all(durability.committed for durability in durabilities),
        all(durability.fsynced for durability in durabilities),
        min(durability.replicas for durability in durabilities),
    )


def durability_body(durability: Durability) -> bodies.RecordDurability:
    """Return the durability of an acknowledged record as JSON."""
    return bodies.RecordDurability(
        durability.acks, durability.committed, durability.fsynced, durability.replicas
    )
