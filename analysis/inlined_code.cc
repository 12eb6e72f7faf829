// InlinedCode: see inlined_code.h.
#include "analysis/inlined_code.h"

#include <algorithm>
#include <array>
#include <string>

#include "decoder/insn/executed_insn.h"
#include "ptdecode/insn.h"

namespace ptd {

InlinedPiece InlinedCode::piece_of(const InlinedPlace& found, FunctionId host) {
  constexpr size_t kBits = 32;
  InlinedPiece piece;
  const size_t count = std::min<size_t>(found.functions.size(), InlineChains::kMaxDepth);
  for (size_t i = 0; i < count; ++i) {
    const InlinedFunction& function = found.functions[i];
    piece.chain = chains_.inner(piece.chain, function.copy, [&] {
      const std::string name = function.name.empty() ? std::string("[unnamed function]") : std::string(function.name);
      const FunctionId id = functions_.intern(name + std::string(kInlinedMark), functions_.info(host).module);
      functions_.add_names(id, std::array{name});
      return id;
    });
    if (function.begins && count - 1 - i < kBits) piece.begins |= 1U << (count - 1 - i);
  }
  return piece;
}

Interval InlinedCode::find(const BlockInfo& block, const Place& place, std::vector<InlinedPiece>& pieces) {
  pieces.clear();
  Interval valid;
  uint64_t offset = 0, end = 0;  // of the instruction; of the piece
  for (uint32_t i = 0; i < block.instructions && offset < block.size_bytes; ++i) {
    if (offset >= end) {
      const InlinedPlace found = symbolizer_.inlined_at(block.space, block.ip + offset, place.when);
      valid = intersect(valid, found.valid);
      InlinedPiece piece = piece_of(found, place.host);
      piece.instruction = i;
      if (pieces.empty() || pieces.back().chain != piece.chain) pieces.push_back(piece);
      end = offset + std::max<uint64_t>(1, std::min<uint64_t>(found.same_bytes, block.size_bytes));
      if (end >= block.size_bytes) break;
    }
    offset += std::max<uint64_t>(1, executed_insn(Bytes{block.first_byte + offset, block.size_bytes - offset}, block.mode).length_bytes);
  }
  if (pieces.empty()) pieces.emplace_back();
  return valid;
}

}  // namespace ptd
