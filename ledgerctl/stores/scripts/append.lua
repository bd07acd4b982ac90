-- Appends an entry, unless one of the lists has got another tail since it was read.
--
-- KEYS     1 the list to append to; it and the others were read
-- ARGV     1 the bytes to write, 2 `1` to append whatever stands there; then the tail of each
--          list in KEYS as it was read, empty for an empty list
-- RETURNS  1 when it was written, 0 when a tail has changed
for at, key in ipairs(KEYS) do
  local tail = redis.call('LINDEX', key, -1) or ''
  if ARGV[2] ~= '1' and tail ~= ARGV[at + 2] then
    return 0
  end
end
redis.call('RPUSH', KEYS[1], ARGV[1])
return 1
