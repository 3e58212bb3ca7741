"""Runs requests in transactions of their own: executions, and produces with an idempotency key.

Decides: the order of the steps, and the form in which a response is kept. Leaves to others: when such a
transaction is aborted, and the response to a repeated request (``transactions.one_shot``).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from aiohttp import web

from api.http.idempotency import claim_of
from api.http.json_bodies import WHOLE_BYTES_MAX
from api.http.producers import NO_SEQUENCE
from api.http.requests import client_of
from api.http.routes import Call
from api.resources import json_records
from api.resources.json_records import Placed
from api.resources.transaction_offsets import add_to
from groups.requests import Commit
from partitions.metadata.image import TopicInfo
from partitions.values import QUORUM, AppendReceipt
from raftlog.errors import RaftlogError, RecordTooLarge
from raftlog.node.computing import computed
from raftlog.records.builder import with_producer
from raftlog.types import TopicPartition
from raftlog.wire import headers, media_types
from transactions.records import RESERVED, Handle
from transactions.requests import Claim

Batches = dict[TopicPartition, list[bytes]]
Receipts = Mapping[TopicPartition, AppendReceipt]
Describe = Callable[[Handle, Receipts], msgspec.Struct]
"""A function that builds the body of the response."""


async def produce_once(
    call: Call,
    topic: str,
    batches: dict[int, list[bytes]],
    describe: Callable[[Mapping[int, AppendReceipt]], msgspec.Struct],
    *,
    claim: Claim,
    timeout_ms: int,
) -> web.Response:
    """Carry out a produce with an idempotency key. Removes the batches from the dict of batches by
    partition.
    """

    def described(handle: Handle, receipts: Receipts) -> msgspec.Struct:
        return describe({target.partition: receipt for target, receipt in receipts.items()})

    targets = {TopicPartition(topic, number): batches.pop(number) for number in list(batches)}
    return await run(call, targets, described, claim=claim, timeout_ms=timeout_ms)


async def claimed(call: Call, key: str, body: bytes | bytearray, *, scope: str) -> Claim:
    """Create the claim of a request with an idempotency key."""
    work = partial(claim_of, call.request, key, scope, body, call.services.rng)
    return await computed(work, is_short=len(body) <= WHOLE_BYTES_MAX)


def built(call: Call, topic: TopicInfo, placed: Sequence[Placed], now_ms: int) -> list[bytes]:
    """Build the batches for one partition, before their producer is known. Raises ``RecordTooLarge``."""
    records, bytes_max = [item.record for item in placed], call.services.batch_bytes_max(topic)
    try:
        return json_records.build_batches(records, bytes_max=bytes_max, now_ms=now_ms, producer=None)
    except RecordTooLarge as error:
        raise error.with_details(topic=topic.name) from None


async def run(
    call: Call,
    batches: Batches,
    describe: Describe,
    *,
    claim: Claim | None,
    timeout_ms: int,
    transactional_id: str | None = None,
    offsets: Commit | None = None,
) -> web.Response:
    """Commit all batches and offsets in one transaction, or repeat the response to an equal request, byte by
    byte.

    The batches have no producer yet, and are removed from their dict. The work continues if the client
    disconnects. Raises the errors of ``OneShots.run``.
    """

    async def work(handle: Handle, left_ms: int) -> bytes:
        if offsets is not None:  # first, so that a member that has lost its partitions writes nothing
            await add_to(call.services, handle, offsets)
        receipts = await _append_all(call, handle, batches, left_ms)
        return zlib.compress(msgspec.json.encode(describe(handle, receipts)))

    answered = await call.services.one_shots.run(
        work,
        partitions=[(target.topic, target.partition) for target in batches],
        transactional_id=transactional_id,
        claim=claim,
        spread=call.services.rng.getrandbits(32) if claim is None else _spread_of(claim),
        timeout_ms=timeout_ms,
        client=client_of(call.request),
    )
    return _response(answered.answer, is_replayed=answered.is_replayed)


async def first_answer_or(
    call: Call, error: RaftlogError, claim: Claim | None, transactional_id: str | None = None
) -> web.Response:
    """Return the response to an equal earlier request, which was valid at that time.

    Raises ``error`` if there was no such request.
    """
    before = None
    if claim is not None:
        before = await call.services.one_shots.answer_before(
            claim,
            transactional_id=transactional_id,
            spread=_spread_of(claim),
            timeout_ms=call.services.limits.control_timeout_ms,
        )
    if before is None:
        raise error
    return _response(before, is_replayed=True)


def _response(answer: bytes, *, is_replayed: bool) -> web.Response:
    replayed = {headers.IDEMPOTENCY_REPLAYED: "true"} if is_replayed else {}
    return web.Response(body=zlib.decompress(answer), headers={"Content-Type": media_types.JSON, **replayed})


def _spread_of(claim: Claim) -> int:
    return int.from_bytes(claim.digest[:4], "big")


async def _append_all(
    call: Call, handle: Handle, batches: Batches, timeout_ms: int
) -> dict[TopicPartition, AppendReceipt]:
    """Append to all partitions; return the receipts.

    If an append fails, waits for all appends, and raises the error of one of them.
    """
    targets = list(batches)
    is_own = handle.transactional_id.startswith(RESERVED)  # the transactional id belongs to the broker
    client = "" if is_own else client_of(call.request)
    appends = [
        call.services.gateway.append(
            target,
            _stamped(handle, batches.pop(target)),
            acks=QUORUM,
            timeout_ms=timeout_ms,
            transactional_id=handle.transactional_id,
            client=client,
        )
        for target in targets
    ]
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    receipts: dict[TopicPartition, AppendReceipt] = {}
    for target, outcome in zip(targets, outcomes, strict=True):
        if isinstance(outcome, RaftlogError):
            raise outcome.with_details(topic=target.topic, partition=target.partition)
        if isinstance(outcome, BaseException):
            raise outcome
        receipts[target] = outcome
    return receipts


def _stamped(handle: Handle, batches: Sequence[bytes]) -> list[bytes]:
    """Write the producer id and the epoch of the transaction into batches.

    A single batch gets a sequence, so that the gateway may repeat its append.
    """
    sequence = 0 if len(batches) == 1 else NO_SEQUENCE
    return [
        with_producer(batch, handle.producer_id, handle.epoch, sequence, in_transaction=True)
        for batch in batches
    ]
