"""How the S3 store speaks with a server: what each answer means, what time it tells, and what an outage looks like."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from procrastinate_py.core.errors import ConfigurationError, PersisterUnavailableError
from procrastinate_py.core.lifecycle import Complete
from procrastinate_py.core.task import NewTask
from procrastinate_py.persisters import S3Persister, _s3_boto
from procrastinate_py.persisters._s3_boto import Address, BotoBucket
from procrastinate_py.persisters._s3_bucket import Conflict, Hung, Refused, ReplyLost
from procrastinate_py.persisters._server_time import ServerTime
from procrastinate_py.ports.clock import SystemClock
from tests import servers

DATE = "Tue, 15 Nov 1994 08:12:31 GMT"
INSTANT = 784887151.0


class Scripted(BaseHTTPRequestHandler):
    """Answers everything with the server's status."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server.seen.append((self.command, dict(self.headers)))
        if server.status == 0:
            self.close_connection = True
            return
        body = f"<Error><Code>{server.code}</Code><Message>no</Message></Error>".encode() if server.code else b"body"
        if self.command == "PUT" and not server.code:
            body = b""
        self.send_response_only(server.status)
        self.send_header("Date", server.date)
        self.send_header("ETag", '"etag"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = do_POST = answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    pytest.importorskip("botocore")
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    server.status, server.code, server.date, server.seen = 200, "", DATE, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def url_of(port: int) -> str:
    return f"s3://bucket/prefix?endpoint=http://127.0.0.1:{port}&region=nowhere&access_key=me&secret_key=hidden"


@pytest.fixture
def bucket(server: Any) -> Iterator[BotoBucket]:
    monotonic = SystemClock().monotonic
    bucket = BotoBucket(Address.of(url_of(server.server_port)), ServerTime(monotonic), monotonic)
    yield bucket
    bucket.close()


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (412, "PreconditionFailed", Conflict),
        (404, "NoSuchKey", Conflict),
        (409, "ConditionalRequestConflict", Refused),
        (503, "SlowDown", Refused),
        (429, "TooManyRequests", Refused),
        (500, "InternalError", ReplyLost),
        (502, "", ReplyLost),
        (400, "RequestTimeout", ReplyLost),
        (403, "AccessDenied", PersisterUnavailableError),
        (404, "NoSuchBucket", PersisterUnavailableError),
        (0, "", ReplyLost),
    ],
)
def test_each_answer_to_a_write_has_its_meaning(
    server: Any, bucket: BotoBucket, status: int, code: str, error: type[Exception]
) -> None:
    """G7: and botocore repeats nothing by itself."""
    server.status, server.code = status, code
    with pytest.raises(error) as raised:
        bucket.put("key", b"body", '"old"')
    assert type(raised.value) is error
    assert [command for command, _ in server.seen] == ["PUT"]


def test_conditions_are_passed_through(server: Any, bucket: BotoBucket) -> None:
    assert bucket.put("key", b"body", None) == '"etag"'
    assert bucket.put("key", b"body", '"old"') == '"etag"'
    sent = [{name.lower(): value for name, value in headers.items()} for _, headers in server.seen]
    assert [headers.get("if-none-match") for headers in sent] == ["*", None]
    assert [headers.get("if-match") for headers in sent] == [None, '"old"']


def test_a_missing_object_is_none_and_a_missing_bucket_an_error(server: Any, bucket: BotoBucket) -> None:
    server.status, server.code = 404, "NoSuchKey"
    assert bucket.get("key") is None
    server.code = "NoSuchBucket"
    with pytest.raises(PersisterUnavailableError, match="NoSuchBucket"):
        bucket.get("key")


@pytest.mark.parametrize(("status", "code"), [(200, ""), (404, "NoSuchKey")])
def test_every_answer_tells_the_time(server: Any, bucket: BotoBucket, status: int, code: str) -> None:
    """G3: the server's clock decides, whatever this machine's shows; its Date tells whole seconds."""
    server.status, server.code = status, code
    bucket.get("key")
    assert INSTANT - 60 < bucket._time.now() < INSTANT + 60


def test_an_answer_with_a_date_that_is_none_tells_nothing(server: Any, bucket: BotoBucket) -> None:
    server.date = "yesterday"
    bucket.get("key")
    assert bucket._time.now() == float("-inf")


def test_the_time_goes_on_while_the_server_is_away(server: Any) -> None:
    """G3, G7: a worker that can't reach the store still knows what time it is."""
    store = S3Persister(url_of(server.server_port))
    store._is_tried_out = True
    assert INSTANT - 60 < store.now() < INSTANT + 60
    seen = len(server.seen)
    assert store.now() >= INSTANT - 1
    assert len(server.seen) == seen, "it's asked only where nothing was heard for long"
    server.status = 403
    session = store._session()
    session._time._heard_at -= 1000
    session._time._asked_at -= 1000
    assert INSTANT - 60 < store.now() < INSTANT + 2000
    store.close()


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """G7: once, since another try would take as long."""
    pytest.importorskip("botocore")
    monkeypatch.setattr(_s3_boto, "_ANSWER_WITHIN", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = S3Persister(url_of(silent.getsockname()[1]))
        with pytest.raises(Hung):
            store.find("0" * 14 + "-" + "0" * 12)
        store.close()


def test_a_server_that_no_connection_comes_about_with_is_given_up(
    bucket: BotoBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7: it takes as long as one that doesn't answer."""
    from botocore.exceptions import ConnectTimeoutError

    def time_out(**_: Any) -> None:
        raise ConnectTimeoutError(endpoint_url="http://nowhere")

    monkeypatch.setattr(bucket._client, "get_object", time_out)
    with pytest.raises(Hung):
        bucket.get("key")


def test_an_outage_of_the_server_loses_nothing() -> None:
    """G7: killed while a task is in hand, and back again."""
    with servers.own_s3() as server:
        store = S3Persister(server.url(server.new_bucket()))
        now = int(store.now())
        new = NewTask(queue="q", run_at=now, initial_run_at=now, expire_at=None, task="!a:B {}")
        kept = store.create_task(new.as_mapping())
        waiting = store.create_task(new.as_mapping())
        (claim,) = store.claim("q", "me", 1, 600)
        server.kill()
        with pytest.raises(PersisterUnavailableError):
            store.create_task(new.as_mapping())
        with pytest.raises(PersisterUnavailableError):
            store.claim("q", "me", 1, 600)
        server.start()
        assert claim.record.id == kept
        assert store.settle([(claim.token, Complete())]) == []
        assert [claim.record.id for claim in store.claim("q", "me", 9, 600)] == [waiting]
        store.close()


def test_a_server_passes_the_trial() -> None:
    """G2"""
    store = S3Persister(servers.s3_url())
    assert store.select() == []
    assert store._is_tried_out
    store.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("addressing=hunter2", "its addressing must be path or virtual"),
        ("secret_key=hunter2", "one is useless without the other"),
        ("access_key=hunter2", "one is useless without the other"),
        ("access_key=hunter2&secret_key=", "one is useless without the other"),
        ("endpoint=hunter2", "its endpoint must begin with http"),
        ("hunter2=x", "has options that aren't known"),
    ],
)
def test_an_option_that_can_never_work_is_refused_before_any_call_and_not_shown(options: str, told: str) -> None:
    """G8"""
    with pytest.raises(ConfigurationError, match=told) as caught:
        Address.of(f"s3://bucket/prefix?{options}")
    assert "hunter2" not in str(caught.value)
