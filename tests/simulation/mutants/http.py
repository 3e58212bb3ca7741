"""Bugs in the HTTP server: shared batches, bodies, hang-ups and the plain way; those of reads beside them."""

from __future__ import annotations

from tests.simulation.mutants.http_reads import FETCHING
from tests.simulation.mutants.plant import Edit, Mutant

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
        script="tests/unit/api/test_gathering.py",
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
    Mutant(
        "requests behind batches that hang are held for one batch only",
        "api.gathering:_Lane._flush",
        "    if self._waiting:\n",
        "    if self._waiting and not self._sending:\n",
        script="tests/unit/api/test_gathering.py",
    ),
    Mutant(
        "a request with a shorter timeout shares a batch with the usual one",
        "api.produce:_produce_records",
        "timeout_ms == services.limits.produce_timeout_ms_default",
        "timeout_ms <= services.limits.produce_timeout_ms_default",
        script="tests/unit/api/test_gathering.py",
    ),
    Mutant(
        "what is told of durability holds for the first partition",
        "api.produce:_weakest",
        "min(durability.replicas for durability in durabilities)",
        "durabilities[0].replicas",
        script="tests/unit/api/test_produce.py",
    ),
    Mutant(
        "a compressed body that is cut short is stored",
        "api.bodies:_read_chunks",
        "if inflater is not None and (not inflater.eof or inflater.unused_data):",
        "if inflater is not None and inflater.unused_data:",
        script="tests/unit/api/test_bad_input.py",
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
    Mutant(
        "hang-ups are not looked for again once nothing was parked",
        "api.hang_ups:HangUps._look",
        "self._timer = loop.call_later(LOOK_EVERY_S, self._look) if self._parked else None",
        "if self._parked:\n        self._timer = loop.call_later(LOOK_EVERY_S, self._look)",
    ),
    Mutant(
        "a request that is parked once the broker stops is not ended",
        "api.hang_ups:HangUps.park",
        "    if self._is_closed:\n        task.cancel()\n    elif self._timer is None:\n",
        "    if self._timer is None and not self._is_closed:\n",
        script="tests/unit/api/test_events.py",
    ),
    Mutant(
        "of two lengths of a body the first is believed",
        "api.plain_requests:_length_of",
        "if len(texts) > 1 or not (text.isascii()",
        "if not (text.isascii()",
        script="tests/unit/api/test_plain_http.py",
    ),
    Mutant(
        "what has come of a body that breaks off is stored",
        "api.plain_requests:PlainBody.readany",
        "while not self._chunks and self.missing:",
        "if not self._chunks and self.missing:",
    ),
    Mutant(
        "a client that reads no answers gets the next ones",
        "api.plain_http:PlainConnection._go_on",
        "elif self._ahead and not self._is_full:",
        "elif self._ahead:",
        script="tests/unit/api/test_plain_http.py",
    ),
    Mutant(
        "what is over a client's quota uses up the broker's",
        "api.admission:Budget.take",
        "    self._of_client[client] = of_client\n    self.total += amount\n",
        "    self._of_client[client] = of_client\n",
        more=(
            Edit(
                "api.admission:Budget.take",
                "    of_client = self._of_client.get(client, 0) + amount\n",
                "    self.total += amount\n    of_client = self._of_client.get(client, 0) + amount\n",
            ),
        ),
        script="tests/unit/api/test_produce_once.py",
    ),
)

HTTP = (*FETCHING, *PRODUCING, *CONNECTIONS)
