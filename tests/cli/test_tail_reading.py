"""How tail reads a log; the command itself is in test_tail.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from procrastinate_py.cli.tail import Entry, Followed, entries
from procrastinate_py.runtime.logs import LogSettings, QueueLog


def open_log(folder: Path, **settings: Any) -> QueueLog:
    return QueueLog(LogSettings.checked(log_dir=folder, **settings), "email")


def read_all(log: QueueLog) -> list[Entry]:
    log.close()
    with Followed(log.path or "") as followed:
        return list(entries(followed.read()))


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


@pytest.mark.parametrize("form", ["line", "json"])
@pytest.mark.parametrize(
    "event", ["fail", "sent the mail to bob", "a=b c=d", 'said "no"', "", " ", "two\nlines", "ends with level=x", "\\"]
)
def test_what_was_logged_is_read_back(tmp_path: Path, form: str, event: str) -> None:
    log = open_log(tmp_path, log_format=form)
    log.bind(task_id=7, task="app:Send").warning(event, reason='x="y" z', empty="", **{"odd key": "v"})
    [entry] = read_all(log)
    assert entry.level == "WARNING"
    told = {key: str(entry.fields[key]) for key in ("event", "task_id", "task", "reason", "empty", "odd key", "queue")}
    assert told == {
        "event": event,
        "task_id": "7",
        "task": "app:Send",
        "reason": 'x="y" z',
        "empty": "",
        "odd key": "v",
        "queue": "email",
    }


@pytest.mark.parametrize("form", ["line", "json"])
def test_a_traceback_stays_with_its_event(tmp_path: Path, form: str) -> None:
    log = open_log(tmp_path, log_format=form)
    log.error("broke", error=raised(ValueError("odd")))
    log.info("next")
    broke, following = read_all(log)
    assert broke.fields["traceback"].endswith("ValueError: odd\n")
    assert following.fields["event"] == "next"


def test_an_entry_is_found_by_id_by_class_and_by_its_short_name(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.bind(task_id=7, task="app.mail:Send").info("x")
    [entry] = read_all(log)
    assert [task for task in ("7", "app.mail:Send", "Send", "app", "77", "") if entry.is_about(task)] == [
        "7",
        "app.mail:Send",
        "Send",
    ]


def test_lines_that_no_log_of_ours_wrote_stand_for_themselves() -> None:
    told = list(entries(["\x1b[31mforeign", "{broken", "[]", "   "]))
    assert [entry.fields["event"] for entry in told] == ["\x1b[31mforeign", "{broken", "[]", "   "]
    assert told[0].text == r"\u001b[31mforeign"


def test_nothing_is_missed_nor_told_twice_when_files_change_over(tmp_path: Path) -> None:
    """E49"""
    log = open_log(tmp_path, log_rotate=500, log_keep=20)
    seen: list[str] = []
    with Followed(str(tmp_path / "email-queue-worker.log")) as followed:
        assert followed.read() == []
        for number in range(40):
            log.info("event", number=number)
            if number % 5 == 0:
                seen += [entry.fields["number"] for entry in entries(followed.read())]
        seen += [entry.fields["number"] for entry in entries(followed.read())]
    log.close()
    assert len(list(tmp_path.iterdir())) > 3
    assert seen == [str(number) for number in range(40)]


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntw")
    with Followed(str(path)) as followed:
        assert followed.read() == ["one"]
        with path.open("a") as file:
            file.write("o\n")
        assert followed.read() == ["two"]


def test_a_file_that_somebody_emptied_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    with Followed(str(path)) as followed:
        followed.read()
        path.write_text("three\n")
        assert followed.read() == ["three"]
