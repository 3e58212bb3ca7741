"""Bugs that break an invariant of clients: over HTTP (A, C) or in a history (H)."""

from __future__ import annotations

from tests.planted_bugs.bug import PlantedBug

CLIENTS = (
    PlantedBug(
        "a message beyond the end is not found rather than not there yet",
        "A3",
        "api.resources.fetch:message",
        "end=result.high_watermark,",
        "end=result.high_watermark + 1,",
        seen_by="http:0",
    ),
    PlantedBug(
        "a receipt has the record's time instead of the leader's",
        "A6",
        "api.resources.receipts:stored_ms",
        "if receipt.timestamp_ms is not None:",
        "if receipt.timestamp_ms is not None and created_ms is None:",
        seen_by="http:0",
    ),
    PlantedBug(
        "a body that breaks off is stored",
        "H",
        "api.http.whole_body:WholeBody.more",
        "raise self._error",
        "self.missing = 0\n        return",
        seen_by="http:0",
    ),
    PlantedBug(
        "an unknown outcome is reported as a failure",
        "H",
        "raftlog.node.leader_search:may_have_happened",
        "return isinstance(refusal, CommitUnknown) or (",
        "return False and (",
        seen_by="brokers:2",
    ),
    PlantedBug(
        "a named partition is taken for a key's",
        "http C2",
        "raftlog.client.partitioners:Router.route",
        "if partition is not None:",
        "if partition is not None and key is None:",
        seen_by="http:5",
    ),
    PlantedBug(
        "a read returns control records",
        "http C4",
        "raftlog.client.messages:read_messages",
        "if header.is_control:",
        "if False:",
        seen_by="http:0",
    ),
    PlantedBug(
        "a finished batch counts as unfinished",
        "http C5",
        "raftlog.client.buffer:Buffer.release",
        "self.unfinished.pop(batch, None)",
        "pass",
        seen_by="http:0",
    ),
    PlantedBug(
        "the leader watch is not stopped",
        "http C5",
        "raftlog.client.leader_watch:_Watch.stop",
        "self._timer.cancel()",
        "pass",
        seen_by="http:0",
    ),
    PlantedBug(
        "a chunk is up to date one record early",
        "http C6",
        "raftlog.client.messages:Chunk.is_up_to_date",
        "self.next_offset >= self.last_stable_offset",
        "self.next_offset >= self.last_stable_offset - 1",
        seen_by="http:1",
    ),
    PlantedBug(
        "an unknown outcome is reported as a refusal",
        "A1",
        "api.http.errors:status_and_title",
        "for cls in type(error).__mro__:",
        "for cls in (errors.NoLeader,) if isinstance(error, errors.CommitUnknown) else type(error).__mro__:",
        seen_by=(
            "tests/unit/api/test_gathering.py::test_a_request_that_names_its_timeout_is_answered_within_it"
        ),
    ),
    PlantedBug(
        "readers at another offset of a batch get cached events",
        "A2",
        "api.resources.events:_show",
        "(view, at, batches)",
        "(view, batches)",
        seen_by=(
            "tests/unit/api/test_events.py::test_readers_that_want_something_else_of_the_same_records_get_it"
        ),
    ),
    PlantedBug(
        "a timestamp is looked for among offsets",
        "A4",
        "api.http.parameters:position",
        'AtTime(time_ms(text.removeprefix("timestamp:"), name))',
        'AtTime(time_ms(text.removeprefix("timestamp:"), name) - 1000)',
        seen_by="tests/unit/api/test_parameters.py::test_a_time_is_the_same_in_every_zone",
    ),
    PlantedBug(
        "an event's id is the next offset",
        "A5",
        "api.resources.events:_events",
        "% record.offset",
        "% (record.offset + 1)",
        seen_by="tests/unit/api/test_events.py::test_a_stream_begins_at_the_earliest_record_and_follows",
    ),
    PlantedBug(
        "callbacks of a failed batch are not called",
        "http C1",
        "raftlog.client.receipts:Batch.finish",
        'called("on_ack", on_ack, None if error else self.receipt(index), error)',
        "if error is None:\n                    on_ack(self.receipt(index), None)",
        seen_by="tests/unit/client/test_blocking.py::test_errors_come_out_of_result_and_of_the_block",
    ),
    PlantedBug(
        "flush waits for the newest batch only",
        "http C3",
        "raftlog.client.producer:AsyncProducer.flush",
        "for batch in tuple(self._buffer.unfinished):",
        "for batch in tuple(self._buffer.unfinished)[-1:]:",
        seen_by="tests/unit/client/test_timing.py::test_a_flush_waits_for_the_partition_that_takes_longest",
    ),
)
