"""Formats of results, problems in colour, results again and again, completion in shells."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from api.cli.commands import app
from api.cli.output import note, problem, write_json, write_json_line, write_table
from api.cli.restarts import _asker
from api.cli.tables import duration_text, setting_text, size_text, table_lines
from raftlog.units import duration_ms, size_bytes
from raftlog.wire.bodies import Reassignment
from raftlog.wire.limits import INT64_MAX
from tests.helpers.async_tests import beside
from tests.helpers.command_line import RAFTLOG, Commands, invoke
from tests.helpers.http_server import serve
from tests.helpers.no_brokers import frozen_broker

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def raftlog() -> Iterator[Commands]:
    with beside(serve()) as server:
        yield Commands(server.url)


def test_sizes_and_durations_are_for_people() -> None:
    assert [size_text(each) for each in (0, 1023, 1024, 1_300_000, 5 << 40)] == [
        "0B",
        "1023B",
        "1KiB",
        "1.2MiB",
        "5TiB",
    ]
    durations = {
        0.25: "0.25ms",
        133.0: "133ms",
        999.7: "1s",
        59_949: "59.9s",
        59_999: "1m",
        5_400_000: "1h30m",
    }
    assert {each: duration_text(each) for each in durations} == durations
    assert duration_text(86_700_000) == "1d"


@pytest.mark.parametrize(("name", "value"), [("retention.ms", 90_000), ("segment.bytes", 1_114_112)])
def test_a_shown_setting_is_exact_and_may_be_given_as_it_is_shown(name: str, value: int) -> None:
    read = duration_ms if name.endswith("ms") else size_bytes
    assert read(setting_text(name, value)) == value
    assert [setting_text(name, each) for each in (-1, INT64_MAX)] == ["-1", str(INT64_MAX)]


def test_a_table_has_its_first_columns_and_a_wide_one_has_all() -> None:
    rows = [{"size_bytes": 2048, "name": "a", "timeout_ms": 1500, "lag": 1, "lag_seconds": 2.5}]
    assert list(table_lines(rows, ("name", "size_bytes"), is_wide=False)) == ["name  size", "a     2KiB"]
    assert next(table_lines(rows, ("name", "size_bytes"))).split() == [
        "name",
        "size",
        "timeout",
        "lag",
        "lag_seconds",
    ]


def test_columns_stay_aligned_beside_wide_and_combining_characters() -> None:
    rows = [{"key": "订单", "value": "x"}, {"key": "e\u0301t", "value": "x"}, {"key": "plain", "value": "x"}]
    assert list(table_lines(rows)) == ["key    value", "订单   x", "e\u0301t     x", "plain  x"]


MOVE = Reassignment(target=[1, 2], state="learning", caught_up_percent=None)
ESCAPES = "\x1b]0;owned\x07\x1b[31m"


def test_cells_and_messages_have_no_escapes_of_terminals_and_no_names_of_classes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_table([{"key": ESCAPES, "move": MOVE, "moves": [MOVE]}])
    note(f"the broker says {ESCAPES}")
    problem(ESCAPES)
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert shown.out.count("target=1,2 state=learning caught_up_percent=-") == 2


def test_structs_in_a_result_are_objects_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    write_json([{"reassignment": MOVE}])
    write_json_line({"reassignment": MOVE})
    whole, line = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    assert json.loads(whole) == [json.loads(line)]


def test_the_output_of_a_command_that_restarts_a_broker_is_no_result(
    capfd: pytest.CaptureFixture[str],
) -> None:
    _asker("echo broker {broker}")(7)
    assert capfd.readouterr() == ("", "broker 7\n")


def test_the_output_is_json_and_nothing_else(raftlog: Commands) -> None:
    for command in (
        "topic create made",
        "topic alter made --config retention.ms=1m",
        "topic describe made",
        "topic list",
        "topic delete made --yes",
        "broker list",
        "cluster describe",
        "group list",
        "transaction list",
        "delayed list",
        "schedule list",
        "cluster token",
    ):
        found = raftlog(f"{command} -o json")
        assert isinstance(json.loads(found.stdout), list | dict)
        assert found.stderr == ""


@pytest.mark.parametrize(
    ("option", "variables", "is_red"),
    [("auto", {}, False), ("always", {"NO_COLOR": "1"}, True), ("never", {}, False)],
)
def test_problems_are_in_colour_where_that_is_wanted(
    option: str, variables: dict[str, str], is_red: bool
) -> None:
    arguments = ["context", "use", "none", "--color", option]
    result = CliRunner().invoke(app, arguments, env={"XDG_CONFIG_HOME": "/dev/null", **variables})
    assert ("\x1b[31m" in result.stderr) is is_red


@pytest.mark.parametrize(("variables", "is_red"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_problems_are_in_colour_on_terminals(variables: dict[str, str], is_red: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "XDG_CONFIG_HOME": "/dev/null", **variables}
    subprocess.run([*RAFTLOG, "context", "use", "none"], stderr=theirs, env=environment)
    assert (b"\x1b[31m" in os.read(ours, 1000)) is is_red


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_watch_prints_one_result_after_another_until_a_signal(
    raftlog: Commands, ending: signal.Signals
) -> None:
    command = [*RAFTLOG, "cluster", "describe", "--watch", "0.1", "-o", "json", "--url", raftlog.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ends = 0
        while ends < 2:
            line = process.stdout.readline()
            assert line, process.wait(10)
            ends += line == "}\n"
        process.send_signal(ending)
        assert process.wait(10) == 0


def test_ctrl_c_at_a_question_ends_with_130(raftlog: Commands) -> None:
    raftlog("topic create asked-for")
    ours, theirs = pty.openpty()
    command = [*RAFTLOG, "topic", "delete", "asked-for", "--url", raftlog.url]
    with subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stderr is not None
        shown = b""
        while b"Type its name" not in shown:
            shown += process.stderr.read(100)
            assert shown, process.wait(10)
        for _ in range(4):  # one that comes just before the read does not interrupt it
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
                break
        process.kill()
        assert process.wait() == 130
    os.close(ours)
    os.close(theirs)
    assert "asked-for" in raftlog("topic list").stdout


@pytest.mark.parametrize("pause", ["nan", "inf", "1e300", "0"])
def test_watch_takes_only_pauses_that_a_clock_has(pause: str) -> None:
    assert "--watch" in invoke(NOWHERE, "topic", "list", "--watch", pause, code=2).stderr


def completed(words: str, **variables: str | None) -> list[str]:
    environment: dict[str, str | None] = {
        "_RAFTLOG_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        **variables,
    }
    environment["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    result = CliRunner().invoke(app, [], env=environment, prog_name="raftlog")
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.split()]


def test_commands_options_and_names_are_completed(raftlog: Commands) -> None:
    raftlog("topic create completed")
    assert completed("raftlog topic desc") == ["describe"]
    assert "--partitions" in completed("raftlog topic create t --part")
    for words in ("topic describe", "consume", "group reset g --topic", f"consume --url {raftlog.url}"):
        assert completed(f"raftlog {words} compl", RAFTLOG_URL=raftlog.url) == ["completed"], words
    assert completed("raftlog topic describe none", RAFTLOG_URL=raftlog.url) == []


@pytest.mark.parametrize(
    ("option", "variables"),
    [("", {}), ("--context here ", {"RAFTLOG_URL": NOWHERE}), ("", {"RAFTLOG_CONTEXT": "here"})],
)
def test_names_are_those_of_the_cluster_that_the_command_would_use(
    raftlog: Commands, tmp_path: Path, option: str, variables: dict[str, str]
) -> None:
    environment = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "RAFTLOG_URL": None,
        "RAFTLOG_CONTEXT": None,
        **variables,
    }
    in_use = "nowhere" if option or variables else "here"
    for words in (f"add here --url {NOWHERE},{raftlog.url}", f"add nowhere --url {NOWHERE}", f"use {in_use}"):
        assert CliRunner().invoke(app, ["context", *words.split()], env=environment).exit_code == 0
    topic = f"of-a-context{len(option)}{len(variables)}"
    raftlog(f"topic create {topic}")
    assert completed(f"raftlog topic describe {option}{topic}", **environment) == [topic]
    assert completed("raftlog topic list --context h", **environment) == ["here"]


def test_completion_is_silent_without_a_cluster() -> None:
    assert completed("raftlog topic describe c", RAFTLOG_URL=NOWHERE) == []
    assert completed("raftlog topic describe c", RAFTLOG_URL="ftp://here") == []
    with beside(frozen_broker()) as url:
        assert completed("raftlog topic describe c", RAFTLOG_URL=url) == []


def test_the_script_completes_in_bash(tmp_path: Path) -> None:
    script = (
        'eval "$(./raftlog completion bash)";'
        "COMP_WORDS=(raftlog top) COMP_CWORD=1; _raftlog_completion ./raftlog; echo ${COMPREPLY[@]}"
    )
    program = tmp_path / "raftlog"
    program.write_text(f'#!/bin/sh\nexec {" ".join(RAFTLOG)} "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("topic\n", "")
