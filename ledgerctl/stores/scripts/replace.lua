-- Writes an entry anew at its place; nothing else on the list moves.
--
-- KEYS     1 the list
-- ARGV     1 the exact bytes that stand there, 2 the bytes to write
-- RETURNS  1 when it was written, 0 when no such bytes stood there
local place = redis.call('LPOS', KEYS[1], ARGV[1])
if not place then
  return 0
end
redis.call('LSET', KEYS[1], place, ARGV[2])
return 1
