// Blocks: classification of the last instruction, and the store of distinct blocks.
#include "capture/emulate/unit/block.h"

#include <algorithm>
#include <cstring>

namespace ptd::emulate {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

BlockEnd end_of(const Insn& insn, uint64_t target, uint64_t next) {
  switch (insn.cls) {
    case InsnClass::jump_direct:
      return BlockEnd::jump;
    case InsnClass::jcc:
      return BlockEnd::jcc;
    case InsnClass::call_direct:
      return target == next ? BlockEnd::call_next : BlockEnd::call;
    case InsnClass::jump_indirect:
    case InsnClass::jmpabs:  // direct, yet takes a TIP
      return BlockEnd::indirect;
    case InsnClass::call_indirect:
      return BlockEnd::indirect_call;
    case InsnClass::ret:
      return BlockEnd::ret;
    case InsnClass::far_call:
      switch (insn.detail) {
        case InsnDetail::int_n:
        case InsnDetail::int3:
        case InsnDetail::int1:
        case InsnDetail::into:
          return BlockEnd::software_interrupt;
        default:
          return BlockEnd::far;
      }
    case InsnClass::far_jump:
    case InsnClass::far_ret:
      return BlockEnd::far;
    case InsnClass::other:
    case InsnClass::mov_cr3:
    case InsnClass::ptwrite:
    case InsnClass::bad:
      break;
  }
  return BlockEnd::plain;
}

}  // namespace

int Block::index_of(uint64_t at) const {
  uint64_t here = ip;
  for (int i = 0; i < insns; ++i) {
    if (here == at) return i;
    here += lengths[i];
  }
  return -1;
}

std::byte* BlockStore::allocate(size_t bytes) {
  if (chunks_.empty() || chunk_used_ + bytes > kChunkBytes) {
    chunks_.push_back(std::make_unique<std::byte[]>(std::max(bytes, kChunkBytes)));
    chunk_used_ = 0;
  }
  std::byte* place = chunks_.back().get() + chunk_used_;
  chunk_used_ += bytes;
  return place;
}

BlockStore::Added BlockStore::add(uint64_t ip, ExecMode mode, std::span<const SeenInsn> insns) {
  scratch_.clear();
  lengths_.clear();
  bool mismatch = false;
  Insn last;
  for (size_t i = 0; i < insns.size(); ++i) {
    if (insns[i].size_bytes == 0) break;  // no code: a call that the emulator does itself
    const auto* data = static_cast<const std::byte*>(insns[i].data);
    const Insn insn = classify({data, insns[i].size_bytes}, mode);
    if (insn.length_bytes != insns[i].size_bytes) {
      if (i + 1 == insns.size() && i != 0 && insn.length_bytes == 0 && mode != ExecMode::unknown) break;  // did not run here
      mismatch = true;
    }
    last = insn;
    lengths_.push_back(static_cast<uint8_t>(insns[i].size_bytes));
    scratch_.insert(scratch_.end(), data, data + insns[i].size_bytes);
  }
  if (lengths_.empty()) return {};
  const auto [first, past] = by_ip_.equal_range(ip);
  for (auto it = first; it != past; ++it) {
    Block& known = *it->second;
    if (known.mode == mode && known.insns == lengths_.size() && known.size_bytes == scratch_.size() &&
        std::memcmp(known.bytes, scratch_.data(), scratch_.size()) == 0 && std::memcmp(known.lengths, lengths_.data(), known.insns) == 0) {
      return {&known, false};
    }
  }
  std::byte* place = allocate(scratch_.size() + lengths_.size());
  std::memcpy(place, scratch_.data(), scratch_.size());
  std::memcpy(place + scratch_.size(), lengths_.data(), lengths_.size());
  Block& block = blocks_.emplace_back();
  block.ip = ip;
  block.mode = mode;
  block.number = static_cast<uint32_t>(blocks_.size() - 1);
  block.bytes = place;
  block.lengths = reinterpret_cast<const uint8_t*>(place + scratch_.size());
  block.size_bytes = static_cast<uint16_t>(scratch_.size());
  block.insns = static_cast<uint16_t>(lengths_.size());
  block.end = ip + scratch_.size();
  block.last_ip = block.end - lengths_.back();
  block.detail = last.detail;
  block.kernel = is_kernel_half(Ip{ip});
  block.mismatch = mismatch;
  if (last.length_bytes != 0) {
    block.target = direct_target(last, Ip{block.last_ip}, mode).value;
    block.kind = end_of(last, block.target, block.end);
  }
  block.single_plain = block.insns == 1 && block.kind == BlockEnd::plain;
  by_ip_.emplace(ip, &block);
  return {&block, true};
}

}  // namespace ptd::emulate
