-- Leases what is due. KEYS: due, leased, leases, tasks. ARGV: now ('' for the server's), limit, seconds, token, owner.
local now = now_or(ARGV[1])
local limit = tonumber(ARGV[2])
local found = limit > 0 and redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', exact(now), 'WITHSCORES', 'LIMIT', 0, limit)
if not found or #found == 0 then
  return {exact(now), '0', '', '', ''}
end
local ids, run_ats = {}, {}
for index = 1, #found / 2 do
  ids[index] = found[index * 2 - 1]
  run_ats[index] = found[index * 2]
end
local texts = texts_of(KEYS[4], ids)
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #texts - 1)
return lease_out(KEYS[2], KEYS[3], ids, run_ats, texts, now, tonumber(ARGV[3]), ARGV[4], ARGV[5])
