"""What the tests of Spark share: the settings of a session, and what readers see."""

from __future__ import annotations

import os
import shutil
import sys

from raftlog import Client
from raftlog.client.messages import Message

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # To compile a query takes longer than to interpret it for so few rows, and there is nothing to adapt.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",  # none is forgotten while a test waits
}
MACHINE = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    # These processes are short: a JVM that compiles once, and little, and verifies no class is ready sooner.
    "JDK_JAVA_OPTIONS": " ".join(
        (
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:+IgnoreUnrecognizedVMOptions",
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:-BytecodeVerificationRemote",
        )
    ),
}
ENVIRONMENT = {**MACHINE, "PYSPARK_PYTHON": sys.executable}


def why_no_spark() -> str | None:
    """What is missing on this machine, None if nothing is."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "no Java: install a JRE of version 17 or newer"
    try:
        import pyarrow
        import pyspark
    except ImportError as error:
        return f"{error}: install raftlog[spark]"
    return None if pyarrow and pyspark else "unreachable"


def visible(client: Client, topic: str, partitions: int = 2) -> list[Message]:
    """All that readers of committed records see."""
    found: list[Message] = []
    for number in range(partitions):
        partition, offset = client.partition(topic, number), 0
        while (chunk := partition.read(offset)).next_offset > offset:
            found += chunk.messages
            offset = chunk.next_offset
    return found


def open_ids(client: Client) -> list[str]:
    """Transactions that hold back readers."""
    return [
        one.transactional_id for one in client.transactions.list() if one.state in ("ongoing", "prepared")
    ]
