"""What the runtime asks of stores, clocks and strategies: one Protocol per ability."""
