"""Servers for the tests: private ones, on free ports and in folders of their own, which end with the tests.

One of each kind is shared by all tests of a run, started at its first use::

    postgres_url() -> str      a database of its own per call (some 50 ms and 8 MB: where that matters take one,
                               and a schema or prefix for each test)
    redis_url() -> str         a database number of its own per call (channels are shared by all: use a prefix)
    s3_url() -> str            a bucket of its own per call
    postgres(), redis(), s3()  the shared servers themselves. Never stop, kill or pause these.

For faults take one of one's own, which ends with the block::

    with own_postgres() as server:           fsync is on; settings as keywords: own_postgres(log_statement="all")
        url = server.new_database()
        server.kill()                        kill -9 of all its processes
        server.start()                       back when this returns, on the same port
    with own_redis() as server: ...          AOF with fsync always; settings as keywords: own_redis(maxmemory="3mb")
    with own_s3() as server: ...             objects are kept on disk
    with pgbouncer(url) as pooled: ...       a URL to the same database, in transaction mode unless told otherwise

Each has ``url`` (PostgreSQL: ``url(database)``), ``host``, ``port``, ``pid``, ``folder``, ``log`` and ``start()``,
``stop()`` (gracefully), ``kill()``, ``restart()`` (kill and start), ``pause()`` (stalls: takes connections, answers
nothing) and ``resume()``. ``host=`` is what they listen on: 127.0.0.1 unless told otherwise. In PostgreSQL and Redis
the user ``guarded`` has the password ``GUARDED``; nobody else needs one.

What isn't installed skips the test, and fails it where CI=true.
"""

from __future__ import annotations

import atexit
import glob
import importlib.util
import itertools
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar
from urllib.parse import quote

import psutil
import pytest

ROOT = Path(__file__).parent.parent
KEEPER = Path(__file__).with_name("server_keeper.py")
PATIENCE = 60.0
"""Seconds after which a server that hasn't started never will."""
GUARDED = "pa55/w:rd"
"""The password of the user ``guarded``: one that has to be quoted in a URL."""
S3_SECRET = "s3cret/k:ey"


# --- what is installed


def unavailable(what: str) -> NoReturn:
    """Skips the test that asks, or fails it in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is needed where CI=true; .ci/servers installs it")
    pytest.skip(f"{what} isn't installed")


def need(*programs: str) -> list[str]:
    """Their paths. Skips the test where one isn't there, or fails it in CI."""
    return [_found(program) or unavailable(program) for program in programs]


