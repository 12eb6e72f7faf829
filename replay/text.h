// Text for people: numbers, times and names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ptdecode/types.h"

namespace ptd::replay {

/// Lower-case hex with 0x.
[[nodiscard]] std::string hex(uint64_t value);
[[nodiscard]] inline std::string hex(Ip ip) { return hex(ip.value); }
/// Seconds with nine decimals: "24.341712345".
[[nodiscard]] std::string seconds(TimeNs time);
/// The text without characters that a terminal would obey.
[[nodiscard]] std::string plain(std::string_view text);
/// The text within an attribute or an element of XML 1.0.
[[nodiscard]] std::string xml(std::string_view text);

}  // namespace ptd::replay
