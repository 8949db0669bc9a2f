-- Tasks in order of id. KEYS: what leads to them by id, tasks, leases, leased. ARGV: now, the id after which ('' for
-- the beginning), limit, 1 if only those that are leased now. Replies ids, sizes, texts, leases, their ends.
local now = now_or(ARGV[1])
local limit = tonumber(ARGV[3])
local ids
if ARGV[4] == '1' then
  ids = {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], exact(now), '+inf')) do
    if id > ARGV[2] then
      ids[#ids + 1] = id
    end
  end
  table.sort(ids)
  ids = {unpack(ids, 1, math.min(limit, #ids))}
else
  local after = ARGV[2] == '' and '-inf' or '(' .. ARGV[2]
  ids = redis.call('ZRANGEBYSCORE', KEYS[1], after, '+inf', 'LIMIT', 0, limit)
end
if #ids == 0 then
  return {exact(now), '', '', '', {}, {}}
end
local texts = texts_of(KEYS[2], ids)
local sizes, held, ends = {}, {}, {}
ids = {unpack(ids, 1, #texts)}
local leases = redis.call('HMGET', KEYS[3], unpack(ids))
for index = 1, #texts do
  sizes[index] = texts[index] and #texts[index] or -1
  texts[index] = texts[index] or ''
  held[index] = leases[index] or ''
  ends[index] = leases[index] and redis.call('ZSCORE', KEYS[4], ids[index]) or ''
end
return {exact(now), table.concat(ids, ' '), table.concat(sizes, ' '), table.concat(texts), held, ends}
