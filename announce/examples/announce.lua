-- LuaJIT 2.1 announces its traces, from Lua: jit.attach() and the FFI, with an unchanged LuaJIT (x86-64).
-- require("announce")("libptd-announce.so.1")
local ffi = require("ffi")
local util = require("jit.util")

ffi.cdef [[
struct ptd_announcement {
  uint32_t runtime; uint8_t kind, phase; uint16_t flags;
  uint64_t address, old_address, size;
  const void* code; const char* name; const char* file; const void* lines; uint32_t line_count;
};
struct ptd_head { char magic[8]; uint32_t version, header_bytes, word, generation; };
extern struct ptd_head ptd_announce_page;
uint32_t ptd_announce_register(const char* name, void* relist, void* user);
void ptd_announce_send(const struct ptd_announcement* what);
]]

local LOAD, UNLOAD, RELIST, BEGIN, END, RELISTED = 1, 3, 5, 1, 2, 1
local STUBS_OF_A_GROUP, GROUP_BYTES = 32, 160  -- lj_asm_x86.h: asm_exitstub_gen()

return function(library)
  local lib = ffi.load(library)
  local runtime = lib.ptd_announce_register("LuaJIT", nil, nil)
  local what = ffi.new("struct ptd_announcement")
  local live, groups, seen = {}, {}, lib.ptd_announce_page.generation

  local function send(kind, phase, flags, address, code, name)
    ffi.fill(what, ffi.sizeof(what))
    what.runtime, what.kind, what.phase, what.flags = runtime, kind, phase, flags
    what.address, what.size, what.name = address, code and #code or 0, name
    if kind == LOAD then what.code = ffi.cast("const void*", code) end
    lib.ptd_announce_send(what)
  end

  local function machine_code(trace)
    local code, address = util.tracemc(trace)
    return code, address
  end

  local function announce(trace, flags)
    local code, address = machine_code(trace)
    if not code then return end
    live[trace] = { address = address, code = code }
    send(LOAD, END, flags, address, code, "TRACE_" .. trace)
  end

  -- Code that traces leave through, of 32 exits each; it is never freed.
  local function announce_stubs(exits)
    for group = 0, math.floor((exits - 1) / STUBS_OF_A_GROUP) do
      local ok, address = pcall(util.traceexitstub, group * STUBS_OF_A_GROUP)
      if ok and address and groups[group] ~= address then
        groups[group] = address
        send(LOAD, END, 0, address, ffi.string(ffi.cast("const char*", address), GROUP_BYTES), "exit_stubs_" .. group)
      end
    end
  end

  local function relist()
    seen = lib.ptd_announce_page.generation
    send(RELIST, BEGIN, 0, 0)
    for trace in pairs(live) do announce(trace, RELISTED) end
    groups = {}
    send(RELIST, END, 0, 0)
  end

  local function on_trace(event, trace, _, _, parent)
    if event == "flush" then
      for _, code in pairs(live) do send(UNLOAD, END, 0, code.address, code.code) end
      live = {}
    elseif event == "stop" then
      if lib.ptd_announce_page.generation ~= seen then relist() end
      local info = util.traceinfo(trace)
      announce_stubs(info.nexit)
      announce(trace, 0)
      -- An exit of the parent was patched to jump here. The event comes before either runs.
      for other in pairs(live) do
        local code, address = machine_code(other)
        if code and (code ~= live[other].code or address ~= live[other].address) then announce(other, 0) end
      end
    end
  end

  -- Without a reader, nothing but the trace's code is kept.
  jit.off(on_trace, true)
  jit.attach(on_trace, "trace")
end
