"""Put work off until later, kept in your own storage."""
