"""What workers do on S3: claim, extend, settle, reap, and know when to look again."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from ..core.errors import PersisterError, PersisterUnavailableError
from ..core.lease import Lease, LeaseToken
from ..core.lifecycle import Transition, apply
from ..core.task import Claim
from ..ports.persister import IncompleteSettle
from ._s3_documents import StoredTask, generation
from ._s3_keys import Hint, is_task_id, lease_key, made_at
from ._s3_leases import Leases, grouped
from ._s3_pool import Pool
from ._s3_tasks import GONE, Gone, Rewrite, Tasks, Version

PATIENCE = 120.0
"""Seconds after which whoever wrote a hint, and not yet its task, never will."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.125, 10.0
_SMALLEST_PAGE = 16
_MOST_KNOWN = 10_000
_MOST_SHUNNED = 100
_LARGEST_CROWD = 16
_MOST_LOOKED_AT = 1000


@dataclass(frozen=True, slots=True)
class _Pause:
    since: float
    until: float
    length: float


class Shunned:
    """Hints whose task isn't there yet: its writer is about to write it, or was cut short. Nobody looks again on their
    account but after pauses that grow; who claims anyway tries them too."""

    def __init__(self) -> None:
        self._pauses: dict[str, _Pause] = {}

    def __len__(self) -> int:
        return len(self._pauses)

    def is_stale(self, hint: Hint, now: float) -> bool:
        """Whether its writer has had all the time that there is; otherwise it gets a pause."""
        last = self._pauses.get(hint.key)
        if last is not None and now - last.since > PATIENCE:
            del self._pauses[hint.key]
            return True
        if last is not None and now < last.until:
            return False
        length = _SHORTEST_PAUSE if last is None else min(last.length * 2, _LONGEST_PAUSE)
        if len(self._pauses) >= _MOST_SHUNNED:
            recent = {key: pause for key, pause in self._pauses.items() if now - pause.since <= 2 * PATIENCE}
            self._pauses = recent if len(recent) < _MOST_SHUNNED else {}
        self._pauses[hint.key] = _Pause(now if last is None else last.since, now + length, length)
        return False

    def look_at(self, hint: Hint) -> float:
        """When there may be something to find by it."""
        pause = self._pauses.get(hint.key)
        return float(hint.run_at) if pause is None else max(hint.run_at, pause.until)

    def settled(self, hint: Hint) -> None:
        self._pauses.pop(hint.key, None)


