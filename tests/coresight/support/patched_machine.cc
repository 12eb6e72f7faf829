// A64 kernel code that is patched while it runs. Functions are rows of words; a word has one or several versions.
#include "tests/coresight/support/patched_machine.h"

#include <algorithm>

#include "tests/differential/program.h"

namespace ptd::test {
namespace {

constexpr uint64_t kBase = 0xffffffc000080000;
constexpr size_t kReturnStackDepth = 16;
constexpr uint32_t kNop = 0xd503201f, kRet = 0xd65f03c0, kBlrX0 = 0xd63f0000;

enum class Does : uint8_t { nothing, conditional, jump, call, call_indirect, ret };
struct Version {
  Does does = Does::nothing;
  uint32_t word = kNop;
  uint64_t target = 0;
};
struct Slot {
  std::vector<Version> versions;
  size_t now = 0;
};

uint32_t words_to(uint64_t ip, uint64_t target) { return static_cast<uint32_t>((target - ip) / 4); }
Version jump(uint64_t ip, uint64_t target) { return {Does::jump, 0x14000000 | (words_to(ip, target) & 0x3ffffff), target}; }
Version call(uint64_t ip, uint64_t target) { return {Does::call, 0x94000000 | (words_to(ip, target) & 0x3ffffff), target}; }
Version cbz(uint64_t ip, uint64_t target) { return {Does::conditional, 0xb4000000 | (words_to(ip, target) & 0x7ffff) << 5, target}; }
Version mov(uint32_t number) { return {Does::nothing, 0xd2800000 | number << 5, 0}; }

std::vector<std::byte> bytes_of(uint32_t word) {
  std::vector<std::byte> out;
  for (unsigned i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(word >> (8 * i)));
  return out;
}

class PatchedMachine {
 public:
  PatchedMachine(const ArmPatchedOptions& options, ArmPatchedRun& out) : options_(options), out_(out), random_(options.seed) {
    build();
    out_.base = kBase;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const std::vector<std::byte> word = bytes_of(slots_[i].versions[0].word);
      out_.code.insert(out_.code.end(), word.begin(), word.end());
      if (slots_[i].versions.size() > 1) sites_.push_back(i);
    }
    for (uint32_t i = 0; i < options_.patches && !sites_.empty(); ++i) {
      patches_.emplace_back(kBegin + random_.below(options_.steps * kMeanTicks), sites_[random_.below(static_cast<uint32_t>(sites_.size()))]);
    }
    std::ranges::sort(patches_);
  }

  void run() {
    ip_ = kBase;
    sync(true);
    // The trace ends with a P0 instruction: no packet tells what ran after it.
    for (uint32_t i = 0; i < options_.steps || !at_p0_; ++i) {
      time_ += 1 + random_.below(2 * kMeanTicks);
      patch();
      step();
      if (!at_p0_) continue;
      if (random_.below(options_.sync_every) == 0) sync(false);
      if (options_.timestamp_every != 0 && random_.below(options_.timestamp_every) == 0) timestamp();
    }
    flush();
    out_.time = {TimeNs{kBegin}, TimeNs{time_}};
  }

 private:
  static constexpr uint64_t kBegin = 1'000'000;
  static constexpr uint32_t kMeanTicks = 10;

  // --- the program ---

  uint64_t next_ip() const { return kBase + 4 * slots_.size(); }
  void add(std::vector<Version> versions) { slots_.push_back({std::move(versions), 0}); }

  void build() {
    add({{Does::call_indirect, kBlrX0, 0}});  // the loop that calls a function
    add({jump(next_ip(), kBase)});
    for (int i = 0; i < 2; ++i) {  // what sites call
      callees_.push_back(next_ip());
      add({mov(0)});
      add({{Does::ret, kRet, 0}});
    }
    for (uint32_t i = 0; i < options_.functions; ++i) {
      functions_.push_back(next_ip());
      for (uint32_t left = options_.slots; left != 0; --left) add_slot(next_ip() + 4 * (1 + random_.below(left)));
      add({{Does::ret, kRet, 0}});
    }
  }

  // `ahead` is a later word of the function.
  void add_slot(uint64_t ahead) {
    const uint64_t ip = next_ip();
    if (!random_.chance(options_.site_percent)) return add({random_.chance(50) ? Version{} : cbz(ip, ahead)});
    const Version nop, first = call(ip, callees_[0]), second = call(ip, callees_[1]);
    switch (random_.below(7)) {
      case 0:
        return add({nop, jump(ip, ahead)});
      case 1:
        return add({jump(ip, ahead), nop});
      case 2:
        return add({nop, first});
      case 3:
        return add({first, second});
      case 4:
        return add({first, second, nop});
      case 5:
        return add({cbz(ip, ahead), nop});
      default:
        return add({mov(1), mov(2), mov(3)});
    }
  }

  // --- time ---

  void patch() {
    auto due = patches_.begin();
    for (; due != patches_.end() && due->first <= time_; ++due) {
      Slot& slot = slots_[due->second];
      const size_t next = (slot.now + 1 + random_.below(static_cast<uint32_t>(slot.versions.size() - 1))) % slot.versions.size();
      Edit edit;
      edit.ip = Ip{kBase + 4 * due->second};
      edit.old_bytes = bytes_of(slot.versions[slot.now].word);
      edit.new_bytes = bytes_of(slot.versions[next].word);
      if (options_.dated) {
        edit.time = {TimeNs{time_}, TimeNs{time_}};
      } else {
        edit.origin = EditOrigin::dated_copy;
      }
      out_.edits.push_back(std::move(edit));
      slot.now = next;
      time_ += 1 + random_.below(3);
    }
    patches_.erase(patches_.begin(), due);
  }

