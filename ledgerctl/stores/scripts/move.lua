-- Moves entries from one list to the tail of another, each under the bytes it has afterwards.
--
-- KEYS     1 the list they stand on, 2 the list they go to; not the same one
-- ARGV     three for each entry: its exact bytes, the bytes to write, and how many entries from
--          the head to look at (0: all)
-- RETURNS  for each entry 1 when it was moved, 0 when no such bytes stood there
--
-- Checks before it takes, and writes before it removes: whatever fails, no entry is lost.
-- Running it twice moves nothing twice, because each move names the exact bytes.
local wrong = not_lists(KEYS)
if wrong then return wrong end
local moved = {}
for at = 1, #ARGV, 3 do
  local there = redis.call('LPOS', KEYS[1], ARGV[at], 'MAXLEN', ARGV[at + 2])
  if there then
    redis.call('RPUSH', KEYS[2], ARGV[at + 1])
    redis.call('LREM', KEYS[1], 1, ARGV[at])
  end
  moved[#moved + 1] = there and 1 or 0
end
return moved
