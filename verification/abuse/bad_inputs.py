"""Sends requests with extreme values to all brokers: requests with one mistake, or random requests with many.

``extremes`` derives the requests from the OpenAPI document that a broker publishes; this module replaces
names in the requests by those of existing resources: a topic with records, an open transaction, a delayed
message, a schedule, a group member, leased jobs.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, count, islice, takewhile
from typing import Any, Final

from raftlog.wire import documents, media_types, members, queues, schedules, topics, transactions
from verification.abuse.extremes import Contract, Extreme
from verification.abuse.raw_inputs import tabled_bodies, tabled_heads
from verification.abuse.target import AT_ONCE, Attack, Target, is_wrong

BAD_BODIES: Final = (
    *(b"", b"{", b"null", b"[]", b"0", b'""', b"{}{}", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000),
    *(b'{"name":"a","name":"b"}', b'{"name":"\\ud800"}', b'{"partitions":1e400}', b"\x00" * 100),
)
ANSWER_S: Final = 2.0  # requests may wait longer; the attack is about other waiting clients
ONE_OF: Final = 6  # of all single mistakes; each field has several dozen
SHARPEST: Final = (f"= {1 << 64}", r"= 'x\n'")  # ends of names, whose values every sample includes
ROUND: Final = 300  # requests after which the named resources are created again if needed
SEED: Final = 7
SECONDS: Final = 30.0
MIXED_MIN: Final = 60  # requests, in case a slow machine spends the time before the first one
ABSENT_BROKER: Final = 99  # brokers that exist would be drained
_FIXED: Final[dict[str, object]] = {
    **dict.fromkeys(("broker", "broker_id"), ABSENT_BROKER),
    **dict.fromkeys(("wait", "max_wait"), "0s"),
    "partition": 0,
    "partitions": [0],
    "offset": 0,
    "cron": "* * * * *",
    "session_timeout": "60s",
    "rebalance_timeout": "1s",
}
_JSON: Final = {"Content-Type": media_types.JSON}


def one_mistake(target: Target) -> Counter[str]:
    """Send requests with an extreme value in one field, for every field; a short run sends a part of the
    requests.
    """
    contract = contract_of(target)
    some = sample if target.scale >= 1 else _every
    return sent(target, contract, some(all_of(contract), round(ONE_OF / target.scale)))


def of_the_table(target: Target) -> Counter[str]:
    """Send every body that is extreme and not JSON, and a part of the extreme query strings and headers."""
    contract = contract_of(target)
    some = round(ONE_OF / target.scale)
    of_bodies = _every(tabled_bodies(contract), max(1, some // ONE_OF))
    return sent(target, contract, chain(of_bodies, _every(tabled_heads(contract), some)))


def _every(requests: Iterable[Extreme], one_of: int) -> Iterator[Extreme]:
    return islice(requests, 0, None, one_of)


def all_of(contract: Contract) -> Iterator[Extreme]:
    """Return all requests that have exactly one extreme value."""
    return chain(bad_bodies(contract), contract.one_by_one())


def sample(requests: Iterable[Extreme], one_of: int) -> Iterator[Extreme]:
    """Yield every n-th request, and the requests with the values that found most errors so far."""
    for number, request in enumerate(requests):
        if number % one_of == 0 or request.name.endswith(SHARPEST):
            yield request


def mixed(target: Target, seed: int = SEED, seconds: float = SECONDS) -> Counter[str]:
    """Send random requests that the seed determines, for ``seconds`` and at least ``MIXED_MIN`` requests."""
    ends_at = time.monotonic() + seconds * target.scale
    contract = contract_of(target)
    drawn = enumerate(contract.mixed(seed))
    in_time = takewhile(lambda each: each[0] < MIXED_MIN or time.monotonic() < ends_at, drawn)
    return sent(target, contract, (request for _, request in in_time))


def contract_of(target: Target) -> Contract:
    """Fetch the OpenAPI document that the brokers publish; ``known_to`` adds the names of existing
    resources.
    """
    answer, document = target.ask("GET", documents.OPENAPI.path)
    assert answer == "200", answer
    return Contract(json.loads(document), {})


def known_to(target: Target, number: int = 0) -> dict[str, object]:
    """Create missing resources that requests of a round may name; return their names by field of a request.

    Each round creates three groups: a group without members, a group with a member, and a queue.
    """
    topic, record = target.topic, {"value": "v", "key": "k"}
    idle, joined, working = f"idle-{number}", f"joined-{number}", f"working-{number}"

    def ask(path: str, body: object) -> dict[str, Any]:
        answer, content = target.ask("POST", path, json.dumps(body).encode(), _JSON, answer_s=ANSWER_S)
        return json.loads(content) if answer.startswith("2") and content else {}

    ask(topics.LIST.path, {"name": topic, "partitions": 3})
    ask(topics.DESCRIBE.at(topic=topic) + "/records", {"records": [record]})
    delayed = ask(topics.DESCRIBE.at(topic=topic) + "/records?delay=1h", {"records": [record]})
    ask(schedules.LIST.path, {"topic": topic, "cron": "* * * * *", "record": record, "schedule_id": topic})
    joins = {"topics": [topic], "session_timeout": "60s", "rebalance_timeout": "1s"}
    member = ask(members.JOIN.path.format(group=joined), joins)
    jobs = ask(queues.RECEIVE.path.format(topic=topic, group=working), {"limit": 2})
    return {
        **_FIXED,
        "topic": topic,
        "topics": [topic],
        "group": idle,
        "group of members": joined,
        "group of queues": working,
        "schedule_id": topic,
        "transaction": ask(transactions.LIST.path, {"transactional_id": topic}).get("id", "x"),
        "delayed_id": (delayed.get("records") or [{}])[0].get("delayed_id", "x"),
        "member": member.get("member_id", "x"),
        "generation": member.get("generation", -1),
        "receipts": [each["receipt"] for each in jobs.get("items", ())] or ["x"],
    }


def bad_bodies(contract: Contract) -> Iterator[Extreme]:
    """Yield requests whose body is invalid as a whole, for each media type of each operation."""
    for good, media_type in contract.bodies():
        for body in BAD_BODIES:
            yield Extreme(
                f"{good.name} {body[:20]!r}", good.method, good.path, {"Content-Type": media_type}, body
            )


def sent(target: Target, contract: Contract, requests: Iterable[Extreme]) -> Counter[str]:
    """Send requests to all brokers, recreate deleted resources that the requests name, and count the
    responses.
    """
    responses: Counter[str] = Counter()
    left, numbers = iter(requests), count()
    contract.known.update(known_to(target, next(numbers)))
    while some := tuple(islice(left, ROUND)):
        responses += target.at_once(AT_ONCE, partial(_answer, target, some), count=len(some))
        contract.known.update(known_to(target, next(numbers)))
    return responses


def _answer(target: Target, requests: tuple[Extreme, ...], number: int) -> str:
    """Return the response as one line; an unexpected response is followed by its request."""
    one = requests[number]
    answer, _ = target.ask(one.method, one.path, one.body, one.headers, broker=number, answer_s=ANSWER_S)
    return f"{answer} ({one.name})" if is_wrong(answer) else answer


ATTACKS: Final = (
    Attack("requests with one mistake", one_mistake, bound_mib=AT_ONCE * 16, is_strict=True),
    Attack("batches, lines, queries, headers", of_the_table, bound_mib=AT_ONCE * 16, is_strict=True),
    Attack("requests drawn from a seed", mixed, bound_mib=AT_ONCE * 16, is_strict=True),
)
