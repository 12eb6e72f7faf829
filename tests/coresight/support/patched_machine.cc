// Code that is patched while it runs. Functions are rows of words; a word has one or several versions.
#include "tests/coresight/support/patched_machine.h"

#include <algorithm>

#include "tests/coresight/support/patched_unit.h"
#include "tests/differential/program.h"

namespace ptd::test {
namespace {

constexpr size_t kReturnStackDepth = 16;

enum class Does : uint8_t { nothing, waypoint, conditional, jump, call, jump_indirect, call_indirect, ret, exception_return };
struct Version {
  Does does = Does::nothing;
  uint32_t word = 0;
  uint64_t target = 0;
};
struct Slot {
  std::vector<Version> versions;
  size_t now = 0;
};

/// Encodes instructions at the end of the code.
class Encoder {
 public:
  Encoder(bool a64, uint64_t base) : a64_(a64), ip(base) {}
  [[nodiscard]] Version nop() const { return {Does::nothing, a64_ ? 0xd503201fU : 0xe320f000U, 0}; }
  [[nodiscard]] Version mov(uint32_t number) const { return {Does::nothing, a64_ ? 0xd2800000 | number << 5 : 0xe3a00000 | number, 0}; }
  [[nodiscard]] Version isb() const { return {Does::waypoint, a64_ ? 0xd5033fdfU : 0xf57ff06fU, 0}; }
  [[nodiscard]] Version jump(uint64_t to) const { return {Does::jump, a64_ ? 0x14000000 | words(to, 26) : 0xea000000 | words(to, 24), to}; }
  [[nodiscard]] Version call(uint64_t to) const { return {Does::call, a64_ ? 0x94000000 | words(to, 26) : 0xeb000000 | words(to, 24), to}; }
  /// CBZ or BEQ.
  [[nodiscard]] Version branch_if(uint64_t to) const {
    return {Does::conditional, a64_ ? 0xb4000000 | words(to, 19) << 5 : 0x0a000000 | words(to, 24), to};
  }
  [[nodiscard]] Version jump_indirect(uint64_t to) const { return {Does::jump_indirect, a64_ ? 0xd61f0020U : 0xe12fff11U, to}; }
  [[nodiscard]] Version call_indirect(uint64_t to) const { return {Does::call_indirect, a64_ ? 0xd63f0000U : 0xe12fff30U, to}; }
  [[nodiscard]] Version ret() const { return {Does::ret, a64_ ? 0xd65f03c0U : 0xe12fff1eU, 0}; }
  /// ERET or SUBS PC, LR, #4.
  [[nodiscard]] Version exception_return() const { return {Does::exception_return, a64_ ? 0xd69f03e0U : 0xe25ef004U, 0}; }

 private:
  [[nodiscard]] uint32_t words(uint64_t to, unsigned bits) const {
    return static_cast<uint32_t>((to - ip - (a64_ ? 0 : 8)) / 4) & ((1U << bits) - 1);
  }
  bool a64_;

 public:
  uint64_t ip;
};

std::vector<std::byte> bytes_of(uint32_t word) {
  std::vector<std::byte> out;
  for (unsigned i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(word >> (8 * i)));
  return out;
}

class PatchedMachine {
 public:
  PatchedMachine(const ArmPatchedOptions& options, ArmPatchedRun& out)
      : options_(options),
        out_(out),
        random_(options.seed),
        base_(options.protocol == arm::Protocol::etmv4 ? 0xffffffc000080000 : 0x8000),
        unit_(make_patched_unit(config_of(options), options.seed)),
        make_(options.protocol == arm::Protocol::etmv4, base_) {
    build();
    out_.base = base_;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const std::vector<std::byte> word = bytes_of(slots_[i].versions[0].word);
      out_.code.insert(out_.code.end(), word.begin(), word.end());
      if (slots_[i].versions.size() > 1) sites_.push_back(i);
    }
    for (uint32_t i = 0; i < options_.patches && !sites_.empty(); ++i) plan_patch();
    std::ranges::stable_sort(patches_, {}, [](const auto& patch) { return patch.first; });
  }

  void run() {
    ip_ = base_;
    unit_->sync(ip_, true);
    // The trace ends with a P0 instruction: no packet tells what ran after it.
    for (uint32_t i = 0; i < options_.steps || !at_p0_; ++i) {
      time_ += 1 + random_.below(2 * kMeanTicks);
      patch();
      if (resume_ == 0 && options_.exception_every != 0 && random_.below(options_.exception_every) == 0) interrupt();
      step();
      if (!at_p0_) continue;
      if (random_.below(options_.sync_every) == 0) {
        unit_->sync(ip_, false);
        return_stack_.clear();
      }
      if (options_.timestamp_every != 0 && random_.below(options_.timestamp_every) == 0) unit_->timestamp(time_);
    }
    unit_->end();
    out_.trace = unit_->trace();
    if (options_.time_known) out_.time = {TimeNs{kBegin}, TimeNs{time_}};
  }

