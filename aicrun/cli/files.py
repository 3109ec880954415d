"""Commands about files alone: `init`, `validate`, `schema`, `explain`. No machine is asked."""

from __future__ import annotations

import os
import shlex
import textwrap

import click

from aicrun.cli.options import FILE, with_json
from aicrun.cli.screen import PROSE_COLUMNS, Screen
from aicrun.cli.views.diagnostics import as_documents, as_lines
from aicrun.cli.views.trouble import next_lines
from aicrun.errors import Exit, UsageError, Way
from aicrun.plan.words import counted
from aicrun.spec.diagnostics import Diagnostic, DocumentInvalid
from aicrun.spec.load import load_inventory, load_run
from aicrun.spec.render import summary

_SCHEMAS = ("run", "machines", "plan")


@click.command("init", epilog="Example: aicrun init --to other.yaml")
@click.option(
    "--to",
    metavar="FILE",
    type=FILE,
    default="run.yaml",
    show_default=True,
    help="The file to write; never one that is there.",
)
@with_json
@click.pass_obj
def init_command(screen: Screen, to: str) -> int:
    """Look at this folder and write a run.yaml with what was found. Asks nothing."""
    # Here and not above: `validate` is quicker without it.
    from aicrun.spec.detect import draft_run_yaml, look_at

    typed = shlex.quote(to)
    try:
        facts = look_at(os.path.dirname(os.path.abspath(to)))
        text = draft_run_yaml(facts)
        _write_new(to, text)
    except FileExistsError as error:
        other = "run.yaml" if to != "run.yaml" else "other.yaml"
        ways = (Way("write another", f"aicrun init --to {other}"), Way("check it", f"aicrun validate {typed}"))
        raise UsageError("AIC-E013", f"{to} is there already", ways=ways) from error
    except OSError as error:
        raise _unwritten(to, error) from error
    loaded = load_run(to)
    found = [f"command from {facts.script}" if facts.script else "the command is yours to write"]
    found += [f"packages from {facts.requirements}"] if facts.requirements else []
    setup = loaded.specs[0].setup
    found += [f"the environment {facts.venv}"] if setup is not None and setup.venv else []
    if facts.script and not facts.has_environment:
        found.append("no environment, so the machine's own python3")
    if loaded.specs[0].source is not None:
        found.append("code from this git tree" if facts.in_git else "code from this folder")
    words = f'wrote {to}: run "{loaded.specs[0].name}", ' + ", ".join(found)
    screen.out([*textwrap.wrap(words, PROSE_COLUMNS - 2, break_long_words=False), ""])
    screen.out(next_lines((Way("check it", f"aicrun validate {typed}"), Way("try it", f"aicrun plan {typed}"))))
    if screen.json:
        screen.document("init", {"file": to, "run": loaded.specs[0].name, "text": text})
    return Exit.DONE


def _write_new(to: str, text: str) -> None:
    with open(to, "x", encoding="utf-8") as stream:
        try:
            stream.write(text)
            stream.flush()
        except OSError:
            os.unlink(to)  # half of it would be in the way of the next try
            raise


def _unwritten(to: str, error: OSError) -> UsageError:
    folder = os.path.dirname(to)
    if isinstance(error, FileNotFoundError) and folder:
        making = f"mkdir -p {shlex.quote(folder)} && aicrun init --to {shlex.quote(to)}"
        ways = (Way("make its folder", making),)
    else:
        ways = (Way("write it elsewhere", f"aicrun init --to ~/{shlex.quote(os.path.basename(to) or 'run.yaml')}"),)
    return UsageError("AIC-E027", f"{to} cannot be written: {error.strerror}", ways=ways)


@click.command("validate", epilog="Example: aicrun validate run.yaml machines.yaml --strict")
@click.argument("files", nargs=-1, type=FILE, metavar="[FILES]...")
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@click.option("-v", "--verbose", is_flag=True, help="All of each fault, also past ten.")
@with_json
@click.pass_obj
def validate_command(screen: Screen, files: tuple[str, ...], strict: bool, verbose: bool) -> int:
    """Check run files and machines.yaml, all faults in one pass. Default: run.yaml."""
    found: list[Diagnostic] = []
    said: list[str] = []
    for path in files or ("run.yaml",):
        diagnostics, words = _checked(path, strict)
        found += diagnostics
        said += words
    errors = sum(1 for item in found if item.severity == "error")
    code = Exit.INVALID if errors else Exit.DONE
    if screen.json:
        warnings = len(found) - errors
        body = {"files": list(files or ("run.yaml",)), "errors": errors, "warnings": warnings, "valid": not errors}
        screen.document("validate", {**body, "diagnostics": as_documents(found)})
        return code
    screen.err([*as_lines(found, verbose), ""] if found else [])
    (screen.err if errors else screen.out)(said)
    if errors:
        first = next(item.code for item in found if item.severity == "error")
        screen.err(next_lines((Way("more about one", f"aicrun explain {first}"),)))
    return code


def _checked(path: str, strict: bool) -> tuple[tuple[Diagnostic, ...], list[str]]:
    try:
        if _is_inventory(path):
            inventory, warnings = load_inventory(path)
            if strict and warnings:
                raise DocumentInvalid(warnings)
            words = f"{path}: valid (version 1), {counted(len(inventory.machines), 'machine')}"
            return warnings, [f"{words}, {counted(len(warnings), 'warning')}."]
        loaded = load_run(path, strict=strict)
    except DocumentInvalid as error:
        return error.diagnostics, [summary(path, error.diagnostics)]
    runs, warned = counted(len(loaded.specs), "run"), counted(len(loaded.warnings), "warning")
    return loaded.warnings, [f"{path}: valid (version 1), {runs}, {warned}. Next: aicrun plan {shlex.quote(path)}"]


def _is_inventory(path: str) -> bool:
    return os.path.basename(path).startswith("machines")


@click.command("schema", epilog="Example: aicrun schema run > run.schema.json")
@click.argument("name", type=click.Choice(_SCHEMAS), default="run")
@click.option("--json", is_flag=True, expose_value=False, help="The schema is JSON in any case.")
@click.pass_obj
def schema_command(screen: Screen, name: str) -> int:
    """Print the JSON Schema of run.yaml, machines.yaml or a plan, for editors and other tools."""
    # Here and not above: reading a schema's text needs no checker.
    from aicrun.spec.check import schema_text

    screen.raw(schema_text(name).encode("utf-8"))
    return Exit.DONE


@click.command("explain", epilog="Example: aicrun explain machine.gpu; aicrun explain AIC-E121")
@click.argument("topic", default="run")
@with_json
@click.pass_obj
def explain_command(screen: Screen, topic: str) -> int:
    """Explain a field of run.yaml (`run` for all of them), or a code like AIC-E121 (`codes` for all)."""
    from aicrun.cli.views.explained import document, lines
    from aicrun.spec.explain import explain

    explained = explain(topic)
    screen.out(lines(explained))
    if screen.json:
        screen.document("explain", document(explained))
    return Exit.DONE
