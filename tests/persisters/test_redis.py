"""Redis as a store: what is its own beside what every store does. Servers are private ones."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis as driver
from redis.crc import key_slot

from procrastinate_py.core.errors import ConfigurationError, PersisterError, PersisterUnavailableError
from procrastinate_py.core.lifecycle import Close, Complete, Release, Reschedule
from procrastinate_py.core.task import NewTask, TaskState
from procrastinate_py.persisters import RedisPersister, _redis_session, open_persister
from procrastinate_py.persisters._redis_checks import check_server, concerns_of
from procrastinate_py.persisters._redis_rows import STRIDE
from procrastinate_py.persisters._redis_session import Session
from procrastinate_py.persisters._redis_url import address_of
from procrastinate_py.persisters._redis_wire import Refused
from procrastinate_py.ports.clock import SystemClock
from procrastinate_py.testing.clock import FakeClock
from procrastinate_py.testing.conformance import ABILITIES, PersisterConformance, grade
from tests.servers import GUARDED, own_redis, redis, redis_url

PATIENCE = 60.0


class TestRedis(PersisterConformance):
    """E3, G6: what it writes is there after it was opened anew."""

    expects = ABILITIES

    @pytest.fixture(autouse=True)
    def _server(self) -> None:
        self.url = redis_url()
        self.prefixes = (f"exam{number}" for number in itertools.count())

    def make_persister(self, clock: FakeClock) -> RedisPersister:
        self.clock = clock
        return RedisPersister(self.url, next(self.prefixes), clock=clock)

    def reopen(self, persister: RedisPersister) -> RedisPersister:
        persister.close()
        return RedisPersister(*persister.__reduce__()[1], clock=self.clock)


@pytest.fixture
def store() -> Iterator[RedisPersister]:
    made = RedisPersister(redis_url())
    yield made
    made.close()


@pytest.fixture
def client(store: RedisPersister) -> Iterator[Any]:
    with driver.Redis.from_url(store.__reduce__()[1][0]) as made:
        yield made


def new(queue: str = "q", run_at: int = 0, task: str = "!a:B {}") -> NewTask:
    return NewTask(queue=queue, run_at=run_at, initial_run_at=run_at, expire_at=None, task=task)


# --- keys and ids


def test_each_call_keeps_to_one_hash_slot(store: RedisPersister, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """E3: so a cluster can hold it."""
    seen: set[tuple[str, int]] = set()
    run = Session.run

    def recording(self: Session, name: str, keys: Any, arguments: Any = ()) -> list[Any]:
        seen.add((name, len({key_slot(key) for key in keys}) if name != "create" else 1))
        assert name != "create" or all(len({key_slot(k) for k in keys[i : i + 4]}) == 1 for i in range(0, len(keys), 4))
        return run(self, name, keys, arguments)

    monkeypatch.setattr(Session, "run", recording)
    use_all_of(store)
    scripts = {path.stem for path in _redis_session._FOLDER.glob("*.lua") if not path.stem.startswith("_")}
    assert seen == {(name, 1) for name in scripts}
    slots = {key: key_slot(key) for key in client.keys("*")}
    assert len({slot for key, slot in slots.items() if key.startswith(b"{procrastinate:one}:")}) == 1
    assert all(key.startswith(b"{procrastinate") for key in slots)


def use_all_of(store: RedisPersister) -> None:
    ids = store.create_many([new("one"), new("two"), new("one", 10**10), new("one")])
    assert store.read_tasks("one")
    (first, second), third = store.claim("one", "me", 2, 30.0), ids[2]
    assert store.extend([first.token, second.token], 60.0) == []
    failed = Reschedule(run_at=5, attempts=1, last_fail_at=4, last_error="Task failed: no", task="!a:C {}")
    assert store.settle([(first.token, Complete()), (second.token, failed)]) == []
    store.claim("one", "dead", 1, 30.0)
    assert [claim.record.id for claim in store.lapsed("one", "me", 5, 30.0, "dead")] == [ids[3]]
    assert store.next_look_at("one") is not None
    record = store.find(third)
    assert record is not None
    dead = Close(state=TaskState.FAILED, attempts=2, last_fail_at=4, last_error="Task failed too many times: no")
    assert store.transition(third, record, dead)
    store.update_task({**record.as_mapping(), "last_error": "Task failed"})
    assert [found.id for found in store.select()] == sorted(ids[1:])
    assert sum(store.count().values()) == 3
    store.delete_task(third)
    store.notify("one")
    assert store.now() > 0
    store._run("time", store._queues.registry[:1])


def test_an_id_tells_its_queue_to_a_process_that_never_saw_it(store: RedisPersister) -> None:
    """E3"""
    ids = store.create_many([new(name) for name in ("a", "b", "c")])
    assert len({task_id % STRIDE for task_id in ids}) == 3
    other = RedisPersister(*store.__reduce__()[1])
    assert [other.find(task_id).queue for task_id in ids] == ["a", "b", "c"]
    other.close()


def test_prefixes_keep_environments_apart(store: RedisPersister) -> None:
    """G8"""
    url = store.__reduce__()[1][0]
    other = RedisPersister(f"{url}?prefix=other")
    task_id = store.create_task(new().as_mapping())
    assert other.find(task_id) is None
    assert other.read_tasks("q") == []
    assert other.claim("q", "me", 5, 30.0) == []
    other.close()


def test_a_lost_registry_is_written_again_by_whoever_creates(store: RedisPersister, client: Any) -> None:
    """G7: in a cluster one node may lose its data alone."""
    (task_id,) = store.create_many([new("a")])
    store.create_many([new("b")])
    client.delete("{procrastinate}:queues", "{procrastinate}:numbers")
    other = RedisPersister(*store.__reduce__()[1])
    other.create_many([new("c")])
    other.create_many([new("b"), new("a")])
    found = other.find(task_id)
    assert found is not None and found.queue == "a"
    assert {record.queue for record in other.select()} == {"a", "b", "c"}
    other.close()


def test_the_ten_thousandth_queue_is_the_last(store: RedisPersister, client: Any) -> None:
    """G8"""
    client.hset("{procrastinate}:queues", mapping={f"q{n}": n for n in range(STRIDE)})
    client.hset("{procrastinate}:numbers", mapping={n: f"q{n}" for n in range(STRIDE)})
    with pytest.raises(PersisterError, match="10,000 queues under this prefix"):
        store.create_many([new("one too many")])
    store.create_many([new("q77")])


@pytest.mark.parametrize("field", ["run_at", "initial_run_at", "expire_at"])
def test_an_instant_comes_back_exactly_or_is_refused(store: RedisPersister, field: str) -> None:
    """G6: the score of a sorted set is a double."""
    for instant in (-(2**53), 2**53 - 1, 2**53, 2**53 + 1, 2**63):
        try:
            task_id = store.create_task({**new().as_mapping(), field: instant})
        except PersisterError as error:
            assert field == "run_at" and abs(instant) > 2**53 and "exactly" in str(error)
        else:
            assert getattr(store.find(task_id), field) == instant


def test_a_task_cant_be_moved_to_another_queue(store: RedisPersister) -> None:
    """G6"""
    task_id = store.create_task(new().as_mapping())
    found = store.find(task_id)
    assert found is not None
    with pytest.raises(PersisterError, match="moved to another queue"):
        store.update_task({**found.as_mapping(), "queue": "other"})


def test_a_claim_of_large_texts_takes_a_part_of_them(store: RedisPersister) -> None:
    """P11: so that the server isn't blocked for long."""
    text = "!a:B " + "x" * 2**19
    for _ in range(5):
        store.create_many([new(task=text)] * 16)
    sizes = []
    while claims := store.claim("q", "me", 500, 30.0):
        sizes.append(len(claims))
        assert store.settle([(claim.token, Release() if len(sizes) > 9 else Complete()) for claim in claims]) == []
    assert sum(sizes) == 80
    assert max(sizes) <= 64


