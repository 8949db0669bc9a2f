"""What the tests of the core share."""

from __future__ import annotations

import pytest


def pytest_make_parametrize_id(config: pytest.Config, val: object) -> str | None:
    """Python prints no int of more than 4300 digits, so pytest can't name a test by one."""
    return "huge" if isinstance(val, int) and abs(val) > 10**600 else None
