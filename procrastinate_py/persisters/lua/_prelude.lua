-- Stands before every script.
--
-- Out of memory, Redis refuses what could take more of it, but only as a script's first write: in the middle it
-- couldn't be stopped. So scripts that must go on then (they lease, extend, settle) begin with a write that takes none.

-- Arguments of one call: Lua's stack holds less than 8,000. Even, so that pairs stay together.
local MOST_ARGUMENTS = 4000
-- Bytes of texts in one reply, and how many texts are read before they're counted again.
local MOST_BYTES = 8388608
local TEXTS_AT_ONCE = 32

local function now_or(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

-- A number in as many digits as bring it back as it is.
local function exact(number)
  return string.format('%.17g', number)
end

local function in_slices(command, key, arguments)
  for first = 1, #arguments, MOST_ARGUMENTS do
    redis.call(command, key, unpack(arguments, first, math.min(first + MOST_ARGUMENTS - 1, #arguments)))
  end
end

-- The fields' values, false for those that aren't there.
local function values_of(key, fields)
  local values = {}
  for first = 1, #fields, MOST_ARGUMENTS do
    local some = redis.call('HMGET', key, unpack(fields, first, math.min(first + MOST_ARGUMENTS - 1, #fields)))
    for index = 1, #some do
      values[first + index - 1] = some[index]
    end
  end
  return values
end

-- The texts of as many of the ids as one reply may hold, at least one of them.
local function texts_of(key, ids)
  local texts, bytes = {}, 0
  for first = 1, #ids, TEXTS_AT_ONCE do
    if bytes > MOST_BYTES then
      break
    end
    local some = redis.call('HMGET', key, unpack(ids, first, math.min(first + TEXTS_AT_ONCE - 1, #ids)))
    for index = 1, #some do
      texts[first + index - 1] = some[index]
      bytes = bytes + (some[index] and #some[index] or 0)
    end
  end
  return texts
end

-- A lease as it's kept: its token, the task's run_at, its owner.
local function token_run_at_owner(lease)
  return string.match(lease, '^(%S+) (%S+) (.*)$')
end

-- Leases what texts were found for; those without a text have gone from the server's memory. Few and long strings,
-- since a client reads each with some effort.
local function lease_out(leased, leases, ids, run_ats, texts, now, lease_for, token, owner)
  local expires_at = exact(now + lease_for)
  local taken, kept, sizes, ends, held = {}, {}, {}, {}, {}
  for index = 1, #texts do
    local text = texts[index]
    if text then
      local id = ids[index]
      taken[#taken + 1] = id
      kept[#kept + 1] = text
      sizes[#sizes + 1] = #text
      ends[#ends + 1] = expires_at
      ends[#ends + 1] = id
      held[#held + 1] = id
      held[#held + 1] = token .. ' ' .. run_ats[index] .. ' ' .. owner
    end
  end
  in_slices('ZADD', leased, ends)
  in_slices('HSET', leases, held)
  return {exact(now), expires_at, table.concat(taken, ' '), table.concat(sizes, ' '), table.concat(kept)}
end

-- Takes a task out of all that leads to it, and puts it where its new state belongs.
local function place(task, run_at, state)
  for index = 1, #task.closed do
    redis.call('ZREM', task.closed[index], task.id)
  end
  redis.call('ZREM', task.due, task.id)
  if state ~= '' then
    redis.call('ZADD', task.closed[tonumber(state)], tonumber(task.id), task.id)
  elseif run_at ~= '' then
    redis.call('ZADD', task.due, run_at, task.id)
  end
end
