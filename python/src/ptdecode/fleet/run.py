"""Runs plans, units and merges as tasks of Dask. Everything that is done is on the store, so a run can be ended and resumed at any moment."""
from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
import traceback
from typing import Any, Callable, Iterable, Iterator, Optional

from .merge import SUMMED, add_up, call_tables, follow_calls, groups, tree_outputs, unit_files
from .store import Store
from .units import decode_unit, recording_id, write_plan

ATTEMPTS = 3       # of a task that fails
LOOK_SECONDS = 2   # between two checks for workers
LOST_WORKERS = 20  # workers that may die under one task before that counts as an attempt


class Task:
    """Something to do, which has a marker on the store when it is done."""

    def __init__(self, key: str, work: Callable[..., Any], arguments: tuple, weight: int = 0) -> None:
        self.key, self.work, self.arguments, self.weight = key, work, arguments, weight
        self.attempts = 0


def _plan(root: str, source: str, unit_bytes: int, options: "dict[str, Any]", calls: bool) -> "dict[str, Any]":
    return write_plan(source, Store(root), unit_bytes, options, calls)


def _unit(root: str, name: str, unit: int, traces: Any) -> "dict[str, Any]":
    return decode_unit(Store(root), name, unit, traces)


def _add_up(root: str, table: str, files: "list[str]", output: str) -> int:
    return add_up(Store(root), table, files, output)


def _calls(root: str, name: str, tables: "tuple[str, ...]") -> "dict[str, int]":
    return follow_calls(Store(root), name, tables)


