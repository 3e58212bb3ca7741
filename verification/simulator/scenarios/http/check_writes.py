"""Checks responses to produce requests: a receipt matches the stored record (A6)."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from partitions.values import QUORUM, Acks, AcksKind, AppendReceipt, Durability
from raftlog.records.keys import partition_for_key
from raftlog.types import Offset, Term, TopicPartition
from verification.simulator.machine import Machine
from verification.simulator.scenarios.http.known_partitions import Answered, KnownPartitions
from verification.simulator.scenarios.http.wire import Exchange

_RECEIPT: Final = "A6 a receipt names its record as it was sent"


def check_batches(answered: Answered) -> None:
    """Check the response to binary batches. Whether they are stored is checked elsewhere (I19)."""
    exchange, broker = answered.exchange, answered.machine.broker
    if exchange.status != 200 or broker is None:
        return
    body = msgspec.json.decode(exchange.answer)
    acks = Acks.parse(exchange.query.get("acks", "quorum"))
    receipt = AppendReceipt(
        base_offset=Offset(body["base_offset"]),
        record_count=body["record_count"],
        leader_epoch=Term(body["leader_epoch"]),
        timestamp_ms=body["timestamp"],
        was_duplicate=body["duplicate"],
        durability=Durability(**body["durability"]),
    )
    if body["partition"] != answered.target.partition:
        answered.wrong(_RECEIPT, f"{body} of {answered.target}")
    _check_durability(answered.known, exchange, acks, body["durability"])
    answered.known.cluster.responses.appended(answered.target, exchange.body, acks, broker, receipt)


def check_produced(known: KnownPartitions, machine: Machine, exchange: Exchange) -> None:
    """Check the receipts of records that were sent as JSON, lines of JSON, or raw bytes."""
    body = msgspec.json.decode(exchange.answer)
    sent = _records_of(exchange)
    receipts: list[dict[str, Any]] = body["records"]
    acks = Acks.parse(exchange.query.get("acks", "quorum"))
    if len(receipts) != len(sent):
        known.cluster.violated(_RECEIPT, f"{len(receipts)} receipts of {len(sent)} records")
        return
    failed = sum("problem" in receipt for receipt in receipts)
    if (exchange.status == 207) is not (failed > 0) or (failed < len(sent)) is not ("durability" in body):
        known.cluster.violated(_RECEIPT, f"{exchange.status}, {failed} of {len(sent)} have failed: {body}")
    if "durability" in body:
        _check_durability(known, exchange, acks, body["durability"])
    for record, receipt in zip(sent, receipts, strict=True):
        if "problem" not in receipt:
            _check_receipt(known, machine, exchange, acks, record, receipt)


def _check_receipt(
    known: KnownPartitions,
    machine: Machine,
    exchange: Exchange,
    acks: Acks,
    record: dict[str, Any],
    receipt: dict[str, Any],
) -> None:
    parts = exchange.path.split("/")
    target = TopicPartition(parts[3], receipt["partition"])
    wanted = int(parts[5]) if "partitions" in parts else record.get("partition")
    if wanted is None and record.get("key") is not None:
        wanted = partition_for_key(record["key"].encode(), known.cluster.odds.partitions)
    group = known.group_of(target)
    if group is None or group.is_retired or acks.kind is AcksKind.LEADER:
        return
    row = known.committed_of(group).at(receipt["offset"])
    found = None if row is None else (row.key, row.value, dict(row.headers), row.timestamp_ms)
    sent = (_key(record), _value(record), _headers(record), receipt["timestamp"])
    if found != sent or wanted not in (None, target.partition):
        where = f"{machine.name} {exchange.method} {exchange.path} {dict(exchange.query)}"
        known.cluster.violated(_RECEIPT, f"{where}: {receipt} of {sent}, but the log has {row}")
        return
    if (
        row is not None
        and not row.is_append_time
        and record.get("timestamp", row.timestamp_ms) != row.timestamp_ms
    ):
        known.cluster.violated(_RECEIPT, f"{exchange.path}: {record} has the time {row.timestamp_ms}")


def _check_durability(
    known: KnownPartitions, exchange: Exchange, acks: Acks, reported: dict[str, Any]
) -> None:
    """Check that the reported durability names the requested ``acks`` and satisfies them."""
    odds = known.cluster.odds
    least = {AcksKind.LEADER: 1, AcksKind.COUNT: acks.count}.get(acks.kind, 1)
    if acks == QUORUM and "reassign" not in odds.timed:
        least = odds.replicas // 2 + 1
    is_right = reported["acks"] == str(acks) and reported["fsynced"] and reported["replicas"] >= least
    if acks.kind is not AcksKind.LEADER and not reported["committed"]:
        is_right = False
    if not is_right:
        known.cluster.violated(_RECEIPT, f"{exchange.path} acks={acks}: {reported}")


def _records_of(exchange: Exchange) -> list[dict[str, Any]]:
    kind = exchange.headers.get("content-type", "")
    if kind == "application/json":
        records: list[dict[str, Any]] = msgspec.json.decode(exchange.body)["records"]
        return records
    if kind == "application/x-ndjson":
        return [msgspec.json.decode(line) for line in exchange.body.split(b"\n") if line.strip()]
    raw: dict[str, Any] = {"raw": exchange.body, "key": exchange.headers.get("raftlog-key")}
    raw["tags"] = [tag.strip() for tag in exchange.headers.get("raftlog-tags", "").split(",") if tag.strip()]
    prefix = "raftlog-header-"
    raw["headers"] = {
        name.removeprefix(prefix): text for name, text in exchange.headers.items() if name.startswith(prefix)
    }
    return [raw]


def _key(record: dict[str, Any]) -> bytes | None:
    key = record.get("key")
    return None if key is None else str(key).encode()


def _value(record: dict[str, Any]) -> bytes | None:
    if "raw" in record:
        raw: bytes = record["raw"]
        return raw
    value = record["value"]
    if value is None:
        return None
    if record.get("encoding") == "base64":
        return base64.b64decode(value)
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _headers(record: dict[str, Any]) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {
        name: None if text is None else text.encode() for name, text in record.get("headers", {}).items()
    }
    for tag in record.get("tags", ()):
        found["raftlog.tag"] = tag.encode()
    return found
