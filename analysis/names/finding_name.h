// Names of findings, for text, JSON and tables.
#pragma once

#include <cstdint>
#include <string_view>

#include "ptdecode/finding.h"
#include "ptdecode/recording.h"

namespace ptd {

/// Whether the kernel records that it changes its text. That of arm64 does not: copies that differ there prove no loss.
enum class TextRecords : uint8_t { pokes, none };
[[nodiscard]] TextRecords text_records(const Recording& recording);

/// The enumerator's name; "copies_differ" for copies of a text whose changes are not recorded. Static.
[[nodiscard]] std::string_view name(FindingKind kind, TextRecords records = TextRecords::pokes);

}  // namespace ptd
