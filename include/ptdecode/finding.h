// Finding: something in the image that disagrees with something else, by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

enum class FindingKind : uint8_t {
  poke_old_bytes_mismatch,  ///< a poke's old bytes are not what the timeline held: a record was lost or text was written unrecorded
  poke_healed,              ///< the version that those old bytes prove was inserted
  poke_lost_by_copy,        ///< a later copy of the text proves that a record was lost
  base_copy_redated,        ///< the base copy held bytes of another moment at this address
  base_copy_unexplained,    ///< the base copy held bytes that no record explains
  build_id_mismatch,        ///< a file's build id is not the recorded one: file refused
  file_missing,             ///< a mapped file is not to be found
  file_changed,             ///< size or content cannot be what was mapped
  section_overlap,          ///< two sources claim the same bytes at the same time and differ
  bpf_bytes_missing,        ///< a BPF ksymbol without bytes
  records_lost,             ///< PERF_RECORD_LOST: the image is suspect during `time`
  bad_record,               ///< a sideband record that contradicts itself
  clock_contradicts,        ///< TSC packets that contradict the crystal clock or the order of the trace
  trace_lost,               ///< trace is missing: the ring was full, or the file lacks bytes that AUX records name
};

/// One disagreement. `expected` is what the record says, `found` what the timeline held.
struct Finding {
  FindingKind kind = FindingKind::bad_record;
  SpaceId space = kKernelSpace;
  Ip ip;
  Interval time;
  std::vector<std::byte> expected;
  std::vector<std::byte> found;
  std::string what;  ///< one sentence for a person; names files, symbols, record offsets
};

}  // namespace ptd
