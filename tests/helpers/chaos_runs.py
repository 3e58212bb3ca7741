"""Records and histories of chaos runs that never happened, drawn from a seed, for tests of their report."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from chaos.harness.record import (
    Ability,
    Counts,
    Injected,
    Leadership,
    Phase,
    RunRecord,
    ShownAnomaly,
)
from chaos.harness.scenario import PlannedFault, Scenario
from chaos.history import History, Outcome, Poll, Send

START_S: Final = 1000.0  # of the run, on the clock of the history
QUIET_S: Final = 3.0
_KINDS: Final = (
    ("kill", "broker", "processes killed"),
    ("pause", "broker", "processes stopped"),
    ("kill-in-recovery", "broker", "processes killed"),
    ("isolate", "broker", "connections ended"),
    ("one-way", "link", "connections ended"),
    ("latency", "link", "bytes on these links"),
    ("cut-clients", "clients of broker", "connections ended"),
    ("move-replicas", "partition", "replicas moved"),
    ("flip-bits", "broker", "bits flipped"),
    ("forget-everything", "broker", "directories emptied"),
)


def run(
    seed: int = 1,
    *,
    seconds: float = 120.0,
    faults: int = 30,
    sends_per_s: int = 60,
    partitions: int = 6,
    brokers: int = 3,
) -> tuple[RunRecord, History]:
    """A valid run. While the leader of a partition has a fault, its sends wait or end as unknown."""
    rng = random.Random(seed)
    end_s = QUIET_S + seconds
    injected = sorted(_faults(rng, seconds, faults, brokers), key=lambda fault: fault.begun_s)
    leaderships = [
        change for partition in range(partitions) for change in _leaders(rng, partition, injected, brokers)
    ]
    history = History(sends=[*_sends(rng, end_s + QUIET_S, sends_per_s, partitions, leaderships, injected)])
    acknowledged = history.count(Outcome.ACKNOWLEDGED)
    unknown = history.count(Outcome.UNKNOWN)
    history.final = _final(history, partitions)
    planned = tuple(
        PlannedFault(at_s=fault.begun_s - QUIET_S, fault=fault.fault, seconds=fault.ended_s - fault.begun_s)
        for fault in injected
    )
    record = RunRecord(
        verdict="valid",
        command="/usr/local/bin/raftlog chaos run --seed 7 --minutes 2",
        version="0.1.0",
        machine="Linux 6.8.0, Python 3.12.3",
        started_at="2026-03-01T12:00:00+00:00",
        abilities=(
            Ability(name="proxies", is_there=True, detail="toxiproxy-server 2.12.0"),
            Ability(name="slow disks", is_there=False, detail="FUSE is missing: install fuse3"),
        ),
        scenario=Scenario(seed=seed, brokers=brokers, seconds=seconds, faults=planned),
        phases=(
            Phase(name="quiet", begun_s=0.2, ended_s=QUIET_S),
            Phase(name="faults", begun_s=QUIET_S, ended_s=end_s),
            Phase(name="heal", begun_s=end_s, ended_s=end_s + 1.5),
            Phase(name="quiet", begun_s=end_s + 1.5, ended_s=end_s + 4.5),
            Phase(name="final read", begun_s=end_s + 4.5, ended_s=end_s + 10),
        ),
        injected=tuple(injected),
        leaderships=tuple(leaderships),
        counts=Counts(
            acknowledged=acknowledged,
            failed=0,
            unknown=unknown,
            lost=0,
            duplicated=0,
            ok_rate=acknowledged / max(1, len(history.sends)),
            ok_rate_quiet=1.0,
        ),
        anomalies=(),
        problems=(),
        history_offset_s=START_S,
    )
    return record, history


def hostile(words: str) -> tuple[RunRecord, History]:
    """An invalid run with these words in all its texts."""
    fault = Injected(fault=words, target=words, begun_s=1, ended_s=9, effects=0, effect=words)
    send = Send(
        process=1,
        partition=0,
        value=words,
        invoked_s=1,
        completed_s=2,
        outcome=Outcome.ACKNOWLEDGED,
        offset=0,
    )
    anomaly = ShownAnomaly(kind=words, partition=0, detail=words, operations=(words,))
    record = RunRecord(
        verdict="invalid",
        command=words,
        version=words,
        machine=words,
        started_at=words,
        abilities=(Ability(name=words, is_there=False, detail=words),),
        scenario=Scenario(seconds=10, faults=()),
        phases=(Phase(name=words, begun_s=0, ended_s=10),),
        injected=(fault,),
        leaderships=(
            Leadership(at_s=0, topic=words, partition=0, leader=1, term=1),
            Leadership(at_s=0, topic="other", partition=0, leader=None, term=1),
        ),
        counts=Counts(acknowledged=1, failed=0, unknown=0, lost=1, duplicated=0, ok_rate=1, ok_rate_quiet=1),
        anomalies=(anomaly,),
        problems=(words,),
        history_offset_s=0,
    )
    return record, History(sends=[send])


def _faults(rng: random.Random, seconds: float, count: int, brokers: int) -> Iterator[Injected]:
    for _ in range(count):
        kind, what, effect = rng.choice(_KINDS)
        begun_s = QUIET_S + rng.uniform(0, max(0.1, seconds - 9))
        one, other = rng.sample(range(1, brokers + 1), 2)
        target = f"link {one} -> {other}" if what == "link" else f"{what} {one}"
        effects = rng.randint(1, 3) if kind != "flip-bits" else 0
        yield Injected(
            fault=kind,
            target=target,
            begun_s=begun_s,
            ended_s=begun_s + rng.uniform(1, 8),
            effects=effects,
            effect=effect,
        )


def _leaders(
    rng: random.Random, partition: int, injected: Sequence[Injected], brokers: int
) -> Iterator[Leadership]:
    leader, term, free_s = partition % brokers + 1, 1, 0.0
    yield Leadership(at_s=0.3, topic="chaos", partition=partition, leader=leader, term=term)
    for fault in injected:
        if fault.target == f"broker {leader}" and fault.begun_s > free_s:
            free_s = fault.begun_s + rng.uniform(0.4, 1.6)
            yield Leadership(
                at_s=fault.begun_s + 0.2, topic="chaos", partition=partition, leader=None, term=term
            )
            leader = rng.choice([broker for broker in range(1, brokers + 1) if broker != leader])
            term += 1
            yield Leadership(at_s=free_s, topic="chaos", partition=partition, leader=leader, term=term)


def _sends(
    rng: random.Random,
    seconds: float,
    per_s: int,
    partitions: int,
    leaderships: Sequence[Leadership],
    injected: Sequence[Injected],
) -> Iterator[Send]:
    outages = [_outages(partition, leaderships) for partition in range(partitions)]
    offsets = [0] * partitions
    for number in range(int(seconds * per_s)):
        at_s = 0.3 + number / per_s
        partition = rng.randrange(partitions)
        begins = [begun_s for begun_s, _ in outages[partition]]
        index = bisect_right(begins, at_s) - 1
        wait_s = max(0.0, outages[partition][index][1] - at_s) if index >= 0 else 0.0
        took_s = rng.lognormvariate(-5, 0.6) + wait_s
        is_acknowledged = wait_s < 1.2 or rng.random() < 0.5
        yield Send(
            process=number % 12,
            partition=partition,
            value=f"value-{number}",
            invoked_s=START_S + at_s,
            completed_s=START_S + at_s + took_s,
            outcome=Outcome.ACKNOWLEDGED if is_acknowledged else Outcome.UNKNOWN,
            offset=offsets[partition] if is_acknowledged else None,
        )
        offsets[partition] += is_acknowledged


def _outages(partition: int, leaderships: Sequence[Leadership]) -> list[tuple[float, float]]:
    rows = [row for row in leaderships if row.partition == partition]
    return [(row.at_s - 0.2, after.at_s + 0.2) for row, after in pairwise(rows) if row.leader is None]


def _final(history: History, partitions: int) -> list[Poll]:
    records: list[list[tuple[int, str]]] = [[] for _ in range(partitions)]
    last_s = START_S
    for send in history.sends:
        last_s = max(last_s, send.completed_s)
        if send.offset is not None:
            records[send.partition].append((send.offset, send.value))
    return [
        Poll(
            process=1_000_000 + partition,
            partition=partition,
            invoked_s=last_s + 1,
            completed_s=last_s + 1.1,
            records=tuple(found),
        )
        for partition, found in enumerate(records)
        if found
    ]
