"""What texts, names and instants a floor persister has to keep as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .conformance_exam import QUEUE, STRANGE_TEXT, TEXT, Cases, Exam, equal, expect
from .conformance_floor import updated

FLOOR_VALUES = Cases("floor")

LATEST = 253_402_300_799
"""The last second of the year 9999."""

TELLING_NAMES = (
    *("a", "A", "a/b", "a//b", "a:b", "a::b", "a.b", "a.", ".a", "a*", "a?", "[a]", "{a}", "a}{b", "%61", "a%", "a_"),
    *("a\\b", "a|b", "a,b", "a;b", 'a"b', "a'b", "$a", "#a", "@a", "~", "-", "/", "..", "../../etc", "<a>", "a&b=c"),
    *("\u00e9", "e\u0301", "\ufb01", "fi", "\u212b", "\u00c5", "\u0130", "i", "\u0131", "\u05d0\u05d1", "\U0001f600"),
)
"""No two are the same queue, whatever is special to SQL, Redis, S3, shells, globs, file systems or collations."""

LONG_NAMES = ("q" * 500, "q" * 499, "q" * 499 + "r", "\u00e9" * 500, "\U0001f600" * 64)

_HOSTILE = (
    "' OR '1'='1",
    '"; DROP TABLE tasks; --',
    "$1 %s %(id)s :id ? {0} {id} ${id} #{id}",
    "redis.call('FLUSHALL') ]] -- ]=]",
    '{"id": 1, "task": null}',
    "[1, 2, 3]",
    "\\u0041\\x41\\n\\0",
    "$$ $tag$ E'\\047' U&'\\0041'",
    "--- !!python/object:os.system",
    "<!-- --> &amp; <script>",
    "../../etc/passwd",
    "%00 %2e%2e%2f",
    "*3\r\n$3\r\nSET\r\n",
)
_LOOK_ALIKES = ("1", "01", "1e5", "0x10", "-0", "null", "NULL", "None", "true", "NaN", "2026-01-01", "1.0", " ", "''")
_COMPOSED = ("\u00e9", "e\u0301", "E\u0301", "\u00c9", "\u212b", "\u00c5", "\ufb01", "fi", "\u1e9b\u0323", "\u1e69")
_UNUSUAL = (
    "\ufeffa mark first",
    "\u202eright to left\u202c \u05d0\u05d1 \u0639\u0631",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1ea\U0001f1fa",
    "\x01\x02\x1b[31m\x7f\x85\xa0\xad",
    "\u2028\u2029\u200b\u2060",
    "\uffff\ufffe\ufdd0\U0010ffff\U0001ffff",
    "\ue000\U000f0000 private",
    "tab\tcr\rlf\ncrlf\r\nvt\x0bff\x0c",
)


def _all_come_back(exam: Exam, texts: Sequence[str]) -> None:
    ids = exam.create_all([exam.new(task=text) for text in texts])
    rows = exam.rows()
    for text, task_id in zip(texts, ids, strict=True):
        expect(task_id in rows, f"the task with the text {text!r} is gone")
        equal("the task's text", rows[task_id].task, text)


@FLOOR_VALUES("text of any language, with quotes and line breaks, comes back as it was")
def _strange_text(exam: Exam) -> None:
    equal("task", exam.row(exam.create(task=STRANGE_TEXT)).task, STRANGE_TEXT)


@FLOOR_VALUES("a text of a mebibyte comes back whole")
def _long_text(exam: Exam) -> None:
    text = "!a:B " + "0123456789abcdef" * 2**16
    expect(exam.row(exam.create(task=text)).task == text, "the task's text is another one, or cut")


@FLOOR_VALUES("a text of a mebibyte that isn't ASCII comes back whole")
def _long_strange_text(exam: Exam) -> None:
    text = "!a:B " + "\U0001f600\u05d0" * (2**20 // 6)
    expect(exam.row(exam.create(task=text)).task == text, "the task's text is another one, or cut")


@FLOOR_VALUES("texts that differ only in how they're composed, or in case, come back each as it was")
def _composed(exam: Exam) -> None:
    _all_come_back(exam, [*_COMPOSED, "stra\u00dfe", "STRASSE", "strasse"])


@FLOOR_VALUES("characters that are seldom seen come back: directions, joiners, controls, private ones")
def _unusual(exam: Exam) -> None:
    _all_come_back(exam, _UNUSUAL)


@FLOOR_VALUES("white space at the ends of a text comes back")
def _white_space(exam: Exam) -> None:
    _all_come_back(exam, ["  two before", "two after  ", "\ttab\t", "\n\nlines\n\n", "\u3000wide\u3000", "\r\r"])


@FLOOR_VALUES("text that looks like a number, a date, null or true stays that text")
def _look_alikes(exam: Exam) -> None:
    _all_come_back(exam, _LOOK_ALIKES)
    row_id = exam.create()
    exam.persister.update_task({**updated(exam, row_id), "last_error": "00123", "task": "1e400"})
    row = exam.row(row_id)
    equal("the updated texts", (row.last_error, row.task), ("00123", "1e400"))


@FLOOR_VALUES("text that looks like SQL, Lua, JSON or a template is only text")
def _hostile(exam: Exam) -> None:
    _all_come_back(exam, _HOSTILE)
    row_id = exam.create()
    for text in _HOSTILE[:4]:
        exam.persister.update_task({**updated(exam, row_id), "last_error": text})
        equal("last_error", exam.row(row_id).last_error, text)
    equal("the number of rows", len(exam.rows()), len(_HOSTILE) + 1)


@FLOOR_VALUES("a text with a NUL is kept whole or refused, never cut")
def _nul(exam: Exam) -> None:
    _kept_or_refused(exam, "before\0after")


@FLOOR_VALUES("a text with half a surrogate pair is kept as it is or refused, never altered")
def _surrogate(exam: Exam) -> None:
    _kept_or_refused(exam, "before\ud83dafter")


def _kept_or_refused(exam: Exam, text: str) -> None:
    other = exam.create(task=TEXT)
    try:
        task_id = exam.persister.create_task(exam.new(task=text).as_mapping())
    except Exception:
        equal("the ids after a create_task that raised", list(exam.rows()), [other])
    else:
        equal("the text", exam.row(task_id).task, text)
    exam.persister.update_task({**updated(exam, other), "task": TEXT})
    equal("the other task, updated after it", exam.row(other).run_at, exam.start + 500)


@FLOOR_VALUES("an error text of 64 KiB with line breaks comes back as it was")
def _error_text(exam: Exam) -> None:
    task_id = exam.create()
    text = ("Task failed: \u00e9\U0001f600\n  File 'x'\n" * 2000)[: 64 * 1024]
    exam.persister.update_task({**updated(exam, task_id), "last_error": text})
    expect(exam.row(task_id).last_error == text, "last_error is another text, or cut")


@FLOOR_VALUES("update_task replaces a text by a shorter or a longer one, whole")
def _replaced(exam: Exam) -> None:
    task_id = exam.create(task="x" * 10_000)
    for text in ("short", "y" * 2**20, "\u05d0"):
        exam.persister.update_task({**updated(exam, task_id), "task": text})
        expect(exam.row(task_id).task == text, f"the task's text isn't the one of {len(text)} characters")


# --- names


@FLOOR_VALUES("a queue may have any name, and no other's is the same for looking like it")
def _names(exam: Exam) -> None:
    _names_apart(exam, TELLING_NAMES)


@FLOOR_VALUES("a queue's name may be long, and count to its last character")
def _long_names(exam: Exam) -> None:
    _names_apart(exam, LONG_NAMES)


def _names_apart(exam: Exam, names: Sequence[str]) -> None:
    ids = exam.create_all([exam.new(queue=name) for name in names])
    for name, task_id in zip(names, ids, strict=True):
        equal(f"the ids of queue {name!r}", list(exam.rows(name)), [task_id])


@FLOOR_VALUES("a queue's name with a NUL is kept whole or refused, never cut")
def _nul_in_name(exam: Exam) -> None:
    plain = exam.create(queue="nul")
    try:
        task_id = exam.create(queue="nul\0nul")
    except Exception:
        pass  # refused
    else:
        equal("the ids of the queue with the NUL", list(exam.rows("nul\0nul")), [task_id])
    equal("the ids of the queue without it", list(exam.rows("nul")), [plain])


# --- numbers


@FLOOR_VALUES("any instant from 1970 to the year 9999 comes back as it was")
def _instants(exam: Exam) -> None:
    _instants_come_back(exam, (0, 1, 2**31 - 1, 2**31, 2**32, LATEST))


@FLOOR_VALUES("an instant before 1970 comes back as it was")
def _early_instants(exam: Exam) -> None:
    _instants_come_back(exam, (-1, -86_400, -(2**31) - 1, -LATEST))


def _instants_come_back(exam: Exam, instants: Sequence[int]) -> None:
    tasks = [exam.new(instant - exam.start, expire_at=instant) for instant in instants]
    ids = exam.create_all(tasks)
    rows = exam.rows()
    for instant, task_id in zip(instants, ids, strict=True):
        expect(task_id in rows, f"the task of the instant {instant} is gone")
        row = rows[task_id]
        equal("its instants", (row.run_at, row.initial_run_at, row.expire_at), (instant, instant, instant))


@FLOOR_VALUES("update_task keeps any number of attempts and any instant of a failure")
def _numbers(exam: Exam) -> None:
    task_id = exam.create()
    wanted: tuple[tuple[int, Any], ...] = ((0, None), (2**31, -1), (1, LATEST), (2**40, 0))
    for attempts, last_fail_at in wanted:
        exam.persister.update_task({**updated(exam, task_id), "attempts": attempts, "last_fail_at": last_fail_at})
        row = exam.row(task_id)
        equal("the numbers", (row.attempts, row.last_fail_at), (attempts, last_fail_at))
    equal("the queue's ids", list(exam.rows(QUEUE)), [task_id])
