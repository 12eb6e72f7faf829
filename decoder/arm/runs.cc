// RunCache: instructions are fetched in windows, classified one by one, interned as blocks.
#include "decoder/arm/runs.h"

#include <algorithm>
#include <cstring>

namespace ptd::arm {
namespace {

constexpr unsigned kWindowBytes = 64;
constexpr unsigned kMostBadInRow = 4096;

uint64_t hash(SpaceId space, Ip ip, ExecMode mode) {
  uint64_t h = ip.value ^ (uint64_t{space.value} << 48) ^ (uint64_t{static_cast<uint8_t>(mode)} << 61);
  h *= 0x9e3779b97f4a7c15ULL;
  return h ^ (h >> 32);
}

uint16_t flags_of(CodeFlag flags) {
  uint16_t block = 0;
  if (any(flags, CodeFlag::healed)) block |= static_cast<uint16_t>(BlockFlag::healed);
  if (any(flags, CodeFlag::suspect)) block |= static_cast<uint16_t>(BlockFlag::suspect);
  if (any(flags, CodeFlag::assumed)) block |= static_cast<uint16_t>(BlockFlag::assumed);
  return block;
}

Step step_of(const Run& run) {
  Step step;
  step.node = run.node;
  step.instructions = run.instructions;
  step.ip = run.ip;
  step.certain = run.certain;
  step.space = run.space;
  step.mode = run.mode;
  if (run.stop != RunEnd::waypoint) return step;
  const bool direct = run.last.cls == ArmClass::direct;
  step.indirect = run.last.cls == ArmClass::indirect;
  step.link = run.last.link;
  const bool branch = step.branch = direct || step.indirect;
  const auto ends = static_cast<uint16_t>(BlockFlag::ends_in_branch);
  step.flags[0] = run.block_flags | ends;
  step.flags[1] = branch ? run.block_flags | ends | static_cast<uint16_t>(BlockFlag::taken) : run.block_flags;
  if (run.has_bad) return step;
  step.plain[0] = run.conditional || !branch || (direct && run.target == run.end);
  step.plain[1] = !direct || run.target_mode == run.mode;
  return step;
}

}  // namespace

RunCache::RunCache(const Timeline& timeline, WaypointRules rules)
    : timeline_(timeline), view_(timeline), rules_(rules), changes_(timeline.has_versions()), runs_(1), steps_(1), slots_(1U << 10) {}

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

SectionId RunCache::section_at(SpaceId space, Ip ip, Interval when) const {
  const TimeNs middle{when.first.value + (when.last.value - when.first.value) / 2};
  return timeline_.section_at(is_kernel_half(ip) ? kKernelSpace : space, ip, middle);
}

// Makes window_ hold the bytes at run.end. False: run.stop says why not.
bool RunCache::fetch(const Request& request, Run& run, CandidateChooser& chooser) {
  const uint64_t skip = run.end - window_ip_;
  if (window_valid_ && skip + kArmFetchBytes <= window_.size()) return true;
  unsigned span = kWindowBytes;
  FetchResult result = view_.fetch(request.space, run.end, request.when, {}, candidates_, span);
  if (result.status == FetchStatus::too_many || (result.status == FetchStatus::ok && result.count > 1)) {
    span = kArmFetchBytes;  // what changes further on is no matter of this instruction
    result = view_.fetch(request.space, run.end, request.when, {}, candidates_, span);
  }
  if (result.status != FetchStatus::ok || result.count == 0) {
    run.stop = RunEnd::no_image;
    run.section = result.section;
    return false;
  }
  const std::span<const CodeCandidate> found(candidates_.data(), std::min<size_t>(result.count, candidates_.size()));
  size_t index = 0;
  window_flags_ = 0;
  window_chosen_ = found.size() > 1;
  if (window_chosen_) index = std::min(chooser.choose(run.end, request.space, found, window_flags_), found.size() - 1);
  const CodeCandidate& chosen = found[index];
  window_.assign(chosen.bytes.begin(), chosen.bytes.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(chosen.bytes.size(), span)));
  window_ip_ = run.end;
  window_certain_ = chosen.certain;
  window_flags_ |= flags_of(chosen.flags);
  window_valid_ = true;
  return true;
}

/// Of A64 code, takes the instructions at hand whose class does not matter; the window holds the first.
void RunCache::pass_plain(const Request& request, Run& run) {
  const uint64_t start = run.end - window_ip_;
  uint64_t at = start, left = std::min<uint64_t>((window_.size() - start) / 4, request.most - run.instructions);
  if (request.has_stop) left = std::min<uint64_t>(left, request.stop < run.end ? ~uint64_t{0} : (request.stop - run.end) / 4);
  for (; left != 0; --left, at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, window_.data() + at, 4);
    if (request.through_branches ? may_be_bad_a64(word) : !is_plain_a64(word)) break;
  }
  if (at == start) return;
  run.certain = intersect(run.certain, window_certain_);
  run.block_flags |= window_flags_;
  run.chosen |= window_chosen_;
  run.instructions = static_cast<uint16_t>(run.instructions + (at - start) / 4);
  run.last = {ArmClass::other, ArmDetail::none, 4};
  bytes_.insert(bytes_.end(), window_.begin() + static_cast<std::ptrdiff_t>(start), window_.begin() + static_cast<std::ptrdiff_t>(at));
  run.end = run.end + (at - start);
  run.last_ip = run.end + (~uint64_t{0} - 3);
}

