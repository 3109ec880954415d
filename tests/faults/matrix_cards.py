"""Which test or case file proves each field report about choosing a card (area b). Data only, as in `matrix.py`."""

from __future__ import annotations

from faults.matrix import Row

LINE = "faults/test_cards_and_line.py::"
GRANTS = "faults/test_card_grants.py::"
PROBE = "unit/agent_work/test_cards.py::"
SMI = "unit/agent_work/test_smi.py::"
CHECK = "unit/agent_work/test_card_check.py::"
PLACE = "cases/place/"
PLACES = "unit/plan/test_place_cases.py::"
REPORTS = "cases/diagnostics/reports/"
SAMPLES = "integration/test_telemetry.py::"
BY_IDENTITY = CHECK + "test_the_card_is_found_by_its_identity_and_named_by_its_place"
DEVICE_0 = LINE + "test_a_job_finds_its_card_as_device_0_in_pci_order"
FAILS_UNDER_A_JOB = GRANTS + "test_a_driver_that_fails_under_a_running_job_takes_nothing_from_it"
NOTHING_MADE_UP = SMI + "test_no_value_is_made_up_for_one_that_is_missing"
MEASURED = SAMPLES + "test_the_peak_on_the_card_reaches_facts_notes_and_the_next_plan"
NOT_ON_ITS_CARD = "unit/agent/test_telemetry.py::test_a_card_that_was_never_used_is_told_once"

CARDS: dict[str, Row] = {
    "B01": Row("the driver's index is not the index CUDA uses", (BY_IDENTITY, DEVICE_0)),
    "B02": Row(
        "indices swapped over a reboot",
        (BY_IDENTITY, PLACES + "test_a_card_is_held_by_its_identity_though_a_reboot_has_swapped_the_numbers"),
    ),
    "B04": Row("the spec or the login sets which cards are visible", (REPORTS + "b04-visible-devices.yaml", DEVICE_0)),
    "B05": Row("the command names cuda:1", (REPORTS + "b05-cuda-1.yaml",)),
    "B06": Row("the command names a card by a flag", (REPORTS + "b06-gpuid.yaml",)),
    # The other way round than the report wishes: the place by default, for a library that takes no UUID crashes.
    "B07": Row("a library reads the visible cards as numbers", (DEVICE_0, BY_IDENTITY)),
    "B08": Row(
        "MIG: parts of a card",
        (PLACE + "mig_is_unsupported.yaml", "cases/smi/mig_and_modes.yaml"),
        not_here="a decision: parts are not offered one by one, the card is mig_unsupported",
    ),
    "B10": Row(
        "memory shared with the processor is not told",
        (
            PLACE + "memory_shared_with_the_processor.yaml",
            PLACE + "memory_unreadable_is_unknown.yaml",
            "cases/smi/memory_not_told.yaml",
        ),
    ),
    "B12": Row(
        "an embedded module tells next to nothing",
        (
            CHECK + "test_an_embedded_module_is_told_by_the_machine_s_own_table",
            "cases/smi/embedded_module.yaml",
            PLACE + "card_without_an_identity_is_unknown.yaml",
            PLACE + "memory_shared_with_the_processor.yaml",
        ),
    ),
    "B13": Row(
        "WSL: no utilization, no processes",
        (PLACE + "unlisted_and_unmeasured.yaml", PLACE + "unlisted_and_busy.yaml"),
    ),
    "B15": Row(
        "memory held by a process that is gone",
        (
            PLACE + "a_dead_pid_is_no_free_card.yaml",
            PLACE + "memory_held_by_nobody_visible.yaml",
            PROBE + "test_a_pid_that_does_not_live_keeps_its_row",
        ),
    ),
    "B17": Row(
        "a container's empty process table",
        (
            PLACE + "in_a_container_an_empty_table_is_not_free.yaml",
            LINE + "test_where_nobody_can_list_processes_the_history_says_that_the_card_was_not_looked_at",
        ),
    ),
    "B18": Row(
        "eight starts see the same idle card",
        (
            GRANTS + "test_eight_starts_at_once_for_two_idle_cards_start_two_and_name_the_holder_to_six",
            LINE + "test_24_starts_for_one_card_never_two_on_it",
        ),
    ),
    "B19": Row("the job sets its own visibility and runs elsewhere", (MEASURED,)),
    "B22": Row(
        "driver updated under running jobs",
        (
            FAILS_UNDER_A_JOB,
            PLACE + "driver_mismatch_is_unknown.yaml",
            PROBE + "test_a_driver_that_was_updated_under_a_running_host_is_unknown",
            "cases/smi/mismatch.yaml",
        ),
    ),
    "B23": Row(
        "one card fell off the bus",
        (
            PROBE + "test_one_lost_card_hides_no_other",
            PLACE + "one_card_lost.yaml",
            "cases/smi/one_card_lost_in_the_table.yaml",
            "cases/smi/one_card_not_reached.yaml",
        ),
    ),
    "B25": Row("reserved memory counted as free", (PLACE + "reserved_memory_is_never_free.yaml",)),
    "B27": Row(
        "24 GB is not 24 GiB, and no two cards agree",
        (
            PLACE + "a_class_of_24_gb.yaml",
            "unit/spec/test_sizes.py::test_size_mib",
            "cases/diagnostics/run/e121-no-unit.yaml",
            PLACE + "too_small_for_ever.yaml",
        ),
    ),
    "B28": Row(
        "exclusive and prohibited modes",
        (PLACE + "exclusive_mode_with_a_holder.yaml", PLACE + "compute_mode_prohibited.yaml"),
    ),
    "B30": Row(
        "a slow driver",
        (
            PROBE + "test_a_slow_driver_is_waited_for",
            PROBE + "test_a_driver_that_hangs_is_unknown_after_the_deadline",
            "cases/smi/no_answer.yaml",
        ),
    ),
    "B32": Row(
        "a bracketed word where a number was expected",
        (NOTHING_MADE_UP, "cases/smi/every_way_to_say_nothing.yaml", "cases/smi/a_name_with_a_comma.yaml"),
    ),
    "B34": Row(
        "a desktop on the card",
        (
            PLACE + "display_card_comes_last.yaml",
            PLACE + "display_card_asks_more.yaml",
            PLACE + "kept_by_owner.yaml",
        ),
    ),
    "B35": Row(
        "the framework fell back to the processor",
        (
            NOT_ON_ITS_CARD,
            "integration/test_preflight.py::test_torch_that_does_not_trains_nothing_and_the_card_is_free_again",
            "unit/agent_work/test_preflight.py::test_a_verdict_names_what_is_wrong_and_what_mends_it",
        ),
    ),
    "B36": Row("the need was declared too high", (MEASURED,)),
    "B38": Row("a container lost its cards under a job", (FAILS_UNDER_A_JOB, "cases/smi/unknown_error.yaml")),
}
