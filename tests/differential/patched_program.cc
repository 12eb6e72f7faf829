// A kernel that patches its code while it runs. Functions are rows of slots; a slot has one or several versions of the same length.
#include "tests/differential/patched_program.h"

#include <algorithm>
#include <map>

#include "tests/differential/branch_packets.h"

namespace ptd::test {
namespace {

constexpr uint64_t kBase = 0xffffffff81000000;
constexpr size_t kStackDepth = 64;  // [SDM] "Near Return Compression"

enum class Does : uint8_t { nothing, jcc, jump, call, call_indirect, ret };
struct Step {
  Does does = Does::nothing;
  std::vector<std::byte> bytes;
  uint64_t target = 0;
};
using Version = std::vector<Step>;
struct Slot {
  uint64_t ip = 0;
  std::vector<Version> versions;
  bool one_way = false;  ///< each version is used once, as when alternatives are applied
  size_t now = 0;
};

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}
Step plain(std::initializer_list<int> values) { return {Does::nothing, bytes_of(values), 0}; }

size_t size_of(const Version& version) {
  size_t size = 0;
  for (const Step& step : version) size += step.bytes.size();
  return size;
}

// A direct branch at `ip` with a displacement of 1 or 4 bytes.
Step branch(Does does, std::initializer_list<int> opcode, unsigned displacement_bytes, uint64_t ip, uint64_t target) {
  Step step{does, bytes_of(opcode), target};
  const uint64_t displacement = target - (ip + step.bytes.size() + displacement_bytes);
  for (unsigned i = 0; i < displacement_bytes; ++i) step.bytes.push_back(static_cast<std::byte>(displacement >> (8 * i)));
  return step;
}

/// The kinds of slots, with their lengths in bytes.
enum class SlotKind : uint8_t { filler, jcc, key, key_short, probe, static_call, alternative, number, rows, ret };
size_t length_of(SlotKind kind) {
  switch (kind) {
    case SlotKind::filler:
      return 3;
    case SlotKind::jcc:
    case SlotKind::key_short:
    case SlotKind::rows:
      return 2;
    case SlotKind::ret:
      return 1;
    default:
      return 5;
  }
}

class PatchedMachine {
 public:
  PatchedMachine(const PatchedOptions& options, PatchedRun& out)
      : options_(options), out_(out), random_(options.seed), packets_(out.trace) {
    build();
    out_.base = kBase;
    for (const Slot& slot : slots_) append(out_.code, slot.versions[0]);
    for (uint32_t i = 0; i < options_.patches; ++i) {
      if (!sites_.empty())
        patches_.emplace_back(kBegin + random_.below(options_.steps * kMeanTicks),
                              sites_[random_.below(static_cast<uint32_t>(sites_.size()))]);
    }
    std::ranges::sort(patches_);
  }

  void run() {
    ip_ = kBase;
    psb(false);
    packets_.begin(ip_);
    for (uint32_t i = 0; i < options_.steps; ++i) {
      tsc_ += 1 + random_.below(2 * kMeanTicks);
      patch();
      if (random_.below(options_.psb_every) == 0) psb(true);
      if (options_.tsc_every != 0 && random_.below(options_.tsc_every) == 0) packets_.tsc(tsc_);
      step();
    }
    packets_.end(ip_);
    ++tsc_;
    psb(false);
  }

 private:
  static constexpr uint64_t kBegin = 1'000'000;
  static constexpr uint32_t kMeanTicks = 10;

  static void append(std::vector<std::byte>& out, const Version& version) {
    for (const Step& step : version) out.insert(out.end(), step.bytes.begin(), step.bytes.end());
  }
  static std::vector<std::byte> bytes_of_version(const Version& version) {
    std::vector<std::byte> out;
    append(out, version);
    return out;
  }

  // --- the program ---

  void build() {
    // The loop that calls a function: CALL RAX; JMP back.
    add(kBase, {{{Does::call_indirect, bytes_of({0xff, 0xd0}), 0}}});
    add(kBase + 2, {{branch(Does::jump, {0xeb}, 1, kBase + 2, kBase)}});
    uint64_t ip = kBase + 4;
    for (int i = 0; i < 2; ++i) {  // what probes and static calls call
      callees_.push_back(ip);
      add(ip, {{plain({0x48, 0x29, 0xfa})}});
      add(ip + 3, {{{Does::ret, bytes_of({0xc3}), 0}}});
      ip += 4;
    }
    for (uint32_t i = 0; i < options_.functions; ++i) ip = add_function(ip);
  }

