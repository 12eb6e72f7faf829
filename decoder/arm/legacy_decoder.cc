// LegacyDecoder: passes packets to the follower.
#include "decoder/arm/legacy_decoder.h"

#include <algorithm>
#include <array>

#include "decoder/arm/choices.h"
#include "decoder/arm/choices_decide.h"
#include "decoder/arm/packet/legacy_packets.h"

namespace ptd::arm {
namespace {

constexpr uint32_t kReturnStackOfPtm = 1U << 29;      // ETMCR
constexpr uint32_t kBarriersAreWaypoints = 1U << 24;  // ETMCCER
constexpr size_t kHeldBlocks = 1U << 16;
constexpr uint32_t kMaxTries = 64;
// Versions are chosen for one window of packets at a time: up to the next I-Sync after kLeastInWindow packets, but at most kMostInWindow
// packets, or until kForksOfWindow forks are passed. An attempt is checked beyond the window, for up to kForksSeen forks in total.
constexpr uint64_t kLeastInWindow = 256, kMostInWindow = 1U << 14;
constexpr size_t kForksOfWindow = 20, kForksSeen = 40;

WaypointRules rules_of(const TraceConfig& config) {
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
      : config(given),
        runs(timeline, rules_of(given), options.own_upper),
        follower(runs, contexts, follower_config(given), options),
        reader({}, given) {}

  /// A position in the segment that a walk can return to.
  struct Place {
    Follower follower;
    size_t at;
    uint64_t in_window;
    bool synced, started, may_cancel, read;
  };
  [[nodiscard]] Place place() const { return {follower, at, in_window, synced, started, may_cancel, read}; }
  void go_to(const Place& place);

  enum class Stop : uint8_t { full, window, end };
  Stop run(BatchTarget target);
  [[nodiscard]] bool is_full(BatchTarget target) const;
  [[nodiscard]] Try walk(const Place& from, uint64_t watch_from);
  bool fill(BatchTarget target);
  void begin_window();
  [[nodiscard]] bool ends_window(const LegacyPacket& packet, size_t most_forks) const {
    if (may_cancel && packet.kind == LegacyKind::branch) return false;  // the packet may cancel a block that was already output
    return in_window >= kMostInWindow || choices.passed() >= most_forks ||
           (in_window >= kLeastInWindow && packet.kind == LegacyKind::isync);
  }
  const LegacyPacket* peek();
  void take_next();

  void take(const LegacyPacket& packet);
  void isync(const LegacyPacket& packet);
  void branch(const LegacyPacket& packet);
  void atoms(const LegacyPacket& packet);
  void count(const LegacyPacket& packet, uint32_t cycles);
  void context(const LegacyPacket& packet);
  void lose(const LegacyPacket& packet);
  void end();

  TraceConfig config;
  RunCache runs;
  Follower follower;
  LegacyReader reader;
  Choices choices;
  bool decided = false;            ///< the versions for this window are chosen
  std::vector<LegacyPacket> tape;  ///< packets read; if code has several versions, those of the batch and those read ahead
  size_t at = 0;                   ///< index of the next packet in the tape
  uint64_t in_window = 0;          ///< packets taken in this window
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
  follower.context(context, packet.offset_bytes);
}

void LegacyDecoder::State::isync(const LegacyPacket& packet) {
  const bool restarts = !started || !packet.periodic;
  started = true;
  if (packet.after_overflow) {
    Element element;
    element.offset_bytes = packet.offset_bytes;
    follower.simple_event(EventKind::overflow, element);
  }
  if (restarts) follower.trace_on(packet.offset_bytes);
  context(packet);
  follower.trace_info();
  count(packet, packet.cycles);
  if (packet.has_ip) follower.address(packet.ip, packet.mode == ExecMode::t32 ? 1 : 0, packet.offset_bytes);
}

/// Adds the cycles that passed up to the moment that the packet describes.
void LegacyDecoder::State::count(const LegacyPacket& packet, uint32_t cycles) {
  if (!packet.has_cycles) return;
  Element element;
  element.offset_bytes = packet.offset_bytes;
  element.cycles = cycles;
  element.flags = kFlagCycles;
  follower.cycles(element.flags, element.cycles);
}

void LegacyDecoder::State::branch(const LegacyPacket& packet) {
  if (packet.has_context || packet.has_context_id || packet.has_vmid) context(packet);
  if (packet.exception) {
    follower.exception_here(packet.number, packet.cancels, packet.offset_bytes);
  } else if (packet.cancels) {
    follower.cancel_last();
  } else if (config.protocol == Protocol::ptm && follower.placed()) {
    follower.atoms(1, 1, packet.offset_bytes);  // the branch whose target is in this packet
  }
  count(packet, packet.cycles);
  follower.address(packet.ip, packet.mode == ExecMode::t32 ? 1 : 0, packet.offset_bytes);
}

// [ETMv3] "P-header packets, cycle-accurate": one cycle before each atom, one before a pair of atoms, or several before a single one. A
// branch reported by an atom goes to the address on the return stack.
void LegacyDecoder::State::atoms(const LegacyPacket& packet) {
  if (packet.atoms == 0 || !packet.has_cycles) {
    if (follower.placed()) follower.atoms(packet.bits, packet.atoms, packet.offset_bytes);
    return count(packet, packet.cycles);
  }
  for (uint32_t atom = 0; atom < packet.atoms; ++atom) {
    if (follower.placed()) follower.atoms(packet.bits >> atom, 1, packet.offset_bytes);
    count(packet, packet.cycles / packet.atoms + (atom == 0 ? packet.cycles % packet.atoms : 0));
  }
}

void LegacyDecoder::State::lose(const LegacyPacket& packet) {
  if (synced) follower.lose(GapReason::bad_packet, packet.offset_bytes, 0);
  synced = started = false;
}

/// The segment ends. If no packet of it could be read, it is no trace of this kind, or its synchronisation packets are damaged.
void LegacyDecoder::State::end() {
  if (!read && size_bytes != 0) follower.lose(GapReason::bad_packet, 0, size_bytes);
  follower.end();
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
  if (packet.kind == LegacyKind::timestamp) return follower.timestamp(element.value, element.flags, element.cycles);
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
      if (follower.placed()) follower.waypoint(packet.ip, packet.offset_bytes);
      return;
    case LegacyKind::context_id:
    case LegacyKind::vmid:
      return context(packet);
    case LegacyKind::cycles:
      return follower.cycles(element.flags, element.cycles);
    case LegacyKind::trigger:
      return follower.simple_event(EventKind::trace_event, element);
    case LegacyKind::exception_return:
      return follower.simple_event(EventKind::exception_return, element);
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
  state.begin_window();
  state.follower.begin(segment, state.choices);
  state.reader = LegacyReader(segment.bytes, state.config);
  state.tape.clear();
  state.at = 0;
  state.synced = state.started = state.may_cancel = state.read = false;
}

void LegacyDecoder::State::begin_window() {
  runs.begin_walk();
  choices.forget_behind(0);
  choices.restart();
  decided = !runs.changes();
  in_window = 0;
}

void LegacyDecoder::State::go_to(const Place& place) {
  runs.begin_walk();
  follower = place.follower;
  at = place.at;
  in_window = place.in_window;
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

void LegacyDecoder::State::take_next() {
  take(tape[at]);
  ++at;
  ++in_window;
}

/// Returns whether the batch is full. A last instruction that an exception may undo stays in the batch until the next packet is seen.
bool LegacyDecoder::State::is_full(BatchTarget target) const {
  if (may_cancel) target.most += kHeldBlocks;
  return target.is_full();
}

LegacyDecoder::State::Stop LegacyDecoder::State::run(BatchTarget target) {
  follower.into(target);
  while (!is_full(target)) {
    const LegacyPacket* packet = peek();
    if (packet == nullptr) return Stop::end;
    if (runs.changes() && ends_window(*packet, kForksOfWindow)) return Stop::window;
    take_next();
  }
  return Stop::full;
}

/// Walks to the window's end, including the packet that ends it, only to find the first packet that does not fit the code. The output is
/// dropped.
Try LegacyDecoder::State::walk(const Place& from, uint64_t watch_from) {
  go_to(from);
  follower.watch_from(watch_from);
  Batch unseen;
  const BatchTarget target{unseen, kDefaultBatchBlocks};
  follower.into(target);
  for (bool last = false; !last && follower.trouble_offset() == ~uint64_t{0};) {
    const LegacyPacket* packet = peek();
    if (packet == nullptr) break;
    last = ends_window(*packet, kForksSeen);
    take_next();
    if (is_full(target)) unseen.clear();
  }
  return {follower.trouble_offset(), follower.trouble_forks()};
}

bool LegacyDecoder::State::fill(BatchTarget target) {
  Batch& batch = target.batch;
  tape.erase(tape.begin(), tape.begin() + static_cast<std::ptrdiff_t>(at));
  at = 0;
  const Place before = place();
  const std::array<size_t, 4> sizes = {batch.blocks.size(), batch.marks.size(), batch.events.size(), batch.gaps.size()};
  Stop stop = run(target);
  if (!decided && choices.passed() != 0) {
    // Without a fork there is nothing to choose.
    batch.blocks.resize(sizes[0]);
    batch.marks.resize(sizes[1]);
    batch.events.resize(sizes[2]);
    batch.gaps.resize(sizes[3]);
    decide(choices, kMaxTries, [&](uint64_t watch_from) { return walk(before, watch_from); });
    decided = true;
    go_to(before);
    stop = run(target);
  }
  if (stop == Stop::end) end();
  if (stop == Stop::window) begin_window();
  return stop != Stop::end;
}

bool LegacyDecoder::fill(Batch& batch, size_t batch_blocks) { return state_->fill({batch, batch_blocks}); }

const BlockTable& LegacyDecoder::blocks() const { return state_->runs.blocks(); }

}  // namespace ptd::arm
