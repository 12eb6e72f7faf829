"""``python -m ptdecode.fleet``: see docs/FLEET.md."""
from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from .. import Error
from . import query as queries
from . import run
from .store import Store


def _options(words: argparse.Namespace) -> "dict[str, Any]":
    return {"symfs": words.symfs, "stashes": words.stash, "debuginfod": words.debuginfod, "allow_outside": words.allow_outside,
            "guestmount": words.guestmount, "guestkallsyms": words.guestkallsyms, "guestmodules": words.guestmodules,
            "guestvmlinux": words.guestvmlinux}


def _add_recording_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--unit-mb", type=float, default=128, help="about so many MiB of trace in a unit (default 128)")
    parser.add_argument("--symfs", action="append", help="a root below which recorded paths are looked up first")
    parser.add_argument("--stash", action="append", help="a folder with saved code (default: the usual ones)")
    parser.add_argument("--debuginfod", action="store_true", help="query the servers of DEBUGINFOD_URLS for files that are not found")
    parser.add_argument("--allow-outside", action="store_true", help="read files outside of the recording's folder")
    for name in ("guestmount", "guestkallsyms", "guestmodules", "guestvmlinux"):
        parser.add_argument(f"--{name}", help="code of virtual machines, as for ptdecode")


def _plan(words: argparse.Namespace) -> int:
    from .units import write_plan

    facts = write_plan(words.recording, Store(words.out), _unit_bytes(words) or 0, _options(words))
    print(json.dumps({key: facts[key] for key in ("recording", "units", "seconds")}))
    return 0


def _unit(words: argparse.Namespace) -> int:
    from .units import decode_unit

    print(json.dumps(decode_unit(Store(words.out), words.recording, words.unit, words.trace)))
    return 0


def _merge(words: argparse.Namespace) -> int:
    from .merge import merge

    print(json.dumps(merge(Store(words.out), words.recording)))
    return 0


def _unit_bytes(words: argparse.Namespace) -> "int | None":
    return None if words.unit_mb is None else int(words.unit_mb * 2**20)


def _run(words: argparse.Namespace) -> int:
    return _decode(words, words.recordings, not words.no_calls)


def _decode(words: argparse.Namespace, recordings: "list[Any]", calls: "bool | None") -> int:
    board = run.run(words.out, recordings, words.scheduler, words.workers, _unit_bytes(words) or 0, _options(words),
                    None if words.quiet else run.print_line, calls=calls)
    if not words.quiet and sys.stderr.isatty():
        sys.stderr.write("\n")
    for task, reason in board.failures.items():
        print(f"failed {run.ATTEMPTS} times: {task}: {reason}", file=sys.stderr)
    return 1 if board.failures else 0


def _resume(words: argparse.Namespace) -> int:
    recordings = run.unfinished(words.out, _options(words), _unit_bytes(words))
    if words.no_calls:  # of those without a plan
        recordings = [(source, {**how, "calls": False}) for source, how in recordings]
    return _decode(words, recordings, None)


def _status(words: argparse.Namespace) -> int:
    facts = run.status(words.out)
    if words.json:
        print(json.dumps(facts))
        return 0
    for recording in facts["recordings"]:
        print(f"{recording['done']:>6} of {recording['units']:>6} units  {'merged' if recording['merged'] else '      '}  {recording['recording']}")
    for failure in facts["failed"]:
        print(f"failed: {failure['task']}: {failure['reason']}")
    return 1 if facts["failed"] else 0


def _query(words: argparse.Namespace) -> int:
    if words.query == "list":
        for name, (meaning, _) in queries.SAVED.items():
            print(f"{name:<10} {meaning}")
        return 0
    columns, rows = queries.run(words.out, words.query, limit=words.limit, build_id=words.build_id, function=words.function)
    if words.json:
        for row in rows:
            print(json.dumps(dict(zip(columns, row)), default=str))
        return 0
    print("\t".join(columns))
    for row in rows:
        print("\t".join("" if value is None else str(value) for value in row))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ptdecode.fleet", description="Decodes recordings on many machines, and queries the results.")
    commands = parser.add_subparsers(required=True)

    def add(name: str, work: Any, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(work=work)
        command.add_argument("--out", required=True, help="the folder of the results: a path that all machines share, or a URL")
        return command

    for name, work, text in (("run", _run, "decode recordings with Dask"), ("resume", _resume, "go on with recordings that are not merged, as they were planned")):
        command = add(name, work, text)
        if name == "run":
            command.add_argument("recordings", nargs="+", help="paths or URLs")
        command.add_argument("--scheduler", default="local", help="address of a Dask scheduler, or 'local', or 'slurm' (default local)")
        command.add_argument("--workers", type=int, help="number of workers of a scheduler that is started here")
        command.add_argument("--no-calls", action="store_true", help="leave out the table calls, which has a row for each call")
        command.add_argument("--quiet", action="store_true", help="no progress")
        _add_recording_options(command)
        if name == "resume":
            command.set_defaults(unit_mb=None)
    add("status", _status, "list what is planned, done and failed").add_argument("--json", action="store_true")
    command = add("plan", _plan, "plan one recording")
    command.add_argument("recording", help="path or URL")
    _add_recording_options(command)
    command = add("unit", _unit, "decode one unit of a recording that is planned")
    command.add_argument("recording", help="its name, as 'plan' and 'status' print it")
    command.add_argument("unit", type=int)
    command.add_argument("--trace", action="append", help="where its trace file is: a path or URL; for several files repeat it")
    add("merge", _merge, "put the units of a recording together").add_argument("recording", help="its name")
    command = add("query", _query, "answer a question from the results")
    command.add_argument("query", help="SQL, or the name of a saved query; 'list' lists these")
    command.add_argument("--json", action="store_true", help="one object per line")
    command.add_argument("--limit", type=int, default=40)
    command.add_argument("--build-id", help="for 'profile'")
    command.add_argument("--function", help="for 'latency'")
    return parser


def main(words: "list[str] | None" = None) -> int:
    arguments = _parser().parse_args(words)
    try:
        return arguments.work(arguments)
    except (Error, OSError, ValueError, run.LostScheduler, run.NoWorkers) as error:
        print(f"ptdecode.fleet: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