def _found(program: str) -> str | None:
    if os.path.isabs(program):
        return program if os.access(program, os.X_OK) else None
    versions = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: -int(path.split("/")[4].split(".")[0]))
    folders = [str(ROOT / ".venv-s3" / "bin"), os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", *versions]
    return shutil.which(program, path=os.pathsep.join(folders))


# --- any server


@cache
def session_folder() -> Path:
    """Where all that servers write goes: removed when the tests end. Short, since sockets' paths may not be long."""
    folder = Path(tempfile.mkdtemp(prefix="pr-", dir="/tmp" if os.path.isdir("/tmp") else None))
    folder.chmod(0o755)  # servers may run as another user
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            for server in list(_running):
                server.end()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


_running: list[Server] = []
_numbers = itertools.count(1)
_reserved: set[int] = set()


def free_port(host: str = "127.0.0.1", *, and_above: int = 0) -> int:
    """Below those that the system gives to clients: one of them might take it while its server is down, and a client
    that asks for a closed port of that range may even be connected to itself.

    ``and_above``: the port that many above it is to be free as well.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000 - and_above)
        wanted = {port, port + and_above}
        if not wanted & _reserved and all(_is_free(host, each) for each in wanted):
            _reserved.update(wanted)
            return port


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def unprivileged() -> dict[str, Any]:
    """As whom PostgreSQL and pgbouncer run, which refuse to be root: Popen's keywords."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [user.pw_gid]}
    unavailable("a user that isn't root")


S = TypeVar("S", bound="Server")


class Server:
    kind: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    abandon_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """For one whose data nobody needs any more."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = free_port(host)
        self.folder = session_folder() / f"{self.kind}{next(_numbers)}"
        self.folder.mkdir()
        self.log = self.folder / "log"
        self.pid = 0
        self.identity: dict[str, Any] = {}

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TMPDIR": str(self.folder)}

    def answers(self) -> bool:
        """Whether it does its work by now."""
        raise NotImplementedError

    def start(self) -> None:
        assert not self.pid, "it runs"
        what = {
            "owner": os.getpid(),
            "session_folder": str(session_folder()),
            "folder": str(self.folder),
            "log": str(self.log),
            "command": self.command(),
            "env": self.environment(),
            "identity": self.identity,
            "stop_signal": int(self.abandon_signal),
        }
        keeper = [sys.executable, "-I", "-S", str(KEEPER), json.dumps(what)]
        said = subprocess.run(keeper, stdout=subprocess.PIPE, check=True, timeout=PATIENCE).stdout
        self.pid = int(said or b"0")
        _running.append(self)
        until = time.monotonic() + PATIENCE
        while not self.answers():
            if not psutil.pid_exists(self.pid) or time.monotonic() > until:
                self.end()
                raise AssertionError(f"{self.kind} didn't start: {self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)

    def stop(self) -> None:
        """As its operator would."""
        self._signal(self.stop_signal)
        self._await_end()

    def kill(self) -> None:
        """kill -9 of all that belongs to it."""
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=PATIENCE)
        self._await_end()

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        """From now on it takes connections and bytes, and answers nothing."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def end(self) -> None:
        """For good. Its data stay until the tests end."""
        if self.pid:
            self.resume()
            self._signal(self.abandon_signal)
            gone = time.monotonic() + 5
            while psutil.pid_exists(self.pid) and time.monotonic() < gone:
                time.sleep(0.005)
            self.kill()

    def processes(self) -> list[psutil.Process]:
        """It, and all that it started."""
        try:
            parent = psutil.Process(self.pid) if self.pid else None
            return [] if parent is None else [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _await_end(self) -> None:
        until = time.monotonic() + PATIENCE
        while self.pid and psutil.pid_exists(self.pid):
            if time.monotonic() > until:
                raise AssertionError(f"{self.kind} didn't end")
            time.sleep(0.005)
        self.pid = 0
        with suppress(ValueError):
            _running.remove(self)


# --- PostgreSQL

HBA = """\
host all guarded 0.0.0.0/0 scram-sha-256
host all all 0.0.0.0/0 trust
local all all trust
"""


@cache
def _postgres_template() -> Path:
    """A cluster that the others are copies of: making one anew takes seconds."""
    (initdb,) = need("initdb")
    folder = session_folder() / "cluster"
    identity = unprivileged()
    folder.mkdir(mode=0o700)
    if identity:
        shutil.chown(folder, identity["user"], identity["group"])
    command = [initdb, "-D", str(folder), "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **identity)
    (folder / "pg_hba.conf").write_text(HBA)
    return folder


class PostgresServer(Server):
    """The user of its URLs, ``tester``, may do anything."""

    kind = "postgres"
    stop_signal = signal.SIGINT
    abandon_signal = signal.SIGQUIT

    def __init__(self, host: str = "127.0.0.1", **settings: str) -> None:
        need("postgres")
        if importlib.util.find_spec("psycopg") is None:
            unavailable("psycopg")
        super().__init__(host)
        self.identity = unprivileged()
        self.settings = {"max_connections": "200", "shared_buffers": "64MB", **settings}
        # As root, cp keeps the owner.
        subprocess.run(["cp", "-a", _postgres_template(), self.folder / "data"], check=True)
        if self.identity:
            shutil.chown(self.folder, self.identity["user"], self.identity["group"])

    def command(self) -> list[str]:
        settings = {"listen_addresses": self.host, "unix_socket_directories": str(self.folder), **self.settings}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [*need("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *options]

    def answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url(), connect_timeout=5, autocommit=True) as connection:
                connection.execute(
                    "do $$ begin if not exists (select from pg_roles where rolname = 'guarded') then "
                    f"create role guarded login superuser password '{GUARDED}'; end if; end $$"
                )
            return True
        except psycopg.OperationalError:
            return False

    def url(self, database: str = "postgres", user: str = "tester", host: str | None = None) -> str:
        """The user ``guarded`` comes with its password."""
        who = f"guarded:{quote(GUARDED, safe='')}" if user == "guarded" else user
        return f"postgresql://{who}@{host or self.host}:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of one that is empty."""
        name = f"db{next(_numbers)}"
        self.run(f"create database {name}")
        return self.url(name)

    def run(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """One statement, outside any transaction, and its rows."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@cache
def postgres() -> PostgresServer:
    server = PostgresServer(fsync="off", synchronous_commit="off", full_page_writes="off")
    server.start()
    return server


def postgres_url() -> str:
    return postgres().new_database()


# --- Redis


CLUSTER_BUS = 10_000
"""How far above its port a node of a Redis cluster listens to the other nodes."""


class RedisServer(Server):
    kind = "redis"

    def __init__(self, host: str = "127.0.0.1", **settings: str) -> None:
        need("redis-server")
        super().__init__(host)
        if settings.get("cluster_enabled") == "yes":
            self.port = free_port(host, and_above=CLUSTER_BUS)
        self.settings = {"appendonly": "yes", "appendfsync": "always", "databases": "2000", **settings}
        self._databases = itertools.count()

    def command(self) -> list[str]:
        settings = {"bind": self.host, "port": str(self.port), "dir": str(self.folder), "save": "", **self.settings}
        options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", value)]
        guarded = ["--user", "guarded", "on", f">{GUARDED}", "~*", "&*", "+@all"]
        return [*need("redis-server"), *options, "--protected-mode", "no", *guarded]

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(100).startswith(b"+PONG")
        return False

    @property
    def url(self) -> str:
        return self.url_of(0)

    def url_of(self, database: int, user: str = "", host: str | None = None) -> str:
        """The user ``guarded`` comes with its password."""
        who = f"guarded:{quote(GUARDED, safe='')}@" if user == "guarded" else ""
        return f"redis://{who}{host or self.host}:{self.port}/{database}"

    def fresh(self) -> str:
        """The URL of a database that nobody has used."""
        return self.url_of(next(self._databases))

    def run(self, *words: str) -> bytes:
        """One command to database 0, and the first bytes of the reply, as they come."""
        with socket.create_connection((self.host, self.port), timeout=PATIENCE) as connection:
            encoded = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in map(str.encode, words))
            connection.sendall(b"*%d\r\n%s" % (len(words), encoded))
            return connection.recv(65536)


@cache
def redis() -> RedisServer:
    server = RedisServer(appendfsync="everysec")
    server.start()
    return server


def redis_url() -> str:
    return redis().fresh()


# --- S3


class S3Server(Server):
    """ministack: it honours conditional writes under concurrency. Taken from .venv-s3, or from the PATH."""

    kind = "s3"

    def __init__(self, host: str = "127.0.0.1", **settings: str) -> None:
        need("ministack")
        super().__init__(host)
        self.settings = settings

    def command(self) -> list[str]:
        return need("ministack")

    def environment(self) -> dict[str, str]:
        settings = {"BIND_HOST": self.host, "GATEWAY_PORT": str(self.port), "SERVICES": "s3", "LOG_LEVEL": "WARNING"}
        kept = {"S3_PERSIST": "1", "S3_DATA_DIR": str(self.folder / "objects"), "HOME": str(self.folder)}
        return {**super().environment(), **settings, **kept, **self.settings}

    def answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=5) as reply:
            return bool(reply.status == 200)
        return False

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    def url(self, bucket: str, prefix: str = "tasks", endpoint: str | None = None) -> str:
        secret = quote(S3_SECRET, safe="")
        options = f"endpoint={endpoint or self.endpoint}&region=us-east-1&access_key=tester&secret_key={secret}"
        return f"s3://{bucket}/{prefix}?{options}"

    def new_bucket(self) -> str:
        bucket = f"bucket{next(_numbers)}"
        request = urllib.request.Request(f"{self.endpoint}/{bucket}", method="PUT")
        urllib.request.urlopen(request, timeout=PATIENCE).close()
        return bucket


@cache
def s3() -> S3Server:
    server = S3Server(S3_PERSIST="0")
    server.start()
    return server


def s3_url() -> str:
    return s3().url(s3().new_bucket())


# --- pgbouncer


class Pgbouncer(Server):
    kind = "pgbouncer"
    stop_signal = signal.SIGINT
    abandon_signal = signal.SIGTERM

    def __init__(self, url: str, **settings: str) -> None:
        need("pgbouncer")
        super().__init__()
        self.identity = unprivileged()
        credentials, _, rest = url.partition("://")[2].rpartition("@")
        address, _, self.database = rest.partition("/")
        host, _, port = address.partition(":")
        self.url = f"postgresql://{credentials}@{self.host}:{self.port}/{self.database}"
        here = {"listen_addr": self.host, "listen_port": str(self.port), "unix_socket_dir": "", "auth_type": "any"}
        chosen = {"pool_mode": "transaction", "default_pool_size": "2", "max_client_conn": "200", **settings}
        lines = [f"{name} = {value}" for name, value in {**here, **chosen}.items()]
        database = f"* = host={host} port={port} user=tester"
        (self.folder / "ini").write_text("\n".join(["[databases]", database, "[pgbouncer]", *lines, ""]))

    def command(self) -> list[str]:
        return [*need("pgbouncer"), str(self.folder / "ini")]

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=5):
            return True
        return False


# --- one of one's own


@contextmanager
def _own(server: S) -> Iterator[S]:
    server.start()
    try:
        yield server
    finally:
        server.end()


def own_postgres(host: str = "127.0.0.1", **settings: str) -> AbstractContextManager[PostgresServer]:
    return _own(PostgresServer(host, **settings))


def own_redis(host: str = "127.0.0.1", **settings: str) -> AbstractContextManager[RedisServer]:
    return _own(RedisServer(host, **settings))


def own_s3(host: str = "127.0.0.1", **settings: str) -> AbstractContextManager[S3Server]:
    return _own(S3Server(host, **settings))


@contextmanager
def pgbouncer(url: str, **settings: str) -> Iterator[str]:
    """A URL to the same database through a pooler; settings are its own (``default_pool_size="5"``)."""
    with _own(Pgbouncer(url, **settings)) as server:
        yield server.url
