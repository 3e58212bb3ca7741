"""Registers the format ``raftlog-archive`` in every Spark session, as ``pyspark_raftlog`` does."""

import logging

from raftlog.extras import install_command

try:
    from spark_io.archive.data_source import ArchiveDataSource as DefaultSource
except ImportError as error:
    logging.getLogger("spark_io").warning(
        "the format raftlog-archive is not available: %s; %s", error, install_command("spark")
    )

__all__ = ["DefaultSource"]
