"""The tests of the oracle that may fail with the module of the checkout: why, in which files, which. All
parameters of a test are meant."""
MAY_FAIL = {
    "make demo counts in other words": """
        rollout/test_demo.py
            test_a_folder_is_imported_and_its_figures_are_shown
            test_a_folder_without_sessions_is_said
            test_recorded_sessions_add_up""",
    "Markdown escapes what would be misread, and no more": """
        report/test_report_kinds.py
            test_markdown_is_text_that_means_nothing""",
    "the message shows the value": """
        rollout/test_functions.py
            test_bad_items_write_nothing""",
    "the export of a fork names the fork": """
        rollout/test_formats.py
            test_a_format_is_found_read_and_given_back""",
    "the search finds whole words": """
        rollout/test_read.py
            test_search_finds_literal_text_in_any_case
            test_search_finds_what_tools_said_and_shows_it_on_one_line
            test_search_tells_a_message_once
        rollout/test_spans.py
            test_spans_of_each_dialect_say_the_same""",
    "it writes the inner table of heads, which is found and not stopped; rollouts refuses it": """
        rollout/test_schema.py
            test_a_trigger_that_skips_others_lets_no_replace_through
            test_history_cannot_be_broken""",
    "the texts of a ring are in a table of their own, and an agent's number is its rowid": """
        payload/test_ring.py
            test_reading_without_bodies_reads_no_body_page
        payload/test_ring_damage.py
            test_a_push_into_a_damaged_ring_names_the_table_and_changes_nothing
            test_check_finds_every_damage_of_a_ring""",
    "it names inner objects, or their columns": """
        cache/test_cache_functions.py
            test_damage_of_the_computed_tables_is_an_error_and_not_a_crash
        cache/test_cache_marks.py
            test_nothing_is_written_where_the_host_forbids_it
            test_reads_in_an_attached_schema_are_counted
        cache/test_cache_schema.py
            test_clear_leaves_nothing_and_one_receipt
            test_due_views_list_what_deleting_from_them_removes
        core/test_hostile_check.py
            test_check_finds_each_change_that_sql_cannot_stop
        core/test_hostile_receipts.py
            test_a_receipt_has_whole_numbers
        core/test_hostile_tricks.py
            test_the_row_of_payload_state_stays
        core/test_install.py
            test_check_finds_dropped_and_changed_guard_and_install_mends_it
            test_check_finds_rows_that_are_gone_and_install_brings_them_back
            test_check_sees_a_table_that_was_dropped_and_install_makes_it
            test_install_names_what_is_in_the_way_and_leaves_nothing
            test_install_of_what_is_not_whole_says_that_it_cannot_lock
            test_sql_files_run_alone_and_are_what_install_makes
            test_version_and_debug
        core/test_refused_calls.py
            test_a_check_that_may_not_read_is_not_reported_as_a_problem
        core/test_uninstall.py
            test_a_schema_that_the_stock_shell_installed_is_removed_as_well
            test_a_table_that_another_program_made_stays_with_its_rows
            test_refuses_what_would_lose_data_and_names_it
        evidence/test_hostile_evidence.py
            test_no_blob_is_written_in_place
        payload/test_archive_bytes.py
            test_rows_without_a_date_neither_count_nor_go
        payload/test_archive_cleanup.py
            test_plan_lists_exactly_what_the_act_removes
        payload/test_archive_guards.py
            test_a_trigger_on_a_view_that_inserts_use_cannot_keep_evidence_unpinned
            test_check_finds_what_was_taken_away
        payload/test_archive_plans.py
            test_counting_and_choosing_read_no_body
            test_documented_queries_seek_and_need_no_sort
            test_statements_inside_the_functions_seek
            test_statements_inside_triggers_seek
        payload/test_evidence_archived.py
            test_an_archived_row_becomes_evidence_also_without_the_module
        payload/test_pack.py
            test_without_the_module_rows_go_and_their_texts_are_counted
        payload/test_ring.py
            test_defensive_mode_protects_the_tables_of_a_ring
        retention/test_erase.py
            test_after_its_time_a_key_can_be_used_again
            test_check_finds_a_broken_record_and_install_makes_lost_guards
            test_the_overflow_of_a_lost_buffer_goes
        retention/test_holds.py
            test_check_finds_what_is_held_and_gone
            test_ten_thousand_holds_do_not_scan
            test_what_is_held_survives_every_statement_on_any_connection
        retention/test_holds_tables.py
            test_an_idle_agent_that_is_held_stays
        retention/test_plan.py
            test_the_plan_lists_the_due_rows_of_every_domain_in_the_order_they_fell_due
        retention/test_work.py
            test_the_look_for_work_seeks
        rollout/test_derived.py
            test_a_rebuild_of_one_leaves_the_others
            test_damaged_payloads_do_not_stop_a_rebuild
            test_the_schema_alone_rebuilds
        rollout/test_read.py
            test_damage_is_named_and_the_rest_readable""",
    "it has statements for the shell, which are not translated": """
        cache/test_cache_schema.py
            test_in_the_shell_with_defensive_mode
        payload/test_loops.py
            test_defensive_mode_and_an_untrusted_schema
        rollout/test_functions.py
            test_the_functions_work_in_defensive_mode
        rollout/test_transfer.py
            test_memory_does_not_grow_with_the_file""",
    "a row keeps its id, an INSERT alone makes room, and packed texts count in full": """
        payload/test_archive_adoption.py
            test_pinned_rows_found_there_are_guarded
        payload/test_archive_bytes.py
            test_a_lower_limit_makes_room_and_0_or_a_delete_ends_it
            test_a_row_that_is_larger_than_the_limit_is_refused
            test_payload_cleanup_removes_what_a_lower_limit_left
            test_plain_sql_makes_room_on_request
            test_the_receipt_lists_only_rows_that_are_gone
        payload/test_archive_guards.py
            test_evidence_cannot_be_overwritten_at_rowid_minus_one
        payload/test_pack.py
            test_the_limit_in_bytes_counts_what_packed_rows_really_take
        retention/test_holds.py
            test_a_held_row_of_the_archive_can_become_evidence
        retention/test_holds_archive.py
            test_a_table_of_another_program_is_guarded_with_all_its_columns""",
    "one message for the values of a row, and for its right size": """
        payload/test_archive_guards.py
            test_bad_values_are_refused_in_new_and_changed_rows""",
    "the newest texts wait for the index of the search, and are searched all the same": """
        retention/test_erase.py
            test_no_part_of_a_text_is_left_in_the_search_index""",
    "one message for the actor and the reason of an unpin": """
        core/test_hostile_unpins.py
            test_who_unpins_and_why_can_be_seen
        payload/test_archive_guards.py
            test_unpin_needs_actor_reason_and_a_pinned_row""",
    "what TEMP triggers, and writes into inner tables, do is found, and no longer refused": """
        core/test_hostile_tricks.py
            test_a_row_with_rowid_minus_one_is_not_pinned_until_it_has_another
            test_no_pin_is_set_while_the_ledger_cannot_be_counted
            test_no_sequence_of_statements_changes_pinned_rows
            test_the_ledger_is_always_counted
        retention/test_erase.py
            test_no_statement_changes_the_record
        retention/test_hostile_holds.py
            test_no_trick_of_several_statements""",
    "incremental blob I/O is found by the log, and no longer refused": """
        core/test_hostile_statements.py
            test_no_incremental_blob_write_changes_pinned_rows
        retention/test_holds.py
            test_no_incremental_write_changes_a_step""",
    "a plain INSERT takes an id and the session_meta whole, and what that says is derived": """
        rollout/test_functions.py
            test_instructions_are_given_once
        rollout/test_read.py
            test_a_damaged_session_meta_hides_nothing
        rollout/test_schema.py
            test_insert_keeps_every_column
            test_insert_makes_session_meta_and_counters
            test_insert_refuses_values_that_it_could_not_keep
            test_insert_without_id_makes_one
            test_redaction_reaches_list_and_size
            test_session_meta_stays_one""",
    "an item is written as type and payload": """
        rollout/test_schema.py
            test_bad_items_are_refused
        rollout/test_triggers.py
            test_a_trigger_records_into_another_conversation_or_is_refused
            test_half_a_surrogate_pair_is_refused_as_a_type_in_plain_sql""",
    "the pins are rows of the log, and each has a leaf in place of a hash": """
        core/test_hostile_hashes.py
            test_a_pin_without_the_module_has_its_hash_from_the_next_call
        payload/test_archive_cleanup.py
            test_stats_count_rows_bytes_and_pins
        payload/test_pack.py
            test_no_function_puts_another_text_into_a_pinned_row
            test_the_door_needs_the_hash_of_the_row""",
    "a report answers first, a call is named by its tool, and items share blocks": """
        report/test_report_kinds.py
            test_a_conversation_has_turns_marks_tokens_and_relations
            test_a_line_is_no_longer_than_an_item
        report/test_report_page.py
            test_the_shell_is_small""",
    "a phrase hides nothing, and a secret has a digit": """
        report/test_report_masks.py
            test_an_anchor_may_stay
            test_keys_of_vendors_are_masked_wherever_they_stand
            test_members_are_masked_at_every_depth_and_json_stays_json""",
    "a report shows the rows of the log, with their proofs": """
        report/test_report_kinds.py
            test_a_kill_switch_says_who_unpinned_and_what_went
            test_a_kill_switch_says_why_it_was_pulled
        report/test_report_proof.py
            test_a_row_can_be_recomputed_from_the_page
            test_what_is_masked_cannot_be_recomputed_and_the_page_says_so
            test_without_leaves_there_is_no_proof""",
    "blackbox_install() installs core and payload": """
        core/test_install.py
            test_a_row_of_blackbox_call_needs_no_arguments
            test_install_as_a_row_leaves_nothing_when_it_fails""",
    "blackbox_settings shows every setting, and takes text that is a number": """
        payload/test_archive_bytes.py
            test_refuses_other_limits
        payload/test_archive_cleanup.py
            test_settings_have_default_and_range
        payload/test_queue.py
            test_the_statement_that_the_message_names_turns_it_on
        payload/test_queue_durable.py
            test_a_history_that_is_rolled_back_marks_nothing
        retention/test_work.py
            test_the_settings_are_kept_as_numbers""",
    "the work that due_per_write switched on is always on": """
        cache/test_cache_lifetime.py
            test_an_expired_item_is_not_there_and_is_swept
        retention/test_erase.py
            test_rows_that_wait_elsewhere_do_not_come_back_and_do_not_block_the_others
        retention/test_work.py
            test_a_new_conversation_removes_expired_ones_if_it_is_asked_to
            test_a_new_item_removes_expired_ones_if_it_is_asked_to
            test_a_setting_says_how_many
            test_other_numbers_are_refused""",
    "the overflow has no guards, and a column of the cache is computed": """
        cache/test_cache_lifetime.py
            test_eviction_is_bounded_alike_in_sql_and_in_c
            test_protected_follows_the_metadata_whatever_is_written
        cache/test_cache_schema.py
            test_check_finds_what_was_damaged_behind_the_triggers
        evidence/test_hostile_evidence.py
            test_an_owner_with_evidence_stays
            test_no_column_of_the_overflow_frees_a_pinned_row
            test_no_statement_changes_a_pinned_row_of_the_overflow
        evidence/test_overflow.py
            test_no_statement_moves_a_row_of_evidence_to_another_rid
            test_overflowed_rows_can_be_changed_and_deleted
            test_plain_sql_keeps_the_overflow_counters
        retention/test_holds.py
            test_a_temporary_buffers_overflow_is_kept_for_its_owner
            test_check_finds_what_was_done_behind_the_guards
        retention/test_work.py
            test_new_things_of_every_domain_remember_the_time""",
    "every format is version 1, and a file of an earlier build is refused": """
        payload/test_ring_sql.py
            test_an_install_repairs_an_older_ring
        report/test_report_kinds.py
            test_a_database_shows_what_is_in_it_and_what_is_wrong
        retention/test_clock.py
            test_an_older_file_is_told_to_install""",
    "the rule similar is gone, with the columns for it": """
        payload/test_loops.py
            test_a_rule_that_is_off_by_default_is_reached_when_it_is_enabled
            test_a_rule_that_nobody_knows_and_an_allow_without_a_reason_are_refused
            test_each_threshold_is_reached_and_not_before
            test_payload_loops_says_how_far_a_rule_is_from_its_threshold
            test_the_ranges_of_an_agent
            test_the_score_counts_prompts_answers_and_tools
            test_what_a_human_allowed_is_not_raised""",
    "commands cannot be used in triggers": """
        payload/test_queue_flush.py
            test_a_row_that_a_trigger_queues_during_a_flush_waits_for_the_next""",
    "an error after the first write of a row ends the transaction": """
        payload/test_kill_switch.py
            test_a_ring_that_cannot_be_emptied_saves_nothing_by_the_function
            test_a_trigger_that_would_lose_exchanges_makes_the_kill_switch_fail
        rollout/test_transfer.py
            test_an_import_that_fails_leaves_nothing_also_as_a_row
        rollout/test_triggers.py
            test_counting_the_drops_is_part_of_the_append""",
    "receipts of refusals and of the clock are rows of the log: once a day, without a minute": """
        payload/test_loops.py
            test_replay_finds_in_the_evidence_what_was_found
        retention/test_clock.py
            test_a_confirmed_clock_goes_on
        retention/test_plan.py
            test_a_rule_that_cannot_be_applied_is_a_problem_and_stops_no_other
        retention/test_report.py
            test_the_domain_goes_alone
        retention/test_sweep.py
            test_a_rule_whose_table_is_gone_is_refused_and_stops_no_other
        retention/test_work.py
            test_a_write_never_fails_because_a_row_cannot_go""",
    "a hold and a rule say it in other words, and dbstat tells the pages of a domain": """
        retention/test_holds.py
            test_a_hold_cannot_be_shortened
            test_a_release_of_what_is_not_held_is_an_error
        retention/test_holds_tables.py
            test_a_ring_without_held_rows_can_be_dropped_and_renamed
        retention/test_plan.py
            test_a_rule_is_checked_when_it_is_written
            test_a_rule_that_cannot_be_applied_is_a_problem_and_stops_no_other
        retention/test_report.py
            test_a_file_that_can_shrink_in_steps_says_so
            test_a_report_only_reads
            test_an_empty_file
            test_arguments_are_checked
            test_pages_of_a_domain_are_counted_where_sqlite_can
            test_the_write_ahead_log_counts
            test_what_a_sweep_frees_in_an_older_file_only_vacuum_gives_back
            test_what_each_domain_uses_and_what_a_sweep_would_remove""",
    "the numbers of erasures are those of the log": """
        retention/test_erase.py
            test_the_certificate_tells_what_is_held_back_and_by_whom""",
    "the limit of a jump of the clock is no setting, and the message says so": """
        retention/test_clock.py
            test_the_error_says_both_times_and_the_limit""",
    "a hold changes rows, and no guards": """
        retention/test_holds_archive.py
            test_a_first_hold_as_a_row_is_refused_without_guards
            test_a_lost_guard_is_found_and_made_again
            test_an_archive_that_is_installed_after_the_hold_is_guarded
            test_guards_that_are_left_after_the_last_release_are_no_problem
            test_the_guards_exist_only_while_there_are_holds
        retention/test_holds_tables.py
            test_a_row_without_guards_is_refused_and_the_function_makes_them
            test_the_guards_exist_only_while_there_are_holds""",
    "a hold never keeps a cap from making a row, and never stops a kill switch": """
        retention/test_holds_archive.py
            test_a_trigger_of_the_user_is_no_way_around_a_hold
            test_held_rows_count_for_max_bytes_and_a_write_without_room_fails
        retention/test_holds_tables.py
            test_a_bound_takes_from_other_agents_and_fails_when_holds_leave_no_room
            test_a_copy_of_a_file_is_held_as_well
            test_a_full_ring_refuses_a_push_and_names_the_hold
            test_a_ring_that_is_made_later_has_the_guards
            test_an_agent_that_comes_after_the_hold_is_held""",
    "the tables of a ring have no triggers: what is written into them is found": """
        payload/test_ring_sql.py
            test_a_rename_repairs_an_older_ring
            test_plain_sql_changes_the_window
            test_plain_sql_keeps_the_counters
            test_the_sql_makes_the_same_objects_as_the_module
            test_the_stock_shell_loads_it_under_a_made_up_name
            test_the_stock_shell_pushes
            test_the_view_lists_contradictions
        retention/test_holds_tables.py
            test_a_hold_released_without_the_module_lets_a_push_through
            test_rows_of_a_ring_survive_every_statement
            test_the_row_of_an_agent_is_no_way_around_the_guards""",
    "a verdict that a trigger of the user refuses is left out": """
        payload/test_loops.py
            test_a_trigger_that_pushes_into_the_ring_is_refused
            test_a_trigger_that_refuses_the_verdict_refuses_the_push""",
    "the queue is a table of the connection: a ROLLBACK takes queued rows back": """
        payload/test_queue.py
            test_a_failed_flush_keeps_every_row_in_order_and_reports
            test_inside_a_transaction_rows_are_only_staged
            test_more_rows_than_a_batch_in_one_statement
            test_payload_queue_works_as_a_row_of_blackbox_call
            test_rows_go_to_the_schema_that_they_were_queued_for
            test_the_old_transaction_ends_and_close_keeps_them
            test_the_rest_is_written_when_the_connection_closes
        payload/test_queue_drop.py
            test_rows_deleted_in_a_transaction_come_back_with_its_rollback
        payload/test_queue_flush.py
            test_a_row_that_is_packed_at_once_is_not_taken_back
            test_rows_before_one_that_fails_in_another_table_leave_the_queue""",
    "what a packed body is stands in payload__packed, and a pack changes no schema": """
        payload/test_pack.py
            test_a_blob_of_the_user_is_never_misread
            test_a_pinned_row_that_is_packed_keeps_its_text
            test_columns_of_an_adopted_table_are_shown
            test_unpacking_leaves_the_file_as_it_was
            test_unpinned_rows_may_change_and_their_texts_go""",
    "rows are packed in the order in which they were stored, and with each write of the queue": """
        payload/test_pack.py
            test_packing_is_bounded_oldest_first_and_by_age""",
    "only the module writes the tables of a buffer, and pinned rows have a table of the domain": """
        evidence/test_buffer.py
            test_plain_connection_keeps_the_rules
            test_plain_sql_cannot_take_the_buffer_apart
        evidence/test_buffer_sql.py
            test_a_row_without_a_mask_is_stored
            test_a_screenshot_changes_with_its_size
            test_a_store_prunes_first
            test_commands_and_their_receipts
            test_the_stock_shell_loads_it_under_a_made_up_name
        evidence/test_hostile_evidence.py
            test_a_forged_list_of_removed_rows_removes_no_row_of_the_buffer
            test_every_removal_has_a_receipt
            test_no_statement_changes_a_pinned_row_of_a_buffer
            test_no_statement_changes_a_pinned_row_of_the_overflow
            test_the_state_of_a_buffer_is_one_row
        evidence/test_overflow.py
            test_evidence_that_the_file_lost_is_named
        retention/test_holds_tables.py
            test_a_held_buffer_survives_statements_without_the_module""",
    "retention_clock is a view": """
        retention/test_clock.py
            test_a_clock_that_has_jumped_ahead_stops_every_rule
            test_the_newest_time_is_guarded""",
    "the archive has other triggers, columns and plans": """
        core/test_hostile_check.py
            test_a_trigger_that_skips_ours_can_hide_the_delete_of_a_row_that_is_not_pinned
        payload/test_archive_adoption.py
            test_adoption_by_the_plain_sql_files
        payload/test_dates.py
            test_a_date_is_one_number
            test_a_date_that_cannot_be_computed_is_refused
            test_each_millisecond_is_read_as_it_was_written
            test_the_expression_of_a_date_is_the_same_everywhere
        payload/test_evidence_archived.py
            test_the_search_for_the_archived_row_is_bounded""",
    "what an install makes anew, and damage that it found, is told": """
        retention/test_clock.py
            test_a_lost_row_stops_the_rules_and_is_a_problem""",
    "an approval frees the pages of screenshots and of a sweep table": """
        evidence/test_approval.py
            test_approval_gives_pages_back_where_auto_vacuum_allows""",
    "one message for a value outside its range": """
        evidence/test_buffer.py
            test_bad_parameters_name_what_is_allowed
            test_parameters_and_commands_are_remembered
        evidence/test_export.py
            test_exports_of_an_empty_buffer_and_bad_arguments""",
    "max_screenshots may be set before the policy that uses it": """
        evidence/test_prune.py
            test_max_screenshots_is_refused_with_a_policy_that_does_not_use_it""",
    "a first buffer or ring installs its domain": """
        evidence/test_buffer.py
            test_drop_is_refused_while_evidence_is_pinned
        payload/test_kill_switch.py
            test_an_attached_ring_saves_into_its_own_file
            test_without_an_archive_in_its_file_the_ring_is_refused""",
    "a cap never refuses evidence, nor what is pushed into a ring": """
        evidence/test_buffer.py
            test_a_thousand_strategies_are_approved_and_rows_may_have_half_of_the_buffer
        evidence/test_prune.py
            test_a_row_larger_than_half_of_a_smaller_maximum_may_shrink
            test_one_large_capture_does_not_empty_the_buffer
        payload/test_ring_bounds.py
            test_a_failed_statement_takes_its_room_back
            test_a_row_above_the_bound_is_refused
        payload/test_ring_model.py
            test_random_operations_agree_with_the_model""",
    "its helper reads a trigger in the text of sql/": """
        retention/test_clock.py
            test_a_clock_behind_the_newest_time_removes_nothing_early
            test_a_given_time_is_neither_checked_nor_remembered
            test_a_write_remembers_no_time_that_is_in_doubt
            test_reading_writes_nothing
            test_writes_and_clean_ups_remember_the_time_once_an_hour
        retention/test_work.py
            test_a_clock_in_doubt_removes_nothing_and_fails_no_write""",
    "a certificate names its steps in another order, and takes the option remember": """
        retention/test_erase.py
            test_an_erasure_says_what_is_wrong_with_it_and_changes_nothing
            test_no_canary_is_left_in_the_file_or_the_log""",
    "a clear writes what waits first, into the schema for which it waits": """
        core/test_uninstall.py
            test_rows_that_wait_in_the_queue_are_written_first
        payload/test_queue_drop.py
            test_clear_leaves_the_rows_that_wait_for_another_schema
            test_clear_removes_the_waiting_rows
        retention/test_erase.py
            test_what_waits_and_is_held_survives_a_clear""",
    "only the module writes the inner tables of rollout, and check finds what others do": """
        rollout/test_derived.py
            test_a_plain_insert_of_the_next_item_counts_as_any_other
            test_a_trigger_starts_a_whole_conversation_or_none
            test_an_insert_gives_no_counters
            test_an_upsert_of_an_unknown_id_makes_a_whole_conversation
            test_an_upsert_of_an_unknown_id_takes_the_expiry_that_is_given
        rollout/test_errors.py
            test_every_call_that_fails_tells_the_name_of_its_error
        rollout/test_schema.py
            test_a_trigger_hides_no_replace
            test_an_item_is_never_overwritten
        rollout/test_triggers.py
            test_a_conversation_of_which_a_trigger_ignores_the_first_item_is_refused
            test_a_trigger_before_an_item_fires_once
            test_an_item_keeps_its_place_by_any_name
            test_recording_into_the_conversation_that_is_written_is_refused
            test_segments_go_only_with_their_conversation""",
    "what plain SQL wrote is derived by the next call that writes": """
        rollout/test_derived.py
            test_a_title_that_a_user_gave_outlives_items_and_redaction
            test_what_lists_show_is_right_however_items_come
        rollout/test_functions.py
            test_payload_type_with_nul_is_the_same_in_both_ways
            test_policy_agrees_with_the_schema
            test_row_from_a_users_trigger
        rollout/test_read.py
            test_search_follows_redaction_and_expiry
            test_search_goes_by_who_said_it_and_follows_redaction_of_one
        rollout/test_schema.py
            test_a_message_after_a_rollback_is_new
            test_a_message_told_twice_is_one_turn
            test_counters_follow_every_insert
            test_user_events_and_turns_are_counted_by_kind
        rollout/test_triggers.py
            test_a_message_that_a_trigger_records_while_an_item_is_read_is_read_too
        rollout/test_usage.py
            test_running_totals_count_once_and_belong_to_the_model_of_their_turn""",
    "an install makes a lost table, and rollout_rebuild() derives its rows": """
        rollout/test_derived.py
            test_an_install_mends_an_attached_file_with_an_odd_name""",
    "a preset without rows keeps everything, and check says so": """
        rollout/test_schema.py
            test_policy_is_data
            test_the_default_preset_cannot_go""",
    "one message for what a new payload keeps": """
        rollout/test_schema.py
            test_a_compaction_keeps_its_history
        rollout/test_triggers.py
            test_a_rollback_cannot_change_its_number_of_turns
            test_an_item_without_payload_cannot_become_a_message""",
    "receipts of one minute are one row": """
        payload/test_archive_cleanup.py
            test_the_log_keeps_its_newest_10000
        rollout/test_functions.py
            test_ttl_zero_and_cleanup_limit
        rollout/test_triggers.py
            test_a_cascade_into_another_domain_has_its_own_receipt""",
    "one table of formats, of the conditions of the archive and of rollout": """
        payload/test_payload_calls.py
            test_a_new_dialect_is_an_insert
            test_the_formats_are_those_of_the_schema_in_use
        rollout/test_formats.py
            test_a_format_of_text_is_two_inserts
            test_a_row_that_cannot_work_is_refused
            test_a_rule_that_was_rolled_back_is_forgotten
            test_the_formats_are_listed_and_a_new_one_is_an_insert
        rollout/test_usage.py
            test_calls_and_formats_cannot_be_changed_by_mistake""",
    "a file of no known format is an error, and a line that is not UTF-8 is an item": """
        rollout/test_formats.py
            test_a_line_that_cannot_be_read_names_no_conversation
            test_an_export_gives_back_the_file
        rollout/test_functions.py
            test_bad_calls_change_nothing
        rollout/test_import_from.py
            test_a_store_without_sessions_gives_none
        rollout/test_transfer.py
            test_damaged_lines_are_counted_and_named""",
    "an imported conversation stays, and an expired one can be exported": """
        rollout/test_functions.py
            test_an_expired_conversation_is_refused_by_name_and_not_shown
        rollout/test_transfer.py
            test_an_import_can_be_repeated_and_done_in_pieces
            test_lines_without_a_session_meta_come_in_under_a_given_id""",
    "a key with an escape is the key that it stands for, with every SQLite": """
        rollout/test_items.py
            test_items_are_read_as_sqlite_reads_them
            test_user_messages_are_seen_however_they_are_written""",
    "rollout_messages has texts only": """
        rollout/test_triggers.py
            test_values_that_are_not_text_become_null""",
    "one message for two or more reasons, or another name of an error": """
        cache/test_cache_functions.py
            test_two_schemas_are_ambiguous_until_chosen
        cache/test_cache_lifetime.py
            test_an_update_moves_the_expiry_and_a_write_sets_it_anew
        cache/test_cache_schema.py
            test_replace_by_id_and_by_key_and_update_or_replace
            test_session_row_marks_access_and_never_goes_back
            test_updates_are_checked_as_well
        core/test_error_names.py
            test_an_ambiguous_schema_is_an_error_with_a_name
            test_the_search_finds_the_raises_and_the_bxfails
        payload/test_archive_cleanup.py
            test_two_installs_are_ambiguous_until_one_is_chosen
        payload/test_kill_switch.py
            test_a_ring_in_temp_asks_which_of_two_archives
        payload/test_pack.py
            test_a_reference_is_in_one_row_only
            test_rows_are_shown_as_they_were
        payload/test_queue.py
            test_rows_for_a_file_that_was_detached_wait_for_it
        payload/test_queue_drop.py
            test_the_receipt_is_in_the_schema_for_which_the_rows_waited
        report/test_report_kinds.py
            test_what_is_not_right_is_refused""",
    "a wrong size is refused, and not corrected": """
        payload/test_archive_guards.py
            test_size_is_the_bytes_of_both_bodies_whatever_is_said""",
    "a limit of 50 bytes on patterns is the lowest that guards work with": """
        core/test_hostile_limits.py
            test_guards_need_no_pattern""",
    "receipts are rows of the log": """
        core/test_hostile_receipts.py
            test_another_receipt_takes_no_place""",
    "without a journal nothing is promised": """
        core/test_hostile_statements.py
            test_without_a_journal_pinned_rows_hold""",
    "a trigger of the user keeps a row of the queue out, as it does with an INSERT": """
        core/test_hostile_triggers.py
            test_a_flush_writes_all_or_nothing
        payload/test_queue_flush.py
            test_a_shortened_flush_by_the_row_path_fails_with_its_statement
            test_a_trigger_that_fails_without_undoing_writes_no_row_twice
            test_a_trigger_that_would_shorten_a_flush_makes_it_fail_as_a_whole
            test_another_file_under_the_name_of_a_schema_has_its_own_triggers""",
    "what is due and a trigger of the user refuses stays": """
        payload/test_archive_cleanup.py
            test_a_failing_cleanup_leaves_all_as_it_was""",
    "a kill switch of an agent that the ring does not know is an error": """
        payload/test_kill_switch.py
            test_an_agent_without_rows_saves_none
        payload/test_ring.py
            test_a_copy_of_the_file_continues_the_ring""",
    "one rule looks for what is new, also after a user who says the same again": """
        payload/test_loops.py
            test_a_rule_that_could_not_be_reached_is_refused
            test_a_user_who_speaks_begins_the_count_anew
            test_parallel_calls_find_their_results_by_id_in_any_order
        report/test_report_kinds.py
            test_the_exchanges_of_a_verdict_are_found_when_the_ring_had_others_before""",
    "a verdict may be changed or deleted, as the log keeps it": """
        payload/test_loops.py
            test_verdicts_are_records_and_leave_a_receipt""",
    "turns, and payloads that are not JSON, are checked in C": """
        rollout/test_schema.py
            test_check_finds_what_was_tampered_with""",
}
