-- Raise the mark of one execution at one resource.
--
-- KEYS[1]  the mark, a hash: epoch, owner
-- KEYS[2]  refusals, a list of JSON, newest first
-- ARGV[1]  resource
-- ARGV[2]  execution id
-- ARGV[3]  epoch
-- ARGV[4]  owner
-- ARGV[5]  how long marks, keys and refusals are kept (ms), 0 for ever
-- ARGV[6]  key, or '' where only the mark is raised
-- ARGV[7]  digest of the request, or ''
-- Returns {'raised'}, or {'stale', current epoch}.
local REFUSALS = 100

local function remember(name)
  if ARGV[5] ~= '0' then
    redis.call('PEXPIRE', name, ARGV[5])
  end
end

local function raise_mark()
  local mark = redis.call('HMGET', KEYS[1], 'epoch', 'owner')
  local current = tonumber(mark[1] or 0)
  if current > tonumber(ARGV[3]) then
    local time = redis.call('TIME')
    redis.call('LPUSH', KEYS[2], cjson.encode({
      resource = ARGV[1], execution_id = ARGV[2], held = tonumber(ARGV[3]), current = current,
      owner = ARGV[4], current_owner = mark[2], key = ARGV[6], digest = ARGV[7],
      at = time[1] .. '.' .. string.format('%06d', time[2]),
    }))
    redis.call('LTRIM', KEYS[2], 0, REFUSALS - 1)
    remember(KEYS[2])
    return current
  end
  redis.call('HSET', KEYS[1], 'epoch', ARGV[3], 'owner', ARGV[4])
  remember(KEYS[1])
  return nil
end
