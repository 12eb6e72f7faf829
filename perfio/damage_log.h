// Collects the damage that is found while a recording is read.
#pragma once

#include <string>

#include "perfio/perf_reader.h"

namespace ptd::perfio {

inline constexpr size_t kMaxDamageMessages = 32;

/// Adds one sentence; beyond kMaxDamageMessages it only counts.
inline void add_damage_message(ReadDamage& damage, std::string sentence) {
  if (damage.messages.size() < kMaxDamageMessages) damage.messages.push_back(std::move(sentence));
}
/// Logs a record of plausible size that cannot be read and is skipped.
inline void add_bad_record(ReadDamage& damage, uint64_t offset_bytes, const std::string& why) {
  ++damage.bad_records;
  add_damage_message(damage, why + " at offset " + std::to_string(offset_bytes) + " (skipped)");
}
/// Logs that the rest cannot be read.
inline void add_cut(ReadDamage& damage, uint64_t offset_bytes, const std::string& why) {
  if (!damage.cut) damage.cut_offset_bytes = offset_bytes;
  damage.cut = true;
  add_damage_message(damage, why + " at offset " + std::to_string(offset_bytes));
}

}  // namespace ptd::perfio
