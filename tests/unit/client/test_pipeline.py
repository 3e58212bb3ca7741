"""The rules of order, one partition at a time and without a network."""

from __future__ import annotations

import random
import threading

import pytest

from raftlog.client.pipeline import InFlightBatch, Pipeline
from raftlog.client.receipts import Batch
from raftlog.errors import (
    CommitUnknown,
    ConnectionLost,
    NoLeader,
    OutOfOrderSequence,
    ProducerFenced,
    RaftlogError,
    RecordTooLarge,
)
from raftlog.records.batch import EPOCH_MAX, SEQUENCE_MAX
from raftlog.records.builder import Record

LATE = 100.0


class Source:
    """Batches to take, each of three records."""

    def __init__(self, count: int = 20) -> None:
        self.batches = [make_batch() for _ in range(count)]
        self.left = list(self.batches)

    def take(self) -> Batch | None:
        """The next one."""
        return self.left.pop(0) if self.left else None


def make_batch(deadline: float = LATE) -> Batch:
    """A batch of three records."""
    batch = Batch("orders", 0, timestamp_ms=0, due=0.0, deadline=deadline, lock=threading.Lock())
    batch.records += [Record(b"a"), Record(b"b"), Record(b"c")]
    return batch


def send_all(pipeline: Pipeline, source: Source) -> list[InFlightBatch]:
    """Everything that may leave now."""
    sent = []
    while (in_flight := pipeline.next_to_send(source.take)) is not None:
        sent.append(in_flight)
    return sent


def proven() -> tuple[Pipeline, Source, list[InFlightBatch]]:
    """A pipeline after its first answer, with five batches in the air: sequences 3, 6, 9, 12, 15."""
    pipeline, source = Pipeline(), Source()
    (first,) = send_all(pipeline, source)
    pipeline.delivered(first)
    return pipeline, source, send_all(pipeline, source)


def test_the_first_batch_leaves_alone_and_five_follow_its_answer() -> None:
    _, _, sent = proven()
    assert [in_flight.sequence for in_flight in sent] == [3, 6, 9, 12, 15]


def test_no_more_than_five_batches_lie_behind_the_oldest_without_an_outcome() -> None:
    pipeline, source, sent = proven()
    for in_flight in sent[1:]:
        pipeline.delivered(in_flight)
    assert send_all(pipeline, source) == []  # a retry of the oldest must still be recognised
    pipeline.delivered(sent[0])
    assert len(send_all(pipeline, source)) == 5


def test_after_a_failure_nothing_leaves_until_all_have_landed_and_then_in_the_old_order() -> None:
    pipeline, source, sent = proven()
    pipeline.failed(sent[1], ConnectionLost())
    assert send_all(pipeline, source) == []
    assert not pipeline.must_settle
    pipeline.delivered(sent[0])
    for in_flight in sent[2:]:
        pipeline.failed(in_flight, OutOfOrderSequence())
    assert pipeline.must_settle
    decision = pipeline.settle(now=0.0)
    assert decision.given_up == []
    assert isinstance(decision.retry_after, ConnectionLost)
    resent = []
    while (in_flight := pipeline.next_to_send(source.take)) is not None and len(resent) < 4:
        resent.append((in_flight, in_flight.sequence))
        pipeline.delivered(in_flight)
    assert resent == [(in_flight, 6 + 3 * number) for number, in_flight in enumerate(sent[1:])]


def test_one_that_was_refused_for_good_is_given_up_and_the_others_are_numbered_anew() -> None:
    pipeline, source, sent = proven()
    pipeline.failed(sent[0], RecordTooLarge())
    for in_flight in sent[1:]:
        pipeline.failed(in_flight, OutOfOrderSequence())
    ((batch, error),) = pipeline.settle(now=0.0).given_up
    assert batch is sent[0].batch
    assert isinstance(error, RecordTooLarge)
    assert pipeline.epoch == 1
    (alone,) = send_all(pipeline, source)  # nothing is proven in a new epoch
    assert (alone, alone.sequence) == (sent[1], 0)
    pipeline.delivered(alone)
    assert [one.sequence for one in send_all(pipeline, source)] == [3, 6, 9, 12, 15]


