// Findings as text and JSON, for check, stat and demo.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "image/finding.h"

namespace ptd::cli {

/// The enumerator's name.
[[nodiscard]] std::string_view name(FindingKind kind);
/// "17.865267613" or "17.865..17.866"; "any time" if unbounded.
[[nodiscard]] std::string time_text(Interval time);
/// "0f 1f 44 00 00"
[[nodiscard]] std::string hex_text(Bytes bytes);
/// One line for people, without newline.
[[nodiscard]] std::string finding_text(const Finding& finding);
[[nodiscard]] nlohmann::json finding_json(const Finding& finding);

}  // namespace ptd::cli
