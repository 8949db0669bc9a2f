-- Leases, under a new token, what is in the hand of somebody who is gone. KEYS: leased, leases, tasks.
-- ARGV: now ('' for the server's), limit, seconds, token, owner, and the dead owner if it's about one ('' and one
-- more '' if not).
local now = now_or(ARGV[1])
local limit = tonumber(ARGV[2])
local found = {}
if ARGV[6] == '' then
  local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. exact(now))
  local held = values_of(KEYS[2], ids)
  for index = 1, #ids do
    if held[index] then
      local _, run_at = token_run_at_owner(held[index])
      found[#found + 1] = {ids[index], run_at, tonumber(run_at)}
    else
      redis.call('ZREM', KEYS[1], ids[index])
    end
  end
else
  local held = redis.call('HGETALL', KEYS[2])
  for index = 1, #held, 2 do
    local _, run_at, owner = token_run_at_owner(held[index + 1])
    if owner == ARGV[7] then
      found[#found + 1] = {held[index], run_at, tonumber(run_at)}
    end
  end
end
table.sort(found, function(one, other)
  if one[3] ~= other[3] then
    return one[3] < other[3]
  end
  return one[1] < other[1]
end)
local ids, run_ats = {}, {}
for index = 1, math.min(limit, #found) do
  ids[index] = found[index][1]
  run_ats[index] = found[index][2]
end
if #ids == 0 then
  return {exact(now), '0', '', '', ''}
end
local texts = texts_of(KEYS[3], ids)
for index = 1, #texts do
  redis.call('ZREM', KEYS[1], ids[index])
  if not texts[index] then
    redis.call('HDEL', KEYS[2], ids[index])
  end
end
return lease_out(KEYS[1], KEYS[2], ids, run_ats, texts, now, tonumber(ARGV[3]), ARGV[4], ARGV[5])
