"""Whatever a function of the user raises or returns: no record is lost, and the client goes on.

Every callback of both clients meets every kind of misbehaviour. ``CALLBACKS`` run a client whose function
misbehaves, look that the client still works, and return the exception that the user gets, if any.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from raftlog import Client, InvalidRecord, Message, tracing
from raftlog.client.worker.calls import Calls, CoroutineCalls, ThreadCalls, check_function
from raftlog.records.failures import FailedRecord
from raftlog.testing.waits import LIMIT_S
from tests.helpers.async_tests import beside
from tests.helpers.fake_broker import fake_cluster
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually, run_virtual
from tests.helpers.whole_broker import TOPIC, whole_broker
from tests.helpers.worker_world import World

Misbehaviour = Callable[..., object]
Callback = Callable[[Misbehaviour], BaseException | None]


class NoText(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise KeyError("id")

    __repr__ = __str__


class NoClass(Exception):
    """An exception whose class cannot be read."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise KeyError("class")


@dataclass(frozen=True)
class Frozen(Exception):
    """It refuses notes."""

    field: int = 1


class OwnEnd(BaseException):
    """Not an ``Exception``, such as ``pytest.fail`` raises."""


class Hostile:
    """An object that refuses everything."""

    def _refuse(self, *_: object) -> bool:
        raise ArithmeticError("refused")

    __len__ = __bool__ = __eq__ = __hash__ = __repr__ = __str__ = __iter__ = _refuse  # type: ignore[assignment]


class Pending:
    """An awaitable that is no coroutine."""

    def __await__(self) -> Generator[None]:
        yield


def raises(error: BaseException | type[BaseException]) -> Misbehaviour:
    def misbehave(*_: object) -> object:
        raise error

    return misbehave


def returns(make: Callable[[], object]) -> Misbehaviour:
    return lambda *_: make()


async def coroutine() -> None: ...


async def async_generator() -> AsyncIterator[None]:
    yield


def deep(*args: object) -> object:
    return deep(*args)


ENDS = {
    "SystemExit": raises(SystemExit(3)),
    "KeyboardInterrupt": raises(KeyboardInterrupt),
    "own BaseException": raises(OwnEnd()),
}
FAILS = {
    "ValueError": raises(ValueError("bad")),
    "StopIteration": raises(StopIteration("none")),
    "StopAsyncIteration": raises(StopAsyncIteration),
    "GeneratorExit": raises(GeneratorExit),
    "CancelledError": raises(asyncio.CancelledError),
    "CancelledError of a pool": raises(concurrent.futures.CancelledError),
    "TimeoutError": raises(TimeoutError),
    "RecursionError": deep,
    "MemoryError": raises(MemoryError),
    "group": raises(ExceptionGroup("two", [ValueError(), NoText()])),
    "no text": raises(NoText),
    "no class": raises(NoClass),
    "frozen": raises(Frozen()),
    "coroutine": returns(coroutine),
    "generator": returns(lambda: (each for each in "a")),
    "async generator": returns(async_generator),
    "awaitable": returns(Pending),
    "map": returns(lambda: map(str, "a")),
    "filter": returns(lambda: filter(None, "a")),
    "future of a pool": returns(concurrent.futures.Future),
}
ODD = {
    "hostile": returns(Hostile),
    "text": returns(lambda: "1"),
    "False": returns(lambda: False),
    "float": returns(lambda: 1.0),
    "negative": returns(lambda: -1),
    "dict": returns(lambda: {"a": 1}),
}


def handled(behave: Misbehaviour, make_calls: Callable[[Misbehaviour], Calls]) -> BaseException | None:
    """The misbehaving call is of offset 0; offset 1 must be handled, unless the worker ends."""

    async def run() -> BaseException | None:
        calls = make_calls(lambda message: behave(message) if message.offset == 0 else None)
        world = World(calls, concurrency=1, dead_letter=True)
        world.records.hand_out(0, 1)
        with suppress(TimeoutError):
            await eventually(lambda: 1 in world.records.acknowledged or world.running.done(), within_s=5)
        calls.close()
        ended = await world.stop()
        assert world.records.acknowledged == ([] if ended else [0, 1])
        if ended is not None or not world.stored:
            return ended
        ((topic, _, record),) = world.stored
        letter = FailedRecord.from_dead_letter(record.value or b"", record.headers, 0)
        assert (topic, letter.origin.offset) == ("t.g.dlq", 0)
        return RuntimeError(letter.reason)

    return run_virtual(run())


def by_threads(behave: Misbehaviour) -> BaseException | None:
    return handled(behave, lambda function: ThreadCalls(function, 1))


