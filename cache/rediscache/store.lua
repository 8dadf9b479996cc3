-- Stores the value and ends the lease in one step, so that no waiter sees neither.
-- KEYS: value, lease. ARGV: value, its life in ms, token ('' for none).
local stored = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if ARGV[3] ~= '' and redis.pcall('GET', KEYS[2]) == ARGV[3] then
  redis.call('DEL', KEYS[2]) -- also when there was no memory for the value
end
return stored
