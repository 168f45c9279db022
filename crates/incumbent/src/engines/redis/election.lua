-- One election on Redis: every call of the engine is one run of this script, so nothing comes between reading and writing.
--
-- KEYS  desk        hash: incarnation, term, arrivals, seats, kept, kept_until
--       held        hash: token -> who holds a seat (JSON, all of it texts: cjson rounds great numbers)
--       line        sorted set: candidates by arrival
--       alive       sorted set: the same by the instant until which they are waited for
--       papers      hash: candidate -> name and priority (JSON)
--       past        list: leaderships that have ended, newest first (JSON)
--       notes       hash: token -> what was noted of that leadership
-- ARGV  what to do, the prefix of channels, and what that takes
-- Instants are microseconds of the server's clock.
local desk, held, line, alive, papers, past, notes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local action, channels = ARGV[1], ARGV[2]
local PAST_MAX, INCARNATION_MAX, TERM_MAX = 32, 32767, 2 ^ 48 - 1

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function whole(number)
  return string.format('%.0f', number)
end

local function wall_ms(instant)
  return whole(math.floor(instant / 1000))
end

-- Takes the next term and gives the seat to the bidder; nothing if the tokens are used up. What it says of itself comes as JSON, but for the last brace.
local function seat_bidder(incarnation, ttl_us, seen, papers_open)
  local term = redis.call('HINCRBY', desk, 'term', 1)
  if seen ~= '' then
    local seen_incarnation, seen_term = string.match(seen, '^(%d+)%.(%d+)$')
    seen_incarnation, seen_term = tonumber(seen_incarnation), tonumber(seen_term)
    -- Whoever has seen a greater token knows that Redis has lost its memory.
    if seen_incarnation > incarnation or (seen_incarnation == incarnation and seen_term >= term) then
      incarnation = seen_incarnation + 1
      redis.call('HSET', desk, 'incarnation', incarnation)
    end
  end
  if incarnation > INCARNATION_MAX or term > TERM_MAX then
    return nil
  end
  local token = incarnation .. '.' .. whole(term)
  local since, lasts = wall_ms(now), whole(now + tonumber(ttl_us))
  redis.call('HSET', held, token, papers_open .. ',"since":"' .. since .. '","ttl":"' .. ttl_us .. '","until":"' .. lasts .. '","wish":""}')
  redis.call('PUBLISH', channels .. 'changes', '')
  return token
end

-- More than are shown may be kept for a while: trimming each time would be another call.
local function remember(token, seat, reason)
  -- Whoever is missed late has not led until then.
  local ends = wall_ms(math.min(now, tonumber(seat['until'])))
  local ended = { identity = seat.identity, token = token, since = seat.since, ['until'] = ends, reason = reason }
  if redis.call('LPUSH', past, cjson.encode(ended)) >= PAST_MAX * 2 then
    redis.call('LTRIM', past, 0, PAST_MAX - 1)
  end
end

-- What most runs come to, by itself: what is called and made for the rest of this script costs more than that.
if action == 'claim' then
  -- Nobody seated, and nobody in line but the bidder. If there is one of the two and a first in line, it is the line.
  local there, first, second = redis.call('EXISTS', held, line), nil, nil
  if there == 1 then
    first, second = unpack(redis.call('ZRANGE', line, 0, 1))
  end
  if there == 0 or (there == 1 and first == ARGV[3] and not second) then
    local told = redis.call('HMGET', desk, 'incarnation', 'seats', 'kept')
    local ttl_us, seats, seen, papers_open = ARGV[5], ARGV[7], ARGV[8], ARGV[9]
    if not told[3] and seats == (told[2] or '1') then
      local token = seat_bidder(tonumber(told[1] or '0'), ttl_us, seen, papers_open)
      if token and first then
        redis.call('DEL', line, alive, papers)
      end
      return token and { 'granted', token } or { 'spent' }
    end
  end
