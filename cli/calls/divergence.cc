// show_divergence(): see divergence.h.
#include "cli/calls/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "analysis/paths/call_sequence.h"
#include "analysis/paths/module_match.h"
#include "cli/options/exit_status.h"
#include "cli/text/clean_text.h"
#include "cli/text/shell_word.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

namespace {

constexpr uint64_t kContext = 4;  // moments shown before the first that differs

using Kept = std::map<size_t, CallSequences::Range>;

/// One of the two recordings.
struct RunSide {
  const CallWords* words = nullptr;
  std::unique_ptr<CallInput> input;
  ModuleMatch modules{};
  std::unique_ptr<CallSequences> sequences;
  [[nodiscard]] const CallSequence& thread(size_t index) const { return sequences->threads()[index]; }
  [[nodiscard]] const std::string& path() const { return words->input.path; }
};

/// Follows all calls; keeps those moments of threads that `kept` names. Returns the exit status.
int follow(RunSide& side, const Kept& kept) {
  side.sequences = std::make_unique<CallSequences>(side.input->functions(), side.modules, kept);
  const int status = side.input->walk(*side.words, [&side](std::span<const CallStep> steps, const CallTree& tree) {
    for (const CallStep& step : steps) {
      if (side.input->wanted(step, tree)) side.sequences->take(step, side.input->comm(step, tree), tree.threads()[step.thread].tid);
    }
    return true;
  });
  side.sequences->finish();
  return status;
}

/// "1.234567890", "-" if it is not known.
std::string when_text(TimeNs time) { return time == kTimeMin ? "-" : moment_text(time); }

/// What of two threads differs first, or that one of them is not known to its end.
struct Difference {
  ThreadPair threads;
  std::optional<uint64_t> calls, instructions;    ///< piece
  std::string calls_text{}, instructions_text{};  ///< "": none, or it only seems to differ because flow was lost
  [[nodiscard]] bool is_seen() const { return !calls_text.empty() || !instructions_text.empty(); }
  /// The moments of a piece, and some before it.
  [[nodiscard]] CallSequences::Range range(uint64_t piece) const {
    const uint64_t first = piece * CallSequences::kPiece;
    return {first - std::min(first, kContext), CallSequences::kPiece + kContext};
  }
};

/// Describes the differences of two recordings.
class DivergenceText {
 public:
  explicit DivergenceText(const std::array<RunSide, 2>& sides) : sides_(sides) {}

  /// Compares the moments that both sides have kept of two threads; "" if the first that differs is of the other kind, or not known in one
  /// of them.
  [[nodiscard]] std::string text(const Difference& difference, bool calls) const {
    const std::vector<CallMoment>&a = sides_[0].sequences->kept(difference.threads.a), &b = sides_[1].sequences->kept(difference.threads.b);
    const auto [at_a, at_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end(),
                                            [&](const CallMoment& one, const CallMoment& other) { return same(one, other, calls); });
    const auto at = static_cast<size_t>(at_a - a.begin());
    if (is_lost(0, difference.threads.a, a, at) || is_lost(1, difference.threads.b, b, at)) return {};
    if (!calls && (at >= a.size() || at >= b.size() || a[at].enters || b[at].enters)) return {};
    std::string out = calls ? "  first call that differs\n" : "  first call that executes other instructions\n";
    for (size_t i = at - std::min<size_t>(at, kContext); calls && i < at; ++i) out += moment_line(' ', 0, a[i]);
    return out + end_text('A', 0, a, at, difference.threads.a, calls) + end_text('B', 1, b, at, difference.threads.b, calls);
  }

