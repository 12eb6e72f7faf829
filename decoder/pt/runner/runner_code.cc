// RunnerCode: reads runs from the timeline and builds memos of them.
#include "decoder/pt/runner/runner_code.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "decoder/block_rules.h"
#include "decoder/insn/executed_insn.h"
#include "decoder/pt/flow/flow_state.h"
#include "image/fetch_steps.h"

namespace ptd::pt {
namespace {

constexpr size_t kMaxRuns = 1U << 19;  // some 100 MB with all dependent data; then everything is cleared
constexpr size_t kMaxBlocks = 1U << 22;
constexpr size_t kFirstSlots = 1U << 8;
constexpr size_t kMaxIntervals = 1U << 18;
constexpr size_t kMaxCallSites = 1U << 20;
constexpr uint32_t kMaxRunCalls = 16;
constexpr uint32_t kMaxRunInstructions = 16384;
constexpr uint32_t kMostCandidates = 8;
constexpr uint64_t kMostSteps = 256;  // per fetch; more expensive ones are left to the walker, which counts them
constexpr size_t kMostChecks = 24;    // per run
constexpr size_t kMostChanging = 1U << 20;
constexpr uint32_t kMaxOpenCalls = 16;                                                 // within a memo
static_assert(kMaxRunInstructions + 2 * kMaxBlockInstructions <= SilentLoop::kLeast);  // so the walker follows each run
constexpr size_t kWide = 16;                                                           // bytes copied at once for an instruction

uint64_t mix(uint64_t place, uint64_t ip) {
  const uint64_t h = (ip ^ (place << 48)) * 0x9e3779b97f4a7c15ULL;
  return h ^ (h >> 32);
}

SpaceId space_of(uint32_t place) {
  const uint32_t number = place >> 2;
  return number == kNoSpace.value >> 2 ? kNoSpace : SpaceId{number};
}

bool is_sequential(InsnClass cls) { return cls == InsnClass::other || cls == InsnClass::mov_cr3 || cls == InsnClass::ptwrite; }

uint64_t place_half(uint64_t ip) { return ip >> 63; }

}  // namespace

/// A run under construction. The object is reused to avoid allocations. Its large arrays are not cleared: memory that nothing was written
/// to is not used.
struct RunnerCode::Reading {
  SpaceId space;
  ExecMode mode = ExecMode::unknown;
  Interval valid;
  Insn insn;
  const std::byte* bytes = nullptr;  ///< bytes of the instruction
  bool lasts = false;                ///< they are in memory that outlives the table of blocks; kWide of them may be read if `wide`
  bool wide = false;
  bool is_plain = false;  ///< `bytes` are in `plain`
  uint16_t flags = 0;
  PlainCode plain;  ///< code around the last instruction, from plain_ip on
  SpaceId plain_space = kNoSpace;
  uint64_t plain_ip = 0;  ///< address of plain.bytes
  uint64_t next_ip = 0;   ///< if has_next: address of `insn`, which read_straight() has read but not taken
  bool has_next = false;
  std::array<std::byte, kFetchSpanBytes> fetched;
  bool adopts = false;                       ///< no other run shares its blocks, as far as it is known
  const std::byte* block_lasting = nullptr;  ///< the block's bytes, unless they are in block_bytes
  std::array<std::byte, kMaxBlockInstructions * kFetchSpanBytes + kWide> block_bytes;
  size_t block_size = 0;
  Ip block_ip;
  uint16_t block_instructions = 0, block_flags = 0;
  uint32_t instructions = 0;
  std::vector<Block> blocks;
  std::vector<RunId> calls;
  std::vector<Changing> changing;
  Interval others;  ///< when the bytes of the instructions that are not in `changing` are valid
  RunEnd end = RunEnd::unread;
  RunId next[2] = {};

  void begin(uint32_t place) {
    space = space_of(place);
    mode = static_cast<ExecMode>(place & 3);
    valid = {};
    block_size = 0;
    block_instructions = 0;
    instructions = 0;
    blocks.clear();
    calls.clear();
    changing.clear();
    others = {};
    has_next = false;
    end = RunEnd::unread;
    next[0] = next[1] = kNoRun;
  }

