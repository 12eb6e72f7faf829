// The cpuid text of perf.data headers. Private to recording.
#pragma once

#include <string>

#include "ptdecode/pt/config.h"

namespace ptd {

/// Reads "GenuineIntel,6,78,3" (decimal; feature CPUID) and "GenuineIntel-6-4E-3" (hexadecimal model; perf's map files). False, and `cpu`
/// is left alone, for other vendors and forms.
bool parse_cpuid(const std::string& text, pt::CpuId& cpu);

}  // namespace ptd
