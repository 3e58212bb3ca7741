"""Bugs in the HTTP server: reads, event streams, shared batches, hang-ups and the plain way."""

from __future__ import annotations

from tests.simulation.mutants.plant import Mutant

FETCHING = (
    Mutant(
        "an empty answer goes on at the high watermark's successor",
        "api.fetch:_fetch_json",
        "return web.Response(status=204, headers=_places(result, page.next_offset))",
        "return web.Response(status=204, headers=_places(result, page.next_offset + 1))",
    ),
    Mutant(
        "an empty answer begins again at the log start",
        "api.fetch:_fetch_json",
        "return web.Response(status=204, headers=_places(result, page.next_offset))",
        "return web.Response(status=204, headers=_places(result, result.log_start_offset))",
    ),
    Mutant(
        "an empty answer of batches skips one",
        "api.fetch:_fetch_batches",
        "places = _places(result, result.next_offset)",
        "places = _places(result, result.next_offset + (not result.data))",
    ),
    Mutant(
        "a page with a limit goes on behind all that was read",
        "api.json_answers:page_of",
        "return Page(records, records[-1].offset + 1)",
        "return Page(records, result.next_offset)",
    ),
    Mutant(
        "a page with a limit repeats its last record",
        "api.json_answers:page_of",
        "return Page(records, records[-1].offset + 1)",
        "return Page(records, records[-1].offset)",
    ),
    Mutant(
        "a page shows what stands before its position in a batch",
        "api.json_answers:page_of",
        "if stored.offset < result.offset:",
        "if False:",
    ),
    Mutant(
        "a batch that ends at the position is left out",
        "api.json_answers:page_of",
        "batch.last_offset < result.offset",
        "batch.last_offset <= result.offset",
    ),
    Mutant(
        "control records are shown",
        "api.json_answers:page_of",
        "batch.header.is_control or batch.last_offset",
        "batch.last_offset",
    ),
    Mutant(
        "the last N are the first N of what was read",
        "api.fetch:_last_records",
        "page.records[-count:]",
        "page.records[:count]",
    ),
    Mutant(
        "the last N are one less where control records are among them",
        "api.fetch:_last_records",
        "while len(page.records) < count and",
        "while False and",
    ),
    Mutant(
        "the last N look back to the log start once and stop short of it",
        "api.fetch:_last_records",
        "result.offset > result.log_start_offset",
        "result.offset > result.log_start_offset + back",
    ),
    Mutant(
        "the last N with a limit go on at the end",
        "api.fetch:_fetch_json",
        "page.records[limit].offset)",
        "page.next_offset)",
    ),
    Mutant(
        "an answer is up to date although more is there",
        "api.fetch:_fetch_json",
        "page.next_offset >= result.high_watermark,",
        "result.next_offset >= result.high_watermark,",
    ),
    Mutant(
        "up to date is one record early",
        "api.fetch:_fetch_json",
        "page.next_offset >= result.high_watermark,",
        "page.next_offset >= result.high_watermark - 1,",
    ),
    Mutant(
        "a poll that finds control records only is answered",
        "api.fetch:_first_page",
        "if page.records or not result.data:",
        "if True:",
    ),
    Mutant(
        "a poll that finds control records begins again in front of them",
        "api.fetch:_first_page",
        "position=Offset(page.next_offset), wait_ms=left_ms",
        "wait_ms=left_ms",
    ),
    Mutant(
        "a long poll does not wait",
        "api.fetch:_request_of",
        'wait_ms=parameters.duration_ms(query, "wait", high_ms=limits.wait_ms_max, default_ms=0),',
        "wait_ms=0,",
    ),
    Mutant(
        "min_bytes is not waited for longer than for one",
        "api.fetch:_request_of",
        "bytes_min=min(max(bytes_min, 1), wanted)",
        "bytes_min=wanted",
        equivalent="a wait for more than was asked for ends at its time",
    ),
    Mutant(
        "an event stream comes back at the last event, not behind it",
        "api.fetch:_request_of",
        "high=parameters.OFFSET_MAX - 1) + 1",
        "high=parameters.OFFSET_MAX - 1)",
    ),
    Mutant(
        "an event stream comes back one behind",
        "api.fetch:_request_of",
        "high=parameters.OFFSET_MAX - 1) + 1",
        "high=parameters.OFFSET_MAX - 1) + 2",
    ),
    Mutant(
        "an event stream forgets where a reader was",
        "api.fetch:_request_of",
        "if headers_too else",
        "if False else",
    ),
    Mutant(
        "an event stream goes on at the high watermark",
        "api.events:_follow",
        "position=Offset(page.next_offset)",
        "position=Offset(result.high_watermark)",
    ),
    Mutant(
        "an event stream goes on behind its page",
        "api.events:_follow",
        "position=Offset(page.next_offset)",
        "position=Offset(page.next_offset + (not page.records))",
    ),
    Mutant(
        "an event stream has no heartbeats",
        "api.events:_follow",
        "await _write(call, response, heartbeat(page.next_offset, result.high_watermark))",
        "pass",
    ),
    Mutant(
        "a heartbeat tells the high watermark as the place to go on",
        "api.events:heartbeat",
        "% (next_offset, high_watermark)",
        "% (high_watermark + 1, high_watermark)",
    ),
    Mutant(
        "an event's id is the next offset",
        "api.events:_record_events",
        "% (record.offset, encode(record))",
        "% (record.offset + 1, encode(record))",
    ),
    Mutant(
        "a message of a control record is its neighbour",
        "api.fetch:message",
        "if not shown or shown[0].offset != offset:",
        "if not shown:",
        equivalent="a read of one batch never holds a neighbour; only compaction would leave holes",
    ),
    Mutant(
        "a message beyond the end is not found rather than not there yet",
        "api.fetch:message",
        "end=result.high_watermark,",
        "end=result.high_watermark + 1,",
    ),
    Mutant(
        "a timestamp is looked for among offsets",
        "api.parameters:position",
        'AtTime(time_ms(text.removeprefix("timestamp:"), name))',
        'AtTime(time_ms(text.removeprefix("timestamp:"), name) - 1000)',
    ),
)

