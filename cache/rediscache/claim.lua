-- Looks and claims in one step, so that no value can appear between the look and the claim.
-- KEYS: value, lease. ARGV: token, lease's life in ms, a value already rejected, the largest value in bytes, the longest lease in ms.
-- Returns the value, or 1 if the lease is now ours, or 0 if another holds it.
local size = redis.pcall('STRLEN', KEYS[1]) -- not a number if there is something other than a string
if type(size) == 'number' and size > 0 and size <= tonumber(ARGV[4]) then
  local value = redis.call('GET', KEYS[1])
  if value ~= ARGV[3] then
    return value
  end
end
local left = redis.call('PTTL', KEYS[2])
if left >= 0 and left <= tonumber(ARGV[5]) then
  return 0
end
-- Free, or something that is no lease of ours: without an end, or with one no lease has.
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1
