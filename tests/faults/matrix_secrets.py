"""Which test proves each field report about secrets and values that are data (area g). Data only, as in `matrix.py`."""

from __future__ import annotations

from faults.matrix import PUMP_SECRETS, Row

SHAPES = "unit/spec/test_secrets.py::"
REPORTS = "cases/diagnostics/reports/"
RUN = "cases/diagnostics/run/"
WHOLE = "ssh/test_secrets.py::"

SECRETS: dict[str, Row] = {
    "G01": Row(
        "a token in an argument was kept by whatever stores command lines",
        (
            REPORTS + "g01-token-argument.yaml",
            RUN + "e140-flags.yaml",
            RUN + "e140-shapes.yaml",
            SHAPES + "test_known_shapes",
            SHAPES + "test_a_token_put_anywhere_is_never_shown",
        ),
    ),
    "G02": Row(
        "a key in an argument was read by all users in the list of processes",
        (
            WHOLE + "test_a_planted_value_is_found_nowhere",
            "faults/test_secrets.py::test_a_planted_value_is_in_the_steps_it_is_for_and_nowhere_else",
            PUMP_SECRETS,
        ),
    ),
    "G04": Row(
        "a key with an innocent name was committed with the recipe",
        (
            REPORTS + "g04-key-in-env.yaml",
            RUN + "e141-random.yaml",
            RUN + "e141-marked.yaml",
            SHAPES + "test_random_values",
        ),
    ),
    "G06": Row(
        "a value with a semicolon ran as a command over there",
        (
            REPORTS + "g06-values-are-data.yaml",
            WHOLE + "test_no_value_of_a_spec_is_ever_run",
            "ssh/test_odd_machines.py::test_what_the_spec_says_reaches_one_shell_byte_for_byte",
            "unit/agent_work/test_environment.py::test_a_value_reaches_the_job_exactly_as_typed",
        ),
    ),
}