class Board:
    """What is left to do of all recordings. It knows nothing of Dask: `take` gives tasks, `done` and `failed` report them.

    sources: paths or URLs, or pairs of one and how it is planned: unit_bytes, options, calls. `calls` None: a plan's units write what they wrote before.
    """

    def __init__(self, store: Store, sources: "Iterable[Any]", unit_bytes: int = 0, options: "Optional[dict[str, Any]]" = None,
                 calls: Optional[bool] = True) -> None:
        self.store = store
        self.ready: "list[Task]" = []
        self.failures: "dict[str, str]" = {}
        self.counts = {"units": 0, "units_done": 0, "bytes": 0, "bytes_done": 0}
        self._left: "dict[str, set[str]]" = {}  # by recording: keys of what the next step waits for
        self._level: "dict[str, dict[str, Any]]" = {}
        done = set(store.list("_done", ".json"))
        merged = {name.split("/")[-1][:-len(".json")] for name in store.list("_merged", ".json")}
        planned = {name.split("/")[-1][:-len(".json")] for name in store.list("_plans", ".json")}
        failed = {old: store.get_json(old) for old in store.list("_failed", ".json")}
        given = {"unit_bytes": unit_bytes, "options": options or {}, "calls": calls is not False}
        for each in sources:
            source, how = each if isinstance(each, tuple) else (each, given)
            for old in [old for old, failure in failed.items() if failure.get("source") == os.fsdecode(source)]:
                store.remove(old)
                del failed[old]
            try:
                name = recording_id(source)
            except (OSError, ValueError) as error:
                self._give_up(f"plan {source}", f"{type(error).__name__}: {error}", source, how)
                continue
            if name in self._left:
                continue
            for old in [old for old, failure in failed.items() if name in failure["task"].split("/")]:
                store.remove(old)
            facts = store.get_json(f"_plans/{name}.json") if name in planned else None
            if facts and calls and not facts.get("calls", True):
                facts = None  # planned without calls
            if facts and name in merged:
                continue
            self._left[name] = set()
            if facts:
                self._units(name, facts, done)
            else:
                arguments = (store.root, os.fsdecode(source), how["unit_bytes"], how["options"], how["calls"])
                self.ready.append(Task(f"plan/{name}", _plan, arguments))

    def _units(self, name: str, facts: "dict[str, Any]", done: "set[str]") -> None:
        waits = set()
        for unit, size in enumerate(facts["unit_bytes"]):
            self.counts["units"] += 1
            self.counts["bytes"] += size
            if f"_done/{name}/unit-{unit:05}.json" in done:
                self.counts["units_done"] += 1
                self.counts["bytes_done"] += size
                continue
            task = Task(f"unit/{name}/{unit:05}", _unit, (self.store.root, name, unit, None), size)
            waits.add(task.key)
            self.ready.append(task)
        self._left[name] = waits
        self._level[name] = {"units": facts["units"], "calls": call_tables(facts)}
        if not waits:
            self._merge(name)

    def _merge(self, name: str) -> None:
        """All units are done."""
        level = self._level[name]
        waits = self._left[name]
        for table in SUMMED:
            level[table] = (unit_files(self.store, table, name, level["units"]), 0)
            if level["units"] > 0:
                self._sum_level(name, table)
        for tables in (level["calls"][:1], level["calls"][1:]):
            if not tables:
                continue
            task = Task(f"calls/{name}/{tables[0]}", _calls, (self.store.root, name, tables))
            waits.add(task.key)
            self.ready.append(task)

    def _sum_level(self, name: str, table: str) -> None:
        files, level = self._level[name][table]
        outputs = tree_outputs(table, name, len(files), level)
        for part, output in zip(groups(files), outputs):
            task = Task(f"sum/{name}/{output}", _add_up, (self.store.root, table, part, output))
            self._left[name].add(task.key)
            self.ready.append(task)
        self._level[name][table] = (outputs, level + 1)

    def take(self) -> "list[Task]":
        tasks, self.ready = self.ready, []
        return tasks

    def done(self, task: Task, result: Any) -> None:
        kind, name = task.key.split("/", 2)[:2]
        if kind == "plan":
            self._units(name, result, set())
            return
        left = self._left[name]
        left.discard(task.key)
        if kind == "unit":
            self.counts["units_done"] += 1
            self.counts["bytes_done"] += task.weight
            if not left:
                self._merge(name)
            return
        if kind == "sum":
            table = task.arguments[1]
            files, _ = self._level[name][table]
            if len(files) > 1 and not any(key.startswith(f"sum/{name}/") and f"/{table}-" in key for key in left):
                self._sum_level(name, table)
        if not left:
            self.store.put_json({"recording": name}, f"_merged/{name}.json")

    def failed(self, task: Task, reason: str) -> bool:
        """Returns whether the task is tried again."""
        task.attempts += 1
        if task.attempts < ATTEMPTS:
            self.ready.append(task)
            return True
        if task.work is _plan:
            _, source, unit_bytes, options, calls = task.arguments
            self._give_up(task.key, reason, source, {"unit_bytes": unit_bytes, "options": options, "calls": calls})
        else:
            self._give_up(task.key, reason)
        return False

    def check_complete(self) -> None:
        """Names recordings that are not merged although no task of them failed: that would be a bug here."""
        for name, waits in self._left.items():
            failed = any(name in key for key in self.failures)
            if waits and not failed:
                self._give_up(f"recording/{name}", f"not complete, {len(waits)} tasks are left; run it again")

    def _give_up(self, key: str, reason: str, source: Any = None, how: "Optional[dict[str, Any]]" = None) -> None:
        """`source`: of a recording that has no plan."""
        self.failures[key] = reason
        facts: "dict[str, Any]" = {"task": key, "reason": reason, "attempts": ATTEMPTS}
        if source is not None:
            facts.update(source=os.fsdecode(source), how=how)
        try:
            self.store.put_json(facts, f"_failed/{key.replace('/', '.')}.json")
        except OSError:  # the store may be what fails
            pass


