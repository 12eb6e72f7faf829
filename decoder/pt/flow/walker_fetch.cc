// Walker: fetching, the candidates for the instruction at an ip.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "decoder/block_rules.h"
#include "decoder/insn/executed_insn.h"
#include "decoder/pt/flow/walker.h"
#include "image/mapped_kind.h"

namespace ptd::pt {
namespace {

constexpr size_t kContents = 16;                // maximum number of contents per fetch
constexpr size_t kMostContents = 256;           // maximum number if that is not enough
constexpr size_t kMostEver = 1U << 14;          // addresses whose contents of all times are cached
constexpr size_t kMostMissing = 256;            // sections without code at which the flow resumes per segment
constexpr uint64_t kWraps = uint64_t{1} << 32;  // where addresses wrap outside 64-bit mode

uint64_t cache_hash(Ip ip, SpaceId space) { return (ip.value ^ (ip.value >> 15)) * 0x9e3779b97f4a7c15ULL + space.value; }

}  // namespace

bool Candidate::always_faults() const {
  if (insn.detail == InsnDetail::int3 || insn.detail == InsnDetail::int1) return true;
  constexpr std::byte kTwoBytes{0x0f}, kUd2{0x0b}, kUd1{0xb9}, kUd0{0xff};
  return insn.cls == InsnClass::other && bytes[0] == kTwoBytes && (bytes[1] == kUd2 || bytes[1] == kUd1 || bytes[1] == kUd0);
}

size_t likely_candidate(const std::vector<Candidate>& candidates, Interval now) {
  const auto middle = [](TimeNs a, TimeNs b) { return a.value / 2 + b.value / 2 + (a.value & b.value & 1); };
  const uint64_t moment = middle(now.first, now.last);
  size_t best = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& c = candidates[i];
    const uint64_t opens = c.certain == now ? c.possible.first.value : middle(c.possible.first, c.certain.first);
    if (opens <= moment) best = i;
  }
  return best;
}

FetchResult Walker::ask(SpaceId space, Ip ip, Interval when, std::span<const VersionFloor> floors, std::span<CodeCandidate> out,
                        unsigned span_bytes) {
  const FetchStepLimit limit(counting_ && fetch_work_ >= fetch_work_limit_ ? kModestFetch : most_steps_);
  const uint64_t before = fetch_steps().taken;
  const FetchResult result = view_.fetch(space, ip, when, floors, out, span_bytes);
  const uint64_t steps = fetch_steps().taken - before;
  asked_ += steps;
  if (counting_) fetch_work_ += steps;
  return result;
}

// Charges the fetch of an instruction that is not certain. Only the walker reads such instructions, and it reads them each time, so this
// work is the same with and without the runner. The work of certain instructions is not: it depends on the content of the caches.
void Walker::charge_open(bool found) {
  if (found ? candidates_.size() > 1 || candidates_[0].ambiguous : loss_.reason == GapReason::limit) fetch_work_ += asked_;
}

void Walker::only_modest_fetches(bool on) {
  if (on == (most_steps_ == kModestFetch)) return;
  most_steps_ = on ? kModestFetch : kMostFetchSteps;
  // Cached entries depend on earlier segments and on the path taken, so they must not decide which fetches are too costly.
  for (StraightCode& entry : cache_) {
    if (on && !entry.plain) entry = {};
  }
}

// Returns the code at the flow's ip if it was read before and holds now.
StraightCode* Walker::known_code(const FlowState& state, SpaceId space) {
  StraightCode& code = cache_.at(cache_hash(state.ip, space));
  // What makes code suspect may lie in a part of that time, and other versions than those that the flow has reached may be possible.
  const bool is_suspect = has(code.block_flags, BlockFlag::suspect);
  const bool in_time = is_suspect ? code.certain == state.now && state.floors.empty() : code.certain.contains(state.now);
  const bool holds =
      code.ip == state.ip && code.space == space && code.mode == state.mode && in_time && !code.ambiguous && (code.plain || !counting_);
  return holds ? &code : nullptr;
}

