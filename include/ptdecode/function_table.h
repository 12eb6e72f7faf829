// FunctionTable: one number for each function of a recording.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptdecode/export.h"

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

/// Grows only; ids and what info() returned stay. Any thread may call.
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

}  // namespace ptd
