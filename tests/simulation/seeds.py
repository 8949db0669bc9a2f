"""How many seeds are run, beginning with 0."""

from __future__ import annotations

SOUND = {"memory": 130, "floor": 130, "sqlite": 40}
"""Of each store, with sound parts."""

ENOUGH = 80
"""Within which each bug must be caught; they're among those that hold with sound parts."""
