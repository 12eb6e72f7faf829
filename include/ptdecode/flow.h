// Batch: the output of the decoders of Intel PT and CoreSight.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/timeline.h"
#include "ptdecode/types.h"

namespace ptd {

using NodeId = uint32_t;

/// How sure the decoder is of a block's bytes, and how the block ended. Bits of Block::flags.
enum class BlockFlag : uint16_t {
  none = 0,
  taken = 1,           ///< the block ends with a branch that was taken
  ends_in_branch = 2,  ///< last instruction is a branch; else the block was cut (event, PSB, version edge, loss)
  chosen = 4,          ///< several versions were possible, the packets left one
  healed = 8,          ///< bytes are a version inserted by healing
  ambiguous = 16,      ///< several versions were possible and the packets contradicted none
  suspect = 32,        ///< records were lost around this time, the packets soon contradict the code or have just contradicted it, or the
                       ///< flow continued after a gap at a TIP that may be deferred
  assumed = 64,        ///< code from a guessed image
};
constexpr uint16_t operator|(BlockFlag a, BlockFlag b) {
  return static_cast<uint16_t>(static_cast<uint16_t>(a) | static_cast<uint16_t>(b));
}
constexpr bool has(uint16_t flags, BlockFlag flag) { return (flags & static_cast<uint16_t>(flag)) != 0; }
/// The flags of blocks that may be wrong.
inline constexpr uint16_t kUncertainFlags = BlockFlag::ambiguous | BlockFlag::suspect;

/// A contiguous run of executed instructions up to a branch. 8 bytes.
struct Block {
  NodeId node = 0;            ///< look up in the BlockTable of the decoder that made it
  uint16_t instructions = 0;  ///< retired instructions (>= 1)
  uint16_t flags = 0;         ///< BlockFlag bits
};

/// The static part of a block: its address and its bytes.
struct BlockInfo {
  Ip ip;
  SpaceId space = kKernelSpace;
  ExecMode mode = ExecMode::bits64;
  uint16_t instructions = 0;
  uint32_t size_bytes = 0;
  const std::byte* first_byte = nullptr;  ///< valid as long as the BlockTable; use BlockTable::bytes
};

/// Allocator whose resize() does not initialise new elements, because the decoder writes them next.
template <typename T>
struct RoomFor : std::allocator<T> {
  template <typename Other>
  struct rebind {
    using other = RoomFor<Other>;
  };
  template <typename Made, typename... Args>
  void construct(Made* at, Args&&... args) {
    if constexpr (sizeof...(Args) != 0) ::new (static_cast<void*>(at)) Made(std::forward<Args>(args)...);
  }
};
using Blocks = std::vector<Block, RoomFor<Block>>;
[[nodiscard]] PTD_API uint64_t instructions_of(std::span<const Block> blocks);

/// Owns the static part of the blocks of one decoder. It only grows; ids and references stay valid for its life.
/// Threads: one thread calls intern() and adopt(). Other threads may meanwhile call size(), and look up nodes of batches that were handed
/// over to them with the usual synchronisation.
class PTD_API BlockTable {
 public:
  /// Finds or adds the block with exactly these bytes at (space, ip).
  NodeId intern(SpaceId space, Ip ip, ExecMode mode, uint16_t instructions, Bytes bytes);
  /// As intern(), but cheaper, for a block whose bytes outlive the table. It finds blocks that intern() added. Blocks that it adds are
  /// found neither by it nor by intern(), so call it once per block.
  NodeId adopt(const BlockInfo& block) {
    if (found_ != 0 && slots_[2 * first_slot(tag_of(block))] != kEmptySlot) return find_or_add(block);
    return add(block);
  }
  [[nodiscard]] const BlockInfo& info(NodeId node) const { return chunks_[node / kChunk][node % kChunk]; }
  [[nodiscard]] Bytes bytes(NodeId node) const { return {info(node).first_byte, info(node).size_bytes}; }
  [[nodiscard]] size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kChunk = 1U << 16;  ///< blocks allocated at once; unused pages are never touched
  static constexpr size_t kChunks = 1U << 12;
  static constexpr size_t kArena = 1U << 16;  ///< code bytes allocated at once
  static constexpr NodeId kEmptySlot = 0xffffffffU;
  struct FreeChunks {
    void operator()(BlockInfo** chunks) const;
  };
  struct Place {
    size_t slot;
    uint32_t tag;
  };
  static constexpr uint64_t mix(uint64_t h, uint64_t v) {
    h ^= v;
    h *= 0x9e3779b97f4a7c15ULL;
    return h ^ (h >> 29);
  }
  [[nodiscard]] static constexpr uint32_t tag_of(const BlockInfo& block) {
    const uint64_t mode = static_cast<uint8_t>(block.mode);
    const uint64_t place = mix(block.space.value, block.ip.value);
    return static_cast<uint32_t>(mix(place, (uint64_t{block.instructions} << 40) ^ (mode << 32) ^ block.size_bytes) >> 32);
  }
  [[nodiscard]] size_t first_slot(uint32_t tag) const { return tag & (slots_.size() / 2 - 1); }
  [[nodiscard]] Place find(const BlockInfo& block) const;
  NodeId find_or_add(const BlockInfo& block);
  NodeId add(const BlockInfo& block) {
    const size_t at = size();
    if (at % kChunk == 0) add_chunk();
    std::construct_at(&chunks_[at / kChunk][at % kChunk], block);
    size_.store(at + 1, std::memory_order_relaxed);
    return static_cast<NodeId>(at);
  }
  void add_chunk();
  void grow();
  const std::byte* copy(Bytes bytes);
  std::unique_ptr<BlockInfo*[], FreeChunks> chunks_;  // kChunks and a null; those in use come first
  std::atomic<size_t> size_ = 0;                      // blocks
  size_t found_ = 0;                                  // those of them in slots_
  std::vector<std::unique_ptr<std::byte[]>> arenas_;
  std::byte* arena_next_ = nullptr;
  size_t arena_left_ = 0;
  // Open addressing, power of two. A slot is a pair: the node or kEmptySlot, and half of the block's hash, so that other blocks are rarely
  // compared.
  std::vector<NodeId> slots_;
};

/// The context from block `before_block` on. A batch holds a mark only where the context changes, or where `about` is more than 1 us later.
struct Mark {
  uint32_t before_block = 0;
  Interval time;  ///< bounds of the moment, on the timeline's clock
  int32_t pid = -1;
  int32_t tid = -1;
  SpaceId space = kNoSpace;
  ExecMode mode = ExecMode::unknown;
  bool time_known = false;
  /// The likeliest time, for adding up times: when the packet before those of the following blocks was written. 0: unknown.
  TimeNs about{};
  uint64_t cycles = 0;  ///< core cycles counted up to `about` since the segment's start (CYC, cycle counts of Arm), 0 without
};

enum class EventKind : uint8_t {
  enabled,   ///< tracing starts at `to` (TIP.PGE)
  disabled,  ///< tracing ends after the last block: the branch at `from` left the traced region, for `to` if known; aux = where tracing is
             ///< expected to resume
  async_disabled,  ///< tracing ends before the instruction at `from`
  async_branch,    ///< interrupt, fault, trap: from `from` (not executed) to `to`
  exec_mode,       ///< 16, 32 or 64-bit code from `to` on; payload = ExecMode
  paging,          ///< CR3 = payload; non_root in flags
  vmcs,            ///< VMCS base = payload
  tsx_begin,
  tsx_commit,
  tsx_abort,  ///< at `from`
  overflow,   ///< OVF: packets were lost; flow resumes at `to` if known
  trace_stop,
  ptwrite,  ///< payload, at `from` if bound to an ip
  exstop,
  mwait,
  pwre,
  pwrx,
  cbr,
  mnt,
  cfe,  ///< control-flow event: payload = type | vector << 8 (event trace)
  evd,  ///< event data: payload, aux = type
  pebs_begin,
  pebs_item,
  pebs_end,
  trig,  ///< trigger: payload = trigger bit vector; aux = 1: other triggers fired as well
  // Arm. There async_branch is an exception of type payload, and tsx_* are memory transactions.
  context,           ///< CONTEXTIDR = payload; aux = VMID | level << 32 | non-secure << 34 | root or realm << 35 | AArch64 << 36
  exception_return,  ///< an ETMv4 packet; in ETE the instruction itself
  trace_event,       ///< events of the trace unit's resources: payload, one bit each
  instrumentation,   ///< a value that software wrote into the trace: payload, aux = exception level
  sync_marker,       ///< a marker that is synchronised with those of other sources
  skipped,           ///< `payload` instructions (0: unknown) ran from `from` to `to` on an untraced path: Q elements; x86: iterations of a
                     ///< loop
  ignored_packets,   ///< payload packets of conditional or data trace that do not affect the flow
  interrupt_flag,    ///< x86, event trace: RFLAGS.IF is `payload` from `to` on
};

/// A packet, or several packets that belong together, at its place in the flow.
struct Event {
  EventKind kind = EventKind::enabled;
  uint8_t flags = 0;          ///< kEvent* bits
  uint32_t before_block = 0;  ///< the event happened before this block of the batch
  Ip from;                    ///< valid if kEventHasFrom
  Ip to;                      ///< valid if kEventHasTo
  uint64_t payload = 0;
  uint64_t aux = 0;
  uint64_t stream_offset_bytes = 0;
  Interval time;
  TimeNs about{};       ///< likeliest time: when the packet of the event was written. 0: unknown
  uint64_t cycles = 0;  ///< as Mark::cycles
};
inline constexpr uint8_t kEventHasFrom = 1;
inline constexpr uint8_t kEventHasTo = 2;
inline constexpr uint8_t kEventNonRoot = 4;
inline constexpr uint8_t kEventResumed = 8;      ///< enabled at the ip where tracing was disabled
inline constexpr uint8_t kEventStatus = 16;      ///< state repeated at the start of a segment, not a change at this point
inline constexpr uint8_t kEventBreakpoint = 32;  ///< async_branch to the #BP entry: an INT3 was hit at `from`
inline constexpr uint8_t kEventSyscall = 64;     ///< async_branch, Arm: the instruction before `from` is the SVC that caused it

enum class GapReason : uint8_t {
  overflow,        ///< the processor lost packets (OVF)
  aux_lost,        ///< the recorder lost trace bytes (TRUNCATED, PARTIAL, missing payload)
  bad_packet,      ///< invalid packet, or a packet not allowed at this point
  no_image,        ///< no code bytes at `ip`
  image_mismatch,  ///< the packets do not fit the code bytes at `ip`: the image is not the executed code
  bad_insn,        ///< the bytes at `ip` are not an instruction
  limit,           ///< a bound of the decoder was reached (candidates, instructions without a packet)
  unknown_return,  ///< the return at `ip` is compressed, and its call came before the decoded flow: its target is unknown
  uncommitted,     ///< Arm: branches up to a sync point or the end of the trace were never committed: whether they were executed is unknown
};
inline constexpr int kGapReasons = 9;
/// Return one sentence for people, and the enumerator's name.
[[nodiscard]] PTD_API const char* sentence(GapReason reason);
[[nodiscard]] PTD_API const char* name(GapReason reason);
[[nodiscard]] PTD_API const char* name(EventKind kind);

/// Lost flow between block before_block - 1 and block before_block.
struct Gap {
  GapReason reason = GapReason::bad_packet;
  uint32_t before_block = 0;
  uint64_t stream_offset_bytes = 0;  ///< of the packet at which the loss was noticed
  Ip ip;                             ///< where the flow was lost, 0 if unknown
  SpaceId space = kNoSpace;
  SectionId section = kNoSection;  ///< no_image: the section whose bytes are missing
  Interval time;
  uint64_t lost_bytes = 0;  ///< trace bytes skipped until resync
};

/// Filled by FlowDecoder::next(); reuse one batch to avoid allocations. `before_block` of marks, events and gaps is an index into `blocks`.
/// FlowCursor walks the four lists in order.
struct Batch {
  Blocks blocks;
  std::vector<Mark> marks;
  std::vector<Event> events;
  std::vector<Gap> gaps;

  void clear() {
    blocks.clear();
    marks.clear();
    events.clear();
    gaps.clear();
  }
};

}  // namespace ptd
