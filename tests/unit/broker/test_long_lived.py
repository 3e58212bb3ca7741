"""The garbage collector does not search open replicas again and again, and finds closed ones."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from broker.process.long_lived import CLOSED_MIN, OPENED_MIN, LongLived


class Replica:
    """Refers to itself, so that only the garbage collector finds it once it is closed."""

    def __init__(self) -> None:
        self.itself = self


class Replicas:
    """What a broker has open."""

    def __init__(self) -> None:
        self.opened = 0
        self.here: list[Replica] = []

    def open(self, count: int) -> None:
        self.here += (Replica() for _ in range(count))
        self.opened += count

    def counts(self) -> tuple[int, int]:
        return self.opened, len(self.here)


@pytest.fixture
def only_on_demand() -> Iterator[None]:
    """No collection but those that are asked for."""
    gc.collect()
    gc.disable()
    gc.freeze()
    yield
    gc.enable()


def is_any_searched(replicas: list[Replica]) -> bool:
    searched = set(map(id, gc.get_objects()))
    return any(id(replica) in searched for replica in replicas)


async def test_objects_of_opened_replicas_are_not_searched(only_on_demand: None) -> None:
    replicas = Replicas()
    long_lived = LongLived(replicas.counts)
    replicas.open(OPENED_MIN - 1)
    long_lived.look()
    assert is_any_searched(replicas.here), "a few are not worth it"
    replicas.open(1)
    long_lived.look()
    long_lived.stop()
    assert not is_any_searched(replicas.here)


async def test_garbage_of_the_moment_is_not_set_apart(only_on_demand: None) -> None:
    replicas = Replicas()
    long_lived = LongLived(replicas.counts)
    garbage = weakref.ref(Replica())
    replicas.open(OPENED_MIN)
    long_lived.look()
    long_lived.stop()
    assert garbage() is None


@pytest.mark.parametrize(
    ("opened", "worth_it"), [(2 * CLOSED_MIN, CLOSED_MIN), (6 * CLOSED_MIN, 2 * CLOSED_MIN)]
)
async def test_objects_of_closed_replicas_are_freed(opened: int, worth_it: int, only_on_demand: None) -> None:
    replicas = Replicas()
    long_lived = LongLived(replicas.counts)
    replicas.open(opened)
    long_lived.look()
    closed = weakref.ref(replicas.here.pop())
    del replicas.here[2 - worth_it :]
    long_lived.look()
    assert closed() is not None, "everything is searched seldom"
    replicas.here.pop()
    long_lived.look()
    long_lived.stop()
    assert closed() is None
    assert not is_any_searched(replicas.here), "the others are set apart again"
