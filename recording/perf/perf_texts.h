// Texts of perf: address filters as it passes them to the kernel, and in headers the processor and the build ids of paths. Private to
// recording.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perfio/format/features.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/pt/decoder.h"
#include "recording/image/image_build.h"

namespace ptd {

/// One "filter START/SIZE[@FILE]" term. START is an address, or with FILE an offset in it.
struct PerfFilter {
  uint64_t start = 0, size_bytes = 0;
  std::string file;  ///< "" for a kernel address
};

/// Ignores terms of other kinds (start, stop, tracestop), which do not limit the traced flow. Malformed text ends parsing.
[[nodiscard]] std::vector<PerfFilter> parse_perf_filters(const std::string& text);

/// Address ranges of the terms: files through the mappings that hold their offsets. Empty if any term cannot be placed: a partial filter
/// would be wrong.
[[nodiscard]] std::vector<pt::IpRange> filter_ranges(const std::vector<PerfFilter>& filters, const UserMappings& mappings);

/// Reads "GenuineIntel,6,78,3" (decimal; feature CPUID) and "GenuineIntel-6-4E-3" (hexadecimal model; perf's map files). False, and `cpu`
/// is left alone, for other vendors and forms.
[[nodiscard]] bool parse_cpuid(const std::string& text, pt::CpuId& cpu);

/// The roots of a process's own file system; null if it has none.
using RootsOf = std::function<const std::vector<std::string>*(int32_t pid)>;

/// Gives each mapping without a build id the one that the header lists for its path. perf reads these from the files that are at the paths
/// when the recording ends: a mapping of another file does not get it where this machine's file shows that. Where the records contradict
/// it, the mapping is marked assumed, and a finding says why.
void use_listed_build_ids(const std::vector<perfio::BuildIdEntry>& entries, UserMappings& mappings, const RootsOf& roots_of,
                          ImageBuild& image);

}  // namespace ptd