// Reads the code at the flow's ip if nothing changes it near this time. Returns null if read_single() must read it.
StraightCode* Walker::read_straight(const FlowState& state, SpaceId space) {
  if (state.mode != ExecMode::bits64 && state.ip.value + StraightCode::kMost * kFetchSpanBytes >= kWraps) return nullptr;
  const PlainCode plain = view_.plain(space, state.ip, state.now);
  if (plain.bytes.empty()) return nullptr;
  StraightCode code;
  code.ip = state.ip;
  code.space = space;
  code.mode = state.mode;
  code.block_flags = block_flags_of(plain.flags);
  code.plain = true;
  code.certain = plain.certain;
  if (!code.read(plain.bytes)) return nullptr;
  return &(cache_.replace(cache_hash(state.ip, space)) = code);
}

// The flow runs this code, so it is not earlier than that.
void Walker::begin_with(FlowState& state, const Candidate& code) {
  const bool tells_time = state.now.first < code.possible.first;  // else its bound is that of the fetch, which is not its moment's
  if (!tells_time && state.moment_first <= state.not_before) return;
  state.not_before = std::max(state.not_before, tells_time ? std::min(code.possible.first, state.now.last) : state.moment_first);
  refresh_now(state);
}

// Reads the instruction at the flow's ip, in a survey from candidates_. Returns null if there is not one certain instruction: see `stop`.
StraightCode* Walker::read_single(Flow& flow, SpaceId space, WalkStop& stop) {
  const FlowState& state = flow.state;
  const bool found = surveying_ || read_candidates(flow, space);
  if (!counting_) charge_open(found);
  stop = WalkStop::lost;
  if (!found) return nullptr;
  stop = WalkStop::fork;
  if (candidates_.size() > 1) return nullptr;
  const Candidate& single = candidates_[0];
  stop = WalkStop::position;
  if (single.ambiguous && work_is_spent()) return nullptr;
  // What a search has pinned, and what is left of suspect code above the versions that were reached, is read for this flow alone.
  const bool is_suspect = any(single.flags, CodeFlag::suspect);
  const bool is_own = (surveying_ && pinned(flow, space) != nullptr) || (is_suspect && !state.floors.empty());
  StraightCode& code = is_own ? own_code_ : cache_.replace(cache_hash(state.ip, space));
  code = {};
  code.ip = state.ip;
  code.space = space;
  code.mode = state.mode;
  code.block_flags = static_cast<uint16_t>(block_flags_of(single.flags) | ambiguous_flag(single.ambiguous));
  code.plain = asked_ == 0;
  code.ambiguous = single.ambiguous;
  if (surveying_) code.sole = 1;
  code.node = table_.intern(space, state.ip, state.mode, 1, Bytes(single.bytes).first(single.insn.length_bytes));
  code.set(single.insn, table_.bytes(code.node).data());
  // Suspect windows narrow `certain` only in the timeline itself, so this result is valid for this fetch only.
  code.certain = is_suspect ? state.now : single.certain;
  if (!surveying_ && !is_suspect && state.moment_first != kTimeMin) begin_with(flow.state, single);
  return &code;
}

// Returns how many instructions of `code` can be taken in a survey: those of which all contents ever known continue in the same way.
uint32_t Walker::sole_count(const Flow& flow, StraightCode& code) {
  if (code.sole != StraightCode::kUnknownSole) return code.sole;
  if (code.certain == Interval{}) return code.sole = code.count;
  uint32_t offset = 0;
  uint8_t sole = 0;
  for (; sole < code.count; ++sole) {
    const Insn insn = reached_insn(code.bytes().subspan(offset), code.mode);
    const std::vector<Candidate>& all = ever(flow.state, code.space, Ip{code.ip.value + offset});
    if (std::any_of(all.begin(), all.end(), [&](const Candidate& other) { return other.insn != insn; })) break;
    offset += insn.length_bytes;
  }
  return code.sole = sole;
}

