"""What every test gets."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from importlib.util import find_spec

from hypothesis import settings

PLUGIN = "procrastinate_py.pytest_plugin"

# Where the package is installed (make test), its entry point has loaded the plugin already.
if find_spec(PLUGIN) and not any(point.value == PLUGIN for point in entry_points(group="pytest11")):
    pytest_plugins = [PLUGIN]

# No deadline: a slow machine is no fault. In CI the same examples each time, so that a red run can be run again.
settings.register_profile("ours", deadline=None, print_blob=True, derandomize=os.environ.get("CI") == "true")
settings.load_profile("ours")
