"""Which test proves each field report about ssh and hosts (area c, from C10 on). Data only, as in `matrix.py`."""

from __future__ import annotations

from faults.matrix import (
    CANNOT_RUN,
    CLOCK_BACK,
    CODES,
    CONTAINER_PIDS,
    KILLED_AGENT,
    LAST_HOLDER,
    LOCK_GONE,
    LOCK_KINDS,
    LOCKS,
    NETWORK,
    RECYCLED,
    RECYCLED_KEEPER,
    RESTARTED,
    SAME_ID,
    SWEEP,
    TOOL_FAILS,
    UNREADABLE,
    Row,
)

SHELLS = "ssh/test_shells.py::"
WAYS = "ssh/test_ways.py::"
CONFIGS = "ssh/test_configs.py::"
FAULTS = "ssh/test_faults.py::"
COMMANDS = "ssh/test_commands.py::"
CUTS = "ssh/test_cuts.py::"
ODD = "ssh/test_odd_machines.py::"
BARE = ODD + "test_where_nothing_may_be_executed_and_tools_are_missing_a_run_goes_its_way"
REPORTS = "cases/diagnostics/reports/"
FIRST_WORD = "unit/plan/test_first_word.py::"
ENVIRONMENT = "unit/agent_work/test_environment.py::"
NOT_HEARD = SHELLS + "test_a_shell_that_runs_nothing_is_told_with_its_first_lines"
EVERY_SHELL = WAYS + "test_every_login_shell_with_a_noisy_start_file"
CUT_ANYWHERE = CUTS + "test_an_apply_that_is_cut_anywhere_starts_once"
OUTLIVES = COMMANDS + "test_a_run_outlives_the_connection_and_is_stopped_later"
IPV6 = CONFIGS + "test_an_ipv6_literal_with_a_port_and_a_user"

