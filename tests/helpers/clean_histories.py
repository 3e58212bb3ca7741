"""Random histories of a log without faults, for tests of the checkers: none of them has a bad anomaly."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from chaos.history import (
    Assign,
    AssignKind,
    Commit,
    Committed,
    Decision,
    End,
    History,
    Look,
    Outcome,
    Poll,
    Send,
)

PARTITIONS = 2
ACKNOWLEDGED, FAILED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.FAILED, Outcome.UNKNOWN


@dataclass(slots=True)
class CleanLog:
    """A log whose clients overlap; transactions and single operations take effect at one moment each."""

    rng: random.Random
    history: History = field(default_factory=History)
    logs: dict[int, list[str | None]] = field(default_factory=lambda: {key: [] for key in range(PARTITIONS)})
    positions: dict[tuple[int, int], int] = field(default_factory=dict)
    offset: int | None = None  # the committed one
    numbers: int = 0

    def run(self, operations: int) -> History:
        """Each moment is the effect of one operation; it began up to three moments before, and ends later."""
        busy_s: dict[int, float] = {}
        for moment in range(1, operations + 1):
            process = self.rng.randrange(6)
            begun_s = max(moment - self.rng.random() * 3, busy_s.get(process, 0.0))
            ended_s = moment + self.rng.random() * 3
            if begun_s > moment:  # still busy
                continue
            busy_s[process] = ended_s
            self._operate(process, begun_s, ended_s)
        self._read_everything(operations + 10.0)
        return self.history

    def _operate(self, process: int, begun_s: float, ended_s: float) -> None:
        kind = self.rng.choices(("send", "poll", "txn", "look", "offset", "assign"), (8, 5, 3, 2, 1, 1))[0]
        if kind == "send":
            self._send(process, begun_s, ended_s, None, self._outcome())
        elif kind == "poll":
            self._poll(process, begun_s, ended_s, None, ACKNOWLEDGED)
        elif kind == "txn":
            self._transact(process, begun_s, ended_s)
        elif kind == "look":
            partition = self.rng.randrange(PARTITIONS)
            end = len(self.logs[partition])
            self.history.looks.append(
                Look(
                    partition=partition,
                    invoked_s=begun_s,
                    completed_s=ended_s,
                    high_watermark=end,
                    last_stable=end,
                )
            )
        elif kind == "offset":
            self._offset(begun_s, ended_s)
        else:
            self._assign(process, begun_s, ended_s)

    def _outcome(self) -> Outcome:
        return self.rng.choices((ACKNOWLEDGED, UNKNOWN, FAILED), (8, 1, 1))[0]

    def _send(
        self,
        process: int,
        begun_s: float,
        ended_s: float,
        txn: int | None,
        outcome: Outcome,
        is_kept: bool | None = None,
    ) -> None:
        partition = self.rng.randrange(PARTITIONS)
        log = self.logs[partition]
        if self.rng.random() < 0.1:
            log.append(None)  # a record of the log's own
        self.numbers += 1
        value = f"v{self.numbers}"
        kept = outcome is ACKNOWLEDGED or (outcome is UNKNOWN and self.rng.random() < 0.5)
        kept = kept if is_kept is None else is_kept
        offset = len(log) if kept and (outcome is ACKNOWLEDGED or self.rng.random() < 0.3) else None
        if kept:
            log.append(value)
        self.history.sends.append(
            Send(
                process=process,
                partition=partition,
                value=value,
                invoked_s=begun_s,
                completed_s=ended_s,
                outcome=outcome,
                offset=offset,
                txn=txn,
            )
        )

    def _poll(self, process: int, begun_s: float, ended_s: float, txn: int | None, outcome: Outcome) -> None:
        partition = self.rng.randrange(PARTITIONS)
        key, log = (process, partition), self.logs[partition]
        begins = self.positions.get(key, self.rng.randint(0, len(log)))
        ends = min(len(log), begins + self.rng.randint(0, 6))
        records = tuple((at, value) for at in range(begins, ends) if (value := log[at]) is not None)
        self.history.polls.append(
            Poll(
                process=process,
                partition=partition,
                invoked_s=begun_s,
                completed_s=ended_s,
                records=records,
                outcome=outcome,
                txn=txn,
            )
        )
        if outcome is ACKNOWLEDGED:
            self.positions[key] = ends

    def _transact(self, process: int, begun_s: float, ended_s: float) -> None:
        """Reads before it writes, and all of its values are kept, or none."""
        self.numbers += 1
        txn, outcome = self.numbers, self._outcome()
        is_kept = outcome is ACKNOWLEDGED or (outcome is UNKNOWN and self.rng.random() < 0.5)
        if self.rng.random() < 0.5:
            self._poll(process, begun_s, ended_s, txn, outcome)
        for _ in range(self.rng.randint(1, 3)):
            self._send(process, begun_s, ended_s, txn, outcome, is_kept)
        decided = {ACKNOWLEDGED: Decision.COMMITTED, FAILED: Decision.ABORTED}.get(outcome)
        asked = Decision.COMMITTED if is_kept else self.rng.choice([*Decision])
        self.history.ends.append(
            End(
                process=process,
                txn=txn,
                asked=asked,
                invoked_s=begun_s,
                completed_s=ended_s,
                decided=decided,
            )
        )

    def _offset(self, begun_s: float, ended_s: float) -> None:
        if self.rng.random() < 0.5:
            read = Committed(
                group="g", partition=0, offset=self.offset, invoked_s=begun_s, completed_s=ended_s
            )
            self.history.committed.append(read)
            return
        outcome, offset = self._outcome(), self.rng.randint(0, 5)
        if outcome is ACKNOWLEDGED or (outcome is UNKNOWN and self.rng.random() < 0.5):
            self.offset = offset
        self.history.commits.append(
            Commit(
                group="g",
                partition=0,
                offset=offset,
                invoked_s=begun_s,
                completed_s=ended_s,
                outcome=outcome,
            )
        )

    def _assign(self, process: int, begun_s: float, ended_s: float) -> None:
        """What is not in the new list is read from any place later."""
        kind = self.rng.choice(list(AssignKind))
        count = 0 if kind is AssignKind.CRASH else self.rng.randint(0, PARTITIONS)
        kept = sorted(self.rng.sample(range(PARTITIONS), count))
        self.history.assigns.append(
            Assign(process=process, kind=kind, partitions=tuple(kept), invoked_s=begun_s, completed_s=ended_s)
        )
        for partition in set(range(PARTITIONS)) - set(kept):
            self.positions.pop((process, partition), None)

    def _read_everything(self, at_s: float) -> None:
        for partition, log in self.logs.items():
            begins = 0
            while begins < len(log):
                ends = begins + self.rng.randint(1, 10)
                page = enumerate(log[begins:ends], begins)
                self.history.final.append(
                    Poll(
                        process=100 + partition,
                        partition=partition,
                        invoked_s=at_s + begins,
                        completed_s=at_s + begins + 1,
                        records=tuple((at, value) for at, value in page if value is not None),
                    )
                )
                begins = ends


def clean_history(seed: int, operations: int) -> History:
    """The same seed makes the same history."""
    return CleanLog(random.Random(seed)).run(operations)
