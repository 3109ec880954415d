"""Which test proves which row of the five lists of faults that supervision was designed against.

`MATRIX`: the fault matrix of the supervision design; `REGRESSIONS`: what other tools got wrong, its part 3;
`FIELD`, `DETACHING`, `LOGS`: what people reported of the ends of runs, of runs that outlive a login, of logs, areas
f, c and d of the field reports. Data only; `test_matrix.py` holds that no row is missing and that named tests exist.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One row: what happens, the tests that prove what we do then, what no test proves yet, what cannot run here."""

    what: str
    tests: tuple[str, ...] = ()
    gap: str = ""
    not_here: str = ""


KILLS = "faults/test_kills.py::"
EVERY_MOMENT = KILLS + "test_whatever_moment_keeper_and_pump_die_the_answer_is_true_and_stays"
ALONE = KILLS + "test_without_its_keeper_a_run_goes_on_and_then_nobody_knows_its_end"
ALL_KILLED = KILLS + "test_keeper_pump_and_job_killed_is_unknown_for_ever"
PUMP_KILLED = KILLS + "test_a_pump_killed_twenty_times_loses_no_line"
PUMP_STALLED = KILLS + "test_a_pump_that_stands_still_is_replaced"
PUMP_PAUSED = KILLS + "test_a_pump_that_is_stopped_for_a_while_and_goes_on_loses_no_line"
PUMP_SECRETS = "faults/test_secrets.py::test_killed_and_stopped_pumps_lose_no_line_and_show_no_value"
PUMP_ANYWHERE = "unit/agent/test_log.py::test_a_pump_killed_anywhere_loses_and_repeats_nothing"
REFUSED_WRITES = "unit/agent/test_log.py::test_what_the_disk_refuses_is_counted_to_the_byte"
FROZEN_KEEPER = KILLS + "test_a_stopped_keeper_only_delays_the_truth"
ENDINGS = "faults/test_endings.py::"
CODES = ENDINGS + "test_exit_codes_are_recorded_as_they_are"
SIGNALS = ENDINGS + "test_deaths_by_signal_have_no_number"
CANNOT_RUN = ENDINGS + "test_a_program_that_cannot_run_is_said_in_words"
CLEAN = ENDINGS + "test_the_job_sees_a_clean_process_and_an_end_of_input"
LEFTOVERS = ENDINGS + "test_background_children_are_ended_and_the_code_stays"
CODE_AT_ONCE = ENDINGS + "test_the_code_is_recorded_while_a_child_still_holds_the_output"
DETACHED = ENDINGS + "test_a_started_run_outlives_its_agent_and_keeps_nothing_of_it_open"
OLD_PYTHON = ENDINGS + "test_the_whole_of_it_runs_on_python_3_8"
RECORDS = "faults/test_records.py::"
BROKEN = RECORDS + "test_any_broken_record_leaves_the_others_listed"
UNREADABLE = RECORDS + "test_a_record_that_cannot_be_read_refuses_a_start_of_its_run"
RESTARTED = RECORDS + "test_after_a_restart_running_is_unknown_ended_stays_and_unstarted_may_start"
CLOCK_BACK = RECORDS + "test_a_clock_that_was_set_back_makes_no_old_job_the_newest"
STOP = "faults/test_stop.py::"
WILD = STOP + "test_a_tree_that_ignores_and_escapes_is_ended_whole"
WILD_ALONE = STOP + "test_without_a_keeper_the_agent_ends_the_tree_and_claims_no_code"
RECYCLED = STOP + "test_a_recycled_pid_is_never_signalled"
RECYCLED_KEEPER = STOP + "test_a_recycled_keeper_pid_is_never_poked"
NATURAL_END = STOP + "test_stop_at_the_moment_of_a_natural_end_is_one_of_two_truths"
HANDLER = STOP + "test_a_handler_runs_and_its_code_stands_beside_the_stop"
GROUP = STOP + "test_the_signal_reaches_the_shells_child_too"
GRACE = STOP + "test_the_grace_is_the_runs_own_and_a_second_stop_shortens_it"
FINISHED = STOP + "test_a_finished_job_is_left_as_it_is"
UNKNOWN_ID = STOP + "test_an_unknown_id_is_not_found"
RESERVED_STOPPED = STOP + "test_a_reservation_that_is_stopped_never_starts"
GROUPS = "faults/test_groups.py::"
NOT_OURS = GROUPS + "test_what_is_ours_is_not_counted_as_the_runs"
STORM = GROUPS + "test_a_tree_that_forks_on_and_on_is_ended_whole"
STORM_ALONE = GROUPS + "test_without_a_keeper_the_stopper_finds_what_hides"
STUCK = GROUPS + "test_a_tree_that_cannot_be_ended_is_named_and_ends_when_it_can"
OOM = GROUPS + "test_a_command_that_was_killed_for_memory_is_told_so"
OOM_WORKER = GROUPS + "test_a_worker_that_was_killed_for_memory_is_a_suspicion_beside_the_code"
OOM_OURS = GROUPS + "test_a_kill_of_ours_is_never_told_as_out_of_memory"
NO_CLAIM = GROUPS + "test_137_and_9_alone_are_no_claim"
LOG = "faults/test_log.py::"
CAP = LOG + "test_a_log_over_the_cap_keeps_head_and_newest_and_every_offset"
BYTES = LOG + "test_bytes_are_stored_as_they_are_and_any_offset_is_good"
OWN_LOG = LOG + "test_a_job_that_truncates_its_own_output_or_loses_its_log_goes_on"
FOLLOWER = LOG + "test_a_follower_waits_and_is_told_the_end"
FULL_LOG = LOG + "test_a_full_disk_drops_output_and_nothing_else"
FULL_START = LOG + "test_a_start_on_a_full_disk_is_refused_and_leaves_no_half_job"
ROOM_AGAIN = LOG + "test_output_goes_on_behind_a_marker_when_there_is_room_again"
DISKS = "faults/test_disks.py::"
FULL_END = DISKS + "test_a_disk_that_is_full_at_the_end_has_room_for_the_end"
REFUSED_END = DISKS + "test_a_disk_that_refuses_the_end_of_a_run_gets_it_when_it_takes_it_again"
REFUSED_START = DISKS + "test_a_start_that_the_disk_refuses_says_so_and_leaves_nothing"
READ_ONLY = DISKS + "test_what_runs_is_told_and_stopped_though_the_disk_is_read_only"
NO_INODE = DISKS + "test_without_an_inode_a_start_is_refused_and_a_run_still_ends"
ODD_HOSTS = (
    "faults/test_odd_hosts.py::test_a_run_keeps_its_code_and_leaves_nothing_behind",
    "faults/test_odd_hosts.py::test_a_stop_ends_the_whole_tree",
    "faults/test_odd_hosts.py::test_without_its_keeper_it_goes_on_is_told_and_is_stopped",
    "faults/test_odd_hosts.py::test_what_it_could_not_get_is_recorded",
)
MOMENT = "faults/test_ends_and_stops.py::"
AROUND_THE_END = MOMENT + "test_a_stop_around_the_very_moment_of_the_end_tells_one_of_two_truths"
JUST_BEFORE = MOMENT + "test_an_end_just_before_the_stop_stays_what_it_was"
BOTH_KILLED = MOMENT + "test_a_stop_whose_keeper_is_killed_before_it_acts_is_carried_out_by_whoever_looks"
STOPPER_KILLED = MOMENT + "test_a_stopper_that_is_killed_too_is_followed_by_another"
BESIDE = "faults/test_upgrades_and_sweeps.py::"
PUSHED_ANEW = BESIDE + "test_jobs_go_on_and_end_with_their_codes_while_the_agent_is_replaced_again_and_again"
SWEEP_RACE = BESIDE + "test_a_sweep_that_races_with_readers_and_ends_takes_no_code_and_no_living_folder"
AT_ONCE = BESIDE + "test_of_64_starts_at_once_32_run_and_the_others_are_told_the_limit"
SILENCE = (
    "faults/test_silence.py::test_ranks_that_wait_for_a_dead_one_are_told_as_silent_and_go_on",
    "faults/test_silence.py::test_a_silence_is_taken_back_when_it_speaks_and_told_again_the_next_time",
)
CHANGED = "faults/test_cards_that_change.py::"
DRAINS = (CHANGED + "test_a_card_that_drains_slowly_is_given_on_when_it_is_empty_and_not_before",)
OTHERS_CHILD = "faults/test_odd_hosts.py::test_a_process_of_another_account_is_named_by_the_stop_that_cannot_end_it"
RESTARTS = "faults/test_restarts.py::"
CONTAINER = RESTARTS + "test_after_a_restart_running_is_unknown_ended_stays_and_reserved_may_start"
CONTAINER_LINE = RESTARTS + "test_who_stood_in_line_when_the_container_went_never_started_and_the_card_is_free"
CONTAINER_PIDS = RESTARTS + "test_whoever_got_the_pid_of_a_job_of_the_last_container_is_not_stopped"
NOBODY_REAPS = RESTARTS + "test_a_run_in_a_container_ends_with_its_code_though_nobody_reaps"
ONCE = "faults/test_at_most_once.py::"
KILLED_AGENT = ONCE + "test_an_agent_killed_while_it_starts_a_run_starts_it_once_or_not_at_all"
SAME_ID = ONCE + "test_the_same_id_has_the_same_answer"
NOBODY_ASKS = ONCE + "test_nothing_starts_when_nobody_asks_again"
TOO_MANY = ONCE + "test_too_many_jobs_are_refused_and_dead_ones_do_not_count"
CARDS = "faults/test_cards_and_line.py::"
STUCK_CARD = CARDS + "test_the_card_of_a_tree_that_cannot_be_ended_stays_held"
RACE = CARDS + "test_24_starts_for_one_card_never_two_on_it"
DEAD_WAITER = CARDS + "test_a_job_of_two_cards_is_not_passed_on_either_and_a_dead_waiter_is_skipped"
LOCK_GONE = CARDS + "test_a_lock_file_taken_away_while_held_is_explained_and_gives_no_second_holder"
STRANGER = CARDS + "test_a_stranger_on_the_card_is_named_and_waited_for"
LAST_HOLDER = CARDS + "test_the_card_stays_held_until_the_last_of_keeper_pump_and_command_is_gone"
DEVICE_0 = CARDS + "test_a_job_finds_its_card_as_device_0_in_pci_order"
WORKER = CARDS + "test_a_worker_that_closed_its_descriptors_keeps_the_next_job_out"
WAITERS = CARDS + "test_a_waiting_job_is_stopped_or_leaves_the_line_and_the_next_moves_up"
BUILDING = (
    "faults/test_line_while_building.py::test_a_card_that_comes_free_while_a_job_builds_is_its_and_the_order_holds"
)
LOCKS = "faults/test_card_locks.py::"
LOCK_MODES = LOCKS + "test_a_lock_that_not_everybody_may_read_is_refused_to_root_alike"
LOCK_KINDS = LOCKS + "test_what_is_no_plain_file_is_refused"
ONLY_KEEPER = LOCKS + "test_only_the_keeper_may_release"
EXPLICIT = LOCKS + "test_an_explicit_release_frees_the_copies_of_a_living_child_too"
NETWORK = "unit/agent/test_home.py::test_on_a_network_home_jobs_and_locks_go_to_the_local_disk"
POWER = (
    "faults/test_power.py::test_whatever_moment_the_power_goes_the_answer_is_true_and_stays",
    "faults/test_power.py::test_a_job_whose_making_was_cut_is_there_whole_or_not_at_all",
    "faults/test_power.py::test_an_end_that_was_told_is_told_again_after_the_power_came_back",
    "faults/test_power.py::test_no_record_stands_under_its_name_before_its_bytes_are_on_the_disk",
)
SWEEP = "unit/agent_work/test_sweep.py::"
ZOMBIE = "unit/agent/test_process.py::test_a_zombie_is_dead"
STATE_TABLE = "unit/agent/test_state.py::test_every_evidence_has_one_lawful_place"
NOTHING_MADE_UP = "unit/agent/test_state.py::test_nothing_unknown_is_ever_called_a_success_or_a_failure"
TWO_CALLERS = "integration/test_main_path.py::test_a_run_outlives_the_command_that_started_it"

