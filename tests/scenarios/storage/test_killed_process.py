"""A process that is killed while it appends, on the machine's own filesystem."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from raftlog.records.batch import check_batch, split_batches
from tests.helpers.small_log import open_log

WRITER = """
import sys
from raftlog.core.ready import HardState
from tests.helpers.storage_batches import storage_batch
from tests.helpers.small_log import open_log

log = open_log(sys.argv[1])
log.save_hard_state(HardState(1, None))
while True:
    for _ in range(20):
        log.append([storage_batch(log.last_index + 1, 3, body=bytes(200))])
    flush = log.take_sync()
    flush.run()
    log.sync_finished(flush)
    print(log.durable_index, flush=True)
"""


# requirement: L9, N4
def test_what_was_durable_when_the_process_was_killed_is_there(tmp_path: Path) -> None:
    durable_index = -1
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(30):
                durable_index = int(process.stdout.readline())
            process.kill()
            durable_index = max(
                [durable_index, *(int(line) for line in process.stdout if line.endswith("\n"))]
            )
        log = open_log(str(tmp_path))
        assert log.last_index >= durable_index
        batches = split_batches(log.read(log.first_index, log.last_index, bytes_max=1 << 30).read())
        assert [batch.base_offset for batch in batches] == list(range(0, int(log.last_index) + 1, 3))
        for batch in batches:
            check_batch(batch)
        log.close()
