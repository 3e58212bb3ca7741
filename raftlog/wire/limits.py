"""Limits of requests, used by the checks, the OpenAPI document and the messages."""

from __future__ import annotations

from typing import Final

NAME_CHARACTERS_MAX: Final = 249  # as in Kafka, for the compatibility of its tools
NAME_PATTERN: Final = rf"^[A-Za-z0-9._-]{{1,{NAME_CHARACTERS_MAX}}}$"
CRON_CHARACTERS_MAX: Final = 200  # of a cron expression
CRON_PATTERN: Final = rf"^[^\x00-\x1f\x7f]{{0,{CRON_CHARACTERS_MAX}}}$"
PARTITIONS_MAX: Final = 10_000  # of one topic, so that a typing error does not fill the cluster
INT64_MAX: Final = (1 << 63) - 1
OFFSET_MAX: Final = INT64_MAX
OFFSET_METADATA_CHARACTERS_MAX: Final = 4_096  # of a committed offset, as offset.metadata.max.bytes of Kafka
REPLICATION_FACTORS: Final = (1, 3, 5, 7)  # of new topics
REPLICAS_DEFAULT: Final = 3  # of a partition, where the cluster has so many brokers
REPLICAS_MAX: Final = REPLICATION_FACTORS[-1]  # of one partition
PLAN_MOVES_MAX: Final = 1_000  # partitions that one plan moves
PRODUCER_BATCHES_MAX: Final = 5  # in flight of one producer to one partition; as many are remembered
BROKER_ID_MAX: Final = (1 << 31) - 1
RECORDS_MAX: Final = 10_000  # of one JSON request or response
VALUES_MAX: Final = 100_000  # of a JSON body other than records, so that decoding it takes a moment
RECORD_VALUES_MAX: Final = (
    2_000_000  # in all records of a JSON body: the decoder passes over them in one call
)
RECORD_TEXT_CHARACTERS_MAX: Final = 256 << 10  # of the key or a header of a record in JSON
HEADERS_MAX: Final = 1_000  # of one record in JSON
CONFIG_KEYS_MAX: Final = 100  # of one request
CONFIG_TEXT_CHARACTERS_MAX: Final = 1_000
BRIEF_CHARACTERS_MAX: Final = 64  # of a duration, a time, a position or a time zone
BRIEF_PATTERN: Final = rf"^[^\x00-\x1f\x7f]{{0,{BRIEF_CHARACTERS_MAX}}}$"
TRANSACTION_MS_MAX: Final = 900_000  # the longest time-out of a transaction that is not prepared
TRANSACTION_BYTES_MAX: Final = 1 << 30  # of one transaction in one partition, whose readers wait for it
KEYED_RECORDS_MAX: Final = 1_000  # of one request with an idempotency key, whose answer is kept
KEY_CHARACTERS_MAX: Final = 255  # of an idempotency key
TAG_CHARACTERS_MAX: Final = 255
TAG_PATTERN: Final = r"^[^,\x00-\x1f\x7f]*$"  # commas separate tags; no control characters
TAGS_MAX: Final = 32  # of one record, and of one reader
RACK_CHARACTERS_MAX: Final = 255  # of the label of a broker or a reader
STALENESS_MS_MIN: Final = 500  # of a replica that is not the leader: several heartbeats and a round trip
STALENESS_MS_DEFAULT: Final = 10_000  # as replica.lag.max.ms: after that time a replica counts as not in sync
STALENESS_MS_MAX: Final = 86_400_000
CONFIRM_CHARACTERS_MAX: Final = 1_000
DEAD_LETTERS_MAX: Final = 1_000  # of one request or response
DEAD_LETTER_ID_PATTERN: Final = r"^[^\x00-\x1f\x7f]{1,300}$"
PAGE_TOKEN_PATTERN: Final = rf"^[A-Za-z0-9_-]{{0,{128 << 10}}}$"  # of as many dead letters