 private:
  [[nodiscard]] bool same(const CallMoment& a, const CallMoment& b, bool calls) const {
    if (a.enters != b.enters) return false;
    if (a.enters) return name(0, a.function) == name(1, b.function);
    return calls || (a.counted == b.counted && (!a.counted || a.instructions == b.instructions));
  }
  /// The moment `at` would come after the loss.
  [[nodiscard]] bool is_lost(size_t side, size_t thread, const std::vector<CallMoment>& moments, size_t at) const {
    return at == moments.size() && sides_[side].thread(thread).loss != CallLoss::none;
  }
  [[nodiscard]] std::string name(size_t side, FunctionId function) const {
    return function == kNoFunction ? std::string() : comparable_name(sides_[side].input->functions().info(function), sides_[side].modules);
  }
  /// "main > handle > parse"
  [[nodiscard]] std::string path_text(size_t side, uint32_t path) const {
    std::string text;
    const std::vector<CallPaths::Path>& paths = sides_[side].sequences->paths().paths();
    for (; path != CallPaths::kRoot; path = paths[path].parent) {
      const std::string one = shown(function_text(sides_[side].input->functions(), paths[path].function));
      text = text.empty() ? one : one + " > " + text;
    }
    return text;
  }
  [[nodiscard]] std::string moment_line(char letter, size_t side, const CallMoment& moment) const {
    const std::string what = !moment.enters ? "ends" : moment.counted ? "calls" : "is in";
    const std::string counted = moment.enters || !moment.counted ? "" : fmt::format("  ({} instructions)", moment.instructions);
    return fmt::format("    {} {} {:<5} {}{}\n", letter, when_text(moment.time), what, path_text(side, moment.path), counted);
  }
  [[nodiscard]] std::string end_text(char letter, size_t side, const std::vector<CallMoment>& moments, size_t at, size_t thread,
                                     bool calls) const {
    if (at >= moments.size()) return fmt::format("    {} its trace ends here\n", letter);
    const CallMoment& moment = moments[at];
    const TimeNs from = calls ? moment.time : moment.start;
    const std::string time =
        from == kTimeMin ? "" : fmt::format(" --time {},{}", moment_text(from), calls ? "+1ms" : moment_text(moment.time));
    return moment_line(letter, side, moment) +
           fmt::format("      ptdecode script -i {} --tid {}{}\n", shell_word(sides_[side].path()), sides_[side].thread(thread).tid, time);
  }

