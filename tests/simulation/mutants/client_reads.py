"""Bugs in the Python client: where its requests go, and what its readers make of the answers."""

from __future__ import annotations

from tests.simulation.mutants.plant import Mutant

ROUTING = (
    Mutant(
        "keys are hashed over one partition less",
        "raftlog.client.partitioners:Router._hashed",
        "partition_for_key(key, len(lanes))",
        "partition_for_key(key, max(1, len(lanes) - 1))",
        script="tests/unit/client/test_partitioners.py",
    ),
    Mutant(
        "a named partition is taken for a key's",
        "raftlog.client.partitioners:Router.route",
        "if partition is not None:",
        "if partition is not None and key is None:",
    ),
    Mutant(
        "a refusal teaches nothing about the leader",
        "raftlog.client.metadata:Metadata.correct",
        "elif isinstance(error, _DOUBTFUL):",
        "elif False:",
        script="tests/unit/client/test_delivery.py",
    ),
    Mutant(
        "who leads is never asked again while an election is under way",
        "raftlog.client.metadata:Metadata.correct",
        "isinstance(error, _DOUBTFUL)",
        "isinstance(error, _DOUBTFUL) and not isinstance(error, NoLeader)",
        script="tests/unit/client/test_timing.py",
    ),
    Mutant(
        "a failed look at the metadata is kept",
        "raftlog.client.metadata:Metadata._refreshed",
        "del self._refreshes[name]",
        "if not task.cancelled() and task.exception() is None: del self._refreshes[name]",
        script="tests/unit/client/test_timing.py",
    ),
    Mutant(
        "a silent leader is waited for",
        "raftlog.client.leader_watch:_Watch._look",
        "self._scope.reschedule(self._loop.time())",
        "pass",
        script="tests/unit/client/test_delivery.py",
    ),
    Mutant(
        "a leader that leads again is waited for",
        "raftlog.client.leader_watch:_Watch._look",
        " or term > self._term",
        "",
        script="tests/unit/client/test_delivery.py",
    ),
    Mutant(
        "the watch over a leader is not ended",
        "raftlog.client.leader_watch:_Watch.stop",
        "self._timer.cancel()",
        "pass",
    ),
    Mutant(
        "the same dead broker is asked for ever",
        "raftlog.client.session:Session.turn_away",
        "self._urls.rotate(-1)",
        "pass",
        script="tests/unit/client/test_session.py",
    ),
    Mutant(
        "a broken connection counts as a request that never left",
        "raftlog.client.session:Session.ask",
        'raise ConnectionLost(f"{method}',
        'raise NotSent(f"{method}',
        script="tests/unit/client/test_session.py",
    ),
    Mutant(
        "the deadline of a batch ends the look for leaders of all",
        "raftlog.client.metadata:Metadata.refresh",
        "return await asyncio.shield(self._refresh_task(name))",
        "return await self._refresh_task(name)",
        script="tests/unit/client/test_timing.py",
    ),
    Mutant(
        "a silent leader is doubted once",
        "raftlog.client.leader_watch:_Watch._look",
        "view = None  # nobody knows; what is silent may still answer",
        "return",
        script="tests/unit/client/test_timing.py",
    ),
    Mutant(
        "brokers that name each other as the leader are asked without a pause",
        "raftlog.client.retries:pause_s",
        'error.details.get("leader_http") and attempts <= 2',
        'error.details.get("leader_http")',
        script="tests/unit/client/test_timing.py",
    ),
    Mutant(
        "keys that were sent before stay where they were when partitions are added",
        "raftlog.client.partitioners:Router.set_lanes",
        "self._by_key = {}",
        "self._by_key = self._by_key if lanes else {}",
        script="tests/unit/client/test_partitioners.py",
    ),
    Mutant(
        "a connection that breaks behind a request counts as never made",
        "raftlog.client.session:Session.ask",
        "except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:",
        "except (aiohttp.ClientConnectionError, aiohttp.ConnectionTimeoutError) as error:",
        script="tests/unit/client/test_session.py",
    ),
)

READING = (
    Mutant(
        "a tail goes on behind its last message, not at the next offset",
        "raftlog.client.partition:AsyncPartition.chunks",
        "at = chunk.next_offset",
        "at = chunk.messages[-1].offset if chunk.messages else chunk.next_offset",
        script="tests/unit/client/test_reading.py",
    ),
    Mutant(
        "an empty answer moves a tail on",
        "raftlog.client.partition:AsyncPartition.chunks",
        "at = chunk.next_offset",
        "at = chunk.next_offset if chunk.messages else chunk.high_watermark + 1",
    ),
    Mutant(
        "a limited read goes on behind what it has left out",
        "raftlog.client.messages:read_messages",
        "return Found(messages, records[-1].offset + 1,",
        "return Found(messages, next_offset,",
        script="tests/unit/client/test_reading.py",
    ),
    Mutant(
        "what stands before a position in its batch is shown",
        "raftlog.client.messages:_readable",
        "if batch.base_offset < first_offset:",
        "if False:",
        script="tests/unit/client/test_reading.py",
    ),
    Mutant(
        "a read shows what brokers wrote for themselves",
        "raftlog.client.messages:read_messages",
        "if header.is_control:",
        "if False:",
    ),
    Mutant(
        "an answer without a place to go on begins again",
        "raftlog.client.partition:AsyncPartition._fetch",
        "reply.number(headers.NEXT_OFFSET, offset)",
        "reply.number(headers.NEXT_OFFSET, offset) if reply.body else 0",
    ),
    Mutant(
        "a chunk is up to date one record early",
        "raftlog.client.messages:Chunk.is_up_to_date",
        "self.next_offset >= self.high_watermark",
        "self.next_offset >= self.high_watermark - 1",
    ),
    Mutant(
        "a refusal teaches a reader nothing about the leader",
        "raftlog.client.partition:AsyncPartition._ask_leader",
        "metadata.correct(self.topic, self.number, error)",
        "pass",
        script="tests/unit/client/test_timing.py",
    ),
    Mutant(
        "a read of records of brokers only stops there",
        "raftlog.client.partition:AsyncPartition.read",
        "at = read.chunk.next_offset",
        "at = read.chunk.next_offset + 1",
    ),
    Mutant(
        "a long wait takes the time for retries",
        "raftlog.client.partition:AsyncPartition._ask_leader",
        "clock.monotonic() + session.retry_timeout_s + wait_s",
        "clock.monotonic() + max(session.retry_timeout_s, wait_s)",
        script="tests/unit/client/test_timing.py",
    ),
)
