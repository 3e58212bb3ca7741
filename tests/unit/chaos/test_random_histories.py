"""Random histories of a correct log are valid, and a planted fault makes them invalid."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from chaos.checkers import Anomaly, Severity, check
from chaos.history import Commit, Committed, Decision, History, Look, Open, Outcome, Poll, Send
from tests.helpers.clean_histories import clean_history


def wrong(history: History) -> list[Anomaly]:
    return [anomaly for anomaly in check(history) if anomaly.severity is not Severity.NORMAL]


@pytest.mark.parametrize("seed", range(30))
def test_a_correct_log_is_never_accused(seed: int) -> None:
    assert wrong(clean_history(seed, 60)) == []


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(100))
def test_ten_thousand_correct_histories_are_valid(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        assert wrong(clean_history(seed, 20 + seed % 180)) == [], f"seed {seed}"


Fault = Callable[[random.Random, History], None]


def value_dropped(rng: random.Random, history: History) -> None:
    """An acknowledged value disappears from all polls."""
    value = rng.choice([send.value for send in history.sends if send.outcome is Outcome.ACKNOWLEDGED])
    for polls in (history.polls, history.final):
        for number, poll in enumerate(polls):
            kept = tuple(record for record in poll.records if record[1] != value)
            polls[number] = replace(poll, records=kept)


def value_lost(rng: random.Random, history: History) -> None:
    """An acknowledged value disappears from the final read."""
    value = rng.choice([send.value for send in history.sends if send.outcome is Outcome.ACKNOWLEDGED])
    for number, poll in enumerate(history.final):
        kept = tuple(record for record in poll.records if record[1] != value)
        history.final[number] = replace(poll, records=kept)


def values_swapped(rng: random.Random, history: History) -> None:
    """One poll sees two values in the other's places."""
    number, poll = rng.choice([(n, poll) for n, poll in enumerate(history.final) if len(poll.records) > 1])
    (one, first), (other, second), *rest = poll.records
    history.final[number] = replace(poll, records=((one, second), (other, first), *rest))


def value_doubled(rng: random.Random, history: History) -> None:
    """A value is also at the end."""
    poll = rng.choice([poll for poll in history.final if poll.records])
    again = replace(history.final[-1], records=((10_000, poll.records[0][1]),), partition=poll.partition)
    history.final.append(again)


def value_invented(rng: random.Random, history: History) -> None:
    """The final read ends with a value of nobody."""
    history.final.append(replace(history.final[-1], records=((10_000, f"{rng.random()}"),)))


def page_reversed(rng: random.Random, history: History) -> None:
    """A page of the final read comes backwards."""
    number, poll = rng.choice([(n, poll) for n, poll in enumerate(history.final) if len(poll.records) > 1])
    history.final[number] = replace(poll, records=poll.records[::-1])


def page_repeated(rng: random.Random, history: History) -> None:
    """A page of the final read comes twice."""
    number, poll = rng.choice([(n, poll) for n, poll in enumerate(history.final) if poll.records])
    history.final.insert(number, poll)


def record_omitted(rng: random.Random, history: History) -> None:
    """A process that reads everything misses one record."""
    records = [record for poll in history.final if poll.partition == 0 for record in poll.records]
    del records[rng.randrange(1, len(records) - 1)]
    history.polls.append(replace(history.final[0], process=500, partition=0, records=tuple(records)))


def failure_invented(rng: random.Random, history: History) -> None:
    """A stored value is reported as failed."""
    read = {value for poll in history.final for _, value in poll.records}
    number, send = rng.choice([(n, send) for n, send in enumerate(history.sends) if send.value in read])
    history.sends[number] = replace(send, outcome=Outcome.FAILED)


def end_stale(rng: random.Random, history: History) -> None:
    """A look at the end sees the beginning."""
    partition = rng.choice([poll.partition for poll in history.final if poll.records])
    history.looks.append(Look(partition=partition, invoked_s=9999, completed_s=10_000, high_watermark=0))


def clock_wrong(rng: random.Random, history: History) -> None:
    """A send began after its value was read."""
    read = {value for poll in history.final for _, value in poll.records}
    number, send = rng.choice([(n, send) for n, send in enumerate(history.sends) if send.value in read])
    history.sends[number] = replace(send, invoked_s=99_999, completed_s=99_999)


