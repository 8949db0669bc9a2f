"""A bucket in memory, for tests of the S3 store: as exact as S3, and fast enough for thousands of requests."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from procrastinate_py.persisters._s3_bucket import LARGEST_PAGE, Conflict, Found, Listed, Page
from procrastinate_py.persisters._server_time import ServerTime
from procrastinate_py.persisters.s3 import S3Persister
from procrastinate_py.ports.clock import Clock

URL = "s3://bucket/prefix?region=nowhere&access_key=me&secret_key=hidden"


class MemoryBucket:
    """``before`` and ``after`` are called with the name of the request and its key, and may raise: before it's carried
    out, or after it, as where a reply is lost."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda request, key: None
        self.after: Callable[[str, str], None] = lambda request, key: None
        self._lock = threading.Lock()

    def get(self, key: str) -> Found | None:
        self.begin("get", key)
        with self._lock:
            body = self.objects.get(key)
        self.after("get", key)
        return None if body is None else Found(body, etag(body))

    def put(self, key: str, body: bytes, if_match: str | None) -> str:
        self.begin("put", key)
        with self._lock:
            if not self.holds(key, if_match):
                raise Conflict(key)
            self.objects[key] = body
        self.after("put", key)
        return etag(body)

    def holds(self, key: str, if_match: str | None) -> bool:
        body = self.objects.get(key)
        return (body is None) if if_match is None else (body is not None and etag(body) == if_match)

    def delete(self, keys: Sequence[str]) -> None:
        assert 0 < len(keys) <= LARGEST_PAGE
        self.begin("delete", keys[0])
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)
        self.after("delete", keys[0])

    def list(self, prefix: str, after: str = "", limit: int = LARGEST_PAGE) -> Page:
        assert 0 < limit <= LARGEST_PAGE
        self.begin("list", prefix)
        with self._lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
            entries = [Listed(key, etag(self.objects[key]), len(self.objects[key])) for key in keys[:limit]]
        self.after("list", prefix)
        return Page(entries, len(keys) <= limit)

    def begin(self, request: str, key: str) -> None:
        self.requests.append((request, key))
        self.before(request, key)

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


class MemoryS3Persister(S3Persister):
    """The store on such a bucket; ``open`` gives another one on the same."""

    is_shareable = False

    def __init__(self, bucket: Any = None, clock: Clock | None = None) -> None:
        super().__init__(URL, clock=clock)
        self.bucket = MemoryBucket() if bucket is None else bucket

    def open(self) -> MemoryS3Persister:
        return MemoryS3Persister(self.bucket, self._clock)

    def _bucket(self, time: ServerTime) -> Any:
        return self.bucket
