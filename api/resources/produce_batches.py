"""Handles produces of binary batches to one partition, which are stored unchanged."""

from __future__ import annotations

from aiohttp import web

from api.http.bodies import read_body
from api.http.producers import Producer
from api.http.requests import client_of
from api.http.routes import Call, json_response
from api.resources.produce_terms import batch_terms
from api.resources.receipts import durability_body
from partitions.values import AcksKind
from raftlog.errors import InvalidRequest
from raftlog.records.batch import HEADER_BYTES, parse_header
from raftlog.types import TopicPartition
from raftlog.wire import bodies, headers


async def produce_batches(call: Call, target: TopicPartition) -> web.Response:
    """Append the batches in the body. Raises ``InvalidRequest`` and the errors of an append."""
    acks, timeout_ms, call.capped, producer = call.from_head(batch_terms)
    client = client_of(call.request)
    with call.admission.bodies.hold(client, 0) as held:
        body = await read_body(call.request, held, call.services.limits)
        if not body:
            raise InvalidRequest("the body is empty; send at least one batch", field="body")
        receipt = await call.services.gateway.append(
            target,
            body,
            acks=acks,
            timeout_ms=timeout_ms,
            transactional_id=None if producer is None else _transaction_of(producer, body),
            client=client,
        )
    if acks.kind is AcksKind.NONE:
        return json_response(bodies.Accepted(receipt.record_count), 202)
    return json_response(
        bodies.BatchesProduced(
            target.partition,
            receipt.base_offset,
            receipt.record_count,
            durability_body(receipt.durability),
            receipt.leader_epoch,
            receipt.timestamp_ms,
            receipt.was_duplicate,
        )
    )


def _transaction_of(producer: Producer, body: bytes | bytearray) -> str | None:
    """Return the transactional id of the transaction that batches belong to; None without a transaction.

    Checks the producer of the first batch; the leader checks the other batches.
    """
    first = parse_header(body) if len(body) >= HEADER_BYTES else None
    if first is not None and (first.producer_id, first.producer_epoch) != producer[:2]:
        raise InvalidRequest(
            f"{headers.TRANSACTION} is of producer {producer.producer_id}, epoch {producer.epoch}, but the "
            f"batch is of {first.producer_id}, epoch {first.producer_epoch}; send batches of the "
            "transaction's producer",
            field=headers.TRANSACTION,
        )
    return producer.transactional_id
