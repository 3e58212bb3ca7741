"""Timers and follow-up commands of a replicated state machine, carried out by the leader alone.

Decides: when effects take place. A leader that has applied its whole log asks the machine for all effects of
its state; from then on it carries out those that ``apply`` returns. A leader that steps down drops its
timers: the next leader derives them again from the same state. Leaves to others: what the commands do.

A command may be proposed more than once (its leader steps down before it knows the outcome), so applying it a
second time must change nothing. A timer is due by cluster time, and is looked at once a second at least: a
clock that is set back delays it, and a clock that is set forward ends it early. An error that nobody has
thought of ends no timer: it is logged, and what has failed is tried again a second later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar, assert_never

from raftlog.clock import Clock
from raftlog.core.membership import Membership
from raftlog.core.ready import Role
from raftlog.errors import RaftlogError
from raftlog.node.group.ports import GroupListener
from raftlog.node.group.raft_group import RaftGroup
from raftlog.records.batch import Batch
from raftlog.records.builder import batch_of_command
from raftlog.types import Index, NodeId, Term

LOOK_S_MAX: Final = 1.0
PROPOSE_AGAIN_S: Final = 0.1  # where the group takes nothing at the moment
_log = logging.getLogger("raftlog.hosting")

Reply_co = TypeVar("Reply_co", covariant=True)
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Propose ``command`` at ``at_ms`` of cluster time. It replaces a timer of the same name."""

    name: str
    at_ms: int
    command: bytes


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Drop the timer of this name, if there is one."""

    name: str


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Propose ``command`` as soon as possible. It is a timer of this name that is due at once."""

    name: str
    command: bytes


Effect = SetTimer | CancelTimer | FollowUp


class EffectfulMachine(Protocol[Reply_co]):
    """A ``StateMachine`` whose commands have effects. As deterministic as any."""

    def apply(self, entry: Batch) -> tuple[Reply_co, Sequence[Effect]]:
        """Take in one committed entry, control entries too; its reply, and what the leader does next."""

    def effects(self) -> Iterable[Effect]:
        """All timers and follow-up commands that are pending in this state."""

    def snapshot(self) -> bytes:
        """See ``StateMachine.snapshot``."""

    def restore(self, snapshot: bytes) -> None:
        """See ``StateMachine.restore``."""


class LeaderEffects(Generic[Reply]):
    """Stands between a Raft group and its machine: a ``StateMachine`` and a ``GroupListener`` for the group.

    Open the group with this as both, then ``attach`` it. All on the event loop's thread.
    """

    def __init__(self, machine: EffectfulMachine[Reply], listener: GroupListener, clock: Clock) -> None:
        self._machine = machine
        self._listener = listener
        self._clock = clock
        self._group: RaftGroup[Reply] | None = None
        self._term: Term | None = None  # in which effects are carried out here
        self._timers: dict[str, SetTimer] = {}
        self._handle: asyncio.TimerHandle | None = None

    def attach(self, group: RaftGroup[Reply]) -> None:
        """Carry out effects whenever this group leads."""
        self._group = group
        self._begin_if_ready()

    # What the group asks of its machine.

    def apply(self, entry: Batch) -> Reply:
        """Apply it; keep its effects where this broker carries them out."""
        reply, effects = self._machine.apply(entry)
        if self._term is not None:
            self._take(effects)
        return reply

    def snapshot(self) -> bytes:
        """Passed on."""
        return self._machine.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Passed on."""
        self._machine.restore(snapshot)

    # What the group tells.

    def role_changed(self, role: Role, term: Term, leader: NodeId | None) -> None:
        """Another leader carries out the effects, or this one from now on."""
        if term != self._term or role is not Role.LEADER:
            self._end()
        self._begin_if_ready()
        self._listener.role_changed(role, term, leader)

    def commit_advanced(self, commit_index: Index) -> None:
        """A new leader may have applied its whole log by now."""
        if self._term is None:
            self._begin_if_ready()
        self._listener.commit_advanced(commit_index)

    def membership_changed(self, membership: Membership, is_committed: bool) -> None:
        """Passed on."""
        self._listener.membership_changed(membership, is_committed)

    def removed(self) -> None:
        """Passed on."""
        self._listener.removed()

    def replica_stopped(self, error: BaseException) -> None:
        """No effect is carried out here any more."""
        self._end()
        self._listener.replica_stopped(error)

    # Timers.

    def _begin_if_ready(self) -> None:
        group = self._group
        if group is None or not group.is_ready or self._term is not None:
            return
        try:
            self._take([*self._machine.effects()])
        except Exception:
            _log.exception("the effects of a new leader are looked at again after this")
            self._call_in(LOOK_S_MAX, self._begin_if_ready)
        else:
            self._term = group.term

    def _end(self) -> None:
        self._term = None
        self._timers.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _take(self, effects: Iterable[Effect]) -> None:
        is_new = False
        for effect in effects:
            is_new = True
            match effect:
                case SetTimer():
                    self._timers[effect.name] = effect
                case CancelTimer():
                    self._timers.pop(effect.name, None)
                case FollowUp():
                    self._timers[effect.name] = SetTimer(effect.name, 0, effect.command)
                case _:
                    assert_never(effect)
        if is_new:
            self._call_in(0.0, self._look)

    def _call_in(self, seconds: float, work: Callable[[], None]) -> None:
        """In place of what was to be called before."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_later(seconds, work)

    def _look(self) -> None:
        """Propose what is due, then wait for the next timer."""
        now_ms, has_failed = self._clock.wall_ms(), False
        for timer in [timer for timer in self._timers.values() if timer.at_ms <= now_ms]:
            try:
                self._propose(timer, now_ms)
            except RaftlogError:
                self._call_in(PROPOSE_AGAIN_S, self._look)
                return
            except Exception:
                _log.exception("timer %s is tried again after this", timer.name)
                has_failed = True
        if self._timers:
            next_ms = min(timer.at_ms for timer in self._timers.values())
            wait_s = LOOK_S_MAX if has_failed else max(0.0, (next_ms - now_ms) / 1000)
            self._call_in(min(LOOK_S_MAX, wait_s), self._look)

    def _propose(self, timer: SetTimer, now_ms: int) -> None:
        """Propose the command of a timer, which is over then."""
        assert self._group is not None
        self._group.propose([batch_of_command(timer.command, now_ms)])
        if self._timers.get(timer.name) is timer:
            del self._timers[timer.name]
