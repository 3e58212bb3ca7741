"""``raftlog produce`` and ``consume`` with the HTTP application of a broker: what goes in and comes out."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result

from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.wire import media_types
from raftlog.wire import records as record_operations
from raftlog.wire.limits import INT64_MAX
from tests.helpers.async_tests import beside
from tests.helpers.command_line import RAFTLOG, Commands, invoke
from tests.helpers.http_server import serve
from tests.helpers.real_cluster import call
from tests.helpers.undecodable_batch import SECOND_RECORD, undecodable_batch

NOWHERE = "http://127.0.0.1:9"


class Records(Commands):
    """Commands about records that use one server."""

    def __init__(self, url: str, directory: Path) -> None:
        super().__init__(url)
        self.directory = directory

    def topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic; config keys are named with underscores."""
        body = {
            "name": name,
            "partitions": partitions,
            "replication_factor": 1,
            "config": {key.replace("_", "."): value for key, value in config.items()},
        }
        assert call(self.url, "POST", "/v1/topics", body).status == 201

    def produce(self, topic: str, content: bytes, *arguments: str, code: int = 0) -> str:
        """The messages of a command that stores a file."""
        file = self.directory / topic
        file.write_bytes(content)
        return invoke(self.url, "produce", topic, str(file), *arguments, code=code).stderr

    def ended(self, *arguments: str, code: int = 0) -> Result:
        """A command that prints messages."""
        return invoke(self.url, "consume", *arguments, code=code)

    def consume(self, *arguments: str) -> bytes:
        """The messages that are printed."""
        return self.ended(*arguments).stdout_bytes

    def store_undecodable(self, topic: str) -> None:
        """Offsets 0, 1 and 4 can be read, 2 and 3 cannot."""
        self.topic(topic, validate_records="false")
        one, two = (
            build_batch([Record(value)], codec=Codec.NONE, timestamp_ms=1) for value in (b"one", b"two")
        )
        data = one + undecodable_batch(SECOND_RECORD) + two
        sent = {"Content-Type": media_types.BATCH}
        assert (
            call(
                self.url,
                "POST",
                record_operations.PRODUCE_TO_PARTITION.at(topic=topic, partition=0),
                data,
                sent,
            ).status
            == 200
        )


@pytest.fixture(scope="module")
def raftlog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    with beside(serve(brokers=1)) as server:
        yield Records(server.advertise().url, tmp_path_factory.mktemp("files"))


def lines(count: int) -> bytes:
    return b"".join(b"%07d %s\n" % (number, b"x" * 90) for number in range(count))


def test_what_goes_in_comes_out_byte_by_byte(raftlog: Records) -> None:
    raftlog.topic("bytes")
    data = b"\x00\xff\xfe binary\r\n\n" + lines(2_000)
    told = raftlog.produce("bytes", data, "--compression", "zstd")
    assert told.startswith("2002 records, ")
    assert "p99" in told
    assert raftlog.consume("bytes") == data
    assert raftlog.consume("bytes", "--from", "-2", "--limit", "1") == data.split(b"\n")[-3] + b"\n"


def test_records_pass_through_json_unchanged(raftlog: Records) -> None:
    for topic in ("source", "copy"):
        raftlog.topic(topic, 2)
    rich = (
        b'{"key": "u1", "value": {"id": 1}, "headers": {"a": "b"}, "tags": ["new"]}\n'
        b'{"value": "/w==", "encoding": "base64"}\n'
    )
    raftlog.produce("source", rich, "--json", "-H", "from=test")
    raftlog.produce("source", b"k\tv\n", "--key-separator", r"\t")
    shown = raftlog.consume("source", "--format", "json")
    raftlog.produce("copy", shown, "--format", "json", "--keep-partitions")
    form = ("--format", r"%p %o %k %v %h\n")
    assert raftlog.consume("copy", *form) == raftlog.consume("source", *form)
    assert b'u1 {"id":1} from=test,a=b,raftlog.tag=new' in raftlog.consume("copy", *form)


