"""Delayed messages arrive once, whatever is late, lost or repeated, while their topics come and go.

Sweeps ask which lanes lead nowhere, and hear of it late. A lane that is used meanwhile stays: without it the
next batch would have a sequence that its target has seen, and the target would take it for a duplicate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from random import Random

from delayed.decisions import Decisions
from delayed.draft import IDLE_MS
from delayed.records import LaneKey, MessageKey, Outcome, Row
from delayed.values import Move, Sweep
from raftlog.errors import OutOfOrderSequence, ProducerFenced
from tests.helpers.decided_delays import Coordinator, Target, add, id_of, new

WORLDS = 120
STEPS = 150
TOPICS = ("orders", "mail")


class World(Coordinator):
    """Topics that are deleted and created again, moves and sweeps on their way."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.alive = set(TOPICS)
        self.incarnation = dict.fromkeys(TOPICS, 0)
        self.former: dict[LaneKey, list[Target]] = defaultdict(list)
        self.on_their_way: list[Callable[[], None]] = []
        self.left: dict[bytes, Outcome] = {}
        self.sent = 0
        super().__init__()

    def step(self) -> None:
        """Anything may happen."""
        rng = self.rng
        match rng.randrange(12):
            case 0 | 1 | 2:
                topic = rng.choice(TOPICS)
                self.ask(add(new(self.sent, delay_ms=rng.choice((0, 0, 500))), topic=topic))
                self.sent += 1
            case 3:
                self.advance(rng.choice((1, 1_000, IDLE_MS)))
            case 4:
                self.delete_or_create(rng.choice(TOPICS))
            case 5 if rng.random() < 0.3:
                self.commit()
                self.lead()
            case _ if self.on_their_way:
                self.on_their_way.pop(rng.randrange(len(self.on_their_way)))()
        self.send_all()

    def delete_or_create(self, topic: str) -> None:
        """A topic of that name has another partition 0 when it is created again."""
        lane = LaneKey(topic, 0)
        self.incarnation[topic] += 1
        if topic in self.alive:
            self.alive.remove(topic)
            self.former[lane].append(self.targets.pop(lane, Target()))
        else:
            self.alive.add(topic)

    def send_all(self) -> None:
        """What the coordinator wants is on its way."""
        self.commit()
        for move in (*self.moves, *self.late):
            self.send_move(move)
        for sweep in self.sweeps:
            gone = [key for key in sweep.lanes if key.topic not in self.alive]
            self.on_their_way.append(partial(self.hear, sweep, gone, self.decisions))
        self.moves, self.late, self.sweeps = [], [], []

    def hear(self, sweep: Sweep, gone: list[LaneKey], decisions: Decisions) -> None:
        """The answer to a sweep, unless another coordinator leads by now."""
        if decisions is self.decisions:
            self.decisions.gone(sweep, gone)

    def send_move(self, move: Move) -> None:
        """An attempt is for the topic that has the name when it is sent."""
        incarnation = self.incarnation[move.lane.topic]
        self.on_their_way.append(lambda: self.arrive(move, incarnation))

    def arrive(self, move: Move, incarnation: int) -> None:
        """A batch arrives, perhaps twice. One for a topic that is another by now is sent again."""
        is_known = self.decisions.state.lanes.get(move.lane) == move.batch
        if incarnation != self.incarnation[move.lane.topic] or self.rng.random() < 0.1:
            if is_known:
                self.send_move(move)
            if incarnation != self.incarnation[move.lane.topic]:
                return
        now_ms = self.wall_ms
        if move.lane.topic not in self.alive:
            if is_known:
                self.decisions.refused(move, "no topic", is_gone=True, now_ms=now_ms, wall_ms=now_ms)
            return
        try:
            self.targets[move.lane].append(move, now_ms)
        except (OutOfOrderSequence, ProducerFenced):
            if is_known:
                self.decisions.out_of_order(move, now_ms, now_ms)
        else:
            if is_known:
                self.decisions.delivered(move, now_ms, now_ms)

    def _append(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            if isinstance(row.key, MessageKey) and row.outcome is not None:
                self.left[row.key.id] = row.outcome
            if isinstance(row.key, LaneKey) and row.value is None:
                is_known = row.key.topic in self.alive and bool(self.targets[row.key].window)
                assert not is_known, f"the lane of {row.key} is removed, and its target knows it"
        super()._append(rows)

    def finish(self) -> None:
        """Everything arrives."""
        for topic in sorted({*TOPICS} - self.alive):
            self.delete_or_create(topic)
        for _ in range(20):
            while self.on_their_way:
                self.on_their_way.pop(0)()
                self.send_all()
            self.advance(1_000)
            self.send_all()

    def arrivals(self) -> Counter[bytes]:
        """How often each message is in a topic, or was in one that is deleted.

        A batch on its way to a topic that is deleted and created again may be in both.
        """
        arrived: Counter[bytes] = Counter()
        for target in [*self.targets.values(), *(each for some in self.former.values() for each in some)]:
            of_target = Counter(id_ for _, id_ in target.delivered)
            assert all(times == 1 for times in of_target.values()), f"a message came twice: {of_target}"
            arrived += of_target
        return arrived


# requirement: A3
def test_each_delayed_message_arrives_once_while_topics_come_and_go() -> None:
    delivered = 0
    for seed in range(WORLDS):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.finish()
        arrived, failed = world.arrivals(), world.decisions.state.failed
        for number in range(world.sent):
            id_ = id_of(number)
            if id_ not in failed:
                assert world.left.get(id_) is Outcome.DELIVERED, f"seed {seed}: message {number} hangs"
                assert arrived[id_], f"seed {seed}: message {number} has left, and no topic has it"
        delivered += arrived.total()
    assert delivered > 10 * WORLDS
