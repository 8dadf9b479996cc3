-- KEYS: lease. ARGV: token. Ends the lease if it is still held.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