  // --- packets ---

  void put(uint64_t byte) { out_.trace.push_back(static_cast<std::byte>(byte)); }

  // A 64-bit address, with a context of EL1 (AArch64, non-secure) or without.
  void address(uint64_t ip, bool with_context) {
    put(with_context ? 0x85 : 0x9d);
    put(ip >> 2 & 0x7f);
    put(ip >> 9 & 0x7f);
    for (unsigned shift = 16; shift < 64; shift += 8) put(ip >> shift & 0xff);
    if (with_context) put(0x31);
  }

  // A-Sync, Trace Info, at the start Trace On, and the address after the last P0 instruction.
  void sync(bool start) {
    flush();
    for (int i = 0; i < 11; ++i) put(0);
    for (const unsigned byte : {0x80, 0x01, 0x01, 0x00}) put(byte);
    if (start) put(0x04);
    return_stack_.clear();
    address(ip_, true);
  }

  // The time of the last P0 instruction, which ran just now.
  void timestamp() {
    flush();
    put(0x02);
    uint64_t rest = time_;
    for (; rest > 0x7f; rest >>= 7) put(0x80 | (rest & 0x7f));
    put(rest);
  }

  void atom(bool executed) {
    at_p0_ = true;
    atoms_ |= (executed ? 1U : 0U) << atom_count_;
    if (++atom_count_ == 3 || random_.chance(20)) flush();
  }
  void flush() {
    constexpr unsigned kHeaders[] = {0, 0xf6, 0xd8, 0xf8};  // atom packets of formats 1 to 3
    if (atom_count_ != 0) put(kHeaders[atom_count_] | atoms_);
    atoms_ = atom_count_ = 0;
  }

  // --- the flow ---

  void push(uint64_t next) {
    stack_.push_back(next);
    return_stack_.push_back(next);
    if (return_stack_.size() > kReturnStackDepth) return_stack_.erase(return_stack_.begin());
  }

  // An indirect branch; a target that the return stack gives has no packet.
  void branch_to(uint64_t target, bool links, uint64_t next) {
    atom(true);
    ip_ = target;
    const bool known = options_.return_stack && !return_stack_.empty() && return_stack_.back() == target;
    if (known) return_stack_.pop_back();
    if (links) push(next);
    if (known) return;
    flush();
    address(target, false);
  }

  void step() {
    const Slot& slot = slots_[(ip_ - kBase) / 4];
    const Version& version = slot.versions[slot.now];
    out_.truth.push_back({ip_, bytes_of(version.word)});
    const uint64_t next = ip_ + 4;
    ip_ = next;
    at_p0_ = false;
    switch (version.does) {
      case Does::nothing:
        return;
      case Does::jump:
        ip_ = version.target;
        return atom(true);
      case Does::conditional: {
        const bool taken = random_.chance(50);
        if (taken) ip_ = version.target;
        return atom(taken);
      }
      case Does::call:
        push(next);
        ip_ = version.target;
        return atom(true);
      case Does::call_indirect:
        return branch_to(functions_[random_.below(static_cast<uint32_t>(functions_.size()))], true, next);
      case Does::ret: {
        const uint64_t target = stack_.back();
        stack_.pop_back();
        return branch_to(target, false, next);
      }
    }
  }

  const ArmPatchedOptions& options_;
  ArmPatchedRun& out_;
  Random random_;
  std::vector<Slot> slots_;
  std::vector<size_t> sites_;
  std::vector<uint64_t> functions_, callees_, stack_, return_stack_;
  std::vector<std::pair<uint64_t, size_t>> patches_;  ///< time, slot
  uint64_t ip_ = 0, time_ = kBegin;
  unsigned atoms_ = 0, atom_count_ = 0;
  bool at_p0_ = false;
};

}  // namespace

ArmPatchedOptions arm_patched_options_of_seed(uint64_t seed) {
  Random random(seed ^ 0x61726d7061746368ULL);
  ArmPatchedOptions out;
  out.seed = seed;
  out.functions = 1 + random.below(5);
  out.slots = 1 + random.below(8);
  out.site_percent = 10 + random.below(80);
  out.steps = 50 + random.below(1000);
  out.patches = random.below(2 + out.steps / 20);
  out.timestamp_every = random.chance(30) ? 0 : 2 + random.below(100);
  out.sync_every = 20 + random.below(500);
  out.dated = random.chance(50);
  out.return_stack = random.chance(25);
  out.exact_only = random.chance(50);
  out.batch_blocks = random.chance(50) ? 7 : 4096;
  return out;
}

std::string describe(const ArmPatchedOptions& options) {
  return "seed " + std::to_string(options.seed) + ", " + std::to_string(options.steps) + " steps, " + std::to_string(options.patches) +
         (options.dated ? " dated" : " undated") + " patches, a timestamp in " + std::to_string(options.timestamp_every) +
         (options.return_stack ? ", return stack" : "") + (options.exact_only ? ", atom by atom" : "") + ", batches of " +
         std::to_string(options.batch_blocks);
}

ArmPatchedRun run_arm_patched(const ArmPatchedOptions& options) {
  ArmPatchedRun out;
  PatchedMachine(options, out).run();
  return out;
}

}  // namespace ptd::test
