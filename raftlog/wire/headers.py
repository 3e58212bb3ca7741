"""The names of the headers of this contract, except standard ones."""

from __future__ import annotations

REQUEST_ID = "Raftlog-Request-Id"  # in every answer: names the request in logs and problems
METADATA_VERSION = "Raftlog-Metadata-Version"  # in every answer: the newest metadata this broker knows
LEADER = "Raftlog-Leader"  # host:port of the HTTP listener of the partition's leader
WAIT_CAPPED = "Raftlog-Wait-Capped"  # the longest wait, such as 55s, where the request asked for a longer one
TIMEOUT_CAPPED = "Raftlog-Timeout-Capped"  # the same for the timeout of a produce request

# Of a fetch, and of its 204.
NEXT_OFFSET = "Raftlog-Next-Offset"  # where to go on
HIGH_WATERMARK = "Raftlog-High-Watermark"
LOG_START_OFFSET = "Raftlog-Log-Start-Offset"
LEADER_EPOCH = "Raftlog-Leader-Epoch"

# Of a produce with a raw body.
KEY = "Raftlog-Key"
TAGS = "Raftlog-Tags"  # names with commas between them
HEADER_PREFIX = "Raftlog-Header-"  # Raftlog-Header-Source: web  →  the record header "source"

# Of a produce that asks for deduplication: all three or none.
PRODUCER_ID = "Producer-Id"
PRODUCER_EPOCH = "Producer-Epoch"
PRODUCER_SEQUENCE = "Producer-Seq"

TAG_RECORD_HEADER = "raftlog.tag"
"""The record header that holds one tag; a record has one of them for each of its tags."""