 private:
  static constexpr uint64_t kBegin = 1'000'000;
  static constexpr uint32_t kMeanTicks = 10;

  // --- the program ---

  void add(std::vector<Version> versions) {
    slots_.push_back({std::move(versions), 0});
    make_.ip += 4;
  }

  void build() {
    add({make_.call_indirect(0)});  // the loop that calls a function
    add({make_.jump(base_)});
    for (int i = 0; i < 2; ++i) {  // what sites call
      callees_.push_back(make_.ip);
      add({make_.mov(0)});
      add({make_.ret()});
    }
    handler_ = make_.ip;
    add({make_.mov(0)});
    add({make_.nop(), make_.jump(make_.ip + 8)});
    add({make_.mov(4)});
    add({make_.exception_return()});
    for (uint32_t i = 0; i < options_.functions; ++i) {
      functions_.push_back(make_.ip);
      for (uint32_t left = options_.slots; left != 0; --left) add_slot(left);
      add({make_.ret()});
    }
  }

  // `left`: slots of the function that are not added yet, with this one.
  void add_slot(uint32_t left) {
    const auto later = [&] { return make_.ip + 4 * (1 + random_.below(left)); };
    const uint64_t ahead = later(), further = later();
    const uint64_t back = functions_.back() + 4 * random_.below(options_.slots - left + 1);
    const Version nop = make_.nop(), first = make_.call(callees_[0]), second = make_.call(callees_[1]);
    if (!random_.chance(options_.site_percent)) return add({random_.chance(50) ? nop : make_.branch_if(random_.chance(80) ? ahead : back)});
    switch (random_.below(18)) {
      case 0:
        return add({nop, make_.jump(ahead)});
      case 1:
        return add({make_.jump(ahead), nop});
      case 2:
        return add({nop, first});
      case 3:
        return add({first, second});
      case 4:
        return add({first, second, nop});
      case 5:
        return add({make_.branch_if(ahead), nop});
      case 6:
        return add({make_.jump(ahead), make_.jump(further), nop});
      case 7:
        return add({make_.branch_if(ahead), make_.branch_if(further)});
      case 8:
        return add({make_.branch_if(back), nop, make_.jump(ahead)});
      case 9:
        return add({nop, make_.ret()});
      case 10:
        return add({make_.branch_if(ahead), make_.ret()});
      case 11:
        return add({nop, make_.jump_indirect(ahead)});
      case 12:
        return add({make_.jump(ahead), make_.jump_indirect(ahead), make_.jump_indirect(further)});
      case 13:
        return add({first, make_.call_indirect(callees_[0]), make_.call_indirect(callees_[1])});
      case 14:
        return add({nop, make_.isb(), make_.branch_if(ahead)});
      case 15:
        return add({first, make_.jump(ahead)});
      case 16:
        return add({nop, make_.jump(make_.ip + 4)});
      default:
        return add({make_.mov(1), make_.mov(2), make_.mov(3)});
    }
  }

  // --- time ---

  // One site, several at once, or one back and forth.
  void plan_patch() {
    uint64_t when = kBegin + random_.below(options_.steps * kMeanTicks);
    const uint32_t way = random_.below(10), count = way < 6 ? 1 : 2 + random_.below(3);
    size_t site = any_site();
    for (uint32_t i = 0; i < count; ++i) {
      patches_.emplace_back(when, site);
      if (way < 8) {
        site = any_site();
      } else {
        when += random_.below(4 * kMeanTicks);
      }
    }
  }
  size_t any_site() { return sites_[random_.below(static_cast<uint32_t>(sites_.size()))]; }

