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
