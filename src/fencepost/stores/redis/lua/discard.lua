-- Forget leases, epochs included, except those that are live.
--
-- KEYS[1]   all held leases, a sorted set: execution id, scored by when to look at it (ms)
-- KEYS[2..] the leases, hashes: owner, epoch (settled), expires (ms on this server's clock)
-- ARGV[i]   execution id of KEYS[i + 1]
-- Returns how many were forgotten.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local forgotten = 0
for i, execution in ipairs(ARGV) do
  local expires = redis.call('HGET', KEYS[i + 1], 'expires')
  if not expires or tonumber(expires) <= now then
    redis.call('ZREM', KEYS[1], execution)
    redis.call('DEL', KEYS[i + 1])
    forgotten = forgotten + 1
  end
end
return forgotten
