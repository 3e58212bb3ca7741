"""Few, cheap seeds that reach what all of them reach.

A feature is a level, a kind of fault in a world with the order of magnitude of its number, a random parameter
with its value, or a branch of the source. The choice is a greedy set cover by CPU time: always the seed that
reaches most new features for a second of CPU. Seeds that failed for an error, and those that somebody has
added to the file, run in any case, so their features need no other seed.

1. Until each feature is reached once, but for orders of magnitude, which are only counted. Then seeds that
   alone reach no feature are removed, expensive ones first.
2. Until each level and each kind of fault is reached by two seeds: the run of a seed changes with the code
   and may lose a feature, and the run of the list fails without these.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.seed_cover.measurement import Run
from verification.simulator.levels import MIX, Seed
from verification.simulator.reach import world_of

LEVEL, FAULT, MAGNITUDE, PARAMETER, PRODUCTION, CHECKER, INJECTION = (
    "levels",
    "kinds of faults, by world",
    "orders of magnitude of their number",
    "values of random parameters",
    "branches of production code",
    "branches of checkers",
    "branches of the simulator's other code",
)
KINDS: Final = (LEVEL, FAULT, MAGNITUDE, PARAMETER, PRODUCTION, CHECKER, INJECTION)
PASSES: Final = (
    {kind: 1 for kind in KINDS if kind != MAGNITUDE},
    {LEVEL: 2, FAULT: 2},
)
"""The number of seeds that shall reach each feature, by its kind."""
VALUES_MAX: Final = 12
"""A random parameter with more values is a number, such as a sum, and no feature."""
CHECKERS: Final = ("check", "judge", "convergence", "agreement")
"""Parts of the names of modules that check invariants."""

ADDS: Final = "adds "
ONCE_MORE: Final = "reaches features once more"
REASONS: Final = (ADDS, ONCE_MORE)

Feature = tuple[str, str]
"""Its kind, one of ``KINDS``, and its name."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A seed of the fixed list. ``adds`` are features that no seed chosen before reaches, by kind."""

    run: Run
    adds: Counter[str]


def features(runs: Sequence[Run], branches: Sequence[str]) -> list[frozenset[Feature]]:
    """The features of each run; ``branches`` has the names of the branches by number."""
    kinds = [_kind_of_branch(name) for name in branches]
    usual = _usual_parameters(runs)
    found = []
    for run in runs:
        world = world_of(run.seed.level)
        reached: set[Feature] = {(LEVEL, run.seed.level)}
        happened = {kind: count for kind, count in run.faults.items() if count}
        reached |= {(FAULT, f"{world}: {kind}") for kind in happened}
        reached |= {(MAGNITUDE, f"{world}: {kind} x{n.bit_length()}") for kind, n in happened.items()}
        reached |= {(PARAMETER, f"{world}: {parameter}") for parameter in run.parameters & usual}
        reached |= {(kinds[number], branches[number]) for number in run.branches}
        found.append(frozenset(reached))
    return found


def choose(
    runs: Sequence[Run], reached: Sequence[frozenset[Feature]], failed: frozenset[int]
) -> list[Chosen]:
    """The fixed list, in the order of choice; ``failed`` are the places of seeds that run in any case."""
    times: Counter[Feature] = Counter()
    for place in failed:
        times.update(reached[place])
    others = [place for place in range(len(runs)) if place not in failed and not runs[place].violations]
    found: list[int] = []
    counted = times.copy()
    for number, wanted in enumerate(PASSES):
        more = _cover(runs, reached, [place for place in others if place not in found], counted, wanted)
        more = _needed(runs, reached, more, counted) if number == 0 else more
        for place in more:
            counted.update(reached[place])
        found += more
    return list(_described(runs, reached, found, times))


