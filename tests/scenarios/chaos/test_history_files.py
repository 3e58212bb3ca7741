"""Files of a history and of a report: written, read again, and refused when damaged."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.checkers import check
from chaos.harness.report import InvalidRecord, read_record, write_report
from chaos.history import (
    Assign,
    AssignKind,
    Commit,
    Committed,
    Decision,
    End,
    History,
    Look,
    Open,
    Outcome,
    Poll,
    Send,
)
from chaos.history_files import InvalidHistory, read_history, write_history
from raftlog.__main__ import COMMAND
from tests.helpers import chaos_runs

numbers = st.integers(0, 9)
times = st.floats(0, 1e9)
texts = st.text(max_size=5)
sends = st.builds(
    Send,
    process=numbers,
    partition=numbers,
    value=texts,
    invoked_s=times,
    completed_s=times | st.just(math.inf),
    outcome=st.sampled_from(Outcome),
    offset=st.none() | numbers,
    txn=st.none() | numbers,
)
polls = st.builds(
    Poll,
    process=numbers,
    partition=numbers,
    invoked_s=times,
    completed_s=times,
    records=st.lists(st.tuples(numbers, texts), max_size=3).map(tuple),
    log_start=numbers,
    outcome=st.sampled_from(Outcome),
    txn=st.none() | numbers,
    rebalanced=st.booleans(),
)
assigns = st.builds(
    Assign,
    process=numbers,
    kind=st.sampled_from(AssignKind),
    partitions=st.lists(numbers, max_size=2).map(tuple),
    invoked_s=times,
    completed_s=times,
)
commits = st.builds(
    Commit,
    group=texts,
    partition=numbers,
    offset=numbers,
    invoked_s=times,
    completed_s=times | st.just(math.inf),
    outcome=st.sampled_from(Outcome),
)
committed = st.builds(
    Committed,
    group=texts,
    partition=numbers,
    offset=st.none() | numbers,
    invoked_s=times,
    completed_s=times,
)
looks = st.builds(
    Look,
    partition=numbers,
    invoked_s=times,
    completed_s=times,
    high_watermark=numbers,
    last_stable=st.none() | numbers,
)
opens = st.builds(
    Open,
    process=numbers,
    transactional_id=texts,
    invoked_s=times,
    completed_s=times,
    outcome=st.sampled_from(Outcome),
)
ends = st.builds(
    End,
    process=numbers,
    txn=numbers,
    asked=st.sampled_from(Decision),
    invoked_s=times,
    completed_s=times,
    decided=st.none() | st.sampled_from(Decision),
)
histories = st.builds(
    History,
    sends=st.lists(sends, max_size=4),
    polls=st.lists(polls, max_size=4),
    looks=st.lists(looks, max_size=4),
    final=st.lists(polls, max_size=2),
    assigns=st.lists(assigns, max_size=2),
    commits=st.lists(commits, max_size=2),
    committed=st.lists(committed, max_size=2),
    opens=st.lists(opens, max_size=2),
    ends=st.lists(ends, max_size=2),
    final_looks=st.lists(looks, max_size=2),
)


@given(history=histories)
def test_a_history_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, history: History
) -> None:
    path = tmp_path_factory.getbasetemp() / "history.jsonl"
    write_history(path, history)
    assert read_history(path) == history


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "line 2: Input data was truncated"),
        ("[]", "line 2: Expected `object`"),
        ("{}", "line 2: op is missing; write one of send, poll, final, look, assign, commit, committed"),
        ('{"op": "sent"}', "line 2: op is sent; write one of"),
        ('{"op": "send", "process": 1}', "line 2: Object missing required field `partition`"),
        ('{"op": "look", "partition": "x"}', "line 2: Expected `int`, got `str` - at `\\$.partition`"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, named: str) -> None:
    path = tmp_path / "history.jsonl"
    good = '{"op": "look", "partition": 0, "invoked_s": 0, "completed_s": 1, "high_watermark": 0}'
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(InvalidHistory, match=named):
        read_history(path)


SENT = """
{:type :invoke, :f :send, :value [[:send 5 1]], :process 0, :time 10, :index 0}
{:type :ok, :f :send, :value [[:send 5 [0 1]]], :process 0, :time 20, :index 1}
{:type :invoke, :f :txn, :value [[:send 5 2] [:send 6 2]], :process 0, :time 30, :index 2}
{:type :ok, :f :txn, :value [[:send 5 [1 2]] [:send 6 [0 2]]], :process 0, :time 40, :index 3}
{:type :invoke, :f :send, :value [[:send 5 3]], :process 0, :time 50, :index 4}
{:type :info, :f :send, :value [[:send 5 3]], :process 0, :time 60, :error :timeout, :index 5}
{:type :info, :f :start-partition, :process :nemesis, :time 61, :value nil, :index 6}
{:type :invoke, :f :send, :value [[:send 5 4]], :process 7, :time 62, :index 7}
{:type :fail, :f :send, :value [[:send 5 4]], :process 7, :time 63, :index 8}
"""


def kinds(path: Path, text: str) -> list[str]:
    path.write_text(text)
    return [anomaly.kind for anomaly in check(read_history(path)) if anomaly.is_bad]


def polled(*pairs: str, time: int = 70, process: int = 1, extra: str = "") -> str:
    found = " ".join(pairs)
    return (
        f"{{:type :invoke, :f :poll, :value [[:poll]], :process {process}, :time {time}}}\n"
        f"#jepsen.history.Op{{:type :ok, :f :poll, :value [[:poll {{5 [{found}]}}]], :process {process}, "
        f":time {time + 5}{extra}}}\n"
    )


ASSIGN = (
    "{:type :invoke, :f :assign, :value [6], :process 1, :time 71}\n"
    "{:type :ok, :f :assign, :value [6], :process 1, :time 72}\n"
)


@pytest.mark.parametrize(
    ("polls", "anomalies"),
    [
        ("", []),
        (polled("[0 1]", "[1 2]"), []),
        (polled("[0 1]", "[2 3]"), ["lost-write", "int-poll-skip"]),  # 2 was passed over
        (polled("[0 1]", "[1 3]"), ["inconsistent-offsets", "lost-write"]),
        (polled("[0 1]", "[1 2]", "[2 1]"), ["duplicate", "int-nonmonotonic-poll"]),
        (polled("[0 1]", "[1 2]", "[2 4]"), ["G1a"]),
        (polled("[0 1]", "[1 2]") + polled("[0 1]", time=80), ["nonmonotonic-poll"]),
        (polled("[0 1]", "[1 2]") + ASSIGN + polled("[0 1]", time=80), []),
        (polled("[0 1]", "[1 2]") + polled("[0 1]", time=80, extra=", :rebalance-log [{:keys [5]}]"), []),
        (polled("[0 1]", "[1 2]") + polled("[0 1]", time=80, process=2), []),
    ],
)
def test_a_history_of_jepsen_is_judged_as_it_is_there(
    tmp_path: Path, polls: str, anomalies: list[str]
) -> None:
    path = tmp_path / "history.edn"
    assert kinds(path, SENT + polls) == anomalies
    assert kinds(path, f"[{SENT} {polls}]") == anomalies


def test_a_transaction_of_jepsen_stays_one_operation(tmp_path: Path) -> None:
    text = """
{:type :invoke, :f :subscribe, :value [5], :process 1, :time 1}
{:type :ok, :f :subscribe, :value [5], :process 1, :time 2}
{:type :invoke, :f :txn, :value [[:poll] [:send 5 1]], :process 1, :time 3}
{:type :ok, :f :txn, :value [[:poll {5 [[0 1]]}] [:send 5 [0 1]]], :process 1, :time 4}
{:type :invoke, :f :crash, :value nil, :process 1, :time 5}
{:type :info, :f :crash, :value nil, :process 1, :time 6}
"""
    path = tmp_path / "history.edn"
    assert kinds(path, text) == ["precommitted-read"]
    found = read_history(path)
    assert [assign.kind for assign in found.assigns] == [AssignKind.SUBSCRIBE, AssignKind.CRASH]
    assert found.polls[0].txn == found.sends[0].txn is not None


@pytest.mark.parametrize("text", ["{:a", "{:a 1}", "7", '{:type :ok, :f :send, :process 1, :value "x"}', "}"])
def test_an_edn_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.edn"
    path.write_text(text)
    with pytest.raises(InvalidHistory, match=r"give the history\.edn"):
        read_history(path)


def test_the_command_says_what_the_document_shows(tmp_path: Path) -> None:
    document = Path(__file__).parents[3].joinpath("docs", "chaos.md").read_text()
    lines = [line for line in document.splitlines() if line.startswith('{"op":"')]
    path = tmp_path / "history.jsonl"
    path.write_text("\n".join(lines))
    shown = document.split("$ raftlog chaos check history.jsonl\n")[1].split("```")[0]
    done = subprocess.run(
        [*COMMAND, "chaos", "check", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (1, shown)
    path.write_text(lines[0])
    done = subprocess.run(
        [*COMMAND, "chaos", "check", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.split()[0]) == (0, "verdict=valid")


def test_record_and_history_come_back(tmp_path: Path) -> None:
    record, history = chaos_runs.run(seconds=10, faults=3)
    path = write_report(tmp_path / "new", record, history)
    assert path == tmp_path / "new/report.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert read_record(tmp_path / "new/report.json") == record
    assert read_history(tmp_path / "new/history.jsonl") == history


def test_a_file_that_is_no_record_is_named_with_its_mistake(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(InvalidRecord, match=r"report\.json: .*give the report\.json of a run"):
        read_record(path)
    path.write_text('{"verdict": 3}')
    with pytest.raises(InvalidRecord, match=r"Expected `str`, got `int` - at `\$\.verdict`"):
        read_record(path)
