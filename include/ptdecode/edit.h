// Edit: one dated change of code bytes. Every source of changes is converted to this form.
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
  announced,   ///< announced by a library or a user-space static key
};

/// `new_bytes` replaced `old_bytes` at `ip` at some time within `time`.
/// Before time.first the old bytes were live (or an INT3 in the poke window), after time.last the new ones.
/// Empty old_bytes: code was created. Empty new_bytes: code was removed.
struct Edit {
  SpaceId space = kKernelSpace;
  Ip ip;
  std::vector<std::byte> old_bytes;
  std::vector<std::byte> new_bytes;
  Interval time;
  EditOrigin origin = EditOrigin::text_poke;
  int32_t cpu = -1;                  ///< the poking cpu, -1 if unknown
  uint64_t record_offset_bytes = 0;  ///< offset of the record in its file, for findings
};

}  // namespace ptd