  /// Appends `size` bytes of instructions to the block. Bytes that last are not copied while they follow each other.
  void add(const std::byte* from, size_t size) {
    if (block_instructions == 0) block_lasting = lasts ? from : nullptr;
    if (block_lasting != nullptr && from == block_lasting + block_size) {
      block_size += size;
      return;
    }
    if (block_lasting != nullptr) std::memcpy(block_bytes.data(), block_lasting, block_size);
    block_lasting = nullptr;
    std::memcpy(block_bytes.data() + block_size, from, wide && size < kWide ? kWide : size);
    block_size += size;
  }
};

RunnerCode::RunnerCode(const Timeline& timeline, BlockTable& table, Ip switch_entry, bool returns_compressed)
    : view_(timeline),
      table_(&table),
      switch_entry_(switch_entry),
      returns_compressed_(returns_compressed),
      reading_(std::make_unique_for_overwrite<Reading>()) {
  clear();
}

RunnerCode::~RunnerCode() = default;

void RunnerCode::clear() {
  cleared_ = runs_.size() != 0;
  last_valid_ = 0;
  runs_.clear();
  runs_.grow_to(1);
  slots_.clear();
  slots_.grow_to(kFirstSlots);
  used_slots_ = 0;
  blocks_.clear();
  blocks_.grow_to(kCopySlack);
  calls_.clear();
  intervals_.assign(1, Interval{});
  valid_slots_.assign(1U << 6, 0);
  memos_.clear();
  targets_.clear();
  targets_.grow_to(kTargets);
  versions_.clear();
  versions_.grow_to(1);
  begin_epoch();
  checks_.assign(1, Checks{});
  changing_.clear();
}

bool RunnerCode::overgrown() const {
  return runs_.size() > kMaxRuns || blocks_.size() > kMaxBlocks || intervals_.size() > kMaxIntervals || calls_.size() > kMaxCallSites ||
         changing_.size() > kMostChanging || memos_.overgrown();
}

size_t RunnerCode::memory_bytes() const {
  return runs_.memory_bytes() + slots_.memory_bytes() + blocks_.memory_bytes() + versions_.memory_bytes() +
         calls_.capacity() * sizeof(RunId) + intervals_.capacity() * sizeof(Interval) + changing_.capacity() * sizeof(Changing) +
         checks_.capacity() * sizeof(Checks) + memos_.memory_bytes();
}

RunId RunnerCode::at(uint32_t place, uint64_t ip) {
  const auto tag = static_cast<uint32_t>(mix(place, ip));
  const size_t mask = slots_.size() - 1;
  size_t slot = tag & mask;
  for (; slots_[slot].run != kNoRun; slot = (slot + 1) & mask) {
    const RunId id = slots_[slot].run;
    if (slots_[slot].tag == tag && runs_[id].ip == ip && runs_[id].place == place) return id;
  }
  BlockRun run;
  run.ip = ip;
  run.place = place;
  const RunId id = append(run);
  slots_[slot] = {tag, id};
  if (2 * ++used_slots_ > slots_.size()) grow();
  return id;
}

RunId RunnerCode::append(const BlockRun& run) {
  runs_.push_back(run);
  versions_.grow_to(runs_.size());
  memos_.grow_to(runs_.size());
  return static_cast<RunId>(runs_.size() - 1);
}

void RunnerCode::grow() {
  ZeroedArray<Slot> old = std::exchange(slots_, {});
  slots_.grow_to(old.size() * 2);
  const size_t mask = slots_.size() - 1;
  for (const Slot& one : old) {
    if (one.run == kNoRun) continue;
    size_t slot = one.tag & mask;
    while (slots_[slot].run != kNoRun) slot = (slot + 1) & mask;
    slots_[slot] = one;
  }
}

ValidId RunnerCode::valid_id(Interval valid) {
  if (valid == intervals_[last_valid_]) return last_valid_;
  if (valid == Interval{}) return 0;
  if (4 * intervals_.size() > valid_slots_.size()) {
    valid_slots_.assign(valid_slots_.size() * 4, 0);
    for (ValidId id = 1; id < intervals_.size(); ++id) {
      size_t at = mix(intervals_[id].last.value, intervals_[id].first.value);
      while (valid_slots_[at & (valid_slots_.size() - 1)] != 0) ++at;
      valid_slots_[at & (valid_slots_.size() - 1)] = id;
    }
  }
  for (size_t at = mix(valid.last.value, valid.first.value);; ++at) {
    ValidId& slot = valid_slots_[at & (valid_slots_.size() - 1)];
    if (slot != 0 && intervals_[slot] == valid) return last_valid_ = slot;
    if (slot != 0) continue;
    slot = static_cast<ValidId>(intervals_.size());
    intervals_.push_back(valid);
    return last_valid_ = slot;
  }
}

// Same as fetch(), but only for plain code. Returns false if fetch() must use the timeline's fetch.
bool RunnerCode::fetch_plain(Reading& reading, uint64_t ip, Interval now) {
  const auto is_inside = [&] {
    return ip - reading.plain_ip < reading.plain.bytes.size() && reading.plain_space == reading.space &&
           reading.plain.certain.contains(now);
  };
  const bool is_read = std::exchange(reading.has_next, false) && reading.next_ip == ip;
  if (!is_inside()) {
    reading.plain = view_.plain(reading.space, Ip{ip}, now);
    reading.plain_space = reading.space;
    reading.plain_ip = ip;
    if (!is_inside()) return false;
  }
  const Bytes bytes = reading.plain.bytes.subspan(ip - reading.plain_ip);
  if (!is_read) reading.insn = reached_insn(bytes.first(std::min<size_t>(bytes.size(), kFetchSpanBytes)), reading.mode);
  if (reading.insn.cls == InsnClass::bad) return false;  // not an instruction, or it extends past these bytes
  reading.bytes = bytes.data();
  reading.lasts = true;
  reading.wide = bytes.size() >= kWide;
  reading.flags = block_flags_of(reading.plain.flags);
  reading.valid = intersect(reading.valid, reading.plain.certain);
  reading.others = intersect(reading.others, reading.plain.certain);
  return true;
}

// Fetches the instruction at `ip`. Returns false if its bytes are not certain throughout `now`.
bool RunnerCode::fetch(Reading& reading, uint64_t ip, Interval now) {
  reading.is_plain = fetch_plain(reading, ip, now);
  if (reading.is_plain) return true;
  const FetchStepLimit limit(kMostSteps);
  std::array<CodeCandidate, kMostCandidates> contents;
  FetchResult result = view_.fetch(reading.space, Ip{ip}, now, {}, contents);
  if (result.status != FetchStatus::ok || result.count == 0) return false;
  reading.insn = reached_insn(contents[0].bytes, reading.mode);
  if (reading.insn.cls == InsnClass::bad) return false;
  if (result.count > 1 || contents[0].certain != Interval{} || contents[0].flags != CodeFlag::none) {  // fetch only its own bytes
    result = view_.fetch(reading.space, Ip{ip}, now, {}, contents, reading.insn.length_bytes);
    if (result.status != FetchStatus::ok || result.count != 1) return false;
  }
  const CodeCandidate& only = contents[0];
  if (!only.certain.contains(now) || any(only.flags, CodeFlag::suspect)) return false;
  std::copy_n(only.bytes.begin(), reading.insn.length_bytes, reading.fetched.begin());
  reading.bytes = reading.fetched.data();
  reading.lasts = reading.wide = false;
  reading.flags = block_flags_of(only.flags);
  reading.valid = intersect(reading.valid, only.certain);
  if (only.certain != Interval{}) reading.changing.push_back({ip, reading.fetched, reading.insn.length_bytes, reading.flags});
  return true;
}

// Appends the instructions from `ip` on to the current block, as far as they follow each other in the same plain code as the last one, and
// advances `ip`. Reads the one after them too.
void RunnerCode::read_straight(Reading& r, uint64_t& ip) {
  if (!r.is_plain || r.mode != ExecMode::bits64) return;
  const uint64_t from = ip - r.plain_ip;
  if (from >= r.plain.bytes.size()) return;
  const Bytes bytes = r.plain.bytes.subspan(from);
  const uint32_t most = kMaxBlockInstructions - r.block_instructions;
  size_t size = 0;
  uint16_t count = 0;
  for (; count < most && size < bytes.size(); ++count) {
    r.insn = reached_insn(bytes.subspan(size, std::min<size_t>(bytes.size() - size, kFetchSpanBytes)), r.mode);
    r.has_next = !is_sequential(r.insn.cls);
    if (r.has_next) break;
    size += r.insn.length_bytes;
  }
  r.wide = false;
  if (size != 0) r.add(bytes.data(), size);
  r.block_instructions = static_cast<uint16_t>(r.block_instructions + count);
  r.instructions += count;
  ip += size;
  r.next_ip = ip;
}

void RunnerCode::finish_block(Reading& reading, uint16_t flags) {
  if (reading.block_instructions == 0) return;
  Block block;
  const std::byte* bytes = reading.block_lasting != nullptr ? reading.block_lasting : reading.block_bytes.data();
  const uint16_t count = reading.block_instructions;
  const auto size = static_cast<uint32_t>(reading.block_size);
  block.node = reading.adopts && reading.block_lasting != nullptr
                   ? table_->adopt({reading.block_ip, reading.space, reading.mode, count, size, bytes})
                   : table_->intern(reading.space, reading.block_ip, reading.mode, count, {bytes, size});
  block.instructions = reading.block_instructions;
  block.flags = static_cast<uint16_t>(reading.block_flags | flags);
  reading.blocks.push_back(block);
  reading.block_size = 0;
  reading.block_instructions = 0;
}

// Appends the instruction at `ip` and advances `ip`. Returns false if the run ends (see `end`).
bool RunnerCode::step(Reading& r, RunId id, uint64_t& ip) {
  const uint32_t place = runs_[id].place;
  const Insn& insn = r.insn;
  if (r.block_instructions != 0 && (r.flags != r.block_flags || r.block_instructions >= kMaxBlockInstructions)) finish_block(r, 0);
  if (r.block_instructions == 0) {
    r.block_ip = Ip{ip};
    r.block_flags = r.flags;
  }
  r.add(r.bytes, insn.length_bytes);
  ++r.block_instructions;
  ++r.instructions;
  const Ip fall = next_sequential(insn, Ip{ip}, r.mode);
  switch (insn.cls) {
    case InsnClass::other:
    case InsnClass::mov_cr3:
    case InsnClass::ptwrite:
      ip = fall.value;
      read_straight(r, ip);
      return true;
    case InsnClass::jump_direct:
    case InsnClass::call_direct: {
      const Ip target = direct_target(insn, Ip{ip}, r.mode);
      if (target == switch_entry_ && target.value != 0) break;
      if (insn.cls == InsnClass::call_direct && insn.displacement != 0) r.calls.push_back(at(place, fall.value));
      if (place_half(ip) != place_half(target.value)) break;
      finish_block(r, BlockFlag::taken | BlockFlag::ends_in_branch);
      ip = target.value;
      return true;
    }
    case InsnClass::jcc:
      finish_block(r, static_cast<uint16_t>(BlockFlag::ends_in_branch));
      r.next[0] = at(place, fall.value);
      r.next[1] = at(place, direct_target(insn, Ip{ip}, r.mode).value);
      r.end = RunEnd::jcc;
      return false;
    case InsnClass::call_indirect:
      r.next[1] = at(place, fall.value);
      r.calls.push_back(r.next[1]);
      finish_block(r, BlockFlag::taken | BlockFlag::ends_in_branch);
      r.end = RunEnd::indirect;
      return false;
    case InsnClass::jump_indirect:
    case InsnClass::far_call:
    case InsnClass::far_jump:
    case InsnClass::far_ret:
    case InsnClass::ret:
      finish_block(r, BlockFlag::taken | BlockFlag::ends_in_branch);
      r.end = insn.cls == InsnClass::ret ? RunEnd::ret : RunEnd::indirect;
      return false;
    case InsnClass::jmpabs:
    case InsnClass::bad:
      break;
  }
  r.end = RunEnd::stuck;
  return false;
}

// Returns the run in which a version of `id` can be stored: `id` itself if it has no certain content, else a new one.
RunId RunnerCode::place_for(RunId id) {
  if (runs_[id].end == RunEnd::unread || runs_[id].end == RunEnd::stuck) return id;
  BlockRun copy;
  copy.ip = runs_[id].ip;
  copy.place = runs_[id].place;
  const RunId added = append(copy), first = first_version(id);
  versions_[added] = {first, versions_[first].sibling, 0};
  versions_[first].sibling = added;
  return added;
}

// Reads the run's code as it is throughout `now`. The run is `stuck` if the code is not certain.
void RunnerCode::read(RunId id, Interval now) {
  Reading& reading = *reading_;
  reading.begin(runs_[id].place);
  const bool has_versions = versions_[id].first != kNoRun || versions_[id].sibling != kNoRun || runs_[id].end != RunEnd::unread;
  reading.adopts = !has_versions && !cleared_;
  uint64_t ip = runs_[id].ip;
  uint64_t branch_ip = ip;
  for (;;) {
    const bool block_ends = reading.block_instructions == 0 ? !reading.blocks.empty() : reading.block_instructions >= kMaxBlockInstructions;
    if (block_ends && (reading.blocks.size() >= kMaxRunBlocks - 8 || reading.calls.size() >= kMaxRunCalls ||
                       reading.instructions >= kMaxRunInstructions)) {
      finish_block(reading, 0);
      reading.end = RunEnd::link;
      reading.next[0] = at(runs_[id].place, ip);
      break;
    }
    branch_ip = ip;
    if (reading.blocks.size() >= kMaxRunBlocks || !fetch(reading, ip, now)) {
      reading.end = RunEnd::stuck;
      reading.valid = now;
      break;
    }
    if (!step(reading, id, ip)) break;
  }
  const bool certain = reading.end != RunEnd::stuck;
  if (certain && has_versions && read_known(id, reading)) return;
  const RunId target = place_for(id);
  BlockRun& run = runs_[target];
  run.end = reading.end;
  run.valid = valid_id(reading.valid);
  run.ends_in_kernel = branch_ip >> 63 != 0;
  const InsnClass last = reading.insn.cls;
  const bool is_near = last == InsnClass::call_indirect || last == InsnClass::jump_indirect || last == InsnClass::ret;
  run.branch_bytes = certain && is_near ? reading.insn.length_bytes : 0;
  run.blocks = static_cast<uint8_t>(reading.blocks.size());
  run.calls = static_cast<uint8_t>(reading.calls.size());
  run.instructions = static_cast<uint16_t>(reading.instructions);
  run.next[0] = reading.next[0];
  run.next[1] = reading.next[1];
  if (!certain) {
    run.blocks = run.calls = 0;
    return;
  }
  keep_checks(target, reading);
  run.blocks_first = static_cast<uint32_t>(blocks_.size() - kCopySlack);
  blocks_.grow_to(blocks_.size() + reading.blocks.size());
  std::copy(reading.blocks.begin(), reading.blocks.end(), blocks_.begin() + run.blocks_first);
  std::copy_n(reading.blocks.begin(), std::min<size_t>(reading.blocks.size(), BlockRun::kHead), run.head.begin());
  run.calls_first = run.calls == 1 ? reading.calls[0] : static_cast<uint32_t>(calls_.size());
  if (run.calls != 1) calls_.insert(calls_.end(), reading.calls.begin(), reading.calls.end());
}

// Stores what compare() needs to recognise the run.
void RunnerCode::keep_checks(RunId id, const Reading& reading) {
  versions_[id].checks = 0;
  if (reading.changing.empty() || reading.changing.size() > kMostChecks) return;
  versions_[id].checks = static_cast<uint32_t>(checks_.size());
  checks_.push_back({reading.others, static_cast<uint32_t>(changing_.size()), static_cast<uint32_t>(reading.changing.size())});
  changing_.insert(changing_.end(), reading.changing.begin(), reading.changing.end());
}

// Returns the current bytes at the address of `wanted`, looked up once per search for versions.
const RunnerCode::Looked& RunnerCode::look(uint32_t place, const Changing& wanted, Interval now) {
  for (const Looked& one : looked_) {
    if (one.ip == wanted.ip && one.length == wanted.length) return one;
  }
  Looked& one = looked_.emplace_back();
  one.ip = wanted.ip;
  one.length = wanted.length;
  std::array<CodeCandidate, 2> contents;
  const FetchResult result = view_.fetch(space_of(place), Ip{wanted.ip}, now, {}, contents, wanted.length);
  const CodeCandidate& only = contents[0];
  if (result.status != FetchStatus::ok || result.count != 1 || only.bytes.size() < wanted.length || !only.certain.contains(now) ||
      any(only.flags, CodeFlag::suspect))
    return one;
  one.certain = only.certain;
  one.found.length = wanted.length;
  one.found.flags = block_flags_of(only.flags);
  std::copy_n(only.bytes.begin(), wanted.length, one.found.bytes.begin());
  return one;
}

// Compares the run with the current code. If it is the same throughout `now`, updates the interval of the run.
RunnerCode::Compared RunnerCode::compare(RunId id, Interval now) {
  const Checks& checks = checks_[versions_[id].checks];
  if (checks.count == 0 || !checks.others.contains(now)) return Compared::differs;
  Interval valid = checks.others;
  for (uint32_t i = checks.first; i < checks.first + checks.count; ++i) {
    const Changing& was = changing_[i];
    const Looked& is = look(runs_[id].place, was, now);
    if (is.found.length == 0) return Compared::uncertain;  // the instructions before it match, so the run leads here
    if (is.found.flags != was.flags || std::memcmp(is.found.bytes.data(), was.bytes.data(), was.length) != 0) return Compared::differs;
    valid = intersect(valid, is.certain);
  }
  runs_[id].valid = valid_id(valid);
  return Compared::same;
}

// Finds a version that need not be read. `same`: its changing bytes match. `uncertain`: they are not certain, so no version is. Returns
// kNoRun if there is none.
RunId RunnerCode::known_version(RunId first, Interval now, Compared& compared) {
  looked_.clear();
  for (RunId one = first; one != kNoRun; one = versions_[one].sibling) {
    if (versions_[one].checks == 0) continue;
    compared = compare(one, now);
    if (compared != Compared::differs) return one;
  }
  return kNoRun;
}

// Reuses a version with the same blocks, for sites that alternate between contents. Returns false if there is none.
bool RunnerCode::read_known(RunId id, const Reading& reading) {
  for (RunId other = first_version(id); other != kNoRun; other = versions_[other].sibling) {
    BlockRun& known = runs_[other];
    if (known.end != reading.end || known.blocks != reading.blocks.size() || known.calls != reading.calls.size()) continue;
    const bool same = std::equal(reading.blocks.begin(), reading.blocks.end(), blocks_.begin() + known.blocks_first,
                                 [](const Block& a, const Block& b) { return a.node == b.node && a.flags == b.flags; });
    if (!same) continue;
    known.valid = valid_id(reading.valid);
    return true;
  }
  return false;
}

void RunnerCode::begin_epoch() {
  epoch_time_ = {};
  if (++epoch_ != 0) return;
  for (BlockRun& run : runs_) run.epoch = 0;
  epoch_ = 1;
}

RunId RunnerCode::check_valid(RunId id, Interval now) {
  const RunId found = version_at(id, now);
  BlockRun& run = runs_[found];
  if (found == kNoRun || run.end <= RunEnd::stuck) return kNoRun;
  run.epoch = epoch_;
  epoch_time_ = intersect(epoch_time_, intervals_[run.valid]);
  return found;
}

// Finds or reads the version of `id` at `now` if it is not `id` itself.
RunId RunnerCode::other_version(RunId id, Interval now) {
  const auto fits = [&](RunId one) { return runs_[one].end != RunEnd::unread && holds(runs_[one].valid, now); };
  if (is_unread(id)) {
    read(id, now);
    return id;
  }
  const RunId first = first_version(id);
  RunId free = kNoRun;
  for (RunId one = first; one != kNoRun; one = versions_[one].sibling) {
    if (fits(one)) return one;
    if (runs_[one].end == RunEnd::unread || runs_[one].end == RunEnd::stuck) free = one;
  }
  Compared compared = Compared::differs;
  const RunId known = known_version(first, now, compared);
  if (compared == Compared::same) return known;
  const RunId at = free != kNoRun ? free : first;
  if (compared == Compared::uncertain) {
    const RunId stuck = place_for(at);
    runs_[stuck].end = RunEnd::stuck;
    runs_[stuck].valid = valid_id(now);
    runs_[stuck].blocks = runs_[stuck].calls = 0;
    return stuck;
  }
  read(at, now);
  for (RunId one = first; one != kNoRun; one = versions_[one].sibling) {
    if (fits(one)) return one;
  }
  return free;
}

bool RunnerCode::make_memo(RunId start, uint64_t window, uint32_t count, Interval now) {
  std::array<Block, MemoTable::kMaxBlocks + kMaxRunBlocks> made;
  std::array<RunId, kMaxOpenCalls> open;
  Memo memo;
  Interval valid;
  const uint64_t start_window = window;
  const uint32_t width = memos_.width(start);
  uint32_t met = 0, depth = 0, deepest = 0, blocks = 0;
  uint32_t looked_at = 0;  // bits that the result depends on
  uint32_t silent = 0;     // instructions since the last bit
  RunId at = start;
  bool pops = false;
  while (memo.bits < width && !pops) {
    at = version_at(at, now);
    if (at == kNoRun) break;
    const BlockRun& run = runs_[at];
    if (run.end == RunEnd::stuck || run.end == RunEnd::unread || run.end == RunEnd::indirect) break;
    if (met + run.blocks > MemoTable::kMaxBlocks || depth + run.calls > kMaxOpenCalls) break;
    if ((silent += run.instructions) > SilentLoop::kLeast) break;
    if (run.end == RunEnd::jcc && memo.bits == count) return false;  // the memo would depend on bits that are not read yet
    const uint64_t bit = window >> 63;
    if (run.end != RunEnd::link) looked_at = memo.bits + 1U;
    if (run.end == RunEnd::ret && (bit == 0 || !returns_compressed_)) break;
    std::copy_n(blocks_.begin() + run.blocks_first, run.blocks, made.begin() + met);
    met += run.blocks;
    for (uint32_t i = 0; i < run.calls; ++i) open[depth++] = calls(run)[i];
    deepest = std::max(deepest, depth);
    valid = intersect(valid, intervals_[run.valid]);
    if (run.end == RunEnd::link) {
      at = run.next[0];
      continue;
    }
    if (run.end == RunEnd::jcc) {
      if (bit != 0) made[met - 1].flags |= static_cast<uint16_t>(BlockFlag::taken);
      at = run.next[bit];
    } else if (depth != 0) {
      at = open[--depth];
    } else {
      pops = true;
      at = kNoRun;
    }
    window <<= 1;
    silent = 0;
    if (depth > MemoTable::kMaxCalls) break;
    ++memo.bits;
    memo.next = pops ? 0 : memos_.table(at);
    memo.rise = static_cast<int8_t>(pops ? -1 : static_cast<int>(depth));
    memo.depth_left = static_cast<uint8_t>(ReturnStack::kDepth - deepest);
    blocks = met;
  }
  if (memo.bits == 0) return false;
  memo.valid = valid_id(valid);
  memos_.put(start, start_window, looked_at, memo, {made.data(), blocks}, {open.data(), static_cast<size_t>(std::max<int>(memo.rise, 0))});
  return true;
}

}  // namespace ptd::pt