PRODUCING = (
    Mutant(
        "requests that share a batch are told the same offset",
        "api.gathering:_share",
        "offset += count",
        "pass",
    ),
    Mutant(
        "requests that share a batch are told of it in the wrong order",
        "api.gathering:_share",
        "for part in parts:",
        "for part in reversed(parts):",
    ),
    Mutant(
        "a request whose client has gone is not counted in a shared batch",
        "api.gathering:_share",
        "offset += count",
        "offset += count if not part.receipt.cancelled() else 0",
        equivalent="handlers are not cancelled when their client hangs up",
    ),
    Mutant(
        "a shared batch takes a part twice",
        "api.gathering:_Lane._next_batch",
        "parts.append(waiting.popleft())",
        "parts.append(waiting[0] if len(parts) == 1 else waiting.popleft())",
    ),
    Mutant(
        "a failed shared batch is told to its first request only",
        "api.gathering:_fail",
        "for part in parts:",
        "for part in parts[:1]:",
        script="tests/unit/api/test_gathering.py",
    ),
    Mutant(
        "an idle lane is kept",
        "api.gathering:_Lane._sent",
        "self._on_idle()",
        "pass",
    ),
    Mutant(
        "an answered batch does not let the next one leave",
        "api.gathering:_Lane._sent",
        "self._flush()",
        "pass",
    ),
    Mutant(
        "records without a partition are told another one",
        "api.produce:_append_with_others",
        "number = part.target.partition",
        "number = 0",
    ),
    Mutant(
        "receipts of a spread request stand in the order of partitions",
        "api.produce:_answer",
        "receipts[number] = bodies.RecordReceipt(partition, offset, timestamp)",
        "receipts[receipts.index(None)] = bodies.RecordReceipt(partition, offset, timestamp)",
    ),
    Mutant(
        "a receipt has the broker's time where the record brings its own",
        "api.produce:_answer",
        "timestamp = now_ms if created is None else created",
        "timestamp = now_ms",
    ),
    Mutant(
        "a receipt has the record's own time where the leader stamps",
        "api.produce:_answer",
        "timestamp = outcome.timestamp_ms",
        "timestamp = placed[number].record.timestamp_ms or outcome.timestamp_ms",
    ),
    Mutant(
        "a key of JSON is hashed over one partition less",
        "api.json_records:_place",
        "partition = partition_for_key(stored.key, partition_count)",
        "partition = partition_for_key(stored.key, max(1, partition_count - 1))",
    ),
    Mutant(
        "a raw body's key is hashed although the path names a partition",
        "api.json_records:placed_raw",
        "if only is None and record.key is not None:",
        "if record.key is not None:",
    ),
    Mutant(
        "tags of a record are dropped",
        "api.json_records:_headers",
        "pairs.extend(_tag(tag) for tag in record.tags)",
        "pass",
    ),
    Mutant(
        "acks=1 is told as committed",
        "api.produce:_durability",
        "durability.committed, durability.fsynced",
        "True, durability.fsynced",
        equivalent="what acks=1 promises is not looked at beyond I19",
    ),
    Mutant(
        "acks of a JSON request are not heeded",
        "api.produce:_acks_and_timeout",
        "return parameters.acks(call.query), timeout_ms",
        "return QUORUM, timeout_ms",
    ),
    Mutant(
        "an unknown outcome is told as a refusal",
        "api.errors:status_and_title",
        "for cls in type(error).__mro__:",
        "for cls in (errors.NoLeader,) if isinstance(error, errors.CommitUnknown) else type(error).__mro__:",
    ),
)