Run RunCache::read(const Request& request, CandidateChooser& chooser) {
  Run run;
  run.ip = run.end = run.last_ip = request.ip;
  run.space = request.space;
  run.mode = run.target_mode = request.mode;
  bytes_.clear();
  window_valid_ = false;
  unsigned it_left = 0, bad_in_row = 0;
  bool saw_it = false;
  while (true) {
    const bool stops = request.stop_is_last ? run.instructions != 0 && run.last_ip == request.stop : run.end == request.stop;
    if (request.has_stop && stops) {
      run.stop = RunEnd::stop;
      break;
    }
    if (run.instructions >= request.most) {
      run.stop = RunEnd::cut;
      break;
    }
    if (!fetch(request, run, chooser)) break;
    if (request.mode == ExecMode::a64 && !rules_.every) {
      const Ip before = run.end;
      pass_plain(request, run);
      if (run.end != before) {
        bad_in_row = 0;
        continue;
      }
    }
    const Bytes here = Bytes(window_).subspan(run.end - window_ip_);
    const ArmInsn insn = classify_arm(here, request.mode);
    // What is no instruction may still be an own encoding of the core; much of it in a row is no code.
    const bool bad = insn.cls == ArmClass::bad && it_left == 0;
    bad_in_row = bad ? bad_in_row + 1 : 0;
    if (insn.length_bytes == 0 || bad_in_row > kMostBadInRow) {
      run.stop = insn.length_bytes == 0 ? RunEnd::no_image : RunEnd::bad_insn;
      run.section = section_at(request.space, run.end, request.when);
      break;
    }
    if (bad && !run.has_bad) {
      run.has_bad = true;
      run.bad_ip = run.end;
    }
    bytes_.insert(bytes_.end(), here.begin(), here.begin() + insn.length_bytes);
    run.certain = intersect(run.certain, window_certain_);
    run.block_flags |= window_flags_;
    run.chosen |= window_chosen_;
    ++run.instructions;
    run.last = insn;
    run.last_ip = run.end;
    run.end = run.end + insn.length_bytes;
    if (request.mode != ExecMode::a64) run.end.value &= 0xffffffffU;
    const bool in_it = it_left != 0;
    if (in_it) --it_left;
    if (insn.it_instructions != 0) {
      it_left = insn.it_instructions;
      saw_it = true;
    }
    if (!is_waypoint(insn) || request.through_branches) continue;
    // Before the first IT that is seen, up to four instructions may belong to one that stands before the run.
    const bool it_unknown = request.mode == ExecMode::t32 && !saw_it && run.instructions <= 4;
    run.conditional = insn.conditional || in_it || it_unknown;
    run.stop = RunEnd::waypoint;
    if (insn.cls == ArmClass::direct) {
      run.target = arm_target(insn, run.last_ip, request.mode);
      run.target_mode = arm_target_mode(insn, request.mode);
    }
    break;
  }
  if (run.instructions != 0) {
    const SpaceId owner = is_kernel_half(run.ip) ? kKernelSpace : run.space;
    run.node = table_.intern(owner, run.ip, run.mode, run.instructions, bytes_);
  }
  return run;
}

void RunCache::begin_walk() {
  for (const uint32_t index : chosen_) steps_[index].certain = runs_[index].certain = {kTimeMax, kTimeMin};
  chosen_.clear();
}

size_t RunCache::slot_of(SpaceId space, Ip ip, ExecMode mode) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash(space, ip, mode) & mask;
  while (slots_[slot] != 0) {
    const Run& run = runs_[slots_[slot]];
    if (run.ip == ip && run.space == space && run.mode == mode) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void RunCache::grow() {
  slots_.assign(slots_.size() * 2, 0);
  for (uint32_t index = 1; index < runs_.size(); ++index) slots_[slot_of(runs_[index].space, runs_[index].ip, runs_[index].mode)] = index;
}

uint32_t RunCache::find(SpaceId space, Ip ip, ExecMode mode, Interval when, CandidateChooser& chooser) {
  if (is_kernel_half(ip)) space = kKernelSpace;
  size_t slot = slot_of(space, ip, mode);
  uint32_t index = slots_[slot];
  if (index != 0 && (!changes_ || runs_[index].certain.contains(when))) return index;
  Request request;
  request.space = space;
  request.ip = ip;
  request.mode = mode;
  request.when = when;
  const Run made = read(request, chooser);
  if (index != 0) {
    runs_[index] = made;
    steps_[index] = step_of(made);
    if (made.chosen) chosen_.push_back(index);
    return index;
  }
  if (2 * (runs_.size() + 1) > slots_.size()) {
    grow();
    slot = slot_of(space, ip, mode);
  }
  index = static_cast<uint32_t>(runs_.size());
  runs_.push_back(made);
  steps_.push_back(step_of(made));
  if (made.chosen) chosen_.push_back(index);
  slots_[slot] = index;
  return index;
}

Run RunCache::read_to(SpaceId space, Ip ip, ExecMode mode, Interval when, Ip stop, bool through_branches, CandidateChooser& chooser) {
  Request request;
  request.space = space;
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
  request.space = space;
  request.ip = ip;
  request.mode = mode;
  request.when = when;
  request.has_stop = request.stop_is_last = request.through_branches = true;
  request.stop = last;
  return read(request, chooser);
}

Run RunCache::read_some(SpaceId space, Ip ip, ExecMode mode, Interval when, uint64_t most, CandidateChooser& chooser) {
  Request request;
  request.space = space;
  request.ip = ip;
  request.mode = mode;
  request.when = when;
  request.most = std::min<uint64_t>(most, request.most);
  return read(request, chooser);
}

}  // namespace ptd::arm
