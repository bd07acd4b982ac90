-- Put before every script of this folder; run on its own it does nothing.
-- Scripts compare and move texts; none decodes JSON, and all check before they change anything.

-- An error reply when a key that is to be changed is no list; RPUSH would say so half-way.
local function not_lists(keys)
  for _, key in ipairs(keys) do
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'list' and kind ~= 'none' then
      return redis.error_reply('WRONGTYPE ' .. key .. ': expected list, found ' .. kind)
    end
  end
end

-- Push texts in slices that fit Lua's stack; `command` is RPUSH or LPUSH.
local function push(command, key, texts)
  for from = 1, #texts, 1000 do
    redis.call(command, key, unpack(texts, from, math.min(from + 999, #texts)))
  end
end

-- Whether a list of chunk numbers holds this one.
local function noted(key, chunk)
  return redis.call('LPOS', key, chunk) ~= false
end
