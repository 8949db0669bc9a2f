-- Stores tasks of some queues: all or none, since nothing but the first write can be refused.
-- KEYS: meta, due, tasks, ids of each queue. ARGV: the stride, by which the ids of a queue are apart; and for each queue
-- the number that it is given if it has none ('' for none), its channel, how many tasks follow; for each of them its
-- run_at and its text.
-- Replies the first id of each queue; -1 for all of them where a queue has no number yet, and nothing was stored.
local STRIDE = tonumber(ARGV[1])
local firsts, numbers, known, missing = {}, {}, {}, false
local at = 2
for group = 1, #KEYS / 4 do
  local meta = KEYS[group * 4 - 3]
  known[group] = redis.call('HGET', meta, 'number')
  numbers[group] = known[group] or ARGV[at]
  firsts[group] = -1
  missing = missing or numbers[group] == ''
  at = at + 3 + tonumber(ARGV[at + 2]) * 2
end
local reply = {exact(now_or(''))}
if not missing then
  at = 2
  for group = 1, #KEYS / 4 do
    local meta, due, tasks, ids = unpack(KEYS, group * 4 - 3, group * 4)
    local number = tonumber(numbers[group])
    local many = tonumber(ARGV[at + 2])
    local last = redis.call('HINCRBY', meta, 'made', many)
    if not known[group] then
      redis.call('HSET', meta, 'number', numbers[group])
    end
    firsts[group] = (last - many + 1) * STRIDE + number
    local runs, texts, orders = {}, {}, {}
    for index = 1, many do
      local id = string.format('%016.0f', firsts[group] + (index - 1) * STRIDE)
      runs[index * 2 - 1], runs[index * 2] = ARGV[at + 1 + index * 2], id
      texts[index * 2 - 1], texts[index * 2] = id, ARGV[at + 2 + index * 2]
      orders[index * 2 - 1], orders[index * 2] = firsts[group] + (index - 1) * STRIDE, id
    end
    in_slices('ZADD', due, runs)
    in_slices('HSET', tasks, texts)
    in_slices('ZADD', ids, orders)
    redis.pcall('PUBLISH', ARGV[at + 1], '')
    at = at + 3 + many * 2
  end
end
for group = 1, #firsts do
  reply[group + 1] = firsts[group]
end
return reply