CONNECTIONS = (
    Mutant(
        "a parked request stays when its client goes",
        "api.hang_ups:HangUps._look",
        "task.cancel()",
        "pass",
    ),
    Mutant(
        "clients of parked requests are looked at once",
        "api.hang_ups:HangUps._look",
        "loop.call_later(LOOK_EVERY_S, self._look) if self._parked else None",
        "None",
    ),
    Mutant(
        "a parked request is counted for ever",
        "api.admission:Hold.__exit__",
        "self._budget.give_back(self._client, self._amount)",
        "pass",
    ),
    Mutant(
        "a client's part of a budget is never given back",
        "api.admission:Budget.give_back",
        "left = self._of_client[client] - amount",
        "left = self._of_client[client]",
    ),
    Mutant(
        "a plain request that comes behind another is lost",
        "api.plain_http:PlainConnection._read",
        "self._ahead = data[end + head.length :]",
        "self._ahead = b''",
    ),
    Mutant(
        "what comes while a request is worked on is lost",
        "api.plain_http:PlainConnection.data_received",
        "self._ahead += data",
        "self._ahead = data",
    ),
    Mutant(
        "reading is not taken up again",
        "api.plain_http:PlainConnection._read_ahead",
        "transport.resume_reading()",
        "pass",
    ),
    Mutant(
        "a body in pieces counts more than has come",
        "api.plain_requests:PlainBody.feed",
        "self.missing -= len(mine)",
        "self.missing -= len(mine) + 1",
    ),
    Mutant(
        "a body that breaks off is stored",
        "api.plain_requests:PlainBody.readany",
        "raise self._error",
        "return b''",
    ),
    Mutant(
        "a head is remembered beyond its request",
        "api.plain_http:PlainConnection._read",
        "if head is None or head.text != text:",
        "if head is None or head.text[:40] != text[:40]:",
    ),
    Mutant(
        "a request handed to aiohttp loses what came with its head",
        "api.plain_http:PlainConnection._hand_over",
        ".data_received(data)",
        ".data_received(data[: data.find(b'\\r\\n\\r\\n') + 4])",
    ),
)

HTTP = (*FETCHING, *PRODUCING, *CONNECTIONS)
