"""Transactions as a resource, with offsets of groups: responses, and refusals with a field and a remedy."""

from __future__ import annotations

import msgspec
import pytest

from raftlog.errors import NoLeader
from raftlog.records.builder import with_producer
from tests.helpers.http_server import HttpServer, Reply, served
from tests.helpers.producing import BINARY, ORDERS_0, PARTITION, TOPIC, one_batch
from transactions import listing
from transactions.records import Handle
from transactions.requests import Join, OfOneId, ReadTransaction
from transactions.requests import Reply as ReplyOfCoordinator

TRANSACTIONS = "/v1/transactions"


async def opened(server: HttpServer, name: str = "copy-1", **more: object) -> dict[str, object]:
    """A new transaction."""
    answer = await server.post(TRANSACTIONS, {"transactional_id": name, **more})
    assert answer.status == 201, answer.json
    assert answer.headers["location"] == f"{TRANSACTIONS}/{answer.json['id']}"
    return dict(answer.json)


async def joined(server: HttpServer, one: dict[str, object]) -> None:
    """A partition takes part, as with its first batch."""
    handle = Handle.parse(str(one["id"]))
    assert handle is not None
    request = Join(transaction=handle, partitions=(("orders", 0),))
    await server.cluster.services.transactions.ask(request, timeout_ms=1_000)


def items(reply: Reply) -> list[dict[str, object]]:
    """Of a page."""
    return msgspec.convert(reply.json["items"], list[dict[str, object]])


def sent_in(transaction: dict[str, object], **more: str) -> dict[str, str]:
    """The headers of a produce."""
    return {"Raftlog-Transaction": str(transaction["id"]), **more}


# requirement: D3
@served(partitions=3)
async def test_a_transaction_is_opened_written_to_and_committed(server: HttpServer) -> None:
    one = await opened(server, timeout="5s")
    assert one["id"] == f"copy-1@{one['producer_id']}.0"
    assert one["timeout_ms"] == 5_000
    records = {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 0}]}
    for path in (TOPIC, PARTITION):
        assert (await server.call("POST", path, records, sent_in(one))).status == 200
    for batch in server.cluster.gateway.log(ORDERS_0).batches:
        header = batch.header
        assert header.is_transactional
        assert not header.is_sequenced
        assert (header.producer_id, header.producer_epoch) == (one["producer_id"], 0)
    ended = await server.post(f"{TRANSACTIONS}/{one['id']}:commit")
    following = f"copy-1@{one['producer_id']}.1"
    assert ended.json == {"id": one["id"], "outcome": "committed", "next_id": following}
    assert (await server.post(f"{TRANSACTIONS}/{one['id']}:commit")).json == ended.json
    assert (await server.post(f"{TRANSACTIONS}/{one['id']}:abort")).json == ended.json, "too late"
    found = await server.get(f"{TRANSACTIONS}/{one['id']}")
    assert (found.json["id"], found.json["state"]) == (one["id"], "committed")
    newest = await server.get(f"{TRANSACTIONS}/copy-1")
    assert (newest.json["id"], newest.json["state"]) == (following, "complete")


@served()
async def test_a_new_incarnation_fences_the_one_before(server: HttpServer) -> None:
    before = await opened(server)
    after = await opened(server)
    assert after["producer_epoch"] == 1
    refused = await server.post(f"{TRANSACTIONS}/{before['id']}:commit")
    assert (refused.status, refused.code) == (403, "producer_fenced")
    ended = await server.post(f"{TRANSACTIONS}/{after['id']}:commit")
    later = await opened(server, after=ended.json["id"])
    assert later["producer_epoch"] == 3
    late = await server.post(TRANSACTIONS, {"transactional_id": "copy-1", "after": before["id"]})
    assert late.code == "producer_fenced"


