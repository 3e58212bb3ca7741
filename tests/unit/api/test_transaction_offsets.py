"""Offsets of consumer groups in transactions, over HTTP."""

from __future__ import annotations

import pytest

from tests.helpers.http_server import HttpServer, Reply, served

TRANSACTIONS = "/v1/transactions"
OFFSETS = "/v1/groups/copiers/offsets"


async def opened(server: HttpServer, name: str = "copy-1", **more: object) -> str:
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
    one = await opened(server)
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


# requirement: D3
@served(prepare=topic)
async def test_an_abort_drops_them(server: HttpServer) -> None:
    one = await opened(server)
    await added(server, one, 3)
    ended = await server.post(f"{TRANSACTIONS}/{one}:abort")
    assert await committed(server) == []
    late = await added(server, one, 4)
    assert (late.status, late.code) == (409, "transaction_aborted")
    following = str(ended.json["next_id"])
    assert (await added(server, following, 2)).status == 200
    await server.post(f"{TRANSACTIONS}/{following}:commit")
    assert await committed(server) == [(0, 2)]


async def member(server: HttpServer) -> int:
    """``m-1`` joins and gets all partitions; its generation."""
    joined = await server.post("/v1/groups/copiers/members", {"topics": ["orders"], "member_id": "m-1"})
    generation = joined.json["generation"]
    body = {"generation": generation, "plan": "auto"}
    assert (await server.post("/v1/groups/copiers/members/m-1:sync", body)).status == 200
    return int(str(generation))


# requirement: D3
@served(prepare=topic)
async def test_a_member_adds_offsets_of_its_generation(server: HttpServer) -> None:
    one, generation = await opened(server), await member(server)
    assert (await added(server, one, 3)).code == "conflict"
    stale = await added(server, one, 3, member_id="m-1", generation=generation - 1)
    assert (stale.status, stale.code) == (409, "generation_stale")
    stranger = await added(server, one, 3, member_id="m-2", generation=generation)
    assert (stranger.status, stranger.code) == (404, "member_unknown")
    assert (await added(server, one, 3, member_id="m-1", generation=generation)).status == 200
    await server.post(f"{TRANSACTIONS}/{one}:commit")
    (item,) = (await server.get(OFFSETS)).json["items"]
    assert (item["committed_offset"], item["member_id"]) == (3, "m-1")
    assert (item["generation"], item["lag"]) == (generation, 2)


# requirement: D3
@served(prepare=topic)
async def test_a_consumer_that_takes_over_waits_for_the_end_and_an_operator_does_not(
    server: HttpServer,
) -> None:
    await server.call("PUT", OFFSETS, {"offsets": [place(1)]}, {})
    one = await opened(server)
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
    one = await opened(server)
    body = {"group": "copiers", "offsets": [{"topic": "bills", "partition": 0, "offset": 0}]}
    assert (await server.post(f"{TRANSACTIONS}/{one}:add-offsets", body)).status == 200
    await member(server)
    assert (await server.get(f"{OFFSETS}?stable=true&member_id=m-1")).status == 200
    assert (await server.get(f"{OFFSETS}?stable=true")).code == "offsets_pending"
    stranger = await server.get(f"{OFFSETS}?stable=true&member_id=m-2")
    assert (stranger.status, stranger.code) == (404, "member_unknown")


@served(prepare=topic)
async def test_commits_resets_and_deletions_wait_for_the_end(server: HttpServer) -> None:
    one = await opened(server)
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
async def test_a_new_incarnation_aborts_the_offsets_of_the_one_before(server: HttpServer) -> None:
    before = await opened(server)
    await added(server, before, 3)
    after = await opened(server)
    late = await added(server, before, 3)
    assert late.code in ("producer_fenced", "transaction_aborted")
    assert (await server.get(f"{OFFSETS}?stable=true")).status == 200
    await added(server, after, 2)
    await server.post(f"{TRANSACTIONS}/{after}:commit")
    assert await committed(server) == [(0, 2)]


# requirement: D3
@served(prepare=topic)
async def test_a_batch_of_a_sink_commits_offsets(server: HttpServer) -> None:
    one = await opened(server, "sink~1")
    await added(server, one, 3)
    assert (await server.post(f"{TRANSACTIONS}/{one}:prepare")).json["groups"] == ["copiers"]
    late = await added(server, one, 4)
    assert (late.status, late.code) == (403, "producer_fenced")
    body = {"key": "sink", "sequence": 1, "transactions": [one]}
    assert (await server.post(f"{TRANSACTIONS}:commit-batch", body)).status == 200
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
    one = await opened(server)
    refused = await server.post(f"{TRANSACTIONS}/{one}:add-offsets", body)
    assert (refused.status, refused.code) == (status, code), refused.json
    assert field is None or refused.json["field"] == field
    assert (await server.get(f"{TRANSACTIONS}/copy-1")).json["groups"] == []