def by_coroutines(behave: Misbehaviour) -> BaseException | None:
    def make(function: Misbehaviour) -> Calls:
        async def handle(message: Message) -> object:
            return function(message)

        return CoroutineCalls(handle, asyncio.get_running_loop())

    return handled(behave, make)


def caught(act: Callable[[], object]) -> BaseException | None:
    try:
        act()
    except BaseException as error:
        return error
    return None


async def caught_in(awaitable: Awaitable[object]) -> BaseException | None:
    try:
        async with asyncio.timeout(20):
            await awaitable
    except BaseException as error:
        return error
    return None


def read_blocking(behave: Misbehaviour) -> BaseException | None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        client.send("orders", "v", key="k")
        key = caught(lambda: client.partition("orders", 0, key=behave).read(0))
        value = caught(lambda: client.partition("orders", 0, value=behave).read(0))
        assert len(client.partition("orders", 0).read(0)) == 1
        assert type(key) is type(value)
        return value


def consume_blocking(behave: Misbehaviour) -> BaseException | None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        for value in "0", "1":
            client.send("orders", value)
        with client.consumer(
            None, assign=[("orders", 0)], value=lambda data: behave(data) if data == b"0" else data
        ) as consumer:
            error = caught(lambda: consumer.poll("5s"))
            if error is not None:
                consumer.seek("orders", 0, 1)
            message = consumer.poll("5s")
            assert message is not None
            assert message.offset == 1
        return error


def read_async(behave: Misbehaviour) -> BaseException | None:
    async def run() -> BaseException | None:
        async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
            await client.send("orders", "v")
            error = await caught_in(client.partition("orders", 0, value=behave).read(0))
            assert len(await client.partition("orders", 0).read(0)) == 1
            return error

    return run_virtual(run())


def acknowledged_blocking(behave: Misbehaviour) -> BaseException | None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        with client.producer("orders", linger=0) as producer:
            assert producer.send("0", on_ack=behave).result(f"{LIMIT_S:g}s").offset == 0
            assert producer.send("1").result(f"{LIMIT_S:g}s").offset == 1
        return None


def acknowledged_async(behave: Misbehaviour) -> BaseException | None:
    async def run() -> None:
        async with (
            fake_cluster() as cluster,
            VirtualClient(cluster.urls) as client,
            client.producer("orders", linger=0) as producer,
        ):
            assert (await (await producer.send("0", on_ack=behave))).offset == 0
            assert (await (await producer.send("1"))).offset == 1

    run_virtual(run())
    return None


