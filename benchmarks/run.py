"""make bench: runs what is asked for (all by default), prints a table, writes benchmarks/out/latest.json.

python benchmarks/run.py [--quick] [--runs 3] [p1 p2 p3 p6 p7 p8 p9 p10 p12]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table; ``reach`` is spec 6's, where it has one."""

    id: str
    what: str
    value: float
    unit: str
    reach: str = ""
    runs: tuple[float, ...] = ()


def median_of(runs: int, once: Callable[[], float]) -> tuple[float, tuple[float, ...]]:
    values = tuple(once() for _ in range(runs))
    return statistics.median(values), values


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    runs: int
    tasks: int
    sends: int
    idle_seconds: float


def in_fresh_folder(once: Callable[[Path], float]) -> Callable[[], float]:
    """Each run has a folder, a store and an application module of its own."""

    def run() -> float:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            folder = Path(name)
            os.environ["BENCH_FOLDER"] = name
            sys.modules.pop("app", None)
            return once(folder)

    return run


def drain_rate(folder: Path, store: str, count: int) -> float:
    """Tasks a second between the first run and the last, the backlog being there before the start."""
    import app
    from measure import Lines, application

    if store == "floor":
        app.prefill_own_table(count)
    else:
        app.environment(store).delay_many([("bench", app.Noop(number), {}) for number in range(count)])
    lines = Lines(folder)
    with application(folder, store):
        lines.wait_for(count)
    lines.close()
    moments = sorted(at for _, at in lines.runs)
    return (len(moments) - 1) / (moments[-1] - moments[0])


def bare_rate(folder: Path, count: int) -> float:
    """Tasks a second by claim and settle alone, in batches of 200: what SQLite allows."""
    import app
    from in_process import claimed_and_settled

    app.environment("sqlite").delay_many([("bench", app.Noop(number), {}) for number in range(count)])
    store = app.sqlite_store()
    began = time.perf_counter()
    assert claimed_and_settled(store) == count
    took = time.perf_counter() - began
    store.close()
    return count / took


def p1(effort: Effort) -> list[Figure]:
    bare, runs = median_of(effort.runs, in_fresh_folder(partial(bare_rate, count=effort.tasks)))
    figures = [Figure(id="P1", what="a bare loop of claim and settle, SQLite", value=bare, unit="tasks/s", runs=runs)]
    for store, reach in (("sqlite", ">= 15,000"), ("floor", "")):
        value, runs = median_of(effort.runs, in_fresh_folder(partial(drain_rate, store=store, count=effort.tasks)))
        what = (
            f"drain of {effort.tasks:,} no-ops, {'SQLite' if store == 'sqlite' else 'floor persister on an own table'}"
        )
        figures.append(Figure(id="P1", what=what, value=value, unit="tasks/s", reach=reach, runs=runs))
    return figures


def delayed_one_by_one(store: str, count: int) -> float:
    """Tasks a second, by one caller."""
    import app

    env = app.environment(store)
    env.delay("bench", task=app.Noop(-1), run_at=timedelta(days=1))
    began = time.perf_counter()
    for number in range(count):
        env.delay("bench", task=app.Noop(number), run_at=timedelta(days=1))
    rate = count / (time.perf_counter() - began)
    env.stop()
    return rate


def delayed_together(store: str, count: int) -> float:
    """Tasks a second, by one call."""
    import app

    env = app.environment(store)
    tasks = [("bench", app.Noop(number), {"run_at": timedelta(days=1)}) for number in range(count)]
    began = time.perf_counter()
    env.delay_many(tasks)
    rate = count / (time.perf_counter() - began)
    env.stop()
    return rate


