-- Put the letters of a released chunk back at the tail, and take its number off the notes.
--
-- KEYS 1 letters, 2 the operation's notes, 3 what was restored of it
-- ARGV 1 chunk number, 2 the mark for KEYS 3, 3 `noted`, or `lost` for a chunk whose note is lost,
--      then the letters
-- RETURNS {1} put back; {2} the number is not on the notes: never taken, or restored before
local wrong = not_lists(KEYS)
if wrong then return wrong end
if not noted(KEYS[2], ARGV[1]) then
  if ARGV[3] ~= 'lost' then return {2} end
  for _, mark in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
    if string.sub(mark, 1, #ARGV[1] + 1) == ARGV[1] .. ':' then return {2} end
  end
end
local texts = {}
for at = 4, #ARGV do texts[at - 3] = ARGV[at] end
push('RPUSH', KEYS[1], texts)
redis.call('LREM', KEYS[2], 1, ARGV[1])
redis.call('RPUSH', KEYS[3], ARGV[2])
return {1}
