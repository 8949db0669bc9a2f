-- Carries out transitions on the rows that still carry their token. KEYS: leased, leases, due, tasks, ids, and those of
-- the closed states. ARGV: ids, tokens (both as JSON), a letter for each (c: complete, r: release, w: rewrite), and for
-- each w its run_at ('' for never), its closed state's place ('' for none), its first line, 1 if its text is written
-- anew, and that text. Replies the places of those that are lost.
local ids, tokens, ways = cjson.decode(ARGV[1]), cjson.decode(ARGV[2]), ARGV[3]
local leases = values_of(KEYS[2], ids)
local held = {}
for index = 1, #ids do
  held[ids[index]] = leases[index]
end
local closed = {unpack(KEYS, 6)}
local ended, gone, again, lost, rewritten = {}, {}, {}, {}, {}
local at = 4
for index = 1, #ids do
  local id, way = ids[index], string.sub(ways, index, index)
  local token, run_at
  if held[id] then
    token, run_at = token_run_at_owner(held[id])
  end
  if not token or token ~= tokens[index] then
    lost[#lost + 1] = index - 1
  else
    held[id] = false
    ended[#ended + 1] = id
    if way == 'c' then
      gone[#gone + 1] = id
    elseif way == 'r' then
      again[#again + 1] = run_at
      again[#again + 1] = id
    else
      rewritten[#rewritten + 1] = {id, at}
    end
  end
  if way == 'w' then
    at = at + 5
  end
end
in_slices('HDEL', KEYS[2], ended)
in_slices('ZREM', KEYS[1], ended)
in_slices('HDEL', KEYS[4], gone)
in_slices('ZREM', KEYS[5], gone)
in_slices('ZADD', KEYS[3], again)
for index = 1, #rewritten do
  local id, from = unpack(rewritten[index])
  local run_at, state, line, anew, task = unpack(ARGV, from, from + 4)
  local old = redis.call('HGET', KEYS[4], id)
  if old then
    local first = string.find(old, '\n', 1, true)
    local second = first and string.find(old, '\n', first + 1, true)
    -- A text that somebody edited may have no lines: all of it is kept as the task's. An error here would leave the
    -- rest undone, and its leases ended.
    local fixed, kept = '\n[null,null]\n', old
    if second then
      fixed, kept = string.sub(old, first, second), string.sub(old, second + 1)
    end
    redis.call('HSET', KEYS[4], id, line .. fixed .. (anew == '1' and task or kept))
    place({id = id, due = KEYS[3], closed = closed}, run_at, state)
  end
end
return {exact(now_or('')), table.concat(lost, ' ')}
