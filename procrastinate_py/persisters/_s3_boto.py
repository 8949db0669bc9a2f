"""A bucket as botocore reaches it. The library is loaded with the first request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ..core.errors import ConfigurationError, PersisterUnavailableError
from ._drivers import load_driver
from ._s3_bucket import LARGEST_PAGE, Conflict, Found, Hung, Listed, Page, Refused, ReplyLost
from ._server_time import ServerTime
from ._urls import scrubbed, secrets_of, shown_url

MODULE, EXTRA = "botocore", "s3"
_CONNECT_WITHIN, _ANSWER_WITHIN = 5.0, 10.0
_OPTIONS = ("endpoint", "region", "access_key", "secret_key", "session_token", "profile", "addressing")
_SECRET = ("access_key", "secret_key", "session_token")
_NOT_NOW = ("SlowDown", "RequestLimitExceeded", "TooManyRequests", "Throttling", "ThrottlingException")
_DATE_RESOLUTION = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What a URL names. Its repr shows no option, since that may be a secret."""

    bucket: str
    prefix: str
    options: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    shown: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises ConfigurationError, which shows nothing of the options."""
        parts = urlsplit(url)
        name = f"s3://{parts.netloc}{parts.path}"
        if parts.scheme.lower() != "s3" or not parts.netloc or "@" in name or parts.fragment:
            raise ConfigurationError("not an S3 URL: write s3://bucket/prefix?region=...&endpoint=https://...")
        # A plus sign is itself here: secret keys are full of them.
        options = dict(parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True))
        unknown = sorted(name for name in options if name not in _OPTIONS)
        if unknown:
            raise ConfigurationError(f"{name} has options that aren't known; known are {', '.join(_OPTIONS)}")
        endpoint = options.get("endpoint")
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ConfigurationError(f"{name}: its endpoint must begin with http:// or https://")
        if options.get("addressing", "auto") not in ("auto", "path", "virtual"):
            raise ConfigurationError(f"{name}: its addressing must be path or virtual")
        if bool(options.get("access_key")) != bool(options.get("secret_key")):
            raise ConfigurationError(f"{name}: of access_key and secret_key one is useless without the other")
        prefix = unquote(parts.path).strip("/")
        secrets = {*secrets_of(url), *(options[option] for option in _SECRET if options.get(option))}
        return cls(
            bucket=unquote(parts.netloc),
            prefix=f"{prefix}/" if prefix else "",
            options=options,
            secrets=tuple(sorted(secrets, key=len, reverse=True)),
            shown=name if endpoint is None else f"{name} at {shown_url(endpoint)}",
        )


class BotoBucket:
    """For one process. Repeats nothing by itself, and tells ``time`` what every reply says about the server's clock."""

    def __init__(self, address: Address, time: ServerTime, monotonic: Callable[[], float]) -> None:
        self._address = address
        self._time = time
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._errors = load_driver("botocore.exceptions", EXTRA)
        with self._failing_clearly():
            self._client = self._connected()

    def _connected(self) -> Any:
        """Botocore makes no connection before the first request."""
        options = self._address.options
        config = load_driver("botocore.config", EXTRA).Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=_CONNECT_WITHIN,
            read_timeout=_ANSWER_WITHIN,
            max_pool_connections=32,
            tcp_keepalive=True,
            # Servers that only resemble S3 don't all know its newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": options.get("addressing") or ("path" if "endpoint" in options else "auto")},
        )
        session = load_driver("botocore.session", EXTRA).Session(profile=options.get("profile"))
        session.register_component("data_loader", _models())
        client = session.create_client(
            "s3",
            region_name=options.get("region") or session.get_config_variable("region") or "us-east-1",
            endpoint_url=options.get("endpoint"),
            aws_access_key_id=options.get("access_key"),
            aws_secret_access_key=options.get("secret_key"),
            aws_session_token=options.get("session_token"),
            config=config,
        )
        client.meta.events.register("before-sign.s3.DeleteObjects", _add_digest)
        return client

    def get(self, key: str) -> Found | None:
        try:
            reply = self._call("get_object", Key=self._full(key))
        except _Missing:
            return None
        with self._failing_clearly():
            return Found(reply["Body"].read(), reply["ETag"])

    def put(self, key: str, body: bytes, if_match: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if if_match is None else {"IfMatch": if_match}
        try:
            reply = self._call("put_object", Key=self._full(key), Body=body, **condition)
        except _Missing:
            raise Conflict(key) from None
        return str(reply["ETag"])

    def delete(self, keys: Sequence[str]) -> None:
        if len(keys) == 1:
            self._call("delete_object", Key=self._full(keys[0]))
        elif keys:
            objects = [{"Key": self._full(key)} for key in keys]
            reply = self._call("delete_objects", Delete={"Objects": objects, "Quiet": True})
            if reply.get("Errors"):
                raise ReplyLost(self._told(f"objects weren't deleted: {reply['Errors'][0].get('Code')}"))

    def list(self, prefix: str, after: str = "", limit: int = LARGEST_PAGE) -> Page:
        start = {"StartAfter": self._full(after)} if after else {}
        reply = self._call("list_objects_v2", Prefix=self._full(prefix), MaxKeys=limit, **start)
        cut = len(self._address.prefix)
        entries = [Listed(entry["Key"][cut:], entry["ETag"], entry["Size"]) for entry in reply.get("Contents", ())]
        return Page(entries, not reply.get("IsTruncated"))

    def close(self) -> None:
        self._client.close()

    def _full(self, key: str) -> str:
        return f"{self._address.prefix}{key}"

    def _call(self, operation: str, **parameters: Any) -> Any:
        asked_at = self._monotonic()
        with self._failing_clearly():
            try:
                reply = getattr(self._client, operation)(Bucket=self._address.bucket, **parameters)
            except self._errors.ClientError as error:
                self._hear(error.response, asked_at)
                raise
        self._hear(reply, asked_at)
        return reply

    def _hear(self, reply: Mapping[str, Any], asked_at: float) -> None:
        date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        instant = None if date is None else _instant(date)
        if instant is not None:
            with self._lock:
                self._time.heard(instant, asked_at=asked_at, resolution=_DATE_RESOLUTION)

    @contextmanager
    def _failing_clearly(self) -> Iterator[None]:
        """Botocore's errors may quote what was sent, so they aren't chained."""
        try:
            yield
        except self._errors.ClientError as error:
            failure: Exception = self._failure_of(error.response)
        except self._errors.EndpointConnectionError as error:
            failure = Refused(self._told(str(error)))
        except (self._errors.ConnectTimeoutError, self._errors.ReadTimeoutError) as error:
            failure = Hung(self._told(str(error)))
        except (self._errors.NoCredentialsError, self._errors.PartialCredentialsError) as error:
            failure = PersisterUnavailableError(self._told(str(error)))
        except self._errors.HTTPClientError as error:
            failure = ReplyLost(self._told(str(error)))
        except (self._errors.BotoCoreError, ValueError) as error:
            failure = PersisterUnavailableError(self._told(str(error)))
        else:
            return
        raise failure from None

    def _failure_of(self, reply: Mapping[str, Any]) -> Exception:
        error = reply.get("Error", {})
        code, status = str(error.get("Code")), reply.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        told = self._told(f"{code} ({status}): {error.get('Message')}")
        if status == 412:
            return Conflict(told)
        if code in ("NoSuchKey", "404"):
            return _Missing(told)
        if code in _NOT_NOW or status in (409, 429, 503):
            return Refused(told)
        if status >= 500 or code == "RequestTimeout":
            return ReplyLost(told)
        return PersisterUnavailableError(told)

    def _told(self, what: str) -> str:
        return f"{self._address.shown}: {scrubbed(what, self._address.secrets)}"


@cache
def _models() -> Any:
    """What botocore knows of S3: 0.1 s of reading, which needn't be done for every connection."""
    return load_driver("botocore.loaders", EXTRA).create_loader()


class _Missing(Exception):
    """There's no such object."""


def _add_digest(request: Any, **_: Any) -> None:
    """Servers that only resemble S3 want a deletion of many to carry the older digest."""
    import hashlib
    from base64 import b64encode

    digest = hashlib.md5(request.data or b"", usedforsecurity=False).digest()
    request.headers["Content-MD5"] = b64encode(digest).decode()


def _instant(date: str) -> float | None:
    """The epoch seconds of an HTTP date; None where it's none."""
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