def test_consumed_lines_go_to_a_topic_with_fewer_partitions(raftlog: Records) -> None:
    raftlog.topic("many", 4)
    raftlog.topic("few")
    raftlog.produce("many", b"".join(b"%d:v\n" % n for n in range(20)), "--key-separator", ":")
    shown = raftlog.consume("many", "--format", "json")
    assert b'"partition":3' in shown
    raftlog.produce("few", shown, "--format", "json")
    assert raftlog.consume("few") == b"v\n" * 20
    told = raftlog.produce("few", shown, "--format", "json", "--keep-partitions", code=1)
    assert "partition_not_found" in told


def test_too_large_a_record_names_the_setting_and_small_ones_fit(raftlog: Records) -> None:
    raftlog.topic("narrow", max_message_bytes="2000")
    told = raftlog.produce("narrow", b"x" * 5_000, code=1)
    assert "max.message.bytes of the topic is 2000; send a smaller record or raise the setting" in told
    told = raftlog.produce("narrow", b"a\n" + bytes(17 << 20), code=1)
    assert "line 2: the line has more than 16777216 bytes, which exceeds any max.message.bytes" in told
    raftlog.produce("narrow", lines(1_000))
    assert raftlog.consume("narrow") == b"a\n" + lines(1_000)


def test_a_file_is_one_record_if_it_is_said_so(raftlog: Records) -> None:
    raftlog.topic("images")
    image = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100
    raftlog.produce("images", image, "--whole", "--key", "a.png")
    raftlog.produce("images", b"", "--whole")
    assert raftlog.consume("images", "--format", "%v") == image
    assert raftlog.consume("images", "--format", "%k %s\n").startswith(b"a.png ")
    told = raftlog.produce("images", bytes((16 << 20) + 1), "--whole", code=1)
    assert "the line has more than 16777216 bytes" in told
    assert "--whole is for" in raftlog.produce("images", b"{}", "--whole", "--json", code=2)


def test_garbage_among_json_names_its_line_and_keeps_what_came_before(raftlog: Records) -> None:
    raftlog.topic("garbage")
    told = raftlog.produce("garbage", b'{"value": "a"}\n\n{oops\n{"value": 2}\n', "--json", code=1)
    assert told.startswith("1 record, ")
    assert "line 3: " in told
    assert raftlog.consume("garbage") == b"a\n"


# requirement: A12
def test_rejected_lines_are_in_a_file_and_all_others_are_stored(raftlog: Records) -> None:
    raftlog.topic("rows", max_message_bytes="2000")
    rows = b'id,text\n1,a\n2\n3,"x\ny"\n4,%b\n5,\xff\n6,z' % (b"x" * 5_000)
    rejected = raftlog.directory / "rejected.jsonl"
    how = ("--input", "csv", "--key-column", "id", "--rejects", str(rejected))
    told = raftlog.produce("rows", rows, *how, code=5)
    assert told.startswith("3 records, ")
    assert told.endswith("; 3 lines rejected\n")
    form = ("--format", r"%k=%v\n")
    assert raftlog.consume("rows", *form) == (
        b'1={"id":"1","text":"a"}\n3={"id":"3","text":"x\\ny"}\n6={"id":"6","text":"z"}\n'
    )
    entries = [json.loads(line) for line in rejected.read_text().splitlines()]
    assert sorted((each["line"], each["input"][:3], each["encoding"]) for each in entries) == [
        (3, "2", "utf8"),
        (6, "4,x", "utf8"),
        (7, "NSz", "base64"),
    ]
    assert {each["line"]: each["reason"] for each in entries}[6].endswith(
        "send a smaller record or raise the setting"
    )
    told = raftlog.produce("rows", b"id\n7\n8,\n9,\n10\n", *how[:4], "--max-rejects", "1", code=1)
    assert "1 record, " in told
    assert "the first of them, line 4: the row has 2 cells" in told
    told = raftlog.produce("rows", b"id\n7\n8,\n9\n", *how, "--delivery", "exactly_once", code=5)
    assert told.startswith("2 records, ")
    assert rejected.read_text().count("\n") == 1
    assert "there is no column 'id'" in raftlog.produce("rows", b"a\n1\n", *how, code=1)


