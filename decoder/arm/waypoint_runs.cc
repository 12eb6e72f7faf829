// RunCache: fetches instructions in windows, classifies them one by one and interns them as blocks.
#include "decoder/arm/waypoint_runs.h"

#include <algorithm>
#include <cstring>

#include "decoder/block_rules.h"

namespace ptd::arm {
namespace {

constexpr unsigned kMostBadInRow = 4096;
constexpr size_t kFirstSlots = 128;
constexpr uint32_t kManyRuns = 1U << 14;  // up to this number, large allocation steps are cheaper
constexpr size_t kCandidates = 16;        // maximum number of versions per fetch
constexpr size_t kMostCandidates = 256;   // maximum number if that is not enough

uint32_t waypoints_of(WaypointRules rules) {
  if (rules.every) return ~uint32_t{0};
  const auto bit = [](ArmClass cls, bool is_waypoint) { return uint32_t{is_waypoint} << static_cast<unsigned>(cls); };
  return bit(ArmClass::direct, true) | bit(ArmClass::indirect, true) | bit(ArmClass::isb, true) | bit(ArmClass::barrier, rules.barriers) |
         bit(ArmClass::wait, rules.wait) | bit(ArmClass::tstart, rules.transactions);
}

// Way is composed of two bits: indirect, and link.
static_assert(static_cast<int>(Way::on) == 0 && static_cast<int>(Way::call) == 1 && static_cast<int>(Way::indirect) == 2 &&
              static_cast<int>(Way::indirect_call) == 3);

/// Returns what a taken branch does if it stays in its instruction set.
Way way_of(const ArmInsn& branch) { return static_cast<Way>((branch.cls == ArmClass::indirect ? 2 : 0) + (branch.link ? 1 : 0)); }

/// Derives all of `step` from `run`.
inline void tell_step(const WaypointRun& run, Step& step) {
  step.ip = run.ip;
  step.end = run.end;
  step.certain = run.certain;
  step.space = run.space;
  step.mode = run.mode;
  step.next = {};
  if (run.stop != RunStop::waypoint) {
    const bool no_code = run.stop == RunStop::no_image && run.instructions == 0;
    step.blocks = {};
    if (no_code) step.blocks[0].node = run.section;
    step.way.fill(no_code ? Way::no_code : Way::other);
    step.branch = false;
    return;
  }
  const bool direct = run.last.cls == ArmClass::direct;
  step.branch = direct || run.last.cls == ArmClass::indirect;
  const auto not_taken = static_cast<uint16_t>(run.block_flags | static_cast<uint16_t>(BlockFlag::ends_in_branch));
  const auto taken = static_cast<uint16_t>(not_taken | static_cast<uint16_t>(BlockFlag::taken));
  step.blocks = {{{run.node, run.instructions, not_taken}, {run.node, run.instructions, step.branch ? taken : run.block_flags}}};
  const bool may_pass = run.conditional || !step.branch || (direct && run.target == run.end);
  const bool stays = !direct || run.target_mode == run.mode;
  step.way[0] = may_pass && !run.has_bad ? Way::on : Way::other;
  step.way[1] = stays && !run.has_bad ? way_of(run.last) : Way::other;
}

}  // namespace

RunCache::RunCache(const Timeline& timeline, WaypointRules rules, bool own_upper)
    : timeline_(timeline),
      view_(timeline),
      rules_(rules),
      waypoints_(waypoints_of(rules)),
      own_upper_(own_upper),
      changes_(timeline.has_versions()),
      slots_(kFirstSlots) {
  runs_.resize(kFirstSlots / 2);
  steps_.resize(kFirstSlots / 2);
  runs_[0] = {};
  steps_[0] = {};
  run_count_ = 1;
}

SectionId RunCache::section_at(SpaceId space, Ip ip, Interval when) {
  space = home(space, ip);
  const TimeNs middle{when.first.value + (when.last.value - when.first.value) / 2};
  if (const Stretch* stretch = stretch_at(space, ip, {middle, middle})) return stretch->code.section;
  if (const Hole* hole = hole_at(space, ip, {middle, middle})) return hole->code.section;
  return timeline_.section_at(space, place(ip), middle);
}

/// Returns the cached stretch that contains `ip`, or null. `space`: kKernelSpace for the kernel half.
const RunCache::Stretch* RunCache::stretch_at(SpaceId space, Ip ip, Interval when) {
  for (size_t i = 0; i < kStretches; ++i) {
    const size_t at = (stretch_ + i) % kStretches;
    const Stretch& stretch = stretches_[at];
    if (!stretch.holds(space, ip, when)) continue;
    stretch_ = at;
    return &stretch;
  }
  return nullptr;
}

/// Same, but looks in the timeline if needed. Null: fetch() must read the code.
const RunCache::Stretch* RunCache::look_up_stretch(SpaceId space, Ip ip, Interval when) {
  if (const Stretch* stretch = stretch_at(space, ip, when); stretch != nullptr || changes_) return stretch;
  if (hole_at(space, ip, when) != nullptr) return nullptr;
  const PlainCode code = view_.plain(space, place(ip), when);
  return code.bytes.empty() ? nullptr : keep_stretch(space, ip, code);
}

/// Caches a stretch, replacing one other than the last used.
const RunCache::Stretch* RunCache::keep_stretch(SpaceId space, Ip ip, const PlainCode& code) {
  stretch_ = (stretch_ + kStretches - 1) % kStretches;
  Stretch& stretch = stretches_[stretch_];
  stretch = {space, Ip{ip.value - code.before_bytes}, code, block_flags_of(code.flags)};
  stretch.code.bytes = {code.bytes.data() - code.before_bytes, code.bytes.size() + code.before_bytes};
  return &stretch;
}

const RunCache::Hole* RunCache::hole_at(SpaceId space, Ip ip, Interval when) {
  for (size_t i = 0; i < kStretches; ++i) {
    const size_t at = (hole_ + i) % kStretches;
    if (!holes_[at].holds(space, place(ip), when)) continue;
    hole_ = at;
    return &holes_[at];
  }
  return nullptr;
}

/// Returns true if there is certainly no code at run.end.
bool RunCache::is_hole(const Request& request, WaypointRun& run) {
  const SpaceId space = home(request.space, run.end);
  const Hole* hole = hole_at(space, run.end, request.when);
  if (hole == nullptr) {
    const NoCode code = view_.no_code(space, place(run.end), request.when);
    if (!code.covers(place(run.end), request.when)) return false;
    hole_ = (hole_ + kStretches - 1) % kStretches;
    holes_[hole_] = {space, code};
    hole = &holes_[hole_];
  }
  run.section = hole->code.section;
  run.certain = intersect(run.certain, hole->code.when);
  return true;
}

/// Returns true if the window contains the bytes of a maximum-length instruction at `ip`.
bool RunCache::at_hand(Ip ip) const {
  const uint64_t skip = ip - window_ip_;
  return skip <= window_.size() && window_.size() - skip >= kArmFetchBytes;
}

/// Saves the current piece before the window changes.
void RunCache::keep_piece() {
  bytes_.insert(bytes_.end(), piece_.begin(), piece_.end());
  piece_ = {};
}

/// Sets the window to a cached stretch if it contains `ip`.
bool RunCache::fetch_plain(const Request& request, Ip ip) {
  const Stretch* stretch = stretch_at(home(request.space, ip), ip, request.when);
  if (stretch == nullptr || stretch->code.bytes.size() - (ip - stretch->ip) < kArmFetchBytes) return false;
  window_ = stretch->code.bytes.subspan(ip - stretch->ip);
  window_ip_ = ip;
  window_certain_ = stretch->code.certain;
  window_flags_ = stretch->block_flags;
  window_chosen_ = false;
  return true;
}

// Makes window_ hold the bytes at run.end. Returns false with the reason in run.stop. The result does not depend on earlier fetches.
bool RunCache::fetch(const Request& request, WaypointRun& run, CandidateChooser& chooser) {
  if (at_hand(run.end)) return true;
  keep_piece();
  if (fetch_plain(request, run.end)) return true;
  if (is_hole(request, run)) {
    run.stop = RunStop::no_image;
    return false;
  }
  if (candidates_.empty()) candidates_.resize(kCandidates);
  const Interval when = chooser.narrowed(request.when);
  const auto ask = [&](unsigned span, size_t most = kCandidates) {
    return view_.fetch(request.space, place(run.end), when, chooser.floors(), std::span(candidates_).first(most), span);
  };
  FetchResult result = ask(kArmFetchBytes);
  if (result.status == FetchStatus::too_many && result.count == kCandidates) {
    candidates_.resize(kMostCandidates);
    result = ask(kArmFetchBytes, kMostCandidates);
  }
  if (result.status == FetchStatus::too_many) {
    run.stop = RunStop::too_many;
    run.section = result.section;
    run.certain = {kTimeMax, kTimeMin};  // a shorter interval may have fewer
    return false;
  }
  if (result.status != FetchStatus::ok || result.count == 0) {
    run.stop = RunStop::no_image;
    run.section = result.section;
    // Reached versions rule others out in this flow only.
    run.certain = chooser.floors().empty() ? intersect(run.certain, when) : Interval{kTimeMax, kTimeMin};
    return false;
  }
  const std::span<const CodeCandidate> found(candidates_.data(), std::min<size_t>(result.count, candidates_.size()));
  window_ip_ = run.end;
  window_flags_ = 0;
  window_chosen_ = found.size() > 1;
  if (window_chosen_) {
    const CodeChoice choice = chooser.choose({run.end, request.mode, when, request.through_branches, found});
    copy(found[choice.index], choice.size_bytes);
    window_flags_ |= choice.block_flags;
    return true;
  }
  copy(found[0], kArmFetchBytes);
  if (found[0].site == kNoSite) {  // probably a long stretch with a single content, which needs no further fetches
    const PlainCode plain = view_.plain(request.space, place(run.end), request.when);
    if (plain.bytes.size() >= kArmFetchBytes) {
      keep_stretch(home(request.space, run.end), run.end, plain);
      return fetch_plain(request, run.end);
    }
  }
  const FetchResult more = ask(kWindowBytes);  // unless later changing code gives it several contents
  if (more.status == FetchStatus::ok && more.count == 1) {
    window_flags_ = 0;
    copy(candidates_[0], kWindowBytes);
  }
  return true;
}

/// Sets the window to the first bytes of a candidate.
void RunCache::copy(const CodeCandidate& from, unsigned most_bytes) {
  const size_t size = std::min<size_t>(from.bytes.size(), most_bytes);
  std::copy_n(from.bytes.begin(), size, copied_.begin());
  window_ = Bytes(copied_).first(size);
  window_certain_ = from.certain;
  window_flags_ |= block_flags_of(from.flags);
}

/// Appends instructions from the window to the run.
void RunCache::take(WaypointRun& run, uint64_t instructions, uint64_t size_bytes, uint64_t last_bytes) {
  const uint64_t skip = run.end - window_ip_;
  if (piece_.empty()) {
    piece_ = window_.subspan(skip, size_bytes);
    run.certain = intersect(run.certain, window_certain_);
    run.block_flags |= window_flags_;
    run.chosen |= window_chosen_;
  } else {
    piece_ = {piece_.data(), piece_.size() + size_bytes};
  }
  run.instructions = static_cast<uint16_t>(run.instructions + instructions);
  run.end = run.end + size_bytes;
  run.last_ip = Ip{run.end.value - last_bytes};
}

/// Appends instructions whose class does not matter. Returns false if there are none.
bool RunCache::pass_plain(const Request& request, WaypointRun& run, Reading& reading) {
  Bytes bytes = window_.subspan(run.end - window_ip_);
  if (request.has_stop && request.stop >= run.end) bytes = bytes.first(std::min<uint64_t>(bytes.size(), request.stop - run.end));
  if (request.mode != ExecMode::a64) bytes = bytes.first(std::min<uint64_t>(bytes.size(), (uint64_t{1} << 32) - run.end.value));
  const uint64_t most = request.most - run.instructions;
  const ArmStretch stretch = request.through_branches ? sound_stretch(bytes, request.mode, most) : plain_stretch(bytes, request.mode, most);
  if (stretch.instructions == 0) return false;
  take(run, stretch.instructions, stretch.size_bytes, stretch.last_bytes);
  run.last = {ArmClass::other, ArmDetail::none, static_cast<uint8_t>(stretch.last_bytes)};
  reading.bad_in_row = 0;
  reading.it_left -= static_cast<unsigned>(std::min<uint64_t>(reading.it_left, stretch.instructions));
  return true;
}

/// Appends the next instruction. Returns false if the run ends.
bool RunCache::take_one(const Request& request, WaypointRun& run, Reading& reading) {
  const ArmInsn insn = classify_arm(window_.subspan(run.end - window_ip_), request.mode);
  // An invalid encoding may still be an implementation-defined instruction; a long sequence of them is not code.
  const bool bad = insn.cls == ArmClass::bad && reading.it_left == 0;
  reading.bad_in_row = bad ? reading.bad_in_row + 1 : 0;
  if (insn.length_bytes == 0 || reading.bad_in_row > kMostBadInRow) {
    run.stop = insn.length_bytes == 0 ? RunStop::no_image : RunStop::bad_insn;
    run.section = section_at(request.space, run.end, request.when);
    // This follows from the bytes that are there, and at another time there may be more.
    run.certain = intersect(run.certain, window_certain_);
    run.chosen = run.chosen || window_chosen_;
    return false;
  }
  if (bad && !run.has_bad) {
    run.has_bad = true;
    run.bad_ip = run.end;
  }
  take(run, 1, insn.length_bytes, insn.length_bytes);
  run.last = insn;
  if (request.mode != ExecMode::a64) run.end.value &= 0xffffffffU;
  const bool in_it = reading.it_left != 0;
  if (in_it) --reading.it_left;
  if (insn.it_instructions != 0) {
    reading.it_left = insn.it_instructions;
    reading.saw_it = true;
  }
  if (!is_waypoint(insn) || request.through_branches) return true;
  // Until an IT was seen, up to four instructions may belong to an IT before the run.
  const bool it_unknown = request.mode == ExecMode::t32 && !reading.saw_it && run.instructions <= 4;
  run.conditional = insn.conditional || in_it || it_unknown;
  run.stop = RunStop::waypoint;
  if (insn.cls == ArmClass::direct) {
    run.target = arm_target(insn, run.last_ip, request.mode);
    run.target_mode = arm_target_mode(insn, request.mode);
  }
  return false;
}

bool RunCache::ends_here(const Request& request, WaypointRun& run) {
  const bool stops = request.stop_is_last ? run.instructions != 0 && run.last_ip == request.stop : run.end == request.stop;
  if (request.has_stop && stops) {
    run.stop = RunStop::stop;
    return true;
  }
  if (run.instructions < request.most) return false;
  run.stop = RunStop::cut;
  return true;
}

void RunCache::intern(WaypointRun& run) {
  if (run.instructions == 0) return;
  if (!bytes_.empty()) keep_piece();
  const Bytes bytes = bytes_.empty() ? piece_ : Bytes(bytes_);
  const SpaceId owner = home(run.space, run.ip);
  if (!changes_) {  // the table does not find adopted blocks
    const WaypointRun& kept = runs_[slots_[slot_of(owner, run.ip, run.mode)]];
    if (kept.instructions == run.instructions && std::ranges::equal(table_.bytes(kept.node), bytes)) {
      run.node = kept.node;
      return;
    }
  }
  run.node = table_.intern(owner, run.ip, run.mode, run.instructions, bytes);
}

void RunCache::start(const Request& request, WaypointRun& run) {
  run.ip = run.end = run.last_ip = request.ip;
  run.space = request.space;
  run.mode = run.target_mode = request.mode;
}

WaypointRun RunCache::read(const Request& request, CandidateChooser& chooser) {
  WaypointRun run;
  start(request, run);
  bytes_.clear();
  piece_ = window_ = {};
  Reading reading;
  while (!ends_here(request, run) && fetch(request, run, chooser)) {
    if (!rules_.every && pass_plain(request, run, reading) && (!at_hand(run.end) || ends_here(request, run))) continue;
    if (!take_one(request, run, reading)) break;
  }
  intern(run);
  return run;
}

/// Returns the first waypoint of A64 code and sets `waypoint` to it. Null: use read().
inline const std::byte* RunCache::find_waypoint(Bytes code, ArmInsn& waypoint) const {
  const std::byte* at = code.data();
  const std::byte* const end = at + 4 * std::min<uint64_t>(code.size() / 4, kMostInstructions);
  for (; at != end; at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, at, 4);
    if (is_plain_a64(word)) continue;
    waypoint = classify_a64(word);
    if (is_waypoint(waypoint)) return at;
    if (waypoint.cls == ArmClass::bad) break;
  }
  return nullptr;
}

