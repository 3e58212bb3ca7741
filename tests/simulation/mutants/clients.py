"""Bugs in the Python client: its pipeline, its routing, its readers."""

from __future__ import annotations

from tests.simulation.mutants.plant import Mutant

PIPELINE = (
    Mutant(
        "a batch gets another number when it is sent again",
        "raftlog.client.pipeline:Pipeline.next_to_send",
        "if shipment.sequence == UNNUMBERED:",
        "if True:",
    ),
    Mutant(
        "a second batch leaves before the first is known",
        "raftlog.client.pipeline:Pipeline.next_to_send",
        "(self._in_flight_max if self._is_proven else 1)",
        "self._in_flight_max",
    ),
    Mutant(
        "more batches are under way than a broker remembers",
        "raftlog.client.pipeline:Pipeline.next_to_send",
        "if len(self._shipments) >= self._in_flight_max:",
        "if len(self._shipments) >= 50:",
        script="tests/unit/client/test_pipeline.py",
    ),
    Mutant(
        "new batches leave while an earlier one has failed",
        "raftlog.client.pipeline:Pipeline.next_to_send",
        "if self._has_failed or self._in_air",
        "if self._in_air",
    ),
    Mutant(
        "a failed batch goes to the end of the line",
        "raftlog.client.pipeline:Pipeline.failed",
        "shipment.failure = error",
        "shipment.failure = error; self._shipments.remove(shipment); self._shipments.append(shipment)",
    ),
    Mutant(
        "what is in doubt is forgotten by a later refusal",
        "raftlog.client.pipeline:Pipeline.failed",
        "shipment.may_be_written |= not error.is_definite",
        "shipment.may_be_written = not error.is_definite",
    ),
    Mutant(
        "a lost answer counts as not written",
        "raftlog.client.pipeline:Pipeline.failed",
        "shipment.may_be_written |= not error.is_definite",
        "pass",
    ),
    Mutant(
        "a batch that was given up leaves its gap",
        "raftlog.client.pipeline:Pipeline.settle",
        "given_up += self._begin_epoch()",
        "given_up += self._begin_epoch() if self._only_needs_a_number(first) else []",
        script="tests/unit/client/test_pipeline.py",
    ),
    Mutant(
        "a new epoch goes on with the old numbers",
        "raftlog.client.pipeline:Pipeline._begin_epoch",
        "self._next_sequence = 0",
        "pass",
    ),
    Mutant(
        "a new epoch keeps its number",
        "raftlog.client.pipeline:Pipeline._begin_epoch",
        "self.epoch += 1",
        "pass",
    ),
    Mutant(
        "what may be written is sent again in a new epoch",
        "raftlog.client.pipeline:Pipeline._begin_epoch",
        "if shipment.may_be_written:",
        "if False:",
        script="tests/unit/client/test_pipeline.py",
    ),
    Mutant(
        "a new epoch keeps the numbers of what was not written",
        "raftlog.client.pipeline:Pipeline._begin_epoch",
        "shipment.sequence = UNNUMBERED",
        "pass",
        script="tests/unit/client/test_pipeline.py",
    ),
    Mutant(
        "a batch in doubt gets a new number after a refusal",
        "raftlog.client.pipeline:Pipeline._only_needs_a_number",
        "and not first.may_be_written",
        "",
        equivalent="a new epoch gives up what is in doubt in any case",
    ),
    Mutant(
        "batches are sent again behind their deadline",
        "raftlog.client.pipeline:Pipeline._is_hopeless",
        "now >= first.batch.deadline or not self._retries",
        "not self._retries",
    ),
    Mutant(
        "acks=0 is sent again",
        "raftlog.client.pipeline:Pipeline._is_hopeless",
        "or not self._retries",
        "",
    ),
    Mutant(
        "what is in the air when a producer closes counts as not sent",
        "raftlog.client.pipeline:Pipeline.abandon",
        "if shipment.place is _Place.AIR:",
        "if False:",
    ),
    Mutant(
        "the last word on what may be written is a definite one",
        "raftlog.client.pipeline:_last_word",
        "and not (failure.is_definite and shipment.may_be_written)",
        "",
    ),
    Mutant(
        "an acknowledged batch stays in the pipeline",
        "raftlog.client.pipeline:Pipeline.delivered",
        "self._drop_gone()",
        "pass",
    ),
    Mutant(
        "a failure keeps the proof of a producer",
        "raftlog.client.pipeline:Pipeline.settle",
        "self._has_failed = self._is_proven = False",
        "self._has_failed = False",
        script="tests/unit/client/test_pipeline.py",
    ),
    Mutant(
        "the pipeline settles before all have landed",
        "raftlog.client.pipeline:Pipeline.must_settle",
        "return self._has_failed and not self._in_air",
        "return self._has_failed",
    ),
)