# On machines with a systemd of their own; `make systemd` runs them.
REAL = "systemd/test_survival.py::"
SYSTEM_UNIT = REAL + "test_a_unit_of_the_system_outlives_logout_and_a_restart_of_sshd"
USER_UNIT = REAL + "test_a_lingering_account_gets_a_unit_of_its_own_that_outlives_the_logout"
SESSION = REAL + "test_without_the_right_to_linger_it_is_a_session_and_says_so"
KILLING = REAL + "test_a_logout_that_kills_is_told_before_and_is_unknown_after"
NO_MANAGER = REAL + "test_a_login_without_a_manager_is_seen_and_told"
IN_SERVICE = REAL + "test_a_run_started_inside_a_service_is_told_what_ends_it"
UNIT_ALONE = REAL + "test_a_keeper_killed_in_its_unit_leaves_the_run_alive"
UNIT_KILLED = REAL + "test_a_unit_killed_whole_is_unknown_and_its_manager_is_asked"
UNIT_SAYS = REAL + "test_a_unit_says_what_a_unit_of_ours_is"
CALLS = REAL + "test_a_call_that_starts_a_run_returns"
REBOOTS = "systemd/test_restarts.py::"
REBOOT = REBOOTS + "test_a_reboot_asks_runs_to_end_and_is_told"
REBOOT_SESSION = REBOOTS + "test_a_reboot_is_told_for_a_run_in_a_session_too"
PLUG = REBOOTS + "test_a_pulled_plug_is_told"
FAKE = "faults/test_survival.py::"
TOOL_FAILS = FAKE + "test_a_tool_that_fails_costs_the_mode_and_not_the_run"
TOOL_LIES = FAKE + "test_lingering_that_is_only_claimed_is_not_believed"
LATE_UNIT = FAKE + "test_a_unit_that_comes_late_starts_nothing"
MODES = "unit/agent/test_survival.py::test_the_mode_of_a_host"
SUSPECT = "unit/agent/test_survival.py::test_the_releases_whose_lingering_is_not_trusted"
MEMORY = "the machines of tests/systemd have no memory controller"

