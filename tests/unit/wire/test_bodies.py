"""The bodies of the contract: names that stay, requests that are strict, answers that are lenient."""

from __future__ import annotations

import msgspec
import pytest

from raftlog.wire import bodies, brokers, partitions, records, topics

REQUESTS = [bodies.CreateTopic, bodies.ChangeTopic, bodies.NewRecord, bodies.Produce, bodies.CreateProducer]


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_refuses_fields_that_it_does_not_know(kind: type[msgspec.Struct]) -> None:
    assert issubclass(kind, bodies.Request)
    with pytest.raises(msgspec.ValidationError, match="unknown field `misspelt`"):
        msgspec.json.decode(b'{"misspelt":1}', type=kind)


def test_an_answer_may_have_fields_from_the_future() -> None:
    text = b'{"producer_id":7,"producer_epoch":0,"from_the_future":[1]}'
    assert msgspec.json.decode(text, type=bodies.ProducerIdentity) == bodies.ProducerIdentity(7, 0)


def test_a_receipt_has_either_a_place_or_a_problem() -> None:
    assert msgspec.json.encode(bodies.RecordReceipt(1, 42, 5)) == b'{"partition":1,"offset":42,"timestamp":5}'
    failed = bodies.RecordReceipt(status=503, problem={"code": "no_leader"})
    assert msgspec.json.encode(failed) == b'{"status":503,"problem":{"code":"no_leader"}}'


def test_a_fetched_record_has_the_fields_of_the_contract() -> None:
    record = bodies.FetchedRecord(
        offset=42,
        timestamp=1,
        timestamp_type="LogAppendTime",
        key="u1",
        value=msgspec.Raw(b'{"id":1}'),
        encoding="json",
        headers={"source": "web"},
        tags=["created"],
        size_bytes=31,
        crc=7,
    )
    encoded = msgspec.json.encode(record)
    assert encoded == (
        b'{"offset":42,"timestamp":1,"timestamp_type":"LogAppendTime","key":"u1","value":{"id":1},"encoding":"json",'
        b'"headers":{"source":"web"},"tags":["created"],"size_bytes":31,"crc":7}'
    )
    assert bytes(msgspec.json.decode(encoded, type=bodies.FetchedRecord).value) == b'{"id":1}'


def test_paths_are_filled_and_quoted() -> None:
    assert topics.DESCRIBE.at(topic="a.b") == "/v1/topics/a.b"
    assert topics.DESCRIBE.at(topic="a/../b") == "/v1/topics/a%2F..%2Fb"
    assert topics.CONFIG.at(topic="o") == "/v1/topics/o/config"
    assert records.PRODUCE.at(topic="o") == "/v1/topics/o/records"
    assert partitions.LIST.at(topic="o") == "/v1/topics/o/partitions"
    assert partitions.DESCRIBE.at(topic="o", partition=1) == "/v1/topics/o/partitions/1"
    assert records.FETCH.at(topic="o", partition=1) == "/v1/topics/o/partitions/1/records"
    assert partitions.OFFSET_AT.at(topic="o", partition=1) == "/v1/topics/o/partitions/1/offsets"
    assert records.DESCRIBE.at(topic="o", partition=1, offset=42) == "/v1/topics/o/partitions/1/records/42"
    assert brokers.DESCRIBE.at(broker=3) == "/v1/brokers/3"
