"""Stores whose further abilities are broken in one way each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from procrastinate_py.core.lifecycle import Close, Complete
from procrastinate_py.core.task import NewTask, TaskState
from procrastinate_py.persisters import MemoryPersister
from tests.persisters.broken_stores import caught_by, pause


@caught_by("creating", "create_many stores all of its tasks or none")
class CreatesSome(MemoryPersister):
    def create_many(self, tasks: Any) -> Any:
        ids = []
        for task in tasks:
            if task.run_at > 2**63:
                raise OverflowError("too large")
            ids.append(self.create_task(task.as_mapping()))
        return ids


@caught_by("editing", "a transition is refused where the task failed meanwhile")
class EditsBlindly(MemoryPersister):
    def transition(self, task_id: Any, expected: Any, transition: Any) -> bool:
        current = self.find(task_id)
        return current is not None and super().transition(task_id, current, transition)


@caught_by("waking", "notify wakes every listener of its queue, and none of another's")
class WakesEverybody(MemoryPersister):
    def notify(self, queue: str) -> None:
        for name in list(self._wake._listeners):
            super().notify(name)


@caught_by("inspecting", "a task in hand is RUNNING, and PENDING once its lease has lapsed")
class CountsLapsedAsRunning(MemoryPersister):
    def find(self, task_id: Any) -> Any:
        record = super().find(task_id)
        return record and replace(record, read_at=0.0)


# --- creating


@caught_by("creating", "create_many makes as many tasks of equal ones as it was given")
class CreatesEachOnce(MemoryPersister):
    def create_many(self, tasks: Any) -> Any:
        ids = dict(zip(dict.fromkeys(tasks), super().create_many(list(dict.fromkeys(tasks))), strict=True))
        return [ids[task] for task in tasks]


@caught_by("creating", "create_many of thousands returns as many ids, in order")
class ReturnsIdsBackwards(MemoryPersister):
    def create_many(self, tasks: Any) -> Any:
        return super().create_many(tasks)[::-1]


@caught_by("creating", "create_many that can't store one task's text stores none of the others")
class CreatesAsFarAsItCan(MemoryPersister):
    def create_many(self, tasks: Any) -> Any:
        ids = []
        for task in tasks:
            task.task.encode()
            ids.append(self.create_task(task.as_mapping()))
        return ids


@caught_by("creating", "threads that create many at the same time get ids of their own, and every task is stored")
class GuessesIds(MemoryPersister):
    """Takes for its own ids the last ones that there are."""

    def create_many(self, tasks: Any) -> Any:
        ids = super().create_many(tasks)
        pause()
        return list(self._rows)[-len(tasks) :] if ids else []


@caught_by("creating", "create_many takes tasks of several queues, of any name, and gives each to its own")
class CreatesInOneQueue(MemoryPersister):
    def create_many(self, tasks: Any) -> Any:
        return super().create_many([replace(task, queue=tasks[0].queue) for task in tasks])


# --- editing


@caught_by("editing", "a transition is refused where update_task changed run_at or attempts meanwhile")
class ComparesStates(MemoryPersister):
    def transition(self, task_id: Any, expected: Any, transition: Any) -> bool:
        current = self.find(task_id)
        if current is None or current.state is not expected.state:
            return False
        return super().transition(task_id, current, transition)


@caught_by("editing", "a transition is refused where the task changed hands meanwhile")
class ComparesAllButTheLease(MemoryPersister):
    def transition(self, task_id: Any, expected: Any, transition: Any) -> bool:
        current = self.find(task_id)
        return super().transition(task_id, replace(expected, lease=current and current.lease), transition)


@caught_by("editing", "a transition that is repeated, since its reply was lost, is refused and changes nothing more")
class SaysYesToWhatIsGone(MemoryPersister):
    def transition(self, task_id: Any, expected: Any, transition: Any) -> bool:
        return super().transition(task_id, expected, transition) or (
            isinstance(transition, Complete) and task_id not in self._rows
        )


@caught_by("editing", "a closed task can be put off anew by a transition, and is claimed when its time has come")
class KeepsClosed(MemoryPersister):
    def transition(self, task_id: Any, expected: Any, transition: Any) -> bool:
        return expected.closed_as is None and super().transition(task_id, expected, transition)


@caught_by(
    "editing", "a transition of a task whose lease had lapsed when it was read takes it from the reaper", alone=True
)
class LeavesLapsedToTheReaper(MemoryPersister):
    def transition(self, task_id: Any, expected: Any, transition: Any) -> bool:
        if expected.lease is not None and expected.state is TaskState.PENDING:
            return False
        return super().transition(task_id, expected, transition)


@caught_by("editing", "of threads that edit the same task at the same time, one alone wins")
class LooksThenEdits(MemoryPersister):
    def transition(self, task_id: Any, expected: Any, transition: Any) -> bool:
        current = self.find(task_id)
        if current != replace(expected, read_at=current.read_at if current else 0.0):
            return False
        pause()
        now = self.find(task_id)
        if now is not None:
            super().transition(task_id, now, transition)
        return True


# --- waking


@caught_by("waking", "create_task wakes the queue's listener, which can claim the task then, and no other queue's")
class CreatesSilently(MemoryPersister):
    silent = False

    def create_task(self, data: dict[str, Any]) -> int:
        self.silent = True
        try:
            return super().create_task(data)
        finally:
            self.silent = False

    def notify(self, queue: str) -> None:
        if not self.silent:
            super().notify(queue)


@caught_by("waking", "create_task wakes for a task of the future too, since it may be the next to look at", alone=True)
class WakesForWhatIsDue(MemoryPersister):
    def create_task(self, data: dict[str, Any]) -> int:
        with self._lock:
            task_id = self._insert(NewTask(**data))
        if data["run_at"] <= self.now():
            self.notify(data["queue"])
        return task_id


@caught_by("waking", "create_many wakes the listeners of each queue that got a task, and no others", alone=True)
class WakesTheFirstQueue(MemoryPersister):
    def create_many(self, tasks: Any) -> Any:
        with self._lock:
            ids = [self._insert(task) for task in tasks]
        for task in tasks[:1]:
            self.notify(task.queue)
        return ids


@caught_by("waking", "a transition that makes a task due wakes the queue's listener, and no other queue's", alone=True)
class EditsSilently(MemoryPersister):
    silent = False

    def transition(self, task_id: Any, expected: Any, transition: Any) -> bool:
        self.silent = True
        try:
            return super().transition(task_id, expected, transition)
        finally:
            self.silent = False

    def notify(self, queue: str) -> None:
        if not self.silent:
            super().notify(queue)


@caught_by("waking", "looking, claiming, extending and completing wake nobody", alone=True)
class WakesOnSettle(MemoryPersister):
    def settle(self, settlements: Any) -> Any:
        lost = super().settle(settlements)
        for name in self._queues:
            self.notify(name)
        return lost


@caught_by("waking", "queues with similar or long names wake their own listeners only", alone=True)
class CutsChannels(MemoryPersister):
    """As a channel's name is cut in PostgreSQL."""

    def notify(self, queue: str) -> None:
        super().notify(queue[:63])

    def listen(self, queue: str) -> Any:
        return super().listen(queue[:63])


