// FunctionTable: assigns an id to each function of a recording.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptdecode/export.h"

namespace ptd {

using FunctionId = uint32_t;
inline constexpr FunctionId kNoFunction = 0xffffffffU;
inline constexpr std::string_view kInlinedMark = " (inlined)";  ///< suffix of FunctionInfo::name of a function that is inlined

/// A function. The same function of the same file has one id, in every process and at every address.
///
/// A function without a symbol is named by its file offset, "libc.so.6+0x1234": where .eh_frame says that it begins, else where a call
/// enters, or a jump from another module, out of a function whose extent is known, or that is all of a function. If direct jumps lead back
/// into the function, the code is a part of it. Code from no file belongs to its process: "[anon 4711]+0x7f0012340000", with the address.
/// Code without a symbol, of which neither is known, is "[unnamed code of libc.so.6]", one per module.
///
/// A function and its inlined copies are two functions: "f(int)" and "f(int) (inlined)". The module of the latter is that of the code that
/// contains the copy.
///
/// The resolver of an indirect function (STT_GNU_IFUNC "f") is another function than f: it has the name of another symbol at its address,
/// or "f@resolver".
///
/// Local functions of one name in one file are named with their source file, "a.c:f", or with their address in the file, "0x1234:f", if the
/// symbol table does not tell the source files apart. Kernel functions of one name in one module are named with their address. So are
/// functions that differ only in their mangled names: instances of a generic Rust function, the deleting destructor of a C++ class.
struct FunctionInfo {
  std::string name;    ///< demangled; if no symbol names it, as above
  std::string module;  ///< Symbolizer::module_of(), "[jit]", "[anon 4711]"; may be empty
};

/// The origin of a function's code, independent of the recording and of the address at which it was mapped.
struct FunctionCode {
  enum class State : uint8_t {
    unknown,
    one,
    several,  ///< several files, or several places of a file, have a function of this name
  };
  State state = State::unknown;
  std::string code;           ///< state one: build id of the file, or "fnv64:" and a hash of the mapping's bytes if there is none
  uint64_t offset_bytes = 0;  ///< of the function's first byte, in the file or in the mapping
};

/// Only grows; ids and references from info() are valid as long as the table. Thread-safe.
class PTD_API FunctionTable {
 public:
  /// `with_code`: callers of intern() also call add_code().
  explicit FunctionTable(bool with_code = false) : with_code_(with_code) {}
  FunctionId intern(std::string_view name, std::string_view module);
  /// Adds names by which filters find a function; its own name needs not be added.
  void add_names(FunctionId id, std::span<const std::string> names);
  /// Returns all names of a function, best first: info().name, then those of the other symbols at its address (Symbolizer::names_at()).
  /// Limitation: of a function that was met only in the part that a compiler split off (NAME.cold), the other names are not known.
  [[nodiscard]] std::vector<std::string> names(FunctionId id) const;
  [[nodiscard]] bool with_code() const { return with_code_; }
  /// Adds a place of the function's code.
  void add_code(FunctionId id, const FunctionCode& code);
  [[nodiscard]] FunctionCode code(FunctionId id) const;
  /// Returns the function. kNoFunction, and an id that intern() has not returned, return one without a name.
  [[nodiscard]] const FunctionInfo& info(FunctionId id) const;
  [[nodiscard]] size_t size() const;

 private:
  const bool with_code_;
  mutable std::mutex mutex_;
  std::deque<FunctionInfo> functions_;
  std::unordered_map<FunctionId, std::vector<std::string>> aliases_;
  std::unordered_map<FunctionId, FunctionCode> codes_;
  struct Hash {
    size_t operator()(const std::pair<std::string_view, std::string_view>& key) const {
      return std::hash<std::string_view>()(key.first) * 31 + std::hash<std::string_view>()(key.second);
    }
  };
  std::unordered_map<std::pair<std::string_view, std::string_view>, FunctionId, Hash> ids_;  ///< the keys view functions_
};

}  // namespace ptd