# requirement: A12
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_of_a_compacted_topic_only_lines_without_a_key_are_rejected(raftlog: Records, delivery: str) -> None:
    topic = f"compacted-{delivery}"
    raftlog.topic(topic, cleanup_policy="compact,delete")
    rows = b'{"key": "a", "value": 1}\n{"value": 2}\n{"key": "b", "value": 3}\n{"key": "a", "value": 4}\n'
    rejected = raftlog.directory / "without-key.jsonl"
    how = ("--json", "--delivery", delivery)
    raftlog.produce(topic, rows, *how, "--rejects", str(rejected), code=5)
    assert raftlog.consume(topic, "--format", r"%k %v\n") == b"a 1\nb 3\na 4\n"
    (entry,) = map(json.loads, rejected.read_text().splitlines())
    assert (entry["line"], entry["input"]) == (2, '{"value": 2}')
    assert "the record has no key, but the topic is compacted" in entry["reason"]


# requirement: D4
def test_a_line_that_is_no_record_aborts_a_transaction_and_is_its_only_error(raftlog: Records) -> None:
    raftlog.topic("aborted")
    rows = b'{"value": 1}\n{oops\n'
    told = raftlog.produce("aborted", rows, "--json", "--delivery", "exactly_once", code=1)
    said, error = told.splitlines()
    assert said == "the transaction is aborted: no record is visible"
    assert "the first of them, line 2: " in error


def test_a_line_without_the_key_of_a_compacted_topic_is_named_and_what_precedes_it_is_stored(
    raftlog: Records,
) -> None:
    raftlog.topic("keyed", cleanup_policy="compact")
    raftlog.produce("keyed", b"a:1\nb:2\n", "--key-separator", ":")
    told = raftlog.produce("keyed", b'{"key": "c", "value": 3}\n{"value": 4}\n', "--json", code=1)
    assert told.startswith("1 record, ")
    assert "the first of them, line 2: the record has no key, but the topic is compacted" in told
    assert raftlog.consume("keyed") == b"1\n2\n3\n"


# requirement: A12
def test_lines_that_are_refused_as_a_batch_are_not_rejected_one_by_one(raftlog: Records) -> None:
    raftlog.topic("batched", max_message_bytes="2000")
    rejected = raftlog.directory / "batched.jsonl"
    how = ("--batch-bytes", "1MiB", "--rejects", str(rejected))
    told = raftlog.produce("batched", lines(100), *how, code=1)
    assert "records refused: 100; the first of them, line 1: the batch of 100 records has" in told
    assert rejected.read_bytes() == b""


# requirement: A12
def test_rejected_lines_replace_no_file_before_the_first_line_is_sent(raftlog: Records) -> None:
    raftlog.topic("kept-files")
    kept = raftlog.directory / "kept.jsonl"
    kept.write_bytes(b"1\n{bad\n")
    linked = raftlog.directory / "linked.jsonl"
    linked.symlink_to(kept)
    how = ("kept-files", str(kept), "--json", "--rejects")
    for name in (kept, linked):
        assert "--rejects" in invoke(raftlog.url, "produce", *how, str(name), code=2).stderr
    into = ("/dev/null", "--rejects", str(kept))
    invoke(NOWHERE, "produce", "kept-files", *into, code=4)
    invoke(raftlog.url, "produce", "none-such", *into, code=1)
    invoke(raftlog.url, "produce", "kept-files", *into, "--preset", "fast", code=2)
    assert kept.read_bytes() == b"1\n{bad\n"
    invoke(raftlog.url, "produce", "kept-files", *into)
    assert kept.read_bytes() == b""


def test_a_file_that_cannot_be_opened_ends_with_nothing_sent(raftlog: Records) -> None:
    raftlog.topic("unopened")
    missing = str(raftlog.directory / "missing" / "file")
    assert "No such file" in invoke(raftlog.url, "produce", "unopened", missing, code=1).stderr
    assert "No such file" in raftlog.produce("unopened", b"a\n", "--rejects", missing, code=1)
    assert raftlog.consume("unopened") == b""


