"""Every field report has tests that hold its right outcome: the map, and that it is whole."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent

NUMBERS: Final = (
    1, 3, 5, 7, 8, 10, 12, 14, 16, 19, 21, 23, 24, 27, 28, 30, 32, 33, 34, 37, 41, 42, 43, 45, 46,
    48, 49, 53, 55, 57, 59, 61, 63, 64, 66, 68, 70, 71, 74, 75, 76, 78, 79, 82, 84, 86, 88, 89, 91,
    93, 94, 96, 98, 100, 102, 104,
)  # fmt: skip

RULES: Final = "integration/test_operator_rules.py"
STEPS: Final = "integration/test_steps.py"
STEP_RULES: Final = "integration/test_step_rules.py"
STEP_FAULTS: Final = "faults/test_step_faults.py"
BALANCES: Final = "integration/test_balances.py"
AUDIT: Final = "integration/test_audit.py"
REPAIR: Final = "integration/test_repair.py"
DOCTOR: Final = "integration/test_doctor.py"
INBOX: Final = "integration/test_inbox_commands.py"
INBOX_RULES: Final = "integration/test_inbox_rules.py"
INBOX_FAULTS: Final = "faults/test_inbox_faults.py"
DEAD_KILLS: Final = "faults/test_dead_kills.py"
DEAD_TWO: Final = "integration/test_dead_operators.py"
QUEUE: Final = "integration/test_queue.py"
QUEUE_UNIT: Final = "unit/domain/test_queue.py"
QUEUE_FAULTS: Final = "faults/test_queue_faults.py"
PAYLOAD: Final = "unit/domain/test_payload.py"
RETRY: Final = "unit/domain/test_retry.py"
TIMES: Final = "unit/domain/test_times.py"
DAYS: Final = "unit/domain/test_days.py"
AMOUNTS: Final = "unit/domain/test_amounts.py"
HOSTILE: Final = "unit/render/test_hostile_data.py"
TABLES: Final = "unit/render/test_tables.py"
SECRETS: Final = "unit/test_secrets.py"
CONFIG: Final = "cli/test_config_commands.py"
BOUNDARY: Final = "cli/test_boundary.py"
SHOW: Final = "integration/test_job_show.py"
DAY_RULES: Final = "integration/test_day_rules.py"

MAP: Final[dict[int, tuple[str, ...]]] = {
    # guards, flags and keys
    1: (
        f"{STEPS}::test_an_absent_or_null_flag_counts_as_false",
        f"{RULES}::test_a_missing_flag_is_refunded_once_like_a_false_one",
        f"{STEP_RULES}::test_each_rule_is_red_against_its_wrong_version",
    ),
    3: (
        f"{INBOX}::test_the_audit_measures_both_halves_of_every_key",
        f"{INBOX}::test_a_lookup_that_was_asked_for_fails_when_it_misses_or_is_not_enforced",
        f"{INBOX_RULES}::test_each_rule_is_red_against_its_wrong_version",
        f"{INBOX_RULES}::test_a_claim_that_another_unique_index_rejects_is_never_taken_for_done",
    ),
    5: (
        f"{RULES}::test_rows_in_the_way_of_the_unique_index_are_named_and_left",
        f"{DOCTOR}::test_rows_that_keep_the_unique_index_from_being_built_are_named",
    ),
    7: (
        f"{STEP_FAULTS}::test_a_lost_reply_on_a_replica_set_is_resolved_and_never_a_second_row",
        f"{STEP_FAULTS}::test_a_lost_reply_on_a_standalone_is_resolved_and_never_a_second_row",
    ),
    8: (
        f"{STEPS}::test_a_flag_without_its_row_is_completed_dated_by_the_flag",
        f"{STEPS}::test_without_the_unique_index_a_missing_row_is_refused_not_guessed",
        f"{SHOW}::test_a_lost_refund_is_a_problem_and_shows_what_is_due",
        f"{REPAIR}::test_two_repairs_and_a_go_style_worker_at_once_append_one_row",
    ),
    10: (f"{RULES}::test_a_typo_a_repeat_and_an_id_of_another_type_are_three_answers",),
    12: (
        f"{STEPS}::test_fifty_failure_signals_at_once_refund_once",
        f"{STEP_FAULTS}::test_twenty_processes_refund_one_job_once",
        f"{STEP_FAULTS}::test_a_job_held_by_a_killed_clients_transaction_is_exit_9_in_about_five_seconds",
    ),
    14: (f"{RULES}::test_reads_are_the_primarys_own_whatever_the_uri_prefers",),
    16: (f"{RULES}::test_a_file_of_ids_is_taken_line_by_line_each_id_once",),
    # ids, numbers and dates
    19: (
        f"{SHOW}::test_an_object_id_is_found_by_its_text_with_rows_under_text",
        f"{BALANCES}::test_a_row_may_spell_its_job_in_another_type",
        f"{RULES}::test_an_id_that_is_no_ones_is_not_found_and_never_a_balance_of_0",
    ),
    21: (
        f"{RULES}::test_a_balance_is_exact_past_64_bits_and_past_doubles",
        f"{AMOUNTS}::test_sums_stay_exact_past_64_bits_and_past_what_a_double_holds",
    ),
    23: (f"{RULES}::test_fractions_are_left_out_named_and_never_rounded_into_the_balance",),
    24: (f"{DAY_RULES}::test_undated_rows_of_the_window_refuse_their_account_and_never_lower_a_day",),
    27: (
        f"{DAY_RULES}::test_an_audit_goes_on_where_its_cursor_was_lost",
        f"{DAY_RULES}::test_an_audit_that_cannot_go_on_never_shows_a_part_as_the_whole",
    ),
    28: (
        f"{BALANCES}::test_fifty_rows_of_one_instant_come_once_each_in_the_same_order_every_time",
        f"{RULES}::test_rows_of_one_instant_come_once_each_in_one_order_with_a_running_balance",
    ),
    # days, summaries and rebuilds
    30: (
        f"{DAYS}::test_a_row_counts_on_the_day_of_the_day_zone",
        f"{DAY_RULES}::test_a_day_is_the_day_zones_whatever_the_shell_says",
        "unit/test_config.py::test_the_shells_time_zone_is_never_taken",
    ),
    32: (
        f"{TIMES}::test_a_one_day_range_holds_its_last_millisecond_and_not_the_next_midnight",
        f"{TIMES}::test_from_after_to_is_refused",
        f"{DAYS}::test_yesterday_at_half_past_midnight_is_the_day_that_just_ended",
    ),
    33: (f"{DAY_RULES}::test_a_summary_without_rows_becomes_zero_once",),
    34: (
        f"{DAY_RULES}::test_a_rebuild_beside_an_appender_ends_equal_to_the_ledger",
        "faults/test_inbox_storm.py::test_every_summary_equals_the_ledger_and_every_message_succeeded_once",
    ),
    37: (
        f"{AUDIT}::test_every_planted_fault_is_found_with_its_effect_and_nothing_else_is",
        f"{DAY_RULES}::test_drift_tells_how_many_times_too_high_a_day_is",
        f"{REPAIR}::test_a_double_refund_is_corrected_by_one_row_and_alarms_nobody_afterwards",
    ),
    41: (f"{DAY_RULES}::test_an_account_without_new_rows_does_not_drift",),
    # moving and removing jobs
    42: (
        f"{DEAD_KILLS}::test_a_killed_requeue_of_all_loses_and_doubles_none",
        f"{DEAD_KILLS}::test_a_killed_requeue_by_filter_loses_and_doubles_none_and_keeps_the_order",
    ),
    43: (
        f"{RULES}::test_a_push_that_a_stalled_server_answers_too_late_is_never_sent_twice",
        f"{QUEUE_FAULTS}::test_a_lost_reply_of_a_move_is_resolved_by_looking",
    ),
    45: (
        f"{RULES}::test_a_key_of_another_type_is_refused_before_anything_moves",
        f"{DOCTOR}::test_a_key_of_another_type_fails",
    ),
    46: (f"{RULES}::test_a_go_workers_bytes_are_moved_as_they_are_but_for_the_two_members",),
    48: (f"{RULES}::test_a_letter_chosen_by_digest_is_that_letter_though_the_list_has_moved_on",),
    49: (
        f"{RULES}::test_a_second_requeue_finds_nothing_and_pushes_nothing",
        f"{DEAD_TWO}::test_two_operators_move_each_letter_once_and_newcomers_stay",
    ),
    53: (
        "bench/test_server_holds.py::test_no_call_of_a_filtered_requeue_holds_the_server_for_10_ms",
        f"{RULES}::test_a_server_that_runs_somebodys_script_is_told_as_busy",
        f"{DOCTOR}::test_a_server_that_runs_a_script_is_busy_not_down",
    ),
    55: (
        f"{DOCTOR}::test_a_policy_that_drops_lists_warns",
        f"{RULES}::test_a_full_server_refuses_and_the_source_list_stays",
        "integration/test_roles.py::test_the_doctor_tells_the_roles_apart",
    ),
    57: (
        f"{RULES}::test_a_replica_is_refused_before_the_first_change",
        f"{RULES}::test_a_primary_that_becomes_a_replica_midway_leaves_every_letter_on_one_list",
        f"{DOCTOR}::test_a_replica_fails_its_role",
    ),
    # payloads
    59: (
        f"{RULES}::test_a_letter_that_is_not_utf_8_is_shown_escaped_and_left_and_the_good_one_moves",
    ),
    61: (
        f"{PAYLOAD}::test_every_field_but_the_two_is_the_same_digit_for_digit",
        f"{RULES}::test_a_go_workers_bytes_are_moved_as_they_are_but_for_the_two_members",
    ),
    63: (f"{PAYLOAD}::test_a_go_workers_entry_is_read",),
    64: (f"{PAYLOAD}::test_a_sentinel_time_means_due_now",),
    66: (
        f"{TIMES}::test_rfc3339_times_are_read_with_any_fraction_and_offset",
        f"{PAYLOAD}::test_kept_attempts_keep_their_spelling",
    ),
    68: (f"{RULES}::test_all_letters_are_counted_shown_and_moved_past_ten_thousand",),
    # backoff and attempts
    70: (
        f"{RETRY}::test_the_delay_doubles_with_each_attempt_up_to_the_cap",
        f"{RETRY}::test_a_base_of_zero_never_waits",
        f"{QUEUE}::test_no_count_overflows_the_wait",
    ),
    71: (
        f"{RETRY}::test_a_job_is_a_dead_letter_once_its_count_reaches_the_limit",
        f"{QUEUE_UNIT}::test_a_cap_of_one_attempt_never_retries",
        f"{QUEUE}::test_a_push_at_the_cap_moves_to_the_dead_letters",
    ),
    74: (
        f"{QUEUE}::test_due_is_judged_by_the_servers_clock_not_by_ours",
        f"{DOCTOR}::test_a_clock_that_is_off_is_told_with_the_figure",
    ),
    # refunds, credits, explaining a balance
    75: (
        f"{STEPS}::test_fifty_failure_signals_at_once_refund_once",
        f"{STEPS}::test_a_refund_against_a_recovery_never_pays_twice",
    ),
    76: (
        f"{AUDIT}::test_reclaim_candidates_go_through_a_pipe_into_reclaim",
        f"{STEPS}::test_force_refunds_a_job_that_succeeded",
        f"{STEPS}::test_a_running_job_may_be_refunded",
    ),
    78: (f"{RULES}::test_a_partial_foreign_refund_is_neither_repeated_nor_topped_up",),
    79: (f"{STEPS}::test_the_amount_is_the_charge_rows_whatever_the_cost_says_now",),
    82: (f"{STEPS}::test_a_reclaim_takes_a_balance_below_zero",),
    84: (f"{TIMES}::test_an_amount_that_could_mean_two_numbers_is_refused",),
    86: (
        f"{BALANCES}::test_rows_dated_in_the_future_count_and_are_said",
        f"{RULES}::test_a_row_dated_tomorrow_is_told_apart_and_the_explanation_adds_up",
    ),
    # claims and poison messages
    88: (
        f"{INBOX_FAULTS}::test_a_consumer_killed_at_any_step_loses_no_message",
        f"{INBOX_FAULTS}::test_a_frozen_consumers_late_finish_leaves_the_newer_one_as_it_is",
        f"{INBOX}::test_stuck_finds_circling_claims_whatever_attempts_says",
    ),
    89: (
        f"{INBOX}::test_stuck_finds_circling_claims_whatever_attempts_says",
        f"{INBOX}::test_a_failing_handler_counts_each_attempt_and_ends_dead",
        f"{DOCTOR}::test_a_message_that_circles_for_hours_fails_whatever_its_attempts",
        f"{DOCTOR}::test_what_failed_stands_above_the_rest",
    ),
    91: (f"{RULES}::test_a_claim_in_the_inbox_does_not_stop_a_requeue",),
    # the command line itself
    93: (
        f"{HOSTILE}::test_folded_words_lose_no_letter",
        f"{HOSTILE}::test_titles_heads_feet_notes_and_text_lines_are_data_too",
    ),
    94: (
        f"{HOSTILE}::test_no_character_of_the_data_acts_on_the_terminal",
        f"{HOSTILE}::test_json_escapes_every_control_bidi_and_surrogate_character_as_u",
    ),
    96: (
        f"{HOSTILE}::test_a_table_holds_every_id_whole_on_one_line",
        f"{TABLES}::test_an_id_inside_a_sentence_is_not_broken",
        f"{HOSTILE}::test_plain_gives_one_line_a_record_and_one_cell_a_column",
    ),
    98: (
        f"{RULES}::test_an_output_that_cannot_hold_a_character_never_looks_like_a_failed_refund",
        f"{BOUNDARY}::test_a_change_whose_result_cannot_be_printed_is_a_change_and_its_counts_go_to_stderr",
    ),
    100: (f"{RULES}::test_a_batch_without_a_terminal_and_without_a_yes_is_refused_before_any_work",),
    102: (
        f"{CONFIG}::test_config_show_hides_the_credentials_in_every_format",
        f"{CONFIG}::test_no_secret_is_shown_when_mongodb_refuses_the_connection",
        f"{CONFIG}::test_no_secret_is_shown_when_redis_refuses_the_connection",
        f"{DOCTOR}::test_a_wrong_password_fails_with_the_reason_and_without_the_password",
        f"{SECRETS}::test_redact_finds_a_password_in_every_spelling",
    ),
    104: (
        f"{CONFIG}::test_an_unescaped_password_is_one_short_error_without_it",
        f"{SECRETS}::test_an_unescaped_password_asks_for_percent_encoding_and_is_not_quoted",
    ),
}  # fmt: skip


@cache
def names_in(name: str) -> frozenset[str]:
    """The test functions of a file under tests."""
    path = ROOT / "tests" / name
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def test_every_report_has_its_tests() -> None:
    assert tuple(sorted(MAP)) == NUMBERS
    assert all(MAP.values())


@pytest.mark.parametrize("number", sorted(MAP))
def test_each_named_test_exists(number: int) -> None:
    missing = [one for one in MAP[number] if one.split("::")[1] not in names_in(one.split("::")[0])]
    assert not missing
