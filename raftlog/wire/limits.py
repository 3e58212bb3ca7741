"""Limits of the values in requests, for checks, the OpenAPI document and the texts of errors."""

from __future__ import annotations

from typing import Final

NAME_CHARACTERS_MAX: Final = 249  # as in Kafka, for compatibility with its tools
NAME_PATTERN: Final = rf"^[A-Za-z0-9._-]{{1,{NAME_CHARACTERS_MAX}}}$"
CRON_CHARACTERS_MAX: Final = 200  # of a cron expression
CRON_PATTERN: Final = rf"^[^\x00-\x1f\x7f]{{0,{CRON_CHARACTERS_MAX}}}$"
PARTITIONS_MAX: Final = 10_000  # per topic, so that a typing error does not fill the cluster
INT64_MAX: Final = (1 << 63) - 1
OFFSET_MAX: Final = INT64_MAX
OFFSET_METADATA_CHARACTERS_MAX: Final = 4_096  # of a committed offset, as offset.metadata.max.bytes of Kafka
REPLICATION_FACTORS: Final = (1, 3, 5, 7)  # of new topics
REPLICAS_DEFAULT: Final = 3  # per partition, if the cluster has enough brokers
REPLICAS_MAX: Final = REPLICATION_FACTORS[-1]  # per partition
PLAN_MOVES_MAX: Final = 1_000  # partitions that one plan moves
PRODUCER_BATCHES_MAX: Final = 5  # in flight from one producer to one partition; the number remembered
BROKER_ID_MAX: Final = (1 << 31) - 1
RECORDS_MAX: Final = 10_000  # per JSON request or response
VALUES_MAX: Final = 100_000  # in a JSON body apart from records, so that decoding it is quick
RECORD_VALUES_MAX: Final = 2_000_000  # in all records of a JSON body: the decoder skips them in one call
RECORD_TEXT_CHARACTERS_MAX: Final = 256 << 10  # of the key or a header of a record in JSON
HEADERS_MAX: Final = 1_000  # per record in JSON
CONFIG_KEYS_MAX: Final = 100  # per request
CONFIG_TEXT_CHARACTERS_MAX: Final = 1_000
BRIEF_CHARACTERS_MAX: Final = 64  # of a duration, a time, a position or a time zone
BRIEF_PATTERN: Final = rf"^[^\x00-\x1f\x7f]{{0,{BRIEF_CHARACTERS_MAX}}}$"
TRANSACTION_MS_MAX: Final = 900_000  # the longest timeout of a transaction that is not prepared
TRANSACTION_BYTES_MAX: Final = 1 << 30  # of one transaction in one partition, whose readers wait for it
KEYED_RECORDS_MAX: Final = 1_000  # per request with an idempotency key, whose response is stored
KEY_CHARACTERS_MAX: Final = 255  # of an idempotency key
TAG_CHARACTERS_MAX: Final = 255
TAG_PATTERN: Final = r"^[^,\x00-\x1f\x7f]*$"  # commas separate tags; no control characters
TAGS_MAX: Final = 32  # per record, and per reader
RACK_CHARACTERS_MAX: Final = 255  # of the label of a broker or a reader
STALENESS_MS_MIN: Final = 500  # for reads from a follower: several heartbeats and a round trip
STALENESS_MS_DEFAULT: Final = 10_000  # as replica.lag.max.ms: a replica behind for longer is not in sync
STALENESS_MS_MAX: Final = 86_400_000
CONFIRM_CHARACTERS_MAX: Final = 1_000
DEAD_LETTERS_MAX: Final = 1_000  # per request or response
DEAD_LETTER_ID_PATTERN: Final = r"^[^\x00-\x1f\x7f]{1,300}$"
PAGE_TOKEN_PATTERN: Final = rf"^[A-Za-z0-9_-]{{0,{128 << 10}}}$"  # room for as many dead letters
