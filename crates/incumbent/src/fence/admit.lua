-- Compares texts, not numbers: Lua's numbers are exact up to 2^53 only, and tokens go up to 2^63.
local fence, offered = KEYS[1], ARGV[1]
if not string.match(offered, '^%d+$') or (string.match(offered, '^0') and offered ~= '0') or #offered > 19 then
  return redis.error_reply('ERR ' .. offered .. ' is no token: write with the token of the leadership')
end
local seen = redis.call('GET', fence)
if seen and (#offered < #seen or (#offered == #seen and offered < seen)) then
  return redis.error_reply('STALE token ' .. offered .. ' for ' .. fence .. ': ' .. seen .. ' has been seen, so somebody else leads since')
end
if seen ~= offered then
  redis.call('SET', fence, offered)
end