def test_one_that_may_be_written_is_unknown_at_its_deadline_and_so_are_those_sent_behind_it() -> None:
    pipeline, source, sent = proven()
    pipeline.failed(sent[0], ConnectionLost())
    pipeline.failed(sent[1], ConnectionLost())
    for in_flight in sent[2:]:
        pipeline.failed(in_flight, OutOfOrderSequence())
    given_up = pipeline.settle(now=LATE).given_up
    assert [batch for batch, _ in given_up] == [sent[0].batch, sent[1].batch]
    assert not any(error.is_definite for _, error in given_up)
    (alone,) = send_all(pipeline, source)
    assert (alone, alone.sequence, pipeline.epoch) == (sent[2], 0, 1)


def test_a_definite_refusal_after_an_unanswered_attempt_stays_unknown() -> None:
    pipeline, source = Pipeline(), Source()
    (first,) = send_all(pipeline, source)
    pipeline.failed(first, ConnectionLost())
    pipeline.settle(now=0.0)
    (again,) = send_all(pipeline, source)
    pipeline.failed(again, NoLeader())
    ((_, error),) = pipeline.settle(now=LATE).given_up
    assert isinstance(error, CommitUnknown)
    assert isinstance(error.__cause__, NoLeader)


def test_a_broker_that_lost_track_gets_a_new_epoch_and_nothing_is_given_up() -> None:
    pipeline, source = Pipeline(), Source()
    (first,) = send_all(pipeline, source)
    pipeline.delivered(first)
    second = pipeline.next_to_send(source.take)
    assert second is not None
    pipeline.failed(second, OutOfOrderSequence(expected_sequence=0))
    decision = pipeline.settle(now=0.0)
    assert (decision.given_up, decision.retry_after) == ([], None)
    assert pipeline.next_to_send(source.take) is second
    assert (second.sequence, pipeline.epoch) == (0, 1)


def test_a_long_wait_for_a_leader_does_not_cost_the_right_to_a_new_number() -> None:
    """The record before was acknowledged by a leader alone, which then died with it."""
    pipeline, source = Pipeline(), Source()
    (first,) = send_all(pipeline, source)
    pipeline.delivered(first)
    second = pipeline.next_to_send(source.take)
    assert second is not None
    for _ in range(20):
        pipeline.failed(second, NoLeader())
        pipeline.settle(now=0.0)
        assert pipeline.next_to_send(source.take) is second
    pipeline.failed(second, OutOfOrderSequence(expected_sequence=0))
    assert pipeline.settle(now=0.0).given_up == []
    assert pipeline.next_to_send(source.take) is second
    assert (second.sequence, pipeline.epoch) == (0, 1)


def test_a_broker_that_refuses_every_number_is_believed_in_the_end() -> None:
    pipeline, source = Pipeline(), Source(1)
    epochs = []
    while (in_flight := pipeline.next_to_send(source.take)) is not None and len(epochs) < 100:
        epochs.append(pipeline.epoch)
        pipeline.failed(in_flight, OutOfOrderSequence())
        given_up = pipeline.settle(now=0.0).given_up
    ((_, error),) = given_up
    assert isinstance(error, OutOfOrderSequence)
    assert epochs == [0, 1, 2, 3, 4, 5]


def test_without_an_identity_one_batch_is_in_the_air_at_a_time() -> None:
    pipeline, source = Pipeline(in_flight_max=1), Source()
    (first,) = send_all(pipeline, source)
    pipeline.delivered(first)
    assert len(send_all(pipeline, source)) == 1


def test_without_retries_every_failure_is_the_last() -> None:
    pipeline, source = Pipeline(in_flight_max=1, retries=False), Source()
    (first,) = send_all(pipeline, source)
    pipeline.failed(first, NoLeader())
    ((batch, error),) = pipeline.settle(now=0.0).given_up
    assert batch is first.batch
    assert isinstance(error, NoLeader)


def test_sequences_begin_again_after_the_largest_and_epochs_need_a_new_producer_then() -> None:
    pipeline, source = Pipeline(), Source()
    pipeline._next_sequence = SEQUENCE_MAX - 1
    (first,) = send_all(pipeline, source)
    pipeline.delivered(first)
    assert send_all(pipeline, source)[0].sequence == 1
    worn, source = Pipeline(), Source()
    worn.epoch = EPOCH_MAX
    (first,) = send_all(worn, source)
    worn.failed(first, RecordTooLarge())
    worn.settle(now=0.0)
    assert (worn.epoch, worn.generation) == (0, 1)