@served(partitions=3)
async def test_open_transactions_are_listed_and_aborted_by_operators(server: HttpServer) -> None:
    first, second = await opened(server, "a"), await opened(server, "b")
    assert items(await server.get(TRANSACTIONS)) == [], "nothing was written"
    for one in (first, second):
        await joined(server, one)
    page = await server.get(f"{TRANSACTIONS}?limit=1")
    (shown,) = items(page)
    assert (shown["id"], shown["state"]) == (first["id"], "ongoing")
    assert shown["partitions"] == [{"topic": "orders", "partitions": [0]}]
    assert shown["changed_at"] == shown["began_at"], "with its first record"
    token = page.json["next_page_token"]
    rest = await server.get(f"{TRANSACTIONS}?limit=1&page_token={token}")
    assert [each["transactional_id"] for each in items(rest)] == ["b"]
    aborted = await server.post(f"{TRANSACTIONS}/b:abort")
    assert aborted.json["state"] == "complete"
    assert (await server.get(f"{TRANSACTIONS}/{second['id']}")).json["state"] == "aborted"
    assert len(items(await server.get(f"{TRANSACTIONS}?state=all"))) == 2


# requirement: D3
@pytest.mark.parametrize(("path", "state"), [("sink~1:abort", "complete"), ("{id}:prepare", "prepared")])
@served(partitions=3)
async def test_a_change_that_cannot_be_shown_is_an_unknown_outcome(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, path: str, state: str
) -> None:
    one = await opened(server, "sink~1")
    await joined(server, one)
    service = server.cluster.services.transactions
    ask = service.ask

    changes: list[OfOneId] = []

    async def unread(request: OfOneId, *, timeout_ms: int) -> ReplyOfCoordinator:
        """Nothing can be read after a change."""
        if not isinstance(request, ReadTransaction):
            changes.append(request)
        elif changes:
            raise NoLeader("__transactions/0 has no leader")
        return await ask(request, timeout_ms=timeout_ms)

    monkeypatch.setattr(service, "ask", unread)
    body = {"timeout": "10m"} if "prepare" in path else None
    told = await server.post(f"{TRANSACTIONS}/{path.format(**one)}", body)
    assert (told.status, told.code) == (504, "commit_unknown")
    assert "has no leader" in str(told.json["detail"])
    changes.clear()
    unknown = await server.post(f"{TRANSACTIONS}/nobody:abort")
    assert (unknown.status, unknown.code) == (404, "transaction_not_found"), "nothing is done"
    monkeypatch.undo()
    assert (await server.get(f"{TRANSACTIONS}/sink~1")).json["state"] == state


# requirement: D3
@served()
async def test_a_run_of_a_sink_registers_and_fences_the_run_before(server: HttpServer) -> None:
    first = {"sink_key": "sink", "owner": "q", "run": "r1", "sequence": 0}
    for _ in range(2):
        begun = await server.post(f"{TRANSACTIONS}:begin-run", first)
        assert begun.json == {"sink_key": "sink", "run_epoch": 1, "committed": False}
    ask = {"transactional_id": "sink~1", "run_epoch": 1}
    one = (await server.post(TRANSACTIONS, ask)).json
    await joined(server, one)
    second = await server.post(f"{TRANSACTIONS}:begin-run", {**first, "run": "r2"})
    assert second.json["run_epoch"] == 2
    assert (await server.get(f"{TRANSACTIONS}/{one['id']}")).json["state"] == "aborted"
    assert (await server.post(TRANSACTIONS, ask)).code == "producer_fenced"
    batch = {"sink_key": "sink", "sequence": 0, "transactions": [], "run": "r1", "run_epoch": 1}
    assert (await server.post(f"{TRANSACTIONS}:commit-batch", batch)).code == "producer_fenced"
    batch |= {"run": "r2", "run_epoch": 2}
    assert (await server.post(f"{TRANSACTIONS}:commit-batch", batch)).json["outcome"] == "committed"
    third = await server.post(f"{TRANSACTIONS}:begin-run", {**first, "run": "r3"})
    assert third.json == {"sink_key": "sink", "run_epoch": None, "committed": True}
    rest = {"sink_key": "sink", "transactions": [], "run_epoch": 2}
    assert (await server.post(f"{TRANSACTIONS}:abort-batch", rest)).json["outcome"] == "aborted"


