"""Random workers of a queue, what they know, and what must hold whenever they are told something."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from queues.requests import Abandon, Received, Settle, Settled, Token
from raftlog.hosting.decisions import RequestId
from tests.helpers.worked_off import WorkedOff

PARTITIONS = 2
DELIVERIES_MAX = 4
UNIT_MS = 1_000
Place = tuple[int, int]


@dataclass
class Crowd:
    """What workers know, and what must hold whenever they are told something."""

    mail: WorkedOff
    rng: Random
    is_ordered: bool
    clocks_differ: bool
    held: dict[Place, tuple[Token, int]] = field(default_factory=dict)  # and the end of the lease
    given_back: set[Place] = field(default_factory=set)  # perhaps: nobody may rely on the lease
    finished: set[Place] = field(default_factory=set)  # perhaps
    done: set[Place] = field(default_factory=set)  # for sure
    asked: dict[RequestId, tuple[bytes, Settle | None]] = field(default_factory=dict)
    delivered: int = 0

    def receive(self, count: int) -> None:
        """Some worker asks."""
        lease_ms, wait_ms = self.rng.randrange(1, 20) * UNIT_MS, self.rng.choice([0, 0, 5_000])
        request = self.mail.receive(
            count,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
            deliveries_max=DELIVERIES_MAX,
            is_ordered=self.is_ordered,
        )
        self.asked[request] = self.mail.last_lease, None

    def settle(self) -> None:
        """Some worker says something about a job that it has, or had."""
        if not self.held:
            return
        place = self.rng.choice(sorted(self.held))
        token, _ = self.held[place]
        how = self.rng.choice(["ack", "ack", "ack", "nack", "nack", "extend", "dead", "release"])
        if how in ("ack", "dead"):
            self.finished.add(place)
        else:
            self.given_back.add(place)
        time_ms = self.rng.randrange(5) * UNIT_MS
        settle = Settle(group="g", topic="mail", tokens=(token,), how=how, time_ms=time_ms)  # type: ignore[arg-type]
        self.asked[self.mail.send(settle)] = token.lease, settle

    def abandon(self) -> None:
        """Some client disconnects."""
        if self.held:
            place = self.rng.choice(sorted(self.held))
            lease = self.held[place][0].lease
            self.given_back |= {at for at, (token, _) in self.held.items() if token.lease == lease}
            self.mail.send(Abandon(group="g", topic="mail", lease=lease))

    def listen(self) -> None:
        """Hear what was answered."""
        for request in sorted(self.asked.keys() & self.mail.answers.keys()):
            lease, settle = self.asked.pop(request)
            answer = self.mail.answers[request]
            if isinstance(answer, Received):
                for job in answer.jobs:
                    self._got((job.partition, job.offset), job.deliveries, lease, job.until_ms)
            elif isinstance(answer, Settled) and settle is not None and not answer.lost:
                place = settle.tokens[0].partition, settle.tokens[0].offset
                if settle.how in ("ack", "dead"):
                    self.done.add(place)

    def _got(self, place: Place, deliveries: int, lease: bytes, until_ms: int) -> None:
        assert place not in self.done, f"{place} is delivered although it is done"
        assert 1 <= deliveries <= DELIVERIES_MAX
        assert place in self.all_jobs(), f"{place} has other tags than the queue"
        if place in self.held and place not in self.given_back | self.finished and not self.clocks_differ:
            assert self.mail.wall_ms >= self.held[place][1], f"two workers have {place}"
        if self.is_ordered:
            jobs = self.mail.jobs(place[0], self.mail.selection)
            (key,) = (each.key for each in jobs if each.offset == place[1])
            before = {(place[0], each.offset) for each in jobs if each.key == key != b""}
            dead = {(each.partition, each.offset) for each in self.mail.buried}
            assert {at for at in before if at < place} <= self.finished | dead, (
                f"{place} comes before its turn"
            )
        self.held[place] = Token(*place, lease), until_ms
        self.given_back.discard(place)
        self.delivered += 1

    def fail_over(self) -> None:
        """The coordinator dies; some of what it was writing is committed."""
        if self.clocks_differ:
            self.mail.skew_ms = self.rng.randrange(-20, 20) * UNIT_MS
        self.mail.fail_over(self.rng.randrange(len(self.mail.held_back) + 1))
        self.asked.clear()

    def all_jobs(self) -> set[Place]:
        """Of the topic."""
        mail = self.mail
        return {(at, each.offset) for at in mail.records for each in mail.jobs(at, mail.selection)}


def one_step(crowd: Crowd) -> None:
    """Anything may happen."""
    mail, rng = crowd.mail, crowd.rng
    match rng.randrange(10):
        case 0:
            keys = [rng.choice([b"a", b"b", b"c", b""]) for _ in range(rng.randrange(1, 6))]
            partition = rng.randrange(PARTITIONS)
            tags = ("paid", "new")[: rng.randrange(3)] if mail.selection else ()
            mail.produce(*keys, partition=partition, tags=tags)
        case 1:
            mail.skip(partition=rng.randrange(PARTITIONS))
        case 2 | 3 | 4:
            crowd.receive(rng.randrange(1, 5))
        case 5 | 6:
            crowd.settle()
        case 7:
            mail.after(rng.randrange(8) * UNIT_MS)
        case 8:
            mail.holds_back = rng.random() < 0.5
            mail.carry_out(None if not mail.holds_back else rng.randrange(4))
        case _:
            rng.choice([crowd.fail_over, crowd.abandon, mail.store_letters])()
    crowd.listen()
