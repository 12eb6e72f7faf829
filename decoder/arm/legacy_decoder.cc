// LegacyDecoder: passes packets to the flows.
#include "decoder/arm/legacy_decoder.h"

#include <algorithm>
#include <utility>

#include "decoder/arm/packet/legacy_packets.h"
#include "decoder/arm/windows.h"

namespace ptd::arm {
namespace {

constexpr uint32_t kReturnStackOfPtm = 1U << 29;      // ETMCR
constexpr uint32_t kBarriersAreWaypoints = 1U << 24;  // ETMCCER
constexpr size_t kMostFlows = 16;                     // as DecoderOptions::max_flows
constexpr uint64_t kMostAhead = 1U << 12;             // packets after an instruction, among which the one that cancels it is looked for
constexpr uint64_t kNever = ~uint64_t{0};

WaypointRules legacy_rules(const TraceConfig& config) {
  WaypointRules rules;
  rules.every = config.protocol == Protocol::etmv3;
  rules.barriers = config.protocol == Protocol::ptm && (config.idr1 & kBarriersAreWaypoints) != 0;
  return rules;
}

/// Returns the configuration for the follower, which reads the return stack bit from TRCCONFIGR.
TraceConfig follower_config(TraceConfig config) {
  const bool stack = config.protocol == Protocol::ptm && (config.configr & kReturnStackOfPtm) != 0;
  config.configr = stack ? 0x1000 : 0;
  return config;
}

bool has_atoms(const LegacyPacket& packet) { return packet.kind == LegacyKind::atoms && packet.atoms != 0; }

/// Returns whether an instruction before this packet can no longer be cancelled. Cycles, times, periodic I-Syncs, and the addresses that an
/// instruction branched to before it was cancelled, may come between the two.
bool confirms(const LegacyPacket& packet, bool m_profile) {
  switch (packet.kind) {
    case LegacyKind::atoms:
      return packet.atoms != 0;
    case LegacyKind::branch:
      return packet.exception && !packet.cancels;
    case LegacyKind::isync:
      return !packet.periodic;
    case LegacyKind::exception_return:
      return m_profile;
    case LegacyKind::bad:
    case LegacyKind::not_sync:
      return true;
    default:
      return false;
  }
}

}  // namespace

/// Where the decoder is in its packets: what a stretch of them begins from again.
struct LegacyPosition {
  uint64_t taken = 0;             ///< packets
  uint64_t cancel_at = kNever;    ///< number of the packet that cancels what was traced last; kNever: none does
  uint64_t unread_from = kNever;  ///< the first atom or branch between an A-Sync and its I-Sync
  uint32_t unread = 0;            ///< such packets since the last A-Sync or I-Sync
  bool isync_is_lost = false;     ///< another A-Sync came after them, or a packet that cannot be read
  bool synced = false;            ///< an A-Sync was seen
  bool started = false;           ///< an I-Sync was seen after it
  bool stands = false;            ///< the last instruction was executed, because no packet that cancels it was found
  bool cut = false;               ///< the search for that packet ended at its limit
  bool read = false;              ///< some packet could be read: an I-Sync, or without flow an A-Sync
};

struct LegacyDecoder::State : LegacyPosition {
  State(const Timeline& timeline, const ContextTrack& contexts, const TraceConfig& given, const FollowOptions& options)
      : config(given),
        runs(timeline, legacy_rules(given), options.own_upper),
        all(runs, contexts, follower_config(given), options, kMostFlows),
        reader({}, given) {}

  // A Trace for Windows. Its position is the number of packets taken.
  struct Place {
    Follower follower;
    LegacyPosition position;
  };
  [[nodiscard]] bool changes() const { return runs.changes(); }
  [[nodiscard]] Flows& flows() { return all; }
  [[nodiscard]] uint64_t position() const { return taken; }
  [[nodiscard]] static uint64_t copied() { return 0; }
  [[nodiscard]] Place place();
  void go_to(const Place& place);
  TraceStop run(BatchTarget target, uint64_t end);