def test_a_produce_prints_its_totals_as_json(raftlog: Records) -> None:
    raftlog.topic("totals")
    rows = raftlog.directory / "totals.csv"
    rows.write_bytes(b"id\n7\n8,\n9\n")
    arguments = (str(rows), "--input", "csv", "--max-rejects", "1", "-o", "json")
    found = invoke(raftlog.url, "produce", "totals", *arguments, code=5)
    shown = {"stored": 2, "stored_bytes": 2, "failed": 0, "rejected": 1, "outcome": None}
    assert {name: value for name, value in json.loads(found.stdout).items() if name != "seconds"} == shown
    assert found.stderr == ""


def test_a_line_of_json_that_is_no_record_names_the_format_for_values(raftlog: Records) -> None:
    raftlog.topic("own")
    for line in (b'{"id": 1}\n', b"[1]\n", b'"text"\n'):
        assert "with --input json-values" in raftlog.produce("own", line, "--json", code=1)
    assert "json-values" not in raftlog.produce("own", b'{"value": 1, "kye": 2}\n', "--json", code=1)


def test_undecodable_batch_ends_consume_behind_what_precedes_it(raftlog: Records) -> None:
    raftlog.store_undecodable("torn")
    for follow in ((), ("--follow",)):
        ended = raftlog.ended("torn", *follow, code=1)
        assert ended.stdout_bytes == b"one\nvalue\n"
        assert ended.stderr.startswith(
            "error (undecodable_batch): the batch of torn/0 with offset 2 cannot be decoded ("
        )
        assert "Exception" not in ended.stderr
        assert ended.stderr.endswith(
            "; continue after it with --partition 0 --from 4, or add --skip-undecodable\n"
        )
    assert raftlog.consume("torn", "--partition", "0", "--from", "4") == b"two\n"


def test_undecodable_batches_are_skipped_and_counted_on_request(raftlog: Records) -> None:
    raftlog.store_undecodable("skipped")
    for more, shown in (((), b"one\nvalue\ntwo\n"), (("--follow", "--from", "-4", "--limit", "2"), b"two\n")):
        if more:
            raftlog.produce("skipped", b"three\n")
            shown += b"three\n"
        ended = raftlog.ended("skipped", "--skip-undecodable", *more)
        assert ended.stdout_bytes == shown
        assert ended.stderr.splitlines() == [
            "skipped offsets 2 to 3 of skipped/0: they cannot be decoded",
            "skipped 2 offsets that cannot be decoded",
        ]
    enough = raftlog.ended("skipped", "--skip-undecodable", "--limit", "2")
    assert (enough.stdout_bytes, enough.stderr) == (b"one\nvalue\n", "")


def test_from_and_to_take_times_durations_and_offsets(raftlog: Records) -> None:
    raftlog.topic("timed", message_timestamp_type="CreateTime")
    now_ms = round(time.time() * 1_000)
    ages = {"old": 180, "middle": 60, "new": 1}
    produced = [{"value": name, "timestamp": now_ms - 60_000 * minutes} for name, minutes in ages.items()]
    sent = "".join(json.dumps(record) + "\n" for record in produced).encode()
    raftlog.produce("timed", sent, "--format", "json", "--acks", "all", "-z", "gzip")
    when = datetime.fromtimestamp(now_ms / 1_000 - 1_800, UTC).isoformat()
    for arguments, shown in (
        (["--from", "2h"], b"middle\nnew\n"),
        (["--from", "2h", "--to", "30m"], b"middle\n"),
        (["--to", when], b"old\nmiddle\n"),
        (["--from", when], b"new\n"),
        (["--from", "1", "--to", "2"], b"middle\n"),
        (["--from", "beginning", "-n", "1"], b"old\n"),
        (["--from", "end"], b""),
        (["--from", "2", "--to", "1"], b""),
        (["--to", "latest", "-p", "0"], b"old\nmiddle\nnew\n"),
    ):
        assert raftlog.consume("timed", *arguments) == shown, arguments


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("-0", "latest"),
        ("-" + 30 * "0", str(INT64_MAX)),
        (5_000 * "9", str(INT64_MAX)),
        (str(INT64_MAX + 1), str(INT64_MAX)),
        ("1969-12-31T23:59:59Z", "earliest"),
        ("0001-01-01T00:00:00+14:00", "earliest"),
    ],
    ids=lambda text: text[:26],
)
def test_a_position_that_is_none_is_named_with_its_remedy(raftlog: Records, text: str, remedy: str) -> None:
    told = invoke(NOWHERE, "consume", "any", "--from", text, code=2).stderr
    assert told.startswith("error: --from ")
    assert remedy in told
    reset = ("group", "reset", "g", "--topic", "any", "--to", text)
    assert invoke(raftlog.url, *reset, code=2).stderr.startswith("error: --to ")


