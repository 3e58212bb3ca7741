"""Finds the operations around an anomaly: operations in its partition that have a value or an offset from its
detail.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from chaos.checkers import Anomaly
from chaos.harness.record import ShownAnomaly
from chaos.harness.report.numbers import duration, exact_moment
from chaos.history import Commit, Committed, End, History, Look, Outcome, Poll, Send

OPERATIONS_MAX: Final = 12
_SENDS_MAX: Final = 6
_SHOWN_OF_A_KIND: Final = 10
_RECORDS_MAX: Final = 4  # records of a poll
_VALUE_CHARACTERS: Final = 80
_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_OFFSET: Final = re.compile(r"\b(?:offset|ends? at|at|and|after|was) (\d+)\b")

Key = tuple[int, str | int]  # value or offset of a partition
Operation = Send | Poll | Look | Commit | Committed | End


def shown(history: History, anomalies: Sequence[Anomaly], start_s: float = 0.0) -> tuple[ShownAnomaly, ...]:
    """Return the anomalies in the form of the record; the first anomaly of each kind has the operations
    around it.

    Reads the history once. ``start_s`` is the time of the history's clock at which the run began.
    """
    kinds: Counter[str] = Counter()
    wanted: list[set[Key]] = []
    for anomaly in anomalies:
        kinds[anomaly.kind] += 1
        is_shown = kinds[anomaly.kind] <= _SHOWN_OF_A_KIND
        wanted.append(mentioned(anomaly.partition, anomaly.detail) if is_shown else set())
    found = _find(history, set[Key]().union(*wanted))
    return tuple(
        ShownAnomaly(
            kind=anomaly.kind,
            partition=anomaly.partition,
            detail=anomaly.detail,
            operations=_lines(found, keys, start_s),
        )
        for anomaly, keys in zip(anomalies, wanted, strict=True)
    )


def surroundings(history: History, partition: int, detail: str, start_s: float = 0.0) -> tuple[str, ...]:
    """Return the operations around one anomaly: at most ``OPERATIONS_MAX`` lines, ordered by time."""
    keys = mentioned(partition, detail)
    return _lines(_find(history, keys), keys, start_s)


def mentioned(partition: int, detail: str) -> set[Key]:
    """Return the values that the text of an anomaly quotes; if it quotes none, the offsets that it names."""
    values = {_unquoted(quoted) for quoted in _QUOTED.findall(detail)}
    if values:
        return {(partition, value) for value in values}
    return {(partition, int(number)) for number in _OFFSET.findall(detail)}


def _unquoted(quoted: str) -> str:
    try:
        return str(ast.literal_eval(quoted))
    except (SyntaxError, ValueError):  # the text was not written by ``repr``
        return quoted[1:-1]


def _find(history: History, keys: set[Key]) -> dict[Key, list[Operation]]:
    found: dict[Key, list[Operation]] = defaultdict(list)
    partitions = {partition for partition, _ in keys}
    for operation, names in _named(history, partitions):
        partition = -1 if isinstance(operation, End) else operation.partition
        for name in names:
            if (key := (partition, name)) in keys:
                found[key].append(operation)
    return found


def _named(history: History, partitions: set[int]) -> Iterator[tuple[Operation, Iterable[str | int]]]:
    """Yield the operations in these partitions, with their values and offsets."""
    for send in history.sends:
        if send.partition in partitions:
            yield send, (send.value,) if send.offset is None else (send.value, send.offset)
    for poll in history.all_polls():
        if poll.partition in partitions:
            yield poll, (name for record in poll.records for name in record)
    for look in chain(history.looks, history.final_looks):
        if look.partition in partitions:
            yield look, (look.high_watermark,)
    offsets: list[Commit | Committed] = [*history.commits, *history.committed]
    for one in offsets:
        if one.partition in partitions:
            yield one, (f"{one.group} = {one.offset}",)
    if -1 in partitions:
        for end in history.ends:
            yield end, (f"transaction {end.txn}",)


def _lines(found: dict[Key, list[Operation]], keys: set[Key], start_s: float) -> tuple[str, ...]:
    """Return the found operations as lines: all sends, because they are few, and the earliest and latest of
    the other operations.
    """
    unique = {id(operation): operation for key in keys for operation in found.get(key, ())}
    ordered = sorted(unique.values(), key=_by_time)
    sends = [operation for operation in ordered if isinstance(operation, Send)][:_SENDS_MAX]
    others = [operation for operation in ordered if not isinstance(operation, Send)]
    free = OPERATIONS_MAX - len(sends)
    if len(others) > free:
        others = others[: free // 2] + others[len(others) - (free - free // 2) :]
    names = {name for _, name in keys}
    return tuple(_line(operation, names, start_s) for operation in sorted([*sends, *others], key=_by_time))


def _by_time(operation: Operation) -> tuple[float, float]:
    return operation.invoked_s, operation.completed_s


def _line(operation: Operation, names: set[str | int], start_s: float) -> str:
    begun = f"{exact_moment(max(0.0, operation.invoked_s - start_s)):>9}"
    took = duration(operation.completed_s - operation.invoked_s)
    match operation:
        case Commit():
            what = f"commit  {operation.group} = {operation.offset} {operation.outcome.value} after {took}"
            return f"{begun}  {what}"
        case Committed():
            return f"{begun}  committed  {operation.group} = {operation.offset} after {took}"
        case Send():
            end = f" at {operation.offset}" if operation.offset is not None else ""
            after = "" if operation.outcome is Outcome.UNKNOWN else f" after {took}"
            what = f"{_value(operation.value)} {operation.outcome.value}{end}{after}"
            return f"{begun}  process {operation.process}  send  {what}"
        case Poll():
            return f"{begun}  process {operation.process}  poll  {_records(operation, names)}"
        case Look():
            stable = "" if operation.last_stable is None else f", last stable {operation.last_stable}"
            return f"{begun}  look  end {operation.high_watermark}{stable} after {took}"
        case End():
            decided = "no response" if operation.decided is None else operation.decided.value
            what = f"{operation.asked.value} requested, {decided} after {took}"
            return f"{begun}  process {operation.process}  end  transaction {operation.txn}: {what}"


def _records(poll: Poll, names: set[str | int]) -> str:
    about = [(offset, value) for offset, value in poll.records if offset in names or value in names]
    said = ", ".join(f"{_value(value)} at {offset}" for offset, value in about[:_RECORDS_MAX])
    first, last = poll.records[0][0], poll.records[-1][0]
    return f"{said} (of {first} to {last})"


def _value(value: str) -> str:
    return repr(value if len(value) <= _VALUE_CHARACTERS else f"{value[:_VALUE_CHARACTERS]}…")
