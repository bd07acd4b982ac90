-- Set a stretch of letters at the head aside, in order.
--
-- KEYS 1 letters, 2 the list of passed ones
-- ARGV 1 length of the stretch, 2 its first text, 3 its last
-- RETURNS 1 when the stretch was moved, 0 when other letters stand at its ends: nothing changed
local wrong = not_lists(KEYS)
if wrong then return wrong end
local entries = redis.call('LRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1)
if #entries ~= tonumber(ARGV[1]) or entries[1] ~= ARGV[2] or entries[#entries] ~= ARGV[3] then
  return 0
end
push('RPUSH', KEYS[2], entries)
redis.call('LTRIM', KEYS[1], #entries, -1)
return 1
