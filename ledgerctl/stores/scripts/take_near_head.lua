-- Take letters that stand within a stretch from the head; those between them stay in order.
--
-- KEYS 1 letters, 2 where their new texts go (the notes again for a release), 3 the operation's
--      notes, 4 where letters that stay are put: the letters themselves, or a list of passed ones
-- ARGV 1 chunk number, 2 length of the stretch, 3 number of letters,
--      then their texts, then, for a requeue, as many new texts
-- RETURNS {1} taken; {2} this chunk was taken before; {0, numbers of letters not in the stretch}
--      and nothing has changed
--
-- Run twice it takes once: the chunk's number is noted in the same step.
local letters, target, notes, aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wrong = not_lists(KEYS)
if wrong then return wrong end
if noted(notes, ARGV[1]) then return {2} end

local count = tonumber(ARGV[3])
local wanted = {} -- text → numbers of the letters that have it, the first one last
for number = count, 1, -1 do
  local text = ARGV[3 + number]
  if wanted[text] then table.insert(wanted[text], number) else wanted[text] = {number} end
end
local staying, unsure, found = {}, {}, 0
local last = 0
for at, text in ipairs(redis.call('LRANGE', letters, 0, tonumber(ARGV[2]) - 1)) do
  local numbers = wanted[text]
  if numbers and #numbers > 0 then
    table.remove(numbers)
    for _, before in ipairs(unsure) do staying[#staying + 1] = before end
    unsure, found, last = {}, found + 1, at
    if found == count then break end
  else
    unsure[#unsure + 1] = text
  end
end
if found < count then
  local missing = {0}
  for _, numbers in pairs(wanted) do
    for _, number in ipairs(numbers) do missing[#missing + 1] = number end
  end
  return missing
end

if #ARGV > 3 + count then
  local new = {}
  for number = 1, count do new[number] = ARGV[3 + count + number] end
  push('RPUSH', target, new)
end
redis.call('RPUSH', notes, ARGV[1])
if aside == letters then
  redis.call('LTRIM', letters, last, -1)
  local reversed = {}
  for at = #staying, 1, -1 do reversed[#reversed + 1] = staying[at] end
  push('LPUSH', letters, reversed)
else
  push('RPUSH', aside, staying)
  redis.call('LTRIM', letters, last, -1)
end
return {1}