def on_server(
    effort: Effort, store: str, ids_and_reaches: dict[str, str], fresh_url: Callable[[], str], name: str
) -> list[Figure]:
    """Drain, delay one by one, delay_many and pickup on a server's store; one of its own for each run."""
    figures = []
    reaches = list(ids_and_reaches.items())

    def measured(place: int, what: str, unit: str, once: Callable[[Path], float]) -> None:
        def on_new_store(folder: Path) -> float:
            os.environ["BENCH_URL"] = fresh_url()
            return once(folder)

        value, runs = median_of(effort.runs, in_fresh_folder(on_new_store))
        identity, reach = reaches[place]
        figures.append(Figure(id=identity, what=f"{what}, {name}", value=value, unit=unit, reach=reach, runs=runs))

    count, rate = effort.tasks, "tasks/s"
    measured(0, f"drain of {count:,} no-ops", rate, partial(drain_rate, store=store, count=count))
    measured(1, "delay one by one", rate, lambda _: delayed_one_by_one(store, count // 5))
    measured(2, f"delay_many of {count:,}", rate, lambda _: delayed_together(store, count))
    waits: list[list[float]] = []
    measured(3, "call of delay to run, p50", "ms", partial(median_pickup, store, effort.sends, waits))
    p99s = tuple(one[int(len(one) * 0.99) - 1] for one in waits)
    what = f"call of delay to run, p99, {name}"
    figures.append(Figure(id="P6", what=what, value=statistics.median(p99s), unit="ms", reach="< 10", runs=p99s))
    return figures


def p2(effort: Effort) -> list[Figure]:
    """PostgreSQL as it comes, fsync and all; a database of its own for each run."""
    from tests.servers import own_postgres

    reaches = {"P2": ">= 9,000", "P4": ">= 1,728", "P5": "> 23,136", "P6": "< 5"}
    with own_postgres(shared_buffers="256MB") as server:
        return on_server(effort, "postgres", reaches, server.new_database, "PostgreSQL")


def p3(effort: Effort) -> list[Figure]:
    """Redis with its log on disk, synced each second as is its default; a database of its own for each run."""
    from tests.servers import own_redis

    reaches = {"P3": ">= 15,000", "P4": "> 6,718", "P5": ">= 25,435", "P6": "< 1.2"}
    with own_redis(appendfsync="everysec") as server:
        return on_server(effort, "redis", reaches, server.fresh, "Redis")


def scheduled_backlog(store: str, filled: Filled) -> None:
    import app

    from procrastinate_py.core.task import NewTask
    from procrastinate_py.persisters import open_persister

    os.environ["BENCH_URL"] = filled.url
    app.FOLDER = filled.folder
    persister = open_persister(app.url_of(store))
    next_year = int(time.time()) + 365 * 86_400
    for start in range(0, filled.backlog, 50_000):
        moments = range(next_year + start, next_year + min(start + 50_000, filled.backlog))
        persister.create_many(
            [
                NewTask(queue="bench", run_at=at, initial_run_at=at, expire_at=None, task="!app:Noop {}")
                for at in moments
            ]
        )
    persister.close()


@dataclass(slots=True)
class Filled:
    """A store with so many tasks of next year in it, and what was measured beside them."""

    folder: Path
    backlog: int
    url: str
    rates: list[float] = field(default_factory=list)
    memory: float = 0.0

    def measure(self, store: str, count: int) -> None:
        """A drain, and the worker's memory after it."""
        import app
        from measure import Lines, application, pss_mib

        os.environ |= {"BENCH_FOLDER": str(self.folder), "BENCH_URL": self.url}
        app.FOLDER = self.folder
        (self.folder / "lines").unlink(missing_ok=True)
        env = app.environment(store)
        env.delay_many([("bench", app.Noop(number), {}) for number in range(count)])
        env.stop()
        lines = Lines(self.folder)
        with application(self.folder, store) as (_, pids):
            lines.wait_for(count)
            self.memory = max(map(pss_mib, pids))
        lines.close()
        moments = sorted(at for _, at in lines.runs)
        self.rates.append((len(moments) - 1) / (moments[-1] - moments[0]))


def p7(effort: Effort) -> list[Figure]:
    """By turns, beside a backlog and beside none, so that whatever else the machine does falls on both."""
    from tests.servers import own_postgres

    figures = []
    with own_postgres(shared_buffers="256MB") as server, tempfile.TemporaryDirectory(prefix="bench-") as name:
        for store in ("sqlite", "postgres"):
            both = []
            for backlog in (0, effort.tasks * 100):
                folder = Path(name) / f"{store}-{backlog}"
                folder.mkdir()
                both.append(Filled(folder, backlog, server.new_database()))
                scheduled_backlog(store, both[-1])
                # The server's own cleaning up after a million inserts isn't what is measured.
                server.run("VACUUM ANALYZE", both[-1].url.rpartition("/")[2])
                server.run("CHECKPOINT")
            for _ in range(effort.runs * 2):
                for filled in both:
                    filled.measure(store, effort.tasks)
            for filled in both:
                what = f"drain of {effort.tasks:,} beside {filled.backlog:,} scheduled, {store}"
                rates = tuple(filled.rates)
                figures.append(Figure(id="P7", what=what, value=statistics.median(rates), unit="tasks/s", runs=rates))
            ratio = figures[-1].value / figures[-2].value
            what = f"drain beside the backlog against without, {store}"
            figures.append(Figure(id="P7", what=what, value=ratio, unit="ratio", reach=">= 0.9"))
            more = both[1].memory - both[0].memory
            figures.append(Figure(id="P7", what=f"the worker's memory, more by, {store}", value=more, unit="MiB"))
    return figures


def pickups(folder: Path, store: str, sends: int) -> list[float]:
    """Milliseconds from the call of delay here to the first line of run there."""
    import app
    from measure import Lines, application

    env = app.environment(store)
    lines = Lines(folder)
    pauses = random.Random(1)
    called: dict[int, float] = {}
    with application(folder, store):
        env.delay("bench", task=app.Noop(-1))
        lines.wait_for(1)
        for number in range(sends):
            time.sleep(pauses.uniform(0.02, 0.08))
            called[number] = time.monotonic()
            env.delay("bench", task=app.Noop(number))
            lines.wait_for(number + 2, pause=0.005)
    lines.close()
    return sorted((at - called[number]) * 1000 for number, at in lines.runs if number in called)


def median_pickup(store: str, sends: int, waits: list[list[float]], folder: Path) -> float:
    """Adds all of them to ``waits``."""
    waits.append(pickups(folder, store, sends))
    return statistics.median(waits[-1])


def p6(effort: Effort) -> list[Figure]:
    figures = []
    for store, reaches in (("sqlite", ("< 2", "< 10")), ("floor", ("", ""))):
        waits: list[list[float]] = []
        p50, runs = median_of(effort.runs, in_fresh_folder(partial(median_pickup, store, effort.sends, waits)))
        p99s = tuple(one[int(len(one) * 0.99) - 1] for one in waits)
        what = f"call of delay to run, {'SQLite' if store == 'sqlite' else 'floor persister'}"
        figures.append(Figure(id="P6", what=f"{what}, p50", value=p50, unit="ms", reach=reaches[0], runs=runs))
        p99 = statistics.median(p99s)
        figures.append(Figure(id="P6", what=f"{what}, p99", value=p99, unit="ms", reach=reaches[1], runs=p99s))
    return figures


def import_ms(statement: str) -> float:
    """In a fresh interpreter, measured within it."""
    program = f"import time; began = time.perf_counter(); {statement}; print((time.perf_counter() - began) * 1000)"
    environ = os.environ | {"PYTHONPATH": str(HERE.parent)}
    return float(subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, check=True).stdout)


def p8(effort: Effort) -> list[Figure]:
    from measure import application, process_tree, pss_mib

    supervisors: list[float] = []

    def once(folder: Path) -> float:
        with application(folder, "sqlite") as (process, pids):
            time.sleep(2.0)
            (supervisor,) = set(process_tree(process.pid)) - {process.pid, *pids}
            supervisors.append(pss_mib(supervisor))
            return max(map(pss_mib, pids))

    pss, runs = median_of(effort.runs, in_fresh_folder(once))
    many = max(effort.runs * 3, 5)
    package, packages = median_of(many, partial(import_ms, "import procrastinate_py"))
    face, faces = median_of(many, partial(import_ms, "from procrastinate_py import Environment"))
    return [
        Figure(id="P8", what="idle queue process on SQLite, PSS", value=pss, unit="MiB", reach="< 20", runs=runs),
        Figure(
            id="P8",
            what="supervisor, PSS",
            value=statistics.median(supervisors),
            unit="MiB",
            reach="< 10",
            runs=tuple(supervisors),
        ),
        Figure(id="P8", what="import procrastinate_py", value=package, unit="ms", reach="< 60", runs=packages),
        Figure(id="P8", what="from procrastinate_py import Environment", value=face, unit="ms", runs=faces),
    ]


def p9(effort: Effort) -> list[Figure]:
    from measure import application, cpu_seconds, process_tree

    def once(folder: Path) -> float:
        with application(folder, "sqlite", queues=5) as (process, _):
            time.sleep(2.0)
            tree = process_tree(process.pid)
            before = cpu_seconds(tree)
            time.sleep(effort.idle_seconds)
            return (cpu_seconds(tree) - before) / effort.idle_seconds * 100

    value, runs = median_of(effort.runs, in_fresh_folder(once))
    return [
        Figure(
            id="P9", what="CPU of an idle environment, 5 queues", value=value, unit="% core", reach="< 0.2", runs=runs
        )
    ]


def p10(effort: Effort) -> list[Figure]:
    from in_process import bare_microseconds, worker_microseconds

    bare, _ = median_of(effort.runs, lambda: bare_microseconds(effort.tasks))
    whole, runs = median_of(effort.runs, lambda: worker_microseconds(effort.tasks))
    return [
        Figure(id="P10", what="a bare loop of claim and settle, memory", value=bare, unit="us/task"),
        Figure(
            id="P10", what="own cost a task beyond that", value=whole - bare, unit="us/task", reach="< 40", runs=runs
        ),
    ]


def p12(effort: Effort) -> list[Figure]:
    from in_process import floor_microseconds, worker_microseconds

    memory, _ = median_of(effort.runs, lambda: worker_microseconds(effort.tasks))
    floor, runs = median_of(effort.runs, lambda: floor_microseconds(effort.tasks))
    bigger, _ = median_of(1, lambda: floor_microseconds(effort.tasks * 4))
    count = f"{effort.tasks:,}"
    return [
        Figure(id="P12", what=f"memory store, {count} rows", value=memory, unit="us/task"),
        Figure(id="P12", what=f"floor persister, {count} rows", value=floor, unit="us/task", runs=runs),
        Figure(id="P12", what="floor against memory", value=floor / memory, unit="ratio", reach="<= 1.2"),
        Figure(
            id="P12", what="cost a task with four times the rows", value=bigger / floor, unit="ratio", reach="about 1"
        ),
    ]


PARTS = {"p1": p1, "p2": p2, "p3": p3, "p6": p6, "p7": p7, "p8": p8, "p9": p9, "p10": p10, "p12": p12}


def table(figures: list[Figure]) -> str:
    rows = [("id", "what", "median", "unit", "reach")]
    rows += [(f.id, f.what, f"{f.value:,.{0 if f.value >= 1000 else 2}f}", f.unit, f.reach) for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:<{widths[3]}}  {e}".rstrip()
        for a, b, c, d, e in rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="one run of each, fewer tasks: for trying out")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    unknown = set(asked.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if asked.quick:
        effort = Effort(runs=1, tasks=2_000, sends=50, idle_seconds=5.0)
    else:
        effort = Effort(runs=asked.runs, tasks=10_000, sends=200, idle_seconds=20.0)
    sys.path[:0] = [str(HERE.parent), str(HERE)]
    figures: list[Figure] = []
    for name in asked.parts or PARTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        figures += PARTS[name](effort)
    print(table(figures))
    out = HERE / "out"
    out.mkdir(exist_ok=True)
    told = {"python": platform.python_version(), "cores": os.cpu_count(), "effort": asdict(effort)}
    (out / "latest.json").write_text(json.dumps(told | {"figures": [asdict(f) for f in figures]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
