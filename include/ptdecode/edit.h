// Edit: one dated change of code bytes, the single form that every source of changes is folded into.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

enum class EditOrigin : uint8_t {
  text_poke,   ///< PERF_RECORD_TEXT_POKE
  bpf,         ///< BPF program bytes from bpf_prog_info, dated by its KSYMBOL
  jitdump,     ///< JIT_CODE_LOAD / JIT_CODE_MOVE
  dated_copy,  ///< difference between two dated copies of memory
  healed,      ///< inserted by the builder: proven by the old bytes of a later record
  announced,   ///< an announcing library or user-space static key
};

/// `new_bytes` replaced `old_bytes` at `ip` at some moment of `time`.
/// Before time.first the old bytes were live (or an INT3 in the poke window), after time.last the new ones.
/// old_bytes empty: code came into being. new_bytes empty: code went away.
struct Edit {
  SpaceId space = kKernelSpace;
  Ip ip;
  std::vector<std::byte> old_bytes;
  std::vector<std::byte> new_bytes;
  Interval time;
  EditOrigin origin = EditOrigin::text_poke;
  int32_t cpu = -1;                  ///< the poking cpu, -1 if unknown
  uint64_t record_offset_bytes = 0;  ///< where the record stands in its file, for findings
};

}  // namespace ptd
