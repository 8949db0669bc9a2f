"""Persisters of four methods that are broken in one way each."""

from __future__ import annotations

import contextlib
import json
import unicodedata
from typing import Any

from examples import floor_dict
from tests.persisters.broken_stores import caught_by


class DictPersister(floor_dict.DictPersister):
    def __init__(self, clock: object = None) -> None:
        super().__init__()


class Rewriting(DictPersister):
    """Does something to each text or number that comes in."""

    def text(self, text: str) -> Any:
        return text

    def create_task(self, data: dict[str, Any]) -> int:
        return super().create_task({**data, "task": self.text(data["task"])})


@caught_by("floor", "what create_task got is what read_tasks gives")
class ForgetsExpiry(DictPersister):
    def create_task(self, data: dict[str, Any]) -> int:
        return super().create_task({**data, "expire_at": None})


@caught_by("floor", "updating a task that is gone doesn't bring it back")
class RevivesDeleted(DictPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        self.rows[attributes["id"]] = dict(attributes)


@caught_by("floor", "a text of a mebibyte comes back whole")
class CutsTexts(DictPersister):
    def create_task(self, data: dict[str, Any]) -> int:
        return super().create_task({**data, "task": data["task"][:255]})


@caught_by("floor", "deleting a task that is gone already raises nothing")
class RaisesOnAbsent(DictPersister):
    def delete_task(self, task_id: int) -> None:
        del self.rows[task_id]


@caught_by("floor", "read_tasks gives the tasks of the queue that was asked for, and no others")
class MixesQueues(DictPersister):
    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        return [dict(row) for row in self.rows.values()]


@caught_by("floor", "update_task overwrites the nine attributes")
class UpdatesOnlyRunAt(DictPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        if attributes["id"] in self.rows:
            self.rows[attributes["id"]]["run_at"] = attributes["run_at"]


@caught_by("floor", "texts that differ only in how they're composed, or in case, come back each as it was", alone=True)
class Composes(Rewriting):
    def text(self, text: str) -> str:
        return unicodedata.normalize("NFC", text)


@caught_by("floor", "white space at the ends of a text comes back")
class Strips(Rewriting):
    def text(self, text: str) -> str:
        return text.strip()


@caught_by("floor", "text that looks like a number, a date, null or true stays that text")
class GuessesTypes(Rewriting):
    """As a column without a type, or a reader of YAML does."""

    def text(self, text: str) -> str:
        with contextlib.suppress(ValueError):
            return str(json.loads(text))
        return text


@caught_by("floor", "text that looks like SQL, Lua, JSON or a template is only text", alone=True)
class FillsTemplates(Rewriting):
    def text(self, text: str) -> str:
        return text.replace("%%", "%").replace("$$", "$")


@caught_by("floor", "a text with a NUL is kept whole or refused, never cut", alone=True)
class EndsAtNul(Rewriting):
    def text(self, text: str) -> str:
        return text.split("\0")[0]


@caught_by("floor", "a text with half a surrogate pair is kept as it is or refused, never altered", alone=True)
class ReplacesSurrogates(Rewriting):
    def text(self, text: str) -> str:
        return text.encode(errors="replace").decode()


@caught_by(
    "floor", "characters that are seldom seen come back: directions, joiners, controls, private ones", alone=True
)
class DropsControls(Rewriting):
    """As XML 1.0 would."""

    def text(self, text: str) -> str:
        return "".join(char for char in text if char >= " " or char in "\t\r\n\0")


@caught_by("floor", "a text of a mebibyte that isn't ASCII comes back whole", alone=True)
class CountsBytes(Rewriting):
    """A mebibyte of bytes, where a mebibyte of characters was meant."""

    def text(self, text: str) -> str:
        return text if text.isascii() else text.encode(errors="surrogatepass")[: 2**20].decode(errors="surrogatepass")


class RenamingQueues(DictPersister):
    def queue(self, name: str) -> str:
        return name

    def create_task(self, data: dict[str, Any]) -> int:
        return super().create_task({**data, "queue": self.queue(data["queue"])})

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        return super().read_tasks(self.queue(queue))


@caught_by("floor", "a queue may have any name, and no other's is the same for looking like it", alone=True)
class FoldsNames(RenamingQueues):
    """As MySQL's default collation does."""

    def queue(self, name: str) -> str:
        return name.casefold()


@caught_by("floor", "a queue's name may be long, and count to its last character", alone=True)
class CutsNames(RenamingQueues):
    def queue(self, name: str) -> str:
        return name[:255]


@caught_by("floor", "a queue's name with a NUL is kept whole or refused, never cut", alone=True)
class EndsNamesAtNul(RenamingQueues):
    def queue(self, name: str) -> str:
        return name.split("\0")[0]


@caught_by("floor", "an instant before 1970 comes back as it was", alone=True)
class BeginsIn1970(DictPersister):
    def create_task(self, data: dict[str, Any]) -> int:
        return super().create_task({name: max(0, v) if isinstance(v, int) else v for name, v in data.items()})


@caught_by("floor", "update_task keeps any number of attempts and any instant of a failure", alone=True)
class Counts31Bits(DictPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        super().update_task({**attributes, "attempts": min(attributes["attempts"], 2**31 - 1)})


@caught_by("floor", "what is done to the dict after create_task returned changes nothing in the store", alone=True)
class KeepsTheDict(DictPersister):
    def create_task(self, data: dict[str, Any]) -> int:
        task_id = super().create_task(data)
        self.given = {**getattr(self, "given", {}), task_id: data}
        return task_id

    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        for task_id, data in self.given.items() if hasattr(self, "given") else ():
            if task_id in self.rows and self.rows[task_id]["attempts"] == 0:
                self.rows[task_id].update(data)
        return super().read_tasks(queue)

    def update_task(self, attributes: dict[str, Any]) -> None:
        self.given.pop(attributes["id"], None)
        super().update_task(attributes)


@caught_by("floor", "what is done to the dict after update_task returned changes nothing in the store", alone=True)
class KeepsTheUpdate(DictPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        if attributes["id"] in self.rows:
            self.rows[attributes["id"]] = attributes


@caught_by("floor", "what is done to a row that read_tasks gave changes nothing in the store", alone=True)
class GivesItsRows(DictPersister):
    def read_tasks(self, queue: str) -> list[dict[str, Any]]:
        return [row for row in self.rows.values() if row["queue"] == queue and row["run_at"] is not None]


@caught_by("floor", "a closed task can be opened again by update_task", alone=True)
class KeepsClosed(DictPersister):
    def update_task(self, attributes: dict[str, Any]) -> None:
        if self.rows.get(attributes["id"], {}).get("run_at") is not None:
            super().update_task(attributes)


@caught_by("floor", "two tasks that are alike in everything are two tasks")
class MergesEqual(DictPersister):
    def create_task(self, data: dict[str, Any]) -> int:
        for task_id, row in self.rows.items():
            if all(row[name] == value for name, value in data.items()):
                return task_id
        return super().create_task(data)


@caught_by("floor", "update_task and delete_task leave the tasks of other queues alone", alone=True)
class CountsIdsByQueue(DictPersister):
    """A task is known by its queue and its number in there; but delete_task is told the number only."""

    def delete_task(self, task_id: int) -> None:
        queue = self.rows.get(task_id, {}).get("queue")
        super().delete_task(task_id)
        for other, row in list(self.rows.items()):
            if other == task_id + 1 and row["queue"] != queue:
                del self.rows[other]


@caught_by("floor", "tasks from before the store was opened anew are updated and deleted by their ids", alone=True)
class ForgetsIds(DictPersister):
    """Opened anew, it reads its rows, and changes none that it didn't make itself."""

    def reopened(self) -> ForgetsIds:
        new = type(self)()
        new._ids = self._ids
        new.rows = self.rows
        new.old = set(self.rows)
        return new

    old: frozenset[int] | set[int] = frozenset()

    def update_task(self, attributes: dict[str, Any]) -> None:
        if attributes["id"] not in self.old:
            super().update_task(attributes)

    def delete_task(self, task_id: int) -> None:
        if task_id not in self.old:
            super().delete_task(task_id)


@caught_by("floor", "what was written is there after the store was opened anew", alone=True)
class StartsIdsAnew(DictPersister):
    def reopened(self) -> StartsIdsAnew:
        new = type(self)()
        new.rows = {task_id - 1 if task_id < 0 else task_id: row for task_id, row in self.rows.items()}
        return new
