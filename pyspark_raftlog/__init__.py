"""Registers the format ``raftlog`` in every Spark session: Spark looks for modules named ``pyspark_*``.

If such a module cannot be imported, Spark ends the search, so that formats of other packages are missing,
too. So if Spark is too old or pyarrow is missing, this module raises no error: it logs the reason and
registers no format.
"""

import logging

from raftlog.extras import install_command

try:
    import pyarrow  # noqa: F401  # the format imports it when records are read

    from spark_io.data_source import RaftlogDataSource as DefaultSource
except ImportError as error:
    logging.getLogger("spark_io").warning(
        "the format raftlog is not available: %s; %s", error, install_command("spark")
    )

__all__ = ["DefaultSource"]