  void patch() {
    auto due = patches_.begin();
    for (; due != patches_.end() && due->first <= time_; ++due) {
      Slot& slot = slots_[due->second];
      const size_t next = (slot.now + 1 + random_.below(static_cast<uint32_t>(slot.versions.size() - 1))) % slot.versions.size();
      Edit edit;
      edit.ip = Ip{base_ + 4 * due->second};
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

  // --- the flow ---

  void interrupt() {
    unit_->exception(ip_, handler_);
    out_.exceptions.push_back(ip_);
    resume_ = ip_;
    ip_ = handler_;
  }

  void push(uint64_t next) {
    stack_.push_back(next);
    return_stack_.push_back(next);
    if (return_stack_.size() > kReturnStackDepth) return_stack_.erase(return_stack_.begin());
  }

  // An indirect branch; a target that the return stack gives has no packet.
  void branch_to(uint64_t target) {
    ip_ = target;
    const bool known = options_.return_stack && !return_stack_.empty() && return_stack_.back() == target;
    if (!known) return unit_->branch(target);
    return_stack_.pop_back();
    unit_->atom(true);
  }

  void step() {
    const Slot& slot = slots_[(ip_ - base_) / 4];
    const Version& version = slot.versions[slot.now];
    out_.truth.push_back({ip_, bytes_of(version.word)});
    const uint64_t next = ip_ + 4;
    at_p0_ = true;
    switch (version.does) {
      case Does::nothing:
        at_p0_ = unit_->other(ip_);
        ip_ = next;
        return;
      case Does::waypoint:
        ip_ = next;
        return unit_->atom(true);
      case Does::jump:
        ip_ = version.target;
        return unit_->atom(true);
      case Does::conditional: {
        const bool taken = random_.chance(50);
        ip_ = taken ? version.target : next;
        return unit_->atom(taken);
      }
      case Does::call:
        push(next);
        ip_ = version.target;
        return unit_->atom(true);
      case Does::call_indirect:
        ip_ = version.target != 0 ? version.target : functions_[random_.below(static_cast<uint32_t>(functions_.size()))];
        unit_->branch(ip_);
        return push(next);
      case Does::jump_indirect:
        return branch_to(version.target);
      case Does::ret: {
        const uint64_t target = stack_.back();
        stack_.pop_back();
        return branch_to(target);
      }
      case Does::exception_return:
        ip_ = resume_;
        resume_ = 0;
        return unit_->branch(ip_);
    }
  }

  const ArmPatchedOptions& options_;
  ArmPatchedRun& out_;
  Random random_;
  const uint64_t base_;
  std::unique_ptr<PatchedUnit> unit_;
  Encoder make_;
  std::vector<Slot> slots_;
  std::vector<size_t> sites_;
  std::vector<uint64_t> functions_, callees_, stack_, return_stack_;
  std::vector<std::pair<uint64_t, size_t>> patches_;  ///< time, slot
  uint64_t ip_ = 0, time_ = kBegin, handler_ = 0;
  uint64_t resume_ = 0;  ///< what the exception interrupted; 0: none
  bool at_p0_ = false;
};

}  // namespace

ArmPatchedOptions arm_patched_options_of_seed(uint64_t seed, arm::Protocol protocol) {
  Random random(seed ^ 0x61726d7061746368ULL);
  ArmPatchedOptions out;
  out.seed = seed;
  out.protocol = protocol;
  out.functions = 1 + random.below(5);
  out.slots = 1 + random.below(8);
  out.site_percent = 10 + random.below(80);
  out.steps = 50 + random.below(1000);
  out.patches = random.below(2 + out.steps / 30);
  out.timestamp_every = random.chance(30) ? 0 : 2 + random.below(100);
  out.sync_every = 20 + random.below(500);
  out.exception_every = random.chance(50) ? 0 : 10 + random.below(100);
  out.speculation = random.chance(60) ? 0 : 1 + random.below(20);
  out.dated = random.chance(50);
  out.time_known = random.chance(70);
  out.return_stack = protocol != arm::Protocol::etmv3 && random.chance(40);
  out.exact_only = random.chance(50);
  out.batch_blocks = random.chance(50) ? 7 : 4096;
  if (protocol == arm::Protocol::etmv4 && random.chance(15)) out.max_flows = 1 + random.below(4);
  out.cycles = protocol == arm::Protocol::etmv3 && random.chance(50);
  return out;
}

arm::TraceConfig config_of(const ArmPatchedOptions& options) {
  constexpr uint32_t kTimestamps = 1U << 11, kReturnStack = 1U << 12, kReturnStackOfPtm = 1U << 29, kCycleAccurate = 1U << 12;
  arm::TraceConfig config;
  config.protocol = options.protocol;
  if (options.protocol == arm::Protocol::etmv4) {
    config.configr = (options.timestamp_every != 0 ? kTimestamps : 0) | (options.return_stack ? kReturnStack : 0);
    config.idr8 = options.speculation;
    return config;
  }
  config.idr0 = options.protocol == arm::Protocol::ptm ? 0x4100f310 : 0x4110f250;
  config.idr1 = 0;
  config.configr = (options.return_stack ? kReturnStackOfPtm : 0) | (options.cycles ? kCycleAccurate : 0);
  return config;
}

std::string describe(const ArmPatchedOptions& options) {
  const auto each = [](const char* what, uint32_t every) { return every == 0 ? "" : std::string(what) + std::to_string(every); };
  return "seed " + std::to_string(options.seed) + ", " + std::to_string(options.steps) + " steps, " + std::to_string(options.patches) +
         (options.dated ? " dated" : " undated") + " patches" + each(", a timestamp in ", options.timestamp_every) +
         each(", an exception in ", options.exception_every) + each(", speculation ", options.speculation) +
         (options.time_known ? "" : ", no time of the trace") + (options.return_stack ? ", return stack" : "") +
         (options.cycles ? ", cycles" : "") + (options.exact_only ? ", atom by atom" : "") + each(", most flows ", options.max_flows) +
         ", batches of " + std::to_string(options.batch_blocks);
}

ArmPatchedRun run_arm_patched(const ArmPatchedOptions& options) {
  ArmPatchedRun out;
  PatchedMachine(options, out).run();
  return out;
}

}  // namespace ptd::test