elseif action == 'release' and ARGV[5] == '' then
  -- The only one that is seated, in time, for nobody in particular, and the first in line is there.
  local all = redis.call('HGETALL', held)
  local token, seat = all[1], #all == 2 and cjson.decode(all[2])
  if token == ARGV[3] and seat and tonumber(seat['until']) > now then
    local first = redis.call('ZRANGE', line, 0, 0)[1]
    if not first or tonumber(redis.call('ZSCORE', alive, first)) > now then
      redis.call('DEL', held)
      remember(token, seat, ARGV[4])
      redis.call('PUBLISH', channels .. 'changes', '')
      if first then
        redis.call('PUBLISH', channels .. 'for:' .. first, '')
      end
      return { 'done' }
    end
  end
end

-- Calls are what a run costs, so the desk, the seats and the first in line are read once; whoever changes one of them changes it here too.
local told = redis.call('HMGET', desk, 'incarnation', 'seats', 'kept', 'kept_until')
local incarnation, seats_max, kept, kept_until = tonumber(told[1] or '0'), tonumber(told[2] or '1'), told[3], told[4]
local seated, seats_taken = {}, 0
do
  local all = redis.call('HGETALL', held)
  for at = 1, #all, 2 do
    seated[all[at]] = cjson.decode(all[at + 1])
    seats_taken = seats_taken + 1
  end
end
local first, second = unpack(redis.call('ZRANGE', line, 0, 1))

local function changed()
  redis.call('PUBLISH', channels .. 'changes', '')
end

local function tell(identity)
  redis.call('PUBLISH', channels .. 'for:' .. identity, '')
end

local function put_seat(token, seat)
  redis.call('HSET', held, token, cjson.encode(seat))
end

local function vacate(token, reason)
  redis.call('HDEL', held, token)
  remember(token, seated[token], reason)
  seated[token], seats_taken = nil, seats_taken - 1
end

local function leave_line(identity)
  if first == identity and not second then
    redis.call('DEL', line, alive, papers)
    first = nil
    return
  end
  redis.call('ZREM', line, identity)
  redis.call('ZREM', alive, identity)
  redis.call('HDEL', papers, identity)
  if first == identity or second == identity then
    first, second = unpack(redis.call('ZRANGE', line, 0, 1))
  end
end

-- The one the seat is kept for, or the first in line.
local function next_in_line()
  if not kept then
    return first
  end
  for _, identity in ipairs(redis.call('ZRANGE', line, 0, -1)) do
    if identity == kept or cjson.decode(redis.call('HGET', papers, identity)).name == kept then
      return identity
    end
  end
end

-- One is told that a seat is free, not all.
local function wake_next()
  local identity = seats_taken < seats_max and first and next_in_line()
  if identity then
    tell(identity)
  end
end

-- Throws out all whose time is up. What follows sees only who is there.
local function expire()
  local gone = {}
  for token, seat in pairs(seated) do
    if tonumber(seat['until']) <= now then
      table.insert(gone, token)
    end
  end
  for _, token in ipairs(gone) do
    vacate(token, 'lease expired')
  end
  -- Who is alone in line and claims is there.
  if first and not (action == 'claim' and first == ARGV[3] and not second) then
    for _, identity in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', whole(now))) do
      leave_line(identity)
    end
  end
  if kept_until and tonumber(kept_until) <= now then
    redis.call('HDEL', desk, 'kept', 'kept_until')
    kept = false
  end
  if #gone > 0 then
    changed()
    wake_next()
  end
end

local function term_of(token)
  local incarnation, term = string.match(token, '^(%d+)%.(%d+)$')
  return tonumber(incarnation), tonumber(term)
end

local function is_before(one, other)
  local incarnation, term = term_of(one)
  local other_incarnation, other_term = term_of(other)
  return incarnation < other_incarnation or (incarnation == other_incarnation and term < other_term)
end

-- The oldest leadership, and the instant at which the first of them ends.
local function occupied()
  local oldest, ends
  for token, seat in pairs(seated) do
    local until_ = tonumber(seat['until'])
    if not ends or until_ < ends then
      ends = until_
    end
    if not oldest or is_before(token, oldest) then
      oldest = token
    end
  end
  if oldest then
    return { 'occupied', whole(ends - now), oldest, cjson.encode(seated[oldest]) }
  end
  return { 'occupied' }