@served(partitions=3)
async def test_binary_batches_have_the_producer_of_their_transaction(server: HttpServer) -> None:
    one = await opened(server)
    plain = await server.call("POST", PARTITION, one_batch(b"a"), BINARY | sent_in(one))
    assert (plain.status, plain.json["field"]) == (422, "Raftlog-Transaction")
    number = int(str(one["producer_id"]))
    right = with_producer(one_batch(b"a"), number, 0, 0, in_transaction=True)
    assert (await server.call("POST", PARTITION, right, BINARY | sent_in(one))).status == 200
    without = await server.call("POST", PARTITION, right, BINARY)
    assert without.status == 422


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (TRANSACTIONS, {"transactional_id": "a b"}, "/transactional_id"),
        (TRANSACTIONS, {"transactional_id": "a", "timeout": "1h"}, "timeout"),
        (TRANSACTIONS, {"transactional_id": "a", "after": "a"}, "after"),
        (f"{TRANSACTIONS}/copy-1:commit", None, "transaction"),
        (f"{TRANSACTIONS}/a@b.c:abort", None, "transaction"),
        (f"{TRANSACTIONS}/a@1.0:prepare", {"timeout": "61m"}, "timeout"),  # its readers wait so long
        (
            f"{TRANSACTIONS}:commit-batch",
            {"sink_key": "k", "sequence": 1, "transactions": []},
            "transactions",
        ),
        (f"{TRANSACTIONS}:abort-batch", {"sink_key": "k", "transactions": ["k"]}, "transactions"),
    ],
)
@served()
async def test_a_refusal_names_the_field(server: HttpServer, path: str, body: object, field: str) -> None:
    refused = await server.call("POST", path, body, {})
    assert (refused.status, refused.json["field"]) == (422, field)


@pytest.mark.parametrize(
    ("added", "field"),
    [
        ({"Raftlog-Transaction": "nonsense"}, "Raftlog-Transaction"),
        ({"Raftlog-Transaction": "a@1.0", "Raftlog-Producer-Id": "1"}, "Raftlog-Producer-Id"),
        ({"Raftlog-Transaction": "a@1.0", "Raftlog-Producer-Sequence": "-1"}, "Raftlog-Producer-Sequence"),
    ],
)
@served(partitions=3)
async def test_a_produce_names_one_transaction(server: HttpServer, added: dict[str, str], field: str) -> None:
    refused = await server.call("POST", PARTITION, {"records": [{"value": 1}]}, added)
    assert (refused.status, refused.json["field"]) == (422, field)


@served()
async def test_an_unknown_transaction_is_not_found(server: HttpServer) -> None:
    for path in (f"{TRANSACTIONS}/nobody", f"{TRANSACTIONS}/nobody@1.0"):
        answer = await server.get(path)
        assert (answer.status, answer.code) == (404, "transaction_not_found")
    ended = await server.post(f"{TRANSACTIONS}/nobody@1.0:commit")
    assert ended.code == "outcome_forgotten"


OFFSETS = "/v1/groups/copiers/offsets"


async def opened_id(server: HttpServer, name: str = "copy-1", **more: object) -> str:
    """The id of a new transaction."""
    answer = await server.post(TRANSACTIONS, {"transactional_id": name, **more})
    assert answer.status == 201, answer.json
    return str(answer.json["id"])


async def topic(server: HttpServer) -> None:
    """With five records in partition 0."""
    await server.topic()
    records = {"records": [{"value": number, "partition": 0} for number in range(5)]}
    assert (await server.call("POST", "/v1/topics/orders/records", records, {})).status == 200


def place(offset: int) -> dict[str, object]:
    """An offset of partition 0."""
    return {"topic": "orders", "partition": 0, "offset": offset}


async def added(server: HttpServer, transaction: str, offset: int, **more: object) -> Reply:
    """Add one offset of partition 0."""
    body = {"group": "copiers", "offsets": [place(offset)], **more}
    return await server.post(f"{TRANSACTIONS}/{transaction}:add-offsets", body)