SENDING = (
    Mutant(
        "a batch that is sent again keeps its old number in its bytes",
        "raftlog.client.sender:PartitionSender._encode",
        "shipment.encoded = with_producer(shipment.encoded, *identity)",
        "pass",
        script="tests/unit/client/test_delivery.py",
    ),
    Mutant(
        "a producer does not wake up after a pause",
        "raftlog.client.sender:PartitionSender._resume",
        "self.pump()",
        "pass",
    ),
    Mutant(
        "a late answer is taken for the next batch's",
        "raftlog.client.sender:PartitionSender._read",
        "answer.base_offset, answer.timestamp, durability",
        "answer.base_offset + 1, answer.timestamp, durability",
    ),
    Mutant(
        "a closed producer leaves its buffer unanswered",
        "raftlog.client.sender:PartitionSender.close",
        "self._buffer.make_due(self.lane)",
        "return",
    ),
    Mutant(
        "a closed producer leaves its requests running",
        "raftlog.client.sender:PartitionSender.close",
        "task.cancel()",
        "pass",
    ),
    Mutant(
        "a batch whose time is over is dropped without a word",
        "raftlog.client.sender:PartitionSender._take",
        "self._finish(",
        "(lambda *_: None)(",
    ),
    Mutant(
        "a failed producer id is never asked for again",
        "raftlog.client.sender:Identities.get",
        "del self._lives[life:]",
        "pass",
    ),
    Mutant(
        "an attempt tells the pipeline of its success twice",
        "raftlog.client.sender:PartitionSender._attempt",
        "self._finish(shipment.batch, stored)",
        "self._finish(shipment.batch, stored); self._finish(shipment.batch, stored)",
    ),
    Mutant(
        "a batch is open for more while it is on its way",
        "raftlog.client.buffer:Buffer.take",
        "lane.open = None",
        "pass",
    ),
    Mutant(
        "full batches leave last in, first out",
        "raftlog.client.buffer:Buffer.take",
        "lane.closed.popleft()",
        "lane.closed.pop()",
    ),
    Mutant(
        "an open batch overtakes full ones",
        "raftlog.client.buffer:Buffer.take",
        "if lane.closed:",
        "if lane.closed and (lane.open is None or lane.open.due > now):",
    ),
    Mutant(
        "room is not given back",
        "raftlog.client.buffer:Buffer.release",
        "self._used_bytes -= batch.size_bytes",
        "pass",
    ),
    Mutant(
        "a finished batch counts as unfinished",
        "raftlog.client.buffer:Buffer.release",
        "self.unfinished.discard(batch)",
        "pass",
    ),
    Mutant(
        "a batch that becomes full wakes nobody",
        "raftlog.client.buffer:Buffer._close",
        "lane.wake(0.0)",
        "pass",
        equivalent="its own timer takes it once its linger is over",
    ),
    Mutant(
        "the linger of a batch is not waited for by a timer",
        "raftlog.client.buffer:Buffer._open",
        "lane.wake(batch.due)",
        "pass",
    ),
    Mutant(
        "flush does not make batches due",
        "raftlog.client.producer:AsyncProducer.flush",
        "self._buffer.make_due(sender.lane)",
        "pass",
        equivalent="it only takes as long as the linger",
    ),
    Mutant(
        "flush waits for the newest batch only",
        "raftlog.client.producer:AsyncProducer.flush",
        "for batch in tuple(self._buffer.unfinished):",
        "for batch in tuple(self._buffer.unfinished)[-1:]:",
    ),
    Mutant(
        "those who wait for room are not told",
        "raftlog.client.producer:AsyncProducer._finish",
        "self._let_waiting_go()",
        "pass",
    ),
    Mutant(
        "a batch's receipts all name its first record",
        "raftlog.client.receipts:Batch.receipt",
        "outcome.base_offset + index",
        "outcome.base_offset",
    ),
    Mutant(
        "receipts have the client's time where the leader stamps",
        "raftlog.client.receipts:Batch.receipt",
        "timestamp_ms = outcome.timestamp_ms",
        "timestamp_ms = self.timestamp_ms",
    ),
    Mutant(
        "callbacks of a failed batch are not called",
        "raftlog.client.receipts:Batch.finish",
        "on_ack(None, outcome)",
        "pass",
    ),
)

ROUTING = (
    Mutant(
        "keys are hashed over one partition less",
        "raftlog.client.partitioners:Router._hashed",
        "partition_for_key(key, len(lanes))",
        "partition_for_key(key, max(1, len(lanes) - 1))",
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
        "raftlog.client.metadata:Metadata.leader_of",
        "view.is_suspect = True",
        "pass",
    ),
    Mutant(
        "a failed look at the metadata is kept",
        "raftlog.client.metadata:Metadata._refreshed",
        "del self._refreshes[name]",
        "if not task.cancelled() and task.exception() is None: del self._refreshes[name]",
    ),
    Mutant(
        "a silent leader is waited for",
        "raftlog.client.leader_watch:_Watch._look",
        "self._scope.reschedule(self._loop.time())",
        "pass",
    ),
    Mutant(
        "a leader that leads again is waited for",
        "raftlog.client.leader_watch:_Watch._look",
        "or term > self._term != UNKNOWN_TERM",
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
    ),
)

READING = (
    Mutant(
        "a tail goes on behind its last message, not at the next offset",
        "raftlog.client.partition:AsyncPartition.chunks",
        "at = chunk.next_offset",
        "at = chunk.messages[-1].offset if chunk.messages else chunk.next_offset",
    ),
    Mutant(
        "an empty answer moves a tail on",
        "raftlog.client.partition:AsyncPartition.chunks",
        "at = chunk.next_offset",
        "at = chunk.next_offset if chunk.messages else chunk.high_watermark + 1",
    ),
    Mutant(
        "a limited read goes on behind what it has left out",
        "raftlog.client.partition:_first",
        "chunk.messages[limit].offset,",
        "chunk.next_offset,",
    ),
    Mutant(
        "what stands before a position in its batch is shown",
        "raftlog.client.messages:read_messages",
        "if batch.base_offset < first_offset:",
        "if False:",
    ),
    Mutant(
        "a read shows what brokers wrote for themselves",
        "raftlog.client.messages:read_messages",
        "if batch.header.is_control:",
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
    ),
    Mutant(
        "a read of records of brokers only stops there",
        "raftlog.client.partition:AsyncPartition.read",
        "start = chunk.next_offset",
        "start = chunk.next_offset + 1",
    ),
)

CLIENTS = (*PIPELINE, *SENDING, *ROUTING, *READING)
