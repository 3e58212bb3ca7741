"""The command line as people and scripts use it: real commands, real pipes, real brokers."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from chaos.cluster import Cluster, free_ports
from tests.helpers.command_line import RAFTLOG, command, packages_of_our_names, run

pytestmark = pytest.mark.e2e


def lines(count: int) -> bytes:
    return b"".join(b"%07d %s\n" % (number, b"x" * 90) for number in range(count))


def test_a_topic_is_made_shown_changed_and_deleted(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "life", "--partitions", "2", "--config", "retention.ms=1m")
    assert "topic_exists" in run(unbroken, "topic", "create", "life", code=1)[1]
    found = json.loads(run(unbroken, "topic", "describe", "life", "-o", "json")[0])
    assert found["topic"]["config"]["retention.ms"] == 60_000
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1]
    changed = run(
        unbroken,
        "topic",
        "alter",
        "life",
        "--reset",
        "retention.ms",
        "--config",
        "segment.ms=5",
        "-o",
        "json",
    )
    config = json.loads(changed[0])["config"]
    assert (config["retention.ms"], config["segment.ms"]) == (14 * 24 * 3600 * 1000, 5)
    assert "the settings are" in run(unbroken, "topic", "alter", "life", "--config", "retention=5", code=1)[1]
    _, told = run(unbroken, "topic", "alter", "life", "--config", "retntion.ms=5", code=1)
    assert "did you mean retention.ms?" in told
    _, told = run(unbroken, "topic", "create", "l2", "--replication", "2", code=1)
    assert told.startswith("error (invalid_request): --replication is 2;")
    assert b"life" in run(unbroken, "topic", "list")[0]
    assert b"life" in run(unbroken, "topic", "list", "l?fe")[0]
    assert run(unbroken, "topic", "list", "x*") == (b"", "no topic matches x*\n")
    assert run(unbroken, "topic", "list", "x*", "-o", "json")[0] == b"[]\n"
    _, told = run(unbroken, "consume", "lifes", code=1)
    wanted = "there is no topic 'lifes'; did you mean 'life'? `raftlog topic list` shows all topics"
    assert told == f"error (topic_not_found): {wanted}\n"
    run(unbroken, "topic", "delete", "life", "--yes")
    assert "topic_not_found" in run(unbroken, "topic", "describe", "life", code=1)[1]


def test_deleting_on_a_terminal_asks_for_the_name(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "dear")
    for typed, code in (("deer", 1), ("dear", 0)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*RAFTLOG, "topic", "delete", "dear", "-s", unbroken.bootstrap],
            stdin=theirs,
            stderr=subprocess.PIPE,
        )
        os.close(theirs)
        os.write(ours, typed.encode() + b"\n")
        assert b"Type its name" in process.communicate(timeout=30)[1]
        os.close(ours)
        assert process.returncode == code


def test_the_cluster_and_its_brokers_are_shown(unbroken: Cluster) -> None:
    assert json.loads(run(unbroken, "cluster", "info", "-o", "json")[0])["brokers"] == 3
    brokers = json.loads(run(unbroken, "cluster", "brokers", "-o", "json")[0])
    assert [broker["http"] for broker in brokers] == unbroken.urls


def test_health_is_good_until_a_broker_is_down(cluster: Cluster) -> None:
    run(cluster, "topic", "create", "orders", "--partitions", "2")
    shown, told = run(cluster, "cluster", "health")
    assert told == "healthy\n"
    assert shown.count(b"yes") == 3
    found = json.loads(run(cluster, "cluster", "health", "-o", "json")[0])
    assert (found["healthy"], found["partitions"], found["problems"]) == (True, 2, [])
    assert all(broker["disk_free_bytes"] > 0 for broker in found["brokers"])
    cluster.kill(3)
    deadline = time.monotonic() + 60
    while not (found["brokers_down"] and len(found["under_replicated"]) == 2):
        assert time.monotonic() < deadline, found
        process = command(cluster, "cluster", "health", "-o", "json")
        found = json.loads(process.communicate(timeout=30)[0])
    assert (process.returncode, found["healthy"], found["brokers_down"]) == (1, False, [3])
    assert "broker 3 is down" in run(cluster, "cluster", "health", code=1)[1]
    cluster.kill(2)
    while len(found["leaderless"]) < 2:
        assert time.monotonic() < deadline, found
        found = json.loads(command(cluster, "cluster", "health", "-o", "json").communicate(timeout=30)[0])
    assert found["not_restorable"] == ["orders/0", "orders/1"]
    assert (
        "orders/0 has no leader; without a majority it cannot be restored: start broker 2, 3"
        in found["problems"]
    )


def test_what_goes_in_comes_out_byte_by_byte(unbroken: Cluster, directory: Path) -> None:
    run(unbroken, "topic", "create", "bytes")
    data = b"\x00\xff\xfe binary\r\n\n" + lines(2_000)
    (directory / "in").write_bytes(data)
    _, told = run(unbroken, "produce", "bytes", str(directory / "in"), "--compression", "zstd")
    assert told.startswith("2002 records, ")
    assert "p99" in told
    assert run(unbroken, "consume", "bytes")[0] == data
    assert run(unbroken, "consume", "bytes", "--from", "-2", "--max", "1")[0] == data.split(b"\n")[-3] + b"\n"


def test_records_pass_through_json_unchanged(unbroken: Cluster) -> None:
    for topic in ("source", "copy"):
        run(unbroken, "topic", "create", topic, "--partitions", "2")
    rich = (
        b'{"key": "u1", "value": {"id": 1}, "headers": {"a": "b"}, "tags": ["new"]}\n'
        b'{"value": "/w==", "encoding": "base64"}\n'
    )
    run(unbroken, "produce", "source", "--json", "-H", "from=test", stdin=rich)
    run(unbroken, "produce", "source", "--key-separator", r"\t", stdin=b"k\tv\n")
    shown, _ = run(unbroken, "consume", "source", "--format", "json")
    run(unbroken, "produce", "copy", "--format", "json", "--keep-partitions", stdin=shown)
    form = ("--format", r"%p %o %k %v %h\n")
    assert run(unbroken, "consume", "copy", *form)[0] == run(unbroken, "consume", "source", *form)[0]
    assert b'u1 {"id":1} from=test,a=b,raftlog.tag=new' in run(unbroken, "consume", "copy", *form)[0]


def test_consumed_lines_go_to_a_topic_with_fewer_partitions(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "many", "--partitions", "4")
    run(unbroken, "topic", "create", "few")
    run(unbroken, "produce", "many", "--key-separator", ":", stdin=b"".join(b"%d:v\n" % n for n in range(20)))
    shown, _ = run(unbroken, "consume", "many", "--format", "json")
    assert b'"partition":3' in shown
    run(unbroken, "produce", "few", "--format", "json", stdin=shown)
    assert run(unbroken, "consume", "few")[0] == b"v\n" * 20
    _, told = run(unbroken, "produce", "few", "--format", "json", "--keep-partitions", stdin=shown, code=1)
    assert "partition_not_found" in told


def test_too_large_a_record_names_the_setting_and_small_ones_fit(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "narrow", "--config", "max.message.bytes=2000")
    _, told = run(unbroken, "produce", "narrow", stdin=b"x" * 5_000, code=1)
    assert "max.message.bytes of the topic is 2000; send a smaller record or raise the setting" in told
    _, told = run(unbroken, "produce", "narrow", stdin=b"a\n" + bytes(17 << 20), code=1)
    assert "line 2: it has more than 16777216 bytes, which exceeds any max.message.bytes" in told
    run(unbroken, "produce", "narrow", stdin=lines(1_000))
    assert run(unbroken, "consume", "narrow")[0] == b"a\n" + lines(1_000)


def test_a_file_is_one_record_if_it_is_said_so(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "images")
    image = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100
    run(unbroken, "produce", "images", "--whole", "--key", "a.png", stdin=image)
    run(unbroken, "produce", "images", "--whole", stdin=b"")
    assert run(unbroken, "consume", "images", "--format", "%v")[0] == image
    assert run(unbroken, "consume", "images", "--format", "%k %s\n")[0].startswith(b"a.png ")
    _, told = run(unbroken, "produce", "images", "--whole", stdin=bytes((16 << 20) + 1), code=1)
    assert "it has more than 16777216 bytes" in told
    _, told = run(unbroken, "produce", "images", "--whole", "--json", stdin=b"{}", code=2)
    assert "--whole is for one record" in told


def test_garbage_among_json_names_its_line_and_keeps_what_came_before(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "garbage")
    _, told = run(
        unbroken, "produce", "garbage", "--json", stdin=b'{"value": "a"}\n\n{oops\n{"value": 2}\n', code=1
    )
    assert told.startswith("1 record, ")
    assert "line 3: " in told
    assert run(unbroken, "consume", "garbage")[0] == b"a\n"


def test_a_reader_that_has_enough_ends_a_consume_quietly(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "enough")
    run(unbroken, "produce", "enough", stdin=lines(50_000))
    process = command(unbroken, "consume", "enough")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(20) == 0
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()


def test_following_shows_what_comes_until_ctrl_c(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "live", "--partitions", "3")
    process = command(unbroken, "consume", "live", "--follow")
    assert process.stdout is not None
    for word in (b"one\n", b"two\n"):
        run(unbroken, "produce", "live", stdin=word)
        assert process.stdout.readline() == word
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10) == (b"", b"")
    assert process.returncode == 0


def test_ctrl_c_ends_a_produce_with_an_honest_count(unbroken: Cluster, directory: Path) -> None:
    (directory / "in").write_bytes(lines(1_000_000))  # more than is sent before the signal
    run(unbroken, "topic", "create", "stopped")
    process = command(unbroken, "produce", "stopped", str(directory / "in"))
    while not run(unbroken, "consume", "stopped", "--max", "1")[0]:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130, told.decode()
    stored = run(unbroken, "consume", "stopped")[0].count(b"\n")
    # The signal may fall between a record's way into the client and our taking note of it.
    assert 0 <= stored - int(told.split()[0]) <= 1


def test_a_second_ctrl_c_ends_the_wait_for_answers_and_says_what_is_unknown(
    cluster: Cluster, directory: Path
) -> None:
    (directory / "in").write_bytes(lines(400_000))
    run(cluster, "topic", "create", "stopped")
    process = command(cluster, "produce", "stopped", str(directory / "in"), "--batch-bytes", "20000")
    while not run(cluster, "consume", "stopped", "--max", "1")[0]:
        time.sleep(0.01)
    for broker in cluster.brokers:
        cluster.pause(broker)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=1)  # it waits for answers that are on their way
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=30)
    told = output.decode()
    assert process.returncode == 3, told
    for broker in cluster.brokers:
        cluster.resume(broker)
    unknown = re.search(r"of unknown outcome: (\d+)", told)
    assert unknown is not None, told
    stored = run(cluster, "consume", "stopped")[0].count(b"\n")
    assert 0 <= stored - int(told.split()[0]) <= int(unknown[1]) + 1


def test_nothing_is_lost_or_doubled_when_leaders_die_under_produce_and_consume(
    cluster: Cluster, directory: Path
) -> None:
    data = lines(200_000)
    (directory / "in").write_bytes(data)
    run(cluster, "topic", "create", "storm")
    process = command(cluster, "produce", "storm", str(directory / "in"), "--batch-bytes", "20000")
    while not run(cluster, "consume", "storm", "--max", "1")[0]:
        time.sleep(0.01)
    died = cluster.leader("storm", 0)
    assert process.poll() is None, "everything was sent before anybody died"
    cluster.kill(died)
    _, told = process.communicate(timeout=90)
    assert process.returncode == 0, told.decode()
    assert told.startswith(b"200000 records, ")
    cluster.start(died)
    reader = command(cluster, "consume", "storm")
    assert reader.stdout is not None
    first = reader.stdout.read(100_000)
    cluster.kill(cluster.leader("storm", 0))
    rest, told = reader.communicate(timeout=90)
    assert reader.returncode == 0, told.decode()
    assert first + rest == data


def test_dev_prints_its_lines_and_stops_all_brokers(directory: Path) -> None:
    data = directory / "dev"
    port = free_ports(3)
    strangers = packages_of_our_names(directory / "project")
    for number in (signal.SIGTERM, signal.SIGINT):  # the second time on its own data
        with subprocess.Popen(
            [*RAFTLOG, "dev", "--data", str(data), "--http-port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=strangers,
            text=True,
        ) as process:
            try:
                pids = _pids_told(process, data, port)
                process.send_signal(number)
                assert process.communicate(timeout=10)[0] == ""
            finally:
                process.terminate()
        assert process.returncode == 0
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_dev_names_a_broker_that_died_and_how_to_start_it(directory: Path) -> None:
    data, port = directory / "dev", free_ports(3)
    with subprocess.Popen(
        [*RAFTLOG, "dev", "--data", str(data), "--http-port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            pids = _pids_told(process, data, port)
            os.kill(pids[1], signal.SIGKILL)
            assert process.stderr is not None
            told = iter(process.stderr.readline, "")
            died = next(line for line in told if "killed" in line)
        finally:
            process.terminate()
            process.communicate(timeout=20)
    config = (data / "broker-2" / "raftlog.toml").resolve()
    assert died == f"broker 2 was killed by SIGKILL; start it with: raftlog serve --config {config}\n"


def test_ctrl_c_twice_while_dev_starts_leaves_no_traceback_and_no_broker(directory: Path) -> None:
    port = free_ports(3)
    with subprocess.Popen(
        [*RAFTLOG, "dev", "--data", str(directory / "dev"), "--http-port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate(timeout=20)
    assert process.returncode == 0, told
    assert "Traceback" not in told
    assert "killed" not in told
    for pid in re.findall(r"pid=([0-9]+)", first + rest):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def _pids_told(process: subprocess.Popen[str], data: Path, port: int) -> list[int]:
    """The process ids of the brokers, from lines that must be as they are promised."""
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(4)]
    pids = []
    for broker, line in enumerate(told[:3], 1):
        words = dict(word.split("=", 1) for word in line.split())
        pids.append(int(words.pop("pid")))
        config = str((data / f"broker-{broker}" / "raftlog.toml").resolve())
        assert words == {
            "broker": str(broker),
            "http": f"http://127.0.0.1:{port + broker - 1}",
            "config": config,
        }
    assert told[3] == "ready\n"
    return pids


# requirement: F2, F6
def test_partitions_are_listed_led_by_another_broker_and_held_by_fewer(unbroken: Cluster) -> None:
    run(unbroken, "topic", "create", "moved")
    output, _ = run(unbroken, "partition", "transfer-leadership", "moved", "0", "--to", "2", "-o", "json")
    assert json.loads(output)["leader"] == 2
    output, _ = run(unbroken, "partition", "remove-replica", "moved", "0", "1", "--wait", "20s", "-o", "json")
    shown = json.loads(output)
    assert (sorted(shown["replicas"]), shown["reassignment"]) == ([2, 3], None)
    output, _ = run(unbroken, "partition", "set-replicas", "moved", "0", "2,3,1", "--wait", "20s")
    assert output.decode().splitlines()[1].split()[-1] == "settled"
    output, _ = run(unbroken, "partition", "list", "moved", "-o", "json")
    assert json.loads(output)[0]["replicas"] == [2, 3, 1]
    _, errors = run(unbroken, "partition", "add-replica", "moved", "0", "9", code=1)
    assert "no broker 9" in errors
    _, errors = run(unbroken, "partition", "transfer-leadership", "moved", "7", code=1)
    assert "partition_not_found" in errors
    _, errors = run(unbroken, "partition", "unsafe-recover", "moved", "0", code=1)
    assert "needs no recovery" in errors
