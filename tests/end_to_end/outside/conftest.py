"""The wheel, installed."""

from __future__ import annotations

import pytest

from tests.helpers.from_outside import Outside, install, remove


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nothing is left of a run without a name (``--testrunuid``): its processes have ended."""
    is_worker = hasattr(session.config, "workerinput")
    if not is_worker and not session.config.getoption("testrunuid", None):
        remove()


@pytest.fixture(scope="session")
def outside(testrun_uid: str) -> Outside:
    """The wheel of this checkout, installed into an environment of its own."""
    return install(testrun_uid)
