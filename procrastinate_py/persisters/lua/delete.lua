-- Removes a task. KEYS: leased, leases, due, tasks, ids, and those of the closed states. ARGV: id.
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
place({id = ARGV[1], due = KEYS[3], closed = {unpack(KEYS, 6)}}, '', '')
return {exact(now_or(''))}
