"""Reads histories of Jepsen's workload for Kafka-like logs (``tests/kafka.clj``), written as EDN.

Decides: which operation of ``chaos.history`` corresponds to each of Jepsen's operations. The sends and polls
of one Jepsen operation get one transaction number. If a key is in an operation's ``:rebalance-log``, the
operation's polls of this key are ``rebalanced``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import edn_format

from chaos.history import Assign, AssignKind, History, Outcome, Poll, Send
from chaos.history_files import InvalidHistory

Op = Mapping[str, Any]
Word = Hashable
_OUTCOMES = {"ok": Outcome.ACKNOWLEDGED, "fail": Outcome.FAILED, "info": Outcome.UNKNOWN}


def read_jepsen(path: Path) -> History:
    """Read ``history.edn``: one map for each operation, or a vector of these maps. Raises
    ``InvalidHistory``.
    """
    edn_format.add_tag("jepsen.history.Op", lambda fields: fields)
    translation = _Translation()
    try:
        for found in edn_format.loads_all(path.read_text()):
            for op in found if isinstance(found, Sequence) else (found,):
                translation.add({_name(key): value for key, value in op.items()})
    except (edn_format.EDNDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidHistory(
            f"{path}: not a history of Jepsen's Kafka workload ({type(error).__name__}: {error}); give the "
            "history.edn of such a test, or a file in raftlog's format"
        ) from error
    return translation.finished()


class _Translation:
    def __init__(self) -> None:
        self.history = History(has_final_read=False)
        self._begun: dict[Word, Op] = {}
        self._partitions: dict[Word, int] = {}
        self._numbers = count()

    def add(self, op: Op) -> None:
        """Add the next event of the history."""
        kind, process = _name(op["type"]), op["process"]
        if kind == "invoke":
            self._begun[process] = op
            return
        if isinstance(process, int):  # other processes inject faults
            if process not in self._begun:
                raise ValueError(f"process {process} completes an operation that it did not begin")
            self._complete(kind, self._begun.pop(process), op)

    def finished(self) -> History:
        """Return the history, including operations that never completed."""
        for begun in self._begun.values():
            if isinstance(begun["process"], int):
                self._complete("info", begun, begun)
        return self.history

    def _complete(self, kind: str, begun: Op, op: Op) -> None:
        function = _name(begun["f"])
        if function in ("assign", "subscribe", "crash") and kind != "fail":
            self._assign(AssignKind(function), begun, op)
        if function not in ("send", "poll", "txn"):
            return
        moved = {self._partition(key) for entry in op.get("rebalance-log") or () for key in _keys(entry)}
        asked_steps, done_steps = begun["value"], op.get("value") or begun["value"]
        txn = next(self._numbers) if function == "txn" or len(asked_steps) > 1 else None
        for asked, step in zip(asked_steps, done_steps, strict=True):
            if _name(step[0]) == "send":
                self._send(kind, begun, op, asked, step, txn)
            else:
                self._poll(kind, begun, op, step, moved, txn)

    def _assign(self, kind: AssignKind, begun: Op, op: Op) -> None:
        keys = () if kind is AssignKind.CRASH else begun.get("value") or ()
        self.history.assigns.append(
            Assign(
                process=begun["process"],
                kind=kind,
                partitions=tuple(self._partition(key) for key in keys),
                invoked_s=begun["time"] / 1e9,
                completed_s=op["time"] / 1e9,
            )
        )

    def _send(
        self, kind: str, begun: Op, op: Op, asked: Sequence[Any], step: Sequence[Any], txn: int | None
    ) -> None:
        offset = step[2][0] if isinstance(step[2], Sequence) and kind != "fail" else None
        self.history.sends.append(
            Send(
                process=begun["process"],
                partition=self._partition(asked[1]),
                value=str(asked[2]),
                invoked_s=begun["time"] / 1e9,
                completed_s=math.inf if kind == "info" else op["time"] / 1e9,
                outcome=_OUTCOMES[kind],
                offset=offset,
                txn=txn,
            )
        )

    def _poll(
        self, kind: str, begun: Op, op: Op, step: Sequence[Any], moved: set[int], txn: int | None
    ) -> None:
        for key, pairs in (step[1] if len(step) > 1 else {}).items():
            partition = self._partition(key)
            self.history.polls.append(
                Poll(
                    process=begun["process"],
                    partition=partition,
                    invoked_s=begun["time"] / 1e9,
                    completed_s=op["time"] / 1e9,
                    records=tuple((offset, str(value)) for offset, value in pairs if offset is not None),
                    outcome=_OUTCOMES[kind],
                    txn=txn,
                    rebalanced=partition in moved,
                )
            )

    def _partition(self, key: Word) -> int:
        return self._partitions.setdefault(key, len(self._partitions))


def _keys(entry: Mapping[Any, Any]) -> Iterator[Any]:
    yield from {_name(key): value for key, value in entry.items()}.get("keys") or ()


def _name(word: Word) -> str:
    """Return the name of a keyword; a text is returned unchanged."""
    return str(getattr(word, "name", word))
