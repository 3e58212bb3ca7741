"""Commands without a cluster: usage, help, exit codes, and what starting costs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from api.cli.commands import app
from api.cli.output import errors_reported, exit_code, show
from broker.cluster_files import SECRET_NAME, create_cluster, read_secret
from raftlog.errors import CommitUnknown, ConnectionLost, InvalidRequest, NotSent, RaftlogError, TopicNotFound
from raftlog.records.batch import Codec, stamp
from raftlog.records.builder import Record, build_batch
from raftlog.records.control import leader_change_batch
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.types import NodeId
from tests.helpers.storage_batches import storage_batch


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def commands(group: click.Group, *path: str) -> Iterator[str]:
    """All commands of a group, each with the names of its groups."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name))


COMMANDS = [name for name in commands(app) if name != "chaos faults" and not name.startswith("bench ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"raftlog {command}" in result.output.split("Example", 1)[1]
    assert "None]" not in result.output


@pytest.mark.parametrize("command", [name for name in COMMANDS if not name.startswith(("queue d", "chaos "))])
def test_a_commands_line_in_the_list_is_how_its_own_help_begins(command: str) -> None:
    *group, name = command.split()
    listed = next(line for line in run(*group, "--help").output.splitlines() if line.split()[:1] == [name])
    summary = listed.split(maxsplit=1)[1].removesuffix("...").removesuffix(".")
    assert summary in " ".join(run(*command.split(), "--help").output.split())


UNUSED = {"aiohttp.web", "aiokafka", "broker", "queues", "api.server", "partitions", "prometheus_client"}
UNUSED |= {"pydantic", "raftlog.node", "rich", "ssl"}
HTTP = {"aiohttp", "asyncio", "crc32c", "hashlib", "yarl", "numpy", "raftlog.client.session"}
HTTP |= {"typing_extensions"}
CLIENT = HTTP | {"msgspec", "raftlog.client"}
NOWHERE = "--server http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("commands", "unused"),
    [
        (["--help", "topic create --help", "--version"], UNUSED | CLIENT),
        (["topic list", "topic describe t", "cluster health", "group list"], UNUSED | HTTP),
        (["produce t", "consume t"], UNUSED),
    ],
)
def test_commands_import_only_what_they_need(commands: list[str], unused: set[str]) -> None:
    script = (
        "import sys; from api.cli.commands import app\n"
        "for words in sys.argv[1:]: app(words.split(), standalone_mode=False)\n"
        "sys.stdout.write(chr(0) + ' '.join(sys.modules))"
    )
    nowhere = "" if "--help" in commands else NOWHERE
    _, _, imported = in_own_process(script, *(f"{words} {nowhere}" for words in commands)).rpartition(chr(0))
    assert not unused & set(imported.split())


def test_a_server_with_tls_is_asked_with_tls() -> None:
    script = (
        "import sys; from api.cli.imports import tls_only_for\n"
        "with tls_only_for('https://log.example'): import aiohttp.connector\n"
        "sys.stdout.write(str(aiohttp.connector._SSL_CONTEXT_VERIFIED is not None))"
    )
    assert in_own_process(script) == "True"


def test_the_decoder_is_imported_without_the_kafka_client_which_can_be_imported_later() -> None:
    script = (
        "import sys; from api.cli.imports import import_decoder; import_decoder()\n"
        "is_only_decoder = 'raftlog.records.reader' in sys.modules and 'aiokafka.client' not in sys.modules\n"
        "sys.stdout.write(str(is_only_decoder))\n"
        "import aiokafka; aiokafka.AIOKafkaConsumer"
    )
    assert in_own_process(script) == "True"


def in_own_process(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_version_is_shown() -> None:
    assert run("--version").stdout.startswith("raftlog 0.")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["topic", "create", "t", "--config", "retention.ms"], "KEY=VALUE"),
        (["topic", "alter", "t"], "--reset"),
        (["topic", "delete", "t"], "--yes"),
        (["produce", "t", "--key", "k", "--key-separator", ":"], "exclude each other"),
        (["produce", "t", "--key", "k", "--json"], "--key is for --input value, not for json"),
        (["produce", "t", "--input", "csv", "--whole"], "--whole is for --input value, not for csv"),
        (["produce", "t", "--input", "csv", "--delimiter", ";;"], "--delimiter ';;' is not one character"),
        (["produce", "t", "--input", "csv", "--columns", "a,b,a"], "column 'a' appears twice"),
        (
            ["produce", "t", "--input", "csv", "--key-optional"],
            "name its field with --key-field or --key-col",
        ),
        (["produce", "t", "--key-separator", ""], "empty"),
        (["produce", "t", "--header", "x"], "NAME=VALUE"),
        (["consume", "t", "--delivery", "at_most_once"], "needs --group"),
        (
            ["consume", "t", "-g", "g", "--delivery", "exactly_once"],
            "standard output cannot be in a transaction",
        ),
        (["consume", "t", "--from", "yesterday"], "earliest"),
        (["consume", "t", "--from", "2026-01-31T12:00:00"], "time zone"),
        (["consume", "t", "--from", "999999999999d"], "--from"),
        (["consume", "t", "--to", "tomorrow"], "--to 'tomorrow' is not a position"),
        (["consume", "t", "--to", "5", "--follow"], "exclude each other"),
        (["consume", "t", "--format", "text"], "--format"),
        (["cluster", "describe", "--server", "ftp://here"], "scheme"),
        (["topic", "list", "-o", "yaml"], "table"),
        (["cluster", "describe", "--server", "ftp://here"], "--server: "),
        (["produce", "t", "--keep-partitions"], "--keep-partitions is for --input json"),
        (["dev", "--brokers", "0"], "--brokers"),
        (["dev", "--http-port", "0"], "1<=x<=65535"),
        (["cluster", "init", "--rpc-port", "65536"], "1<=x<=65535"),
        (["dev", "--brokers", "٣"], "whole number"),
        (["consume", "t", "-n", "1_0"], "whole number"),
        (["consume", "t", "-n", " 5"], "whole number"),
        (["bench", "produce", "--seconds", "nan"], "finite number"),
        (["topc", "list"], "Did you mean 'topic'?"),
        (["topic", "lst"], "Did you mean 'list'?"),
        (["topic", "list", "--ouput", "json"], "--output"),
        (["partition", "set-replicas", "t", "0", "1,two"], "2,3,4"),
        (["partition", "add-replica", "t", "0", "0"], "BROKER"),
        (["nothing"], "nothing"),
    ],
)
def test_wrong_usage_says_what_is_right_and_ends_with_2(arguments: list[str], word: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert word in result.stderr
    assert result.stdout == ""


def test_a_cluster_whose_last_port_would_be_too_high_is_refused(tmp_path: Path) -> None:
    result = run("dev", "--data", str(tmp_path), "--http-port", "65534")
    assert result.exit_code == 1
    assert "ports 65534 and 65634 leave no room for 3 brokers" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_cluster_at_all_ends_with_4_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cli.connection.PROBE_TIMEOUT", "200ms")
    with socket.socket() as taken:  # bound and not listening: refused at once
        taken.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(app, ["topic", "list"], env={"RAFTLOG_URL": server})
    assert result.exit_code == 4
    assert result.stderr.count("\n") == 1
    assert server in result.stderr
    assert "raftlog dev" in result.stderr


@pytest.mark.parametrize(
    ("error", "reading", "changing"),
    [
        (TopicNotFound(), 1, 1),
        (NotSent(), 4, 4),
        (ConnectionLost(), 4, 3),
        (CommitUnknown(), 1, 3),
        (RaftlogError(), 1, 3),
    ],
)
def test_exit_codes_keep_unknown_apart_from_refused(error: RaftlogError, reading: int, changing: int) -> None:
    assert exit_code(error, changing=False) == reading
    assert exit_code(error, changing=True) == changing


def test_ctrl_c_and_files_that_are_not_there_end_without_a_traceback() -> None:
    for error, code in ((KeyboardInterrupt(), 130), (FileNotFoundError(2, "No such file"), 1)):
        with pytest.raises(click.exceptions.Exit) as ended, errors_reported():
            raise error
        assert ended.value.exit_code == code


def test_tables_line_up_and_show_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"name": "a", "size": 10, "on": True}, {"name": "[bold]", "size": 7, "peers": [1, 2]}])
    assert capsys.readouterr().out == (
        "name    size  on   peers\na         10  yes  -\n[bold]     7  -    1,2\n"
    )


