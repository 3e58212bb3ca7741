"""Reads and writes histories: raftlog's format, with one operation per line, and Jepsen's format.

A line of raftlog's format is a JSON object with ``op``, which names a class of ``chaos.history``, and the
fields of that class. Jepsen's files are histories of its workload for Kafka-like logs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from chaos.history import Assign, Commit, Committed, End, History, Look, Open, Poll, Send
from raftlog.extras import install_command

Operation = Send | Poll | Look | Assign | Commit | Committed | Open | End

_TYPES: Final = {
    "send": Send,
    "poll": Poll,
    "final": Poll,
    "look": Look,
    "assign": Assign,
    "commit": Commit,
    "committed": Committed,
    "open": Open,
    "end": End,
    "final-look": Look,
}


class InvalidHistory(Exception):
    """A file is not a history. The message names the line and the remedy."""


def write_history(path: Path, history: History) -> None:
    """Write a history to a file. An existing file is replaced."""
    with path.open("wb") as file:
        file.writelines(_lines(history))


def read_history(path: Path) -> History:
    """Read a file of raftlog's format, or of Jepsen's format if its name ends with ``.edn``.

    Raises ``InvalidHistory``.
    """
    if path.suffix == ".edn":
        if find_spec("edn_format") is None:
            raise InvalidHistory(f"{path}: a library is missing: {install_command('chaos')}")
        from chaos.jepsen_histories import read_jepsen

        return read_jepsen(path)
    history = History()
    lists = dict(_lists(history))
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
    for op, operations in _lists(history):
        for operation in operations:
            yield msgspec.json.encode({"op": op} | asdict(operation)) + b"\n"


def _lists(history: History) -> Iterator[tuple[str, Sequence[Operation]]]:
    yield "send", history.sends
    yield "poll", history.polls
    yield "look", history.looks
    yield "final", history.final
    yield "assign", history.assigns
    yield "commit", history.commits
    yield "committed", history.committed
    yield "open", history.opens
    yield "end", history.ends
    yield "final-look", history.final_looks
