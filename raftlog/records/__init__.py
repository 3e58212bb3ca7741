"""The record batch: how records become bytes, and how those bytes are judged and read.

Decides: the layout (Kafka's record batch v2), its checksum, its compression, what a producer may
send, and which partition a key belongs to. Leaves to others: which offset and leader epoch a batch
gets, whether a sequence is the expected one, where the bytes are kept, and the clock.

Read ``docs/record-format.md`` first, then ``batch`` (header, checksum, stamping: all that a broker
does with a batch), then ``builder`` and ``reader`` (records in and out, which clients do).
``control`` writes the records of leaders, ``keys`` chooses partitions, ``compression`` wraps the codecs.
"""
