-- Give a lease up, expired or not, if nobody else has taken it since.
--
-- KEYS[1]  the lease, a hash: owner, epoch (settled), expires (ms on this server's clock)
-- KEYS[2]  all held leases, a sorted set: execution id, scored by when to look at it (ms)
-- ARGV[1]  execution id
-- ARGV[2]  owner
-- ARGV[3]  how long the settled epoch is remembered (ms), or '0' to forget it
-- Returns 1, or 0 where the lease is another's or gone.
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[2] then
  return 0
end

redis.call('ZREM', KEYS[2], ARGV[1])
if ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
else
  -- A hash without any field left vanishes by itself.
  redis.call('HDEL', KEYS[1], 'owner', 'expires')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
