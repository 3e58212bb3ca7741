"""The codecs of a batch's records, by name and number."""

from __future__ import annotations

import enum


class Codec(enum.IntEnum):
    """The compression of the records of a batch; the number is in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
