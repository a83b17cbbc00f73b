"""Lists keys that a user may try and that aren't accepted, each with advice.

*Guarantees*: no key is accepted and then ignored.
*Assumes*: names are in snake case.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LATER = {
    "num_threads_per_task": ("m2", "several threads process one task (KIP-408)"),
    "streams_memory_bytes": ("m6", "one bound for all memory of an instance"),
}
"""Keys that are planned for a later version: the stage to which each belongs, and its purpose."""

NO_COUNTERPART = {
    "allow_os_group_write_access": "folders of state are the process's own and its group's to read (mode 750)",
    "application_server": "interactive queries between instances aren't part of this runtime",
    "built_in_metrics_version": "there is one version of the metrics",
    "cache_max_bytes_buffering": "its name is statestore_cache_max_bytes today",
    "connections_max_idle_ms": "set it per client: consumer_, producer_ or admin_connections_max_idle_ms",
    "default_client_supplier": "clients are always confluent-kafka's",
    "default_dsl_store": "say it per store in the topology (persistent=False is in memory)",
    "default_deserialization_exception_handler": "its name is deserialization_exception_handler",
    "default_production_exception_handler": "its name is production_exception_handler",
    "default_list_key_serde_inner": "give default_key_serde a list serde with its inner one",
    "default_list_value_serde_inner": "give default_value_serde a list serde with its inner one",
    "default_list_key_serde_type": "lists are Python lists",
    "default_list_value_serde_type": "lists are Python lists",
    "dsl_store_suppliers_class": "say it per store in the topology",
    "enable_transactional_statestores": "every store is: what isn't committed never reaches the disk",
    "ensure_explicit_internal_resource_naming_enable": "its name is ensure_explicit_internal_resource_naming",
    "group_protocol": "the runtime's own group member speaks the classic protocol, whose name isn't set",
    "enable_metrics_push": "set it per client: consumer_, producer_ or admin_enable_metrics_push",
    "log_summary_interval_ms": "metrics say the same: see metrics_port",
    "metadata_max_age_ms": "set it per client: consumer_, producer_ or admin_topic_metadata_refresh_interval_ms",
    "metric_reporters": "metrics are exported for Prometheus: see metrics_port",
    "metrics_num_samples": "metrics are taken over metrics_sample_window_ms",
    "probing_rebalance_interval_ms": "an instance that has caught up asks for the rebalance itself",
    "processing_exception_handler_global_enabled": "processing_exception_handler is asked wherever there are records",
    "processor_wrapper_class": "its name is processor_wrapper: a ProcessorWrapper, its class, or module:attribute",
    "rack_aware_assignment_strategy": "standbys are spread over rack_aware_assignment_tags",
    "rack_aware_assignment_non_overlap_cost": "standbys are spread over rack_aware_assignment_tags",
    "rack_aware_assignment_traffic_cost": "standbys are spread over rack_aware_assignment_tags",
    "receive_buffer_bytes": "set it per client: consumer_, producer_ or admin_socket_receive_buffer_bytes",
    "reconnect_backoff_max_ms": "set it per client: consumer_, producer_ or admin_reconnect_backoff_max_ms",
    "reconnect_backoff_ms": "set it per client: consumer_, producer_ or admin_reconnect_backoff_ms",
    "retry_backoff_ms": "set it per client: consumer_, producer_ or admin_retry_backoff_ms",
    "rocksdb_config_setter": "see rocksdb_block_cache_bytes, rocksdb_write_buffer_bytes, rocksdb_max_write_buffers",
    "send_buffer_bytes": "set it per client: consumer_, producer_ or admin_socket_send_buffer_bytes",
    "state_cleanup_dir_max_age_ms": "remove the application's folder in state_dir before the start of an instance "
    "that was away for longer than the delete.retention.ms of its changelogs",
    "task_assignor_class": "its name is task_assignor: a name, a callable, or module:attribute",
    "window_size_ms": "windowed serdes take it as an argument",
    "windowed_inner_class_serde": "windowed serdes take it as an argument",
}
"""Kafka Streams' keys that have no counterpart in this runtime, each with what to do instead."""


def why_refused(name: str, known: Iterable[str]) -> str:
    """Returns the reason why `name` isn't accepted: it belongs to a later version, it has no counterpart here, or it is
    unknown. For an unknown name the reason contains the most similar known name."""
    if name in LATER:
        stage, purpose = LATER[name]
        return f"this version doesn't have it ({purpose}; designed for stage {stage} and later): leave it out"
    if name in NO_COUNTERPART:
        return f"Kafka Streams' key has no counterpart here: {NO_COUNTERPART[name]}"
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return "unknown key" + (f"; did you mean {near[0]}?" if near else "; `milestones config` lists all keys")
