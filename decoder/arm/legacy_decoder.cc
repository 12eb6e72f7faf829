// LegacyDecoder: passes packets to the flows.
#include "decoder/arm/legacy_decoder.h"

#include <algorithm>

#include "decoder/arm/packet/legacy_packets.h"
#include "decoder/arm/windows.h"

namespace ptd::arm {
namespace {

constexpr uint32_t kReturnStackOfPtm = 1U << 29;      // ETMCR
constexpr uint32_t kBarriersAreWaypoints = 1U << 24;  // ETMCCER
constexpr size_t kHeldBlocks = 1U << 16;
constexpr size_t kMostFlows = 16;  // as DecoderOptions::max_flows

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

}  // namespace

struct LegacyDecoder::State {
  State(const Timeline& timeline, const ContextTrack& contexts, const TraceConfig& given, const FollowOptions& options)
      : config(given), runs(timeline, legacy_rules(given), options.own_upper),
        all(runs, contexts, follower_config(given), options, kMostFlows),
        reader({}, given) {}

  // A Trace for Windows. Its position is the number of packets taken.
  struct Place {
    Follower follower;
    uint64_t taken;
    bool synced, started, may_cancel, read;
  };
  [[nodiscard]] bool changes() const { return runs.changes(); }
  [[nodiscard]] Flows& flows() { return all; }
  [[nodiscard]] uint64_t position() const { return taken; }
  [[nodiscard]] static uint64_t copied() { return 0; }
  [[nodiscard]] Place place();
  void go_to(const Place& place);
  TraceStop run(BatchTarget target, uint64_t end);

  [[nodiscard]] bool is_full(BatchTarget target) const;
  const LegacyPacket* peek();
  void drop_taken();
  void take(const LegacyPacket& packet);
  void isync(const LegacyPacket& packet);
  void branch(const LegacyPacket& packet);
  void atoms(const LegacyPacket& packet);
  void count(const LegacyPacket& packet, uint32_t cycles);
  void context(const LegacyPacket& packet);
  void address(const LegacyPacket& packet);
  void execute(uint64_t atoms, uint32_t count, uint64_t offset);
  void lose(const LegacyPacket& packet);
  void end();