def _cover(
    runs: Sequence[Run],
    reached: Sequence[frozenset[Feature]],
    places: Iterable[int],
    before: Mapping[Feature, int],
    wanted: Mapping[str, int],
) -> list[int]:
    """Greedy: gains only fall, so the best of an old order is recomputed until it stays the best."""
    times = Counter(before)

    def gain(place: int) -> float:
        new = sum(times[feature] < wanted.get(feature[0], 0) for feature in reached[place])
        return new / (runs[place].cpu_s + 0.005)

    heap = [(-gain(place), place) for place in places]
    heapq.heapify(heap)
    found = []
    while heap:
        _, place = heapq.heappop(heap)
        now = gain(place)
        if not now:
            continue
        if heap and now < -heap[0][0]:
            heapq.heappush(heap, (-now, place))
            continue
        found.append(place)
        times.update(reached[place])
    return found


def _needed(
    runs: Sequence[Run],
    reached: Sequence[frozenset[Feature]],
    places: Sequence[int],
    before: Mapping[Feature, int],
) -> list[int]:
    """Without those whose features other ones reach, too."""
    times = Counter(before)
    for place in places:
        times.update(reached[place])
    kept = list(places)
    for place in sorted(places, key=lambda place: -runs[place].cpu_s):
        if all(times[feature] > 1 for feature in reached[place]):
            times.subtract(reached[place])
            kept.remove(place)
    return kept


def _described(
    runs: Sequence[Run],
    reached: Sequence[frozenset[Feature]],
    places: Iterable[int],
    before: Mapping[Feature, int],
) -> Iterable[Chosen]:
    known = {feature for feature, count in before.items() if count}
    for place in places:
        new = reached[place] - known
        known |= new
        yield Chosen(runs[place], Counter(kind for kind, _ in new))


def table(reached: Sequence[frozenset[Feature]], places: Iterable[int]) -> dict[str, tuple[int, int, int]]:
    """By kind of feature: how many all runs reach, how many these reach, and how many twice."""
    times: Counter[Feature] = Counter()
    for place in places:
        times.update(reached[place])
    everything: set[Feature] = set().union(*reached)
    return {
        kind: (
            sum(each == kind for each, _ in everything),
            sum(feature[0] == kind and times[feature] >= 1 for feature in everything),
            sum(feature[0] == kind and times[feature] >= 2 for feature in everything),
        )
        for kind in KINDS
    }


def by_hand(text: str) -> dict[Seed, str]:
    """The seeds of the file that somebody has added, with their reasons: none that ``text`` gives."""
    found = (line.split(" # ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {Seed.named(name): reason for name, reason in found if not reason.startswith(REASONS)}


def text(chosen: Iterable[Chosen], header: str, kept: Mapping[Seed, str]) -> str:
    """The content of the file, by level and number; ``kept`` are the seeds that were added by hand."""
    levels = list(dict.fromkeys(MIX))
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    reasons = dict(kept)
    for each in chosen:
        adds = [f"{kind.partition(',')[0]}: {each.adds[kind]}" for kind in KINDS if each.adds[kind]]
        reasons[each.run.seed] = f"{ADDS}{', '.join(adds)}" if adds else ONCE_MORE
    seeds = sorted(reasons, key=lambda seed: (levels.index(seed.level), seed.number))
    lines += [f"{seed} # {reasons[seed]}" for seed in seeds]
    return "\n".join([*lines, ""])


def _kind_of_branch(name: str) -> str:
    if not name.startswith(("verification/", "chaos/", "raftlog/testing/")):
        return PRODUCTION
    module = name.partition(".py:")[0].rpartition("/")[2]
    return CHECKER if any(part in module for part in CHECKERS) else INJECTION


def _usual_parameters(runs: Iterable[Run]) -> frozenset[str]:
    """The features of random parameters with few values."""
    values = defaultdict[str, set[str]](set)
    for run in runs:
        for parameter in run.parameters:
            values[parameter.partition(" ")[0]].add(parameter)
    return frozenset(value for found in values.values() if len(found) <= VALUES_MAX for value in found)