def test_too_much_for_one_call_is_refused(store: RedisPersister, monkeypatch: pytest.MonkeyPatch) -> None:
    """G8"""
    monkeypatch.setattr("procrastinate_py.persisters.redis._MOST_AT_ONCE", 3)
    with pytest.raises(PersisterError, match="up to 3 tasks"):
        store.create_many([new()] * 4)
    assert store.read_tasks("q") == []


# --- time


def test_the_servers_clock_decides(store: RedisPersister, client: Any) -> None:
    """G3"""
    seconds, microseconds = client.time()
    assert abs(store.now() - (seconds + microseconds / 1e6)) < PATIENCE
    store.create_many([new(run_at=seconds - 1), new(run_at=seconds + 3600)])
    (claim,) = store.claim("q", "me", 5, 12.5)
    assert claim.record.lease is not None
    assert claim.record.lease.expires_at == claim.record.read_at + 12.5
    assert claim.record.read_at >= seconds


def test_telling_the_time_asks_the_server_once_at_most(store: RedisPersister, monkeypatch: pytest.MonkeyPatch) -> None:
    """P9"""
    first = store.now()
    monkeypatch.setattr(Session, "run", lambda *_: pytest.fail("asked"))
    assert all(store.now() >= first for _ in range(10))


def test_in_a_long_outage_the_time_goes_on(store: RedisPersister, monkeypatch: pytest.MonkeyPatch) -> None:
    """G3, G7: what ends meanwhile has to be decided on, by the time at which it ended."""
    first = store.now()
    later = SystemClock().monotonic() + 100.0
    asked: list[str] = []

    def unavailable(session: Session, name: str, *_: object) -> Any:
        asked.append(name)
        raise PersisterUnavailableError("away")

    monkeypatch.setattr(Session, "run", unavailable)
    monkeypatch.setattr(store._server_time, "_monotonic", lambda: later)
    assert [first + 99 < store.now() < first + 101 for _ in range(5)] == [True] * 5
    assert asked == ["time"]


