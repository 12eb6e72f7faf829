// What one run of `ptdecode script` shows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/fields.h"
#include "cli/options/itrace.h"
#include "ptdecode/types.h"

namespace ptd::cli {

class UnprovenFiles;

struct ScriptOptions {
  ItraceOptions itrace = default_itrace();
  Fields fields = default_fields();
  Fields tree_fields = default_fields();  ///< of lines with Field::callindent; they differ in what --call-trace leaves out
  bool nanoseconds = false;               ///< nine digits of a second instead of six
  bool att_syntax = true;
  bool json = false;                      ///< an object a line
  std::optional<int64_t> wall_offset_ns;  ///< times are listed as time of day: time + this since the epoch
  std::vector<int32_t> cpus, pids, tids;  ///< empty: all
  std::vector<std::string> comms, symbols;
  std::vector<Interval> times;              ///< any of these; empty: all
  std::shared_ptr<UnprovenFiles> unproven;  ///< gets files of modules whose lines are listed unproven; may be null

  /// One address a line and nothing else: the fastest listing.
  [[nodiscard]] bool addresses_only() const {
    Fields ip;
    ip.add(Field::ip);
    return fields == ip && itrace.every_instruction() && !itrace.any_branch() && symbols.empty();
  }
};

/// Whether a filter lets a value pass: an empty one lets all.
template <class List, class Value>
[[nodiscard]] bool among(const List& list, const Value& value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace ptd::cli
