-- The earliest run_at and the earliest end of a lease ('' for none). KEYS: due, leased.
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local ends = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return {exact(now_or('')), first[2] or '', ends[2] or ''}