def segment_file(directory: Path, *, broken: bool) -> str:
    path = str(directory / "0.log")
    file = OsFilesystem().open(path, create=True)
    data = bytearray(bytes(storage_batch(1, 1, epoch=7, timestamp_ms=1).data))
    data[-1] ^= broken
    file.append([bytes(storage_batch(0, 1, epoch=7, timestamp_ms=0).data), bytes(data)])
    file.close()
    os.chmod(path, 0o400)
    return path


def test_a_sound_segment_is_a_table_of_batches(tmp_path: Path) -> None:
    result = run("inspect", "segment", segment_file(tmp_path, broken=False))
    assert result.exit_code == 0
    columns = zip(*(line.split() for line in result.stdout.splitlines()), strict=True)
    assert [*columns][:4] == [
        ("position", "0", "65"),
        ("offsets", "0..0", "1..1"),
        ("records", "1", "1"),
        ("size", "65B", "65B"),
    ]


# requirement: M3
def test_a_damaged_segment_is_told_clearly_and_ends_with_1(tmp_path: Path) -> None:
    path = segment_file(tmp_path, broken=True)
    result = run("inspect", "segment", path, "-o", "json")
    assert result.exit_code == 1
    assert [row["crc_ok"] for row in json.loads(result.stdout)] == [True, False]
    assert "DAMAGED at byte 65: crc" in result.stderr
    assert run("inspect", "segment", str(tmp_path / "none")).exit_code == 2


