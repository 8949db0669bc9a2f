"""What an S3 endpoint is tried out for before anything is stored there."""

from __future__ import annotations

from typing import Any

import pytest

from procrastinate_py.core.errors import ConfigurationError, PersisterError
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import _s3_bucket
from procrastinate_py.persisters._s3_bucket import Conflict, Refused
from procrastinate_py.testing.clock import FakeClock
from tests.persisters.s3_memory import MemoryBucket, MemoryS3Persister, etag

START = 1_000_000
QUEUE = "q"


def new() -> NewTask:
    return NewTask(queue=QUEUE, run_at=START, initial_run_at=START, expire_at=None, task="!a:B {}")


@pytest.fixture
def store() -> Any:
    store = MemoryS3Persister(clock=FakeClock(START))
    yield store
    store.close()


class IgnoresIfNoneMatch(MemoryBucket):
    def holds(self, key: str, if_match: str | None) -> bool:
        return if_match is None or super().holds(key, if_match)


class IgnoresIfMatch(MemoryBucket):
    def holds(self, key: str, if_match: str | None) -> bool:
        return super().holds(key, if_match) if if_match is None else key in self.objects


class MakesWhatShouldMatch(MemoryBucket):
    def holds(self, key: str, if_match: str | None) -> bool:
        return super().holds(key, if_match) or (if_match is not None and key not in self.objects)


class IsNotAtomic(MemoryBucket):
    """Looks, and then writes: everybody who looks meanwhile writes too."""

    def put(self, key: str, body: bytes, if_match: str | None) -> str:
        if key.startswith("trials/") and if_match is None and key not in self.objects and self.racing(key):
            self.objects[key] = body
            return etag(body)
        return super().put(key, body, if_match)

    def racing(self, key: str) -> bool:
        """Both racers have looked before either writes."""
        import threading

        if not hasattr(self, "gates"):
            self.gates: dict[str, threading.Barrier] = {}
        gate = self.gates.setdefault(key, threading.Barrier(2))
        try:
            gate.wait(timeout=1 if len(self.gates) > 1 else 0.01)
        except threading.BrokenBarrierError:
            return False
        return True


@pytest.mark.parametrize("broken", [IgnoresIfNoneMatch, IgnoresIfMatch, MakesWhatShouldMatch, IsNotAtomic])
def test_an_endpoint_that_does_not_honour_conditions_is_refused(broken: type[MemoryBucket]) -> None:
    """G2: before anything is stored there; and the refusal names it without its secrets."""
    store = MemoryS3Persister(broken())
    with pytest.raises(ConfigurationError, match="s3://bucket/prefix: this endpoint doesn't honour conditional") as e:
        store.create_task(new().as_mapping())
    assert "hidden" not in str(e.value)
    assert store.bucket.objects == {}


class TellsRacersToComeAgain(MemoryBucket):
    """As S3 does where two write at the same time: 409, and then 412."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[str] = set()

    def put(self, key: str, body: bytes, if_match: str | None) -> str:
        try:
            return super().put(key, body, if_match)
        except Conflict:
            if key in self.told:
                raise
            self.told.add(key)
            raise Refused("ConditionalRequestConflict (409)") from None


def test_an_endpoint_that_tells_racers_to_come_again_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """G2"""
    monkeypatch.setattr(_s3_bucket, "_PAUSES", (0.0, 0.0))
    store = MemoryS3Persister(TellsRacersToComeAgain(), FakeClock(START))
    assert store.create_task(new().as_mapping())


def test_an_endpoint_that_tells_no_time_is_refused() -> None:
    """G3: by whose clock should tasks be due?"""
    store = MemoryS3Persister()  # whose replies have no Date
    with pytest.raises(ConfigurationError, match=r"s3://bucket/prefix: .* no Date"):
        store.create_task(new().as_mapping())
    with pytest.raises(ConfigurationError, match="no Date"):
        store.claim(QUEUE, "me", 1, 30)


def test_an_endpoint_is_tried_out_once(store: MemoryS3Persister) -> None:
    store.find("nothing")
    assert 10 < len(store.bucket.requests) < 20
    store.bucket.requests.clear()
    store.create_task(new().as_mapping())
    store.close()
    store.claim(QUEUE, "me", 1, 30)
    assert not [key for _, key in store.bucket.requests if key.startswith("trials/")]


def test_what_cannot_be_reached_is_tried_out_again(store: MemoryS3Persister) -> None:
    """G7"""

    def fail(request: str, key: str) -> None:
        raise PersisterError("down")

    store.bucket.before = fail
    with pytest.raises(PersisterError, match="down"):
        store.find("nothing")
    store.bucket.before = lambda request, key: None
    assert store.create_task(new().as_mapping())
    assert [key for _, key in store.bucket.requests if key.startswith("trials/")]
