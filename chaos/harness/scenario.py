"""Defines the faults that a run injects, and their times: drawn from a seed or read from a file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from chaos.harness.faults.steps import Fault

SHORT_S: Final = 30.0


class InvalidScenario(Exception):
    """A file is not a scenario. The message names the invalid field."""


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault with its start and its duration.

    ``target`` names the affected part, such as ``broker 2`` or ``leader``; if it is not given, ``seed`` draws
    a target.
    """

    at_s: float  # since the start of the faults
    fault: str  # a name of ``raftlog chaos faults``
    seconds: float
    target: str | None = None
    seed: int = 0


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All faults of a run, ordered by start."""

    seed: int = 0
    brokers: int = 3
    producers: int = 12  # of values; at most four of them produce transactions. Fewer producers need less CPU
    seconds: float  # of the phase with faults
    faults: tuple[PlannedFault, ...]
    one_by_one: bool = False
    """True if each fault waits until the previous fault has ended and the cluster is healthy.

    Late faults are not left out: the run lasts until all faults were injected.
    """


class _Recorded(msgspec.Struct, frozen=True):
    """The part of ``report.json`` that contains the scenario."""

    scenario: Scenario


def drawn(seed: int, *, brokers: int, seconds: float, faults: Sequence[Fault]) -> Scenario:
    """Draw a scenario of ``seconds`` from a seed.

    The run has epochs of 20 to 60 s. A quarter of the epochs has no faults. Each other epoch has only some
    kinds of faults, and its own odds: how often faults begin, and how long they last.
    """
    rng = random.Random(seed)
    planned: list[PlannedFault] = []
    at_s = 0.0
    while at_s < seconds:
        end_s = at_s + rng.uniform(20, 60)
        if not planned or rng.random() < 0.75:
            planned += _epoch(rng, at_s, min(end_s, seconds), faults)
        at_s = end_s
    return Scenario(seed=seed, brokers=brokers, seconds=seconds, faults=tuple(planned))


def _epoch(
    rng: random.Random, begin_s: float, end_s: float, faults: Sequence[Fault]
) -> Iterator[PlannedFault]:
    kinds = rng.sample(faults, min(len(faults), rng.randint(2, 8)))
    pause_s = rng.uniform(0.5, 6)
    longest = rng.uniform(0.2, 1)
    at_s = begin_s + rng.uniform(0, pause_s)
    while at_s < end_s - 1:
        fault = rng.choices(kinds, [kind.weight for kind in kinds])[0]
        shortest_s, longest_s = fault.seconds
        length_s = rng.uniform(shortest_s, shortest_s + longest * (longest_s - shortest_s))
        if shortest_s <= SHORT_S:  # longer faults outlast their epoch
            length_s = min(length_s, end_s - at_s)
        yield PlannedFault(
            at_s=round(at_s, 3), fault=fault.name, seconds=round(length_s, 3), seed=rng.getrandbits(32)
        )
        at_s += rng.expovariate(1 / pause_s)


def read_scenario(path: Path) -> Scenario:
    """Read a scenario file (TOML), or the report of a run (``report.json``). Raises ``InvalidScenario``."""
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(path.read_bytes(), type=_Recorded).scenario
        return msgspec.toml.decode(path.read_bytes(), type=Scenario)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidScenario(f"{path}: {error}; docs/chaos.md shows a scenario") from error
