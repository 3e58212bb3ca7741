"""An error that nobody has thought of stops no timer of a leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest

from raftlog.core.ready import Role
from raftlog.errors import Overloaded
from raftlog.hosting.effects import LOOK_S_MAX, Effect, LeaderEffects, SetTimer
from raftlog.records.batch import Batch
from raftlog.records.reader import read_records
from raftlog.types import Index, NodeId, Term
from tests.helpers.quiet_listener import QuietListener
from tests.helpers.virtual_time import VirtualClock

ERRORS = [MemoryError(), RuntimeError("planted"), OSError(12, "no memory")]


class Group:
    """A group that leads, and that may not take the next proposals."""

    is_ready = True
    term = Term(1)

    def __init__(self) -> None:
        self.proposed: list[bytes | None] = []
        self.errors: dict[bytes, list[Exception]] = {}  # of the next proposals of a command

    def propose(self, batches: Sequence[Batch]) -> None:
        """Take them, unless the test has an error for one."""
        values = [record.value for batch in batches for record in read_records(batch)]
        for value in values:
            if errors := self.errors.get(value or b""):
                raise errors.pop()
        self.proposed += values


class Machine:
    """It has two timers that are due from the beginning."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def effects(self) -> Iterable[Effect]:
        """Both, or an error of the test."""
        yield SetTimer("first", 0, b"first")
        if self.errors:
            raise self.errors.pop()
        yield SetTimer("second", 0, b"second")

    def apply(self, entry: Batch) -> tuple[None, Sequence[Effect]]:
        """Nothing is applied here."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        """No state."""
        return b""

    def restore(self, snapshot: bytes) -> None:
        """No state."""


def leading(machine: Machine, group: Group) -> LeaderEffects[None]:
    effects = LeaderEffects[None](machine, QuietListener(), VirtualClock())
    effects.attach(cast("Any", group))
    return effects


@pytest.mark.parametrize("error", ERRORS)
async def test_a_timer_that_fails_is_tried_again_and_holds_back_no_other(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    group = Group()
    group.errors[b"first"] = [error, error]
    leading(Machine(), group)
    await asyncio.sleep(LOOK_S_MAX / 2)
    assert group.proposed == [b"second"]
    await asyncio.sleep(2 * LOOK_S_MAX)
    assert group.proposed == [b"second", b"first"]
    await asyncio.sleep(5 * LOOK_S_MAX)
    assert len(group.proposed) == 2


async def test_the_stack_of_a_timer_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    group.errors[b"first"] = [RuntimeError("planted")]
    leading(Machine(), group)
    await asyncio.sleep(LOOK_S_MAX / 2)
    (record,) = caplog.records
    assert "first" in record.message
    assert record.exc_info is not None


async def test_a_group_that_takes_nothing_is_asked_soon_again() -> None:
    group = Group()
    group.errors[b"first"] = [Overloaded("too much is in flight")]
    leading(Machine(), group)
    await asyncio.sleep(LOOK_S_MAX / 2)
    assert group.proposed == [b"first", b"second"]


@pytest.mark.parametrize("error", ERRORS)
async def test_a_leader_whose_effects_fail_looks_at_them_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is not one of the group: it would end the process."""
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    machine, group = Machine(), Group()
    machine.errors = [error, error]
    effects = leading(machine, group)
    effects.commit_advanced(Index(1))
    assert group.proposed == []
    await asyncio.sleep(LOOK_S_MAX * 1.5)
    assert group.proposed == [b"first", b"second"]


async def test_a_deposed_leader_looks_at_nothing_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    machine, group = Machine(), Group()
    machine.errors = [MemoryError()]
    effects = leading(machine, group)
    group.is_ready = False
    effects.role_changed(Role.FOLLOWER, Term(2), NodeId(2))
    await asyncio.sleep(5 * LOOK_S_MAX)
    assert group.proposed == []
