"""Bugs in the selection of records by tags: what is listed, sent, skipped, waited for and committed."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

DIRECTORY = "tests/unit/records/test_tag_directory.py"
READS = "tests/scenarios/partitions/test_tagged_reads.py"
FETCH = "tests/unit/api/test_tagged_fetch.py"
CLIENT = "tests/unit/client/test_tags.py"
REBALANCES = "tests/unit/groups/test_rebalances.py"

TAGS = (
    Mutant(
        "a tag matches every tag that begins with it",
        "raftlog.records.tags:TagFilter.selects",
        "needle in tags",
        "needle[:-1] in tags",
        script=DIRECTORY,
    ),
    Mutant(
        "a part of a batch still says that its tags are listed",
        "raftlog.records.tag_directory:select",
        "attributes=header.attributes & ~TAGS_KNOWN_BIT",
        "attributes=header.attributes",
        script=DIRECTORY,
    ),
    Mutant(
        "a batch of a foreign producer is taken for one without tags",
        "raftlog.records.tag_directory:select",
        "if not header.attributes & TAGS_KNOWN_BIT:\n        return batch",
        "if not header.attributes & TAGS_KNOWN_BIT:\n        return None",
        script=DIRECTORY,
    ),
    Mutant(
        "a part of a batch counts all of its records",
        "raftlog.records.tag_directory:select",
        "record_count=sum(directory.counts[run] for run in chosen),",
        "record_count=header.record_count,",
        script=DIRECTORY,
    ),
    Mutant(
        "neighbours that share a run have the tags of the first one only",
        "raftlog.records.tag_directory:_joined",
        "for run in runs for name",
        "for run in runs[:1] for name",
        script=DIRECTORY,
    ),
    Mutant(
        "compaction leaves the directory of removed records out",
        "raftlog.records.compaction:retain",
        "if header.attributes & TAGS_KNOWN_BIT and any(tags for tags, _ in parts):",
        "if False:",
        script=DIRECTORY,
    ),
    Mutant(
        "a batch with a tag that cannot be listed claims to have no tags",
        "raftlog.records.builder:BatchBuilder._compressed",
        "None not in tags.values()",
        "True",
        script=DIRECTORY,
    ),
    Mutant(
        "a reader of tags stays where nothing matched",
        "partitions.replica.reads:Reads._selected",
        "offset, selection.data, selection.next_offset, high",
        "offset, selection.data, selection.next_offset if selection.data else offset, high",
        script=READS,
    ),
    Mutant(
        "a full response continues past the batch that did not fit",
        "partitions.replica.selection:Selection.add",
        "self._is_full = True\n                return",
        "self._is_full = True",
        script=READS,
    ),
    Mutant(
        "one read looks at the whole log",
        "partitions.replica.selection:Selection.is_complete",
        "self._is_full or self._looked_at_bytes >= LOOKED_AT_BYTES_MAX",
        "self._is_full",
        script=READS,
    ),
    Mutant(
        "a wait for a match ends with any record",
        "partitions.replica.reads:Reads._selected",
        "selection.size_bytes >= goal",
        "selection.next_offset > offset",
        script=READS,
    ),
    Mutant(
        "a reader of tags sees aborted transactions",
        "partitions.replica.reads:Reads._selected",
        "self._transactions.without_aborted(found.data) if committed_only else found.data",
        "found.data",
        script=READS,
    ),
    Mutant(
        "JSON shows all records of a batch whose tags are not listed",
        "api.resources.json_answers:View.pages",
        "self.wanted is not None and not self.wanted.matches(stored.headers)",
        "False",
        script=FETCH,
    ),
    Mutant(
        "a fetch of JSON looks at foreign batches without an end",
        "api.resources.fetch:_first_page",
        "request.tags and looked_at_bytes >= LOOKED_AT_BYTES_MAX",
        "False",
        script=FETCH,
    ),
    Mutant(
        "an event stream that skips records has heartbeats without a position",
        "api.resources.events:_follow",
        "is_past = bool(request.tags) and next_offset > 0",
        "is_past = False",
        script=FETCH,
    ),
    Mutant(
        "an event stream is silent while foreign records are skipped",
        "api.resources.events:_follow",
        "if not result.data or is_silent:",
        "if not result.data:",
        script=FETCH,
    ),
    Mutant(
        "a client delivers all messages of a batch whose tags are not listed",
        "raftlog.client.messages:read_messages",
        "if tags.matches(message.headers)",
        "",
        script=CLIENT,
    ),
    Mutant(
        "a consumer commits over a record that is being handled",
        "raftlog.client.consumer.core:ConsumerCore._over_skipped",
        "acknowledged >= self._handed_out.get(target, -1) and position > reached",
        "position > reached",
        script=CLIENT,
    ),
    Mutant(
        "a consumer never commits over what it skipped",
        "raftlog.client.consumer.core:ConsumerCore.commit",
        "{**self._acknowledged, **self._over_skipped()}",
        "{**self._acknowledged}",
        script=CLIENT,
    ),
    Mutant(
        "a consumer that closes forgets what it has skipped",
        "raftlog.client.consumer.core:ConsumerCore._stop_reading",
        "self._stopped_at = self._fetching.positions",
        "self._stopped_at = {}",
        script=CLIENT,
    ),
    Mutant(
        "members of a group may read different tags",
        "groups.membership:Membership._check_join",
        "if other.tags != ask.tags",
        "if False",
        script=REBALANCES,
    ),
    Mutant(
        "a poll that joins again forgets the tags of its member",
        "api.resources.group_poll:_join_request",
        "tags=known.tags,",
        "",
        script=CLIENT,
    ),
    Mutant(
        "a tag may end with a line feed",
        "raftlog.wire.tags:why_no_tags",
        "_TAG.fullmatch(tag)",
        "_TAG.match(tag)",
        script=CLIENT,
    ),
)
