"""What tasks stage and drivers commit, with a whole broker: the faults that Spark hides from a sink."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pyarrow as pa
import pytest

from raftlog import Client
from raftlog.errors import RaftlogError
from spark_io.commits import TRANSACTIONS_MAX, Run, abandon, begin_run, commit
from spark_io.errors import InvalidRows, SinkAhead, SinkGap, SinkInUse
from spark_io.options import WriteOptions, write_options
from spark_io.sink import StreamWriter
from spark_io.staging import Staged, send_at_once, stage
from tests.helpers.async_tests import in_real_time
from tests.helpers.whole_broker import Trouble, WholeBroker, whole_broker

KEY = "spark-q"


class Sink:
    """A sink of two partitions, and what readers of it see."""

    def __init__(self, broker: WholeBroker, client: Client) -> None:
        self.broker = broker
        self.client = client

    @property
    def options(self) -> WriteOptions:
        given = {"bootstrap.servers": self.broker.url, "topic": "orders"}
        return write_options(given, is_stream=True)

    def stage(self, task: str, *values: str, run: Run | None = None) -> str:
        """Run a task; the id of its transaction."""
        found = stage(self.client, self.options, KEY, task, batches(*values), run=run)
        assert found.transaction is not None
        return found.transaction

    def commit(self, sequence: int, *transactions: str) -> int:
        """What the driver does."""
        return commit(self.client, KEY, sequence, transactions, timeout_s=30)

    def begin(self, sequence: int, run: str, *, owner: str = "q", takes_over: bool = False) -> Run:
        """What each task of a stream does first."""
        begun, is_committed = begin_run(
            self.client, KEY, sequence, owner=owner, run=run, takes_over=takes_over
        )
        assert not is_committed
        return begun

    def commit_as(self, run: Run, sequence: int, *transactions: str) -> int:
        """What the driver of a stream does."""
        return commit(self.client, KEY, sequence, transactions, timeout_s=30, run=run)

    def visible(self) -> list[str]:
        """To readers of committed records, sorted."""
        chunks = [self.client.partition("orders", number).read(0) for number in (0, 1)]
        return sorted(str(one.value, "utf8") for chunk in chunks for one in chunk.messages)

    def open(self) -> list[str]:
        """The transactional ids that hold back readers."""
        states = ("ongoing", "prepared")
        return [one.transactional_id for one in self.client.transactions.list() if one.state in states]


def batches(*values: str) -> Iterator[pa.RecordBatch]:
    """One Arrow batch for each value."""
    for value in values:
        yield pa.RecordBatch.from_pydict({"value": [value], "key": [value]})


def with_sink(test: Callable[[Sink], None]) -> Callable[[], None]:
    """Run a test on a thread, beside a broker."""

    async def run() -> None:
        async with whole_broker() as broker:

            def use() -> None:
                with Client(broker.url) as client:
                    test(Sink(broker, client))

            await asyncio.to_thread(use)

    run.__name__ = test.__name__
    return in_real_time(run)


@contextmanager
def fails() -> Iterator[None]:
    """A definite error: nothing was committed."""
    with pytest.raises(RaftlogError) as error:
        yield
    assert error.value.is_definite


# requirement: D3
@with_sink
def test_a_batch_is_visible_with_its_commit_and_not_before(sink: Sink) -> None:
    transactions = [sink.stage("0.0", "a", "b"), sink.stage("1.0", "c")]
    assert sink.visible() == []
    assert sink.commit(1, *transactions) == 1
    assert sink.visible() == ["a", "b", "c"]
    assert stage(sink.client, sink.options, KEY, "2.0", batches()) == Staged(KEY, None, 0)
    assert sink.commit(2) == 2, "a batch without rows"
    assert sink.open() == []


# requirement: D3
@with_sink
def test_a_repeated_batch_changes_nothing_whatever_its_tasks_are_now(sink: Sink) -> None:
    sink.commit(1, sink.stage("0.0", "a"), sink.stage("1.0", "b"), sink.stage("2.0", "c"))
    assert sink.commit(1, sink.stage("0.0", "c", "b", "a")) == 1
    assert sink.commit(2, sink.stage("0.0", "d")) == 2
    assert sink.commit(1, sink.stage("0.0", "e")) == 2, "the driver of an old checkpoint is told"
    assert sink.visible() == ["a", "b", "c", "d"]
    assert sink.open() == []


# requirement: D3
@with_sink
def test_what_a_dead_run_has_staged_is_never_visible_and_holds_nobody_back(sink: Sink) -> None:
    dead = [sink.stage("0.0", "a"), sink.stage("1.0", "b"), sink.stage("5.2", "lost attempt")]
    assert sink.commit(1, sink.stage("0.0", "a"), sink.stage("1.0", "b")) == 1
    assert sink.visible() == ["a", "b"]
    assert sink.open() == []
    with fails():
        sink.commit(2, *dead)  # a zombie
    assert sink.visible() == ["a", "b"]


# requirement: D3
@with_sink
def test_a_run_that_is_over_another_query_and_a_gap_are_told_the_way_out(sink: Sink) -> None:
    first = sink.begin(0, "r1")
    assert sink.commit_as(first, 0) == 0
    late = sink.stage("q.1.0", "late", run=first)
    second = sink.begin(1, "r2")
    assert sink.commit_as(second, 1, sink.stage("q.0.0", "a", run=second)) == 1, "behind an empty batch"
    with pytest.raises(SinkInUse, match="run r1 of query q can no longer write"):
        sink.commit_as(first, 1, late)
    with pytest.raises(SinkInUse, match="run r1 of query q can no longer write"):
        sink.begin(2, "r1")
    with pytest.raises(SinkInUse, match=r"belongs to the query q, .* set sinkTakeover=true"):
        sink.begin(0, "r3", owner="other")
    with pytest.raises(SinkGap, match=r"expects batch 2.*sinkTakeover=true"):
        sink.begin(3, "r2")
    with pytest.raises(SinkAhead, match=r"batch 0 of spark-q is too old.*has committed batch 1"):
        sink.begin(0, "r4")
    other = sink.begin(0, "r3", owner="other", takes_over=True)
    assert sink.commit_as(other, 0, sink.stage("other.0.0", "b", run=other)) == 0
    assert sink.visible() == ["a", "b"]
    assert sink.open() == []


# requirement: D3
@with_sink
def test_an_old_run_that_is_late_disturbs_nothing_of_the_newest(sink: Sink) -> None:
    first = sink.begin(0, "r1")
    old = sink.stage("q.0.0", "old", run=first)
    second = sink.begin(0, "r2")
    kept = sink.stage("q.0.0", "a", run=second)  # the same task of another run
    with pytest.raises(SinkInUse):
        sink.commit_as(first, 0, old)
    with patch.object(
        type(sink.client.transactions), "list", side_effect=AssertionError("a run knows its own")
    ):
        abandon(sink.client, KEY, [old], run=first)  # as Spark does after a commit that was refused
    with fails():
        sink.stage("q.0.0", "old", run=first)
    assert sink.commit_as(second, 0, kept) == 0
    assert sink.visible() == ["a"]
    assert sink.open() == []


# requirement: D3
@with_sink
def test_a_task_of_a_repeated_stage_has_the_name_of_the_lost_one_and_replaces_it(sink: Sink) -> None:
    lost = sink.stage("1.0", "a")
    again = sink.stage("1.0", "a")  # the attempts of a repeated stage count from 0 again
    with fails():
        sink.commit(1, lost)
    assert sink.commit(1, again) == 1
    assert sink.visible() == ["a"]
    assert sink.open() == []


# requirement: D3
@with_sink
def test_a_query_that_is_stopped_while_its_tasks_end_writes_their_rows_once_later(sink: Sink) -> None:
    stopped = sink.begin(1, "r1")
    writer = StreamWriter(sink.options)
    done = sink.stage("q.0.0", "a", run=stopped)
    sink.stage("q.2.0", "its message is lost", run=stopped)
    writer.abort([None, Staged(KEY, done, 1, stopped), None], 1)
    assert sink.open() == [], "what has ended by then is aborted"
    late = sink.stage("q.1.0", "b", run=stopped)
    writer.abort([None, None], 1)  # Spark passes nothing of tasks that it has not heard of
    next_run = sink.begin(1, "r2")
    assert sink.open() == [], "the next run ends the rest"
    again = [sink.stage("q.0.0", "a", run=next_run), sink.stage("q.1.0", "b", run=next_run)]
    assert sink.commit_as(next_run, 1, *again) == 1
    with pytest.raises(SinkInUse):
        sink.commit_as(stopped, 1, late)
    assert sink.visible() == ["a", "b"]
    assert sink.open() == []


# requirement: D3 X1
@with_sink
def test_a_run_that_repeats_a_committed_batch_has_nothing_to_write(sink: Sink) -> None:
    first = sink.begin(0, "r1")
    sink.commit_as(first, 0, sink.stage("q.0.0", "a", run=first))
    run, is_committed = begin_run(sink.client, KEY, 0, owner="q", run="r2", takes_over=False)
    assert is_committed
    StreamWriter(sink.options).commit([Staged(KEY, None, 0, run, is_committed=True)], 0)
    second = sink.begin(1, "r2")
    assert sink.commit_as(second, 1, sink.stage("q.0.0", "b", run=second)) == 1
    assert sink.visible() == ["a", "b"]


# requirement: D3
@with_sink
def test_one_of_two_attempts_of_a_task_counts(sink: Sink) -> None:
    first, second = sink.stage("0.0", "a"), sink.stage("0.1", "a")
    assert sink.commit(1, first, sink.stage("1.0", "b")) == 1
    with fails():
        sink.commit(2, second)
    assert sink.visible() == ["a", "b"]
    assert sink.open() == []


# requirement: D3
@with_sink
def test_an_abort_after_a_commit_without_an_answer_undoes_nothing(sink: Sink) -> None:
    transaction = sink.stage("0.0", "a")
    sink.broker.trouble(":commit-batch", Trouble.UNANSWERED)
    assert sink.commit(1, transaction) == 1
    abandon(sink.client, KEY, [transaction])
    assert sink.visible() == ["a"]


@with_sink
def test_an_abort_takes_all_that_the_batch_has_staged(sink: Sink) -> None:
    transaction = sink.stage("0.0", "a")
    sink.stage("1.0", "its message is lost")
    abandon(sink.client, KEY, [transaction])
    assert sink.open() == []
    assert sink.visible() == []


@with_sink
def test_a_batch_of_too_many_tasks_is_refused_with_the_remedy(sink: Sink) -> None:
    with pytest.raises(InvalidRows, match=r"use df\.coalesce\(999\)"):
        sink.commit(1, *[f"{KEY}~{number}@1.0" for number in range(TRANSACTIONS_MAX + 1)])


@with_sink
def test_rows_that_are_sent_at_once_need_no_commit(sink: Sink) -> None:
    assert send_at_once(sink.client, sink.options, batches("a", "b")).count == 2
    assert sink.visible() == ["a", "b"]
