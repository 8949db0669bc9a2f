-- One task, and the number that its queue goes by. KEYS: meta, tasks, leases, leased. ARGV: now, id.
return {
  exact(now_or(ARGV[1])),
  redis.call('HGET', KEYS[1], 'number'),
  redis.call('HGET', KEYS[2], ARGV[2]),
  redis.call('HGET', KEYS[3], ARGV[2]),
  redis.call('ZSCORE', KEYS[4], ARGV[2]),
}
