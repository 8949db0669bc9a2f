"""What the S3 store asks of a bucket, and how it gets over a reply that never came. Every write is conditional."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..core.errors import PersisterUnavailableError

LARGEST_PAGE = 1000
_PAUSES = (0.1, 0.4)


class Found(NamedTuple):
    body: bytes
    etag: str


class Listed(NamedTuple):
    key: str
    etag: str
    size: int


class Page(NamedTuple):
    entries: Sequence[Listed]
    is_last: bool


class Conflict(Exception):
    """The condition of a write didn't hold: somebody was faster."""


class Refused(PersisterUnavailableError):
    """The request wasn't carried out, as it's told: no connection, too many requests, or another one in its way."""


class ReplyLost(PersisterUnavailableError):
    """Nobody knows whether the request was carried out, but another one may be answered."""


class Hung(PersisterUnavailableError):
    """Nobody knows whether the request was carried out, and it took long to find out: another would take as long."""


class Bucket(Protocol):
    """Keys are relative to the store's prefix. Besides Conflict, calls raise PersisterUnavailableError."""

    def get(self, key: str) -> Found | None: ...

    def put(self, key: str, body: bytes, if_match: str | None) -> str:
        """Writes where the object's ETag is ``if_match``; None: where there's no object. Returns the new ETag."""

    def delete(self, keys: Sequence[str]) -> None:
        """Any number of keys; those that aren't there are no fault."""

    def list(self, prefix: str, after: str = "", limit: int = LARGEST_PAGE) -> Page:
        """In order of key, those greater than ``after``; at most a page."""


class PatientBucket:
    """Repeats what may be repeated, and finds out whether a write whose reply was lost was carried out.

    No two bodies that are written to a key are alike, so an object tells whose write it was.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def get(self, key: str) -> Found | None:
        for pause in _PAUSES:
            try:
                return self._bucket.get(key)
            except (Refused, ReplyLost):
                _wait(pause)
        return self._bucket.get(key)

    def list(self, prefix: str, after: str = "", limit: int = LARGEST_PAGE) -> Page:
        for pause in _PAUSES:
            try:
                return self._bucket.list(prefix, after, limit)
            except (Refused, ReplyLost):
                _wait(pause)
        return self._bucket.list(prefix, after, limit)

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), LARGEST_PAGE):
            some = keys[start : start + LARGEST_PAGE]
            for pause in _PAUSES:
                try:
                    self._bucket.delete(some)
                    break
                except (Refused, ReplyLost):
                    _wait(pause)
            else:
                self._bucket.delete(some)

    def put(self, key: str, body: bytes, if_match: str | None) -> str:
        is_repeated = False
        for pause in (*_PAUSES, None):
            try:
                return self._bucket.put(key, body, if_match)
            except Conflict:
                # Some servers, and proxies before them, answer 503 to what was carried out: Refused isn't believed.
                found = self.get(key) if is_repeated else None
                if found is not None and found.body == body:
                    return found.etag
                raise
            except (Refused, ReplyLost):
                if pause is None:
                    raise
                is_repeated = True
                _wait(pause)
        raise AssertionError("the last try returns or raises")

    def put_once(self, key: str, body: bytes) -> str:
        """Makes an object that others may have used up and removed before a lost reply is noticed: so it isn't made
        again where nobody knows whether it was."""
        for pause in (*_PAUSES, None):
            try:
                return self._bucket.put(key, body, None)
            except Refused:
                if pause is None:
                    raise
                _wait(pause)
            except (Conflict, ReplyLost) as error:
                found = self.get(key)
                if found is None:
                    raise ReplyLost(f"nobody knows whether {key} was written") from error
                return found.etag
        raise AssertionError("the last try returns or raises")


def _wait(pause: float) -> None:
    threading.Event().wait(pause)
