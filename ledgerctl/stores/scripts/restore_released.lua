-- Put the letters of a released chunk back at the tail, and take its number off the notes.
--
-- KEYS 1 letters, 2 the operation's notes, 3 what was restored of it
-- ARGV 1 chunk number, 2 the mark for KEYS 3, then the letters
-- RETURNS {1} put back; {2} the number is not on the notes: never taken, or restored before
local wrong = not_lists(KEYS)
if wrong then return wrong end
if not noted(KEYS[2], ARGV[1]) then return {2} end
local texts = {}
for at = 3, #ARGV do texts[at - 2] = ARGV[at] end
push('RPUSH', KEYS[1], texts)
redis.call('LREM', KEYS[2], 1, ARGV[1])
redis.call('RPUSH', KEYS[3], ARGV[2])
return {1}
