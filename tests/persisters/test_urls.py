"""G8: what of a URL may be shown."""

from __future__ import annotations

import pytest

from procrastinate_py.persisters._urls import scrubbed, secrets_of, shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/tasks", "postgresql://db/tasks"),
        ("postgresql://scott@db:5432/tasks", "postgresql://scott@db:5432/tasks"),
        ("postgresql://scott:hunter2@db/tasks", "postgresql://scott:***@db/tasks"),
        ("postgresql://scott:hun%40ter2@db/tasks", "postgresql://scott:***@db/tasks"),
        ("postgresql://scott:h@nter2/x@db/tasks", "postgresql://scott:***@db/tasks"),
        ("redis://:hunter2@cache/0", "redis://:***@cache/0"),
        ("postgresql://db/tasks?user=scott&password=hunter2", "postgresql://db/tasks?***"),
        ("s3://bucket/prefix?secret_access_key=hunter2", "s3://bucket/prefix?***"),
        ("redis://[oops:hunter2@cache/0", "redis://[oops:***@cache/0"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    """G8"""
    assert shown_url(url) == shown


def test_an_error_that_quotes_a_password_is_scrubbed_however_it_is_spelt() -> None:
    """G8"""
    secrets = secrets_of("postgresql://scott:hun%40ter2@db/tasks?sslpassword=s3cret")
    assert scrubbed("bad: hun%40ter2 hun@ter2 s3cret", secrets) == "bad: *** *** ***"