def placed_blocking(behave: Misbehaviour) -> BaseException | None:
    def choose(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        return behave(value) if value == b"bad" else 0  # type: ignore[return-value]

    with (
        beside(fake_cluster()) as cluster,
        Client(cluster.urls) as client,
        client.producer("orders", partitioner=choose) as producer,
    ):
        error = caught(lambda: producer.send("bad"))
        assert producer.send("good").result(f"{LIMIT_S:g}s").offset == 0
        return error


def placed_async(behave: Misbehaviour) -> BaseException | None:
    def choose(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        return behave(value) if value == b"bad" else 0  # type: ignore[return-value]

    async def run() -> BaseException | None:
        async with (
            fake_cluster() as cluster,
            VirtualClient(cluster.urls) as client,
            client.producer("orders", partitioner=choose) as producer,
        ):
            error = await caught_in(producer.send("bad"))
            assert (await (await producer.send("good"))).offset == 0
            return error

    return run_virtual(run())


class OwnAssignor:
    """An assignor that misbehaves."""

    name = "own"

    def __init__(self, behave: Misbehaviour) -> None:
        self.assign = behave


def assigned(behave: Misbehaviour) -> BaseException | None:
    """Consumers of both clients run on a loop of their own; only the thread that asks differs."""

    async def run() -> BaseException | None:
        async with whole_broker(1) as whole, VirtualClient(whole.url) as client:
            await client.send(TOPIC, "v")
            async with client.consumer("g", TOPIC, strategies=[OwnAssignor(behave)]) as consumer:  # type: ignore[list-item]
                error = await caught_in(consumer.poll("10s"))
            async with client.consumer("other", TOPIC) as consumer:
                assert await consumer.poll("10s") is not None
            return error

    return run_virtual(run())


class MisbehavingSpans(SpanProcessor):
    """An SDK whose hooks misbehave."""

    def __init__(self, behave: Misbehaviour) -> None:
        self._behave = behave

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.on_end(span)

    def on_end(self, span: ReadableSpan) -> None:
        result = self._behave(span)
        if asyncio.iscoroutine(result):
            result.close()


def traced(behave: Misbehaviour, work: Callable[[], None]) -> None:
    """Work with such an SDK, on a thread where no Ctrl-C arrives."""
    provider = TracerProvider()
    provider.add_span_processor(MisbehavingSpans(behave))
    with pytest.MonkeyPatch.context() as patch, concurrent.futures.ThreadPoolExecutor(1) as pool:
        patch.setattr(tracing, "TRACER", provider.get_tracer("test"))
        pool.submit(work).result()


def traced_blocking(behave: Misbehaviour) -> BaseException | None:
    def work() -> None:
        with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
            with client.producer("orders", linger=0) as producer:
                assert [producer.send("v").result(f"{LIMIT_S:g}s").offset for _ in range(2)] == [0, 1]
            with client.consumer(None, assign=[("orders", 0)]) as consumer:
                found = [consumer.poll("5s") for _ in range(2)]
            assert [each and each.offset for each in found] == [0, 1]

    traced(behave, work)
    return None


def traced_worker(behave: Misbehaviour) -> BaseException | None:
    async def succeed(message: Message) -> None: ...

    async def run() -> None:
        world = World(succeed, dead_letter=True)
        world.records.hand_out(0, 1)
        await eventually(lambda: 1 in world.records.acknowledged, within_s=5)
        assert await world.stop() is None
        assert world.stored == []

    traced(behave, lambda: run_virtual(run()))
    return None


TRACED = (traced_blocking, traced_worker)
IGNORES = (acknowledged_blocking, acknowledged_async, *TRACED)  # results and errors of these are only logged
ON_THE_CALLERS_THREAD = (placed_blocking, placed_async, by_threads, by_coroutines)
TAKES_ANY = (by_threads, by_coroutines, read_blocking, read_async, consume_blocking)
CALLBACKS: tuple[Callback, ...] = (*TAKES_ANY, placed_blocking, placed_async, assigned, *IGNORES)


def each(kinds: dict[str, Misbehaviour]) -> pytest.MarkDecorator:
    """A test of every callback with every one of these kinds."""
    both = [
        pytest.param(callback, kind, id=f"{callback.__name__}-{kind}")
        for callback in CALLBACKS
        for kind in kinds
    ]
    return pytest.mark.parametrize(("callback", "kind"), both)


# requirement: D2 P6
@each(FAILS)
def test_a_failure_is_an_ordinary_error_of_its_call(callback: Callback, kind: str) -> None:
    error = callback(FAILS[kind])
    if callback in IGNORES:
        assert error is None
        return
    assert isinstance(error, Exception)
    assert not isinstance(error, StopIteration | StopAsyncIteration | TimeoutError) or kind == "TimeoutError"
    if callback in (read_blocking, read_async, consume_blocking):
        assert isinstance(error, InvalidRecord)
        assert error.details["offset"] == 0


# requirement: D2 P6
@each(ENDS)
def test_what_ends_a_process_reaches_the_caller_and_ends_no_loop(callback: Callback, kind: str) -> None:
    error = callback(ENDS[kind])
    if callback in IGNORES:
        assert error is None
    elif callback in ON_THE_CALLERS_THREAD:
        assert type(error) is type(caught(ENDS[kind]))
    else:
        assert isinstance(error, Exception)


# requirement: D2 P6
@each(ODD)
def test_a_result_of_any_type_is_ignored_kept_or_refused(callback: Callback, kind: str) -> None:
    error = callback(ODD[kind])
    if callback in TAKES_ANY + IGNORES:
        assert error is None
    else:
        assert isinstance(error, Exception)


def test_a_text_that_utf8_does_not_have_is_a_reason_of_a_dead_letter() -> None:
    error = by_threads(raises(ValueError("\ud83d" * 3_000)))
    assert str(error).startswith("ValueError: \\ud83d")


def test_a_function_that_yields_is_no_handler() -> None:
    def generates(message: Message) -> Iterator[None]:
        yield

    async def generates_async(message: Message) -> AsyncIterator[None]:
        yield

    for function in generates, generates_async:
        for wants_coroutine in False, True:
            with pytest.raises(TypeError, match="has a yield"):
                check_function(function, wants_coroutine=wants_coroutine)


def test_a_cancelled_handler_ends_its_worker_and_acknowledges_nothing() -> None:
    async def handle(message: Message) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # as the end of the application's loop does
        await asyncio.sleep(1)

    error = handled(raises(ValueError), lambda _: CoroutineCalls(handle, asyncio.get_running_loop()))
    assert isinstance(error, asyncio.CancelledError)
