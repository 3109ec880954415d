"""Which test proves each field report that a plan, a survey or a machine's notes answer (areas a, e and n).

Data only, as in `matrix.py`. The choice of a card is in `matrix_cards.py`, what ssh and hosts do in `matrix_hosts.py`.
"""

from __future__ import annotations

from faults.matrix import Row

PLACE = "cases/place/"
REPORTS = "cases/diagnostics/reports/"
DRAFT = "unit/plan/test_draft.py::"
ROOMS = "unit/plan/test_rooms.py::"
NEEDED = "unit/plan/test_needed_room.py::"
DISKS = "faults/test_disks.py::"
SCREENS = "unit/plan/test_screens.py::"
NOTES = "unit/agent_work/test_notes.py::"

PLANS: dict[str, Row] = {
    "A09": Row(
        "values that no machine can have were found out late",
        (
            REPORTS + "a09-numbers.yaml",
            PLACE + "floors_of_the_host.yaml",
            DRAFT + "test_a_missing_requirements_file_is_refused",
            DRAFT + "test_a_missing_data_folder_is_refused_with_the_line_to_add",
        ),
    ),
    "E05": Row(
        "the output lay on a volume without room",
        (
            PLACE + "floors_of_the_host.yaml",
            PLACE + "disk_that_was_not_read.yaml",
            NEEDED + "test_all_that_is_written_on_one_file_system_is_added_up_and_each_is_counted_once",
            NEEDED + "test_files_need_inodes_where_there_is_a_number_of_them",
            NEEDED + "test_the_next_step_is_a_command_that_finds_the_room",
            DISKS + "test_a_disk_that_filled_after_the_plan_refuses_the_start_with_the_sum_and_leaves_nothing",
            DISKS + "test_a_disk_that_filled_while_a_run_was_set_up_fails_it_before_its_command",
            PLACE + "workspace_cannot_be_written.yaml",
            ROOMS + "test_a_volume_that_is_nearly_full_is_told_once_with_every_folder_on_it",
            DRAFT + "test_cache_folders_that_cannot_serve_are_a_warning",
        ),
    ),
    "E08": Row(
        "a full disk broke the last checkpoint, and every restart with it",
        (
            "cases/reconcile/failed.yaml",
            SCREENS + "test_records_that_refuse_or_upload",
            # Not as the run's reason: what its log says proves nothing.
            ROOMS + "test_a_run_that_failed_beside_a_full_disk_is_refused_with_that",
        ),
    ),
    "E16": Row(
        "a second run in the same folder uploaded the first one's model",
        (
            ROOMS + "test_a_checkpoint_folder_that_holds_something_is_told_where_a_run_begins_from_nothing",
            DRAFT + "test_where_checkpoints_lie",
            DRAFT + "test_where_checkpoints_are_uploaded_to",
        ),
    ),
    "N01": Row(
        "text planted in notes was obeyed",
        (
            ROOMS + "test_what_stands_in_notes_moves_nothing",
            SCREENS + "test_text_of_hosts_cannot_move_the_cursor_or_pose_as_ours",
            NOTES + "test_what_a_run_says_cannot_look_like_a_marker_or_move_a_cursor",
            "unit/cli/test_screens.py::test_notes_stand_behind_a_bar_without_control_characters",
        ),
    ),
    "N02": Row(
        "ten writers of one file lost each other's lines",
        (
            NOTES + "test_ten_jobs_that_end_at_once_all_get_in",
            NOTES + "test_the_same_job_has_one_block_however_often",
            NOTES + "test_a_link_is_never_followed",
        ),
    ),
}
