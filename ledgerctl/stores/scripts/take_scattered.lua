-- Take entries of a list, wherever they stand; the order of the others stays.
--
-- KEYS 1 the list, 2 where their new texts go (the notes again for a release), 3 the notes to
--      which the chunk number is added, or from which it goes, 4 where a mark is added
-- ARGV 1 chunk number, 2 'take' or 'restore', 3 the mark (for 'restore': on KEYS 4),
--      4 a text that no entry has, 5 how far towards the head to look, 6 number of entries,
--      then their positions from the head, then their texts, then new texts
-- RETURNS {1} taken; {2} done before; {0, numbers of entries that do not stand there} and
--      nothing has changed
--
-- Entries that others took nearer the head shift all positions alike, so a text that is not at
-- its place is looked for a little nearer the head, twice in a call at most.
local list, target, notes, marks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wrong = not_lists(KEYS)
if wrong then return wrong end
local restoring = ARGV[2] == 'restore'
if noted(notes, ARGV[1]) ~= restoring then return {2} end

local tombstone, slack, count = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local places, chosen, missing = {}, {}, {0}
local shift, looks = 0, 2
for number = 1, count do
  local place = tonumber(ARGV[6 + number]) - shift
  local text = ARGV[6 + count + number]
  local fits = place >= 0 and not chosen[place] and redis.call('LINDEX', list, place) == text
  if not fits and looks > 0 then
    looks = looks - 1
    local from = math.max(0, place - slack)
    local near = redis.call('LRANGE', list, from, math.max(0, place + 10))
    for at = #near, 1, -1 do
      if near[at] == text and not chosen[from + at - 1] then
        shift = shift + place - (from + at - 1)
        place, fits = from + at - 1, true
        break
      end
    end
  end
  if fits then
    places[number], chosen[place] = place, true
  else
    missing[#missing + 1] = number
  end
end
if #missing > 1 then return missing end

local new = {}
for number = 1, count do new[number] = ARGV[6 + 2 * count + number] end
push('RPUSH', target, new)
if restoring then
  redis.call('LREM', notes, 1, ARGV[1])
  redis.call('RPUSH', marks, ARGV[3])
else
  redis.call('RPUSH', notes, ARGV[1])
end
for number = 1, count do redis.call('LSET', list, places[number], tombstone) end
local near_tail = redis.call('LLEN', list) - math.min(unpack(places)) <= math.max(unpack(places))
redis.call('LREM', list, near_tail and -count or count, tombstone)
return {1}