end

local calls = {}

function calls.claim(identity, name, ttl_us, priority, seats, seen, papers_open)
  local lasts = now + tonumber(ttl_us)
  for token, seat in pairs(seated) do
    if seat.identity == identity then
      seat['until'] = whole(lasts)
      put_seat(token, seat)
      return { 'granted', token }
    end
  end
  if tonumber(seats) ~= seats_max then
    redis.call('HSET', desk, 'seats', seats)
    seats_max = tonumber(seats)
  end
  local is_next
  if kept then
    is_next = kept == identity or kept == name
  else
    is_next = not first or first == identity
  end
  if not is_next or seats_taken >= seats_max then
    if not redis.call('ZSCORE', line, identity) then
      redis.call('ZADD', line, redis.call('HINCRBY', desk, 'arrivals', 1), identity)
    end
    redis.call('ZADD', alive, whole(lasts), identity)
    redis.call('HSET', papers, identity, cjson.encode({ name = name, priority = priority }))
    return occupied()
  end
  local token = seat_bidder(incarnation, ttl_us, seen, papers_open)
  if not token then
    return { 'spent' }
  end
  -- Who found a free seat and nobody in line never stood there.
  if first then
    leave_line(identity)
  end
  if kept then
    redis.call('HDEL', desk, 'kept', 'kept_until')
    kept = false
  end
  seats_taken = seats_taken + 1
  wake_next()
  return { 'granted', token }
end

function calls.renew(identity, token, ttl_us)
  local seat = seated[token]
  if not seat or seat.identity ~= identity then
    return { 'gone' }
  end
  seat['until'] = whole(now + tonumber(ttl_us))
  seat.ttl = ttl_us
  put_seat(token, seat)
  return { 'kept', seat.wish }
end

function calls.release(token, reason, to)
  local seat = seated[token]
  if not seat then
    return { 'gone' }
  end
  if to ~= '' then
    redis.call('HSET', desk, 'kept', to, 'kept_until', whole(now + tonumber(seat.ttl)))
    kept = to
  end
  vacate(token, reason)
  changed()
  wake_next()
  return { 'done' }
end

function calls.withdraw(identity)
  leave_line(identity)
  -- It may have been told of a free seat already; somebody else must be.
  wake_next()
  return { 'done' }
end

function calls.proclaim(token, value)
  local seat = seated[token]
  if not seat then
    return { 'gone' }
  end
  seat.value = value
  put_seat(token, seat)
  changed()
  return { 'done' }
end

function calls.ask(token, wish)
  local seat = seated[token]
  if not seat then
    return { 'gone' }
  end
  seat.wish = wish
  put_seat(token, seat)
  tell(seat.identity)
  changed()
  return { 'done' }
end

function calls.raise(above)
  local wanted = term_of(above) + 1
  if wanted > INCARNATION_MAX then
    return { 'spent' }
  end
  if wanted > incarnation then
    redis.call('HSET', desk, 'incarnation', wanted)
  end
  return { 'done' }
end

function calls.annotate(token, text)
  redis.call('HSET', notes, token, text)
  local tokens = redis.call('HKEYS', notes)
  if #tokens > PAST_MAX then
    table.sort(tokens, is_before)
    redis.call('HDEL', notes, tokens[1])
  end
  changed()
  return { 'done' }
end

-- Is there anything that this one would have been told while it was not listening?
function calls.missed(identity)
  for _, seat in pairs(seated) do
    if seat.identity == identity then
      return { seat.wish ~= '' and 'yes' or 'no' }
    end
  end
  return { seats_taken < seats_max and next_in_line() == identity and 'yes' or 'no' }
end

function calls.look()
  local candidates = {}
  for _, identity in ipairs(redis.call('ZRANGE', line, 0, -1)) do
    table.insert(candidates, identity)
    table.insert(candidates, redis.call('HGET', papers, identity))
  end
  return { redis.call('HGETALL', held), candidates, redis.call('LRANGE', past, 0, PAST_MAX - 1), redis.call('HGETALL', notes) }
end

expire()
return calls[action](unpack(ARGV, 3))
