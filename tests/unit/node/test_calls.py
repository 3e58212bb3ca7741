"""Questions and answers between brokers when answers come late, wrongly, twice or never."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Sequence
from functools import partial

import msgspec
import pytest

from raftlog.errors import ConnectionLost, InvalidRequest, NotLeader, Overloaded, TopicNotFound
from raftlog.node import rpc as calls_module
from raftlog.node.codec import FrameKind, MalformedFrame, encode_frame, split_frame
from raftlog.node.network.transport import Transport
from raftlog.node.rpc import Calls
from raftlog.node.rpc_classes import CALLS_MAX, CallClass, Service
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import eventually

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ECHO, REFUSES, BREAKS, WAITS, NOTHING, LARGE = (
    Service(name, CallClass.READ) for name in ("echo", "refuses", "breaks", "waits", "nothing", "large")
)


class End:
    """A receiver that knows calls only."""

    def __init__(self, transport: Transport, first_id: int) -> None:
        self.transport = transport
        self.calls = Calls(transport, first_id=first_id)
        self.peers: list[NodeId] = []

    def frame_received(self, sender: NodeId, frame: memoryview) -> None:
        """As the host does."""
        self.calls.frame_received(sender, *split_frame(frame))

    def peer_connected(self, peer: NodeId) -> None:
        """Keep it."""
        self.peers.append(peer)

    def peer_lost(self, peer: NodeId) -> None:
        """As the host does."""
        self.calls.peer_lost(peer)

    def peer_refused(self, peer: NodeId) -> None:
        """No peer does."""


async def ends(*nodes: NodeId) -> list[End]:
    """Connected with one another."""
    network = LoopNetwork(random.Random(1))
    found = [End(network.member(node, nodes), 100 * node) for node in nodes]
    for end in found:
        await end.transport.start(end)
    await eventually(lambda: all(len(end.peers) == len(nodes) - 1 for end in found))
    return found


async def echo(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
    return head, (payload,)


async def test_an_answer_finds_its_question_and_an_error_keeps_its_kind() -> None:
    one, two = await ends(ONE, TWO)

    async def refuses(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        raise TopicNotFound("there is none", topic="t")

    two.calls.serve(ECHO, echo)
    two.calls.serve(REFUSES, refuses)
    answers = await asyncio.gather(
        *(one.calls.call(TWO, ECHO, b"%d" % n, [b"x" * n], timeout_ms=1000) for n in range(50))
    )
    assert [(head, len(payload)) for head, payload in answers] == [(b"%d" % n, n) for n in range(50)]
    with pytest.raises(TopicNotFound, match="there is none"):
        await one.calls.call(TWO, REFUSES, b"", timeout_ms=1000)
    with pytest.raises(NotLeader, match="no service"):
        await one.calls.call(TWO, NOTHING, b"", timeout_ms=1000)


async def test_a_handler_that_breaks_is_answered_with_unknown_and_not_with_silence() -> None:
    one, two = await ends(ONE, TWO)

    async def breaks(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        raise ZeroDivisionError

    two.calls.serve(BREAKS, breaks)
    with pytest.raises(ConnectionLost) as caught:
        await one.calls.call(TWO, BREAKS, b"", timeout_ms=60_000)
    assert caught.value.details["sent"] is True


async def test_late_answers_and_answers_of_others_change_nothing() -> None:
    one, two, three = await ends(ONE, TWO, THREE)
    gate = asyncio.Event()

    async def waits(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        await gate.wait()
        return head, ()

    two.calls.serve(WAITS, waits)
    with pytest.raises(ConnectionLost) as caught:
        await one.calls.call(TWO, WAITS, b"early", timeout_ms=5)
    assert caught.value.details["sent"] is True
    asked = asyncio.create_task(one.calls.call(TWO, WAITS, b"asked", timeout_ms=1000))
    await asyncio.sleep(0.005)
    three.transport.send(ONE, encode_frame(FrameKind.ANSWER, [102, b"forged"]))
    await asyncio.sleep(0.005)
    gate.set()
    assert (await asked)[0] == b"asked"


async def test_a_lost_peer_owes_nothing_and_its_own_questions_are_dropped() -> None:
    one, two = await ends(ONE, TWO)
    ended: list[str] = []

    async def waits(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return b"", ()

    two.calls.serve(WAITS, waits)
    asked = asyncio.create_task(one.calls.call(TWO, WAITS, b"", timeout_ms=60_000))
    await asyncio.sleep(0.005)
    one.transport.disconnect(TWO)
    with pytest.raises(ConnectionLost, match="lost broker 2"):
        await asked
    await asyncio.sleep(0)
    assert ended == ["cancelled"]
    with pytest.raises(ConnectionLost) as caught:
        await one.calls.call(TWO, WAITS, b"", timeout_ms=1000)
    assert caught.value.details["sent"] is False


# requirement: C4
@pytest.mark.parametrize("full", CallClass)
async def test_a_class_whose_calls_all_wait_leaves_the_others_their_own(
    monkeypatch: pytest.MonkeyPatch, full: CallClass
) -> None:
    bound = min(CALLS_MAX[full], 256)
    monkeypatch.setitem(CALLS_MAX, full, bound)
    one, two, three = await ends(ONE, TWO, THREE)
    gate = asyncio.Event()

    async def waits(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        await gate.wait()
        return head, ()

    two.calls.serve(parks := Service("parks", full), waits)
    three.calls.serve(parks, echo)
    parked = [asyncio.create_task(one.calls.call(TWO, parks, b"", timeout_ms=60_000)) for _ in range(bound)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match=f"class {full.value}") as caught:
        await one.calls.call(THREE, parks, b"", timeout_ms=60_000)  # the caller's bound: broker 3 is idle
    assert caught.value.details["retry_after_ms"] > 0
    while len(two.calls._running) < bound:
        await asyncio.sleep(0.001)
    with pytest.raises(Overloaded, match=f"class {full.value}"):
        await three.calls.call(TWO, parks, b"", timeout_ms=60_000)  # the bound of broker 2
    for kind in CallClass:
        two.calls.serve(Service(kind.value, kind), echo)
        if kind is not full:
            answer, _ = await one.calls.call(TWO, Service(kind.value, kind), b"there", timeout_ms=60_000)
            assert answer == b"there"
    gate.set()
    await asyncio.gather(*parked)
    assert (await one.calls.call(TWO, parks, b"again", timeout_ms=60_000))[0] == b"again"


# requirement: C4
@pytest.mark.parametrize(
    ("kind", "waiting"),
    [(CallClass.GROUPS, CallClass.GROUP_WAIT), (CallClass.FETCH, CallClass.LONG_POLL)],
)
async def test_calls_of_a_service_that_wait_do_not_refuse_those_that_are_answered_at_once(
    monkeypatch: pytest.MonkeyPatch, kind: CallClass, waiting: CallClass
) -> None:
    monkeypatch.setitem(CALLS_MAX, waiting, bound := 4096)
    one, two, three = await ends(ONE, TWO, THREE)
    gate = asyncio.Event()

    async def answer(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        if head == b"waits":
            await gate.wait()
        return head, ()

    asks = Service("asks", kind, lambda head: waiting if head == b"waits" else kind)
    also = Service("also", kind)  # another service of the class, none of whose calls waits
    for service in (asks, also):
        two.calls.serve(service, answer)
    parked = [
        asyncio.create_task(one.calls.call(TWO, asks, b"waits", timeout_ms=60_000)) for _ in range(bound)
    ]
    while len(two.calls._running) < bound:
        await asyncio.sleep(0.001)
    for end in (one, three):
        with pytest.raises(Overloaded, match=f"class {waiting.value}") as refused:
            await end.calls.call(TWO, asks, b"waits", timeout_ms=60_000)
        assert refused.value.details["retry_after_ms"] == 1_000
        for service in (asks, also):
            assert (await end.calls.call(TWO, service, b"commit", timeout_ms=60_000))[0] == b"commit"
    gate.set()
    await asyncio.gather(*parked)
    assert (await one.calls.call(TWO, asks, b"waits", timeout_ms=60_000))[0] == b"waits"


async def test_a_question_that_does_not_say_whether_it_waits_is_left_to_its_handler() -> None:
    one, two = await ends(ONE, TWO)
    asks = Service("asks", CallClass.GROUPS, partial(msgspec.msgpack.decode, type=CallClass))
    two.calls.serve(asks, echo)
    for head in (b"", b"\xc1", b"\xa1\xff", b"\x91" * 10_000):
        assert (await one.calls.call(TWO, asks, head, timeout_ms=60_000))[0] == head


async def test_an_answer_that_cannot_leave_waits_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each direction has a connection of its own: the question may come over one while the other is down."""
    # requirement: L9
    monkeypatch.setattr(calls_module, "ANSWER_AGAIN_S", 0.001)
    one, two = await ends(ONE, TWO)
    send, refused = two.transport.send, [False, False, True]

    def refuses_twice(peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        return refused.pop(0) and send(peer, buffers)

    monkeypatch.setattr(two.transport, "send", refuses_twice)
    two.calls.serve(ECHO, echo)
    assert (await one.calls.call(TWO, ECHO, b"head", timeout_ms=1000))[0] == b"head"
    assert not refused


async def test_records_that_cannot_leave_are_held_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch above it is refused, and does not hold its records; a produce that is done is answered."""
    # requirement: C4
    monkeypatch.setattr(calls_module, "ANSWER_AGAIN_S", 0.001)
    monkeypatch.setattr(calls_module, "HELD_BYTES_MAX", 250_000)
    one, two = await ends(ONE, TWO)
    fetches, produces = Service("fetches", CallClass.FETCH), Service("produces", CallClass.PRODUCE)
    send, is_open, held = two.transport.send, False, list[weakref.ref[bytearray]]()

    class Records(bytearray):
        """Something that one can see go."""

    async def records(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        found = Records(100_000)
        held.append(weakref.ref(found))
        return head, (found,)

    monkeypatch.setattr(two.transport, "send", lambda peer, frame: is_open and send(peer, frame))
    two.calls.serve(fetches, records)
    two.calls.serve(produces, records)
    asked = [
        asyncio.create_task(one.calls.call(TWO, service, b"", timeout_ms=5000))
        for service in (fetches, fetches, fetches, fetches, produces)
    ]
    while len(held) < len(asked):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.002)
    assert [each() is not None for each in held] == [True, True, False, False, True]
    is_open = True
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(each, Overloaded) for each in found] == [False, False, True, True, False]
    assert two.calls._held_bytes == 0


async def test_stopping_ends_the_handlers() -> None:
    one, two = await ends(ONE, TWO)

    async def waits(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        await asyncio.Event().wait()
        return head, ()

    two.calls.serve(WAITS, waits)
    asked = asyncio.create_task(one.calls.call(TWO, WAITS, b"", timeout_ms=50))
    await asyncio.sleep(0.005)
    await two.calls.stop()
    with pytest.raises(ConnectionLost):
        await asked


async def test_what_is_too_large_for_a_frame_is_refused_and_not_left_unanswered() -> None:
    class Narrow:
        """A transport that takes small frames only."""

        def __init__(self, inner: object) -> None:
            self.inner = inner

        def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
            if sum(map(len, buffers)) > 1000:
                raise ValueError("frame has too many bytes")
            return bool(self.inner.send(peer, buffers))  # type: ignore[attr-defined]

    one, two = await ends(ONE, TWO)
    for end in (one, two):
        end.calls._transport = Narrow(end.transport)  # type: ignore[assignment]

    async def large(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        return b"x" * 2000, ()

    two.calls.serve(LARGE, large)
    with pytest.raises(InvalidRequest, match="too large for one message"):
        await one.calls.call(TWO, LARGE, b"", [b"x" * 2000], timeout_ms=60_000)
    with pytest.raises(ConnectionLost, match="too large for one message"):  # what was asked is done
        await one.calls.call(TWO, LARGE, b"", [], timeout_ms=60_000)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(FrameKind.CALL, []), (FrameKind.CALL, [1, 2, 3]), (FrameKind.CALL, ["a", "b", b""])],
)
async def test_a_question_that_makes_no_sense_is_malformed(kind: FrameKind, fields: list[object]) -> None:
    (one,) = await ends(ONE)
    frame = memoryview(b"".join(encode_frame(kind, fields)))
    with pytest.raises(MalformedFrame):
        one.frame_received(TWO, frame)
    one.frame_received(TWO, memoryview(b"".join(encode_frame(FrameKind.ANSWER, []))))  # nobody asked


# requirement: N2
async def test_what_a_refused_question_held_is_let_go_with_the_answer() -> None:
    one, two = await ends(ONE, TWO)
    held: list[weakref.ref[object]] = []

    async def refuses(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        records, refusal = {"batches"}, InvalidRequest("no")  # a cycle: this frame, its error, its traceback
        held.append(weakref.ref(records))
        raise refusal

    two.calls.serve(REFUSES, refuses)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(InvalidRequest):
            await one.calls.call(TWO, REFUSES, b"", timeout_ms=1_000)
        assert held[0]() is None
    finally:
        gc.enable()
