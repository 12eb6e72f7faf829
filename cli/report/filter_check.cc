// Filters that match nothing: see filter_check.h.
#include "cli/report/filter_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/names/name_match.h"
#include "analysis/names/nearest_word.h"
#include "cli/report/finding_text.h"

namespace ptd::cli {

namespace {

constexpr size_t kListedFilters = 8;

struct KnownTasks {
  std::set<int32_t> cpus, pids, tids;
};

KnownTasks known_tasks(const Recording& recording) {
  KnownTasks known;
  const auto add = [&known](const Context& context) {
    if (context.pid >= 0) known.pids.insert(context.pid);
    if (context.tid >= 0) known.tids.insert(context.tid);
  };
  const ContextTrack& contexts = recording.contexts();
  for (const int32_t cpu : contexts.cpus()) {
    for (const ContextTrack::Switch& change : contexts.switches(cpu)) add(change.to);
  }
  for (const int32_t tid : contexts.threads()) {
    known.tids.insert(tid);
    for (const ContextTrack::Switch& change : contexts.thread_changes(tid)) add(change.to);
  }
  for (const StreamInfo& stream : recording.streams()) {
    if (stream.cpu >= 0) known.cpus.insert(stream.cpu);
    if (stream.tid >= 0) known.tids.insert(stream.tid);
  }
  return known;
}

std::string some_of(const std::set<int32_t>& numbers) {
  std::string text;
  size_t listed = 0;
  for (const int32_t number : numbers) {
    if (++listed > kListedFilters) return text + fmt::format(" and {} more", numbers.size() - kListedFilters);
    text += fmt::format("{}{}", text.empty() ? "" : ", ", number);
  }
  return text.empty() ? "none" : text;
}

void check(std::string_view option, std::string_view what, const std::vector<int32_t>& asked, const std::set<int32_t>& known,
           std::vector<std::string>& said) {
  std::set<int32_t> absent;
  for (const int32_t number : asked) {
    if (!known.contains(number)) absent.insert(number);
  }
  if (absent.empty()) return;
  said.push_back(fmt::format("{}: no {} {} in the recording; there are {}", option, what, some_of(absent), some_of(known)));
}

Interval span_of(const Recording& recording) {
  Interval span{kTimeMax, kTimeMin};
  for (const StreamInfo& stream : recording.streams()) span = hull(span, stream.time);
  return span;
}

}  // namespace

bool has_time(const Recording& recording) {
  bool any = false;
  for (uint32_t i = 0; recording.has_time_conversion() && i < recording.streams().size(); ++i)
    any |= recording.streams()[i].time.first != kTimeMin || recording.arm_config(i) != nullptr;
  return any;
}

const char* why_untimed(const Recording& recording) {
  return recording.has_time_conversion() ? "the trace contains no time"
                                         : "the frequency of the trace's clock is not known; give it with --clock-freq";
}

bool ever_named(const ScriptOptions& options, const Recording& recording, int32_t tid, Interval during) {
  bool is_wanted = options.comms.empty();
  Interval named;
  for (TimeNs when = during.first; !is_wanted && when <= during.last; when = TimeNs{named.last.value + 1}) {
    is_wanted = among(options.comms, recording.comm_at(tid, when, &named));
    if (named.last == kTimeMax) break;
  }
  return is_wanted;
}

std::vector<uint32_t> matching_streams(const ScriptOptions& options, const Recording& recording) {
  std::vector<uint32_t> streams, matching;
  const auto may_match = [&](const StreamInfo& stream) {
    const std::vector<ContextTrack::Switch>& contexts = recording.contexts().thread_changes(stream.tid);
    const auto may_be = [&](const ContextTrack::Switch& change) { return change.to.pid < 0 || among(options.pids, change.to.pid); };
    return (contexts.empty() || std::any_of(contexts.begin(), contexts.end(), may_be)) &&
           ever_named(options, recording, stream.tid, stream.time);
  };
  for (uint32_t i = 0; i < recording.streams().size(); ++i) {
    const StreamInfo& stream = recording.streams()[i];
    if (!among(options.cpus, stream.cpu) || (stream.cpu < 0 && !among(options.tids, stream.tid))) continue;
    streams.push_back(i);
    if (stream.cpu >= 0 || may_match(stream)) matching.push_back(i);
  }
  return matching.empty() ? streams : matching;
}

std::vector<std::string> impossible_filters(const ScriptOptions& options, const Recording& recording) {
  std::vector<std::string> said;
  const KnownTasks known = known_tasks(recording);
  if (known.cpus.empty() && !options.cpus.empty()) {
    said.push_back("-C: the trace has one stream per thread, not per cpu: use --tid");
  } else {
    check("-C", "trace of cpu", options.cpus, known.cpus, said);
  }
  check("--pid", "process", options.pids, known.pids, said);
  check("--tid", "thread", options.tids, known.tids, said);
  const Interval span = span_of(recording);
  for (const Interval& range : options.times) {
    if (!span.empty() && !range.overlaps(span))
      said.push_back(fmt::format("--time: nothing was traced in {}; the trace is of {}", time_text(range), time_text(span)));
  }
  return said;
}

std::string nothing_matched(const ScriptOptions& options, const Recording& recording) {
  std::string filters, hint;
  const auto add = [&filters](bool given, std::string_view option) {
    if (given) filters += (filters.empty() ? "" : ", ") + std::string(option);
  };
  add(!options.cpus.empty(), "-C");
  add(!options.pids.empty(), "--pid");
  add(!options.tids.empty(), "--tid");
  add(!options.times.empty(), "--time");
  add(!options.comms.empty(), "--comm");
  add(!options.symbols.empty(), "-S");
  if (filters.empty()) return {};
  for (const std::string& symbol : options.symbols) {
    if (!is_glob(symbol) && recording.symbolizer().addresses_of(symbol).empty())
      hint += fmt::format("; no function is named '{}' (-S does not know those that are inlined)", symbol);
  }
  std::set<std::string> names;
  for (const auto& [tid, name] : recording.thread_names()) names.insert(name);
  if (known_tasks(recording).tids.contains(0)) names.insert(recording.comm_at(0, kTimeMax));
  for (const std::string& comm : options.comms) {
    if (names.contains(comm)) continue;
    const std::string near = nearest_word(comm, {names.begin(), names.end()});
    hint += fmt::format("; no thread is named '{}'{}", comm, near.empty() ? "" : fmt::format(" (there is '{}')", near));
  }
  const bool untimed = !options.times.empty() && !has_time(recording);
  if (untimed) hint += fmt::format("; {}", why_untimed(recording));
  const bool may_have_none = !options.itrace.instructions && !options.itrace.any_branch();  // of the events that were asked for
  if (may_have_none && hint.empty() && impossible_filters(options, recording).empty()) return {};
  const Interval span = span_of(recording);
  if (!untimed && std::any_of(options.times.begin(), options.times.end(), [&](const Interval& range) { return range.overlaps(span); }))
    hint += "; lines have the time of the timing packet before them, so a range between two such packets may have none";
  return fmt::format("nothing matched {}{}; 'ptdecode info' lists threads, cpus and times", filters, hint);
}

}  // namespace ptd::cli
