-- Take a lease that is free or expired, and propose the epoch after the settled one.
-- The proposal is not stored: only hold.lua changes the epoch.
--
-- KEYS[1]  the lease, a hash: owner, epoch (settled), expires (ms on this server's clock)
-- KEYS[2]  all held leases, a sorted set: execution id, scored by when to look at it (ms)
-- ARGV[1]  execution id
-- ARGV[2]  owner, unique for this acquisition
-- ARGV[3]  time to live (ms)
-- ARGV[4]  after how long without a change the hash is garbage (ms)
-- Returns the proposed epoch, or nil while anybody's lease is live.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local lease = redis.call('HMGET', KEYS[1], 'expires', 'epoch')
if lease[1] and tonumber(lease[1]) > now then
  return nil
end

local expires = string.format('%.0f', now + ARGV[3])
redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'expires', expires)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('ZADD', KEYS[2], expires, ARGV[1])
return tonumber(lease[2] or 0) + 1
