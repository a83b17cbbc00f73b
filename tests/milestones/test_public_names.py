"""What `milestones` and `milestones.testing` export."""

from __future__ import annotations

import milestones
from milestones import testing
from milestones.common import errors
from milestones.common import testing as shared


def test_every_name_that_is_exported_exists_and_none_is_exported_twice() -> None:
    for module in (milestones, testing):
        assert all(hasattr(module, name) for name in module.__all__)
        assert len(set(module.__all__)) == len(module.__all__)


def test_the_errors_that_users_meet_can_be_imported_from_the_package() -> None:
    exported = {name for name in milestones.__all__ if name.endswith("Error")}
    assert all(getattr(milestones, name) is getattr(errors, name) for name in exported)
    assert exported == {
        "ConfigError", "KafkaUnreachableError", "MilestonesError", "ProcessingError", "ProductionError",
        "SerializationError", "SourceTopicError", "StateError", "TopologyError",
    }  # fmt: skip


def test_what_tests_of_topologies_need_is_in_milestones_testing() -> None:
    assert testing.__all__ == shared.__all__
    assert testing.TopologyTestDriver is shared.TopologyTestDriver
