-- Sums up a stretch of a list, so that a client can tell that nothing on it has changed.
--
-- KEYS     1 the list
-- ARGV     1 the first position, 2 how many entries
-- RETURNS  SHA-1, in hex, of each entry's length in digits, a colon and its bytes, in order
local entries = redis.call('LRANGE', KEYS[1], ARGV[1], ARGV[1] + ARGV[2] - 1)
local parts = {}
for at, entry in ipairs(entries) do
  parts[at] = #entry .. ':' .. entry
end
return redis.sha1hex(table.concat(parts))
