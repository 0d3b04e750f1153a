-- A write for `RedisSink`: KEYS[1] becomes ARGV[1], for ARGV[2] ms ('0': for ever). Returns true.
if ARGV[2] == '0' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return true
