// FunctionTable: one number for each function of a recording; FunctionFinder: which function an address belongs to.
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

/// A function as people know it. The same function of the same file is one, in whatever process and at whatever address.
///
/// Code that no symbol names has a function for each place that a call enters, or a jump from another module: "libc.so.6+0x1234", with the
/// offset in the file. Code in no file is a process's own: "[anon 4711]+0x7f0012340000", with the address. Where flow was met inside of
/// such code, its start is not known: "[unnamed code of libc.so.6]", one for each module.
struct FunctionInfo {
  std::string name;    ///< demangled; if no symbol names it, as above
  std::string module;  ///< short file name, "[jit]", "[anon 4711]"; may be empty
};

/// Grows only. Any thread may call. Ids and references from info() are valid as long as the table.
class PTD_API FunctionTable {
 public:
  FunctionId intern(std::string_view name, std::string_view module);
  /// Of kNoFunction, and of an id that intern() has not returned, one without a name.
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
  uint32_t module = 0;                 ///< a number for the module; it means something to this finder only
  bool entry = false;                  ///< the address is the function's first
  bool named = false;                  ///< a symbol names it; else `id` stands for all unnamed code of the module
  bool in_file = false;                ///< likewise, and the module is a file
  Interval valid{kTimeMax, kTimeMin};  ///< moments at which the same question surely has this answer
};

/// Remembers answers. Not thread-safe: use one per thread. The symbolizer and the table must outlive it. What a compiler split off a
/// function (NAME.cold) counts as the function.
class PTD_API FunctionFinder {
 public:
  FunctionFinder(const Symbolizer& symbolizer, Timeline timeline, FunctionTable& table)
      : symbolizer_(symbolizer), timeline_(std::move(timeline)), table_(table), entries_(kEntries) {}
  FoundFunction find(SpaceId space, Ip ip, TimeNs when);
  /// Whose code is met from here on; no two processes share a space.
  void set_process(int32_t pid) { pid_ = pid; }
  /// The function that begins at `ip`, in code that no symbol names.
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
