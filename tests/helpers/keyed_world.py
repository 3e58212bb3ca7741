"""The same run with clients that repeat requests with an idempotency key."""

from __future__ import annotations

from collections import defaultdict

from raftlog.errors import IdempotencyInProgress, IdempotencyKeyReused, Overloaded, RaftlogError
from tests.helpers.transaction_world import IDS, PARTITIONS, TIMEOUT_MS, Producer, TransactionWorld
from transactions.kept_requests import size_of
from transactions.outputs import Row
from transactions.records import Handle, KeyedRequest, RequestKey, State, Transaction
from transactions.requests import AnsweredBefore, Claim, End, Ended, NeedsProducerId, Open, Opened, Reply

KEYS = 6
SOLO = IDS[0]  # a transactional id of a client, which others open, too


class KeyedWorld(TransactionWorld):
    """Asserts besides that each request is committed once, and always answered alike."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sent: dict[bytes, set[bytes]] = defaultdict(set)  # fingerprints of a key
        self.answered: dict[bytes, KeyedRequest] = {}
        self.attempts = 0
        others = [producer for producer in self.producers if producer.name == SOLO]
        self.producers = [*others, *(KeyedClient(self, f"__one-shot-0~{number}.0") for number in range(3))]

    def finish(self) -> None:
        """No key is left without an answer."""
        super().finish()
        for digest, request in self.committed.requests.items():
            assert request.answer is not None, f"{digest!r} is neither free nor answered"
        assert self.committed.keys.total == sum(
            size_of(request) for _, request in self.committed.requests.items()
        )

    def told(self, claim: Claim, answer: bytes) -> None:
        """A client has its answer."""
        request = self.answered[claim.digest]
        assert request.fingerprint == claim.fingerprint, "the answer to another request"
        assert request.answer == answer, "two answers to one request"
        self.check_shown(request.transaction, True, self.partitions_of(request.transaction))

    def _committed(self, rows: tuple[Row, ...]) -> None:
        decided = {
            value.request: value.state
            for _, value in rows
            if isinstance(value, Transaction) and value.request
        }
        answers = {
            key.digest: value
            for key, value in rows
            if isinstance(key, RequestKey) and isinstance(value, KeyedRequest) and value.answer is not None
        }
        committed = {digest for digest, state in decided.items() if state is State.PREPARE_COMMIT}
        assert committed == answers.keys(), "an answer without its decision, or a decision without its answer"
        for digest, request in answers.items():
            assert digest not in self.answered, "a request is committed twice"
            self.answered[digest] = request
            self.tally["keyed"] = self.tally.get("keyed", 0) + 1
        super()._committed(rows)


class KeyedClient(Producer):
    """Sends the requests of a few keys again and again, each attempt as a broker carries it out."""

    _world: KeyedWorld
    _claim: Claim

    def act(self) -> None:
        """The next step of an attempt, or another attempt."""
        rng = self._world.rng
        if self._is_asking and rng.random() < 0.95:
            return  # else it gives up waiting
        self._is_asking = True
        if self._handle is None:
            self._attempt()
        elif rng.random() < 0.4:
            self._join(self._handle, rng.choice(PARTITIONS))
        else:
            self._commit(self._handle, self._claim)

    def _attempt(self) -> None:
        world = self._world
        number, world.attempts = world.rng.randrange(KEYS), world.attempts + 1
        name = self.name if number else SOLO
        digest = f"{number}".encode()
        content = b"usual" if world.rng.random() < 0.9 else b"other"
        world.sent[digest].add(content)
        self._claim = Claim(digest=digest, fingerprint=content, attempt=world.attempts)
        self._ask(name, self._claim, -1)

    def _ask(self, name: str, claim: Claim, producer_id: int) -> None:
        ask = Open(
            transactional_id=name,
            timeout_ms=TIMEOUT_MS,
            new_producer_id=producer_id,
            partitions=tuple(PARTITIONS[: int(claim.digest) % 3]),
            claim=claim,
        )

        def told(reply: Reply | RaftlogError) -> None:
            self._is_asking = False
            if isinstance(reply, NeedsProducerId):
                self._is_asking = True
                self._ask(name, claim, self._world.new_producer_id())
            elif isinstance(reply, Opened):
                if claim is self._claim:
                    self._goes_on(Handle(name, reply.producer_id, reply.epoch))
            elif isinstance(reply, AnsweredBefore):
                self._world.told(claim, reply.answer)
                self._world.tally["replayed"] = self._world.tally.get("replayed", 0) + 1
            elif isinstance(reply, IdempotencyKeyReused):
                assert len(self._world.sent[claim.digest]) > 1, "an equal request is taken for another one"
                self._world.tally["reused"] = self._world.tally.get("reused", 0) + 1
            elif isinstance(reply, IdempotencyInProgress):
                self._world.tally["running"] = self._world.tally.get("running", 0) + 1
            else:
                assert not isinstance(reply, Overloaded), reply

        self._world.send(ask, told)

    def _commit(self, handle: Handle, claim: Claim) -> None:
        answer = f"{claim.digest!r} {claim.fingerprint!r} {handle}".encode()

        def told(reply: Reply | RaftlogError) -> None:
            self._is_asking = False
            if isinstance(reply, Ended) and reply.is_committed:
                self._world.told(claim, answer)
            if handle == self._handle:
                self._goes_on(None)

        self._world.asked.add(handle)
        self._world.send(End(transaction=handle, is_commit=True, answer=answer), told)
