// Item: an input of the flow from the packets: branch results, targets, and events bound to an ip.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "decoder/pt/flow/time_ahead.h"
#include "decoder/pt/packet/zero_run.h"
#include "ptdecode/aux_segment.h"
#include "ptdecode/flow.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd::pt {

enum class ItemKind : uint8_t {
  tnt,             ///< branch results
  tip,             ///< target of an indirect branch, uncompressed RET or far transfer
  tip_pgd,         ///< tracing ends with a branch (no FUP before it)
  tip_pge,         ///< tracing starts at `ip`
  async_branch,    ///< FUP(ip) + TIP(target): taken before the instruction at `ip` is read
  async_disabled,  ///< FUP(ip) + TIP.PGD
  at_ip,           ///< an event bound to `ip`, where the flow continues
  at_insn,         ///< an event bound to the next instruction of a class (MOV CR3, VMPTRLD, PTWRITE; IRET, UIRET or VM entry)
  after_insns,     ///< an event `ip` instructions after its anchor: the item before that is not `now` or `at_insn`
  now,             ///< an event without a position: output at once
  overflow,        ///< OVF; `ip` is where flow resumes, unless suppressed
  missing,         ///< `value` bytes of trace are lost: the position is unknown until an item gives an ip
  sync,            ///< the next segment's PSB: its flow continues at `ip`, unless suppressed
  bad,             ///< invalid packet, or a packet not allowed at this point
  end,             ///< no more bytes
};

inline constexpr uint8_t kItemNoIp = 1;  ///< ip (sync, overflow, tip, tip_pgd) or target (async) is suppressed
inline constexpr uint8_t kItemNonRoot = 2;
inline constexpr uint8_t kItemFlagKnown = 4;  ///< with a mode: kItemFlagOn is RFLAGS.IF
inline constexpr uint8_t kItemFlagOn = 8;
inline constexpr uint8_t kItemLongTip = 16;  ///< tip: a packet with an ip is missing before it, see is_long_tip()

/// One item. Times are bounds on the timeline clock.
struct Item {
  ItemKind kind = ItemKind::end;
  uint8_t bits = 0;  ///< tnt: number of branches
  uint8_t flags = 0;
  EventKind event = EventKind::cbr;   ///< at_ip, at_insn, now
  ExecMode mode = ExecMode::unknown;  ///< new execution mode at the target, or (at_ip) at `ip`; unknown: no change
  uint64_t ip = 0;                    ///< tnt: the branches, oldest in bit (bits - 1). else: see ItemKind
  uint64_t value = 0;                 ///< async_branch: target. events: payload
  uint64_t aux = 0;
  uint64_t offset_bytes = 0;  ///< in the segment
  Moment left;                ///< time of the packet before: about when the flow began to execute the instructions of this item
  Moment own;                 ///< time of this item's packet
  TimeNs before;              ///< lower bound of the last timing packet before this item
  TimeNs lo;                  ///< lower bound of the time of the instructions walked for this item, see ItemReader
  TimeNs hi;                  ///< upper bound of the same
};

/// The state given by a PSB+ ([SDM] "Packet Stream Boundary (PSB) Packet").
struct SyncState {
  bool has_ip = false;  ///< tracing was on
  Ip ip;
  ExecMode mode = ExecMode::unknown;
  bool interrupts = false;  ///< RFLAGS.IF; false without event trace
  bool has_cr3 = false, non_root = false;
  uint64_t cr3 = 0;
  bool in_tx = false;
};

/// When a PSB+ was written.
struct PsbTime {
  uint64_t tsc = 0;  ///< bits 55:0
  bool is_known = false;
  bool in_guest = false;  ///< in VMX operation, where the TSC may be from another clock ([SDM] "TSC Packet")
  void add(const Packet& packet);
};

/// The state of an ItemReader between two packets, which determines the time of the following items.
struct ItemCursor {
  static constexpr uint32_t kFullShort = 6, kFullLong = 47;  ///< branches in a TNT that is full
  uint64_t offset_bytes = 0;                                 ///< of the next packet
  uint64_t last_ip = 0;                                      ///< for ip compression
  Moment now;                                                ///< of the last timing packet
  Moment left;                                               ///< `now` when the last packet of the flow was written
  TimeNs now_first;                                          ///< lower bound of the last timing packet
  TimeNs group_lo;                                           ///< lower bound for what is walked inside the current group
  TimeNs emitted;                                            ///< `before` of the group before the current one
  TimeNs group_before;                                       ///< `before` of the current group's first packet
  bool late = false;                                         ///< the current group began with a TNT that was not full

  /// Declares that the next instructions ran after the last timing packet.
  void prompt() {
    group_lo = emitted = group_before = now_first;
    late = false;
  }
  /// Processes a TNT that is not full, which begins a group. Returns the lower bound of the instructions walked for it.
  TimeNs begin_group() {
    group_lo = emitted;
    emitted = group_before;
    group_before = now_first;
    late = true;
    return group_lo;
  }
  /// Same for a TIP: it belongs to a group, or was written at once.
  TimeNs take_tip() {
    const TimeNs lo = late ? group_lo : emitted;
    if (!late) prompt();
    return lo;
  }
  /// Sets what is known of the time of a flow packet at this position.
  void date(Item& item) const {
    item.before = now_first;
    item.left = left;
    item.own = now;
  }
  /// Records that the last packet of the flow was written when it was generated. A TNT that is not full is written together with the next
  /// packet.
  void leave() { left = now; }
  [[nodiscard]] static bool is_full(uint32_t bits) { return bits == kFullShort || bits == kFullLong; }
  void leave_tnt(uint32_t bits) {
    if (is_full(bits)) leave();
  }
  /// Returns whether everything up to the next timing packet has the same bounds, and `left` is `now`.
  [[nodiscard]] bool steady() const {
    return emitted == now_first && group_before == now_first && (!late || group_lo == now_first) && left == now;
  }
};

