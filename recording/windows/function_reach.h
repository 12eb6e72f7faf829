// FunctionReach: how far the functions of a PE file reach whose sizes it does not have. Symbols and exports give starts only.
//
//   start               limit: the next symbol, export, function of .pdata, target of a CALL, or the end of the section
//   |code that start leads to|padding|code that it does not lead to|
//   |<------- reach -------->|
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "image/source/pe/pe_file.h"

namespace ptd {

/// Reads the code of a file once, from what certainly is code: symbols, exports, the entry point, .pdata, and the targets of CALLs in
/// these.
class FunctionReach {
 public:
  /// `symbols`, `functions`: those of the file, by address.
  FunctionReach(const PeFile& file, const std::vector<PeSymbol>& symbols, const std::vector<PeFunction>& functions);
  /// Returns the first address after `start` that is not known to be of the function that begins there, at most `limit`. In a file with a
  /// symbol table, that is the next start of another function. Otherwise other functions may have no symbol, so it is the first code to
  /// which neither sequential instructions, direct jumps nor the tables of switches of i386 lead. Code directly after an indirect jump
  /// counts if later code does: the cases of a switch. Limitation: a tail call over other code of the function, of a function to which
  /// nothing else leads, looks like a jump within the function.
  [[nodiscard]] uint64_t end_of(uint32_t start, uint64_t limit);

 private:
  struct Step;
  struct Place;
  struct Reached;
  [[nodiscard]] Step step_at(uint32_t address) const;
  [[nodiscard]] bool is_padding(uint64_t from, uint64_t to) const;
  [[nodiscard]] bool leaves(const Step& jump, Bytes before, uint64_t start) const;
  [[nodiscard]] std::optional<uint32_t> table_of(Bytes code) const;
  [[nodiscard]] std::vector<uint64_t> cases_of(Bytes jump, const Reached& reached, uint64_t most);
  void find_callees();
  void find_tables();
  void follow(Reached& reached);

  const PeFile& file_;
  // What may be read of code and of tables: no more than the file has, although sections and tables may overlap.
  uint64_t bytes_left_, entries_left_;
  std::vector<uint32_t> starts_, tables_;  // of functions and of switches; sorted, each once
};

}  // namespace ptd