  uint64_t add_function(uint64_t ip) {
    functions_.push_back(ip);
    std::vector<SlotKind> kinds;
    for (uint32_t i = 0; i < options_.slots; ++i) kinds.push_back(any_kind());
    kinds.push_back(SlotKind::ret);
    std::vector<uint64_t> starts;
    for (const SlotKind kind : kinds) {
      starts.push_back(ip);
      ip += length_of(kind);
    }
    for (size_t i = 0; i < kinds.size(); ++i) {
      const uint64_t ahead = i + 1 < kinds.size() ? starts[i + 1 + random_.below(static_cast<uint32_t>(kinds.size() - i - 1))] : 0;
      add_slot(kinds[i], starts[i], ahead);
    }
    return ip;
  }

  SlotKind any_kind() {
    if (!random_.chance(options_.site_percent)) return random_.chance(50) ? SlotKind::filler : SlotKind::jcc;
    constexpr SlotKind kSites[] = {SlotKind::key,         SlotKind::key_short, SlotKind::probe, SlotKind::static_call,
                                   SlotKind::alternative, SlotKind::number,    SlotKind::rows};
    return kSites[random_.below(std::size(kSites))];
  }

  // `ahead` is the start of a later slot of the function.
  void add_slot(SlotKind kind, uint64_t ip, uint64_t ahead) {
    const Step nop5 = plain({0x0f, 0x1f, 0x44, 0, 0}), nop2 = plain({0x66, 0x90}), nop = plain({0x90});
    const auto call = [ip, this](size_t callee) { return branch(Does::call, {0xe8}, 4, ip, callees_[callee]); };
    const auto mov = [](int number) { return plain({0xb8, number, 0, 0, 0}); };
    switch (kind) {
      case SlotKind::filler:
        return add(ip, {{plain({0x48, 0x29, 0xfa})}});
      case SlotKind::jcc:
        return add(ip, {{branch(Does::jcc, {0x74}, 1, ip, ahead)}});
      case SlotKind::ret:
        return add(ip, {{{Does::ret, bytes_of({0xc3}), 0}}});
      case SlotKind::key:
        return add(ip, {{nop5}, {branch(Does::jump, {0xe9}, 4, ip, ahead)}});
      case SlotKind::key_short:
        return add(ip, {{branch(Does::jump, {0xeb}, 1, ip, ahead)}, {nop2}});
      case SlotKind::probe:
        return add(ip, {{nop5}, {call(0)}});
      case SlotKind::static_call:
        return add(ip, {{call(0)}, {call(1)}, {nop5}});
      case SlotKind::alternative:
        return add(
            ip, {{plain({0x0f, 0x31}), nop, nop, nop}, {plain({0x0f, 0xae, 0xe8}), plain({0x0f, 0x31})}, {plain({0x0f, 0x01, 0xf9}), nop2}},
            true);
      case SlotKind::number:
        return add(ip, {{mov(1)}, {mov(2)}, {mov(3)}});
      case SlotKind::rows:
        return add(ip, {{nop, nop}, {branch(Does::jump, {0xeb}, 1, ip, ip + 2)}, {nop2}});
    }
  }

  void add(uint64_t ip, std::vector<Version> versions, bool one_way = false) {
    if (versions.size() > 1) sites_.push_back(slots_.size());
    slot_at_[ip] = slots_.size();
    slots_.push_back({ip, std::move(versions), one_way, 0});
  }

  // --- time ---

