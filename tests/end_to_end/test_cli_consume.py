"""What `raftlog consume` prints, from where to where, and how it ends."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from datetime import UTC, datetime

import pytest

from chaos.cluster import Cluster
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.wire import media_types
from tests.helpers.command_line import command, run
from tests.helpers.undecodable_batch import SECOND_RECORD, undecodable_batch

pytestmark = pytest.mark.e2e


def store_undecodable(cluster: Cluster, topic: str) -> None:
    """Offsets 0, 1 and 4 can be read, 2 and 3 cannot."""
    run(cluster, "topic", "create", topic, "--config", "validate.records=false")
    one, two = (build_batch([Record(value)], codec=Codec.NONE, timestamp_ms=1) for value in (b"one", b"two"))
    request = urllib.request.Request(
        f"{cluster.urls[0]}/v1/topics/{topic}/partitions/0/records",
        one + undecodable_batch(SECOND_RECORD) + two,
        {"Content-Type": media_types.BATCH},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def test_undecodable_batch_ends_consume_behind_what_precedes_it(unbroken: Cluster) -> None:
    store_undecodable(unbroken, "torn")
    output, told = run(unbroken, "consume", "torn", code=1)
    assert output == b"one\nvalue\n"
    assert told.startswith("error (undecodable_batch): the batch of torn/0 with offset 2 cannot be decoded (")
    assert "Exception" not in told
    assert told.endswith("; continue after it with --partition 0 --from 4, or add --skip-undecodable\n")
    assert run(unbroken, "consume", "torn", "--partition", "0", "--from", "4") == (b"two\n", "")
    following = run(unbroken, "consume", "torn", "--follow", code=1)
    assert following == (output, told)


def test_follow_waits_for_an_offset_above_the_end(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "later")
    run(unbroken, "produce", "later", stdin=b"0\n")
    assert "--follow" in run(unbroken, "consume", "later", "--from", "3", code=1)[1]
    process = command(unbroken, "consume", "later", "--follow", "--from", "3", "--max", "1")
    run(unbroken, "produce", "later", stdin=b"1\n2\n")
    run(unbroken, "produce", "later", stdin=b"3\n4\n")
    assert process.communicate(timeout=30) == (b"3\n", b"")
    assert process.returncode == 0


def test_undecodable_batches_are_skipped_and_counted_on_request(unbroken: Cluster) -> None:
    store_undecodable(unbroken, "skipped")
    output, told = run(unbroken, "consume", "skipped", "--skip-undecodable")
    assert output == b"one\nvalue\ntwo\n"
    assert told.splitlines() == [
        "skipped offsets 2 to 3 of skipped/0: they cannot be decoded",
        "skipped 2 offsets that cannot be decoded",
    ]
    assert run(unbroken, "consume", "skipped", "--skip-undecodable", "--max", "2") == (b"one\nvalue\n", "")
    process = command(unbroken, "consume", "skipped", "--skip-undecodable", "--follow", "--from", "-3")
    assert process.stdout is not None
    assert process.stdout.readline() == b"two\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10)[1].decode() == told
    assert process.returncode == 0


def test_from_and_to_take_times_durations_and_offsets(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "timed", "-c", "message.timestamp.type=CreateTime")
    now_ms = round(time.time() * 1_000)
    ages = {"old": 180, "middle": 60, "new": 1}
    produced = [{"value": name, "timestamp": now_ms - 60_000 * minutes} for name, minutes in ages.items()]
    lines = "".join(json.dumps(record) + "\n" for record in produced).encode()
    run(unbroken, "produce", "timed", "--format", "json", "--acks", "all", "-z", "gzip", stdin=lines)
    when = datetime.fromtimestamp(now_ms / 1_000 - 1_800, UTC).isoformat()
    for arguments, shown in (
        (["--from", "2h"], b"middle\nnew\n"),
        (["--from", "2h", "--to", "30m"], b"middle\n"),
        (["--to", when], b"old\nmiddle\n"),
        (["--from", when], b"new\n"),
        (["-o", "1", "--to", "2"], b"middle\n"),
        (["-o", "beginning", "-n", "1"], b"old\n"),
        (["-o", "end"], b""),
        (["--from", "2", "--to", "1"], b""),
        (["--to", "latest", "-p", "0"], b"old\nmiddle\nnew\n"),
    ):
        assert run(unbroken, "consume", "timed", *arguments)[0] == shown, arguments


def test_several_topics_are_printed_one_after_the_other(unbroken: Cluster) -> None:
    for topic in ("second", "first"):
        run(unbroken, "topic", "create", topic)
        run(unbroken, "produce", topic, "-k", "k", "--batch-bytes", "1KiB", stdin=b"1\n2\n")
    shown, _ = run(unbroken, "consume", "first", "second", "--format", r"%T %o %k=%v\n")
    assert shown == b"first 0 k=1\nfirst 1 k=2\nsecond 0 k=1\nsecond 1 k=2\n"
    assert run(unbroken, "consume", "first", "second", "-n", "3")[0] == b"1\n2\n1\n"
    assert "'none'" in run(unbroken, "consume", "first", "none", code=1)[1]


# requirement: A1, A2
def test_messages_of_some_tags_are_printed(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "tagged", "--partitions", "2")
    lines = [
        json.dumps({"key": str(n % 5), "value": n, "tags": ["paid" if n % 10 == 3 else "new"]})
        for n in range(60)
    ]
    run(unbroken, "produce", "tagged", "--json", stdin="\n".join(lines).encode())
    expected = sorted(range(3, 60, 10))
    output = run(unbroken, "consume", "tagged", "--tags", "paid,refunded")[0]
    assert sorted(map(int, output.split())) == expected
    output = run(unbroken, "consume", "tagged", "--tags", "paid", "--group", "of-paid")[0]
    assert sorted(map(int, output.split())) == expected
    assert run(unbroken, "consume", "tagged", "--tags", "paid", "--group", "of-paid") == (b"", "")
    with urllib.request.urlopen(f"{unbroken.urls[0]}/v1/groups/of-paid", timeout=30) as answer:
        assert json.load(answer)["lag"] == 0
    told = run(unbroken, "consume", "tagged", "--tags", "paid,,new", code=2)[1]
    assert "--tags: '' is not a tag; a tag has 1 to 255 characters" in told
