-- Looks and claims in one step, so that no value can appear between the look and the claim.
-- KEYS: value, lease. ARGV: token, lease's life in ms, a value already rejected, the largest value in bytes, the longest lease in ms.
-- Returns the value, or 1 if the lease is now ours, or 0 if another holds it.
local value = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[4]) -- not a string if there is something else; one byte more if it is too large
if type(value) == 'string' and #value > 0 and #value <= tonumber(ARGV[4]) and value ~= ARGV[3] then
  return value
end
local left = redis.call('PTTL', KEYS[2])
if left >= 0 and left <= tonumber(ARGV[5]) then
  return 0
end
-- Free, or something that is no lease of ours: without an end, or with one no lease has.
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1
