// RunCache: instructions are fetched in windows, classified one by one, interned as blocks.
#include "decoder/arm/runs.h"

#include <algorithm>

namespace ptd::arm {
namespace {

constexpr unsigned kMostBadInRow = 4096;
constexpr size_t kFirstSlots = 128;

uint16_t flags_of(CodeFlag flags) {
  uint16_t block = 0;
  if (any(flags, CodeFlag::healed)) block |= static_cast<uint16_t>(BlockFlag::healed);
  if (any(flags, CodeFlag::suspect)) block |= static_cast<uint16_t>(BlockFlag::suspect);
  if (any(flags, CodeFlag::assumed)) block |= static_cast<uint16_t>(BlockFlag::assumed);
  return block;
}

Step step_of(const Run& run) {
  Step step;
  step.ip = run.ip;
  step.end = run.end;
  step.certain = run.certain;
  step.space = run.space;
  step.mode = run.mode;
  const bool no_code = run.stop == RunEnd::no_image && run.instructions == 0;
  step.way.fill(no_code ? Way::no_code : Way::other);
  if (no_code) step.blocks[0].node = run.section;
  if (run.stop != RunEnd::waypoint) return step;
  const bool direct = run.last.cls == ArmClass::direct, indirect = run.last.cls == ArmClass::indirect;
  step.branch = direct || indirect;
  const auto ends = static_cast<uint16_t>(BlockFlag::ends_in_branch);
  const auto not_taken = static_cast<uint16_t>(run.block_flags | ends);
  const auto taken = static_cast<uint16_t>(not_taken | static_cast<uint16_t>(BlockFlag::taken));
  step.blocks = {{{run.node, run.instructions, not_taken}, {run.node, run.instructions, step.branch ? taken : run.block_flags}}};
  if (run.has_bad) return step;
  const bool may_pass = run.conditional || !step.branch || (direct && run.target == run.end);
  if (may_pass) step.way[0] = Way::on;
  if (indirect) step.way[1] = run.last.link ? Way::indirect_call : Way::indirect;
  if (!indirect && (!direct || run.target_mode == run.mode)) step.way[1] = direct && run.last.link ? Way::call : Way::on;
  return step;
}

}  // namespace

RunCache::RunCache(const Timeline& timeline, WaypointRules rules, bool own_upper)
    : timeline_(timeline), view_(timeline), rules_(rules), own_upper_(own_upper), changes_(timeline.has_versions()), slots_(kFirstSlots) {
  runs_.reserve(kFirstSlots / 2);
  steps_.reserve(kFirstSlots / 2);
  runs_.resize(1);
  steps_.resize(1);
}

bool RunCache::is_waypoint(const ArmInsn& insn) const {
  if (rules_.every) return true;
  switch (insn.cls) {
    case ArmClass::direct:
    case ArmClass::indirect:
    case ArmClass::isb:
      return true;
    case ArmClass::barrier:
      return rules_.barriers;
    case ArmClass::wait:
      return rules_.wait;
    case ArmClass::tstart:
      return rules_.transactions;
    default:
      return false;
  }
}

SectionId RunCache::section_at(SpaceId space, Ip ip, Interval when) {
  space = home(space, ip);
  const TimeNs middle{when.first.value + (when.last.value - when.first.value) / 2};
  if (const Stretch* stretch = stretch_at(space, ip, {middle, middle})) return stretch->code.section;
  if (const Hole* hole = hole_at(space, ip, {middle, middle})) return hole->code.section;
  return timeline_.section_at(space, place(ip), middle);
}

/// The stretch that holds `ip`, if it was met before. `space`: the kernel's for its half.
const RunCache::Stretch* RunCache::stretch_at(SpaceId space, Ip ip, Interval when) {
  for (size_t i = 0; i < kStretches; ++i) {
    const size_t at = (stretch_ + i) % kStretches;
    const Stretch& stretch = stretches_[at];
    if (stretch.space != space || ip - stretch.ip >= stretch.code.bytes.size() || !stretch.code.certain.contains(when)) continue;
    stretch_ = at;
    return &stretch;
  }
  return nullptr;
}

const RunCache::Hole* RunCache::hole_at(SpaceId space, Ip ip, Interval when) {
  for (size_t i = 0; i < kStretches; ++i) {
    const size_t at = (hole_ + i) % kStretches;
    if (holes_[at].space != space || !holes_[at].code.covers(place(ip), when)) continue;
    hole_ = at;
    return &holes_[at];
  }
  return nullptr;
}

/// True if it is known that there is no code at run.end.
bool RunCache::is_hole(const Request& request, Run& run) {
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

/// True if the window holds the largest instruction at `ip`.
bool RunCache::at_hand(Ip ip) const {
  const uint64_t skip = ip - window_ip_;
  return skip <= window_.size() && window_.size() - skip >= kArmFetchBytes;
}

/// The window is about to be another.
void RunCache::keep_piece() {
  bytes_.insert(bytes_.end(), piece_.begin(), piece_.end());
  piece_ = {};
}

/// Makes the window of plain code met before, if `ip` is in it.
bool RunCache::fetch_plain(const Request& request, Ip ip) {
  const Stretch* stretch = stretch_at(home(request.space, ip), ip, request.when);
  if (stretch == nullptr || stretch->code.bytes.size() - (ip - stretch->ip) < kArmFetchBytes) return false;
  window_ = stretch->code.bytes.subspan(ip - stretch->ip);
  window_ip_ = ip;
  window_certain_ = stretch->code.certain;
  window_flags_ = flags_of(stretch->code.flags);
  window_chosen_ = false;
  return true;
}

// Makes window_ hold the bytes at run.end. False: run.stop says why not. What comes of it does not depend on what was fetched before.
bool RunCache::fetch(const Request& request, Run& run, CandidateChooser& chooser) {
  if (at_hand(run.end)) return true;
  keep_piece();
  if (fetch_plain(request, run.end)) return true;
  if (is_hole(request, run)) {
    run.stop = RunEnd::no_image;
    return false;
  }
  const auto ask = [&](unsigned span) { return view_.fetch(request.space, place(run.end), request.when, {}, candidates_, span); };
  const FetchResult result = ask(kArmFetchBytes);
  if (result.status != FetchStatus::ok || result.count == 0) {
    run.stop = RunEnd::no_image;
    run.section = result.section;
    run.certain = intersect(run.certain, request.when);
    return false;
  }
  const std::span<const CodeCandidate> found(candidates_.data(), std::min<size_t>(result.count, candidates_.size()));
  window_ip_ = run.end;
  window_flags_ = 0;
  window_chosen_ = found.size() > 1;
  if (window_chosen_) {
    copy(found[std::min(chooser.choose(run.end, request.space, found, window_flags_), found.size() - 1)], kArmFetchBytes);
    return true;
  }
  copy(found[0], kArmFetchBytes);
  if (found[0].site == kNoSite) {  // likely a long stretch with one content, of which nothing more need be asked
    const PlainCode plain = view_.plain(request.space, place(run.end), request.when);
    if (plain.bytes.size() >= kArmFetchBytes) {
      stretch_ = (stretch_ + kStretches - 1) % kStretches;
      stretches_[stretch_] = {home(request.space, run.end), run.end, plain};
      return fetch_plain(request, run.end);
    }
  }
  const FetchResult more = ask(kWindowBytes);  // unless what changes further on gives it several contents
  if (more.status == FetchStatus::ok && more.count == 1) {
    window_flags_ = 0;
    copy(candidates_[0], kWindowBytes);
  }
  return true;
}

/// Makes the window of the first bytes of what a look-up gave.
void RunCache::copy(const CodeCandidate& from, unsigned most_bytes) {
  const size_t size = std::min<size_t>(from.bytes.size(), most_bytes);
  std::copy_n(from.bytes.begin(), size, copied_.begin());
  window_ = Bytes(copied_).first(size);
  window_certain_ = from.certain;
  window_flags_ |= flags_of(from.flags);
}

/// Takes instructions that stand in the window.
void RunCache::take(Run& run, uint64_t instructions, uint64_t size_bytes, uint64_t last_bytes) {
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

/// Takes the instructions at hand whose class does not matter. False: there is none.
bool RunCache::pass_plain(const Request& request, Run& run, Reading& reading) {
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

/// Takes the instruction at hand. False: the run ends.
bool RunCache::take_one(const Request& request, Run& run, Reading& reading) {
  const ArmInsn insn = classify_arm(window_.subspan(run.end - window_ip_), request.mode);
  // What is no instruction may still be an own encoding of the core; much of it in a row is no code.
  const bool bad = insn.cls == ArmClass::bad && reading.it_left == 0;
  reading.bad_in_row = bad ? reading.bad_in_row + 1 : 0;
  if (insn.length_bytes == 0 || reading.bad_in_row > kMostBadInRow) {
    run.stop = insn.length_bytes == 0 ? RunEnd::no_image : RunEnd::bad_insn;
    run.section = section_at(request.space, run.end, request.when);
    // What there is of the instruction told it, and may be more at another time.
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
  // Before the first IT that is seen, up to four instructions may belong to one that stands before the run.
  const bool it_unknown = request.mode == ExecMode::t32 && !reading.saw_it && run.instructions <= 4;
  run.conditional = insn.conditional || in_it || it_unknown;
  run.stop = RunEnd::waypoint;
  if (insn.cls == ArmClass::direct) {
    run.target = arm_target(insn, run.last_ip, request.mode);
    run.target_mode = arm_target_mode(insn, request.mode);
  }
  return false;
}

bool RunCache::ends_here(const Request& request, Run& run) {
  const bool stops = request.stop_is_last ? run.instructions != 0 && run.last_ip == request.stop : run.end == request.stop;
  if (request.has_stop && stops) {
    run.stop = RunEnd::stop;
    return true;
  }
  if (run.instructions < request.most) return false;
  run.stop = RunEnd::cut;
  return true;
}

void RunCache::intern(Run& run) {
  if (run.instructions == 0) return;
  if (!bytes_.empty()) keep_piece();
  const SpaceId owner = home(run.space, run.ip);
  run.node = table_.intern(owner, run.ip, run.mode, run.instructions, bytes_.empty() ? piece_ : Bytes(bytes_));
}

void RunCache::start(const Request& request, Run& run) {
  run.ip = run.end = run.last_ip = request.ip;
  run.space = request.space;
  run.mode = run.target_mode = request.mode;
}

Run RunCache::read(const Request& request, CandidateChooser& chooser) {
  Run run;
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

/// Reads an A64 run that ends in a waypoint, all of it in plain code met before, or where no code is: most runs. False: read() must.
bool RunCache::read_plain(const Request& request, Run& run) {
  if (request.mode != ExecMode::a64 || rules_.every) return false;
  const SpaceId owner = home(request.space, request.ip);
  const Stretch* stretch = stretch_at(owner, request.ip, request.when);
  start(request, run);
  if (stretch == nullptr) return is_hole(request, run);
  const Bytes code = stretch->code.bytes.subspan(request.ip - stretch->ip);
  uint64_t count = 0;  // instructions
  do {
    count += plain_stretch(code.subspan(4 * count), ExecMode::a64, request.most - count).instructions;
    if (count >= request.most || code.size() - 4 * count < 4) return false;
    run.last = classify_arm(code.subspan(4 * count), ExecMode::a64);
    if (run.last.cls == ArmClass::bad) return false;
    ++count;
  } while (!is_waypoint(run.last));
  run.stop = RunEnd::waypoint;
  run.end = run.ip + 4 * count;
  run.last_ip = run.ip + 4 * (count - 1);
  run.instructions = static_cast<uint16_t>(count);
  run.conditional = run.last.conditional;
  if (run.last.cls == ArmClass::direct) run.target = arm_target(run.last, run.last_ip, ExecMode::a64);
  run.block_flags = flags_of(stretch->code.flags);
  run.certain = stretch->code.certain;
  run.node = table_.intern(owner, run.ip, run.mode, run.instructions, code.first(4 * count));
  return true;
}

void RunCache::begin_walk() {
  for (const uint32_t index : chosen_) steps_[index].certain = runs_[index].certain = {kTimeMax, kTimeMin};
  chosen_.clear();
}

void RunCache::grow() {
  slots_.assign(slots_.size() * 4, 0);
  for (uint32_t index = 1; index < steps_.size(); ++index) {
    const Step& step = steps_[index];
    if (index == hole_run_) continue;
    slots_[slot_of(step.space, step.ip, step.mode)] = index;
  }
}

/// `slot`: where it belongs.
uint32_t RunCache::find_new(SpaceId space, Ip ip, ExecMode mode, Interval when, CandidateChooser& chooser, size_t slot) {
  Request request;
  request.space = home(space, ip);
  request.ip = ip;
  request.mode = mode;
  request.when = when;
  Run run;
  if (!read_plain(request, run)) run = read(request, chooser);
  uint32_t index = slots_[slot];
  if (index == 0 && run.stop == RunEnd::no_image && run.instructions == 0 && !run.chosen) {
    // A trace may name any number of places without code.
    if (hole_run_ == 0) hole_run_ = add_run();
    index = hole_run_;
  } else if (index == 0) {
    if (2 * (steps_.size() + 1) > slots_.size()) {
      grow();
      slot = slot_of(space, ip, mode);
    }
    slots_[slot] = index = add_run();
  }
  runs_[index] = run;
  steps_[index] = step_of(run);
  if (run.chosen) chosen_.push_back(index);
  return index;
}

uint32_t RunCache::add_run() {
  if (runs_.size() == runs_.capacity()) {
    runs_.reserve(4 * runs_.size());
    steps_.reserve(4 * runs_.size());
  }
  runs_.emplace_back();
  steps_.emplace_back();
  return static_cast<uint32_t>(runs_.size() - 1);
}

Run RunCache::read_to(SpaceId space, Ip ip, ExecMode mode, Interval when, Ip stop, bool through_branches, CandidateChooser& chooser) {
  Request request;
  request.space = home(space, ip);
  request.ip = ip;
  request.mode = mode;
  request.when = when;
  request.has_stop = true;
  request.stop = stop;
  request.through_branches = through_branches;
  return read(request, chooser);
}

Run RunCache::read_through(SpaceId space, Ip ip, ExecMode mode, Interval when, Ip last, CandidateChooser& chooser) {
  Request request;
  request.space = home(space, ip);
  request.ip = ip;
  request.mode = mode;
  request.when = when;
  request.has_stop = request.stop_is_last = request.through_branches = true;
  request.stop = last;
  return read(request, chooser);
}

Run RunCache::read_some(SpaceId space, Ip ip, ExecMode mode, Interval when, uint64_t most, CandidateChooser& chooser) {
  Request request;
  request.space = home(space, ip);
  request.ip = ip;
  request.mode = mode;
  request.when = when;
  request.most = std::min<uint64_t>(most, request.most);
  return read(request, chooser);
}

}  // namespace ptd::arm
