"""Spans of OpenTelemetry: which there are, how they hang together, and that nobody needs the package."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from raftlog import tracing
from raftlog.client.messages import Message
from raftlog.client.worker.calls import ThreadCalls
from raftlog.records.failures import FailedRecord
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, Trouble, whole_broker
from tests.helpers.worker_world import World

PARENT, PARENT_ID = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 0xB7AD6B7169203331
RECORDS = "/v1/topics/{topic}/partitions/{partition}/records"


class Spans:
    """The spans that have ended."""

    def __init__(self, exporter: InMemorySpanExporter, tracer: Tracer) -> None:
        self._exporter = exporter
        self.tracer = tracer

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of a name, in the order in which they have ended."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    monkeypatch.setattr(tracing, "TRACER", tracer)
    yield Spans(exporter, tracer)
    provider.shutdown()


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    return span.get_span_context().span_id


def test_without_an_sdk_no_header_of_a_record_is_looked_at() -> None:
    class Unread:
        @property
        def headers(self) -> tuple[tuple[str, bytes | None], ...]:
            raise AssertionError("a header is looked at")

    assert not tracing.is_active()
    tracing.fetched(TOPIC, 0, [Unread()], 0)
    with tracing.sending(TOPIC, 0, [Unread()]), tracing.processing(TOPIC, 0, 0, Unread(), "mail"):
        pass
    headers: dict[str, str] = {}
    tracing.inject(headers)
    assert not headers


async def test_a_record_is_followed_from_its_producer_to_its_commit(spans: Spans) -> None:
    async with whole_broker() as found, VirtualClient(found.url) as client:
        with spans.tracer.start_as_current_span("checkout"):
            async with client.producer(TOPIC) as producer:
                await producer.send("a", partition=0, headers={"x": "y"})
        async with client.consumer("mail", TOPIC) as consumer:
            message = await consumer.poll("60s")
            assert message is not None
            await consumer.commit()
    [checkout], [create] = map(spans.named, ("checkout", f"create {TOPIC}"))
    [*_, send], [fetch] = map(spans.named, (f"send {TOPIC}", f"fetch {TOPIC}"))
    assert [name for name, _ in message.headers] == ["x", "traceparent"]
    assert (create.kind, parent_of(create)) == (SpanKind.PRODUCER, id_of(checkout))
    assert (send.kind, linked(send)) == (SpanKind.CLIENT, [id_of(create)])
    assert (fetch.kind, linked(fetch)) == (SpanKind.CLIENT, [id_of(create)])
    [produce] = spans.named(f"POST {RECORDS}")
    assert (produce.kind, parent_of(produce)) == (SpanKind.SERVER, id_of(send))
    assert produce.attributes is not None
    assert produce.attributes["http.response.status_code"] == 200
    commits = [id_of(span) for span in spans.named("commit mail")]
    assert commits
    assert commits == [parent_of(span) for span in spans.named("PUT /v1/groups/{group}/offsets")]


async def test_a_run_of_a_handler_is_linked_to_the_producer_and_current_in_a_thread(spans: Spans) -> None:
    def handle(message: Message) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        if message.offset:
            raise ValueError("no")

    seen: list[int] = []
    calls = ThreadCalls(handle, 1)
    world = World(calls, dead_letter=True)
    world.records.hand_out(0, 1, headers=(("traceparent", PARENT.encode()),))
    await eventually(lambda: world.records.acknowledged == [0, 1] or world.records.acknowledged == [1])
    await world.stop()
    calls.close()
    done, failed = spans.named("process t")
    assert seen == [id_of(done), id_of(failed)]
    assert (done.kind, linked(done)) == (SpanKind.CONSUMER, [PARENT_ID])
    assert (done.status.status_code, failed.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert world.stored[0][2].headers[0] == ("traceparent", PARENT.encode()), "its next run is linked, too"


async def test_a_context_that_a_record_has_is_kept_and_failures_are_errors(spans: Spans) -> None:
    async with whole_broker() as found, VirtualClient(found.url) as client:
        found.trouble(f"POST {RECORDS.format(topic=TOPIC, partition=0)}", Trouble.LOST)
        async with client.producer(TOPIC) as producer:
            await producer.send("a", partition=0, headers={"traceparent": PARENT})
        chunk = await client.partition(TOPIC, 0).read(0)
    assert chunk.messages[0].headers == (("traceparent", PARENT.encode()),)
    assert spans.named(f"create {TOPIC}") == []
    lost, *_, stored = spans.named(f"send {TOPIC}")
    assert linked(lost) == linked(stored) == [PARENT_ID]
    assert (lost.status.status_code, stored.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)


class Failing(SpanProcessor):
    """A span processor that raises when spans of an operation start or end."""

    def __init__(self, when: str, operation: str, error: BaseException) -> None:
        self._when, self._operation, self._error = when, operation, error

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self._act("start", span.name)

    def on_end(self, span: ReadableSpan) -> None:
        self._act("end", span.name)

    def _act(self, when: str, name: str) -> None:
        if when == self._when and name.startswith(self._operation):
            raise self._error


class NoText(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, BaseException], None]:
    """Install an SDK with a processor that raises."""

    def install(when: str, operation: str, error: BaseException) -> None:
        provider = TracerProvider()
        provider.add_span_processor(Failing(when, operation, error))
        monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("test"))
        monkeypatch.setattr(tracing, "_logged", set())

    return install


ERRORS = (ValueError("hook"), NoText(), asyncio.CancelledError())


# requirement: D2
@pytest.mark.parametrize(
    ("operation", "when", "error"),
    [
        (operation, when, ERRORS[(place + turn) % 3])  # each operation and each error at both ends
        for place, operation in enumerate(("create", "send", "fetch", "commit", "POST", "PUT"))
        for turn, when in enumerate(("start", "end"))
    ],
)
async def test_what_an_sdk_raises_changes_no_outcome_and_is_logged_once(
    fails: Callable[..., None],
    operation: str,
    when: str,
    error: BaseException,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fails(when, operation, error)
    async with whole_broker(1) as found, VirtualClient(found.url) as client:
        async with client.producer(TOPIC, delivery_timeout="20s") as producer:
            for offset in range(2):
                pending = await producer.send("a", partition=0)
                async with asyncio.timeout(20):
                    assert (await pending).offset == offset
        async with client.consumer("mail", TOPIC) as consumer:
            for offset in range(2):
                message = await consumer.poll("60s")
                assert message is not None
                assert message.offset == offset
                await consumer.commit()
        [committed] = await client.groups.offsets("mail")
        assert committed.committed_offset == 2
    failures = [each for each in caplog.messages if "OpenTelemetry did not" in each]
    assert len(failures) == 1
    assert type(error).__name__ in failures[0]


# requirement: D2
@pytest.mark.parametrize("when", ["start", "end"])
async def test_what_an_sdk_raises_is_no_failure_of_a_handler(fails: Callable[..., None], when: str) -> None:
    async def handle(message: Message) -> None:
        handled.append(message.offset)

    handled: list[int] = []
    fails(when, "process", ValueError("hook"))
    world = World(handle, dead_letter=True)
    world.records.hand_out(0, 1)
    await eventually(lambda: 1 in world.records.acknowledged)
    assert await world.stop() is None
    assert (handled, world.stored) == ([0, 1], [])


# requirement: D2
@pytest.mark.parametrize("kind", [KeyError, GeneratorExit, SystemExit, asyncio.CancelledError])
async def test_a_failure_without_a_text_has_its_span_and_its_dead_letter(
    spans: Spans, kind: type[BaseException]
) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise kind

    async def fail(message: Message) -> None:
        raise Silent

    world = World(fail, dead_letter=True)
    world.records.hand_out(0)
    await eventually(lambda: world.records.acknowledged == [0])
    await world.stop()
    [span] = spans.named("process t")
    told = f"Silent: <str() of this Silent raises {kind.__name__}>"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, told)
    assert [
        FailedRecord.from_dead_letter(each.value or b"", each.headers, 0).reason
        for _, _, each in world.stored
    ] == [told]


async def test_a_call_that_ends_by_what_ends_a_task_ends_its_worker() -> None:
    async def end(message: Message) -> None:
        raise GeneratorExit

    world = World(end, dead_letter=True)
    world.records.hand_out(0)
    async with asyncio.timeout(20):
        assert isinstance(await world.running, GeneratorExit)


async def test_without_an_sdk_records_stay_as_they_are() -> None:
    assert tracing.TRACER is not None
    async with whole_broker() as found, VirtualClient(found.url) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send("a", partition=0)
        assert (await client.partition(TOPIC, 0).read(0)).messages[0].headers == ()


def test_nobody_needs_the_package() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None; import raftlog.aio, api.app; "
        "from raftlog import tracing; assert tracing.TRACER is None; tracing.inject({}); "
        "tracing.fetched('t', 0, [], 0)\nwith tracing.sending('t', 0, []), tracing.committing('g'): pass"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