def records_file(directory: Path, *, is_broken: bool = False) -> str:
    """A control batch, then four batches of three records, the last of them damaged on request."""
    batches = [leader_change_batch(base_offset=0, leader_epoch=7, leader=NodeId(1), timestamp_ms=5)]
    for base_offset in (1, 4, 7, 10):
        records = [Record(b"v%d" % offset) for offset in range(base_offset, base_offset + 3)]
        data = build_batch(records, codec=Codec.ZSTD, timestamp_ms=base_offset)
        batches.append(stamp(data, base_offset=base_offset, leader_epoch=7, append_time_ms=None))
    written = bytearray(b"".join(bytes(batch.data) for batch in batches))
    written[-1] ^= is_broken
    path = directory / "0.log"
    path.write_bytes(written)
    return str(path)


def test_records_of_a_segment_are_objects_of_json(tmp_path: Path) -> None:
    path = records_file(tmp_path)

    def values(*options: str) -> list[str]:
        result = run("inspect", "segment", path, "--records", *options)
        assert (result.exit_code, result.stderr) == (0, "")
        return [json.loads(line)["value"] for line in result.stdout.splitlines()]

    assert values() == [f"v{offset}" for offset in range(1, 13)]
    assert values("--offset", "5") == [f"v{offset}" for offset in range(5, 13)]
    assert values("--offset", "5", "--limit", "3") == ["v5", "v6", "v7"]
    assert values("--limit", "1") == ["v1"]
    assert values("--offset", "13") == []
    assert run("inspect", "segment", path, "--limit", "1").exit_code == 2


