-- Follows fence.lua and a function `write(KEYS, ARGV)`; applies it once for each key.
--
-- KEYS[3]  what is known of the key, a hash: result (JSON), epoch, digest
-- KEYS[4...], ARGV[8...]  what `write` is given, counted from 1
-- Returns {'stale', current epoch}, {'conflict', digest}, {'replayed', result, epoch},
-- {'applied', result}, or the error that `write` returned; then the key is as free as before.
local current = raise_mark()
if current then
  return {'stale', current}
end

local first = redis.call('HMGET', KEYS[3], 'result', 'epoch', 'digest')
if first[1] then
  if ARGV[7] ~= '' and first[3] ~= '' and first[3] ~= ARGV[7] then
    return {'conflict', first[3]}
  end
  return {'replayed', first[1], first[2]}
end

local keys, args = {}, {}
for i = 4, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 8, #ARGV do args[#args + 1] = ARGV[i] end
local written = write(keys, args)
if type(written) == 'table' and written.err then
  return written
end
local result = cjson.encode(written)
redis.call('HSET', KEYS[3], 'result', result, 'epoch', ARGV[3], 'digest', ARGV[7])
remember(KEYS[3])
return {'applied', result}
