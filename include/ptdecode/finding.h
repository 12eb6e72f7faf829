// Finding: a named contradiction between the sources of the image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

enum class FindingKind : uint8_t {
  poke_old_bytes_mismatch,  ///< a poke's old bytes differ from the timeline: a record was lost, or text was written without a record
  poke_healed,              ///< the version that those old bytes prove was inserted
  poke_lost_by_copy,        ///< a later copy of the text proves that a record was lost
  base_copy_redated,        ///< the base copy contained bytes of another time at this address
  base_copy_unexplained,    ///< the base copy contained bytes that no record explains
  build_id_mismatch,        ///< a file's build id is not the recorded one: file refused
  file_missing,             ///< a mapped file was not found
  file_changed,             ///< size or content shows that this is not the mapped file
  section_overlap,          ///< two sources give different bytes for the same address and time
  bpf_bytes_missing,        ///< a BPF ksymbol without bytes
  records_lost,             ///< PERF_RECORD_LOST: the image is suspect during `time`
  bad_record,               ///< a sideband record that contradicts itself
  clock_contradicts,        ///< TSC packets that contradict the crystal clock or the order of the trace
  trace_lost,               ///< trace is missing: the ring was full, or the file lacks bytes that AUX records name
};

/// One contradiction. `expected` has the bytes of the record, `found` those of the timeline.
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
