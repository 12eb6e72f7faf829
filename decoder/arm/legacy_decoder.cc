// LegacyDecoder: packets to the follower.
#include "decoder/arm/legacy_decoder.h"

#include "decoder/arm/legacy_packets.h"

namespace ptd::arm {
namespace {

constexpr uint32_t kReturnStackOfPtm = 1U << 29;      // ETMCR
constexpr uint32_t kBarriersAreWaypoints = 1U << 24;  // ETMCCER
constexpr size_t kHeldBlocks = 1U << 16;

WaypointRules rules_of(const TraceConfig& config) {
  WaypointRules rules;
  rules.every = config.protocol == Protocol::etmv3;
  rules.barriers = config.protocol == Protocol::ptm && (config.idr1 & kBarriersAreWaypoints) != 0;
  return rules;
}

/// The follower asks TRCCONFIGR for the return stack.
TraceConfig follower_config(TraceConfig config) {
  const bool stack = config.protocol == Protocol::ptm && (config.configr & kReturnStackOfPtm) != 0;
  config.configr = stack ? 0x1000 : 0;
  return config;
}

class FirstChooser final : public CandidateChooser {
 public:
  size_t choose(Ip, SpaceId, std::span<const CodeCandidate> candidates, uint16_t& block_flags) override {
    block_flags |= static_cast<uint16_t>(BlockFlag::ambiguous);
    return candidates.size() - 1;
  }
};

}  // namespace

struct LegacyDecoder::State {
  State(const Timeline& timeline, const ContextTrack& contexts, const TraceConfig& given, const FollowOptions& options)
      : config(given), runs(timeline, rules_of(given)), follower(runs, contexts, follower_config(given), options), reader({}, given) {}

  void take(const LegacyPacket& packet);
  void isync(const LegacyPacket& packet);
  void branch(const LegacyPacket& packet);
  void atoms(const LegacyPacket& packet);
  void count(const LegacyPacket& packet, uint32_t cycles);
  void context(const LegacyPacket& packet);
  void lose(const LegacyPacket& packet);

  TraceConfig config;
  RunCache runs;
  Follower follower;
  LegacyReader reader;
  FirstChooser chooser;
  const std::vector<LegacyPacket>* packets = nullptr;
  size_t at = 0;
  bool synced = false;      ///< an A-Sync was seen
  bool started = false;     ///< an I-Sync was seen since
  bool may_cancel = false;  ///< the last packet gave instructions that an exception can undo
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

/// Cycles that passed until what the packet told had happened.
void LegacyDecoder::State::count(const LegacyPacket& packet, uint32_t cycles) {
  if (!packet.has_cycles) return;
  Element element;
  element.offset_bytes = packet.offset_bytes;
  element.cycles = cycles;
  element.flags = kFlagCycles;
  follower.cycles(element);
}

void LegacyDecoder::State::branch(const LegacyPacket& packet) {
  if (packet.has_context || packet.has_context_id || packet.has_vmid) context(packet);
  if (packet.exception) {
    follower.exception_here(packet.number, packet.cancels, packet.offset_bytes);
  } else if (packet.cancels) {
    follower.cancel_last();
  } else if (config.protocol == Protocol::ptm && follower.placed()) {
    follower.atoms(1, 1, packet.offset_bytes);  // the branch that this packet gives the target of
  }
  count(packet, packet.cycles);
  follower.redirect(packet.ip, packet.mode == ExecMode::t32 ? 1 : 0, packet.offset_bytes);
}

// [ETMv3] "P-header packets, cycle-accurate": a cycle before each atom, one before two of them, or several before the only one. A branch
// that an atom tells went where the return stack says.
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
  if (started) follower.lose(GapReason::bad_packet, packet.offset_bytes, 0);
  synced = started = false;
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
  if (!synced) return;
  if (packet.kind == LegacyKind::timestamp) return follower.timestamp(element);
  if (packet.kind == LegacyKind::isync) return isync(packet);
  // Cycles pass before the first instruction, too.
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
      return follower.cycles(element);
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
  const bool has_flow = state.config.protocol == Protocol::etmv3 || state.config.protocol == Protocol::ptm;
  state.runs.begin_walk();
  state.follower.begin(segment, state.chooser);
  state.reader = LegacyReader(has_flow ? segment.bytes : Bytes{}, state.config);
  state.packets = nullptr;
  state.at = 0;
  state.synced = state.started = state.may_cancel = false;
}

bool LegacyDecoder::next(Batch& batch) {
  State& state = *state_;
  state.follower.into(batch);
  // An exception may undo the last instruction: it stays in the batch until the next packet is seen.
  const auto full = [&] {
    const size_t blocks = batch.blocks.size();
    return (blocks >= batch.capacity_blocks && !state.may_cancel) || blocks >= batch.capacity_blocks + kHeldBlocks ||
           batch.gaps.size() >= batch.capacity_blocks || batch.events.size() >= batch.capacity_blocks;
  };
  while (!full()) {
    if (state.packets == nullptr || state.at >= state.packets->size()) {
      state.packets = &state.reader.next();
      state.at = 0;
      if (state.packets->empty()) {
        state.follower.end();
        return false;
      }
    }
    state.take((*state.packets)[state.at++]);
  }
  return true;
}

const BlockTable& LegacyDecoder::blocks() const { return state_->runs.blocks(); }

}  // namespace ptd::arm
