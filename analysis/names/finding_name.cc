// Names of findings: see finding_name.h.
#include "analysis/names/finding_name.h"

#include <array>

namespace ptd {

namespace {

constexpr std::array<std::string_view, 14> kNames = {
    "poke_old_bytes_mismatch", "poke_healed",       "poke_lost_by_copy", "base_copy_redated",
    "base_copy_unexplained",   "build_id_mismatch", "file_missing",      "file_changed",
    "section_overlap",         "bpf_bytes_missing", "records_lost",      "bad_record",
    "clock_contradicts",       "trace_lost",
};

}  // namespace

TextRecords text_records(const Recording& recording) { return recording.arm_config(0) != nullptr ? TextRecords::none : TextRecords::pokes; }

std::string_view name(FindingKind kind, TextRecords records) {
  if (records == TextRecords::none && kind == FindingKind::poke_lost_by_copy) return "copies_differ";
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

}  // namespace ptd