class Log:
    """A broker's view, in miniature: appends once, in order of sequence, remembers five batches."""

    def __init__(self) -> None:
        self.written: list[Batch] = []
        self.epoch = -1
        self.window: list[int] = []
        self.expected = 0

    def append(self, batch: Batch, sequence: int, epoch: int) -> RaftlogError | None:
        """The error, if the broker has one."""
        if self.epoch >= 0:
            if epoch < self.epoch:
                return ProducerFenced(current_epoch=self.epoch)
            if epoch == self.epoch and sequence in self.window:
                return None
            if sequence != (self.expected if epoch == self.epoch else 0):
                return OutOfOrderSequence()
        if epoch != self.epoch:
            self.epoch, self.window = epoch, []
        self.written.append(batch)
        self.window = [*self.window, sequence][-5:]
        self.expected = sequence + len(batch.records)
        return None


@pytest.mark.parametrize("seed", range(100))
def test_whatever_is_lost_refused_or_overtaken_batches_are_written_once_and_in_order(seed: int) -> None:
    # requirement: P6
    rng = random.Random(seed)
    pipeline, source, log = Pipeline(), Source(40), Log()
    in_air: list[InFlightBatch] = []
    acked: list[Batch] = []
    lost: dict[Batch, RaftlogError] = {}
    late: list[tuple[Batch, int, int]] = []  # given up by the client, and still on the wire
    now = 0.0
    for _ in range(2_000):
        now += rng.random()
        if pipeline.must_settle:
            lost.update(pipeline.settle(now if rng.random() < 0.9 else LATE).given_up)
        in_air += send_all(pipeline, source)
        if late and rng.random() < 0.2:
            log.append(*late.pop(rng.randrange(len(late))))
        if not in_air:
            break
        in_flight = in_air.pop(rng.randrange(len(in_air)) if rng.random() < 0.3 else 0)
        fate = rng.random()
        if fate < 0.1:
            late.append((in_flight.batch, in_flight.sequence, pipeline.epoch))
            pipeline.failed(in_flight, ConnectionLost())
        elif fate < 0.15:
            pipeline.failed(in_flight, NoLeader())
        elif fate < 0.17:
            pipeline.failed(in_flight, RecordTooLarge())
        elif (error := log.append(in_flight.batch, in_flight.sequence, pipeline.epoch)) is not None:
            pipeline.failed(in_flight, error)
        elif fate < 0.3:
            pipeline.failed(in_flight, CommitUnknown())
        else:
            pipeline.delivered(in_flight)
            acked.append(in_flight.batch)
    for packet in late:
        log.append(*packet)
    assert not source.left
    order = {batch: number for number, batch in enumerate(source.batches)}
    written = [order[batch] for batch in log.written]
    assert written == sorted(set(written))
    assert set(acked) <= set(log.written)
    assert set(acked) | set(lost) == set(source.batches)
    assert not set(acked) & set(lost)
    assert not any(error.is_definite for batch, error in lost.items() if batch in log.written)


# requirement: D3
def test_a_failed_batch_of_a_transaction_fails_those_behind_it() -> None:
    pipeline, source = Pipeline(transaction_epoch=7), Source(4)
    (first,) = send_all(pipeline, source)
    pipeline.delivered(first)
    second, third, fourth = send_all(pipeline, source)
    pipeline.failed(second, RecordTooLarge())
    pipeline.failed(third, ConnectionLost())
    pipeline.delivered(fourth)
    decision = pipeline.settle(0.0)
    assert [batch for batch, _ in decision.given_up] == source.batches[1:3]
    assert [type(error) for _, error in decision.given_up] == [RecordTooLarge, ConnectionLost]
    assert pipeline.is_idle
    assert pipeline.epoch == 7


# requirement: D3
@pytest.mark.parametrize("error", [ProducerFenced(), OutOfOrderSequence()])
def test_a_batch_of_a_transaction_keeps_its_number(error: RaftlogError) -> None:
    pipeline, source = Pipeline(transaction_epoch=7), Source(1)
    (only,) = send_all(pipeline, source)
    pipeline.failed(only, error)
    assert pipeline.settle(0.0).given_up == [(only.batch, error)]
    assert pipeline.epoch == 7
