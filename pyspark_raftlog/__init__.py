"""Makes the format ``raftlog`` known to every Spark session: Spark looks for modules named ``pyspark_*``.

Spark gives up the search when one of them cannot be imported, so that the formats of other packages would be
missing, too. Where Spark is too old or pyarrow is missing, this module has no format and says why.
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