class Worker:
    """``now`` is the store's clock."""

    def __init__(self, tasks: Tasks, leases: Leases, pool: Pool, now: Callable[[], float]) -> None:
        self._tasks = tasks
        self._leases = leases
        self._pool = pool
        self._now = now
        self._shunned = Shunned()
        self._crowds: dict[str, int] = {}
        self._held: dict[LeaseToken, Version] = {}
        """As they were written last by this process: saves a reading at the settling."""

    # --- claiming

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> list[Claim]:
        claims: list[Claim] = []
        if limit <= 0:
            return claims
        due = self._due(queue, limit)
        try:
            while hints := list(itertools.islice(due, limit - len(claims))):
                claims += self._claim_these(hints, queue, owner, lease_for)
        except PersisterUnavailableError:
            if not claims:
                raise
        return sorted(claims, key=lambda claim: (claim.record.run_at or 0, claim.record.id))

    def _due(self, queue: str, limit: int) -> Iterator[Hint]:
        """In order; but where others claim too, each begins somewhere among the first, lest all try for the same."""
        now, crowd = self._now(), self._crowds.get(queue, 1)
        page = max(limit * crowd, _SMALLEST_PAGE) + len(self._shunned)
        due = itertools.takewhile(lambda hint: hint.run_at <= now, self._tasks.due(queue, page))
        first = list(itertools.islice(due, limit * crowd)) if crowd > 1 else []
        start = limit * (int.from_bytes(os.urandom(4)) % crowd)
        return itertools.chain(first[start:], first[:start], due)

    def _met(self, queue: str, others: bool) -> None:
        """How many workers seem to claim beside this one."""
        crowd = self._crowds.get(queue, 1)
        if others:
            self._crowds[queue] = min(crowd * 2, _LARGEST_CROWD)
        elif crowd > 1:
            self._crowds[queue] = crowd - 1

    def _claim_these(self, hints: Sequence[Hint], queue: str, owner: str, lease_for: float) -> list[Claim]:
        found = self._pool.each(self._tasks.read, [hint.task_id for hint in hints])
        litter, free = self._told_apart(hints, found, queue)
        claims: list[Claim] = []
        error: PersisterError | None = next((fault for fault in found if _is_outage(fault)), None)
        if free:
            now = self._now()
            lease = Lease(owner, now + lease_for)
            value = self._leases.begin(queue, owner, [version.stored.record.id for version in free], lease.expires_at)
            answers = self._pool.each(lambda version: self._take(version, value), free)
            refused = [version for version, answer in zip(free, answers, strict=True) if answer is None]
            self._met(queue, others=bool(refused))
            if refused:
                self._leases.drop(value, [version.stored.record.id for version in refused])
            claims, more_litter = self._claims(answers, value, lease, now)
            litter += more_litter
            error = next((fault for fault in answers if isinstance(fault, PersisterError)), error)
        self._tasks.tidy(litter)
        if error is not None and not claims:
            raise error
        return claims

    def _told_apart(
        self, hints: Sequence[Hint], found: Sequence[Version | PersisterError | None], queue: str
    ) -> tuple[list[str], list[Version]]:
        """The hints that are of no use any more, and the tasks that can be claimed."""
        litter: list[str] = []
        free: list[Version] = []
        for hint, version in zip(hints, found, strict=True):
            if isinstance(version, PersisterUnavailableError):
                continue
            if isinstance(version, PersisterError):
                self._shunned.is_stale(hint, self._now())
            elif version is not None and version.stored.hint == hint.key and version.stored.record.queue == queue:
                self._shunned.settled(hint)
                free.append(version)
            elif self._is_useless(hint, version):
                litter.append(hint.key)
        return litter, free

    def _is_useless(self, hint: Hint, version: Version | None) -> bool:
        """Not where its writer may be about to write the task."""
        now = self._now()
        if version is None:
            return now - made_at(hint.task_id) > PATIENCE or self._shunned.is_stale(hint, now)
        if generation(hint.revision) <= generation(version.stored.revision):
            self._shunned.settled(hint)
            return True
        return self._shunned.is_stale(hint, now)

    def _take(self, version: Version, value: str) -> Rewrite | None:
        return self._tasks.rewrite(version.stored.record.id, lambda stored: stored.in_hand(value), version, once=True)

    def _claims(
        self, answers: Sequence[Rewrite | PersisterError | None], value: str, lease: Lease, now: float
    ) -> tuple[list[Claim], list[str]]:
        claims: list[Claim] = []
        litter: list[str] = []
        for answer in answers:
            if isinstance(answer, Rewrite) and answer.after is not None:
                record = replace(answer.after.stored.record, lease=lease, read_at=now)
                token = LeaseToken(record.id, value)
                if len(self._held) >= _MOST_KNOWN:
                    self._held.clear()
                self._held[token] = answer.after
                claims.append(Claim(record, token))
                litter += answer.litter
        return claims, litter

    # --- extending and settling

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> list[LeaseToken]:
        by_value = grouped([(token.value, token.task_id) for token in tokens])
        end = self._now() + lease_for

        def extend_one(value: str) -> set[str]:
            return self._leases.extend(value, by_value[value], end)

        answers = dict(zip(by_value, self._pool.each(extend_one, list(by_value)), strict=True))
        lost: list[LeaseToken] = []
        for token in tokens:
            answer = answers[token.value]
            if isinstance(answer, PersisterError):
                raise answer
            if token.task_id in answer:
                lost.append(token)
        return lost

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> list[LeaseToken]:
        answers = self._pool.each(self._settle_one, settlements)
        litter: list[str] = []
        lost: list[LeaseToken] = []
        over: list[tuple[str, str]] = []
        failures: dict[LeaseToken, BaseException] = {}
        for (token, _), answer in zip(settlements, answers, strict=True):
            if isinstance(answer, PersisterError):
                failures[token] = answer
            elif answer is None:
                lost.append(token)
            else:
                litter += answer.litter
                over.append((token.value, token.task_id))
        self._end_leases(over)
        self._tasks.tidy(litter)
        if failures:
            raise IncompleteSettle(failures)
        return lost

    def _settle_one(self, settlement: tuple[LeaseToken, Transition]) -> Rewrite | None:
        token, transition = settlement
        if not is_task_id(token.task_id) or lease_key(token.value) is None:
            return None

        def decide(stored: StoredTask) -> StoredTask | Gone | None:
            if stored.token != token.value:
                return None
            after = apply(stored.record, transition)
            return GONE if after is None else stored.free(after)

        return self._tasks.rewrite(token.task_id, decide, self._held.pop(token, None))

    def _end_leases(self, pairs: Sequence[tuple[str, str]]) -> None:
        by_value = grouped(pairs)
        self._pool.each(lambda value: self._leases.drop(value, by_value[value]), list(by_value))

    # --- reaping

    def lapsed(self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None) -> list[Claim]:
        now = self._now()

        def has_ended(end: float) -> bool:
            return dead_owner is not None or now > end

        claims: list[Claim] = []
        if limit <= 0:
            return claims
        left = iter(self._left(queue, dead_owner, max(limit, _MOST_LOOKED_AT), now, has_ended))
        while some := list(itertools.islice(left, limit - len(claims))):
            claims += self._take_over(some, queue, owner, lease_for, has_ended)
        return claims

    def _left(
        self, queue: str, dead_owner: str | None, most: int, now: float, has_ended: Callable[[float], bool]
    ) -> list[Version]:
        """Tasks in a hand that is gone, in order."""
        ended = [
            (value, task_id, end is None or now > end)
            for value, document in self._leases.of_queue(queue, dead_owner)
            for task_id, end in document.ends.items()
            if end is None or has_ended(end)
        ][:most]
        versions = self._pool.each(lambda pair: self._tasks.read(pair[1]), ended)
        left, over = [], []
        for (value, task_id, is_over), version in zip(ended, versions, strict=True):
            if isinstance(version, PersisterUnavailableError):
                raise version
            if isinstance(version, Version) and version.stored.token == value:
                left.append(version)
            elif is_over:
                over.append((value, task_id))  # before that, its claim may be under way
        self._end_leases(over)
        left.sort(key=lambda version: (version.stored.record.run_at or 0, version.stored.record.id))
        return left

    def _take_over(
        self, left: Sequence[Version], queue: str, owner: str, lease_for: float, has_ended: Callable[[float], bool]
    ) -> list[Claim]:
        by_value = grouped([(version.stored.token or "", version.stored.record.id) for version in left])
        taken: set[str] = set()
        values = list(by_value)
        for some in self._pool.each(lambda value: self._leases.take_away(value, by_value[value], has_ended), values):
            if isinstance(some, PersisterError):
                raise some
            taken |= some
        left = [version for version in left if version.stored.record.id in taken]
        if not left:
            return []
        now = self._now()
        lease = Lease(owner, now + lease_for)
        new_value = self._leases.begin(queue, owner, taken, lease.expires_at)
        answers = self._pool.each(lambda version: self._take_from(version, new_value), left)
        claims, _ = self._claims(answers, new_value, lease, now)
        over = []
        for version, answer in zip(left, answers, strict=True):
            if answer is None:
                over.append((new_value, version.stored.record.id))
            if not isinstance(answer, PersisterError):
                over.append((version.stored.token or "", version.stored.record.id))
        self._end_leases(over)
        return claims

    def _take_from(self, version: Version, new_value: str) -> Rewrite | None:
        held_by = version.stored.token

        def decide(stored: StoredTask) -> StoredTask | None:
            return stored.in_hand(new_value) if stored.token == held_by else None

        return self._tasks.rewrite(version.stored.record.id, decide, version)

    # --- looking ahead

    def next_look_at(self, queue: str) -> float | None:
        instants = []
        for hint in self._tasks.due(queue, 1 + len(self._shunned)):
            at = self._shunned.look_at(hint)
            instants.append(at)
            if at == hint.run_at:
                break
        end = self._leases.next_end(queue)
        return min(instants if end is None else [*instants, end], default=None)


def _is_outage(answer: object) -> TypeGuard[PersisterUnavailableError]:
    return isinstance(answer, PersisterUnavailableError)
