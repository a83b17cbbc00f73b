"""Windows whose retention is over are gone from the disk, and no empty disk restores them. No broker.

`python -m compat_tests.soak.retention` measures the same over 10 million records and 1,000 windows.
"""

from __future__ import annotations

import pytest

from compat_tests.soak.retention import RETAINED, Measured, measure

RECORDS, WINDOWS = 100_000, 100
SEGMENT = RETAINED // 2
"""Windows that are gone together."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    found = measure(RECORDS, WINDOWS, tmp_path_factory.mktemp("retention"))
    print(found)
    return found


@pytest.mark.timeout(900)
def test_a_directory_stays_below_twice_what_readers_may_see(measured: Measured) -> None:
    assert measured.largest < 2 * measured.live


@pytest.mark.timeout(900)
def test_an_empty_disk_restores_what_readers_may_see_and_the_rest_of_one_segment_at_most(measured: Measured) -> None:
    assert measured.restored_rows <= measured.live_rows * (RETAINED + SEGMENT) // RETAINED
    assert measured.restored_most < 2 * measured.live
