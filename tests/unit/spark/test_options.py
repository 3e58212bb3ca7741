"""Options of the Spark format: names, values, and what is said about wrong ones."""

from __future__ import annotations

import pytest

from raftlog.types import TopicPartition
from spark_io.errors import InvalidOption
from spark_io.options import read_options, write_options
from spark_io.positions import AtTime, Positions

BASE = {"bootstrap.servers": "b1:7070", "subscribe": "orders"}
TWO = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def refused(is_stream: bool = False, **options: str) -> str:
    """Why a read with these options is refused."""
    with pytest.raises(InvalidOption) as error:
        read_options({**BASE, **options}, is_stream=is_stream)
    return str(error.value)


# requirement: A8
def test_an_unknown_option_is_refused_with_the_list_of_known_ones_and_without_its_value() -> None:
    message = refused(startingOffset="hunter2")
    assert message.startswith("startingOffset is not an option of the format raftlog, did you mean startingO")
    assert "subscribePattern" in message
    assert "hunter2" not in message
    with pytest.raises(InvalidOption, match="subscribe is not an option"):
        write_options(BASE, is_stream=True)


def test_names_are_known_in_any_case_and_with_the_prefix_of_kafka() -> None:
    options = {"KAFKA.Bootstrap.Servers": "b1,b2", "SUBSCRIBE": "orders, audit", "includeheaders": "TRUE"}
    found = read_options(options, is_stream=True)
    assert found.servers == ("http://b1:7070", "http://b2:7070")
    assert found.topics.topics == ("orders", "audit")
    assert found.include_headers
    assert (found.isolation, found.fail_on_data_loss, found.group_id) == ("committed", True, None)
    assert found.starting.everywhere == "latest"
    assert read_options(BASE, is_stream=False).starting.everywhere == "earliest"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no'; write true or false"),
        ({"minPartitions": "0"}, "minPartitions is '0'; give a whole number of 1 or more"),
        ({"minPartitions": "3", "maxPartitions": "2"}, "minPartitions is above maxPartitions"),
        ({"groupIdPrefix": "p"}, "groupIdPrefix: a read joins no consumer group; groupId shows"),
        ({"kafka.group.id": "g"}, "kafka.group.id: a read joins no consumer group; groupId shows"),
        ({"isolation": "dirty"}, "choose committed or uncommitted"),
        ({"fetchTimeout": "5"}, "write a duration with its unit"),
        ({"assign": '{"orders":[0]}'}, "exactly one of subscribe, subscribePattern and assign"),
        ({"startingOffsets": "latest"}, "a batch read ends there"),
        ({"endingOffsets": "earliest"}, "so nothing is read"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "so nothing is read"),
        ({"startingOffsets": "{"}, "which is not JSON"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "has -3 for orders/0"),
        ({"subscribe": "", "assign": '{"orders":[0],"orders":[1]}'}, "the name 'orders' is repeated"),
        ({"startingOffsets": '{"orders":{"0":1,"0":2}}'}, "the name '0' is repeated"),
        ({"archive": ""}, "archive is ''; give a name, or leave it out"),
        ({"startingOffsets": '{"orders":{"0":"5"}}'}, 'write it as {"orders": {"0": 23, "1": 45}}'),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"maxOffsetsPerTrigger": "5"}, "is an option of spark.readStream"),
        ({"bootstrap.servers": ""}, "name at least one broker"),
    ],
)
def test_a_wrong_value_is_refused_with_the_remedy(options: dict[str, str], expected: str) -> None:
    assert expected in refused(**options)


def test_a_stream_has_no_end() -> None:
    assert "a stream has no end" in refused(is_stream=True, endingOffsets="latest")


# requirement: A8
def test_a_stream_may_wait_for_records_but_not_for_more_than_it_may_read() -> None:
    limits = read_options({**BASE, "minOffsetsPerTrigger": "7"}, is_stream=True).limits
    assert (limits.min_offsets_per_trigger, limits.max_trigger_delay_s) == (7, 900.0)
    bounds = {"minOffsetsPerTrigger": "7", "maxOffsetsPerTrigger": "6"}
    assert "minOffsetsPerTrigger is above maxOffsetsPerTrigger" in refused(True, **bounds)
    assert "belongs to minOffsetsPerTrigger" in refused(True, maxTriggerDelay="1m")
    assert "is an option of spark.readStream" in refused(minOffsetsPerTrigger="7")


