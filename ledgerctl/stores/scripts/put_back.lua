-- Put passed letters back before the head, in order; some of them in each call.
--
-- KEYS 1 the list of passed ones, 2 letters
-- ARGV 1 most letters, 2 bytes after which to stop
-- RETURNS how many passed letters are left
local wrong = not_lists(KEYS)
if wrong then return wrong end
local moved, bytes = 0, 0
while moved < tonumber(ARGV[1]) and bytes < tonumber(ARGV[2]) do
  local text = redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'LEFT')
  if not text then break end
  moved, bytes = moved + 1, bytes + #text
end
return redis.call('LLEN', KEYS[1])
