// What the demonstration's kernel does to its own text, in order.
#include <utility>

#include "tests/demo/runner.h"

namespace ptd::demo {
namespace {

using CodeBytes = std::vector<std::byte>;
using NewText = std::vector<std::pair<uint64_t, CodeBytes>>;

constexpr size_t kProbeBytes = 5;
constexpr uint64_t kNextPages = 0x4000;  ///< from the pages of one round's probe to those of the next
constexpr uint64_t kCopiedOffset = 7;    ///< of the displaced instructions in an optimised probe's template

CodeBytes joined(CodeBytes a, const CodeBytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
CodeBytes first_of(const CodeBytes& bytes) { return {bytes.front()}; }
CodeBytes tail_of(const CodeBytes& bytes) { return {bytes.begin() + 1, bytes.end()}; }
const CodeBytes kInt3 = {std::byte{0xcc}};

class Planner {
 public:
  explicit Planner(const Kernel& kernel)
      : kernel_(kernel),
        key_(kernel.at("hot_keys.key_site")),
        trace_(kernel.at("hot_keys.trace_site")),
        static_call_(kernel.at("hot_static_call.site")),
        fentry_(kernel.at("hot_traced.fentry")),
        probe_(kernel.at("hot_probed.probe")) {
    now_[key_] = now_[trace_] = now_[fentry_] = nop5();
    now_[static_call_] = call_to(static_call_, kernel.at("choice_first"));
    now_[probe_] = displaced_ = from_hex("55 48 89 e5 90");
  }

  void round(int cpu) {
    cpu_ = cpu;
    slot_ = kSlotPage + static_cast<uint64_t>(cpu) * kNextPages;
    template_ = kTemplatePage + static_cast<uint64_t>(cpu) * kNextPages;
    const CodeBytes key_jump = jump_to(key_, kernel_.at("hot_keys.key_slow")),
                    trace_jump = jump_to(trace_, kernel_.at("hot_keys.trace_slow"));
    jump_labels({{key_, key_jump}, {trace_, trace_jump}});
    static_call("choice_second");
    start_ftrace();
    arm_probe();
    prepare_optimised_probe();
    optimise_probe();
    jump_labels({{trace_, nop5()}});
    static_call("choice_third");
    jump_labels({{key_, nop5()}, {trace_, trace_jump}});
    unoptimise_probe();
    disarm_probe();
    stop_ftrace();
    jump_labels({{key_, key_jump}, {trace_, nop5()}});
  }

  std::vector<Change> take() { return std::move(changes_); }

 private:
  Change& begin(const char* function) {
    changes_.push_back({cpu_, function, {}, {}, {}, {}, 0});
    return changes_.back();
  }

  // text_poke_bp_batch: INT3s, then tails with their records, then first bytes.
  void batch(Change& change, const NewText& sites) {
    const auto each = [&](const auto& use) {
      for (size_t i = 0; i < sites.size(); ++i) use(sites[i].first, sites[i].second, i + 1 < sites.size());
    };
    each([&](uint64_t site, const CodeBytes& text, bool more) { change.writes.push_back({site, kInt3, more, text}); });
    each([&](uint64_t site, const CodeBytes& text, bool more) {
      change.writes.push_back({site + 1, tail_of(text), more});
      change.records.push_back({site, now_[site], text});
      now_[site] = text;
    });
    each([&](uint64_t site, const CodeBytes& text, bool more) { change.writes.push_back({site, first_of(text), more}); });
  }

  void jump_labels(const NewText& sites) {
    NewText changed;
    for (const auto& site : sites) {
      if (now_[site.first] != site.second) changed.push_back(site);
    }
    batch(begin("arch_jump_label_transform_apply"), changed);
  }
  void static_call(const char* target) {
    batch(begin("arch_static_call_transform"), {{static_call_, call_to(static_call_, kernel_.at(target))}});
  }

  // The trampoline is at the same address both times, with other code.
  void start_ftrace() {
    Change& change = begin("ftrace_startup");
    const char* callee = cpu_ == 0 ? "function_trace_call" : "function_stack_trace_call";
    const CodeBytes save = from_hex(cpu_ == 0 ? "51" : "50 51"), restore = from_hex(cpu_ == 0 ? "59 c3" : "59 58 c3");
    trampoline_ = joined(joined(save, call_to(kTrampoline + save.size(), kernel_.at(callee))), restore);
    trampoline_.resize(kTrampolineBytes, std::byte{0xcc});
    change.symbols.push_back({kTrampoline, kTrampolineBytes, "ftrace_trampoline"});
    change.records.push_back({kTrampoline, {}, trampoline_});
    batch(change, {{fentry_, call_to(fentry_, kTrampoline)}});
  }

  void stop_ftrace() {
    Change& change = begin("ftrace_shutdown");
    batch(change, {{fentry_, nop5()}});
    change.records.push_back({kTrampoline, trampoline_, {}});
    change.symbols.push_back({kTrampoline, kTrampolineBytes, "ftrace_trampoline", true});
  }

  // The slot runs the first displaced instruction and jumps back to the next.
  void arm_probe() {
    Change& change = begin("arch_arm_kprobe");
    change.symbols.push_back({slot_, kSlotPageBytes, "kprobe_insn_page"});
    change.records.push_back({slot_, {}, joined(first_of(displaced_), jump_to(slot_ + 1, probe_ + 1))});
    change.writes.push_back({probe_, kInt3, false, jump_to(probe_, slot_)});
    change.records.push_back({probe_, first_of(displaced_), kInt3});
    now_[probe_] = joined(kInt3, tail_of(displaced_));
  }

  void prepare_optimised_probe() {
    Change& change = begin("arch_prepare_optimized_kprobe");
    CodeBytes code = joined(from_hex("50"), call_to(template_ + 1, kernel_.at("optimized_callback")));
    code = joined(joined(code, from_hex("58")), displaced_);
    code = joined(code, jump_to(template_ + code.size(), probe_ + kProbeBytes));
    change.symbols.push_back({template_, kSlotPageBytes, "kprobe_optinsn_page"});
    change.records.push_back({template_, {}, code});
  }

  // First an INT3 leads to the template's copy of the displaced instructions, so that no cpu is within them when the jump is written.
  void optimise_probe() {
    Change& change = begin("arch_optimize_kprobes");
    change.emulated_at = probe_;
    change.emulated = jump_to(probe_, template_ + kCopiedOffset);
    batch(change, {{probe_, jump_to(probe_, template_)}});
  }

  void unoptimise_probe() {
    Change& change = begin("arch_unoptimize_kprobe");
    const CodeBytes armed = joined(kInt3, tail_of(displaced_));
    change.writes.push_back({probe_, kInt3, false, jump_to(probe_, template_ + kCopiedOffset)});
    change.writes.push_back({probe_ + 1, tail_of(displaced_), false});
    change.records.push_back({probe_, now_[probe_], armed});
    now_[probe_] = armed;
  }

  void disarm_probe() {
    Change& change = begin("arch_disarm_kprobe");
    change.emulated_at = probe_;
    change.emulated = jump_to(probe_, slot_);
    change.records.push_back({probe_, kInt3, first_of(displaced_)});
    change.writes.push_back({probe_, first_of(displaced_), false});
    change.symbols.push_back({slot_, kSlotPageBytes, "kprobe_insn_page", true});
    change.symbols.push_back({template_, kSlotPageBytes, "kprobe_optinsn_page", true});
    now_[probe_] = displaced_;
  }

  const Kernel& kernel_;
  uint64_t key_, trace_, static_call_, fentry_, probe_;
  CodeBytes displaced_, trampoline_;
  std::map<uint64_t, CodeBytes> now_;
  int cpu_ = 0;
  uint64_t slot_ = 0, template_ = 0;
  std::vector<Change> changes_;
};

}  // namespace

std::vector<Change> plan_changes(const Kernel& kernel) {
  Planner planner(kernel);
  planner.round(0);
  planner.round(1);
  return planner.take();
}

}  // namespace ptd::demo