LOG = "faults/test_log.py::"
FLOOD = LOG + "test_a_flood_is_kept_up_to_its_cap_to_the_byte"
BURST = LOG + "test_a_first_moment_full_of_lines_is_followed_without_gap_over_reconnects"

MATRIX: dict[str, Row] = {
    **{f"F{number:02}": Row(f"keeper and pump killed after W{number - 1}", (EVERY_MOMENT,)) for number in range(1, 11)},
    "F11": Row("the keeper alone killed while the run goes on", (ALONE, UNIT_ALONE)),
    "F12": Row("the pump alone killed, twenty times, under heavy output", (PUMP_KILLED, PUMP_SECRETS, PUMP_ANYWHERE)),
    "F13": Row("the pump stopped for a while, and for ever", (PUMP_PAUSED, PUMP_STALLED, PUMP_SECRETS)),
    "F14": Row("the keeper killed between the wait and the exit record", (EVERY_MOMENT,)),
    "F15": Row("the keeper killed right after the exit record is durable", (EVERY_MOMENT,)),
    "F16": Row("power loss around every record", POWER),
    "F17": Row("records truncated, zeroed, garbage, of another shape, from the future", (BROKEN, UNREADABLE)),
    "F18": Row(
        "a full disk at start, in the middle, at the end", (FULL_START, FULL_LOG, REFUSED_WRITES, ROOM_AGAIN, FULL_END)
    ),
    "F19": Row("the disk turned read-only at the end", (REFUSED_END, READ_ONLY)),
    "F20": Row("no inode left, over quota, at start", (NO_INODE, REFUSED_START)),
    "F21": Row(
        "the host restarts with running, waiting and ended jobs",
        (RESTARTED, CONTAINER, CONTAINER_LINE, REBOOT, REBOOT_SESSION, PLUG),
    ),
    "F22": Row(
        "the container restarts: same boot id, another pid namespace", (CONTAINER, CONTAINER_LINE, CONTAINER_PIDS)
    ),
    "F23": Row("a pid that came back as somebody else's", (RECYCLED, RECYCLED_KEEPER, CONTAINER_PIDS)),
    "F24": Row("the command ends, a child keeps output and card", (LEFTOVERS, CODE_AT_ONCE, WORKER)),
    "F25": Row("a tree that escapes, ignores TERM and forks on", (WILD, WILD_ALONE, STORM, STORM_ALONE)),
    "F26": Row("a tree that cannot be ended", (STUCK, STUCK_CARD)),
    "F27": Row("a stop at the very moment of a natural end", (NATURAL_END, AROUND_THE_END, JUST_BEFORE)),
    "F28": Row("stop twice, stop ended, waiting, unknown", (GRACE, FINISHED, RESERVED_STOPPED, WAITERS, UNKNOWN_ID)),
    "F29": Row("every kind of exit code", (CODES,)),
    "F30": Row("every kind of death by a signal", (SIGNALS,)),
    "F31": Row("the memory limit kills the command, or one of its workers", (OOM, OOM_WORKER)),
    "F32": Row(
        "a program or a folder that cannot be used",
        (CANNOT_RUN, ENDINGS + "test_a_folder_that_cannot_be_entered_is_said_in_words"),
    ),
    "F33": Row("an agent that was started with odd signals, masks, limits", (CLEAN, *ODD_HOSTS)),
    "F34": Row("a command that reads its input or prompts", (CLEAN,)),
    "F35": Row("logs: too much, one endless line, binary, truncated, deleted", (CAP, FLOOD, BYTES, OWN_LOG)),
    "F36": Row("a follower over the cap, over the end, beyond the end", (CAP, FLOOD, FOLLOWER, BURST, BYTES)),
    "F37": Row("the client is cut off at any point of a start", (KILLED_AGENT, SAME_ID, NOBODY_ASKS)),
    "F38": Row("logout in each launch mode", (SYSTEM_UNIT, USER_UNIT, SESSION, KILLING)),
    "F39": Row("the agent is pushed anew, its old folder removed, while a run goes on", (PUSHED_ANEW,)),
    "F40": Row("64 starts at once, 32 allowed, one card", (TOO_MANY, RACE, AT_ONCE)),
    "F41": Row("one, two, one card in line; a dead waiter; a stop", (DEAD_WAITER, WAITERS, BUILDING)),
    "F42": Row("the lock file unlinked, replaced, closed, a link", (LOCK_GONE, LOCK_MODES, LOCK_KINDS)),
    "F43": Row(
        "a stranger on the card, no driver, a lost card, a card gone after the start",
        (
            STRANGER,
            "unit/agent_work/test_cards.py::test_a_driver_that_is_not_loaded_and_no_card_is_none_with_its_reason",
            "unit/agent_work/test_cards.py::test_one_lost_card_hides_no_other",
            CHANGED + "test_a_card_that_is_gone_while_its_run_goes_on_stays_locked_and_the_run_keeps_its_code",
        ),
    ),
    "F44": Row(
        "the clock a month back, a year ahead", (CLOCK_BACK, SWEEP + "test_a_clock_that_was_set_makes_no_young_log_old")
    ),
    "F45": Row("the sweep races with readers and an ending keeper", (SWEEP_RACE,)),
    "F46": Row("systemd's tools hang or lie", (TOOL_FAILS, TOOL_LIES, LATE_UNIT)),
    "F47": Row("no ctypes, Python 3.8, no cgroup, hidepid, seccomp", (OLD_PYTHON, *ODD_HOSTS)),
    "F48": Row("the keeper is stopped over the end", (FROZEN_KEEPER,)),
}

