// BlockTable: equal blocks share one entry, found by hash. Also names and sentences of a batch's enumerators.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "ptdecode/flow.h"

namespace ptd {
namespace {

constexpr size_t kFirstSlots = 128;

}  // namespace

/// Returns the slot of an equal block, or the free slot for it.
BlockTable::Place BlockTable::find(const BlockInfo& block) const {
  const uint32_t tag = tag_of(block);
  const size_t mask = slots_.size() / 2 - 1;
  for (size_t slot = first_slot(tag);; slot = (slot + 1) & mask) {
    const NodeId node = slots_[2 * slot];
    if (node == kEmptySlot) return {slot, tag};
    if (slots_[2 * slot + 1] != tag) continue;
    const BlockInfo& known = info(node);
    if (known.ip == block.ip && known.space == block.space && known.mode == block.mode && known.instructions == block.instructions &&
        known.size_bytes == block.size_bytes && std::equal(block.first_byte, block.first_byte + block.size_bytes, known.first_byte)) {
      return {slot, tag};
    }
  }
}

NodeId BlockTable::intern(SpaceId space, Ip ip, ExecMode mode, uint16_t instructions, Bytes bytes) {
  if (slots_.size() < 4 * (found_ + 1)) grow();
  BlockInfo block{ip, space, mode, instructions, static_cast<uint32_t>(bytes.size()), bytes.data()};
  const Place place = find(block);
  NodeId& node = slots_[2 * place.slot];
  if (node != kEmptySlot) return node;
  block.first_byte = copy(bytes);
  node = add(block);
  slots_[2 * place.slot + 1] = place.tag;
  ++found_;
  return node;
}

NodeId BlockTable::find_or_add(const BlockInfo& block) {
  const NodeId node = slots_[2 * find(block).slot];
  return node != kEmptySlot ? node : add(block);
}

void BlockTable::FreeChunks::operator()(BlockInfo** chunks) const {
  static_assert(std::is_trivially_destructible_v<BlockInfo>);
  for (BlockInfo** chunk = chunks; *chunk != nullptr; ++chunk) std::allocator<BlockInfo>().deallocate(*chunk, kChunk);
  delete[] chunks;
}

void BlockTable::add_chunk() {
  // Entries after the first null are never read, so they need no initialisation.
  if (!chunks_) {
    chunks_.reset(new BlockInfo*[kChunks + 1]);
    chunks_[0] = nullptr;
  }
  const size_t chunk = size() / kChunk;
  chunks_[chunk + 1] = nullptr;
  chunks_[chunk] = std::allocator<BlockInfo>().allocate(kChunk);
}

const std::byte* BlockTable::copy(Bytes bytes) {
  if (bytes.size() > arena_left_) {
    arena_left_ = std::max(kArena, bytes.size());
    arenas_.push_back(std::make_unique_for_overwrite<std::byte[]>(arena_left_));
    arena_next_ = arenas_.back().get();
  }
  std::byte* const copied = arena_next_;
  std::copy(bytes.begin(), bytes.end(), copied);
  arena_next_ += bytes.size();
  arena_left_ -= bytes.size();
  return copied;
}

void BlockTable::grow() {
  const size_t size = std::max(kFirstSlots, slots_.size());
  std::vector<NodeId> before(2 * size, kEmptySlot);
  before.swap(slots_);
  for (size_t i = 0; i < before.size(); i += 2) {
    if (before[i] == kEmptySlot) continue;
    size_t slot = before[i + 1] & (size - 1);
    while (slots_[2 * slot] != kEmptySlot) slot = (slot + 1) & (size - 1);
    slots_[2 * slot] = before[i];
    slots_[2 * slot + 1] = before[i + 1];
  }
}

const char* name(GapReason reason) {
  switch (reason) {
    case GapReason::overflow:
      return "overflow";
    case GapReason::aux_lost:
      return "aux_lost";
    case GapReason::bad_packet:
      return "bad_packet";
    case GapReason::no_image:
      return "no_image";
    case GapReason::image_mismatch:
      return "image_mismatch";
    case GapReason::bad_insn:
      return "bad_insn";
    case GapReason::limit:
      return "limit";
    case GapReason::unknown_return:
      return "unknown_return";
    case GapReason::uncommitted:
      return "uncommitted";
  }
  return "?";
}

static_assert(std::endian::native == std::endian::little && offsetof(Block, instructions) == 4);

// Reads blocks as whole words, which the compiler vectorises.
uint64_t instructions_of(std::span<const Block> blocks) {
  uint64_t sum = 0;
  for (const Block& block : blocks) {
    uint64_t word = 0;
    std::memcpy(&word, &block, sizeof word);
    sum += word >> 32 & 0xffff;  // Block::instructions
  }
  return sum;
}

const char* sentence(GapReason reason) {
  switch (reason) {
    case GapReason::overflow:
      return "the processor dropped packets because its buffer was full";
    case GapReason::aux_lost:
      return "the recorder lost trace bytes";
    case GapReason::bad_packet:
      return "invalid packet, or a packet that is not allowed at this point";
    case GapReason::no_image:
      return "no code is available for this address";
    case GapReason::image_mismatch:
      return "the packets contradict the code: a different version of it ran";
    case GapReason::bad_insn:
      return "the bytes at this address are not an instruction";
    case GapReason::limit:
      return "a limit of the decoder was reached";
    case GapReason::unknown_return:
      return "a return whose call is not part of the decoded flow";
    case GapReason::uncommitted:
      return "the trace ended, or was restarted, before it committed the last branches";
  }
  return "?";
}

const char* name(EventKind kind) {
  switch (kind) {
    case EventKind::enabled:
      return "enabled";
    case EventKind::disabled:
      return "disabled";
    case EventKind::async_disabled:
      return "async_disabled";
    case EventKind::async_branch:
      return "async_branch";
    case EventKind::exec_mode:
      return "exec_mode";
    case EventKind::paging:
      return "paging";
    case EventKind::vmcs:
      return "vmcs";
    case EventKind::tsx_begin:
      return "tsx_begin";
    case EventKind::tsx_commit:
      return "tsx_commit";
    case EventKind::tsx_abort:
      return "tsx_abort";
    case EventKind::overflow:
      return "overflow";
    case EventKind::trace_stop:
      return "trace_stop";
    case EventKind::ptwrite:
      return "ptwrite";
    case EventKind::exstop:
      return "exstop";
    case EventKind::mwait:
      return "mwait";
    case EventKind::pwre:
      return "pwre";
    case EventKind::pwrx:
      return "pwrx";
    case EventKind::cbr:
      return "cbr";
    case EventKind::mnt:
      return "mnt";
    case EventKind::cfe:
      return "cfe";
    case EventKind::evd:
      return "evd";
    case EventKind::pebs_begin:
      return "pebs_begin";
    case EventKind::pebs_item:
      return "pebs_item";
    case EventKind::pebs_end:
      return "pebs_end";
    case EventKind::trig:
      return "trig";
    case EventKind::context:
      return "context";
    case EventKind::exception_return:
      return "exception_return";
    case EventKind::trace_event:
      return "trace_event";
    case EventKind::instrumentation:
      return "instrumentation";
    case EventKind::sync_marker:
      return "sync_marker";
    case EventKind::skipped:
      return "skipped";
    case EventKind::ignored_packets:
      return "ignored_packets";
    case EventKind::interrupt_flag:
      return "interrupt_flag";
  }
  return "?";
}

}  // namespace ptd