def own_value_read(rng: random.Random, history: History) -> None:
    """A transaction reads what it sends."""
    read = {value: offset for poll in history.final for offset, value in poll.records}
    send = rng.choice([send for send in history.sends if send.txn is not None and send.value in read])
    history.polls.append(_poll_of(send, read[send.value]))


def _poll_of(send: Send, offset: int) -> Poll:
    return Poll(
        process=send.process,
        partition=send.partition,
        invoked_s=send.invoked_s,
        completed_s=send.completed_s,
        records=((offset, send.value),),
        txn=send.txn,
    )


def transaction_torn(rng: random.Random, history: History) -> None:
    """Another partition loses a value of a transaction."""
    value = rng.choice(
        [send.value for send in history.sends if send.txn is not None and send.offset is not None]
    )
    for number, poll in enumerate(history.final):
        kept = tuple(record for record in poll.records if record[1] != value)
        history.final[number] = replace(poll, records=kept)


def sends_crossed(rng: random.Random, history: History) -> None:
    """A process's two values are stored in the other order."""
    history.sends += [
        replace(history.sends[0], process=600, value=f"crossed {n}", offset=20_000 - n, partition=0)
        for n in range(2)
    ]
    sends = [replace(send, outcome=Outcome.ACKNOWLEDGED, txn=None) for send in history.sends[-2:]]
    history.sends[-2:] = [
        replace(send, invoked_s=n, completed_s=n) for n, send in enumerate(sends, rng.randrange(9))
    ]


def offset_stale(rng: random.Random, history: History) -> None:
    """A group reads an offset that was never committed."""
    history.commits.append(
        Commit(group="g", partition=0, offset=8, invoked_s=900, completed_s=901, outcome=Outcome.ACKNOWLEDGED)
    )
    history.committed.append(
        Committed(group="g", partition=0, offset=rng.randrange(8), invoked_s=902, completed_s=903)
    )


def decision_changed(rng: random.Random, history: History) -> None:
    """A repeated request gets the other outcome."""
    end = rng.choice([end for end in history.ends if end.decided is not None])
    other = Decision.ABORTED if end.decided is Decision.COMMITTED else Decision.COMMITTED
    history.ends.append(replace(end, invoked_s=900, completed_s=901, decided=other))


def process_fenced(rng: random.Random, history: History) -> None:
    """A process had opened a transactional id before another one did, and goes on."""
    end = rng.choice([end for end in history.ends if end.decided is Decision.COMMITTED])
    for process, at_s in ((end.process, -9), (77, -7)):
        history.opens.append(
            Open(
                process=process,
                transactional_id="copy",
                invoked_s=at_s,
                completed_s=at_s + 1,
                outcome=Outcome.ACKNOWLEDGED,
            )
        )


def stable_end_fallen(rng: random.Random, history: History) -> None:
    """Readers of committed records end below where they ended before."""
    look = rng.choice([look for look in history.looks if look.last_stable])
    history.looks.append(replace(look, invoked_s=9999, completed_s=10_000, high_watermark=99, last_stable=0))


FAULTS: dict[Fault, set[str]] = {
    value_dropped: {"unseen", "lost-write"},
    value_lost: {"unseen", "read-and-lost"},
    values_swapped: {"inconsistent-offsets", "duplicate", "int-nonmonotonic-poll"},
    value_doubled: {"duplicate"},
    value_invented: {"invented-value"},
    page_reversed: {"int-nonmonotonic-poll"},
    page_repeated: {"nonmonotonic-poll"},
    record_omitted: {"int-poll-skip"},
    failure_invented: {"G1a"},
    end_stale: {"stale-read"},
    clock_wrong: {"read-from-the-future"},
    own_value_read: {"precommitted-read"},
    transaction_torn: {"torn-transaction", "read-and-lost", "unseen"},
    sends_crossed: {"nonmonotonic-send"},
    offset_stale: {"committed-offset"},
    decision_changed: {"decided-twice"},
    process_fenced: {"fenced-write"},
    stable_end_fallen: {"stale-read"},
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault: Fault) -> None:
    missed = []
    for seed in range(30):
        history = clean_history(seed, 120)
        fault(random.Random(seed), history)
        if not {anomaly.kind for anomaly in wrong(history)} & FAULTS[fault]:
            missed.append(seed)
    assert missed == []