// Fetches the contents at `ip` into contents_. An address that is patched repeatedly between two timing packets may have many.
FetchResult Walker::fetch_contents(SpaceId space, Ip ip, Interval when, std::span<const VersionFloor> floors) {
  if (contents_.empty()) contents_.resize(kContents);
  const std::span<CodeCandidate> some(contents_.data(), kContents);
  const FetchResult result = ask(space, ip, when, floors, some);
  if (result.status != FetchStatus::too_many || result.count < kContents) return result;
  contents_.resize(kMostContents);
  return ask(space, ip, when, floors, contents_);
}

// Fetches the instruction at the flow's ip into contents_[0] if the bytes after it have too many contents. Returns false if it is not
// certain itself. The runner identifies such an instruction by its own bytes only, so the walker must find it too.
bool Walker::fetch_certain(const Flow& flow, SpaceId space) {
  const FlowState& state = flow.state;
  for (unsigned length = 1; length <= kFetchSpanBytes; ++length) {
    const FetchResult own = ask(space, state.ip, state.now, state.floors.span(), contents_, length);
    if (own.status != FetchStatus::ok || own.count != 1) return false;
    Bytes& bytes = contents_[0].bytes;
    bytes = bytes.first(std::min<size_t>(bytes.size(), length));
    if (reached_insn(bytes, state.mode).cls != InsnClass::bad) return true;
    if (!needs_more_bytes(bytes, state.mode)) return false;
  }
  return false;
}

// Joins candidates that the flow executes in the same way: no packet can distinguish them, so only their bytes are uncertain.
void Walker::join_alike(Interval now) {
  const size_t likely = likely_candidate(candidates_, now);
  std::vector<Candidate> joined;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    const auto alike = std::find_if(joined.begin(), joined.end(), [&](const Candidate& other) {
      return other.insn == candidate.insn && other.always_faults() == candidate.always_faults();
    });
    if (alike == joined.end()) {
      joined.push_back(candidate);
      continue;
    }
    const Interval possible = hull(alike->possible, candidate.possible);
    const CodeFlag flags = alike->flags | candidate.flags;
    if (i == likely) *alike = candidate;
    alike->possible = possible;
    alike->certain = now;
    alike->flags = flags;
    alike->site = kNoSite;
    alike->ambiguous = true;
  }
  candidates_ = std::move(joined);
}

// Fills candidates_ with the distinct instructions that may be at the flow's ip now. Returns false if the flow is lost (no bytes, no
// instruction).
bool Walker::read_candidates(Flow& flow, SpaceId space) {
  asked_ = 0;
  FlowState& state = flow.state;
  FetchResult result = fetch_contents(space, state.ip, state.now, state.floors.span());
  if (result.status == FetchStatus::too_many && fetch_certain(flow, space)) result.status = FetchStatus::ok, result.count = 1;
  candidates_.clear();
  if (result.status != FetchStatus::ok || result.count == 0) {
    lose(flow, result.status == FetchStatus::too_many ? GapReason::limit : GapReason::no_image);
    loss_.section = result.section;
    return false;
  }
  bool any_bytes_short = false;
  for (uint32_t i = 0; i < result.count; ++i) {
    const CodeCandidate& content = contents_[i];
    Candidate candidate;
    candidate.insn = reached_insn(content.bytes, state.mode);
    if (candidate.insn.cls == InsnClass::bad) {
      any_bytes_short = any_bytes_short || needs_more_bytes(content.bytes, state.mode);
      continue;
    }
    std::memcpy(candidate.bytes.data(), content.bytes.data(), candidate.insn.length_bytes);
    candidate.possible = content.possible;
    candidate.certain = content.certain;
    candidate.site = content.site;
    candidate.version = content.version;
    candidate.flags = content.flags;
    const auto same = std::find_if(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
      return other.insn == candidate.insn && std::memcmp(other.bytes.data(), candidate.bytes.data(), candidate.insn.length_bytes) == 0;
    });
    if (same == candidates_.end()) {
      candidates_.push_back(candidate);
    } else {  // contents that differ only after this instruction
      same->possible = hull(same->possible, candidate.possible);
      same->certain = state.now;
      same->flags = same->flags | candidate.flags;
      same->site = kNoSite;
    }
  }
  if (candidates_.empty()) {
    lose(flow, any_bytes_short ? GapReason::no_image : GapReason::bad_insn);
    loss_.section = result.section;
    return false;
  }
  // The contents and flags may be due to bytes after this instruction: fetch only its own bytes.
  if (candidates_.size() == 1 && (result.count > 1 || candidates_[0].flags != CodeFlag::none)) {
    Candidate& only = candidates_[0];
    const FetchResult own = ask(space, state.ip, state.now, state.floors.span(), contents_, only.insn.length_bytes);
    only.certain = own.status == FetchStatus::ok && own.count == 1 ? contents_[0].certain : state.now;
    if (own.count == 1) only.flags = contents_[0].flags;
  }
  if (!is_kernel_space(space)) doubt_beside_missing(state, space);
  if (candidates_.size() > 1) join_alike(state.now);
  return true;
}