REGRESSIONS: dict[int, Row] = {
    1: Row("a stored pid belonged to a stranger, who was killed", (RECYCLED, RECYCLED_KEEPER)),
    2: Row("a wait for a pid that came back never ended", (RECYCLED,)),
    3: Row("a kill raced with the reaping", (NATURAL_END, AROUND_THE_END)),
    4: Row("somebody else reaped the child: 0 or 255", (CLEAN,)),
    5: Row("the supervisor killed, the code gone, lists broken", (EVERY_MOMENT,)),
    6: Row("waiting for a file that a dead supervisor never writes", (WILD_ALONE,)),
    7: Row("both actors killed in a stop, for ever stopping", (BOTH_KILLED, STOPPER_KILLED)),
    8: Row("a missing code was 0; records on a disk in memory", (NOTHING_MADE_UP, RESTARTED)),
    9: Row("a full disk, and for ever running", (FULL_END, REFUSED_END)),
    10: Row("shown running with exit 0 when the supervisor was killed", (ALONE, WILD_ALONE)),
    11: Row("137 that nobody saw", (NOTHING_MADE_UP, SIGNALS, NO_CLAIM)),
    12: Row("the exit event was lost in a restart of the receiver", (DETACHED, TWO_CALLERS)),
    13: Row("an end noticed late or never; a zombie counted as alive", (ZOMBIE, CLEAN, NOBODY_REAPS)),
    14: Row("the reader of the log stopped, the job blocked", (PUMP_STALLED,)),
    15: Row("the daemon was down, the pipe full", (DETACHED,)),
    16: Row("the log deleted, the job hung", (OWN_LOG,)),
    17: Row("killed by SIGPIPE", (PUMP_KILLED,)),
    18: Row("tens of gigabytes of log", (CAP,)),
    19: Row("the queue killed at logout", (USER_UNIT, SESSION)),
    20: Row(
        "linger, and killed all the same",
        (SUSPECT,),
        not_here="no machine with systemd 255 can be had here: the rule is data",
    ),
    21: Row("KillUserProcesses", (KILLING, MODES)),
    22: Row("shared memory removed at logout", (USER_UNIT, SESSION)),
    23: Row("the runtime folder wiped at logout", (USER_UNIT,)),
    24: Row("linger not enabled although the tool said so", (TOOL_LIES,)),
    25: Row("no XDG_RUNTIME_DIR, no user bus", (NO_MANAGER,)),
    26: Row("one OOM kill ended the whole unit", (UNIT_SAYS,), not_here="a real one: " + MEMORY),
    27: Row("oomd killed more than it said", (UNIT_KILLED,)),
    28: Row("a forced stop told as out of memory", (OOM_OURS,)),
    29: Row("our own memory counted against the job", (NOT_OURS,)),
    30: Row("a unit inactive while its process ran", (UNIT_ALONE,)),
    31: Row("the last process's status is nobody's", (LEFTOVERS,)),
    32: Row("a restart of the parent killed all jobs", (DETACHED,)),
    33: Row("a restarted agent forgot its jobs", (DETACHED, PUSHED_ANEW)),
    34: Row("SIGHUP reached a job that handles it", (DETACHED,)),
    35: Row("a worker that cannot be killed", (STUCK, STUCK_CARD)),
    36: Row("the run over, the card still occupied", DRAINS),
    37: Row("a child in another session kept the card", (WILD, STORM)),
    38: Row("orphans piled up", (LEFTOVERS,)),
    39: Row("new forks escaped the kill", (STORM,)),
    40: Row("only the shell was stopped", (GROUP,)),
    41: Row(
        "TERM to all killed the helper before the script",
        not_here="a decision: the first TERM goes to the command's group, and the spec has no narrower stop",
    ),
    42: Row("TERM passed over, or the grace ignored", (GRACE, HANDLER)),
    43: Row("the ssh call hung on an inherited stdout", (DETACHED,)),
    44: Row("a daemon of the job kept the lock", (LEFTOVERS, EXPLICIT)),
    45: Row("a child's unlock dropped the parent's lock", (ONLY_KEEPER,)),
    46: Row("locks on a network file system", (NETWORK,)),
    47: Row("pid file and a recycled pid after a reboot", (RESTARTED, RECYCLED)),
    48: Row("an empty state file stopped the agent for ever", (BROKEN,)),
    49: Row("the program replaced under a running process", (PUSHED_ANEW,)),
    50: Row("the card's order differs from the driver's", (DEVICE_0,)),
    51: Row("a UUID in the variable crashed a library", (DEVICE_0,)),
    52: Row("free memory is true until it is used", (RACE, WAITERS)),
    53: Row("dead workers counted as running", (TOO_MANY,)),
    54: Row("daemon-reload took the card away", (UNIT_SAYS, UNIT_ALONE), not_here="with a real card"),
    55: Row("a minimal PATH in user units", (USER_UNIT,)),
    56: Row("a tree of another account cannot be ended", (OTHERS_CHILD,)),
}

