// FunctionTable: one number for each function of a recording; FunctionFinder: which function an address belongs to.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "image/symbols/symbolizer.h"

namespace ptd {

using FunctionId = uint32_t;
inline constexpr FunctionId kNoFunction = 0xffffffffU;

/// A function as people know it. The same function of the same file is one, in whatever process and at whatever address.
struct FunctionInfo {
  std::string name;    ///< demangled; "0x401230" if no symbol names it; "" for flow that began in unnamed code
  std::string module;  ///< short file name, may be empty
};

/// Grows only; ids and what info() returned stay. Any thread may call.
class FunctionTable {
 public:
  FunctionId intern(std::string_view name, std::string_view module);
  [[nodiscard]] const FunctionInfo& info(FunctionId id) const;
  [[nodiscard]] size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::deque<FunctionInfo> functions_;
  std::map<std::pair<std::string, std::string>, FunctionId> ids_;
};

/// What stands at an address.
struct FoundFunction {
  FunctionId id = kNoFunction;
  bool entry = false;                  ///< the address is the function's first
  bool named = false;                  ///< a symbol names it; else `id` stands for all unnamed code of the module
  Interval valid{kTimeMax, kTimeMin};  ///< moments at which the same question surely has this answer
};

/// Remembers answers; one per thread. What a compiler split off a function (NAME.cold) counts as the function.
class FunctionFinder {
 public:
  FunctionFinder(const Symbolizer& symbolizer, FunctionTable& table) : symbolizer_(symbolizer), table_(table), entries_(kEntries) {}
  FoundFunction find(SpaceId space, Ip ip, TimeNs when);
  /// The function that a call to unnamed code enters: named by its address.
  FunctionId unnamed_entry(SpaceId space, Ip ip, TimeNs when);

 private:
  static constexpr size_t kEntries = 1U << 14;
  struct Entry {
    Ip ip;
    SpaceId space = kNoSpace;
    FoundFunction found;
  };
  FoundFunction look_up(SpaceId space, Ip ip, TimeNs when);
  const Symbolizer& symbolizer_;
  FunctionTable& table_;
  std::vector<Entry> entries_;
};

}  // namespace ptd
