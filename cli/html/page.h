// The report: one HTML file with everything in it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ptd::cli {

inline constexpr size_t kMostPageBytes = 5'000'000;

/// Makes the strings of `json` safe to show: shown(), and at most `most_bytes` long ("..." follows what is cut).
void make_shown(nlohmann::json& json, size_t most_bytes);
/// Returns `json` as it may be inside a <script> element: ASCII alone, without '<', '>' and '&'.
[[nodiscard]] std::string script_json(const nlohmann::json& json);
/// Returns the page with this title and data. It fetches nothing.
[[nodiscard]] std::string page_text(std::string_view title, const nlohmann::json& data);

}  // namespace ptd::cli