@caught_by("waking", "draining one listener leaves another's wake-up where it is")
class DrainsAll(MemoryPersister):
    def listen(self, queue: str) -> Any:
        listener = super().listen(queue)
        persister = self

        class Draining:
            fileno, close = listener.fileno, listener.close

            def drain(self) -> None:
                for each in persister._wake._listeners[queue]:
                    each.drain()

        return Draining()


@caught_by("waking", "a listener can be closed twice, and the others go on")
class ClosesAll(MemoryPersister):
    def listen(self, queue: str) -> Any:
        listener = super().listen(queue)
        persister = self

        class Closing:
            fileno, drain = listener.fileno, listener.drain

            def close(self) -> None:
                listener.close()
                persister._wake._listeners[queue].clear()
                listener._forget = lambda: None

        return Closing()


# --- inspecting


@caught_by("inspecting", "paging isn't disturbed by tasks that come and go meanwhile", alone=True)
class PagesByNumber(MemoryPersister):
    """Goes on after as many tasks as it has given, not after the one that it gave last."""

    given = 0

    def select(self, *, limit: int | None = None, after: Any = None, **filters: Any) -> Any:
        self.given = 0 if after is None else self.given
        rows = super().select(**filters) if after is None or limit is not None else super().select(after=after)
        page = rows[self.given if limit is not None else 0 :][: None if limit is None else max(limit, 0)]
        if after is not None and self.given == 0:
            return super().select(limit=limit, after=after, **filters)
        self.given += len(page)
        return page


