"""The settings as keywords, so that type checkers and editors know them. Made: `python -m docs.settings` writes it.

*Guarantees*: each key has the type of all values that are read for it, so that a right program has no error.
*Assumes*: librdkafka's settings are those of `librdkafka_names.py`. Others can be given as `**{name: value}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal, TypeAlias, TypedDict

from milestones.common.assignment.rules import Assignor
from milestones.common.topology.handlers import Handler
from milestones.common.topology.nodes import OffsetReset
from milestones.common.topology.timestamps import TimestampExtractor
from milestones.common.topology.wrapping import ProcessorWrapper
from milestones.common.typed_serdes import SerdeLike

Names: TypeAlias = str | list[str] | tuple[str, ...]
"""Several names; as text with commas."""
Words: TypeAlias = Names | set[str] | frozenset[str]
"""Several names whose order means nothing."""
Passed: TypeAlias = str | int | float | bool
"""A value for librdkafka, or for a topic."""


class PassedSettings(TypedDict, total=False):
    """Settings that are passed on: to Kafka's clients, by librdkafka's names, and to internal topics."""

    admin_allow_auto_create_topics: Passed
    admin_api_version_fallback_ms: Passed
    admin_api_version_request: Passed
    admin_api_version_request_timeout_ms: Passed
    admin_broker_address_family: Passed
    admin_broker_address_ttl: Passed
    admin_broker_version_fallback: Passed
    admin_client_dns_lookup: Passed
    admin_client_rack: Passed
    admin_connections_max_idle_ms: Passed
    admin_debug: Passed
    admin_enable_metrics_push: Passed
    admin_enable_random_seed: Passed
    admin_enable_ssl_certificate_verification: Passed
    admin_log_connection_close: Passed
    admin_log_queue: Passed
    admin_log_thread_name: Passed
    admin_max_in_flight: Passed
    admin_max_in_flight_requests_per_connection: Passed
    admin_message_copy_max_bytes: Passed
    admin_message_max_bytes: Passed
    admin_metadata_max_age_ms: Passed
    admin_metadata_recovery_rebootstrap_trigger_ms: Passed
    admin_metadata_recovery_strategy: Passed
    admin_plugin_library_paths: Passed
    admin_receive_message_max_bytes: Passed
    admin_reconnect_backoff_jitter_ms: Passed
    admin_reconnect_backoff_max_ms: Passed
    admin_reconnect_backoff_ms: Passed
    admin_retry_backoff_max_ms: Passed
    admin_retry_backoff_ms: Passed
    admin_sasl_mechanism: Passed
    admin_sasl_mechanisms: Passed
    admin_sasl_password: Passed
    admin_sasl_username: Passed
    admin_security_protocol: Passed
    admin_socket_blocking_max_ms: Passed
    admin_socket_connection_setup_timeout_ms: Passed
    admin_socket_keepalive_enable: Passed
    admin_socket_max_fails: Passed
    admin_socket_nagle_disable: Passed
    admin_socket_receive_buffer_bytes: Passed
    admin_socket_send_buffer_bytes: Passed
    admin_socket_timeout_ms: Passed
    admin_ssl_ca_location: Passed
    admin_ssl_ca_pem: Passed
    admin_ssl_certificate_location: Passed
    admin_ssl_cipher_suites: Passed
    admin_ssl_curves_list: Passed
    admin_ssl_endpoint_identification_algorithm: Passed
    admin_ssl_key_location: Passed
    admin_ssl_key_password: Passed
    admin_statistics_interval_ms: Passed
    admin_topic_blacklist: Passed
    admin_topic_metadata_propagation_max_ms: Passed
    admin_topic_metadata_refresh_fast_cnt: Passed
    admin_topic_metadata_refresh_fast_interval_ms: Passed
    admin_topic_metadata_refresh_interval_ms: Passed
    admin_topic_metadata_refresh_sparse: Passed
    consumer_api_version_fallback_ms: Passed
    consumer_api_version_request: Passed
    consumer_api_version_request_timeout_ms: Passed
    consumer_auto_commit_enable: Passed
    consumer_broker_address_family: Passed
    consumer_broker_address_ttl: Passed
    consumer_broker_version_fallback: Passed
    consumer_check_crcs: Passed
    consumer_client_dns_lookup: Passed
    consumer_client_rack: Passed
    consumer_connections_max_idle_ms: Passed
    consumer_consume_callback_max_messages: Passed
    consumer_coordinator_query_interval_ms: Passed
    consumer_debug: Passed
    consumer_enable_metrics_push: Passed
    consumer_enable_random_seed: Passed
    consumer_enable_ssl_certificate_verification: Passed
    consumer_fetch_error_backoff_ms: Passed
    consumer_fetch_max_bytes: Passed
    consumer_fetch_message_max_bytes: Passed
    consumer_fetch_min_bytes: Passed
    consumer_fetch_queue_backoff_ms: Passed
    consumer_fetch_wait_max_ms: Passed
    consumer_group_protocol_type: Passed
    consumer_isolation_level: Passed
    consumer_log_connection_close: Passed
    consumer_log_queue: Passed
    consumer_log_thread_name: Passed
    consumer_max_in_flight: Passed
    consumer_max_in_flight_requests_per_connection: Passed
    consumer_max_partition_fetch_bytes: Passed
    consumer_message_copy_max_bytes: Passed
    consumer_message_max_bytes: Passed
    consumer_metadata_max_age_ms: Passed
    consumer_metadata_recovery_rebootstrap_trigger_ms: Passed
    consumer_metadata_recovery_strategy: Passed
    consumer_offset_store_method: Passed
    consumer_offset_store_path: Passed
    consumer_offset_store_sync_interval_ms: Passed
    consumer_plugin_library_paths: Passed
    consumer_queued_max_messages_kbytes: Passed
    consumer_queued_min_messages: Passed
    consumer_receive_message_max_bytes: Passed
    consumer_reconnect_backoff_jitter_ms: Passed
    consumer_reconnect_backoff_max_ms: Passed
    consumer_reconnect_backoff_ms: Passed
    consumer_retry_backoff_max_ms: Passed
    consumer_retry_backoff_ms: Passed
    consumer_sasl_mechanism: Passed
    consumer_sasl_mechanisms: Passed
    consumer_sasl_password: Passed
    consumer_sasl_username: Passed
    consumer_security_protocol: Passed
    consumer_share_acknowledgement_mode: Passed
    consumer_socket_blocking_max_ms: Passed
    consumer_socket_connection_setup_timeout_ms: Passed
    consumer_socket_keepalive_enable: Passed
    consumer_socket_max_fails: Passed
    consumer_socket_nagle_disable: Passed
    consumer_socket_receive_buffer_bytes: Passed
    consumer_socket_send_buffer_bytes: Passed
    consumer_socket_timeout_ms: Passed
    consumer_ssl_ca_location: Passed
    consumer_ssl_ca_pem: Passed
    consumer_ssl_certificate_location: Passed
    consumer_ssl_cipher_suites: Passed
    consumer_ssl_curves_list: Passed
    consumer_ssl_endpoint_identification_algorithm: Passed
    consumer_ssl_key_location: Passed
    consumer_ssl_key_password: Passed
    consumer_statistics_interval_ms: Passed
    consumer_topic_blacklist: Passed
    consumer_topic_metadata_propagation_max_ms: Passed
    consumer_topic_metadata_refresh_fast_cnt: Passed
    consumer_topic_metadata_refresh_fast_interval_ms: Passed
    consumer_topic_metadata_refresh_interval_ms: Passed
    consumer_topic_metadata_refresh_sparse: Passed
    enable_ssl_certificate_verification: Passed
    global_consumer_api_version_fallback_ms: Passed
    global_consumer_api_version_request: Passed
    global_consumer_api_version_request_timeout_ms: Passed
    global_consumer_auto_commit_enable: Passed
    global_consumer_broker_address_family: Passed
    global_consumer_broker_address_ttl: Passed
    global_consumer_broker_version_fallback: Passed
    global_consumer_check_crcs: Passed
    global_consumer_client_dns_lookup: Passed
    global_consumer_client_rack: Passed
    global_consumer_connections_max_idle_ms: Passed
    global_consumer_consume_callback_max_messages: Passed
    global_consumer_coordinator_query_interval_ms: Passed
    global_consumer_debug: Passed
    global_consumer_enable_metrics_push: Passed
    global_consumer_enable_random_seed: Passed
    global_consumer_enable_ssl_certificate_verification: Passed
    global_consumer_fetch_error_backoff_ms: Passed
    global_consumer_fetch_max_bytes: Passed
    global_consumer_fetch_message_max_bytes: Passed
    global_consumer_fetch_min_bytes: Passed
    global_consumer_fetch_queue_backoff_ms: Passed
    global_consumer_fetch_wait_max_ms: Passed
    global_consumer_group_protocol_type: Passed
    global_consumer_log_connection_close: Passed
    global_consumer_log_queue: Passed
    global_consumer_log_thread_name: Passed
    global_consumer_max_in_flight: Passed
    global_consumer_max_in_flight_requests_per_connection: Passed
    global_consumer_max_partition_fetch_bytes: Passed
    global_consumer_message_copy_max_bytes: Passed
    global_consumer_message_max_bytes: Passed
    global_consumer_metadata_max_age_ms: Passed
    global_consumer_metadata_recovery_rebootstrap_trigger_ms: Passed
    global_consumer_metadata_recovery_strategy: Passed
    global_consumer_offset_store_method: Passed
    global_consumer_offset_store_path: Passed
    global_consumer_offset_store_sync_interval_ms: Passed
    global_consumer_plugin_library_paths: Passed
    global_consumer_queued_max_messages_kbytes: Passed
    global_consumer_queued_min_messages: Passed
    global_consumer_receive_message_max_bytes: Passed
    global_consumer_reconnect_backoff_jitter_ms: Passed
    global_consumer_reconnect_backoff_max_ms: Passed
    global_consumer_reconnect_backoff_ms: Passed
    global_consumer_retry_backoff_max_ms: Passed
    global_consumer_retry_backoff_ms: Passed
    global_consumer_sasl_mechanism: Passed
    global_consumer_sasl_mechanisms: Passed
    global_consumer_sasl_password: Passed
    global_consumer_sasl_username: Passed
    global_consumer_security_protocol: Passed
    global_consumer_share_acknowledgement_mode: Passed
    global_consumer_socket_blocking_max_ms: Passed
    global_consumer_socket_connection_setup_timeout_ms: Passed
    global_consumer_socket_keepalive_enable: Passed
    global_consumer_socket_max_fails: Passed
    global_consumer_socket_nagle_disable: Passed
    global_consumer_socket_receive_buffer_bytes: Passed
    global_consumer_socket_send_buffer_bytes: Passed
    global_consumer_socket_timeout_ms: Passed
    global_consumer_ssl_ca_location: Passed
    global_consumer_ssl_ca_pem: Passed
    global_consumer_ssl_certificate_location: Passed
    global_consumer_ssl_cipher_suites: Passed
    global_consumer_ssl_curves_list: Passed
    global_consumer_ssl_endpoint_identification_algorithm: Passed
    global_consumer_ssl_key_location: Passed
    global_consumer_ssl_key_password: Passed
    global_consumer_statistics_interval_ms: Passed
    global_consumer_topic_blacklist: Passed
    global_consumer_topic_metadata_propagation_max_ms: Passed
    global_consumer_topic_metadata_refresh_fast_cnt: Passed
    global_consumer_topic_metadata_refresh_fast_interval_ms: Passed
    global_consumer_topic_metadata_refresh_interval_ms: Passed
    global_consumer_topic_metadata_refresh_sparse: Passed
    main_consumer_api_version_fallback_ms: Passed
    main_consumer_api_version_request: Passed
    main_consumer_api_version_request_timeout_ms: Passed
    main_consumer_auto_commit_enable: Passed
    main_consumer_broker_address_family: Passed
    main_consumer_broker_address_ttl: Passed
    main_consumer_broker_version_fallback: Passed
    main_consumer_check_crcs: Passed
    main_consumer_client_dns_lookup: Passed
    main_consumer_client_rack: Passed
    main_consumer_connections_max_idle_ms: Passed
    main_consumer_consume_callback_max_messages: Passed
    main_consumer_coordinator_query_interval_ms: Passed
    main_consumer_debug: Passed
    main_consumer_enable_metrics_push: Passed
    main_consumer_enable_random_seed: Passed
    main_consumer_enable_ssl_certificate_verification: Passed
    main_consumer_fetch_error_backoff_ms: Passed
    main_consumer_fetch_max_bytes: Passed
    main_consumer_fetch_message_max_bytes: Passed
    main_consumer_fetch_min_bytes: Passed
    main_consumer_fetch_queue_backoff_ms: Passed
    main_consumer_fetch_wait_max_ms: Passed
    main_consumer_group_protocol_type: Passed
    main_consumer_isolation_level: Passed
    main_consumer_log_connection_close: Passed
    main_consumer_log_queue: Passed
    main_consumer_log_thread_name: Passed
    main_consumer_max_in_flight: Passed
    main_consumer_max_in_flight_requests_per_connection: Passed
    main_consumer_max_partition_fetch_bytes: Passed
    main_consumer_message_copy_max_bytes: Passed
    main_consumer_message_max_bytes: Passed
    main_consumer_metadata_max_age_ms: Passed
    main_consumer_metadata_recovery_rebootstrap_trigger_ms: Passed
    main_consumer_metadata_recovery_strategy: Passed
    main_consumer_offset_store_method: Passed
    main_consumer_offset_store_path: Passed
    main_consumer_offset_store_sync_interval_ms: Passed
    main_consumer_plugin_library_paths: Passed
    main_consumer_queued_max_messages_kbytes: Passed
    main_consumer_queued_min_messages: Passed
    main_consumer_receive_message_max_bytes: Passed
    main_consumer_reconnect_backoff_jitter_ms: Passed
    main_consumer_reconnect_backoff_max_ms: Passed
    main_consumer_reconnect_backoff_ms: Passed
    main_consumer_retry_backoff_max_ms: Passed
    main_consumer_retry_backoff_ms: Passed
    main_consumer_sasl_mechanism: Passed
    main_consumer_sasl_mechanisms: Passed
    main_consumer_sasl_password: Passed
    main_consumer_sasl_username: Passed
    main_consumer_security_protocol: Passed
    main_consumer_share_acknowledgement_mode: Passed
    main_consumer_socket_blocking_max_ms: Passed
    main_consumer_socket_connection_setup_timeout_ms: Passed
    main_consumer_socket_keepalive_enable: Passed
    main_consumer_socket_max_fails: Passed
    main_consumer_socket_nagle_disable: Passed
    main_consumer_socket_receive_buffer_bytes: Passed
    main_consumer_socket_send_buffer_bytes: Passed
    main_consumer_socket_timeout_ms: Passed
    main_consumer_ssl_ca_location: Passed
    main_consumer_ssl_ca_pem: Passed
    main_consumer_ssl_certificate_location: Passed
    main_consumer_ssl_cipher_suites: Passed
    main_consumer_ssl_curves_list: Passed
    main_consumer_ssl_endpoint_identification_algorithm: Passed
    main_consumer_ssl_key_location: Passed
    main_consumer_ssl_key_password: Passed
    main_consumer_statistics_interval_ms: Passed
    main_consumer_topic_blacklist: Passed
    main_consumer_topic_metadata_propagation_max_ms: Passed
    main_consumer_topic_metadata_refresh_fast_cnt: Passed
    main_consumer_topic_metadata_refresh_fast_interval_ms: Passed
    main_consumer_topic_metadata_refresh_interval_ms: Passed
    main_consumer_topic_metadata_refresh_sparse: Passed
    producer_allow_auto_create_topics: Passed
    producer_api_version_fallback_ms: Passed
    producer_api_version_request: Passed
    producer_api_version_request_timeout_ms: Passed
    producer_batch_num_messages: Passed
    producer_batch_size: Passed
    producer_broker_address_family: Passed
    producer_broker_address_ttl: Passed
    producer_broker_version_fallback: Passed
    producer_client_dns_lookup: Passed
    producer_client_rack: Passed
    producer_compression_codec: Passed
    producer_compression_level: Passed
    producer_compression_type: Passed
    producer_connections_max_idle_ms: Passed
    producer_debug: Passed
    producer_delivery_timeout_ms: Passed
    producer_enable_gapless_guarantee: Passed
    producer_enable_metrics_push: Passed
    producer_enable_random_seed: Passed
    producer_enable_ssl_certificate_verification: Passed
    producer_linger_ms: Passed
    producer_log_connection_close: Passed
    producer_log_queue: Passed
    producer_log_thread_name: Passed
    producer_max_in_flight: Passed
    producer_max_in_flight_requests_per_connection: Passed
    producer_message_copy_max_bytes: Passed
    producer_message_max_bytes: Passed
    producer_message_send_max_retries: Passed
    producer_message_timeout_ms: Passed
    producer_metadata_max_age_ms: Passed
    producer_metadata_recovery_rebootstrap_trigger_ms: Passed
    producer_metadata_recovery_strategy: Passed
    producer_plugin_library_paths: Passed
    producer_produce_offset_report: Passed
    producer_queue_buffering_backpressure_threshold: Passed
    producer_queue_buffering_max_kbytes: Passed
    producer_queue_buffering_max_messages: Passed
    producer_queue_buffering_max_ms: Passed
    producer_queuing_strategy: Passed
    producer_receive_message_max_bytes: Passed
    producer_reconnect_backoff_jitter_ms: Passed
    producer_reconnect_backoff_max_ms: Passed
    producer_reconnect_backoff_ms: Passed
    producer_request_timeout_ms: Passed
    producer_retries: Passed
    producer_retry_backoff_max_ms: Passed
    producer_retry_backoff_ms: Passed
    producer_sasl_mechanism: Passed
    producer_sasl_mechanisms: Passed
    producer_sasl_password: Passed
    producer_sasl_username: Passed
    producer_security_protocol: Passed
    producer_socket_blocking_max_ms: Passed
    producer_socket_connection_setup_timeout_ms: Passed
    producer_socket_keepalive_enable: Passed
    producer_socket_max_fails: Passed
    producer_socket_nagle_disable: Passed
    producer_socket_receive_buffer_bytes: Passed
    producer_socket_send_buffer_bytes: Passed
    producer_socket_timeout_ms: Passed
    producer_ssl_ca_location: Passed
    producer_ssl_ca_pem: Passed
    producer_ssl_certificate_location: Passed
    producer_ssl_cipher_suites: Passed
    producer_ssl_curves_list: Passed
    producer_ssl_endpoint_identification_algorithm: Passed
    producer_ssl_key_location: Passed
    producer_ssl_key_password: Passed
    producer_statistics_interval_ms: Passed
    producer_sticky_partitioning_linger_ms: Passed
    producer_topic_blacklist: Passed
    producer_topic_metadata_propagation_max_ms: Passed
    producer_topic_metadata_refresh_fast_cnt: Passed
    producer_topic_metadata_refresh_fast_interval_ms: Passed
    producer_topic_metadata_refresh_interval_ms: Passed
    producer_topic_metadata_refresh_sparse: Passed
    restore_consumer_api_version_fallback_ms: Passed
    restore_consumer_api_version_request: Passed
    restore_consumer_api_version_request_timeout_ms: Passed
    restore_consumer_auto_commit_enable: Passed
    restore_consumer_broker_address_family: Passed
    restore_consumer_broker_address_ttl: Passed
    restore_consumer_broker_version_fallback: Passed
    restore_consumer_check_crcs: Passed
    restore_consumer_client_dns_lookup: Passed
    restore_consumer_client_rack: Passed
    restore_consumer_connections_max_idle_ms: Passed
    restore_consumer_consume_callback_max_messages: Passed
    restore_consumer_coordinator_query_interval_ms: Passed
    restore_consumer_debug: Passed
    restore_consumer_enable_metrics_push: Passed
    restore_consumer_enable_random_seed: Passed
    restore_consumer_enable_ssl_certificate_verification: Passed
    restore_consumer_fetch_error_backoff_ms: Passed
    restore_consumer_fetch_max_bytes: Passed
    restore_consumer_fetch_message_max_bytes: Passed
    restore_consumer_fetch_min_bytes: Passed
    restore_consumer_fetch_queue_backoff_ms: Passed
    restore_consumer_fetch_wait_max_ms: Passed
    restore_consumer_group_protocol_type: Passed
    restore_consumer_log_connection_close: Passed
    restore_consumer_log_queue: Passed
    restore_consumer_log_thread_name: Passed
    restore_consumer_max_in_flight: Passed
    restore_consumer_max_in_flight_requests_per_connection: Passed
    restore_consumer_max_partition_fetch_bytes: Passed
    restore_consumer_message_copy_max_bytes: Passed
    restore_consumer_message_max_bytes: Passed
    restore_consumer_metadata_max_age_ms: Passed
    restore_consumer_metadata_recovery_rebootstrap_trigger_ms: Passed
    restore_consumer_metadata_recovery_strategy: Passed
    restore_consumer_offset_store_method: Passed
    restore_consumer_offset_store_path: Passed
    restore_consumer_offset_store_sync_interval_ms: Passed
    restore_consumer_plugin_library_paths: Passed
    restore_consumer_queued_max_messages_kbytes: Passed
    restore_consumer_queued_min_messages: Passed
    restore_consumer_receive_message_max_bytes: Passed
    restore_consumer_reconnect_backoff_jitter_ms: Passed
    restore_consumer_reconnect_backoff_max_ms: Passed
    restore_consumer_reconnect_backoff_ms: Passed
    restore_consumer_retry_backoff_max_ms: Passed
    restore_consumer_retry_backoff_ms: Passed
    restore_consumer_sasl_mechanism: Passed
    restore_consumer_sasl_mechanisms: Passed
    restore_consumer_sasl_password: Passed
    restore_consumer_sasl_username: Passed
    restore_consumer_security_protocol: Passed
    restore_consumer_share_acknowledgement_mode: Passed
    restore_consumer_socket_blocking_max_ms: Passed
    restore_consumer_socket_connection_setup_timeout_ms: Passed
    restore_consumer_socket_keepalive_enable: Passed
    restore_consumer_socket_max_fails: Passed
    restore_consumer_socket_nagle_disable: Passed
    restore_consumer_socket_receive_buffer_bytes: Passed
    restore_consumer_socket_send_buffer_bytes: Passed
    restore_consumer_socket_timeout_ms: Passed
    restore_consumer_ssl_ca_location: Passed
    restore_consumer_ssl_ca_pem: Passed
    restore_consumer_ssl_certificate_location: Passed
    restore_consumer_ssl_cipher_suites: Passed
    restore_consumer_ssl_curves_list: Passed
    restore_consumer_ssl_endpoint_identification_algorithm: Passed
    restore_consumer_ssl_key_location: Passed
    restore_consumer_ssl_key_password: Passed
    restore_consumer_statistics_interval_ms: Passed
    restore_consumer_topic_blacklist: Passed
    restore_consumer_topic_metadata_propagation_max_ms: Passed
    restore_consumer_topic_metadata_refresh_fast_cnt: Passed
    restore_consumer_topic_metadata_refresh_fast_interval_ms: Passed
    restore_consumer_topic_metadata_refresh_interval_ms: Passed
    restore_consumer_topic_metadata_refresh_sparse: Passed
    sasl_mechanism: Passed
    sasl_mechanisms: Passed
    sasl_password: Passed
    sasl_username: Passed
    security_protocol: Passed
    ssl_ca_location: Passed
    ssl_ca_pem: Passed
    ssl_certificate_location: Passed
    ssl_cipher_suites: Passed
    ssl_curves_list: Passed
    ssl_endpoint_identification_algorithm: Passed
    ssl_key_location: Passed
    ssl_key_password: Passed
    topic_compression_gzip_level: Passed
    topic_compression_lz4_level: Passed
    topic_compression_type: Passed
    topic_compression_zstd_level: Passed
    topic_delete_retention_ms: Passed
    topic_file_delete_delay_ms: Passed
    topic_flush_messages: Passed
    topic_flush_ms: Passed
    topic_index_interval_bytes: Passed
    topic_local_retention_bytes: Passed
    topic_local_retention_ms: Passed
    topic_max_compaction_lag_ms: Passed
    topic_max_message_bytes: Passed
    topic_message_timestamp_after_max_ms: Passed
    topic_message_timestamp_before_max_ms: Passed
    topic_min_cleanable_dirty_ratio: Passed
    topic_min_compaction_lag_ms: Passed
    topic_min_insync_replicas: Passed
    topic_preallocate: Passed
    topic_remote_log_copy_disable: Passed
    topic_remote_log_delete_on_disable: Passed
    topic_remote_storage_enable: Passed
    topic_retention_bytes: Passed
    topic_retention_ms: Passed
    topic_segment_bytes: Passed
    topic_segment_index_bytes: Passed
    topic_segment_jitter_ms: Passed
    topic_segment_ms: Passed
    topic_unclean_leader_election_enable: Passed


class StreamsSettings(PassedSettings, total=False):
    """The settings as keywords, for a function of yours with `**settings: Unpack[StreamsSettings]`: all keys of
    [Configuration](configuration.md), and those that are passed on to Kafka's clients and to internal topics. So type
    checkers know each key, and the type of the values that it takes."""

    application_id: str
    bootstrap_servers: Names
    milestones: Words
    processing_guarantee: Literal["at_least_once", "exactly_once_v2"] | str
    num_stream_threads: int | str
    client_id: str | None
    commit_interval_ms: int | str
    poll_ms: int | str
    max_poll_records: int | str
    max_task_idle_ms: int | str
    task_timeout_ms: int | str
    task_failed: Literal["shutdown_client", "end_task", "replace"] | str
    auto_offset_reset: OffsetReset
    default_key_serde: str | SerdeLike[Any] | None
    default_value_serde: str | SerdeLike[Any] | None
    default_timestamp_extractor: str | TimestampExtractor | None
    processor_wrapper: str | ProcessorWrapper | type[ProcessorWrapper] | None
    deserialization_exception_handler: str | Handler
    processing_exception_handler: str | Handler
    production_exception_handler: str | Handler
    topology_optimization: Words | None
    ensure_explicit_internal_resource_naming: bool | str
    dsl_store_format: Literal["default", "headers"] | str
    stream_join_unmatched: Literal["after_grace", "at_once"] | str
    errors_dead_letter_queue_topic_name: str | None
    num_processing_threads: int | str
    task_priorities: str | Mapping[int, int | str] | Mapping[str, int | str]
    output_buffer_max_bytes: int | str
    state_dir: str | PathLike[str]
    state_cleanup_delay_ms: int | str
    state_sync_interval_ms: int | str
    state_full: Literal["wait", "stop"] | str
    unlogged_state: Literal["accept", "refuse"] | str
    statestore_cache_max_bytes: int | str
    statestore_read_cache_max_bytes: int | str
    statestore_uncommitted_max_bytes: int | str
    state_write_interval_ms: int | str
    statestore_waiting_max_bytes: int | str
    buffered_records_per_partition: int | str
    input_buffer_max_bytes: int | str
    windowstore_changelog_additional_retention_ms: int | str
    rocksdb_engine: Literal["rocksdict", "rocksdb"] | str
    rocksdb_block_cache_bytes: int | str
    rocksdb_write_buffer_bytes: int | str
    rocksdb_max_write_buffers: int | str
    restore_active_weight: int | str
    snapshot_url: str | None
    snapshot_options: str | Mapping[str, str | int]
    snapshot_encryption_key: str | None
    snapshot_interval_ms: int | str
    snapshot_timeout_ms: int | str
    num_standby_replicas: int | str
    max_warmup_replicas: int | str
    acceptable_recovery_lag: int | str
    task_assignor: str | Assignor
    client_tags: str | Mapping[str, str]
    rack_aware_assignment_tags: Names
    replication_factor: int | str
    repartition_purge_interval_ms: int | str
    group_instance_id: str | None
    upgrade_from: Literal["v1"] | str | None
    close_timeout_ms: int | str
    request_timeout_ms: int | str
    session_timeout_ms: int | str
    heartbeat_interval_ms: int | str
    max_poll_interval_ms: int | str
    transaction_timeout_ms: int | str
    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"] | str
    metrics_sample_window_ms: int | str
    metrics_host: str
    metrics_port: int | str | None
    readiness: Literal["processing", "running"] | str
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] | str
    log_format: Literal["text", "json"] | str
