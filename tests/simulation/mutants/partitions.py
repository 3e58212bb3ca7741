"""Bugs in the partition service and in the metadata."""

from __future__ import annotations

from tests.simulation.mutants.plant import Mutant

PARTITIONS = (
    Mutant(
        "the fate of a request that is known is that of its first batch",
        "partitions.producers:_known",
        "last.handle",
        "found[0].handle",
        script="tests/unit/partitions/test_producers.py",
    ),
    Mutant(
        "retention waits for no learner",
        "partitions.retention_keeper:RetentionKeeper._held_back",
        "{**status.learner_match_index, **status.match_index}",
        "{**status.match_index}",
        script="tests/unit/partitions/test_retention_keeper.py",
    ),
    Mutant(
        "a batch that was sent before is appended again",
        "partitions.replica:PartitionReplica._place",
        "known = self._in_flight.check(headers)",
        "known = None",
    ),
    Mutant(
        "a retry of what is in flight is appended again",
        "partitions.replica:PartitionReplica._place",
        "self._in_flight.add(headers[begun:], proposal.first, proposal.term, append_time_ms, proposal)",
        "pass",
    ),
    Mutant(
        "what was in flight is remembered beyond its term",
        "partitions.replica:PartitionReplica.role_changed",
        "self._in_flight.clear()",
        "pass",
        equivalent="its outcome is unknown, and it is forgotten once the log has passed it",
    ),
    Mutant(
        "sequences are judged before the log is applied",
        "partitions.replica:PartitionReplica.append",
        "await self._serving.ready(deadline)",
        "pass",
    ),
    Mutant(
        "one batch is remembered in place of five",
        "partitions.producer_table:ProducerTable.apply",
        "[-(WINDOW - 1) * _BATCH.size :]",
        "[:0]",
    ),
    Mutant(
        "a duplicate is answered before it is committed",
        "partitions.replica:PartitionReplica._place",
        "proposal=known.handle,",
        "proposal=None,",
    ),
    Mutant(
        "a produce is answered before it is committed",
        "partitions.acks:_reached",
        "await asyncio.shield(proposal.outcome)",
        "await group.durable(proposal)",
    ),
    Mutant(
        "records are shown before they are committed",
        "partitions.reads:Reads._visible_index",
        "min(group.commit_index, group.log.last_index)",
        "group.log.last_index",
    ),
    Mutant(
        "the end is told without proof of leadership",
        "partitions.reads:Reads.offset_at",
        "await serving.confirm()",
        "pass",
    ),
    Mutant(
        "an unknown outcome is told as a failure",
        "partitions.gateway:_may_have_happened",
        "return isinstance(error, CommitUnknown) or (",
        "return False and (",
    ),
    Mutant(
        "a produce without an id is repeated in doubt",
        "partitions.gateway:Gateway._write_at_leader",
        " or not is_repeatable()",
        "",
        script="tests/unit/partitions/test_gateway.py",
    ),
    Mutant(
        "the next offset skips a batch",
        "partitions.reads:Reads._fetched",
        "Offset(found.last + 1)",
        "Offset(found.last + 1 + (found.last % 11 == 7))",
    ),
    Mutant(
        "the folders of living topics are swept",
        "partitions.folders:Folders.sweep",
        "TopicId(match[1]) not in known",
        "TopicId(match[1]) in known",
    ),
    Mutant(
        "a replica cuts its log as far as it can",
        "partitions.retention_keeper:RetentionKeeper._serve",
        "group.truncate_prefix(cut.first_kept)",
        "group.truncate_prefix(Index(group.commit_index + 1))",
    ),
    Mutant(
        "a reader is told a later start than the log has",
        "partitions.reads:Reads._out_of_range",
        "start=start,",
        "start=start + 1,",
    ),
    Mutant(
        "a duplicate is told at another offset",
        "partitions.producers:_known",
        "Offset(first.base_offset)",
        "Offset(first.base_offset + (first.base_offset % 5 == 3))",
    ),
    Mutant(
        "a gap in a producer's sequences is let through",
        "partitions.producers:_expect",
        "if header.base_sequence != expected:",
        "if header.base_sequence < expected:",
    ),
    Mutant(
        "a table comes back without its clock",
        "partitions.producer_table:ProducerTable.restore",
        "self._clock = tuple(clock)",
        "pass",
    ),
    Mutant(
        "acks=1 is answered before the leader has synced",
        "partitions.acks:_reached",
        "await group.durable(proposal)",
        "pass",
    ),
    Mutant(
        "acks=every waits for a quorum only",
        "partitions.acks:_reached",
        "in_sync() <= nodes",
        "True",
    ),
    Mutant(
        "a forwarded produce forgets its acks",
        "partitions.forwarding:pack_append",
        "str(acks)",
        "'1'",
    ),
    Mutant(
        "a deletion while the first record is looked for is told to who named no offset",
        "partitions.reads:Reads.fetch",
        "isinstance(request.position, int) or",
        "True or",
        script="tests/unit/partitions/test_reads_of_files.py",
    ),
    Mutant(
        "a deleted offset that was named is read from the log start",
        "partitions.reads:Reads.fetch",
        "isinstance(request.position, int) or",
        "False or",
        script="tests/unit/partitions/test_reads_of_files.py",
    ),
    Mutant(
        "the end that a fetch tells is one too far",
        "partitions.reads:Reads._read",
        "return found, Offset(visible + 1)",
        "return found, Offset(visible + 2)",
    ),
    Mutant(
        "a later life of a producer is taken for the one before",
        "partitions.producer_table:ProducerTable.apply",
        "row and _ROW.unpack_from(row)[1] == epoch",
        "row",
    ),
    Mutant(
        "who has been replaced is not fenced",
        "partitions.producers:_expect",
        "if header.producer_epoch < epoch:",
        "if header.producer_epoch < epoch - 1:",
    ),
    Mutant(
        "a part of a request passes for all of it",
        "partitions.producers:InFlight._check_many",
        "if not new:",
        "if True:",
        script="tests/unit/partitions/test_producers.py",
    ),
    Mutant(
        "the second batch of a request is judged by what stood before the first",
        "partitions.producers:InFlight._check_many",
        "tails.get(producer_id) or self._tail(producer_id)",
        "self._tail(producer_id) or tails.get(producer_id)",
    ),
    Mutant(
        "a refusal that follows an attempt in doubt is told as a failure",
        "partitions.gateway:Gateway._write_at_leader",
        "if in_doubt:\n                raise",
        "if False:\n                raise",
        script="tests/unit/partitions/test_gateway.py",
    ),
    Mutant(
        "bytes of a body that was refused stay counted",
        "partitions.gateway:Gateway._room_for",
        "    try:\n        yield\n    finally:\n        self.bytes_in_flight -= size",
        "    yield\n    self.bytes_in_flight -= size",
    ),
)

METADATA = (
    Mutant(
        "group ids are used twice",
        "partitions.controller.machine:_create_topic",
        "first + len(command.placement)",
        "first",
    ),
    Mutant(
        "producer ids are given twice",
        "partitions.controller.machine:_allocate_producer_ids",
        "ProducerId(first + count)",
        "ProducerId(first + count - (first % 3 == 1))",
    ),
    Mutant(
        "a deleted topic stays",
        "partitions.controller.machine:_delete_topic",
        "del topics[command.name]",
        "pass",
    ),
    Mutant(
        "an image does not survive a restart whole",
        "partitions.controller.machine:decode_image",
        "next_group_id=found.next_group_id,",
        "",
    ),
    Mutant(
        "metadata is read at a leader that may be deposed",
        "partitions.controller.active:ActiveController._current_version",
        "await self._group.confirm_read()",
        "pass",
        script="tests/unit/partitions/controller/test_active.py",
    ),
    Mutant(
        "a change is told before this broker knows it",
        "partitions.controller.service:Controller._once_known_here",
        "await self.wait_for_version(answer.version, max(timeout_ms, 0.0))",
        "pass",
    ),
)
