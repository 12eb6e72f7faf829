// Names of functions that several functions have: "a.c:f", of parts that a compiler split off: "f.cold", and of resolvers: "f@resolver".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ptd {

/// Follows the name of an indirect function (STT_GNU_IFUNC) in that of the code at its address: this is not the function, but its resolver,
/// which returns the address of the implementation that the dynamic linker binds calls to ([GABI] "Symbol Table"; gcc, attribute ifunc).
inline constexpr std::string_view kResolverMark = "@resolver";
/// Follows the name of a function in that of its entry in a procedure linkage table.
inline constexpr std::string_view kPltMark = "@plt";

/// Returns the name without ".cold", ".cold.7" or, if it is demangled, " [clone .cold]": gcc and clang move code that seldom runs out of
/// line (gcc, "-freorder-blocks-and-partition"). Likewise without ".__part.3" and ".eh": clang splits functions into sections (clang,
/// "-fbasic-block-sections"; LLVM, MachineBasicBlock::getSymbol), and ".eh" of C++ has what catches exceptions.
[[nodiscard]] std::string_view whole_function(std::string_view name);

/// Whether a word can be the source file of a place: it has an extension, so that the colon after it is not one of "std::f", of
/// "-[Class method:]" or of a runtime's name ("JS:f").
[[nodiscard]] bool is_file_name(std::string_view text);
/// "0x1234"
[[nodiscard]] std::string hex_text(uint64_t value);
/// Returns the name of a function by `place`: "a.c:f".
[[nodiscard]] std::string placed_name(std::string_view place, std::string_view name);
/// Returns the name without a place that is an address, which differs from build to build.
[[nodiscard]] std::string_view without_address(std::string_view name);
/// Returns the length of what placed_name() put before the name; 0 if there is nothing.
[[nodiscard]] size_t place_length(std::string_view name);

}  // namespace ptd
