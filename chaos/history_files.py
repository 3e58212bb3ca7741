"""Histories in files: our own, one operation a line, and those of Jepsen's workload for Kafka-like logs.

A line of ours is a JSON object with ``op`` (``send``, ``poll``, ``final`` or ``look``) and the fields of
``Send``, ``Poll`` or ``Look``; see ``chaos.history``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import msgspec

from chaos.history import History, Look, Poll, Send

_TYPES: Final = {"send": Send, "poll": Poll, "final": Poll, "look": Look}


class InvalidHistory(Exception):
    """A file is no history; the message names the line and the remedy."""


def write_history(path: Path, history: History) -> None:
    """Write a file, or replace it."""
    with path.open("wb") as file:
        file.writelines(_lines(history))


def read_history(path: Path) -> History:
    """Read a file of ours, or one of Jepsen's if its name ends with ``.edn``. Raises ``InvalidHistory``."""
    if path.suffix == ".edn":
        from chaos.jepsen_histories import read_jepsen  # needs a library that others do not

        return read_jepsen(path)
    history = History()
    lists = {"send": history.sends, "poll": history.polls, "final": history.final, "look": history.looks}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            op = "missing"
            try:
                fields = msgspec.json.decode(line, type=dict[str, object])
                op = str(fields.pop("op", op))
                if fields.get("completed_s", 0) is None:  # JSON has no infinity
                    fields["completed_s"] = math.inf
                lists[op].append(msgspec.convert(fields, _TYPES[op]))  # type: ignore[attr-defined]
            except KeyError:
                raise InvalidHistory(
                    f"{path}, line {number}: op is {op}; write one of {', '.join(_TYPES)}"
                ) from None
            except msgspec.MsgspecError as error:
                raise InvalidHistory(f"{path}, line {number}: {error}") from None
    history.has_final_read = bool(history.final)
    return history


def _lines(history: History) -> Iterator[bytes]:
    for op, operations in (
        ("send", history.sends),
        ("poll", history.polls),
        ("look", history.looks),
        ("final", history.final),
    ):
        for operation in operations:
            yield msgspec.json.encode({"op": op} | asdict(operation)) + b"\n"