  const std::array<RunSide, 2>& sides_;
};

/// Compares the hashes of all threads that have a partner.
std::vector<Difference> differences_of(const std::array<RunSide, 2>& sides, const std::vector<ThreadPair>& pairs) {
  std::vector<Difference> differences;
  for (const ThreadPair& pair : pairs) {
    const CallSequence &a = sides[0].thread(pair.a), &b = sides[1].thread(pair.b);
    Difference difference{pair, first_difference(a.calls, b.calls), first_difference(a.instructions, b.instructions)};
    if (difference.instructions && difference.calls && *difference.instructions > *difference.calls) difference.instructions.reset();
    const bool lost = a.loss != CallLoss::none || b.loss != CallLoss::none;
    if (difference.calls || difference.instructions || lost) differences.push_back(difference);
  }
  return differences;
}

void print_heading(const std::array<RunSide, 2>& sides, const std::vector<ThreadPair>& pairs, const std::vector<Difference>& differences) {
  const auto different =
      static_cast<size_t>(std::count_if(differences.begin(), differences.end(), [](const Difference& one) { return one.is_seen(); }));
  const size_t in_part = differences.size() - different;
  Output& out = standard_output();
  out.write(fmt::format("A: {}\nB: {}\n", shown(sides[0].path()), shown(sides[1].path())));
  std::set<std::string> unmatched = sides[0].sequences->unmatched();
  unmatched.insert(sides[1].sequences->unmatched().begin(), sides[1].sequences->unmatched().end());
  out.write(unmatched_text(unmatched));
  for (size_t side = 0; side < sides.size(); ++side) out.write(untimed_text(side, *sides[side].input));
  out.write(fmt::format("{}: {} the same, {} not{}\n", counted(pairs.size(), "pair of threads", "pairs of threads"),
                        pairs.size() - differences.size(), different, in_part == 0 ? "" : fmt::format(", {} compared in part", in_part)));
  std::array<uint64_t, 2> interrupts{};
  for (const ThreadPair& pair : pairs) {
    interrupts[0] += sides[0].thread(pair.a).interrupts;
    interrupts[1] += sides[1].thread(pair.b).interrupts;
  }
  if (interrupts != std::array<uint64_t, 2>{})
    out.write(fmt::format("interrupts and handlers of signals, which are not compared: {} in A, {} in B\n", interrupts[0], interrupts[1]));
  for (size_t side = 0; side < sides.size(); ++side) {
    std::vector<bool> has_partner(sides[side].sequences->threads().size());
    for (const ThreadPair& pair : pairs) has_partner[side == 0 ? pair.a : pair.b] = true;
    for (size_t i = 0; i < has_partner.size(); ++i) {
      if (has_partner[i]) continue;
      const CallSequence& thread = sides[side].thread(i);
      out.write(fmt::format("only in {}: {} (tid {})\n", side == 0 ? 'A' : 'B', shown(thread.comm), thread.tid));
    }
  }
}

/// Decodes both sides again and describes one kind of difference.
int describe(std::array<RunSide, 2>& sides, std::vector<Difference>& differences, bool calls) {
  const auto piece = calls ? &Difference::calls : &Difference::instructions;
  std::array<Kept, 2> kept;
  for (const Difference& difference : differences) {
    if (!(difference.*piece)) continue;
    kept[0][difference.threads.a] = kept[1][difference.threads.b] = difference.range(*(difference.*piece));
  }
  if (kept[0].empty()) return kExitOk;
  for (size_t side = 0; side < sides.size(); ++side) {
    if (const int status = follow(sides[side], kept[side]); status != kExitOk) return status;
  }
  const DivergenceText texts(sides);
  for (Difference& difference : differences) {
    if (difference.*piece) (calls ? difference.calls_text : difference.instructions_text) = texts.text(difference, calls);
  }
  return kExitOk;
}

void print_thread(const std::array<RunSide, 2>& sides, const Difference& difference) {
  const CallSequence &a = sides[0].thread(difference.threads.a), &b = sides[1].thread(difference.threads.b);
  Output& out = standard_output();
  const std::string between = a.comm == b.comm ? ", B: " : fmt::format("), {} (B: ", shown(b.comm));
  out.write(fmt::format("\n{} (A: tid {}{}tid {})\n", shown(a.comm), a.tid, between, b.tid));
  out.write(difference.instructions_text + difference.calls_text);
  if (!difference.calls_text.empty()) return;
  for (const auto& [letter, thread, other] : {std::tuple('A', &a, &b), std::tuple('B', &b, &a)}) {
    if (thread->loss == CallLoss::none || (other->loss != CallLoss::none && other->moments < thread->moments)) continue;
    const std::string when = thread->lost == kTimeMin ? "that come next" : "after " + moment_text(thread->lost);
    out.write(fmt::format("  calls of {} {} are not compared: {}\n", letter, when, sentence(thread->loss)));
  }
  if (difference.instructions_text.empty()) out.write("  those before are the same\n");
}

}  // namespace

int show_divergence(const std::array<CallWords, 2>& words) {
  std::array<RunSide, 2> sides;
  for (size_t i = 0; i < sides.size(); ++i) {
    sides[i].words = &words[i];
    Result<std::unique_ptr<CallInput>> opened = CallInput::open(words[i]);
    if (!opened) return report_error(opened.error());
    sides[i].input = std::move(*opened);
  }
  std::array<ModuleMatch, 2> modules = match_modules(sides[0].input->recording(), sides[1].input->recording());
  for (size_t i = 0; i < sides.size(); ++i) {
    sides[i].modules = std::move(modules[i]);
    if (const int status = follow(sides[i], {}); status != kExitOk) return status;
    if (const int matched = sides[i].input->say_summary(words[i], !sides[i].sequences->threads().empty()); matched != kExitOk)
      return matched;
  }
  const std::vector<ThreadPair> pairs = match_threads(sides[0].sequences->threads(), sides[1].sequences->threads());
  std::vector<Difference> differences = differences_of(sides, pairs);
  for (const bool calls : {false, true}) {
    if (const int status = describe(sides, differences, calls); status != kExitOk) return status;
  }
  print_heading(sides, pairs, differences);
  for (const Difference& difference : differences) print_thread(sides, difference);
  standard_output().flush();
  const bool unpaired = pairs.size() != sides[0].sequences->threads().size() || pairs.size() != sides[1].sequences->threads().size();
  return differences.empty() && !unpaired ? kExitOk : kExitFinding;
}

}  // namespace ptd::cli
