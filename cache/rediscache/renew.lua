-- KEYS: lease. ARGV: token, lease's life in ms. Returns 1 if the lease is still held, else 0.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