# requirement: M3
def test_records_before_the_damage_are_shown_and_the_damage_is_told(tmp_path: Path) -> None:
    path = records_file(tmp_path, is_broken=True)
    result = run("inspect", "segment", path, "--records", "--offset", "9")
    assert result.exit_code == 1
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == [9]
    assert "DAMAGED at byte" in result.stderr
    assert run("inspect", "segment", path, "--records", "--limit", "9").exit_code == 0


def test_a_batch_that_cannot_be_decoded_is_named_and_those_behind_it_are_shown(tmp_path: Path) -> None:
    path = segment_file(tmp_path, broken=False)  # its checksums are right, its records are none
    result = run("inspect", "segment", path, "--records")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the batch at byte 0, with offset 0, cannot be decoded" in result.stderr
    assert "the batch at byte 65, with offset 1, cannot be decoded" in result.stderr


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_regular_files_are_inspected(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "pipe") if kind == "pipe" else "/dev/zero"
    os.mkfifo(tmp_path / "pipe")
    result = run("inspect", "segment", path)
    assert result.exit_code == 1
    assert f"not a regular file: '{path}'" in result.stderr


def test_pipe_among_a_brokers_files_keeps_no_verify_waiting(tmp_path: Path) -> None:
    partition = tmp_path / f"orders-{'0' * 32}" / "Partition-0"
    partition.mkdir(parents=True)
    os.mkfifo(partition / "00000000000000000000.log")
    result = run("verify", "--data", str(tmp_path))
    assert result.exit_code == 1
    assert "not a regular file" in result.stdout + result.stderr


def test_secret_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    create_cluster(tmp_path, brokers=1, http_port=17_000)
    (tmp_path / SECRET_NAME).unlink()
    os.mkfifo(tmp_path / SECRET_NAME, 0o600)
    with pytest.raises(InvalidRequest, match="not a regular file"):
        read_secret(tmp_path / SECRET_NAME)


def test_dev_refuses_a_port_in_use_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("dev", "--data", str(tmp_path / "c"), "--http-port", str(port), "--brokers", "1")
    assert result.exit_code == 1
    assert f"port {port} cannot be used" in result.stderr
    assert not (tmp_path / "c").exists()


def test_files_of_a_cluster_are_their_owners_alone(tmp_path: Path) -> None:
    assert run("cluster", "init", "--data", str(tmp_path / "c")).exit_code == 0
    made = [tmp_path / "c", *(tmp_path / "c").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o600}


@pytest.mark.parametrize(("option", "value"), [("--brokers", "5"), ("--http-port", "17999")])
def test_dev_refuses_data_of_another_cluster(tmp_path: Path, option: str, value: str) -> None:
    create_cluster(tmp_path, brokers=3, http_port=17_000)
    result = run("dev", "--data", str(tmp_path), option, value)
    assert result.exit_code == 1
    assert "--data" in result.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("topic describe \udcff", "'NAME'"),
        ("consume \udcff", "'TOPIC...'"),
        ("produce \udcff", "'TOPIC'"),
        ("produce t /dev/null --header a=\udcff", "'--header' / '-H'"),
        ("produce t /dev/null --input csv --columns \udcff", "'--columns'"),
        ("delayed send t \udcff --delay 1m", "'VALUE'"),
        ("delayed list --topic \udcff", "'--topic'"),
        ("schedule create t \udcff --cron @daily", "'VALUE'"),
        ("schedule list --topic \udcff", "'--topic'"),
        ("dead-letter describe t \udcff -g g", "'ID'"),
    ],
)
def test_an_argument_that_is_not_utf_8_is_wrong_usage(words: str, named: str) -> None:
    """Such as one in another encoding than that of the locale."""
    result = run(*words.split(" "), "--server", "http://127.0.0.1:9")
    assert result.exit_code == 2, result.exception
    assert f"Invalid value for {named}" in result.stderr
    assert "is not UTF-8" in result.stderr
