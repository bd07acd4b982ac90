-- Tries every command that changes a list, on a key that does not exist; changes nothing.
--
-- KEYS     1 a key that does not exist; the others are there for the cluster's and the user's checks
-- ARGV     none
-- RETURNS  1, or the error of the first command that may not be run
local key = KEYS[1]
local commands = {
  {'RPUSHX', key, ''}, {'LPUSHX', key, ''}, {'LSET', key, 0, ''}, {'LREM', key, 0, ''},
  {'LTRIM', key, 0, -1}, {'LMOVE', key, key, 'LEFT', 'LEFT'}, {'LPOP', key}, {'RPOP', key},
  {'LRANGE', key, 0, 0}, {'LINDEX', key, 0}, {'LLEN', key}, {'LPOS', key, ''}, {'TYPE', key},
}
for _, command in ipairs(commands) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'no such key') then
    return answer
  end
end
local pushed = redis.pcall('RPUSH', key, '')
if type(pushed) == 'table' and pushed.err then return pushed end
redis.call('LTRIM', key, 1, 0)
return 1