// Marks the candidates if they are only a part of what may have run: in some of the time, a file is mapped there whose bytes are not known.
void Walker::doubt_beside_missing(const FlowState& state, SpaceId space) {
  const Interval now = state.now;
  const auto is_missing = [&](TimeNs when) {
    if (!now.contains({when, when})) return false;
    const SectionId id = timeline_.section_at(space, state.ip, when);
    return is_file_missing(id) && timeline_.section(id).code.bytes.size() <= state.ip - timeline_.section(id).ip;
  };
  const bool doubt = std::ranges::any_of(candidates_, [&](const Candidate& candidate) {
    const Interval live = candidate.certain;
    return !live.contains(now) &&
           (is_missing(now.first) || is_missing(now.last) || (live.first > now.first && is_missing(TimeNs{live.first.value - 1})) ||
            (live.last < now.last && is_missing(TimeNs{live.last.value + 1})));
  });
  for (Candidate& candidate : candidates_) candidate.flags = doubt ? candidate.flags | CodeFlag::suspect : candidate.flags;
}

// Returns true if a lost flow can resume at the ip of `item`: the target of a TIP, or the position of an event. Without code it resumes
// once in each section (`missing`) that a TIP leads to, so that each missing image is reported.
bool Walker::resumes_at(Flow& flow, const Item& item, SectionId& missing) {
  const bool has_ip = (item.kind == ItemKind::tip && (item.flags & kItemNoIp) == 0) || item.kind == ItemKind::at_ip;
  if (!has_ip || !options_.config.has_flow) return false;
  // Unless TIPs are prompt, a TIP is no proof after an overflow that does not show whether tracing is on (erratum SKD010), or if their
  // order is unknown.
  const TipOrder order = options_.config.tip_order;
  if (item.kind == ItemKind::tip && order != TipOrder::prompt && (!flow.state.in_gap || order == TipOrder::unknown)) return false;
  const uint32_t passed = flow.state.switches;
  update_context(flow, item.before, item.hi);
  flow.state.switches = flow.state.most_switches = passed;  // the flow may be resumed elsewhere
  const FetchStepLimit limit(kModestFetch);                 // many versions are code as well
  std::array<CodeCandidate, kContents> contents;
  const Ip ip{item.ip};
  const FetchResult code = ask(space_of(flow.state, ip), ip, time_of(item), {}, contents);
  if (code.status == FetchStatus::too_many || (code.status == FetchStatus::ok && code.count != 0)) return true;
  if (item.kind == ItemKind::at_ip) return false;
  missing = code.section;
  return missing != kNoSection && missing_.size() < kMostMissing && std::find(missing_.begin(), missing_.end(), missing) == missing_.end();
}

