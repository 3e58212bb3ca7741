"""How Spark finds the format."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest
from pyspark import cloudpickle

import spark_io
from raftlog.extras import install_command
from spark_io.connections import client_of

FIND = """
import sys
sys.modules[{!r}] = None
import pyspark_raftlog, pyspark_raftlog_archive
print(*(hasattr(each, "DefaultSource") for each in (pyspark_raftlog, pyspark_raftlog_archive)))
"""


@pytest.mark.parametrize(
    ("missing", "is_found"), [("nothing", True), ("pyarrow", False), ("pyspark.sql.datasource", False)]
)
def test_a_format_that_cannot_be_used_hides_no_other(missing: str, is_found: bool) -> None:
    command = [sys.executable, "-c", FIND.format(missing)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == 2 * [str(is_found)]
    assert done.stderr.count(install_command("spark")) == (0 if is_found else 2)


# requirement: A8
@pytest.mark.parametrize("module", ["spark_io.by_value", "spark_io.archive.data_source"])
def test_a_format_can_be_used_by_value_where_the_package_is_missing(module: str) -> None:
    script = f"""
import sys
import spark_io
from importlib import import_module
from pyspark import cloudpickle
from spark_io.connections import client_of
client_of(("localhost:1",))
classes = vars(import_module("{module}")).values()
formats = [one for one in classes if getattr(one, "__module__", "") == "{module}"]
cloudpickle.register_pickle_by_value(spark_io)
text = cloudpickle.dumps(formats)
for name in [name for name in sys.modules if name.split(".")[0] == "spark_io"]:
    sys.modules[name] = None
print([one.name() for one in cloudpickle.loads(text)])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() in ("['raftlog']", "['raftlog-archive']"), done.stderr


# requirement: A8
def test_tasks_that_have_the_package_by_value_share_the_clients_of_their_process() -> None:
    cloudpickle.register_pickle_by_value(spark_io)
    try:
        with closing(client_of(("localhost:1",))) as client:
            copies = [cloudpickle.loads(cloudpickle.dumps(client_of)) for _ in range(2)]
            assert copies[0] is not client_of
            assert [copy(("localhost:1",)) for copy in copies] == [client, client]
    finally:
        cloudpickle.unregister_pickle_by_value(spark_io)