# --- wake-ups


def test_a_new_task_wakes_a_listener_in_another_process(store: RedisPersister) -> None:
    """P6"""
    listener = store.listen("q")
    program = "import sys; from procrastinate_py.persisters import RedisPersister as R; s = R(sys.argv[1]);"
    program += "s.create_task(dict(queue='q', run_at=0, initial_run_at=0, expire_at=None, task='!a:B {}')); s.close()"
    subprocess.run([sys.executable, "-c", program, store.__reduce__()[1][0]], check=True, timeout=PATIENCE)
    assert select.select([listener], [], [], PATIENCE)[0]
    listener.close()


def test_a_user_who_may_not_subscribe_is_told_why_wake_ups_cant_come() -> None:
    """G8"""
    server = redis()
    server.run("ACL", "SETUSER", "deaf", "on", ">secret1", "~*", "resetchannels", "+@all")
    store = RedisPersister(f"redis://deaf:secret1@{server.host}:{server.port}/0", "deaf")
    try:
        with pytest.raises(PersisterError, match="may not subscribe") as caught:
            store.listen("q")
        assert "secret1" not in str(caught.value)
        assert store.find(store.create_task(new().as_mapping())) is not None
    finally:
        store.close()
        server.run("ACL", "DELUSER", "deaf")


# --- URLs


@pytest.mark.parametrize(
    ("url", "prefix", "fault"),
    [
        ("redis://h:port/0", None, "not a Redis URL"),
        ("redis://h/zero", None, "not a Redis URL"),
        ("redis://u:p/w@h/0", None, "percent-encoded"),
        ("http://h/0", None, "not a Redis URL"),
        ("redis://h?prefix=a{b", None, "prefix= must be"),
        ("redis://h?prefix=a", "b", "differently"),
        ("redis://h?cluster=perhaps", None, "true or false"),
        ("redis://h?retry_on_timeout=1", None, "no option 'retry_on_timeout'"),
        ("redis://h?socket_timeout=-1", None, "seconds above 0"),
        ("redis://h?protocol=4", None, "2 or 3"),
        ("redis://h?db=one", None, "must be an int"),
        ("redis://h?db=1&db=2", None, "given twice"),
        ("redis://h?ssl_ca_certs=x", None, "for rediss"),
        ("redis://h", "", "prefix= must be"),
    ],
)
def test_a_wrong_url_or_option_is_refused_at_once(url: str, prefix: str | None, fault: str) -> None:
    """G8"""
    with pytest.raises(ConfigurationError, match=fault):
        RedisPersister(url, prefix)


def test_options_of_ours_are_kept_from_the_library() -> None:
    """E3"""
    address = address_of("valkey://h:1/2?prefix=p&cluster=yes&socket_timeout=3")
    assert (address.driver_url, address.prefix, address.cluster) == ("redis://h:1/2?socket_timeout=3", "p", True)
    assert address_of("rediss://h?ssl_cert_reqs=none").driver_url == "rediss://h?ssl_cert_reqs=none"


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_a_url_opens_it(scheme: str) -> None:
    """E3"""
    url = redis_url().replace("redis:", f"{scheme}:")
    clock = FakeClock()
    opened = open_persister(url, clock)
    assert isinstance(opened, RedisPersister)
    assert opened.now() == clock.now()
    assert opened.find(opened.create_task(new().as_mapping())).read_at == clock.now()
    opened.close()


def test_both_protocols_do() -> None:
    """E3"""
    url = redis_url()
    for protocol in (2, 3):
        store = RedisPersister(f"{url}?protocol={protocol}", f"p{protocol}")
        use_all_of(store)
        listener = store.listen("one")
        store.create_many([new("one")])
        assert select.select([listener], [], [], PATIENCE)[0]
        listener.close()
        store.close()


def test_a_password_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """G8"""
    server = redis()
    url = server.url_of(1999, "guarded")
    wrong = url.replace("pa55", "hunter2")
    stores = [RedisPersister(url), RedisPersister(wrong), RedisPersister("redis://:hunter2@127.0.0.1:1/0")]
    told = [repr(store) for store in stores]
    with caplog.at_level(logging.DEBUG):
        stores[0].create_task(new().as_mapping())
        for store in stores[1:]:
            with pytest.raises(PersisterError) as caught:
                store.create_task(new().as_mapping())
            assert caught.value.__cause__ is None and caught.value.__suppress_context__
            told.append(str(caught.value))
    told.append(caplog.text)
    stores[0].close()
    for secret in (GUARDED, "pa55", "hunter2"):
        assert secret not in "".join(told)


