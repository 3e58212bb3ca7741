"""Bugs in delayed messages that whole brokers must see: seeds of ``brokers-delayed`` look for them."""

from __future__ import annotations

from chaos.simulator.levels import BROKERS_DELAYED
from tests.helpers.planted_bugs import Edit, Mutant

_LANES = "delayed.lanes:Lanes"
_DECISIONS = "delayed.decisions:Decisions"
_COORDINATOR = "delayed.coordinator:DelayedCoordinator"


def _mutant(name: str, place: str, text: str, planted: str, *more: Edit) -> Mutant:
    return Mutant(name, place, text, planted, more=more, level=BROKERS_DELAYED)


DELAYED_SEEDS = (
    _mutant(
        "whole brokers: a delayed message moves a second early",
        f"{_LANES}.collect",
        "self._due.take(self._draft.wall_ms)",
        "self._due.take(self._draft.wall_ms + 1_000)",
        Edit(f"{_LANES}._is_due", "one.due_ms <= self._draft.wall_ms", "True"),
        Edit(f"{_LANES}._start", "one.due_ms > self._draft.wall_ms", "False"),
    ),
    _mutant(
        "whole brokers: a batch of delayed messages is sent before its assignment is stored",
        f"{_LANES}._start",
        "        self._draft.write(Row(key, lane))\n        self._move(key, lane)\n",
        "        self._move(key, lane)\n        self._draft.write(Row(key, lane))\n",
        Edit(
            "raftlog.hosting.coordinator:_is_settled",
            "isinstance(wanted, Answer) and wanted.is_settled",
            "not isinstance(wanted, Answer) or wanted.is_settled",
        ),
        Edit(
            f"{_COORDINATOR}._carry",
            "waiting = [self.state.waiting[id_] for id_ in move.batch.ids]",
            "waiting = [self.state.waiting[id_] for id_ in move.batch.ids if id_ in self.state.waiting]",
        ),
    ),
    _mutant(
        "whole brokers: a new coordinator of delayed messages forgets what is on its way",
        f"{_LANES}.__init__",
        "if lane.ids:",
        "if False:",
    ),
    _mutant(
        "whole brokers: a new coordinator assigns again what is on its way",
        f"{_LANES}.__init__",
        "if lane.ids:",
        "if False:",
        Edit(
            f"{_LANES}.__init__",
            "self._moving = {id_ for lane in self._state.lanes.values() for id_ in lane.ids}",
            "self._moving = set()",
        ),
        Edit(f"{_LANES}._start", "if not ready or before.ids:", "if not ready:"),
    ),
    _mutant(
        "whole brokers: the sequence of a lane stays after a delivery",
        f"{_LANES}.delivered",
        "following = (move.batch.sequence + len(move.batch.ids)) & SEQUENCE_MAX",
        "following = move.batch.sequence",
    ),
    _mutant(
        "whole brokers: each new coordinator begins a lane with a new epoch",
        f"{_LANES}.__init__",
        "self._move(key, lane)",
        "self._move(key, Lane(lane.epoch + 1, 0, lane.ids, lane.producer_id))",
    ),
    _mutant(
        "whole brokers: a message on its way can be cancelled",
        f"{_DECISIONS}._check_open",
        "if self._lanes.is_moving(id_):",
        "if False:",
    ),
    _mutant(
        "whole brokers: a repeated request adds its delayed messages again",
        f"{_DECISIONS}._add",
        "state.waiting.find(message.id) or state.recent.get(message.id)",
        "state.waiting.find(message.id)",
    ),
    _mutant(
        "whole brokers: a cancellation is answered and not stored",
        f"{_DECISIONS}._cancel",
        "self._draft.write(*self._draft.leaving(request.id, Outcome.CANCELLED))",
        "pass",
    ),
    _mutant(
        "whole brokers: another time of a message is answered and not stored",
        f"{_DECISIONS}._reschedule",
        "self._draft.write(Row(ChangeKey(request.id), change))",
        "pass",
    ),
    _mutant(
        "whole brokers: a snapshot lacks the lanes of delayed messages",
        "delayed.state:DelayedState.restore",
        "self.lanes = dict(found.lanes)",
        "pass",
    ),
    _mutant(
        "whole brokers: a snapshot lacks delayed messages",
        "delayed.state:DelayedState.restore",
        "self.waiting = Pending.restored(found.targets, found.counts, memoryview(snapshot)[end:])",
        "self.waiting.put(b'no such message', Waiting(0, 0, 0, 'nowhere', 0))",
    ),
    _mutant(
        "whole brokers: a new coordinator leaves out half of the messages",
        "delayed.due_times:DueTimes.__init__",
        "self._unread = list(range(SHARDS))",
        "self._unread = list(range(SHARDS // 2, SHARDS))",
    ),
)