FIELD: dict[str, Row] = {
    "F01": Row("ended by signal 9 without a word", (SIGNALS, KILLS + "test_the_job_alone_killed_is_a_signal")),
    "F03": Row("loader processes that escaped a stop kept the cards", (WILD, WORKER)),
    "F05": Row("only the main process was ended", (GROUP, WILD)),
    "F06": Row("one rank dies, the others wait for ever", SILENCE),
    "F07": Row("the stop never reached the script", (HANDLER,)),
    "F10": Row(
        "a pipe hid the failure",
        (
            ENDINGS + "test_a_failing_first_part_of_a_pipe_fails_the_run",
            ENDINGS + "test_the_code_is_the_shells_which_stops_at_its_first_failure",
        ),
    ),
    "F11": Row("the client was gone when it ended, and called it failed", (TWO_CALLERS, DETACHED)),
    "F12": Row("a stop told as a failure, a crash as a stop", (NATURAL_END, FINISHED, JUST_BEFORE)),
    "F13": Row("a stop that killed strangers", (WILD, WILD_ALONE, RECYCLED)),
}

DETACHING: dict[str, Row] = {
    "C01": Row("nohup, and a launcher that handles the hang-up itself", (DETACHED, SESSION)),
    "C03": Row("a hardened host killed it after the logout", (KILLING, MODES)),
    "C05": Row("no bus, no runtime folder", (NO_MANAGER, MODES)),
    "C06": Row("a restart of the service that it was started from", (IN_SERVICE,)),
    "C07": Row("the same for a runner of a CI, which called it done", (IN_SERVICE,)),
    "C08": Row("a descriptor kept the channel open", (DETACHED, CALLS)),
    "C09": Row("a call that starts a run never came back", (CALLS,)),
}

LOGS: dict[str, Row] = {
    "D01": Row(
        "a bar of carriage returns, one line feed",
        (LOG + "test_a_bar_of_50_mb_without_a_line_end_is_shown_by_its_last_state",),
    ),
    "D03": Row(
        "buffered output, nothing to see",
        (LOG + "test_a_python_program_is_seen_at_once_unless_its_spec_wants_buffers",),
    ),
    "D04": Row(
        "a view that reads in the middle of a character",
        (BYTES, "unit/cli/test_safe_text.py::test_lines_come_whole_whatever_the_slices"),
    ),
    "D06": Row(
        "a log of 20 GB, read whole to show its end", (LOG + "test_the_end_of_a_log_of_20_gb_is_read_by_seeking",)
    ),
    "D07": Row("a log that fills the disk", (CAP, FLOOD, FULL_LOG, ROOM_AGAIN)),
    "D08": Row("a follower that lost the start", (BURST,)),
    "D10": Row("a loss of NaN broke the reader", (LOG + "test_numbers_that_are_none_break_no_report",)),
    "D11": Row("every tool writes another bar", ("unit/agent/test_outlook.py::test_the_logs_of_known_tools",)),
    "D12": Row("a step of ten minutes looks like a hang", SILENCE),
}
