"""Attacks that fill or poison the state of coordinators: groups, transactions, delayed messages, keys.

The attacks use an IP address of their own, because brokers limit the state that each client address may use.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from raftlog.wire import groups, headers, health, media_types, members, transactions
from raftlog.wire import records as record_operations
from raftlog.wire import topics as topic_operations
from verification.abuse.target import AT_ONCE, STRANGER, Attack, Target

EPOCH: Final = 1 << 64
METADATA: Final = "\u20ac" * 4_096
WIDE: Final = "wide"  # a topic with many partitions
WIDTH: Final = 60
FOREVER: Final = "forever"  # its messages may be due at any time
YEAR_9999: Final = "?deliver_at=253402300799000"
JSON: Final = {"Content-Type": media_types.JSON}
Post = tuple[str, str, object, Mapping[str, str]]  # method, path, body, further headers


def poisoned_epochs(target: Target) -> Counter[str]:
    """Commit offsets with leader epochs that no record can have, for a group of each coordinator."""
    bodies = {"offsets": [{"topic": target.topic, "partition": 0, "offset": 0, "leader_epoch": EPOCH}]}
    return _all(target, [_commit(f"poison-{number}", bodies) for number in range(target.times(500))])


def many_groups(target: Target) -> Counter[str]:
    """Create a thousand groups, and request the list of groups repeatedly."""
    body = {"offsets": [{"topic": target.topic, "partition": 0, "offset": 0}]}
    responses = _all(target, [_commit(f"many-{number}", body) for number in range(target.times(1_000))])
    lists: list[Post] = [
        ("GET", f"{groups.LIST.path}?limit=1", None, {}),
        ("GET", health.METRICS.path, None, {}),
    ]
    return responses + _all(target, lists * target.times(20))


def offset_metadata(target: Target) -> Counter[str]:
    """Commit offsets with the longest allowed metadata, in more groups than a coordinator has memory for."""
    _make(target, WIDE, WIDTH, {})
    offsets = [
        {"topic": WIDE, "partition": partition, "offset": 0, "metadata": METADATA}
        for partition in range(WIDTH)
    ]
    body = {"offsets": offsets}
    return _all(target, [_commit(f"metadata-{number}", body) for number in range(target.times(200))])


def idempotency_keys(target: Target) -> Counter[str]:
    """Send requests with idempotency keys whose stored responses are as large as possible."""
    body = {"records": [{"value": 0}] * 1_000}
    path = record_operations.PRODUCE.path.format(topic=target.topic)
    return _all(
        target,
        [("POST", path, body, {headers.IDEMPOTENCY_KEY: f"k{n}"}) for n in range(target.times(400))],
    )


def messages_for_the_year_9999(target: Target) -> Counter[str]:
    """Produce delayed messages that are due in the year 9999, in requests of 500, then 50, then one
    message.
    """
    _make(target, FOREVER, 1, {"retention.ms": -1})
    path = record_operations.PRODUCE.path.format(topic=FOREVER) + YEAR_9999
    return _all(
        target,
        [
            ("POST", path, {"records": [{"value": 0}] * size}, {})
            for size in (500, 50, 1)
            for _ in range(target.times(200))
        ],
    )


def transactional_ids(target: Target) -> Counter[str]:
    """Start transactions under long transactional ids, and use each id once."""
    named = [{"transactional_id": f"{number:08d}" + "x" * 200} for number in range(target.times(800))]
    return _all(target, [("POST", transactions.LIST.path, body, {}) for body in named])


def large_subscriptions(target: Target) -> Counter[str]:
    """Join a member with a thousand long topic names, then many small members: each join rewrites the group's
    row.
    """
    path = members.JOIN.path.format(group="amplified")
    sessions = {"session_timeout": "6s", "rebalance_timeout": "1s"}
    large = {"topics": [f"{number:04d}" + "x" * 245 for number in range(1_000)], "member_id": "large"}
    small = [{"topics": [target.topic], "member_id": f"small-{n}"} for n in range(target.times(60))]
    return _all(target, [("POST", path, {**body, **sessions}, {}) for body in (large, *small)])


def prepared_for_a_day(target: Target) -> Counter[str]:
    """Prepare transactions that stay undecided for a day; readers do not get later records meanwhile."""
    responses: Counter[str] = Counter()
    for number in range(target.times(20)):
        opened, content = target.ask(
            "POST", transactions.OPEN.path, json.dumps({"transactional_id": f"held-{number}"}).encode(), JSON
        )
        if opened == "201":
            path = transactions.PREPARE.path.format(transaction=json.loads(content)["id"])
            responses += _all(target, [("POST", path, {"timeout": "24h"}, {})])
    return responses


def values_without_end(target: Target) -> Counter[str]:
    """Send bodies of megabytes that are slow to decode: many keys, deep nesting, escapes, a
    compressed body.
    """
    records, topics = record_operations.PRODUCE.path.format(topic=target.topic), topic_operations.LIST.path
    keys = b",".join(b'"k%d":1' % number for number in range(900_000))
    bodies: list[tuple[str, bytes, dict[str, str]]] = [
        (topics, b"{" + keys + b"}", {}),
        (topics, b'{"name":"zz","config":{' + keys + b"}}", {}),
        (records, b'{"records":[{"value":' + b"[" * 1_000 + b"]" * 1_000 + b"}]}", {}),
        (records, b'{"records":[{"value":[' + b"[]," * 5_000_000 + b"[]]}]}", {}),
        (records, b'{"records":[{"value":"' + b"\\u0041" * 2_600_000 + b'"}]}', {}),
        (records, gzip.compress(b"a" * 100_000_000), {"Content-Encoding": "gzip"}),
    ]
    return Counter(
        target.ask("POST", path, body, {**JSON, **more}, broker=number)[0]
        for number, (path, body, more) in enumerate(bodies * target.times(5))
    )


def connections_of_one_address(target: Target) -> Counter[str]:
    """Open more connections than one client address may have; other addresses must still get connections."""
    with target.connections(1_100):
        return Counter(
            replace(target, source="").ask("GET", topic_operations.LIST.path)[0] for _ in range(20)
        )


def _commit(group: str, body: object) -> Post:
    return "PUT", groups.OFFSETS.path.format(group=group), body, {}


def _make(target: Target, topic: str, partitions: int, config: Mapping[str, int]) -> None:
    body = {"name": topic, "partitions": partitions, "replication_factor": 1, "config": config}
    target.ask("POST", topic_operations.CREATE.path, json.dumps(body).encode(), JSON)


def _all(target: Target, requests: Iterable[Post]) -> Counter[str]:
    """Send all requests to all brokers, several at a time; count the responses."""
    listed = list(requests)

    def send(number: int) -> str:
        method, path, body, more = listed[number]
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        return target.ask(method, path, content, {**JSON, **more}, broker=number)[0]

    return target.at_once(AT_ONCE, send, count=len(listed))


def _strict(name: str, run: Callable[[Target], Counter[str]], bound_mib: int = 0) -> Attack:
    return Attack(name, lambda target: run(replace(target, source=STRANGER)), bound_mib, is_strict=True)


# Bounds are the growth of the broker that grew most in two runs (at a load of 10 to 20), rounded up; the
# temporary memory of an attack is in ``BEYOND_BOUND_MIB``.
ATTACKS: Final = (
    _strict("leader epochs of 2^64", poisoned_epochs),
    _strict("values without end", values_without_end, bound_mib=96),  # 105 and 115: body, text, values, batch
    _strict("connections of one address", connections_of_one_address),
    _strict("prepared for a day", prepared_for_a_day),
    _strict("1,000 groups", many_groups, bound_mib=4),  # 2 and 2
    _strict("metadata of offsets", offset_metadata, bound_mib=112),  # 93 and 106
    _strict("idempotency keys", idempotency_keys, bound_mib=4),  # 1 and 2
    _strict("long transactional ids", transactional_ids, bound_mib=4),  # 0 and 0
    _strict("large subscriptions", large_subscriptions, bound_mib=4),  # 0 and 2
    _strict("messages for the year 9999", messages_for_the_year_9999, bound_mib=24),  # 22 and 23
)
