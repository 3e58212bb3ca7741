"""The package is on the driver only, and travels with each task."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.end_to_end.spark.vocabulary import ENVIRONMENT, why_no_spark
from tests.helpers.real_cluster import create_topic

pytestmark = [pytest.mark.slow, pytest.mark.spark]

DRIVER = Path(__file__).with_name("by_value_driver.py")


# requirement: A8
@pytest.mark.timeout(600)
def test_workers_that_cannot_import_the_package_read_and_write(
    brokers: Cluster, servers: str, tmp_path: Path
) -> None:
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    for topic in ("sent", "copied"):
        create_topic(brokers.urls[0], topic, 2)
    (tmp_path / "sitecustomize.py").write_text("import sys\n\nsys.modules['spark_io'] = None\n")
    worker = tmp_path / "python"
    worker.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    worker.chmod(0o700)
    environment = {**os.environ, **ENVIRONMENT, "PYSPARK_PYTHON": str(worker)}
    command = [sys.executable, str(DRIVER), servers, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert "sent 40, copied 40" in done.stdout, done.stderr[-3_000:]