HOSTS: dict[str, Row] = {
    "C10": Row(
        "a greeting in a start file broke what a program read",
        (
            SHELLS + "test_noise_on_both_streams_before_and_after_hides_nothing",
            NOT_HEARD,
            SHELLS + "test_a_door_that_only_talks_is_cut_off_and_shown",
            EVERY_SHELL,
        ),
    ),
    "C12": Row("csh, fish, a restricted shell", (EVERY_SHELL, NOT_HEARD)),
    "C14": Row(
        "an environment that only a start file activates",
        (
            REPORTS + "c14-activate.yaml",
            CANNOT_RUN,
            ENVIRONMENT + "test_it_does_not_vary_but_for_the_port",
            "integration/test_told.py::test_a_plan_says_that_the_first_word_of_a_command_is_no_program_there",
            FIRST_WORD + "test_a_word_that_is_no_program_there_is_a_warning_with_the_path_and_the_ways_out",
            FIRST_WORD + "test_an_environment_that_is_still_to_be_built_may_bring_it_and_a_built_one_is_looked_into",
        ),
    ),
    "C16": Row(
        "a wrapper hid the exit code", (CODES, REPORTS + "c16-conda-run.yaml", REPORTS + "c16-conda-run-through.yaml")
    ),
    "C17": Row(
        "what works by hand failed: Include, Match, hops, agents",
        (
            CONFIGS + "test_include_match_and_wildcards_as_ssh_reads_them",
            CONFIGS + "test_what_is_odd_for_a_program_on_pipes_is_obeyed_or_passed_over",
            CONFIGS + "test_a_proxy_command_carries_and_its_last_words_are_shown",
            WAYS + "test_two_jumps",
            WAYS + "test_a_certificate_instead_of_a_listed_key",
        ),
    ),
    "C18": Row(
        "the socket of a shared connection had too long a path",
        (
            CONFIGS + "test_long_names_deep_homes_and_other_letters_are_no_trouble",
            CONFIGS + "test_a_control_path_that_cannot_be_a_socket_is_gone_without",
        ),
    ),
    "C20": Row(
        "a question that nobody could see",
        (
            FAULTS + "test_an_unknown_host_key_is_refused_with_its_fingerprint",
            FAULTS + "test_a_changed_host_key_is_refused",
            FAULTS + "test_a_key_with_a_passphrase_and_no_agent",
            CONFIGS + "test_a_login_that_wants_something_typed_says_so_at_once",
        ),
    ),
    "C21": Row(
        "a code that changes, behind the key",
        (
            CONFIGS + "test_a_login_that_wants_something_typed_says_so_at_once",
            WAYS + "test_a_connection_that_a_person_opened_is_used",
        ),
    ),
    "C22": Row(
        "an IPv6 literal, split at its first colon",
        (
            "unit/hosts/test_ssh_route.py::test_a_target_is_taken_apart",
            IPV6,
            CONFIGS + "test_a_jump_by_an_ipv6_literal",
        ),
    ),
    "C24": Row("run again after a cut, two wrote into one folder", (CUT_ANYWHERE, SAME_ID, KILLED_AGENT)),
    "C26": Row(
        "a failed question, taken for a job that is gone",
        (
            OUTLIVES,
            UNREADABLE,
            "unit/plan/test_reconcile_cases.py::test_a_silent_machine_may_hold_the_run",
            "unit/wire/test_calls.py::test_a_reply_torn_at_any_byte_is_never_taken_for_a_whole_one",
        ),
    ),
    "C27": Row(
        "a lock on a network mount hung for ever",
        (NETWORK, "unit/agent/test_home.py::test_the_host_lock_is_had_by_one_and_refused_after_its_time"),
    ),
    "C29": Row(
        "a lock that was only a file with text",
        (
            LAST_HOLDER,
            LOCK_GONE,
            LOCK_KINDS,
            LOCKS + "test_a_child_that_inherited_the_descriptor_keeps_the_card_after_its_parent_was_killed",
        ),
    ),
    "C31": Row("a pid of before the reboot was a stranger's", (RECYCLED, RECYCLED_KEEPER, RESTARTED, CONTAINER_PIDS)),
    "C33": Row(
        "a clock that was ahead ended a job",
        (
            ODD + "test_a_clock_that_is_wrong_and_jumps_ends_nothing_and_makes_nothing_old",
            "unit/agent/test_stall.py::test_a_clock_that_was_set_ahead_is_no_silence_either",
            CLOCK_BACK,
            SWEEP + "test_a_clock_that_was_set_makes_no_young_log_old",
        ),
    ),
    "C34": Row("a Windows host", (SHELLS + "test_a_windows_host_is_recognised_and_nothing_is_started",)),
    "C35": Row("no flock, setsid or timeout on the host", (BARE,)),
    "C36": Row(
        "without a tool to lock, one path went on",
        (
            "faults/test_odd_hosts.py::test_where_the_kernel_gives_no_lock_nothing_starts_on_any_path",
            "unit/agent/test_home.py::test_a_file_system_without_hard_links_is_refused",
        ),
    ),
    "C37": Row("a temporary folder where nothing may be executed", (BARE,)),
    "C39": Row(
        "a python older than the helper",
        (
            "unit/hosts/test_bootstrap.py::test_an_old_python_says_so_instead_of_a_syntax_error",
            ODD + "test_an_old_python_with_an_older_one_beside_it_is_told",
            FAULTS + "test_no_python_there",
        ),
    ),
    "C41": Row(
        "a service manager that may execute nothing in a home",
        (
            "faults/test_survival.py::test_a_unit_that_may_execute_nothing_is_told_with_where_to_look",
            TOOL_FAILS,
        ),
        not_here="an enforcing SELinux",
    ),
    "C42": Row(
        "quotes were lost before the shell over there",
        (
            ODD + "test_what_the_spec_says_reaches_one_shell_byte_for_byte",
            ENVIRONMENT + "test_a_value_reaches_the_job_exactly_as_typed",
            EVERY_SHELL,
        ),
    ),
    "C44": Row(
        "caches in a folder that cannot be written",
        (
            "unit/plan/test_draft.py::test_cache_folders_that_cannot_serve_are_a_warning",
            "unit/plan/test_needed_room.py::test_what_is_nearly_full_is_told_once_for_each_file_system_with_its_inodes",
            ENVIRONMENT + "test_caches_are_always_set_below_data_or_in_the_home",
            FAULTS + "test_a_home_that_cannot_be_written",
        ),
    ),
    "C46": Row(
        "half open, and waiting for ever",
        (
            ODD + "test_a_connection_that_is_half_open_is_given_up_and_a_follower_goes_on_where_it_was",
            "unit/hosts/test_agent_link.py::test_silence_ends_at_the_deadline",
            FAULTS + "test_a_machine_that_swallows_packets",
        ),
    ),
}
