-- Overwrites a task that is still as it was read. KEYS: leased, leases, due, tasks, ids, and those of the closed states.
-- ARGV: now, id; its text, lease ('' for none) and lease's end as they were, 1 if that had passed; its text as it's to
-- be ('' to remove it), run_at ('' for never), closed state's place ('' for none), lease ('' to end it); and the
-- channel to tell ('' for none). Replies 1 if it was done.
local now = now_or(ARGV[1])
local id, old, lease, ends, passed, new, run_at, state, kept, channel = unpack(ARGV, 2)
local score = redis.call('ZSCORE', KEYS[1], id) or ''
if redis.call('HGET', KEYS[4], id) ~= old or (redis.call('HGET', KEYS[2], id) or '') ~= lease or score ~= ends then
  return {exact(now), 0}
end
if score ~= '' and (now > tonumber(score)) ~= (passed == '1') then
  return {exact(now), 0}
end
if kept == '' then
  redis.call('HDEL', KEYS[2], id)
  redis.call('ZREM', KEYS[1], id)
else
  redis.call('HSET', KEYS[2], id, kept)
end
local task = {id = id, due = KEYS[3], closed = {unpack(KEYS, 6)}}
if new == '' then
  place(task, '', '')
  redis.call('HDEL', KEYS[4], id)
  redis.call('ZREM', KEYS[5], id)
else
  redis.call('HSET', KEYS[4], id, new)
  place(task, kept == '' and run_at or '', state)
end
if channel ~= '' then
  redis.pcall('PUBLISH', channel, '')
end
return {exact(now), 1}