/// Converts a segment's packets to items on demand, and keeps them until they are released.
///
/// Time of the walked instructions: branches are buffered. A TNT that is not full, and the TIPs after it, are written together when
/// something forces them out ([SDM] "Deferred TIPs"), possibly long after the branches retired. So timing packets before such a group do
/// not bound it. But all of a group retired after the previous group was written. FUPs, TIP.PGE, TIP.PGD, full TNTs and TIPs without
/// pending branches are written at once. The upper bound is the first timing packet after an item.
class ItemReader {
 public:
  void begin(const AuxSegment& segment, const Config& config, uint64_t slack_ns);
  [[nodiscard]] const SyncState& start() const { return start_; }
  /// Returns the status events of the segment's PSB+.
  [[nodiscard]] const std::vector<Item>& start_items() const { return start_items_; }
  [[nodiscard]] const Item& at(uint64_t index) {
    while (index >= base_ + items_.size()) produce();
    return items_[index - base_];
  }
  /// Releases the items below `index`.
  void release(uint64_t index);

  /// For callers that read plain packets (TNT, TIP, PAD and time) themselves: returns true if nothing is read at or after item `index`
  /// and no compound is open. Packets read this way give no items; the caller reports its position with skip_to().
  [[nodiscard]] bool plain(uint64_t index) const;
  /// Returns item `index` if it was already read, else null.
  [[nodiscard]] const Item* peek(uint64_t index) const { return index - base_ < items_.size() ? &items_[index - base_] : nullptr; }
  [[nodiscard]] ItemCursor cursor() const {
    ItemCursor cursor = cursor_;
    cursor.offset_bytes = reader_.offset();
    return cursor;
  }
  /// Returns the limit for reading plain packets: the segment's end, or zeroed trace before it.
  [[nodiscard]] uint64_t plain_end() const { return std::min(own_bytes_, zeros_.first); }
  [[nodiscard]] TimeAhead& ahead() { return ahead_; }
  /// Continues at `cursor` with item `index`. `last`, if not null, becomes item `index`: a partly consumed one.
  void skip_to(const ItemCursor& cursor, uint64_t index, const Item* last);

 private:
  void produce();
  bool step();
  [[nodiscard]] bool is_idle() const;
  bool step_plain();
  uint64_t push_branch(unsigned byte, uint64_t offset, uint64_t end);
  void push_tnt(uint64_t offset, uint64_t branches, uint32_t count);
  void pass_time(uint64_t offset);
  bool read_start();
  void read_fup_of_overflow();
  void read_sync();
  void on_flow(const Packet& packet, uint64_t offset);
  void skip_branch(const Packet& packet, uint64_t offset);
  void on_fup(const Packet& packet, uint64_t offset);
  void on_tip(const Packet& packet, uint64_t offset);
  void on_tip_pgd(const Packet& packet, uint64_t offset);
  void on_tip_pge(const Packet& packet, uint64_t offset);
  void on_event(const Packet& packet, uint64_t offset);
  void on_ovf(uint64_t offset);
  void end_overflow(bool has_ip, uint64_t ip);
  void push_event(ItemKind kind, const Item& event);
  void bind_later(const Item& event);
  void wait(const Item& event);
  bool bind_events(bool& bound);
  void give_waiting(ItemKind branch_kind = ItemKind::now);
  void give_unbound();
  [[nodiscard]] bool is_before_start(const PsbTime& after) const;
  void fail(uint64_t offset);
  void lose_packets();
  void pass_zeros(uint64_t offset);
  bool decompress(const Packet& packet);
  void flush_tsx(uint64_t offset);
  Item& push(ItemKind kind, uint64_t offset);
  /// Pushes the item of a TIP or TIP.PGD: `bound` if a FUP came before it, else `alone`.
  Item& push_target(ItemKind bound, ItemKind alone, bool has_ip, uint64_t offset);
  void push_held();
  bool is_off_at(uint64_t offset) const;
  void take_mode(Item& item);

  AuxSegment segment_;
  Config config_;
  PacketReader reader_;
  TimeAhead ahead_;
  ItemCursor cursor_;       ///< offset_bytes is unused: see reader_
  uint64_t own_bytes_ = 0;  ///< bytes of the segment without the tail
  ZeroRun zeros_;           ///< the next run of zeros
  bool ip_lost_ = false;    ///< cursor_.last_ip is not the processor's, because packets that change it were lost
  SyncState start_;
  PsbTime start_time_;
  uint64_t slack_ns_ = 0;
  std::vector<Item> start_items_;
  std::vector<Item> items_;
  std::vector<Item> held_;             ///< events inside a compound (FUP .. TIP, OVF .. FUP), output after it
  std::vector<Item> binding_;          ///< events that are followed by their own FUP
  std::vector<Item> waiting_;          ///< events that the next flow packet may bind to an ip
  uint64_t base_ = 0;                  ///< index of items_[0]
  ExecMode mode_ = ExecMode::unknown;  ///< from a MODE.Exec that is not bound yet; `interrupts_` is its RFLAGS.IF
  bool interrupts_ = false;
  bool done_ = false;
  bool enabled_ = false;
  bool has_fup_ = false, fup_optional_ = false;
  uint64_t fup_ip_ = 0, fup_offset_ = 0;
  bool tsx_pending_ = false, tsx_in_ = false, tsx_abort_ = false;
  bool in_overflow_ = false;
  uint64_t overflow_offset_ = 0;
};

}  // namespace ptd::pt
