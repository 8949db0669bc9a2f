-- Gives a queue its number, the same to everybody. KEYS: numbers by name, names by number.
-- ARGV: the name, the number that the queue itself knows ('' where it knows none), how many numbers there are, and the
-- one that is given where it's free.
-- Replies the number; -1: there are no more; -2: the queue's own belongs to another one.
local name, own, numbers = ARGV[1], ARGV[2], tonumber(ARGV[3])
local known = redis.call('HGET', KEYS[1], name)
if known and (own == '' or own == known) then
  return {exact(now_or('')), tonumber(known)}
end
if own ~= '' then
  if redis.call('HGET', KEYS[2], own) then
    return {exact(now_or('')), -2}
  end
  if known then
    redis.call('HDEL', KEYS[2], known)
  end
else
  if redis.call('HLEN', KEYS[2]) >= numbers then
    return {exact(now_or('')), -1}
  end
  local free = tonumber(ARGV[4])
  while redis.call('HEXISTS', KEYS[2], free) == 1 do
    free = (free + 1) % numbers
  end
  own = tostring(free)
end
redis.call('HSET', KEYS[1], name, own)
redis.call('HSET', KEYS[2], own, name)
return {exact(now_or('')), tonumber(own)}