  const LegacyPacket* peek(uint64_t ahead = 0);
  void drop_taken();
  void look_for_cancel();
  void cancel(const LegacyPacket& packet);
  /// Returns whether the packet only tells of an instruction that did not run.
  [[nodiscard]] bool is_undone() const { return cancel_at != kNever && taken < cancel_at; }
  void take(const LegacyPacket& packet);
  void isync(const LegacyPacket& packet);
  void branch(const LegacyPacket& packet);
  void atoms(const LegacyPacket& packet);
  void count(const LegacyPacket& packet, uint32_t cycles);
  void context(const LegacyPacket& packet);
  void address(const LegacyPacket& packet);
  void execute(uint64_t atoms, uint32_t count, uint64_t offset);
  void pass_unread(const LegacyPacket& packet);
  void lose_unread(uint64_t end);
  void lose(const LegacyPacket& packet);
  void end();

  TraceConfig config;
  RunCache runs;
  Flows all;
  LegacyReader reader;
  Windows<State> windows{*this};
  std::vector<LegacyPacket> tape;  ///< packets read: those since the last place() and those read ahead
  size_t at = 0;                   ///< index of the next packet in the tape
  bool has_flow = true;            ///< ETMv3, PTM; of the others, only invalid packets are output
  uint64_t size_bytes = 0;         ///< of the segment
};

void LegacyDecoder::State::context(const LegacyPacket& packet) {
  PacketContext context;
  context.present = true;
  context.level = packet.hypervisor ? 2 : 0;
  context.non_secure = packet.non_secure;
  context.has_context_id = packet.has_context_id || packet.kind == LegacyKind::context_id;
  context.context_id = packet.context_id;
  context.has_vmid = packet.has_vmid || packet.kind == LegacyKind::vmid;
  context.vmid = packet.vmid;
  all.each([&](Follower& f) { f.context(context, packet.offset_bytes); });
}

void LegacyDecoder::State::isync(const LegacyPacket& packet) {
  const bool restarts = !started || !packet.periodic;
  started = true;
  stands = stands && !restarts;
  if (packet.after_overflow) {
    Element element;
    element.offset_bytes = packet.offset_bytes;
    all.each([&](Follower& f) { f.simple_event(EventKind::overflow, element); });
  }
  if (restarts) all.each([&](Follower& f) { f.trace_on(packet.offset_bytes); });
  context(packet);
  all.each([](Follower& f) { f.trace_info(); });
  count(packet, packet.cycles);
  if (packet.has_ip && !is_undone()) address(packet);
}

/// Adds the cycles that passed up to the moment that the packet describes.
void LegacyDecoder::State::count(const LegacyPacket& packet, uint32_t cycles) {
  if (!packet.has_cycles) return;
  Element element;
  element.offset_bytes = packet.offset_bytes;
  element.cycles = cycles;
  element.flags = kFlagCycles;
  all.each([&](Follower& f) { f.cycles(element.flags, element.cycles); });
}

void LegacyDecoder::State::branch(const LegacyPacket& packet) {
  const bool undone = is_undone();
  if (packet.has_context || packet.has_context_id || packet.has_vmid) context(packet);
  if (packet.cancels) cancel(packet);
  if (packet.exception) {
    all.each([&](Follower& f) { f.exception_here(packet.number, packet.offset_bytes); });
  } else if (config.protocol == Protocol::ptm) {
    execute(1, 1, packet.offset_bytes);  // the branch whose target is in this packet
  }
  count(packet, packet.cycles);
  if (!undone) address(packet);
}

/// Processes a branch that cancels what was traced last, which has not been executed if look_for_cancel() found the branch.
void LegacyDecoder::State::cancel(const LegacyPacket& packet) {
  const bool late = stands && cancel_at != taken;
  cancel_at = kNever;
  stands = false;
  all.each([&](Follower& f) {
    if (late) return f.lose_place(cut ? GapReason::limit : GapReason::bad_packet, packet.offset_bytes);
    f.cancelled();
  });
}

/// The flow goes on at an address. ThumbEE and Jazelle code is not read.
void LegacyDecoder::State::address(const LegacyPacket& packet) {
  all.each([&](Follower& f) {
    f.address(packet.ip, packet.mode == ExecMode::t32 ? 1 : 0, packet.offset_bytes);
    if (packet.mode == ExecMode::unknown) f.lose_place(GapReason::bad_insn, packet.offset_bytes);
  });
}

/// Executes atoms, which contradict code that has just left for an unknown target.
void LegacyDecoder::State::execute(uint64_t atoms, uint32_t count, uint64_t offset) {
  all.each([&](Follower& f) {
    if (f.placed() || f.awaits_target()) f.atoms(atoms, count, offset);
  });
}

// [ETMv3] "P-header packets, cycle-accurate": one cycle before each atom, one before a pair of atoms, or several before a single one. A
// branch reported by an atom goes to the address on the return stack. The last instruction is not executed if a later packet cancels it.
void LegacyDecoder::State::atoms(const LegacyPacket& packet) {
  const uint32_t cancelled = has_atoms(packet) && is_undone() ? 1 : 0;
  if (has_atoms(packet)) stands = cancelled == 0;
  if (packet.atoms == 0 || !packet.has_cycles) {
    execute(packet.bits, packet.atoms - cancelled, packet.offset_bytes);
    return count(packet, packet.cycles);
  }
  for (uint32_t atom = 0; atom < packet.atoms; ++atom) {
    if (atom + cancelled < packet.atoms) execute(packet.bits >> atom, 1, packet.offset_bytes);
    count(packet, packet.cycles / packet.atoms + (atom == 0 ? packet.cycles % packet.atoms : 0));
  }
}

/// Atoms and branches between an A-Sync and its I-Sync cannot be followed: see kMostUnread. An I-Sync that is not periodic begins another
/// flow than theirs.
void LegacyDecoder::State::pass_unread(const LegacyPacket& packet) {
  if (packet.kind == LegacyKind::async) {
    isync_is_lost |= unread_from != kNever;
    unread = 0;
  } else if (packet.kind == LegacyKind::isync) {
    if (unread > kMostUnread || isync_is_lost || !packet.periodic) lose_unread(packet.offset_bytes);
    unread_from = kNever;
    unread = 0;
    isync_is_lost = false;
  } else if (has_atoms(packet) || packet.kind == LegacyKind::branch || packet.kind == LegacyKind::waypoint) {
    unread_from = std::min(unread_from, packet.offset_bytes);
    ++unread;
  }
}

/// Tells that no packet up to `end` was followed.
void LegacyDecoder::State::lose_unread(uint64_t end) {
  const uint64_t from = std::exchange(unread_from, kNever);
  if (from != kNever) all.each([&](Follower& f) { f.lose(GapReason::bad_packet, from, end - from); });
}

void LegacyDecoder::State::lose(const LegacyPacket& packet) {
  if (read) lose_unread(packet.offset_bytes);  // otherwise at the first I-Sync, or at the end
  isync_is_lost = unread_from != kNever;
  unread = 0;
  if (synced) all.each([&](Follower& f) { f.lose(GapReason::bad_packet, packet.offset_bytes, 0); });
  synced = started = stands = false;
  cancel_at = kNever;
}

/// The segment ends. If no packet of it could be read, it is no trace of this kind, or its synchronisation packets are damaged.
void LegacyDecoder::State::end() {
  if (!read && size_bytes != 0) unread_from = 0;
  lose_unread(size_bytes);
  all.end();
}

void LegacyDecoder::State::take(const LegacyPacket& packet) {
  Element element;
  element.offset_bytes = packet.offset_bytes;
  element.value = packet.value;
  element.cycles = packet.cycles;
  element.flags = packet.has_cycles ? kFlagCycles : uint8_t{0};
  if (packet.kind == LegacyKind::async) synced = true;
  if (packet.kind == LegacyKind::bad) return lose(packet);
  read |= synced && (!has_flow || packet.kind == LegacyKind::isync);
  if (!synced || !has_flow) return;
  if (!started) pass_unread(packet);
  const auto event = [&](EventKind kind) { all.each([&](Follower& f) { f.simple_event(kind, element); }); };
  if (packet.kind == LegacyKind::timestamp) {
    return all.each([&](Follower& f) { f.timestamp(element.value, element.flags, element.cycles, element.offset_bytes); });
  }
  if (packet.kind == LegacyKind::isync) return isync(packet);
  // Cycles also pass before the first instruction.
  if (!started && packet.kind == LegacyKind::atoms && packet.atoms == 0) count(packet, packet.cycles);
  if (!started) return;
  switch (packet.kind) {
    case LegacyKind::branch:
      return branch(packet);
    case LegacyKind::atoms:
      return atoms(packet);
    case LegacyKind::waypoint:
      return all.each([&](Follower& f) {
        if (f.placed()) f.waypoint(packet.ip, packet.offset_bytes);
      });
    case LegacyKind::context_id:
    case LegacyKind::vmid:
      return context(packet);
    case LegacyKind::cycles:
      return all.each([&](Follower& f) { f.cycles(element.flags, element.cycles); });
    case LegacyKind::trigger:
      return event(EventKind::trace_event);
    case LegacyKind::exception_return:
      if (!is_undone()) event(EventKind::exception_return);
      return;
    default:
      return;
  }
}

// [ETMv3] "Data aborts": of a cancelling exception, "the last instruction traced before this branch" did not run. [ETMv3] "Tracing of
// exception return": a return may be cancelled, too. On the M profile only its packet is, because the instruction has run ([Cortex-M3]
// "Exception return").
/// Finds the packet that cancels what the next packet tells last, so that it is never executed.
void LegacyDecoder::State::look_for_cancel() {
  const LegacyPacket& next = tape[at];
  const bool is_return = next.kind == LegacyKind::exception_return && config.m_profile;
  if (config.protocol != Protocol::etmv3 || !started || (!has_atoms(next) && !is_return)) return;
  cancel_at = kNever;
  cut = false;
  for (uint64_t ahead = 1; ahead <= kMostAhead; ++ahead) {
    const LegacyPacket* packet = peek(ahead);
    if (packet == nullptr || confirms(*packet, config.m_profile)) return;
    if (packet->kind != LegacyKind::branch || !packet->cancels) continue;
    cancel_at = taken + ahead;
    return;
  }
  cut = true;
}

LegacyDecoder::LegacyDecoder(const Timeline& timeline, const ContextTrack& contexts, const TraceConfig& config,
                             const FollowOptions& options)
    : state_(std::make_unique<State>(timeline, contexts, config, options)) {}
LegacyDecoder::~LegacyDecoder() = default;

void LegacyDecoder::begin(const AuxSegment& segment) {
  State& state = *state_;
  state.has_flow = state.config.protocol == Protocol::etmv3 || state.config.protocol == Protocol::ptm;
  state.size_bytes = segment.bytes.size();
  state.all.begin(segment, {}, nullptr);
  state.reader = LegacyReader(segment.bytes, state.config);
  state.tape.clear();
  state.at = 0;
  static_cast<LegacyPosition&>(state) = {};
  state.windows.begin();
}

void LegacyDecoder::State::drop_taken() {
  tape.erase(tape.begin(), tape.begin() + static_cast<std::ptrdiff_t>(at));
  at = 0;
}

LegacyDecoder::State::Place LegacyDecoder::State::place() {
  drop_taken();
  return {all.only(), *this};
}

void LegacyDecoder::State::go_to(const Place& place) {
  all.only() = place.follower;
  at = 0;
  static_cast<LegacyPosition&>(*this) = place.position;
}

/// Returns the packet `ahead` places after the next one; null after the end.
const LegacyPacket* LegacyDecoder::State::peek(uint64_t ahead) {
  while (at + ahead >= tape.size()) {
    if (!runs.changes()) drop_taken();
    const std::vector<LegacyPacket>& more = reader.next();
    if (more.empty()) return nullptr;
    tape.insert(tape.end(), more.begin(), more.end());
  }
  return &tape[at + ahead];
}

TraceStop LegacyDecoder::State::run(BatchTarget target, uint64_t end) {
  if (all.takes_forks()) drop_taken();
  all.into(target);
  while (!target.is_full()) {
    if (peek() == nullptr) {
      this->end();
      return TraceStop::end;
    }
    if (taken >= end || all.met_fork()) return TraceStop::bound;
    look_for_cancel();
    take(tape[at]);
    ++at;
    ++taken;
  }
  return TraceStop::full;
}

bool LegacyDecoder::fill(Batch& batch, size_t batch_blocks) { return state_->windows.fill({batch, batch_blocks}); }

const BlockTable& LegacyDecoder::blocks() const { return state_->runs.blocks(); }

}  // namespace ptd::arm