def test_keys_and_separators_may_be_bytes_that_are_not_utf_8(raftlog: Records) -> None:
    raftlog.topic("of-bytes")
    raftlog.produce("of-bytes", b"a\n", "--key", "\udcff")
    raftlog.produce("of-bytes", b"k\xfev\n", "--key-separator", "\udcfe")
    assert raftlog.consume("of-bytes", "--format", "%k\udcfd%v\\n") == b"\xff\xfda\nk\xfdv\n"


def test_an_offset_above_the_end_is_refused_unless_it_is_waited_for(raftlog: Records) -> None:
    raftlog.topic("later")
    raftlog.produce("later", b"0\n")
    assert "--follow" in raftlog.ended("later", "--from", "3", code=1).stderr


def test_several_topics_are_printed_one_after_the_other(raftlog: Records) -> None:
    for topic in ("second", "first"):
        raftlog.topic(topic)
        raftlog.produce(topic, b"1\n2\n", "-k", "k", "--batch-bytes", "1KiB")
    shown = raftlog.consume("first", "second", "--format", r"%T %o %k=%v\n")
    assert shown == b"first 0 k=1\nfirst 1 k=2\nsecond 0 k=1\nsecond 1 k=2\n"
    assert raftlog.consume("first", "second", "-n", "3") == b"1\n2\n1\n"
    assert "'none'" in raftlog.ended("first", "none", code=1).stderr


# requirement: A1, A2, A10
def test_messages_of_some_tags_are_printed(raftlog: Records) -> None:
    raftlog.topic("tagged", 2)
    records = [
        json.dumps({"key": str(n % 5), "value": n, "tags": ["paid" if n % 10 == 3 else "new", f"mod{n % 3}"]})
        for n in range(60)
    ]
    raftlog.produce("tagged", "\n".join(records).encode(), "--json")
    expected = sorted(range(3, 60, 10))
    assert sorted(map(int, raftlog.consume("tagged", "--tags", "paid,refunded").split())) == expected
    in_group = ("tagged", "--tags", "paid", "--group", "of-paid")
    assert sorted(map(int, raftlog.consume(*in_group).split())) == expected
    assert raftlog.consume(*in_group) == b""
    assert call(raftlog.url, "GET", "/v1/groups/of-paid").json["lag"] == 0
    combined = ("tagged", "--tags", "paid,refunded", "--tags-all", "mod0", "--tags-none", "new")
    for options in ((), ("--group", "of-mod0")):
        assert sorted(map(int, raftlog.consume(*combined, *options).split())) == [3, 33]
    told = raftlog.ended("tagged", "--tags", "paid,,new", code=2).stderr
    assert "--tags: '' is not a tag; a tag has 1 to 255 characters" in told
    told = raftlog.ended("tagged", "--tags-all", "a", "--tags-none", "a", code=2).stderr
    assert "--tags-none: 'a' is in --tags-all, too" in told


