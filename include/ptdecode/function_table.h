// FunctionTable: assigns an id to each function of a recording. FunctionFinder: maps an address to its function.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/symbols.h"

namespace ptd {

using FunctionId = uint32_t;
inline constexpr FunctionId kNoFunction = 0xffffffffU;

/// A function. The same function of the same file has one id, in every process and at every address.
///
/// Code without a symbol has one function for each address that a call, or a jump from another module, enters: "libc.so.6+0x1234", with
/// the file offset. Code from no file belongs to its process: "[anon 4711]+0x7f0012340000", with the address. Code without a symbol whose
/// entry was not seen is "[unnamed code of libc.so.6]", one per module.
struct FunctionInfo {
  std::string name;    ///< demangled; if no symbol names it, as above
  std::string module;  ///< short file name, "[jit]", "[anon 4711]"; may be empty
};

/// Only grows; ids and references from info() are valid as long as the table. Thread-safe.
class PTD_API FunctionTable {
 public:
  FunctionId intern(std::string_view name, std::string_view module);
  /// Returns the function. kNoFunction, and an id that intern() has not returned, give one without a name.
  [[nodiscard]] const FunctionInfo& info(FunctionId id) const;
  [[nodiscard]] size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::deque<FunctionInfo> functions_;
  struct Hash {
    size_t operator()(const std::pair<std::string_view, std::string_view>& key) const {
      return std::hash<std::string_view>()(key.first) * 31 + std::hash<std::string_view>()(key.second);
    }
  };
  std::unordered_map<std::pair<std::string_view, std::string_view>, FunctionId, Hash> ids_;  ///< the keys view functions_
};

/// The function that an address belongs to.
struct FoundFunction {
  FunctionId id = kNoFunction;
  uint32_t module = 0;                 ///< a number for the module, valid only within this finder
  bool entry = false;                  ///< the address is the function's first one
  bool named = false;                  ///< a symbol names it; else `id` stands for all unnamed code of the module
  bool in_file = false;                ///< likewise, and the module is a file
  Interval valid{kTimeMax, kTimeMin};  ///< times at which the same lookup has this result
};

/// Caches lookups. Not thread-safe: use one per thread. The symbolizer and the table must outlive it. A part that the compiler split off a
/// function (NAME.cold) belongs to the function.
class PTD_API FunctionFinder {
 public:
  FunctionFinder(const Symbolizer& symbolizer, Timeline timeline, FunctionTable& table)
      : symbolizer_(symbolizer), timeline_(std::move(timeline)), table_(table), entries_(kEntries) {}
  FoundFunction find(SpaceId space, Ip ip, TimeNs when);
  /// Sets the process of the following lookups; no two processes share a space.
  void set_process(int32_t pid) { pid_ = pid; }
  /// Returns the function that begins at `ip`, in code without a symbol.
  FunctionId unnamed_entry(SpaceId space, Ip ip, TimeNs when);

 private:
  static constexpr size_t kEntries = 1U << 12;
  struct Entry {
    Ip ip;
    SpaceId space = kNoSpace;
    int32_t pid = -1;  ///< that the names of unnamed code are for
    FoundFunction found;
    FunctionId unnamed_entry = kNoFunction;  ///< the function that begins here; kNoFunction: it was not asked for
  };
  Entry& entry_at(SpaceId space, Ip ip, TimeNs when);
  FoundFunction look_up(SpaceId space, Ip ip, TimeNs when);
  struct Place {
    std::string module;  ///< short file name, "[kernel.kallsyms]", "[anon 4711]"
    bool in_file = false;
    uint64_t offset_bytes = 0;  ///< in the file, else the address
    Interval valid;             ///< moments at which this surely is so
  };
  [[nodiscard]] Place place_of(SpaceId space, Ip ip, TimeNs when) const;
  uint32_t module_number(std::string_view module);
  const Symbolizer& symbolizer_;
  const Timeline timeline_;
  FunctionTable& table_;
  std::vector<Entry> entries_;
  std::map<std::string, uint32_t, std::less<>> modules_;
  int32_t pid_ = -1;
};

}  // namespace ptd
