-- Follows fence.lua, whose keys and arguments it shares.
local current = raise_mark()
if current then
  return {'stale', current}
end
return {'raised'}
