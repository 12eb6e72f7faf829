// Collects the damage that is found while a recording is read.
#pragma once

#include <algorithm>
#include <string>

#include "perfio/perf_reader.h"

namespace ptd::perfio {

inline constexpr size_t kMaxDamageMessages = 32;

/// Adds one sentence; beyond kMaxDamageMessages it only counts.
inline void add_damage_message(ReadDamage& damage, std::string sentence) {
  if (damage.messages.size() < kMaxDamageMessages) damage.messages.push_back(std::move(sentence));
}
/// Returns the words for a place in the file that is being read.
[[nodiscard]] inline std::string place_in(const ReadDamage& damage, uint64_t offset_bytes) {
  return " at offset " + std::to_string(offset_bytes) + (damage.files.empty() ? "" : " of " + damage.name_of(damage.file));
}
/// Logs a record of plausible size that cannot be read and is skipped.
inline void add_bad_record(ReadDamage& damage, uint64_t offset_bytes, const std::string& why) {
  ++damage.bad_records;
  add_damage_message(damage, why + place_in(damage, offset_bytes) + " (skipped)");
}
/// Logs that something is missing from `offset_bytes` on, and nothing is read from `read_to_bytes` on.
inline void add_cut(ReadDamage& damage, uint64_t offset_bytes, const std::string& why, uint64_t read_to_bytes) {
  const auto known = std::ranges::find(damage.cuts, damage.file, &ReadDamage::Cut::file);
  if (known == damage.cuts.end()) {
    damage.cuts.push_back({damage.file, read_to_bytes});
  } else if (damage.in_header && read_to_bytes < known->offset_bytes) {
    known->offset_bytes = read_to_bytes;
  }
  add_damage_message(damage, why + place_in(damage, offset_bytes));
}
/// Logs that the rest cannot be read.
inline void add_cut(ReadDamage& damage, uint64_t offset_bytes, const std::string& why) { add_cut(damage, offset_bytes, why, offset_bytes); }
/// Logs that the header is damaged at `offset_bytes`; all records of a file of `file_bytes` are read.
inline void add_header_cut(ReadDamage& damage, uint64_t file_bytes, uint64_t offset_bytes, const std::string& why) {
  add_cut(damage, offset_bytes, why, file_bytes);
  damage.in_header = true;
}

}  // namespace ptd::perfio
