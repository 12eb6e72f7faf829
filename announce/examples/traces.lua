-- A program whose loops LuaJIT compiles, patches with side traces, flushes and compiles again.
-- luajit traces.lua libptd-announce.so.1 [ROUNDS]
package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
require("announce")(arg[1])

local sum = 0
for round = 1, tonumber(arg[2] or 10) do
  local add = assert(loadstring("local n, k = ... local s = 0 for i = 1, n do if i % " .. (round + 2) ..
    " == 0 then s = s + k elseif i % 3 == 1 then s = s - i else s = s + 1 end end return s"))
  for k = 1, 5 do sum = (sum + add(200, k)) % 1000003 end
  if round % 3 == 0 then jit.flush() end
end
print(sum)
