"""The record batch: encoding, validation and decoding.

Decides: the layout (Kafka's record batch v2), its checksum, its compression, what a producer may
send, and the partition of a key. Leaves to others: offset and leader epoch of a batch,
the check of sequences, storage, and the clock.

Read ``docs/record-format.md`` first, then ``batch`` (header, checksum, stamping: the part of the format that
brokers use), then ``builder`` and ``reader`` (encoding and decoding records, as clients do).
``control`` has the records that leaders write, ``keys`` chooses partitions, ``compression`` wraps the codecs.
"""
