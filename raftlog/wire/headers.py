"""The names of the non-standard headers of this contract."""

from __future__ import annotations

REQUEST_ID = "Raftlog-Request-Id"  # in every response: identifies the request in logs and problems
METADATA_VERSION = "Raftlog-Metadata-Version"  # in every response: the version of the broker's metadata
LEADER = "Raftlog-Leader"  # host:port of the HTTP listener of the partition's leader
WAIT_CAPPED = "Raftlog-Wait-Capped"  # the longest possible wait, such as 55s, if the requested one was longer
TIMEOUT_CAPPED = "Raftlog-Timeout-Capped"  # likewise for the timeout of a produce request

# Headers of a fetch response, also with status 204.
NEXT_OFFSET = "Raftlog-Next-Offset"  # the next offset to fetch
HIGH_WATERMARK = "Raftlog-High-Watermark"
LAST_STABLE_OFFSET = "Raftlog-Last-Stable-Offset"  # no transaction below it is open
LOG_START_OFFSET = "Raftlog-Log-Start-Offset"
LEADER_EPOCH = "Raftlog-Leader-Epoch"
ARCHIVED = "Raftlog-Archived"  # "true": these records are below the log start, and come from the archive
SERVED_BY = "Raftlog-Served-By"  # the id of the broker whose replica was read

# Headers of a produce with a raw body.
KEY = "Raftlog-Key"
TAGS = "Raftlog-Tags"  # names separated by commas
HEADER_PREFIX = "Raftlog-Header-"  # Raftlog-Header-Source: web  →  the record header "source"

# Header of a produce in a transaction: the transaction's id.
TRANSACTION = "Raftlog-Transaction"

# Headers of a produce with deduplication: all three or none.
PRODUCER_ID = "Raftlog-Producer-Id"
PRODUCER_EPOCH = "Raftlog-Producer-Epoch"
PRODUCER_SEQUENCE = "Raftlog-Producer-Sequence"

# Header of a request that is carried out once, with its key; and of a repeated response.
IDEMPOTENCY_KEY = "Idempotency-Key"
IDEMPOTENCY_REPLAYED = "Idempotency-Replayed"
