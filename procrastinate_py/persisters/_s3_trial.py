"""Whether an endpoint honours the conditions that everything here rests on: a claim that two win is worse than none."""

from __future__ import annotations

import os
import threading

from ..core.errors import ConfigurationError, PersisterError
from ._s3_bucket import Bucket, Conflict, PatientBucket

_ROUNDS = 4
_RACERS = 2


def check_conditions(bucket: Bucket, shown: str) -> None:
    """A dozen requests. Raises ConfigurationError naming ``shown`` where a condition isn't honoured, and
    PersisterUnavailableError where that can't be found out."""
    patient = PatientBucket(bucket)  # some tell a racer to come again (409) before they tell it that it lost (412)
    keys = [f"trials/{os.urandom(8).hex()}" for _ in range(_ROUNDS)]
    try:
        _check_one_after_another(patient, keys[0], shown)
        for key in keys[1:]:
            _check_race(patient, key, shown)
    finally:
        try:
            bucket.delete(keys)
        except PersisterError:
            pass  # they bother nobody


def _check_one_after_another(bucket: PatientBucket, key: str, shown: str) -> None:
    first = bucket.put(key, _body(), None)
    if _is_written(bucket, key, None):
        raise _refusal(shown, "it overwrote an object that was to be written only if absent (If-None-Match)")
    bucket.put(key, _body(), first)
    if _is_written(bucket, key, first):
        raise _refusal(shown, "it overwrote an object that had changed meanwhile (If-Match)")
    if _is_written(bucket, f"{key}-absent", first):
        bucket.delete([f"{key}-absent"])
        raise _refusal(shown, "it wrote an object that was to be written only if it was there (If-Match)")


def _check_race(bucket: PatientBucket, key: str, shown: str) -> None:
    start = threading.Barrier(_RACERS)
    written: list[bool] = []
    errors: list[Exception] = []

    def race() -> None:
        try:
            start.wait(timeout=60)
            written.append(_is_written(bucket, key, None))
        except Exception as error:
            errors.append(error)

    racers = [threading.Thread(target=race) for _ in range(_RACERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    if errors:
        raise errors[0]
    if written.count(True) > 1:
        raise _refusal(shown, "it let two writers win who raced for the same object")


def _is_written(bucket: PatientBucket, key: str, if_match: str | None) -> bool:
    try:
        bucket.put(key, _body(), if_match)
    except Conflict:
        return False
    return True


def _body() -> bytes:
    return os.urandom(8).hex().encode()


def _refusal(shown: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{shown}: this endpoint doesn't honour conditional writes, so tasks would be lost or run twice: {why}"
    )
