// Findings as text and JSON: see finding_text.h.
#include "cli/report/finding_text.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "cli/text/clean_text.h"

namespace ptd::cli {

namespace {
constexpr std::array<std::string_view, 14> kNames = {
    "poke_old_bytes_mismatch", "poke_healed",       "poke_lost_by_copy", "base_copy_redated",
    "base_copy_unexplained",   "build_id_mismatch", "file_missing",      "file_changed",
    "section_overlap",         "bpf_bytes_missing", "records_lost",      "bad_record",
    "clock_contradicts",       "trace_lost",
};
constexpr size_t kShownBytes = 24;

std::string sentence(const Finding& finding, TextRecords records) {
  if (disagrees(finding, records)) return finding.what;
  return "the copies of the text differ here: it changed between them, which kernels of arm64 do not record";
}

std::string seconds(TimeNs time) { return fmt::format("{}.{:09}", time.value / 1'000'000'000, time.value % 1'000'000'000); }
}  // namespace

TextRecords text_records(const Recording& recording) { return recording.arm_config(0) != nullptr ? TextRecords::none : TextRecords::pokes; }

std::string_view name(FindingKind kind, TextRecords records) {
  if (records == TextRecords::none && kind == FindingKind::poke_lost_by_copy) return "copies_differ";
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string time_text(Interval time) {
  if (time.first == kTimeMin && time.last == kTimeMax) return "any time";
  if (time.empty()) return "never";
  if (time.first == time.last) return seconds(time.first);
  return (time.first == kTimeMin ? std::string() : seconds(time.first)) + ".." +
         (time.last == kTimeMax ? std::string() : seconds(time.last));
}

std::string hex_text(Bytes bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size() && i < kShownBytes; ++i) {
    text += fmt::format("{}{:02x}", i == 0 ? "" : " ", static_cast<unsigned>(bytes[i]));
  }
  if (bytes.size() > kShownBytes) text += fmt::format(" ... ({} bytes)", bytes.size());
  return text;
}

bool disagrees(const Finding& finding, TextRecords records) {
  return records == TextRecords::pokes || finding.kind != FindingKind::poke_lost_by_copy;
}

std::string finding_text(const Finding& finding, TextRecords records) {
  std::string text = fmt::format("{}: {}", name(finding.kind, records), shown(sentence(finding, records)));
  if (finding.ip.value != 0) text += fmt::format(" [at {:#x}]", finding.ip.value);
  if (finding.time != Interval{}) text += fmt::format(" [time {}]", time_text(finding.time));
  if (!finding.expected.empty()) text += fmt::format("\n    expected: {}", hex_text(finding.expected));
  if (!finding.found.empty()) text += fmt::format("\n    found:    {}", hex_text(finding.found));
  return text;
}

nlohmann::json finding_json(const Finding& finding, TextRecords records) {
  nlohmann::json json = {{"kind", name(finding.kind, records)}, {"what", sentence(finding, records)}};
  if (finding.ip.value != 0) json["ip"] = fmt::format("{:#x}", finding.ip.value);
  if (finding.space != kKernelSpace) json["space"] = finding.space.value;
  if (finding.time != Interval{}) json["time_ns"] = {finding.time.first.value, finding.time.last.value};
  if (!finding.expected.empty()) json["expected"] = hex_text(finding.expected);
  if (!finding.found.empty()) json["found"] = hex_text(finding.found);
  return json;
}

}  // namespace ptd::cli
