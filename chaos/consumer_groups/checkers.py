"""Checks the history of a consumer group against the guarantees of ``docs/consumer-groups.md``.

Each function takes a history and yields the violations that the history proves. Two events are in order only
if the response of the first arrived before the request of the second was sent. The members of the history
neither rewind nor reset offsets, and none of the members is static: a static member keeps its generation
under another id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from chaos.consumer_groups.history import Committed, GroupHistory, Owned, SeenGeneration, SeenOffset

Asked = TypeVar("Asked")
InGeneration = TypeVar("InGeneration", bound=Owned | Committed | SeenGeneration)
Value = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that did not hold."""

    kind: str
    detail: str


def check(history: GroupHistory) -> list[Violation]:
    """Return all violations that the history proves, by kind."""
    return [violation for checker in CHECKERS for violation in checker(history)]


def lost_records(history: GroupHistory) -> Iterator[Violation]:
    """Yield acknowledged records that no member received, or that a member received with another value."""
    delivered = set(deliveries(history))
    for batch in history.acknowledged:
        for offset, value in enumerate(batch.values, batch.offset):
            if (batch.partition, offset, value) not in delivered:
                yield Violation("lost record", f"{value!r} at {batch.partition}:{offset}")


def two_owners(history: GroupHistory) -> Iterator[Violation]:
    """Yield partitions that two members owned, or committed offsets in, in one generation."""
    claims = [(each.generation, number, each.member) for each in history.owned for number in each.partitions]
    claims += [(each.generation, each.partition, each.member) for each in history.committed]
    first: dict[tuple[int, int], str] = {}
    for generation, partition, member in dict.fromkeys(claims):
        owner = first.setdefault((generation, partition), member)
        if owner != member:
            detail = f"partition {partition} of {owner} and {member} in generation {generation}"
            yield Violation("two owners", detail)


def fallen_offsets(history: GroupHistory) -> Iterator[Violation]:
    """Yield committed offsets below an offset that was committed or seen before.

    A member may send a lower offset within a generation: its commit then changes nothing. In a later
    generation it may not, because it began at the committed offset.
    """
    events: list[Committed | SeenOffset] = [*history.committed, *history.seen_offsets]
    known = [(each.completed_s, each.partition, (each.offset, each.generation)) for each in events]
    asked = [(each.invoked_s, each.partition, each) for each in events]
    for event, (offset, generation) in _with_what_was_known(known, asked):
        if event.offset >= offset or (isinstance(event, Committed) and event.generation <= generation):
            continue
        kind = "offset fell within a generation" if event.generation == generation else "offset fell"
        yield Violation(
            kind,
            f"partition {event.partition}: {event.offset} of generation {event.generation} "
            f"after {offset} of {generation}",
        )


def fallen_generations(history: GroupHistory) -> Iterator[Violation]:
    """Yield generations of the group below a generation that was seen before."""
    events: list[Owned | SeenGeneration] = [*history.owned, *history.seen_generations]
    for event, generation in _with_known_generation(history, events):
        if event.generation < generation:
            yield Violation("generation fell", f"{event.generation} after {generation}")


def stale_commits(history: GroupHistory) -> Iterator[Violation]:
    """Yield commits that were accepted although a later generation had begun before they were sent."""
    for event, generation in _with_known_generation(history, history.committed):
        if event.generation < generation:
            detail = f"{event.member} committed {event.partition}:{event.offset} in {event.generation}"
            yield Violation("stale commit", f"{detail} after {generation} had begun")


def surprises(history: GroupHistory) -> Iterator[Violation]:
    """Yield responses that no member should ever get."""
    for each in history.surprises:
        yield Violation("surprise", f"{each.member}: {each.what}")


def deliveries(history: GroupHistory) -> Counter[tuple[int, int, str]]:
    """Return the number of deliveries of each record, by partition, offset and value."""
    return Counter(
        (each.partition, offset, value) for each in history.delivered for offset, value in each.records
    )


def _with_known_generation(
    history: GroupHistory, events: Iterable[InGeneration]
) -> Iterator[tuple[InGeneration, int]]:
    """Yield each event with the highest generation of the group that was known before the event's request."""
    sources: tuple[Owned | Committed | SeenGeneration | SeenOffset, ...] = (
        *history.owned,
        *history.committed,
        *history.seen_generations,
        *history.seen_offsets,
    )
    known = [(each.completed_s, "", (each.generation,)) for each in sources]
    asked = [(each.invoked_s, "", each) for each in events]
    for event, (generation,) in _with_what_was_known(known, asked):
        yield event, generation


def _with_what_was_known(
    known: Iterable[tuple[float, Hashable, Value]], asked: Iterable[tuple[float, Hashable, Asked]]
) -> Iterator[tuple[Asked, Value]]:
    """Yield each event with the highest value that was known for its key before; events without such a value
    are left out.
    """
    by_time = sorted(known, key=lambda each: each[0])
    highest: dict[Hashable, Value] = {}
    at = 0
    for invoked_s, key, event in sorted(asked, key=lambda each: each[0]):
        while at < len(by_time) and by_time[at][0] < invoked_s:
            _, other, value = by_time[at]
            highest[other] = max(highest.get(other, value), value)
            at += 1
        if key in highest:
            yield event, highest[key]


CHECKERS: tuple[Callable[[GroupHistory], Iterator[Violation]], ...] = (
    lost_records,
    two_owners,
    fallen_offsets,
    fallen_generations,
    stale_commits,
    surprises,
)