@caught_by("inspecting", "paging through a thousand tasks gives each once, in the order in which they were created")
class PagesByRunAt(MemoryPersister):
    def select(self, *, limit: int | None = None, after: Any = None, **filters: Any) -> Any:
        rows = sorted(super().select(after=after, **filters), key=lambda row: (row.run_at or 0, row.id))
        return rows[: None if limit is None else max(limit, 0)]


@caught_by(
    "inspecting", "select with limit 0, or a negative one, gives nothing; with a huge one everything", alone=True
)
class TakesZeroForNone(MemoryPersister):
    def select(self, *, limit: int | None = None, **filters: Any) -> Any:
        return super().select(limit=limit or None, **filters)


@caught_by("inspecting", "find tells nothing of ids that no task has, whatever they look like", alone=True)
class FindsWhatLooksAlike(MemoryPersister):
    def find(self, task_id: Any) -> Any:
        try:
            return super().find(int(task_id))
        except (ValueError, OverflowError):
            return None


@caught_by(
    "inspecting", "a task is RUNNING up to the very end of its lease, for find, select and count alike", alone=True
)
class CountsTheEndApart(MemoryPersister):
    """Its statement that counts has < where the others have <=."""

    def count(self, *, queue: str | None = None, state: TaskState | None = None) -> Mapping[Any, int]:
        counts: dict[Any, int] = {}
        for row in self.select(queue=queue):
            at_end = row.lease is not None and row.lease.expires_at == row.read_at
            found = TaskState.PENDING if at_end else row.state
            if state in (None, found):
                counts[row.queue, found] = counts.get((row.queue, found), 0) + 1
        return counts


@caught_by("inspecting", "a task that update_task closed is in the state that its error's first words tell", alone=True)
class ClosesAsFailed(MemoryPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        super().update_task(attributes)
        row = self._rows.get(attributes["id"])
        if row is not None and row.closed_as is not None:
            self._rows[row.id] = replace(row, closed_as=TaskState.FAILED)


@caught_by("inspecting", "find tells what each kind of transition leaves of a task")
class ClosesOnceForAll(MemoryPersister):
    """Expired or failed: closed is closed, it thinks."""

    def settle(self, settlements: Any) -> Any:
        return super().settle(
            [
                (token, replace(way, state=TaskState.FAILED) if isinstance(way, Close) else way)
                for token, way in settlements
            ]
        )


@caught_by("inspecting", "counts follow each kind of transition, and completed tasks aren't counted")
class CountsCompleted(MemoryPersister):
    done = 0

    def settle(self, settlements: Any) -> Any:
        lost = super().settle(settlements)
        self.done += sum(isinstance(way, Complete) for token, way in settlements if token not in lost)
        return lost

    def count(self, *, queue: str | None = None, state: TaskState | None = None) -> Mapping[Any, int]:
        counts = dict(super().count(queue=queue, state=state))
        if self.done:
            counts["conformance", TaskState.COMPLETED] = self.done
        return counts


@caught_by("inspecting", "find, select and claim tell the same of a task")
class SelectsBriefly(MemoryPersister):
    """Leaves out of lists what is long."""

    def select(self, **filters: Any) -> Any:
        return [replace(row, last_error=None) for row in super().select(**filters)]


# --- timekeeping


@caught_by("timekeeping", "records that were looked at tell when they were read", alone=True)
class ReadsAtTheClaim(MemoryPersister):
    def select(self, **filters: Any) -> Any:
        return [
            replace(row, read_at=row.read_at if row.lease else float(row.run_at or 0))
            for row in super().select(**filters)
        ]


@caught_by("timekeeping", "now is in epoch seconds, by the clock that the persister was given")
class TellsMilliseconds(MemoryPersister):
    def now(self) -> float:
        return super().now() * 1000