/// Returns the run at `slot`; if there is none, a new one for the caller to fill in.
inline uint32_t RunCache::run_at(SpaceId space, Ip ip, ExecMode mode, size_t slot) {
  if (slots_[slot] != 0) return slots_[slot];
  if (run_count_ == steps_.size()) {
    grow();
    slot = slot_of(space, ip, mode);
  }
  return slots_[slot] = run_count_++;
}

void RunCache::grow() {
  slots_.assign(slots_.size() * (run_count_ < kManyRuns ? 8 : 4), 0);
  runs_.resize(slots_.size() / 2);
  steps_.resize(slots_.size() / 2);
  const size_t mask = slots_.size() - 1;
  for (uint32_t index = 1; index < run_count_; ++index) {
    const Step& step = steps_[index];
    if (index == hole_run_) continue;
    size_t slot = hash_of(step.space, step.ip, step.mode) & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = index;
  }
}

/// Reads the run at `ip` into `slot`. Handles most runs: A64, ending in a waypoint, in plain code. Leaves all others to read_new().
uint32_t RunCache::find_new(SpaceId space, Ip ip, ExecMode mode, Interval when, CandidateChooser& chooser, size_t slot) {
  const auto read_it = [&] { return read_new(space, ip, mode, when, chooser, slot); };
  if (mode != ExecMode::a64 || rules_.every) return read_it();
  const Stretch* stretch = &stretches_[stretch_];
  if (!stretch->holds(space, ip, when)) stretch = look_up_stretch(space, ip, when);
  if (stretch == nullptr) return read_it();
  const Bytes code = stretch->code.bytes.subspan(ip - stretch->ip);
  ArmInsn waypoint;
  const std::byte* const last = find_waypoint(code, waypoint);
  if (last == nullptr) return read_it();
  const auto size = static_cast<uint32_t>(last - code.data()) + 4;
  const auto instructions = static_cast<uint16_t>(size / 4);
  // If code changes, the same block may be read again.
  const NodeId node = changes_ ? table_.intern(space, ip, mode, instructions, code.first(size))
                               : table_.adopt({ip, space, mode, instructions, size, code.data()});
  const uint32_t index = run_at(space, ip, mode, slot);
  const Ip last_ip = ip + (size - 4);
  WaypointRun& run = runs_[index];
  run = {.ip = ip,
         .end = ip + size,
         .space = space,
         .mode = mode,
         .target_mode = mode,
         .stop = RunStop::waypoint,
         .instructions = instructions,
         .block_flags = stretch->block_flags,
         .node = node,
         .last = waypoint,
         .last_ip = last_ip,
         .target = waypoint.cls == ArmClass::direct ? arm_target(waypoint, last_ip, mode) : Ip{},
         .conditional = waypoint.conditional,
         .certain = stretch->code.certain};
  tell_step(run, steps_[index]);
  return index;
}

