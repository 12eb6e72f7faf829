// InlinedCode: which inlined functions run in the parts of a block.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/base/inline_chains.h"
#include "ptdecode/flow.h"
#include "ptdecode/function_table.h"
#include "ptdecode/symbols.h"

namespace ptd {

/// From an instruction of a block on.
struct InlinedPiece {
  uint32_t instruction = 0;      ///< its number in the block
  InlineId chain = kNotInlined;  ///< the functions inlined there
  uint32_t begins = 0;           ///< bit i: the i-th of them from the innermost one is entered at this instruction; i < 32
};

/// Not thread-safe. What it refers to must outlive it.
class InlinedCode {
 public:
  InlinedCode(const Symbolizer& symbolizer, FunctionTable& functions, InlineChains& chains)
      : symbolizer_(symbolizer), functions_(functions), chains_(chains) {}
  struct Place {
    TimeNs when;
    FunctionId host = kNoFunction;  ///< the function that the block's code belongs to
  };
  /// Replaces `pieces` by those of the block, at least one: the first is that of its first instruction. Returns when this is right.
  Interval find(const BlockInfo& block, const Place& place, std::vector<InlinedPiece>& pieces);
  /// Returns that of one instruction.
  [[nodiscard]] InlinedPiece find(SpaceId space, Ip ip, const Place& place) {
    return piece_of(symbolizer_.inlined_at(space, ip, place.when), place.host);
  }

 private:
  InlinedPiece piece_of(const InlinedPlace& found, FunctionId host);
  const Symbolizer& symbolizer_;
  FunctionTable& functions_;
  InlineChains& chains_;
};

}  // namespace ptd