def test_the_password_of_an_address_is_not_shown() -> None:
    message = refused(**{"bootstrap.servers": "ftp://me:hunter2@b1"})
    assert "hunter2" not in message
    assert "//***@b1" in message


# requirement: A8
def test_an_offset_is_needed_for_each_partition_and_for_no_other() -> None:
    positions = read_options(
        {**BASE, "startingOffsets": '{"orders":{"0":7,"1":-2}}'}, is_stream=False
    ).starting
    assert positions.of(TWO) == {TWO[0]: 7, TWO[1]: "earliest"}
    with pytest.raises(InvalidOption, match="no offset for orders/2"):
        positions.of([*TWO, TopicPartition("orders", 2)])
    with pytest.raises(InvalidOption, match="names orders/1, which is not read"):
        positions.of(TWO[:1])


def test_a_time_counts_before_times_of_partitions_and_these_before_offsets() -> None:
    options = {**BASE, "startingOffsets": "earliest"}
    options["startingOffsetsByTimestamp"] = '{"orders":{"0":5}}'
    assert read_options(options, is_stream=True).starting.by_partition == {TWO[0]: AtTime(5)}
    options["startingTimestamp"] = "9"
    assert read_options(options, is_stream=True).starting == Positions("startingTimestamp", AtTime(9))


# requirement: D4
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"txnAppId": "a"}, "txnAppId and txnVersion belong together"),
        ({"txnAppId": "a~b", "txnVersion": "1"}, "use 1 to 180 of the characters"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "whole number from 0 on"),
        ({"delivery": "maybe"}, "choose exactly_once or at_least_once"),
        ({"delivery": "at_most_once"}, "Spark repeats a failed task"),
        ({"delivery": "at_least_once", "stagedTimeout": "1h"}, "leave out stagedTimeout"),
        ({"delivery": "at_least_once", "acks": "1"}, "a record could be lost"),
        ({"acks": "1"}, "a record could be lost"),
        ({"compression": "zip"}, "choose 'none', 'gzip'"),
        ({"linger": "5"}, "linger"),
        ({"batch.bytes": "none"}, "batch.bytes is 'none'; give a whole number"),
        ({"sinkId": "s"}, "sinkId is an option of df.writeStream; here, use txnAppId"),
        ({"path": "orders"}, "name the topic with the option topic"),
        ({"topic": ""}, "topic is ''; give a name, or leave it out"),
    ],
)
def test_wrong_options_of_a_sink_are_refused(options: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidOption) as error:
        write_options({"bootstrap.servers": "b1", **options}, is_stream=False)
    assert expected in str(error.value)


# requirement: D4
def test_a_sink_takes_what_spark_adds() -> None:
    options = {"bootstrap.servers": "b1", "checkpointlocation": "/tmp/c", "queryname": "q", "acks": "every"}
    found = write_options({**options, "delivery": "at_least_once"}, is_stream=True)
    assert (found.delivery, found.producer["acks"]) == ("at_least_once", "every")
    assert write_options(options, is_stream=True).delivery == "exactly_once"
    tuned = write_options(
        {**options, "acks": "quorum", "linger": "5ms", "batch.bytes": "65536"}, is_stream=True
    )
    assert (tuned.producer["linger"], tuned.producer["batch_bytes"]) == ("5ms", 65_536)
    assert tuned.sink_id is None
    with pytest.raises(InvalidOption, match="sinkTakeover belongs to sinkId"):
        write_options({**options, "acks": "quorum", "sinkTakeover": "true"}, is_stream=True)
    with pytest.raises(InvalidOption, match=r"txnVersion is an option of df\.write"):
        write_options({**options, "txnVersion": "1"}, is_stream=True)


# requirement: RP10
def test_executors_may_read_from_the_replicas_of_a_rack() -> None:
    assert read_options(BASE, is_stream=False).place is None
    for name in ("rack", "kafka.client.rack", "client.rack"):
        place = read_options({**BASE, name: "east", "maxStaleness": "5s"}, is_stream=True).place
        assert place is not None
        assert (place.rack, place.max_staleness_ms) == ("east", 5_000)
    assert "give rack, too" in refused(maxStaleness="5s")
    assert "from 500ms to 24h" in refused(rack="east", maxStaleness="1ms")
    assert "rack is ''" in refused(rack="")
