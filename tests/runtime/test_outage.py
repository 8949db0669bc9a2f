"""What is said of a store that fails, whatever it raises."""

from __future__ import annotations

from procrastinate_py.core.lease import LeaseToken
from procrastinate_py.ports.persister import IncompleteSettle
from procrastinate_py.runtime.settler import Outage

from .workbench import HeardLog


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it can't say")


def test_an_error_that_cannot_tell_itself_is_an_outage_like_any_other() -> None:
    """E37"""
    log = HeardLog()
    outage = Outage(log, lambda: 0.0)
    outage.failed("claim", SpeechlessError())
    assert outage.pausing
    assert log.heard == [
        ("warning", "store_unavailable", {"reason": "SpeechlessError: (its __str__ failed)"}),
    ]


def test_one_write_whose_error_cannot_tell_itself_does_not_hide_what_became_of_the_others() -> None:
    """E37"""
    token = LeaseToken(1, "a")
    error = SpeechlessError()
    assert IncompleteSettle({token: error}).failures == {token: error}


RESUMED_WITHIN = 10.0
FOR_THE_CALLS = 2.0


def test_pauses_double_and_leave_the_calls_time_to_resume_work() -> None:
    """U25, G7: a store that returns just after a call failed is asked again, and answers, within 10 s."""
    now = [0.0]
    outage = Outage(HeardLog(), lambda: now[0])
    pauses = []
    for _ in range(20):
        outage.failed("claim", OSError("down"))
        pauses.append(outage.retry_at - now[0])
        now[0] = outage.retry_at
        assert not outage.pausing
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) <= RESUMED_WITHIN - FOR_THE_CALLS


def test_a_call_that_works_again_ends_the_pause_of_the_others() -> None:
    """G7: leases are extended though it's a pause, so they're first to find out that the store is back."""
    log = HeardLog()
    outage = Outage(log, lambda: 0.0)
    for call in ("settle", "extend", "extend", "extend"):
        outage.failed(call, OSError("down"))
    outage.worked("claim")
    assert outage.pausing, "what never failed tells nothing"
    outage.worked("extend")
    assert not outage.pausing
    assert [level for level, *_ in log.heard] == ["warning"]
    outage.failed("settle", OSError("still down"))
    assert outage.pausing
    outage.worked("settle")
    assert [level for level, *_ in log.heard] == ["warning", "info"]
