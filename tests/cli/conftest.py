from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    made = Project.make(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROCRASTINATE_ENV", raising=False)
    path = list(sys.path)
    yield made
    sys.path[:] = path
    sys.modules.pop(made.module, None)