bool Walker::ever_has_code(SpaceId space, Ip ip) {
  const FetchStepLimit limit(kModestFetch);
  std::array<CodeCandidate, kContents> contents;
  const FetchResult ever = ask(space, ip, {kTimeMin, kTimeMax}, {}, contents);
  return ever.status == FetchStatus::too_many || (ever.status == FetchStatus::ok && ever.count != 0);
}

const Candidate* Walker::pinned(const Flow& flow, SpaceId space) const {
  for (const Pin& pin : flow.pins) {
    if (pin.ip == flow.state.ip && pin.space == space && pin.during.overlaps(flow.state.now)) return &pin.candidate;
  }
  return nullptr;
}

// Returns the instructions that were at `ip` at any time. Cached, because a search passes the same addresses often. Finding them
// is not counted as work of the segment, which must not depend on earlier walks; kMostFetchSteps limits it per address.
const std::vector<Candidate>& Walker::ever(const FlowState& state, SpaceId space, Ip ip) {
  if (ever_.size() >= kMostEver) ever_.clear();
  const auto [place, is_new] = ever_.try_emplace({ip, space, state.mode});
  std::vector<Candidate>& list = place->second;
  if (!is_new) return list;
  const uint64_t work_before = fetch_work_, asked_before = asked_, steps_before = fetch_steps().taken;
  // The list outlives the segment, so its limits are not those of the work that is left.
  const bool counting = std::exchange(counting_, false);
  const uint64_t most_steps = std::exchange(most_steps_, kMostFetchSteps);
  const FetchResult found = fetch_contents(space, ip, {kTimeMin, kTimeMax}, {});
  counting_ = counting;
  most_steps_ = most_steps;
  fetch_work_ = work_before;
  asked_ = asked_before;
  fetch_steps().taken = steps_before;
  for (uint32_t i = 0; found.status == FetchStatus::ok && i < found.count; ++i) {
    Candidate candidate;
    candidate.insn = reached_insn(contents_[i].bytes, state.mode);
    if (candidate.insn.cls == InsnClass::bad) continue;
    if (std::any_of(list.begin(), list.end(), [&](const Candidate& other) { return other.insn == candidate.insn; })) continue;
    std::memcpy(candidate.bytes.data(), contents_[i].bytes.data(), candidate.insn.length_bytes);
    candidate.flags = contents_[i].flags | CodeFlag::healed;
    candidate.in_time = false;
    list.push_back(candidate);
  }
  return list;
}

// Returns whether a file is mapped there whose bytes are not known: what ran was none of what the address had at other times.
bool Walker::is_file_missing(SectionId section) const { return section != kNoSection && shows_file(timeline_.section(section).path); }

// Fills candidates_ with the distinct instructions that were at the flow's ip at any time, the most likely first.
bool Walker::read_survey(Flow& flow, SpaceId space) {
  const FlowState& state = flow.state;
  const Candidate* pin = pinned(flow, space);
  const bool now_known = read_candidates(flow, space);
  if (!now_known) candidates_.clear();
  if (pin != nullptr) {
    const Candidate first = *pin;
    for (Candidate& candidate : candidates_) candidate.in_time = false;
    candidates_.insert(candidates_.begin(), first);
  }
  if (!now_known && pin == nullptr && is_file_missing(loss_.section) && !is_kernel_space(space)) return false;
  if (candidates_.size() == 1 && candidates_[0].certain.first == kTimeMin && candidates_[0].certain.last == kTimeMax) return true;
  for (const Candidate& other : ever(state, space, state.ip)) {
    const bool alike =  // same instruction
        std::any_of(candidates_.begin(), candidates_.end(), [&](const Candidate& known) { return known.insn == other.insn; });
    if (alike) continue;
    candidates_.push_back(other);
    candidates_.back().possible = candidates_.back().certain = state.now;
  }
  return !candidates_.empty();
}

}  // namespace ptd::pt