# requirement: G3 C5 D2
def test_commands_of_a_group_continue_where_the_last_one_ended(raftlog: Records) -> None:
    raftlog.topic("shared", 3)
    raftlog.produce("shared", b"".join(b"%d:%d\n" % (n, n) for n in range(30)), "--key-separator", ":")

    def printed(*arguments: str) -> list[int]:
        return sorted(map(int, raftlog.consume("shared", *arguments).split()))

    first = printed("--group", "readers", "--limit", "10")
    assert sorted(first + printed("--group", "readers")) == list(range(30))
    assert printed("-g", "readers") == []
    assert printed("-g", "late", "--from", "latest") == []
    assert printed("-g", "others") == list(range(30))


@pytest.mark.parametrize(
    "option", [("--from", "7"), ("--to", "9"), ("--partition", "0"), ("--skip-undecodable",)], ids=str
)
def test_options_of_partitions_are_refused_with_a_group(raftlog: Records, option: tuple[str, ...]) -> None:
    errors = raftlog.ended("any", "--group", "g", *option, code=2).stderr
    assert option[0] in errors
    assert "--group" in errors


# requirement: N6
@pytest.mark.parametrize("option", [(), ("--group", "g"), ("--follow", "--limit", "2")])
def test_a_preset_is_chosen_by_its_name(raftlog: Records, option: tuple[str, ...]) -> None:
    topic = f"preset{len(option)}"
    raftlog.topic(topic)
    raftlog.produce(topic, b"a\nb\n")
    assert raftlog.consume(topic, *option, "--preset", "throughput") == b"a\nb\n"
    wrong = raftlog.ended(topic, *option, "--preset", "fast", code=2).stderr
    assert "--preset is 'fast'; choose 'latency', 'throughput'" in wrong


def test_an_unknown_topic_is_an_error_and_no_member(raftlog: Records) -> None:
    for more in ((), ("--follow", "--missing", "raise")):
        assert "nothing-here" in raftlog.ended("nothing-here", "--group", "g", *more, code=1).stderr
    assert "--missing" in raftlog.ended("nothing-here", "--group", "g", "--missing", "wait", code=2).stderr


# requirement: D4
def test_all_lines_of_an_input_are_visible_or_none(raftlog: Records) -> None:
    raftlog.topic("once", partitions=2, max_message_bytes="1024")
    refused = raftlog.produce("once", b"a\nb\n" + b"x" * 2048 + b"\n", "--delivery", "exactly_once", code=1)
    assert "the transaction is aborted: no record is visible" in refused
    assert "line 3" in refused
    assert "2 records" in raftlog.produce("once", b"a\nb\n", "--delivery", "exactly_once")
    assert "1 record," in raftlog.produce("once", b"c\n", "--delivery", "at_most_once")
    wrong = raftlog.produce("once", b"d\n", "--delivery", "at_most_once", "--acks", "quorum", code=2)
    assert "leave acks out" in wrong


# requirement: D1 D4
def test_a_message_is_committed_before_it_is_printed_at_most_once(raftlog: Records) -> None:
    raftlog.topic("printed")
    raftlog.produce("printed", b"a\nb\nc\n")
    once = ("--group", "printers", "--delivery", "at_most_once")
    assert raftlog.consume("printed", *once, "--limit", "2") == b"a\nb\n"
    assert raftlog.consume("printed", *once) == b"c\n"
    exactly = raftlog.ended("printed", "--group", "g", "--delivery", "exactly_once", code=2).stderr
    assert "standard output cannot be in a transaction" in exactly


# requirement: D1 D4
@pytest.mark.parametrize(("delivery", "left"), [("at_most_once", b"b\n"), ("at_least_once", b"a\nb\n")])
def test_a_message_that_cannot_be_printed_is_lost_at_most_once_alone(
    raftlog: Records, delivery: str, left: bytes
) -> None:
    raftlog.topic(delivery)
    raftlog.produce(delivery, b"a\nb\n")
    how = ("consume", delivery, "--group", delivery, "--delivery", delivery)
    command = shlex.join([*RAFTLOG, *how, "--server", raftlog.url])
    full = subprocess.run(["sh", "-c", f"{command} >/dev/full"], capture_output=True, timeout=60)
    assert full.returncode == 1
    assert raftlog.consume(*how[1:]) == left
