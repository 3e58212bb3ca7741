"""Where a ``:poll`` begins to read."""

from __future__ import annotations

import asyncio

from raftlog.aio import Client
from raftlog.wire import groups as wire
from tests.helpers.whole_broker import TOPIC, send_numbers, whole_broker

MEMBERS, OFFSETS = "/v1/groups/g/members", "/v1/groups/g/offsets"


async def polled(client: Client, body: wire.PollGroup) -> wire.PolledBody:
    """By member ``z``."""
    return (await client._session.ask_any("POST", f"{MEMBERS}/z:poll", body=body)).read(wire.PolledBody)


async def joined(client: Client) -> int:
    """Member ``b`` joins and gets the partition; its generation."""
    ask = client._session.ask_any
    body = wire.JoinGroup(topics=[TOPIC], member_id="b")
    generation = (await ask("POST", MEMBERS, body=body)).read(wire.JoinedBody).generation
    reply = await ask("POST", f"{MEMBERS}/b:sync", body=wire.SyncGroup(generation=generation, plan="auto"))
    assert reply.read(wire.SyncedBody).assignment == [wire.TopicPartitions(TOPIC, [0])]
    return generation


# requirement: D2 G4
async def test_an_acknowledgement_of_an_earlier_generation_takes_nothing_back() -> None:
    async with whole_broker(partitions=1) as broker, Client(broker.url) as client:
        await send_numbers(client, 10)
        first = await polled(client, wire.PollGroup(topics=[TOPIC], wait="0s"))
        body = wire.PollGroup(generation=first.generation, ack=first.positions, wait="20s", max_records=5)
        waiting = asyncio.create_task(polled(client, body))
        generation = await joined(client)  # once that poll has joined again
        await send_numbers(client, 40)
        offset = wire.OffsetCommitBody(TOPIC, 0, 45)
        commit = wire.CommitOffsets(offsets=[offset], member_id="b", generation=generation)
        await client._session.ask_any("PUT", OFFSETS, body=commit)
        await client._session.ask_any("DELETE", f"{MEMBERS}/b")
        later = await waiting
        assert (later.generation, [record.offset for record in later.records]) == (3, [45, 46, 47, 48, 49])
        await polled(client, wire.PollGroup(generation=3, ack=later.positions, wait="0s"))
        assert [row.committed_offset for row in await client.groups.offsets("g")] == [50]


# requirement: D2
async def test_a_repeated_poll_reads_what_its_lost_answer_had() -> None:
    async with whole_broker(partitions=1) as broker, Client(broker.url) as client:
        await send_numbers(client, 10)
        first = await polled(client, wire.PollGroup(topics=[TOPIC], wait="0s", max_records=3))
        body = wire.PollGroup(generation=1, ack=first.positions, wait="0s", max_records=3)
        second = await polled(client, body)
        await polled(client, wire.PollGroup(generation=1, ack=second.positions, wait="0s"))
        again = await polled(client, body)
        assert [record.offset for record in again.records] == [3, 4, 5]