async def committed(server: HttpServer) -> list[tuple[int, int]]:
    """Partitions and their committed offsets."""
    found = (await server.get(f"{OFFSETS}?lag=false")).json
    return [(item["partition"], item["committed_offset"]) for item in found["items"]]


# requirement: D3
@served(prepare=topic)
async def test_offsets_are_committed_with_their_transaction(server: HttpServer) -> None:
    one = await opened_id(server)
    for offset in (2, 3):
        answer = await added(server, one, offset)
        assert (answer.status, answer.json) == (200, {"id": one, "group": "copiers"})
    newest = (await server.get(f"{TRANSACTIONS}/copy-1")).json
    assert (newest["state"], newest["groups"], newest["partitions"]) == ("ongoing", ["copiers"], [])
    assert await committed(server) == []
    pending = (await server.get(OFFSETS)).json["pending"]
    assert pending == [{"topic": "orders", "partition": 0, "offset": 3, "transaction": one}]
    ended = await server.post(f"{TRANSACTIONS}/{one}:commit")
    assert ended.json["outcome"] == "committed"
    assert await committed(server) == [(0, 3)]
    assert (await server.get(OFFSETS)).json["pending"] == []


async def member(server: HttpServer) -> int:
    """``m-1`` joins and gets all partitions; its generation."""
    joined = await server.post("/v1/groups/copiers/members", {"topics": ["orders"], "member_id": "m-1"})
    generation = joined.json["generation"]
    body = {"generation": generation, "assignments": "auto"}
    assert (await server.post("/v1/groups/copiers/members/m-1:sync", body)).status == 200
    return int(str(generation))


# requirement: D3
@served(prepare=topic)
async def test_a_member_adds_offsets_of_its_generation(server: HttpServer) -> None:
    one, generation = await opened_id(server), await member(server)
    assert (await added(server, one, 3)).code == "conflict"
    stale = await added(server, one, 3, member_id="m-1", generation=generation - 1)
    assert (stale.status, stale.code) == (409, "stale_generation")
    stranger = await added(server, one, 3, member_id="m-2", generation=generation)
    assert (stranger.status, stranger.code) == (404, "member_not_found")
    assert (await added(server, one, 3, member_id="m-1", generation=generation)).status == 200
    await server.post(f"{TRANSACTIONS}/{one}:commit")
    (item,) = (await server.get(OFFSETS)).json["items"]
    assert (item["committed_offset"], item["member_id"]) == (3, "m-1")
    assert (item["generation"], item["lag"]) == (generation, 2)


# requirement: D3
@served(prepare=topic)
async def test_a_consumer_waits_for_the_end_and_an_operator_does_not(server: HttpServer) -> None:
    await server.call("PUT", OFFSETS, {"offsets": [place(1)]}, {})
    one = await opened_id(server)
    await added(server, one, 3)
    await member(server)
    for query in ("stable=true", "stable=true&member_id=m-1"):
        strict = await server.get(f"{OFFSETS}?{query}")
        assert (strict.status, strict.code) == (409, "offsets_pending")
        assert (strict.json["retryable"], strict.json["transaction"]) == (True, one)
    polled = await server.post("/v1/groups/copiers/members/m-1:poll", {"generation": 1, "wait": "0s"})
    assert (polled.status, polled.code) == (409, "offsets_pending")
    described = await server.get(OFFSETS)
    assert [item["committed_offset"] for item in described.json["items"]] == [1]
    assert [each["transaction"] for each in described.json["pending"]] == [one]
    assert (await server.get("/v1/groups/copiers")).json["lag"] == 4
    await server.post(f"{TRANSACTIONS}/{one}:commit")
    assert (await server.get(f"{OFFSETS}?stable=true&member_id=m-1")).status == 200
    polled = await server.post("/v1/groups/copiers/members/m-1:poll", {"generation": 1, "wait": "0s"})
    assert [record["offset"] for record in polled.json["records"]] == [3, 4]