  // Applies the patches that are due, except to a slot in whose middle the flow is.
  void patch() {
    for (auto due = patches_.begin(); due != patches_.end() && due->first <= tsc_;) {
      Slot& slot = slots_[due->second];
      if (ip_ > slot.ip && ip_ < slot.ip + size_of(slot.versions[0])) {
        ++due;
        continue;
      }
      const bool last = slot.one_way && slot.now + 1 == slot.versions.size();
      const size_t next = last ? slot.now
                               : (slot.now + 1 + (slot.one_way ? 0 : random_.below(static_cast<uint32_t>(slot.versions.size() - 1)))) %
                                     slot.versions.size();
      if (next != slot.now) {
        Edit edit;
        edit.ip = Ip{slot.ip};
        edit.old_bytes = bytes_of_version(slot.versions[slot.now]);
        edit.new_bytes = bytes_of_version(slot.versions[next]);
        edit.time = {TimeNs{tsc_}, TimeNs{tsc_}};
        out_.edits.push_back(std::move(edit));
        slot.now = next;
        tsc_ += 1 + random_.below(3);
      }
      due = patches_.erase(due);
    }
  }

  void psb(bool running) {
    return_stack_.clear();
    packets_.psb(tsc_, running ? std::optional(ip_) : std::nullopt);
  }

  // --- the flow ---

  const Step& step_here() const {
    auto at = slot_at_.upper_bound(ip_);
    const Slot& slot = slots_[(--at)->second];
    uint64_t ip = slot.ip;
    for (const Step& step : slot.versions[slot.now]) {
      if (ip == ip_) return step;
      ip += step.bytes.size();
    }
    return slot.versions[slot.now][0];  // not reached: slots are not patched while the flow is in them
  }

  void push(uint64_t next) {
    stack_.push_back(next);
    return_stack_.push_back(next);
    if (return_stack_.size() > kStackDepth) return_stack_.erase(return_stack_.begin());
  }

  void step() {
    const Step& step = step_here();
    out_.truth.push_back({ip_, step.bytes});
    const uint64_t next = ip_ + step.bytes.size();
    ip_ = next;
    switch (step.does) {
      case Does::nothing:
        return;
      case Does::jump:
        ip_ = step.target;
        return;
      case Does::jcc: {
        const bool taken = random_.chance(50);
        packets_.bit(taken);
        if (taken) ip_ = step.target;
        return;
      }
      case Does::call:
        push(next);
        ip_ = step.target;
        return;
      case Does::call_indirect:
        push(next);
        ip_ = functions_[random_.below(static_cast<uint32_t>(functions_.size()))];
        return packets_.tip(ip_);
      case Does::ret:
        ip_ = stack_.back();
        stack_.pop_back();
        if (options_.return_compression && !return_stack_.empty()) {
          return_stack_.pop_back();
          return packets_.bit(true);
        }
        if (!return_stack_.empty()) return_stack_.pop_back();
        return packets_.tip(ip_);
    }
  }

  const PatchedOptions& options_;
  PatchedRun& out_;
  Random random_;
  BranchPackets packets_;
  std::vector<Slot> slots_;
  std::map<uint64_t, size_t> slot_at_;
  std::vector<size_t> sites_;
  std::vector<uint64_t> functions_, callees_, stack_, return_stack_;
  std::vector<std::pair<uint64_t, size_t>> patches_;  ///< time, slot
  uint64_t ip_ = 0, tsc_ = kBegin;
};

}  // namespace

PatchedOptions patched_options_of_seed(uint64_t seed) {
  Random random(seed ^ 0x7061746368ULL);
  PatchedOptions out;
  out.seed = seed;
  out.functions = 1 + random.below(5);
  out.slots = 1 + random.below(8);
  out.site_percent = 10 + random.below(80);
  out.steps = 50 + random.below(1000);
  out.patches = random.below(2 + out.steps / 20);
  out.tsc_every = random.chance(30) ? 0 : 2 + random.below(200);
  out.psb_every = 20 + random.below(1000);
  out.return_compression = random.chance(50);
  out.exact_only = random.chance(25);
  return out;
}

std::string describe(const PatchedOptions& options) {
  return "seed " + std::to_string(options.seed) + ", " + std::to_string(options.steps) + " steps, " + std::to_string(options.patches) +
         " patches, a TSC in " + std::to_string(options.tsc_every) + (options.return_compression ? ", compressed returns" : "") +
         (options.exact_only ? ", exact walker" : "");
}

PatchedRun run_patched(const PatchedOptions& options) {
  PatchedRun out;
  PatchedMachine(options, out).run();
  return out;
}

}  // namespace ptd::test
