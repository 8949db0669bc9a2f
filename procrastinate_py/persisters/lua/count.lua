-- How many tasks there are that are pending, running, and closed in each way. KEYS: due, leased, and those of the
-- closed states. ARGV: now.
local now = now_or(ARGV[1])
local running = redis.call('ZCOUNT', KEYS[2], exact(now), '+inf')
local reply = {exact(now), redis.call('ZCARD', KEYS[1]) + redis.call('ZCARD', KEYS[2]) - running, running}
for index = 3, #KEYS do
  reply[index + 1] = redis.call('ZCARD', KEYS[index])
end
return reply
