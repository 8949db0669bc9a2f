"""What a Redis URL tells: the options that are ours, and those that go on to the library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from ..core.errors import ConfigurationError
from ._urls import secrets_of, shown_url

DEFAULT_PREFIX = "procrastinate"
_PREFIX = re.compile(r"[A-Za-z0-9_.\-]{1,100}")
_SCHEMES = {"redis": "redis", "valkey": "redis", "rediss": "rediss"}
_FORM = "redis://[[user]:password@]host[:6379][/0][?prefix=...]"
_INTS = ("db", "health_check_interval")
_SECONDS = ("socket_timeout", "socket_connect_timeout")
_TEXTS = ("username", "password", "client_name")
_TLS = ("ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile")
_TLS_SECRETS = ("ssl_password",)
_OPTIONS = (*_INTS, *_SECONDS, *_TEXTS, *_TLS, *_TLS_SECRETS)
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """``cluster`` None: to be found out. ``driver_url`` and ``secrets`` are never shown; ``shown`` may be."""

    driver_url: str
    prefix: str
    cluster: bool | None
    protocol: int
    secrets: tuple[str, ...]
    shown: str


def address_of(url: str, prefix: str | None = None) -> RedisAddress:
    """Raises ConfigurationError, which shows nothing of the URL but names of options."""
    if not isinstance(url, str):
        raise ConfigurationError(f"a Redis URL must be a str, not {type(url).__name__}")
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in _SCHEMES:
        raise ConfigurationError(f"not a Redis URL: {_FORM}")
    head, options = _parted(f"{_SCHEMES[scheme.lower()]}://{rest}")
    told_prefix = options.pop("prefix", None)
    if prefix is not None and told_prefix is not None and prefix != told_prefix:
        raise ConfigurationError("prefix= is given by keyword and, differently, in the URL")
    cluster = options.pop("cluster", None)
    if cluster is not None and cluster.lower() not in _TRUTH:
        raise ConfigurationError("cluster= of a Redis URL must be true or false")
    protocol = options.pop("protocol", "2")
    if protocol not in ("2", "3"):
        raise ConfigurationError("protocol= of a Redis URL must be 2 or 3")
    _check(options, tls=scheme.lower() == "rediss")
    return RedisAddress(
        driver_url=f"{head}?{urlencode(options)}" if options else head,
        prefix=checked_prefix(told_prefix if prefix is None else prefix),
        cluster=None if cluster is None else _TRUTH[cluster.lower()],
        protocol=int(protocol),
        secrets=secrets_of(url),
        shown=shown_url(f"{scheme}://{rest.partition('?')[0]}"),
    )


def checked_prefix(prefix: object) -> str:
    """The default for None. Raises ConfigurationError for one that could be mistaken for another's, or part a queue's
    keys."""
    if prefix is None:
        return DEFAULT_PREFIX
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise ConfigurationError("prefix= must be 1 to 100 of the characters A-Z a-z 0-9 _ . -")
    return prefix


def _parted(url: str) -> tuple[str, dict[str, str]]:
    """The URL up to its options, and those."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        _ = parts.port
    except ValueError:
        raise _malformed() from None
    if parts.fragment or not (parts.path.strip("/").isdecimal() or parts.path in ("", "/")):
        raise _malformed()
    options = dict(given)
    if len(options) != len(given):
        raise ConfigurationError("an option of a Redis URL is given twice")
    return url.partition("?")[0], options


def _malformed() -> ConfigurationError:
    return ConfigurationError(
        f"not a Redis URL: {_FORM}; what a user's name or password holds besides letters, digits and -._~ must be "
        "percent-encoded"
    )


def _check(options: dict[str, str], *, tls: bool) -> None:
    for name, value in options.items():
        if name not in _OPTIONS:
            known = ", ".join(("prefix", "cluster", "protocol", *_OPTIONS))
            raise ConfigurationError(f"a Redis URL has no option {name[:40]!r}; there are {known}")
        if not tls and name in (*_TLS, *_TLS_SECRETS):
            raise ConfigurationError(f"{name}= is for rediss:// URLs")
        if name in _INTS and not value.isdecimal():
            raise ConfigurationError(f"{name}= of a Redis URL must be an int")
        if name in _SECONDS and not _is_time(value):
            raise ConfigurationError(f"{name}= of a Redis URL must be a number of seconds above 0")


def _is_time(value: str) -> bool:
    try:
        return 0 < float(value) < 86_400
    except ValueError:
        return False