# --- processes


def test_it_survives_pickling(store: RedisPersister) -> None:
    """E3: as a spawned process gets it."""
    task_id = store.create_task(new().as_mapping())
    again = pickle.loads(pickle.dumps(store))
    assert again.find(task_id) == store.find(task_id) or again.find(task_id).id == task_id
    assert repr(again) == repr(store)
    again.close()


def test_a_forks_child_opens_connections_of_its_own(store: RedisPersister) -> None:
    """U31"""
    task_id = store.create_task(new().as_mapping())
    inherited = store._session()
    pid = os.fork()
    if pid == 0:
        try:
            found = store.find(task_id)
            os._exit(0 if found is not None and store._session() is not inherited else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.find(task_id) is not None
    assert store._session() is inherited


def test_the_library_is_loaded_when_it_is_first_used() -> None:
    """P8"""
    program = "import sys; from procrastinate_py.persisters import open_persister;"
    program += "open_persister('redis://127.0.0.1:1/0'); sys.exit('redis' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)


def test_a_missing_library_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """E3"""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'procrastinate_py\[redis\]'"):
        RedisPersister("redis://h")


# --- what a server is looked at for


def test_an_operator_is_warned_of_settings_that_lose_tasks() -> None:
    """G7"""
    sound = {"maxmemory_policy": "noeviction", "aof_enabled": "1"}
    assert concerns_of(sound, None) == []
    assert concerns_of({**sound, "aof_enabled": "0"}, "3600 1") == []
    assert concerns_of({**sound, "aof_enabled": "0"}, None) == []
    (told,) = concerns_of({**sound, "maxmemory_policy": "allkeys-lru"}, None)
    assert "allkeys-lru" in told and "noeviction" in told
    (told,) = concerns_of({**sound, "aof_enabled": "0"}, "")
    assert "appendonly" in told
    assert concerns_of({}, None) == []


def test_a_process_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    """G7"""
    with own_redis(appendonly="no", maxmemory_policy="volatile-ttl") as server:
        store = RedisPersister(server.url)
        for _ in range(2):
            store.create_task(new().as_mapping())
            store.close()
    told = [record.getMessage() for record in caplog.records if record.name == "procrastinate_py"]
    assert len(told) == 2
    assert "volatile-ttl" in told[0] and "nothing on disk" in told[1]


class Told:
    """A server that answers with what it's given, and refuses the rest as a managed service does."""

    def __init__(self, info: bytes | None, refusal: Exception | None = None) -> None:
        self.info = info
        self.refusal = refusal or Refused("ERR unknown command 'CONFIG'")

    def execute(self, *words: Any) -> Any:
        if words == ("INFO",) and self.info is not None:
            return self.info
        raise self.refusal


def test_an_old_server_is_refused_and_a_managed_one_is_not() -> None:
    """E3"""
    address = address_of("redis://h")
    for version in ("5.0.14", "6.0.16"):
        with pytest.raises(ConfigurationError, match=rf"Redis {version}: 6\.2 or later"):
            check_server(Told(b"redis_version:%s\r\n" % version.encode()), address, silently=True)
    for info in (b"redis_version:6.2.14\r\naof_enabled:0", b"redis_version:8.0.0\r\n", None):
        assert check_server(Told(info), address, silently=False) is False
    assert check_server(Told(b"redis_version:7.2.4\r\nserver_name:valkey\r\ncluster_enabled:1"), address, silently=True)
    for trouble in (ConnectionError(), Refused("LOADING Redis is loading the dataset in memory")):
        with pytest.raises(type(trouble)):
            check_server(Told(None, trouble), address, silently=True)


# --- a broken double


class CompletesById(RedisPersister):
    """Its settle script looks at no token."""

    def settle(self, settlements: Any) -> Any:
        held = self._session().execute("HGETALL", self._queues.keys("conformance").extend[1])
        tokens = {int(held[at]): held[at + 1].split()[0].decode() for at in range(0, len(held), 2)}
        changed = [(token._replace(value=tokens.get(token.task_id, token.value)), way) for token, way in settlements]
        super().settle(changed)
        return []


def test_a_store_that_settles_by_id_alone_is_caught() -> None:
    """G6"""
    url, numbers = redis_url(), itertools.count()
    report = grade(lambda clock: CompletesById(url, f"b{next(numbers)}", clock=clock), abilities=("leasing",))
    assert "a worker whose lease the reaper took over can't write" in [failure.sentence for failure in report.failures]
