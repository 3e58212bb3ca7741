"""Bugs in delayed messages: what is due, what a batch contains, and which requests come too late."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

DECIDED = "tests/unit/delayed/test_decided_delays.py"
MOVES = "tests/unit/delayed/test_coordinator_moves.py"
HTTP = "tests/unit/api/test_delays_over_http.py"
DECISIONS = "delayed.decisions:Decisions"
LANES = "delayed.lanes:Lanes"

DELAYED = (
    Mutant(
        "a delayed message moves a second early",
        f"{LANES}.collect",
        "self._due.take(self._draft.wall_ms)",
        "self._due.take(self._draft.wall_ms + 1_000)",
        more=(
            Edit(f"{LANES}._is_due", "one.due_ms <= self._draft.wall_ms", "True"),
            Edit(f"{LANES}._start", "one.due_ms > self._draft.wall_ms", "False"),
        ),
        script=DECIDED,
    ),
    Mutant(
        "a batch of delayed messages is sent before its assignment is stored",
        f"{LANES}._start",
        "        self._draft.write(Row(key, lane))\n        self._move(key, lane)\n",
        "        self._move(key, lane)\n        self._draft.write(Row(key, lane))\n",
        script=DECIDED,
    ),
    Mutant(
        "a new coordinator of delayed messages forgets what is on its way",
        f"{LANES}.__init__",
        "if lane.ids:",
        "if False:",
        script=DECIDED,
    ),
    Mutant(
        "two batches of delayed messages are on their way to one partition",
        f"{LANES}._start",
        "if not ready or before.ids:",
        "if not ready:",
        script=DECIDED,
    ),
    Mutant(
        "the sequence of a lane stays after a delivery",
        f"{LANES}.delivered",
        "following = (move.batch.sequence + len(move.batch.ids)) & SEQUENCE_MAX",
        "following = move.batch.sequence",
        script=DECIDED,
    ),
    Mutant(
        "a message on its way can be cancelled",
        f"{DECISIONS}._check_open",
        "if self._lanes.is_moving(id_):",
        "if False:",
        script=DECIDED,
    ),
    Mutant(
        "a new coordinator lets a message on its way be cancelled",
        f"{LANES}.__init__",
        "self._moving = {id_ for lane in self._state.lanes.values() for id_ in lane.ids}",
        "self._moving = set()",
        script=DECIDED,
    ),
    Mutant(
        "a lane of delayed messages repeats the last epoch of its producer",
        "delayed.lanes:_next_epoch",
        "    return Lane(0, 0, ids, new_producer_id)",
        "    return Lane(EPOCH_MAX, 0, ids, move.batch.producer_id)",
        script=DECIDED,
    ),
    Mutant(
        "a lane of delayed messages forgets its own producer after a delivery",
        f"{LANES}.delivered",
        "idle = Lane(move.batch.epoch, following, producer_id=move.batch.producer_id)",
        "idle = Lane(move.batch.epoch, following)",
        script=DECIDED,
    ),
    Mutant(
        "a clock that goes back loses due messages behind a batch",
        f"{LANES}._start",
        "self._due.add(one.due_ms, ready[0])",
        "pass",
        script=DECIDED,
    ),
    Mutant(
        "a coordinator that begins again leaves its moves of delayed messages running",
        "raftlog.hosting.coordinator:Coordinator._end",
        "task.cancel()",
        "pass",
        script=MOVES,
    ),
    Mutant(
        "a coordinator that begins slowly begins again as soon as others",
        "raftlog.hosting.coordinator:Coordinator._begin_later",
        "min(AGAIN_S_MAX, max(AGAIN_S, AGAIN_TIMES * self._begin_s))",
        "AGAIN_S",
        script=MOVES,
    ),
    Mutant(
        "a refusal in the last epoch of a lane allocates no producer",
        "delayed.coordinator:DelayedCoordinator._try",
        "if move.is_last_epoch and isinstance(failure, _NEEDS_EPOCH):",
        "if False:",
        script=MOVES,
    ),
    Mutant(
        "a replica of a compacted log does not know how delayed messages left",
        "delayed.state:DelayedState._take",
        "            self._leave(id_)\n",
        "            if id_ not in self.waiting:\n                return\n            self._leave(id_)\n",
        script=DECIDED,
    ),
    Mutant(
        "a cancelled message behind a batch is delivered",
        f"{DECISIONS}._cancel",
        "self._draft.write(*self._draft.leaving(request.id, Outcome.CANCELLED))",
        "pass",
        script=DECIDED,
    ),
    Mutant(
        "a repeated request adds its delayed messages again",
        f"{DECISIONS}._add",
        "state.waiting.find(message.id) or state.recent.get(message.id)",
        "state.waiting.find(message.id)",
        script=DECIDED,
    ),
    Mutant(
        "a delay may exceed the retention of its topic",
        f"{DECISIONS}._due_ms",
        "if delay_ms_max >= 0 and due_ms - self._draft.wall_ms > delay_ms_max:",
        "if False:",
        script=DECIDED,
    ),
    Mutant(
        "pending delayed messages have no limit",
        f"{DECISIONS}._add",
        "if rows and not self._has_room(len(rows)):",
        "if False:",
        script=DECIDED,
    ),
    Mutant(
        "a message that its topic refuses holds back the others of its batch",
        f"{LANES}.refused",
        "if len(ids) > 1 and not is_gone:",
        "if False:",
        script=DECIDED,
    ),
    Mutant(
        "a message that has failed is forgotten by the next coordinator",
        "delayed.state:DelayedState._take",
        "if value.failed:",
        "if False:",
        script=DECIDED,
    ),
    Mutant(
        "a clock that jumps is noticed at the next message only",
        "delayed.draft:wait_ms",
        "min(LOOK_MS, max(0, left_ms))",
        "max(0, left_ms)",
        script=DECIDED,
    ),
    Mutant(
        "a delayed record needs no key where the topic is compacted",
        "api.resources.delays:_check_keys",
        "if missing:",
        "if False:",
        script=HTTP,
    ),
    Mutant(
        "delayed messages for all partitions are read at the same time",
        "api.broker_delays:BrokerDelivery.__init__",
        "asyncio.Semaphore(READS_MAX)",
        "asyncio.Semaphore(1_000)",
        script="tests/unit/api/test_broker_delays.py",
    ),
    Mutant(
        "the delay of a record is ignored where another has none",
        "api.resources.delays:_due_of_each",
        "if missing:",
        "if False:",
        script=HTTP,
    ),
)
