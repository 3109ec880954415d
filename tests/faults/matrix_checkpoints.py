"""Which test proves each field report about checkpoints and their upload (area e). Data only, as in `matrix.py`.

E05, E08 and E16 are answered by the plan: they stand in `matrix_plans.py` too, with the tests of that side.
"""

from __future__ import annotations

from faults.matrix import Row
from faults.matrix_plans import PLANS

OWN = "unit/agent_work/test_own_outputs.py::"
SAVED = "unit/agent_work/test_checkpoints.py::"
FILES = "unit/agent_work/test_checkpoint_files.py::"
RESUMING = "unit/agent_work/test_resuming.py::"
COPY = "unit/agent_work/test_upload.py::"
SERVERS = "faults/test_upload_servers.py::"
UPLOADS = "faults/test_uploads.py::"
EARLY = "faults/test_early_uploads.py::"
ALWAYS = "integration/test_upload_always.py::"
RESUME = "integration/test_resume.py::"
AGAIN = "proofs/test_uploads_again.py::"
SSH = "unit/agent_work/test_ssh_store.py::"
WHOLE_WAY = "proofs/test_whole_way.py::test_a_run_that_was_cut_ends_as_if_it_had_not_been"
CUT_SHORT = OWN + "test_a_checkpoint_that_a_kill_cut_short_is_left_out_and_named"

CHECKPOINTS: dict[str, Row] = {
    "E01": Row(
        "a kill in the middle of a save left a file that could not be loaded",
        (
            WHOLE_WAY,
            CUT_SHORT,
            ALWAYS + "test_what_a_kill_cut_short_is_left_out_and_named",
            SAVED + "test_what_a_reader_finds_torn_is_not_whole_however_old",
            COPY + "test_what_is_written_during_the_upload_is_never_called_uploaded",
            COPY + "test_a_stop_leaves_no_half_copied_file_on_the_target",
        ),
    ),
    "E02": Row(
        "what goes on by itself took the folder that the crash had cut short",
        (
            WHOLE_WAY,
            RESUME + "test_a_retry_goes_on_where_the_kill_came",
            RESUMING + "test_the_newest_that_is_whole",
            SAVED + "test_a_folder_that_a_kill_cut_short_is_not_whole",
        ),
    ),
    "E05": PLANS["E05"],
    "E07": Row(
        "checkpoints filled the disk while the run went on",
        (
            "unit/cli/test_checkpoint_screens.py::test_a_disk_that_has_no_room_for_the_next_ones_is_told_while_it_runs",
            EARLY + "test_what_was_pruned_while_it_ran_is_in_the_last_manifest",
            SAVED + "test_nothing_is_changed_by_looking",
        ),
    ),
    "E08": Row(
        PLANS["E08"].what,
        (
            *PLANS["E08"].tests,
            SERVERS + "test_a_state_folder_that_is_full_fails_the_upload_alone",
            SERVERS + "test_a_disk_that_fills_while_a_checkpoint_is_written_keeps_the_ones_before_and_uploads_those",
        ),
    ),
    "E09": Row(
        "a session of an hour ended in the middle of a large upload",
        (
            SERVERS + "test_a_login_that_runs_out_in_the_middle_is_waited_for_and_nothing_is_sent_twice",
            SERVERS + "test_wrong_keys_end_the_run_before_anything_trains",
            SERVERS + "test_keys_that_came_with_the_run_cannot_be_renewed_and_the_next_upload_brings_new_ones",
        ),
    ),
    "E11": Row(
        "a link to nothing ended the copy early, with code 0",
        (
            COPY + "test_links_to_nothing_and_out_are_missing_and_sockets_are_only_skipped",
            UPLOADS + "test_what_the_tool_does_not_notice_the_listing_does",
            SERVERS + "test_a_server_that_stores_less_than_it_was_given_is_found_out",
        ),
    ),
    "E13": Row(
        "links were left out, and the copy was not whole",
        (
            COPY + "test_everything_arrives_and_the_manifest_says_what",
            OWN + "test_a_link_is_as_good_as_what_it_leads_to",
            COPY + "test_a_link_to_a_folder_above_ends",
            "integration/test_remote_uploads.py::test_checkpoints_go_to_s3_and_are_listed_and_compared",
        ),
    ),
    "E15": Row(
        "a checkpoint was uploaded as soon as its first file was there",
        (
            EARLY + "test_each_whole_checkpoint_is_there_while_the_command_still_runs",
            EARLY + "test_a_checkpoint_that_is_written_over_is_sent_again_and_never_told_as_what_it_was",
            OWN + "test_a_mark_that_the_spec_names_makes_a_checkpoint_whole",
            CUT_SHORT,
        ),
    ),
    "E16": Row(
        PLANS["E16"].what,
        (
            *PLANS["E16"].tests,
            OWN + "test_what_a_run_of_before_left_in_the_same_folder_is_not_uploaded_as_this_ones",
            ALWAYS + "test_a_second_run_in_one_folder_uploads_its_own_alone",
            SAVED + "test_what_an_upload_left_out_was_not_uploaded",
        ),
    ),
    "E18": Row(
        "an upload that broke in the middle began from nothing",
        (
            SERVERS + "test_a_slow_way_that_is_cut_again_and_again_still_brings_everything",
            SERVERS + "test_files_that_never_get_through_fail_the_upload_alone_and_the_next_one_finishes_it",
            UPLOADS + "test_a_server_that_is_gone_fails_the_upload_alone_and_the_next_one_finishes_it",
            SSH + "test_a_transfer_that_is_cut_goes_on_where_it_was",
        ),
    ),
    "E19": Row(
        "a command that was done never ended, and the card stayed taken",
        (
            "faults/test_silence.py::test_ranks_that_wait_for_a_dead_one_are_told_as_silent_and_go_on",
            "ssh/test_whole_paths.py::test_a_run_from_its_start_to_its_checkpoint",
            ALWAYS + "test_a_run_that_was_stopped_is_uploaded_and_was_stopped",
        ),
    ),
    "E20": Row(
        "a training crashed in its clean-up, after the last good checkpoint",
        (
            ALWAYS + "test_a_run_that_failed_is_uploaded_and_has_failed",
            ALWAYS + "test_by_itself_only_a_success_is_uploaded",
            "unit/cli/test_screens.py::test_the_end_of_a_run",
        ),
    ),
    "E21": Row(
        "the process died during the upload, and nothing sent the rest",
        (
            SERVERS + "test_a_keeper_that_is_killed_while_it_uploads_leaves_an_upload_that_can_be_done_again",
            SERVERS + "test_a_keeper_that_is_killed_alone_leaves_an_upload_that_goes_on_and_counts",
            SERVERS + "test_a_tool_that_is_killed_is_started_again",
            AGAIN + "test_an_upload_that_failed_over_there_is_done_again_with_the_secrets_of_who_asks",
            AGAIN + "test_a_reboot_during_the_upload_costs_the_upload_alone",
        ),
    ),
    "E22": Row(
        "a copy ended with 0 and less than half of the file",
        (
            UPLOADS + "test_what_the_tool_does_not_notice_the_listing_does",
            SSH + "test_what_lies_there_otherwise_is_noticed_though_its_size_agrees",
            COPY + "test_reading_back_finds_what_the_copy_did_not_notice",
            COPY + "test_a_full_disk_is_a_failure_that_names_the_file",
        ),
    ),
}