uint32_t RunCache::read_new(SpaceId space, Ip ip, ExecMode mode, Interval when, CandidateChooser& chooser, size_t slot) {
  WaypointRun run = read({.space = space, .ip = ip, .mode = mode, .when = when, .stop = {}}, chooser);
  if (run.chosen) run.certain = {kTimeMax, kTimeMin};
  uint32_t index = hole_run_;
  // Runs without code share one entry, because a trace may contain any number of addresses without code.
  const bool hole = slots_[slot] == 0 && run.stop == RunStop::no_image && run.instructions == 0 && !run.chosen;
  if (!hole) {
    index = run_at(space, ip, mode, slot);
  } else if (index == 0) {
    if (run_count_ == steps_.size()) grow();
    index = hole_run_ = run_count_++;
  }
  runs_[index] = run;
  tell_step(run, steps_[index]);
  return index;
}

WaypointRun RunCache::read_to(SpaceId space, Ip ip, ExecMode mode, Interval when, Ip stop, bool through_branches,
                              CandidateChooser& chooser) {
  return read({.space = home(space, ip),
               .ip = ip,
               .mode = mode,
               .when = when,
               .has_stop = true,
               .stop = stop,
               .through_branches = through_branches},
              chooser);
}

WaypointRun RunCache::read_through(SpaceId space, Ip ip, ExecMode mode, Interval when, Ip last, bool through_branches,
                                   CandidateChooser& chooser) {
  return read({.space = home(space, ip),
               .ip = ip,
               .mode = mode,
               .when = when,
               .has_stop = true,
               .stop = last,
               .through_branches = through_branches,
               .stop_is_last = true},
              chooser);
}

WaypointRun RunCache::read_some(SpaceId space, Ip ip, ExecMode mode, Interval when, uint64_t most, CandidateChooser& chooser) {
  return read({.space = home(space, ip), .ip = ip, .mode = mode, .when = when, .stop = {}, .most = std::min(most, kMostInstructions)},
              chooser);
}

}  // namespace ptd::arm