def reason_of(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def bar(counts: "dict[str, int]", failures: int, started: float) -> str:
    share = counts["bytes_done"] / counts["bytes"] if counts["bytes"] else 0.0
    width = 30
    full = int(share * width)
    return (f"[{'#' * full}{'.' * (width - full)}] {counts['units_done']}/{counts['units']} units, {counts['bytes_done'] / 1e6:.1f} of "
            f"{counts['bytes'] / 1e6:.1f} MB, {failures} failed, {time.monotonic() - started:.0f} s")


def cluster(scheduler: str, workers: Optional[int]) -> "tuple[Any, Any]":
    """A client, and what must be closed after it. Errors: LostScheduler if there is no scheduler at the address."""
    import dask
    from distributed import Client, LocalCluster

    dask.config.set({"distributed.scheduler.allowed-failures": LOST_WORKERS})
    if scheduler == "local":
        local = LocalCluster(n_workers=workers, threads_per_worker=1, processes=True)
        return Client(local), local
    if scheduler == "slurm":
        from dask_jobqueue import SLURMCluster

        jobs = SLURMCluster(cores=1, processes=1, memory="4GB")
        jobs.scale(workers or 4)
        return Client(jobs), jobs
    try:
        return Client(scheduler), None
    except OSError as error:
        raise LostScheduler(reason_of(error)) from error


def run(root: str, sources: "Iterable[Any]", scheduler: str = "local", workers: Optional[int] = None, unit_bytes: int = 0,
        options: "Optional[dict[str, Any]]" = None, progress: Optional[Callable[[str], None]] = None, patience: float = 600,
        calls: Optional[bool] = True) -> Board:
    """Decodes recordings into the store at `root`. Returns the board: its failures are what could not be done.

    sources, unit_bytes, options, calls: as for Board.
    patience: seconds to wait for an unreachable scheduler, and for workers if there are none. For workers of Slurm's queue, the wait has no limit.
    Errors: NoWorkers, LostScheduler.
    """
    board = Board(Store(root), sources, unit_bytes, options, calls)
    started, lost_since = time.monotonic(), None
    while True:
        client = closing = None
        try:
            client, closing = cluster(scheduler, workers)
            lost_since = None
            if progress:
                progress(f"dashboard: {client.dashboard_link}")
            watch = Watch(client, board, progress, f"the scheduler {scheduler}", None if scheduler == "slurm" else patience)
            drive(watch, board, progress, started)
            board.check_complete()
            return board
        except LostScheduler as error:
            # What was under way is given again: units that were written meanwhile are written again, with the same content.
            lost_since = lost_since or time.monotonic()
            if scheduler in ("local", "slurm") or time.monotonic() - lost_since > patience:
                raise
            if progress:
                progress(f"the scheduler {scheduler} is gone ({error}): trying again")
        finally:
            close(client, closing)
        time.sleep(2)


class LostScheduler(Exception):
    """The connection to the scheduler broke."""


class NoWorkers(Exception):
    """No worker was connected during the time that `patience` allows."""


class Watch:
    """Waits for the results of tasks, and reports when no worker is connected.

    patience: seconds to wait for workers; None: without limit, as for the workers of a queue.
    """

    def __init__(self, client: Any, board: "Board", progress: Optional[Callable[[str], None]], where: str, patience: Optional[float]) -> None:
        self.client, self.board, self.progress, self.where, self.patience = client, board, progress, where, patience
        self.without_since: "Optional[float]" = None
        self.looked = 0.0

    def next(self, results: Any) -> Any:
        """Returns the next future of `results`. Errors: StopIteration at their end, NoWorkers."""
        while not results.is_empty() and not results.has_ready():
            if time.monotonic() - self.looked >= LOOK_SECONDS:
                self.look()
            time.sleep(0.01)
        return next(results)

    def look(self) -> None:
        self.looked = time.monotonic()
        if self.client.status not in ("running", "connecting"):
            raise LostScheduler(f"the client is {self.client.status}")
        if self.client.scheduler_info()["workers"]:
            if self.without_since is not None and self.progress:
                self.progress("workers are back")
            self.without_since = None
            return
        done = f"{self.board.counts['units_done']} of {self.board.counts['units']} units are done"
        if self.without_since is None:
            self.without_since = self.looked
            if self.progress:
                limit = "" if self.patience is None else f" for {self.patience:.0f} s"
                self.progress(f"no worker is connected to {self.where}: waiting{limit}; {done}")
        elif self.patience is not None and self.looked - self.without_since > self.patience:
            raise NoWorkers(f"no worker has been connected to {self.where} for {self.patience:.0f} s; {done} and their results are kept. "
                            "Start workers (dask worker ADDRESS), and continue with 'resume'")


def close(*things: Any) -> None:
    for thing in things:
        try:
            if thing is not None:
                thing.close()
        except Exception:  # pylint: disable=broad-except # it is gone already
            pass


_WORKERS_DIED = "workers died while they did it, one after the other: it may need more memory than they have"


@contextlib.contextmanager
def connection(board: Board, under_way: "dict[str, Task]") -> "Iterator[None]":
    """Turns errors of the connection to the scheduler into LostScheduler. Tasks under way are on the board again then."""
    from concurrent.futures import CancelledError

    try:
        yield
    except (CancelledError, StopIteration, LostScheduler, OSError) as error:
        board.ready = list(under_way.values()) + board.ready
        raise LostScheduler(reason_of(error)) from error


def outcome(future: Any) -> "tuple[Any, Optional[str]]":
    """Returns the result of a task, or the reason why it failed. Errors: LostScheduler, and those of the connection."""
    from distributed.scheduler import KilledWorker

    if future.status == "error":
        error = future.exception()
        return None, _WORKERS_DIED if isinstance(error, KilledWorker) else reason_of(error)
    if future.status != "finished":
        raise LostScheduler("tasks were cancelled")
    try:
        return future.result(), None
    except KilledWorker:  # the worker died before it gave the result, and those that repeated the task died too
        return None, _WORKERS_DIED


def drive(watch: Watch, board: Board, progress: Optional[Callable[[str], None]], started: float) -> None:
    """Gives all tasks of the board to Dask until none is left. Errors: NoWorkers, LostScheduler."""
    from distributed import as_completed

    under_way: "dict[str, Task]" = {}
    results = as_completed()
    serial = itertools.count(1)

    def submit() -> None:
        tasks = {f"{task.key}#{next(serial)}": task for task in board.take()}
        under_way.update(tasks)
        for key, task in tasks.items():
            # Large units first: the last ones to end are then short.
            results.add(watch.client.submit(task.work, *task.arguments, key=key, pure=False, priority=task.weight / 2**20))

    with connection(board, under_way):
        submit()
    while under_way:
        with connection(board, under_way):
            future = watch.next(results)
            if future.key not in under_way:
                continue
            result, reason = outcome(future)
        task = under_way.pop(future.key)  # not before its result is here: on the way it can be lost
        if reason is None:
            try:
                board.done(task, result)
            except OSError as error:  # the store could not be written
                reason = reason_of(error)
        if reason is not None:
            board.failed(task, reason)
        with connection(board, under_way):
            future.release()
            submit()
        if progress:
            progress(bar(board.counts, len(board.failures), started))


def status(root: str) -> "dict[str, Any]":
    """What is planned, done, merged and failed on a store."""
    store = Store(root)
    done: "dict[str, int]" = {}
    for name in store.list("_done", ".json"):
        done[name.split("/")[1]] = done.get(name.split("/")[1], 0) + 1
    merged = {name.split("/")[-1][:-len(".json")] for name in store.list("_merged", ".json")}
    recordings = []
    for name in store.list("_plans", ".json"):
        facts = store.get_json(name)
        recordings.append({"recording": facts["recording"], "source": facts["source"], "units": facts["units"], "done": done.get(facts["recording"], 0),
                           "merged": facts["recording"] in merged,
                           "how": {"unit_bytes": 0, "options": {}, **facts.get("how", {}), "calls": facts.get("calls", True)}})
    return {"recordings": recordings, "failed": [store.get_json(name) for name in store.list("_failed", ".json")]}


def unfinished(root: str, options: "dict[str, Any]", unit_bytes: Optional[int] = None) -> "list[tuple[str, dict[str, Any]]]":
    """The recordings of a store that are not merged, with how each was planned, as Board takes them. What `options` and `unit_bytes` give has priority."""
    facts = status(root)
    left = [(each["source"], each["how"]) for each in facts["recordings"] if not each["merged"]]
    left += [(each["source"], each["how"]) for each in facts["failed"] if "source" in each and each["source"] not in dict(left)]
    chosen = {key: value for key, value in options.items() if value}
    return [(source, {**how, "options": {**how["options"], **chosen}, **({} if unit_bytes is None else {"unit_bytes": unit_bytes})}) for source, how in left]


def print_line(line: str) -> None:
    """Progress on standard error: the bar in place on a terminal."""
    terminal = sys.stderr.isatty()
    sys.stderr.write(f"\r{line}\x1b[K" if terminal and line.startswith("[") else line + "\n")
    sys.stderr.flush()
