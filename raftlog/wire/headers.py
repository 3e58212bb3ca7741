"""The names of the headers of this contract, except standard ones."""

from __future__ import annotations

REQUEST_ID = "Raftlog-Request-Id"  # in every response: identifies the request in logs and problems
METADATA_VERSION = "Raftlog-Metadata-Version"  # in every response: the version of the broker's metadata
LEADER = "Raftlog-Leader"  # host:port of the HTTP listener of the partition's leader
WAIT_CAPPED = "Raftlog-Wait-Capped"  # the longest wait, such as 55s, if the request had a longer one
TIMEOUT_CAPPED = "Raftlog-Timeout-Capped"  # the same for the timeout of a produce request

# Of a fetch, and of its 204.
NEXT_OFFSET = "Raftlog-Next-Offset"  # the next offset to fetch
HIGH_WATERMARK = "Raftlog-High-Watermark"
LAST_STABLE_OFFSET = "Raftlog-Last-Stable-Offset"  # no transaction below it is open
LOG_START_OFFSET = "Raftlog-Log-Start-Offset"
LEADER_EPOCH = "Raftlog-Leader-Epoch"
ARCHIVED = "Raftlog-Archived"  # "true": these records are below the log start, and come from the archive
SERVED_BY = "Raftlog-Served-By"  # the id of the broker whose replica was read

# Of a produce with a raw body.
KEY = "Raftlog-Key"
TAGS = "Raftlog-Tags"  # names separated by commas
HEADER_PREFIX = "Raftlog-Header-"  # Raftlog-Header-Source: web  →  the record header "source"

# Of a produce in a transaction: its id.
TRANSACTION = "Raftlog-Transaction"

# Of a produce that asks for deduplication: all three or none.
PRODUCER_ID = "Raftlog-Producer-Id"
PRODUCER_EPOCH = "Raftlog-Producer-Epoch"
PRODUCER_SEQUENCE = "Raftlog-Producer-Sequence"

# Of a request that is carried out once: its key; and of a response that was given before.
IDEMPOTENCY_KEY = "Idempotency-Key"
IDEMPOTENCY_REPLAYED = "Idempotency-Replayed"
