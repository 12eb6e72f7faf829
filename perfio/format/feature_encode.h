// Encodes features as feature sections; the inverse of features.h.
#pragma once

#include <map>
#include <vector>

#include "perfio/format/features.h"

namespace ptd::perfio {

using FeatureSections = std::map<uint32_t, std::vector<std::byte>>;  ///< by feature bit

/// Returns sections for every field of `features` that is set, and EVENT_DESC if an attr has a name. Ignores Features::raw and
/// auxtrace_index.
[[nodiscard]] FeatureSections encode_features(const Features& features, const std::vector<EventAttr>& attrs, size_t attr_bytes);
[[nodiscard]] std::vector<std::byte> encode_auxtrace_index(const std::vector<AuxtraceIndexEntry>& index);

}  // namespace ptd::perfio