@served(prepare=topic)
async def test_offsets_of_other_members_hold_no_consumer_back(server: HttpServer) -> None:
    await server.post("/v1/topics", {"name": "bills"})
    one = await opened_id(server)
    body = {"group": "copiers", "offsets": [{"topic": "bills", "partition": 0, "offset": 0}]}
    assert (await server.post(f"{TRANSACTIONS}/{one}:add-offsets", body)).status == 200
    await member(server)
    assert (await server.get(f"{OFFSETS}?stable=true&member_id=m-1")).status == 200
    assert (await server.get(f"{OFFSETS}?stable=true")).code == "offsets_pending"
    stranger = await server.get(f"{OFFSETS}?stable=true&member_id=m-2")
    assert (stranger.status, stranger.code) == (404, "member_not_found")


@served(prepare=topic)
async def test_commits_resets_and_deletions_wait_for_the_end(server: HttpServer) -> None:
    one = await opened_id(server)
    await added(server, one, 3)
    commit = await server.call("PUT", OFFSETS, {"offsets": [place(1)]}, {})
    assert (commit.status, commit.code) == (409, "offsets_pending")
    body = {"to": "earliest", "topics": ["orders"], "force": True}
    assert (await server.post(f"{OFFSETS}:reset", body)).code == "offsets_pending"
    deleted = await server.call("DELETE", "/v1/groups/copiers", None, {})
    assert (deleted.status, deleted.code) == (409, "conflict")
    await server.post(f"{TRANSACTIONS}/copy-1:abort")
    assert (await server.post(f"{OFFSETS}:reset", body)).status == 200
    assert await committed(server) == [(0, 0), (1, 0), (2, 0)]


# requirement: D3
@served(prepare=topic)
async def test_a_batch_of_a_sink_commits_offsets(server: HttpServer) -> None:
    one = await opened_id(server, "sink~1")
    await added(server, one, 3)
    prepared = (await server.post(f"{TRANSACTIONS}/{one}:prepare", {"timeout": "10m"})).json
    assert (prepared["state"], prepared["groups"]) == ("prepared", ["copiers"])
    late = await added(server, one, 4)
    assert (late.status, late.code) == (403, "producer_fenced")
    body = {"sink_key": "sink", "sequence": 1, "transactions": [one]}
    ended = await server.post(f"{TRANSACTIONS}:commit-batch", body)
    assert ended.json == {"sink_key": "sink", "outcome": "committed", "transactions": [one]}
    assert await committed(server) == [(0, 3)]


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"offsets": [place(1)]}, 422, "invalid_request", "/group"),
        ({"group": "a b", "offsets": [{}]}, 422, "invalid_request", None),
        ({"group": "g", "offsets": []}, 422, "invalid_request", "/offsets"),
        (
            {"group": "g", "generation": 3, "offsets": [place(1)]},
            422,
            "invalid_request",
            "member_id",
        ),
        (
            {"group": "g", "offsets": [place(9)]},
            416,
            "offset_out_of_range",
            None,
        ),
        (
            {"group": "g", "offsets": [{"topic": "none", "partition": 0, "offset": 0}]},
            404,
            "topic_not_found",
            None,
        ),
    ],
)
@served(prepare=topic)
async def test_what_is_refused_joins_nothing(
    server: HttpServer, body: object, status: int, code: str, field: str | None
) -> None:
    one = await opened_id(server)
    refused = await server.post(f"{TRANSACTIONS}/{one}:add-offsets", body)
    assert (refused.status, refused.code) == (status, code), refused.json
    assert field is None or refused.json["field"] == field
    assert (await server.get(f"{TRANSACTIONS}/copy-1")).json["groups"] == []


# requirement: N2
@served(partitions=3)
async def test_a_page_of_transactions_with_many_partitions_is_short(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PARTS_MAX", 2)
    for number in range(5):
        await joined(server, await opened(server, f"copy-{number}"))
    found, sizes, token = list[object](), list[int](), "copy"
    while token:
        page = await server.get(f"{TRANSACTIONS}?page_token={token}")
        sizes.append(len(items(page)))
        found += [item["transactional_id"] for item in items(page)]
        token = str(page.json.get("next_page_token") or "")
    assert sizes == [2, 2, 1]
    assert found == [f"copy-{number}" for number in range(5)]
