"""The media types that brokers read and write."""

from __future__ import annotations

JSON = "application/json"
NDJSON = "application/x-ndjson"  # one record per line
BATCH = "application/vnd.raftlog.batch.v1"  # contiguous batches, encoded as on disk
OCTET_STREAM = "application/octet-stream"  # the whole body is one value
EVENT_STREAM = "text/event-stream"
PROBLEM = "application/problem+json"  # RFC 9457
HTML = "text/html"
OPENMETRICS = "application/openmetrics-text"
TEXT = "text/plain"

PRODUCE = (JSON, NDJSON, BATCH, OCTET_STREAM)
"""Media types of a produce request."""

FETCH = (JSON, BATCH, EVENT_STREAM)
"""Media types of a fetch response; the first is the default."""