  TraceConfig config;
  RunCache runs;
  Flows all;
  LegacyReader reader;
  Windows<State> windows{*this};
  std::vector<LegacyPacket> tape;  ///< packets read: those since the last place() and those read ahead
  size_t at = 0;                   ///< index of the next packet in the tape
  uint64_t taken = 0;              ///< packets
  bool synced = false;             ///< an A-Sync was seen
  bool started = false;            ///< an I-Sync was seen after it
  bool may_cancel = false;         ///< the last packet produced instructions that an exception can undo
  bool has_flow = true;            ///< ETMv3, PTM; of the others, only invalid packets are output
  bool read = false;               ///< some packet could be read: an I-Sync, or without flow an A-Sync
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
  if (packet.after_overflow) {
    Element element;
    element.offset_bytes = packet.offset_bytes;
    all.each([&](Follower& f) { f.simple_event(EventKind::overflow, element); });
  }
  if (restarts) all.each([&](Follower& f) { f.trace_on(packet.offset_bytes); });
  context(packet);
  all.each([](Follower& f) { f.trace_info(); });
  count(packet, packet.cycles);
  if (packet.has_ip) address(packet);
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
  if (packet.has_context || packet.has_context_id || packet.has_vmid) context(packet);
  if (packet.exception) {
    all.each([&](Follower& f) { f.exception_here(packet.number, packet.cancels, packet.offset_bytes); });
  } else if (packet.cancels) {
    all.each([](Follower& f) { f.cancel_last(); });
  } else if (config.protocol == Protocol::ptm) {
    execute(1, 1, packet.offset_bytes);  // the branch whose target is in this packet
  }
  count(packet, packet.cycles);
  address(packet);
}

void LegacyDecoder::State::address(const LegacyPacket& packet) {
  all.each([&](Follower& f) { f.address(packet.ip, packet.mode == ExecMode::t32 ? 1 : 0, packet.offset_bytes); });
}

/// Executes atoms, which contradict code that has just left for an unknown target.
void LegacyDecoder::State::execute(uint64_t atoms, uint32_t count, uint64_t offset) {
  all.each([&](Follower& f) {
    if (f.placed() || f.awaits_target()) f.atoms(atoms, count, offset);
  });
}

// [ETMv3] "P-header packets, cycle-accurate": one cycle before each atom, one before a pair of atoms, or several before a single one. A
// branch reported by an atom goes to the address on the return stack.
void LegacyDecoder::State::atoms(const LegacyPacket& packet) {
  if (packet.atoms == 0 || !packet.has_cycles) {
    execute(packet.bits, packet.atoms, packet.offset_bytes);
    return count(packet, packet.cycles);
  }
  for (uint32_t atom = 0; atom < packet.atoms; ++atom) {
    execute(packet.bits >> atom, 1, packet.offset_bytes);
    count(packet, packet.cycles / packet.atoms + (atom == 0 ? packet.cycles % packet.atoms : 0));
  }
}

void LegacyDecoder::State::lose(const LegacyPacket& packet) {
  if (synced) all.each([&](Follower& f) { f.lose(GapReason::bad_packet, packet.offset_bytes, 0); });
  synced = started = false;
}

/// The segment ends. If no packet of it could be read, it is no trace of this kind, or its synchronisation packets are damaged.
void LegacyDecoder::State::end() {
  if (!read && size_bytes != 0) all.each([&](Follower& f) { f.lose(GapReason::bad_packet, 0, size_bytes); });
  all.end();
}

void LegacyDecoder::State::take(const LegacyPacket& packet) {
  Element element;
  element.offset_bytes = packet.offset_bytes;
  element.value = packet.value;
  element.cycles = packet.cycles;
  element.flags = packet.has_cycles ? kFlagCycles : uint8_t{0};
  may_cancel = packet.kind == LegacyKind::atoms;
  if (packet.kind == LegacyKind::async) synced = true;
  if (packet.kind == LegacyKind::bad) return lose(packet);
  read |= synced && (!has_flow || packet.kind == LegacyKind::isync);
  if (!synced || !has_flow) return;
  const auto event = [&](EventKind kind) { all.each([&](Follower& f) { f.simple_event(kind, element); }); };
  if (packet.kind == LegacyKind::timestamp) {
    return all.each([&](Follower& f) { f.timestamp(element.value, element.flags, element.cycles); });
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
      return event(EventKind::exception_return);
    default:
      return;
  }
}

LegacyDecoder::LegacyDecoder(const Timeline& timeline, const ContextTrack& contexts, const TraceConfig& config,
                             const FollowOptions& options)
    : state_(std::make_unique<State>(timeline, contexts, config, options)) {}
LegacyDecoder::~LegacyDecoder() = default;

void LegacyDecoder::begin(const AuxSegment& segment) {
  State& state = *state_;
  state.has_flow = state.config.protocol == Protocol::etmv3 || state.config.protocol == Protocol::ptm;
  state.size_bytes = segment.bytes.size();
  state.all.begin(segment);
  state.reader = LegacyReader(segment.bytes, state.config);
  state.tape.clear();
  state.at = 0;
  state.taken = 0;
  state.synced = state.started = state.may_cancel = state.read = false;
  state.windows.begin();
}

void LegacyDecoder::State::drop_taken() {
  tape.erase(tape.begin(), tape.begin() + static_cast<std::ptrdiff_t>(at));
  at = 0;
}

LegacyDecoder::State::Place LegacyDecoder::State::place() {
  drop_taken();
  return {all.only(), taken, synced, started, may_cancel, read};
}

void LegacyDecoder::State::go_to(const Place& place) {
  all.only() = place.follower;
  at = 0;
  taken = place.taken;
  synced = place.synced;
  started = place.started;
  may_cancel = place.may_cancel;
  read = place.read;
}

/// Returns the next packet; null at the end.
const LegacyPacket* LegacyDecoder::State::peek() {
  if (at < tape.size()) return &tape[at];
  if (!runs.changes()) {
    tape.clear();
    at = 0;
  }
  const std::vector<LegacyPacket>& more = reader.next();
  tape.insert(tape.end(), more.begin(), more.end());
  return more.empty() ? nullptr : &tape[at];
}

/// Returns whether the batch is full. A last instruction that an exception may undo stays in the batch until the next packet is seen.
bool LegacyDecoder::State::is_full(BatchTarget target) const {
  if (may_cancel) target.most += kHeldBlocks;
  return target.is_full();
}

TraceStop LegacyDecoder::State::run(BatchTarget target, uint64_t end) {
  if (all.takes_forks()) drop_taken();
  all.into(target);
  while (!is_full(target)) {
    const LegacyPacket* packet = peek();
    if (packet == nullptr) {
      this->end();
      return TraceStop::end;
    }
    const bool cancels = may_cancel && packet->kind == LegacyKind::branch;  // it may cancel a block that was already output
    if ((taken >= end && !cancels) || all.met_fork()) return TraceStop::bound;
    take(tape[at]);
    ++at;
    ++taken;
  }
  return TraceStop::full;
}

bool LegacyDecoder::fill(Batch& batch, size_t batch_blocks) { return state_->windows.fill({batch, batch_blocks}); }

const BlockTable& LegacyDecoder::blocks() const { return state_->runs.blocks(); }

}  // namespace ptd::arm
