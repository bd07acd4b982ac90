-- Takes one entry off a list for good.
--
-- KEYS     1 the list
-- ARGV     1 its exact bytes
-- RETURNS  1 when it was taken off, 0 when no such bytes stood there
return redis.call('LREM', KEYS[1], 1, ARGV[1])
