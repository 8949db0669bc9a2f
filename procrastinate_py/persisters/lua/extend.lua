-- Makes leases last from now on. KEYS: leased, leases. ARGV: now ('' for the server's), seconds, ids, tokens (both as
-- JSON). Replies the places of those that are lost.
local now = now_or(ARGV[1])
local expires_at = exact(now + tonumber(ARGV[2]))
local ids, tokens = cjson.decode(ARGV[3]), cjson.decode(ARGV[4])
local held = values_of(KEYS[2], ids)
local ends, lost = {}, {}
for index = 1, #ids do
  if held[index] and token_run_at_owner(held[index]) == tokens[index] then
    ends[#ends + 1] = expires_at
    ends[#ends + 1] = ids[index]
  else
    lost[#lost + 1] = index - 1
  end
end
redis.call('HDEL', KEYS[2], '')
in_slices('ZADD', KEYS[1], ends)
return {exact(now), table.concat(lost, ' ')}
