"""Settings that cannot work together are refused when a broker is told them, by name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from api.settings import Timing


@pytest.mark.parametrize(
    ("ticks", "remedy"),
    [
        ({"heartbeat_ticks": 6}, "election_ticks must be at least three times heartbeat_ticks"),
        ({"election_ticks": 50}, r"quiet_ticks is 40: choose election_ticks \(50\) or more"),
    ],
)
def test_ticks_that_do_not_fit_together_are_refused(ticks: dict[str, int], remedy: str) -> None:
    with pytest.raises(ValidationError, match=remedy):
        Timing(**ticks)
