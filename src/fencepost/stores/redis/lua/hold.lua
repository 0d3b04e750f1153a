-- Extend a live lease and store its epoch (settle, renew), or put a vanished one back.
--
-- KEYS[1]  the lease, a hash: owner, epoch (settled), expires (ms on this server's clock)
-- KEYS[2]  all held leases, a sorted set: execution id, scored by when to look at it (ms)
-- ARGV[1]  execution id
-- ARGV[2]  owner
-- ARGV[3]  epoch
-- ARGV[4]  time to live from now (ms)
-- ARGV[5]  after how long without a change the hash is garbage (ms)
-- ARGV[6]  '1' to put the hash back if there is none at all, else '0'
-- Returns 1, or 0 where the lease is gone, expired, another's, or settled at a later epoch.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if redis.call('EXISTS', KEYS[1]) == 0 then
  if ARGV[6] ~= '1' then
    return 0
  end
else
  local lease = redis.call('HMGET', KEYS[1], 'owner', 'expires', 'epoch')
  local mine = lease[1] == ARGV[2] and tonumber(lease[2]) > now
  if not mine or tonumber(lease[3] or 0) > tonumber(ARGV[3]) then
    return 0
  end
end

local expires = string.format('%.0f', now + ARGV[4])
redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'epoch', ARGV[3], 'expires', expires)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('ZADD', KEYS[2], expires, ARGV[1])
return 1
