// Feature sections of the file form and HEADER_FEATURE, HEADER_BUILD_ID records of the pipe form.
#pragma once

#include <vector>

#include "perfio/perf_reader.h"

namespace ptd::perfio {

/// Reads one section into `features`; names and ids of EVENT_DESC go into `attrs`. Unknown bits are ignored.
/// False: the section contradicts itself; what was read before that stays.
[[nodiscard]] bool parse_feature(uint32_t bit, Bytes section, Features& features, std::vector<EventAttr>& attrs);

/// One build_id_event, with its record header.
[[nodiscard]] bool parse_build_id_event(Bytes record, BuildIdEntry& out);

}  // namespace ptd::perfio
