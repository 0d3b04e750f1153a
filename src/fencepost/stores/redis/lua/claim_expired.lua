-- Take leases that have expired, and hide each from other claimants for a while.
-- The hashes keep their past expiry, so that the leases can be acquired all the same.
--
-- KEYS[1]  all held leases, a sorted set: execution id, scored by when to look at it (ms)
-- ARGV[1]  how many at most
-- ARGV[2]  for how long they are hidden (ms)
-- Returns the execution ids, longest expired first.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local expired =
  redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[1])
local hidden_until = string.format('%.0f', now + ARGV[2])
for _, execution in ipairs(expired) do
  redis.call('ZADD', KEYS[1], hidden_until, execution)
end
return expired
