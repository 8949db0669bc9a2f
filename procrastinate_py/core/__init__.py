"""Pure decisions: no I/O, clock, randomness, logging or threads."""
