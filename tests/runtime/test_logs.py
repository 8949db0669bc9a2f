from __future__ import annotations

import json
import logging
import os
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py.runtime.logs import LogSettings, QueueLog, log_file_name
from procrastinate_py.testing.clock import FakeClock


def opened(folder: Path, queue: str = "email", **settings: Any) -> QueueLog:
    return QueueLog(LogSettings.checked(log_dir=folder, **settings), queue)


def lines_of(log: QueueLog) -> list[str]:
    assert log.path is not None
    return Path(log.path).read_text(encoding="utf-8").splitlines()


def events_of(log: QueueLog) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(log)]


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "level"),
        [
            ("INFO", 20),
            ("debug", 10),
            (" Warn ", 30),
            ("Critical", 50),
            (15, 15),
            ("15", 15),
            (0, 0),
            (logging.ERROR, 40),
        ],
    )
    def test_a_level_is_a_name_or_number_of_logging(self, given: Any, level: int) -> None:
        """E49"""
        assert LogSettings.checked(log_level=given).level == level

    def test_a_level_that_the_application_added_counts(self) -> None:
        """E49"""
        logging.addLevelName(25, "NOTICE")
        assert LogSettings.checked(log_level="NOTICE").level == 25

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("log_level", "LOUD"),
            ("log_level", True),
            ("log_level", None),
            ("log_level", -1),
            ("log_level", 1.5),
            ("log_format", "xml"),
            ("log_format", None),
            ("log_rotate", "ten"),
            ("log_rotate", "10 TiB"),
            ("log_rotate", 0),
            ("log_rotate", "0 KB"),
            ("log_rotate", -5),
            ("log_rotate", True),
            ("log_rotate", 1.5),
            ("log_rotate", "9" * 400),
            ("log_keep", -1),
            ("log_keep", True),
            ("log_keep", "5"),
            ("log_keep", None),
            ("log_dir", 7),
            ("log_dir", b"logs"),
            ("log_dir", "lo\0gs"),
            ("log_dir", True),
        ],
    )
    def test_a_wrong_setting_is_named_with_its_value(self, setting: str, value: Any) -> None:
        """E5 E49"""
        with pytest.raises(ValueError, match=re.escape(setting)) as caught:
            LogSettings.checked(**{setting: value})
        assert repr(value) in str(caught.value)

    @pytest.mark.parametrize(
        ("given", "size"),
        [
            ("10 MiB", 10 * 2**20),
            ("500 KB", 500_000),
            ("1.5kib", 1536),
            ("12", 12),
            (4096, 4096),
            (None, None),
            ("1 gb", 10**9),
        ],
    )
    def test_a_size_is_bytes_or_a_text_with_a_unit(self, given: Any, size: int | None) -> None:
        """E49"""
        assert LogSettings.checked(log_rotate=given).rotate == size

    def test_the_folder_stays_where_it_is_when_a_task_changes_folders(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E47"""
        monkeypatch.chdir(tmp_path)
        settings = LogSettings.checked(log_dir="log/")
        monkeypatch.chdir("/")
        assert settings.directory == str(tmp_path / "log")

    def test_settings_can_be_handed_to_another_process(self) -> None:
        """E42"""
        settings = LogSettings.checked(log_dir="/tmp/x", log_level="DEBUG")
        assert pickle.loads(pickle.dumps(settings)) == settings


class TestTheFile:
    def test_the_folder_is_made_and_the_file_appended_to(self, tmp_path: Path) -> None:
        """E47"""
        folder = tmp_path / "a" / "b"
        for _ in range(2):
            log = opened(folder)
            log.info("process_start", parent=1)
            log.close()
        assert os.listdir(folder) == ["email-queue-worker.log"]
        assert len(lines_of(log)) == 2

    @pytest.mark.parametrize("name", ["../../x", "/abs", "nul\0", "\N{PILE OF POO}" * 64, "..", "a/b", "\ud800"])
    def test_nothing_is_written_outside_the_folder_whatever_the_queue_is_called(
        self, tmp_path: Path, name: str
    ) -> None:
        """E10 U4"""
        folder = tmp_path / "deep" / "log"
        log = opened(folder, name)
        log.info("process_start")
        log.close()
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder / log_file_name(name)]
        assert log_file_name(name).endswith("-queue-worker.log")

    @pytest.mark.parametrize("falsy", [None, "", False])
    def test_without_a_folder_there_is_no_file_and_loggers_go_nowhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], falsy: Any
    ) -> None:
        """E47"""
        monkeypatch.chdir(tmp_path)
        log = QueueLog(LogSettings.checked(log_dir=falsy, log_level=0), "email")
        log.error("broken", error=ValueError("x"))
        logger = log.bind(task_id=1)
        logger.info("hello %s", "world")
        logger.bind(more=1).critical("hello")
        log.close()
        assert not log.enabled(logging.CRITICAL)
        assert list(tmp_path.iterdir()) == []
        assert capfd.readouterr() == ("", "")

    def test_a_file_that_was_removed_is_made_again(self, tmp_path: Path) -> None:
        log = opened(tmp_path)
        log.info("one")
        os.unlink(log.path or "")
        log.info("two")
        log.close()
        assert len(lines_of(log)) == 1

    def test_threads_and_forks_each_write_whole_lines_once(self, tmp_path: Path) -> None:
        """E49"""
        log = opened(tmp_path, log_format="json", log_rotate="20 KB", log_keep=1000)
        log.info("first")
        children = []
        for child in range(3):
            pid = os.fork()
            if pid == 0:
                for number in range(200):
                    log.info("forked", number=(child, number))
                os._exit(0)
            children.append(pid)
        threads = [
            threading.Thread(target=lambda t=thread: [log.info("threaded", number=(t, n)) for n in range(200)])
            for thread in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        log.close()
        events = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
        assert len(events) == 1 + 3 * 200 + 3 * 200
        assert len({(event["event"], *event.get("number", ())) for event in events}) == len(events)
        assert {event["pid"] for event in events} == {os.getpid(), *children}


class TestRotation:
    def test_no_file_grows_beyond_the_limit_and_only_some_are_kept(self, tmp_path: Path) -> None:
        """E49"""
        log = opened(tmp_path, log_rotate=2000, log_keep=2)
        for number in range(100):
            log.info("event", number=number)
        log.close()
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {"email-queue-worker.log" + suffix for suffix in ("", ".1", ".2")}
        assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
        kept = [
            int(number)
            for suffix in (".2", ".1", "")
            for number in re.findall(r"number=(\d+)", Path(f"{log.path}{suffix}").read_text())
        ]
        assert kept == list(range(kept[0], 100))

    def test_none_is_kept_where_none_is_wanted(self, tmp_path: Path) -> None:
        log = opened(tmp_path, log_rotate=300, log_keep=0)
        for number in range(20):
            log.info("event", number=number)
        log.close()
        assert [path.name for path in tmp_path.iterdir()] == ["email-queue-worker.log"]
        assert "number=19" in lines_of(log)[-1]

    def test_only_the_holder_changes_the_file_over_and_the_others_follow(self, tmp_path: Path) -> None:
        """U28"""
        script = (
            "import sys\n"
            "from procrastinate_py.runtime.logs import LogSettings, QueueLog\n"
            "log = QueueLog(LogSettings.checked(log_dir=sys.argv[1], log_rotate=1000, log_keep=9), 'email')\n"
            "for line in sys.stdin:\n"
            "    [log.info('other', number=n) for n in range(int(line))]\n"
            "    print('done', flush=True)\n"
        )
        log = opened(tmp_path, log_rotate=1000, log_keep=9)
        log.info("holder")
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdin is not None and other.stdout is not None

            def other_writes(count: int) -> None:
                assert other.stdin is not None and other.stdout is not None
                print(count, file=other.stdin, flush=True)
                assert other.stdout.readline() == "done\n"

            other_writes(30)
            assert len(list(tmp_path.iterdir())) == 1  # beyond the limit, but not its file to change over
            log.info("holder")
            assert len(list(tmp_path.iterdir())) == 2
            other_writes(1)
            assert "other" in lines_of(log)[-1]
            log.close()
            other_writes(30)  # the holder has gone: now it's this one's
            assert len(list(tmp_path.iterdir())) > 2
            other.stdin.close()


class TestLines:
    def test_a_line_tells_time_level_event_and_fields(self, tmp_path: Path) -> None:
        """E47"""
        log = QueueLog(LogSettings.checked(log_dir=tmp_path), "email", FakeClock(1_700_000_000.25))
        log.bind(task_id=7, task="app:Send", attempt=2).warning("fail", duration=0.125)
        log.close()
        assert lines_of(log) == [
            "2023-11-14T22:13:20.250Z WARNING  fail queue=email task_id=7 task=app:Send attempt=2 duration=0.125 "
            f"pid={os.getpid()}"
        ]

    def test_json_tells_the_same(self, tmp_path: Path) -> None:
        """E47"""
        log = QueueLog(LogSettings.checked(log_dir=tmp_path, log_format="json"), "email", FakeClock(1_700_000_000.25))
        log.bind(task_id=7, task="app:Send", attempt=2).warning("fail", duration=0.125)
        log.close()
        assert events_of(log) == [
            {
                "time": "2023-11-14T22:13:20.250Z",
                "level": "warning",
                "event": "fail",
                "queue": "email",
                "task_id": 7,
                "task": "app:Send",
                "attempt": 2,
                "duration": 0.125,
                "pid": os.getpid(),
            }
        ]

    def test_less_than_the_level_isnt_written_nor_formatted(self, tmp_path: Path) -> None:
        """E49"""

        class Unshowable:
            def __repr__(self) -> str:
                raise AssertionError("it was formatted")

            __str__ = __repr__

        log = opened(tmp_path, log_level="WARNING")
        log.debug("no", value=Unshowable())
        log.info("no", value=Unshowable())
        log.bind(task_id=1).info("no %s", Unshowable())
        assert os.listdir(tmp_path) == []
        assert not log.enabled(logging.INFO)
        assert log.enabled(logging.WARNING)
        log.warning("yes")
        log.close()
        assert len(lines_of(log)) == 1

    def test_a_traceback_follows_its_line_indented(self, tmp_path: Path) -> None:
        """U28"""
        log = opened(tmp_path)
        log.error("hook_failed", error=raised(ValueError("odd\n2026-01-01T00:00:00.000Z ERROR    forged")))
        log.close()
        first, *rest = lines_of(log)
        assert r'error="ValueError: odd\n2026-01-01' in first
        assert "    ValueError: odd" in rest
        assert all(line.startswith("    ") for line in rest)

    def test_json_is_one_line_with_its_traceback(self, tmp_path: Path) -> None:
        """U28"""
        log = opened(tmp_path, log_format="json")
        log.error("hook_failed", error=raised(ValueError("odd\nthing")))
        log.close()
        [event] = events_of(log)
        assert event["error"] == "ValueError: odd\nthing"
        assert event["traceback"].endswith("ValueError: odd\nthing\n")

    @pytest.mark.parametrize("form", ["line", "json"])
    @pytest.mark.parametrize(
        "hostile", ["a\nb", "a\r\nb", "\x1b[31mred", "\0", "\x85", "\u2028", "\u202e", "\ud800", "x level=ERROR", '"']
    )
    def test_no_value_can_pass_for_another_event(self, tmp_path: Path, hostile: str, form: str) -> None:
        """G8"""
        log = opened(tmp_path, hostile, log_format=form)
        log.info(hostile, value=hostile, **{hostile: hostile})
        log.error("x", error=raised(RuntimeError(hostile)))
        log.close()
        text = Path(log.path or "").read_bytes().decode("utf-8")
        assert all(char.isprintable() or char == "\n" for char in text)
        starts = [line for line in text.split("\n") if line and not line.startswith("    ")]
        assert len(starts) == 2
        if form == "json":
            assert json.loads(starts[0])["value"] == json.loads(starts[0])["event"]

    def test_fields_of_reserved_names_are_kept_beside_the_real_ones(self, tmp_path: Path) -> None:
        log = opened(tmp_path, log_format="json")
        log.bind(pid=1, level=2).info("real", time=3, event=4, method_name=5, self=6)
        log.close()
        [event] = events_of(log)
        assert (event["pid"], event["level"], event["event"]) == (os.getpid(), "info", "real")
        assert [event[key] for key in ("pid_", "level_", "time_", "event_", "method_name", "self")] == [
            1,
            2,
            3,
            4,
            5,
            6,
        ]

    def test_values_that_json_cant_hold_are_told_in_words(self, tmp_path: Path) -> None:
        log = opened(tmp_path, log_format="json")
        endless: list[Any] = []
        endless.append(endless)
        log.info("x", a=float("nan"), b={1, 2}, c={(1, 2): 3}, d=endless, e=[1, {"k": None}], f="x" * 10**6, g=10**30)
        log.close()
        [event] = events_of(log)
        assert (event["a"], event["b"], event["c"], event["d"], event["e"]) == (
            "nan",
            "{1, 2}",
            "{(1, 2): 3}",
            "[[...]]",
            [1, {"k": None}],
        )
        assert len(event["f"]) < 20_000
        assert event["g"] == 10**30


class TestTheLoggerOfHooks:
    """E50"""

    def test_it_is_structlogs_and_says_its_task_with_every_event(self, tmp_path: Path) -> None:
        """E50"""
        import structlog

        log = opened(tmp_path, log_format="json", log_level="DEBUG")
        logger = log.bind(task_id=3, task="app:Send", attempt=1)
        assert isinstance(logger, structlog.BoundLoggerBase)
        logger.debug("a", to="x")
        logger.bind(step=2).info("b")
        logger.warn("c")
        log.close()
        events = events_of(log)
        assert [(event["level"], event["event"]) for event in events] == [
            ("debug", "a"),
            ("info", "b"),
            ("warning", "c"),
        ]
        assert all((event["task_id"], event["task"], event["attempt"]) == (3, "app:Send", 1) for event in events)
        assert (events[0]["to"], events[1]["step"], "step" in events[2]) == ("x", 2, False)

    def test_it_takes_what_logging_takes(self, tmp_path: Path) -> None:
        """E50"""
        log = opened(tmp_path, log_format="json")
        logger = log.bind(task_id=3)
        logger.info("sent %d to %s", 2, "x")
        logger.info("sent %(count)d", {"count": 2})
        logger.log(logging.ERROR, "by number", extra={"a": 1}, stacklevel=2)
        logger.log(35, "between")
        try:
            raise ValueError("odd")
        except ValueError as error:
            logger.exception("broke")
            logger.warning("with", exc_info=error)
            logger.warning("with", exc_info=sys.exc_info())
        assert logger.isEnabledFor(logging.INFO) and not logger.isEnabledFor(logging.DEBUG)
        log.close()
        events = events_of(log)
        assert [event["event"] for event in events[:4]] == ["sent 2 to x", "sent 2", "by number", "between"]
        assert [event["level"] for event in events[2:5]] == ["error", "warning", "error"]
        assert events[2]["a"] == 1
        assert all(event["error"] == "ValueError: odd" and "Traceback" in event["traceback"] for event in events[4:])

    def test_arguments_that_dont_fit_fail_nothing(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """E49"""

        class Hostile:
            def __repr__(self) -> str:
                raise RuntimeError("no repr")

            __str__ = __repr__

        log = opened(tmp_path)
        logger = log.bind(task_id=3, state=Hostile())
        logger.info("%d", "x")
        logger.info("%s", Hostile())
        logger.info(Hostile())
        logger.info(None)
        logger.error("x", error=raised(RuntimeError(Hostile())))
        log.close()
        assert "task_id=3" in lines_of(log)[0]


class TestFailures:
    def test_a_folder_that_cant_be_made_is_told_once_and_fails_nothing(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """E49"""
        (tmp_path / "file").write_text("")
        log = opened(tmp_path / "file" / "log")
        for _ in range(3):
            log.info("x")
            log.bind(task_id=1).error("y")
        log.close()
        told = capfd.readouterr().err
        assert told.count("\n") == 1
        assert "email-queue-worker.log" in told

    def test_a_full_disk_is_told_once_and_fails_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """E49"""
        log = opened(tmp_path)
        os.symlink("/dev/full", log.path or "")
        for _ in range(3):
            log.info("x")
        log.close()
        assert capfd.readouterr().err.count("\n") == 1

    def test_a_log_works_again_when_what_failed_is_repaired(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """E49"""
        (tmp_path / "log").write_text("")
        log = opened(tmp_path / "log")
        log.info("lost")
        (tmp_path / "log").unlink()
        log.info("written")
        log.close()
        assert len(lines_of(log)) == 1
        assert capfd.readouterr().err


class TestTheApplication:
    def test_its_logging_and_structlog_stay_as_they_are(self, tmp_path: Path) -> None:
        """U14 E49"""
        import structlog

        root = logging.getLogger()
        before = (list(root.handlers), root.level, structlog.is_configured(), structlog.get_config())
        log = opened(tmp_path)
        log.info("x")
        log.bind(task_id=1).error("y")
        log.close()
        assert (list(root.handlers), root.level, structlog.is_configured(), structlog.get_config()) == before

    def test_structlog_waits_for_the_first_event_and_leaves_heavy_modules_out(self, tmp_path: Path) -> None:
        """P8"""
        script = (
            "import sys\n"
            "from procrastinate_py.runtime.logs import LogSettings, QueueLog\n"
            "log = QueueLog(LogSettings.checked(log_dir=sys.argv[1]), 'email')\n"
            "assert 'structlog' not in sys.modules\n"
            "log.info('x')\n"
            "assert 'structlog' in sys.modules\n"
            "print([name for name in ('rich', 'asyncio', 'ssl', 'hashlib') if name in sys.modules])\n"
            "import asyncio, rich, structlog\n"
            "async def main(): await asyncio.sleep(0)\n"
            "asyncio.run(main())\n"
            "import asyncio.sslproto, ssl\n"
            "assert asyncio.sslproto.ssl is ssl\n"
            "class Nowhere:\n"
            "    def msg(self, *a, **k): pass\n"
            "    info = msg\n"
            "logger = structlog.wrap_logger(Nowhere(), wrapper_class=structlog.make_filtering_bound_logger(0))\n"
            "asyncio.run(logger.ainfo('x'))\n"
        )
        ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
        assert (ran.stdout, ran.stderr) == ("[]\n", "")


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught
