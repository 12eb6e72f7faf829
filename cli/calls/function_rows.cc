// Rows of `ptdecode functions`: see function_rows.h.
#include "cli/calls/function_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace ptd::cli {

namespace {

uint64_t rank_of(const std::string& sort, const FunctionTotals& totals, bool timed) {
  if (sort == "calls") return totals.calls;
  if (sort == "instructions") return totals.self_instructions;
  if (!timed) return sort == "total" ? totals.instructions : totals.self_instructions;
  if (sort == "total") return totals.total_ns;
  return sort == "max" ? totals.durations.max() : totals.self_ns;
}

}  // namespace

void SlowCalls::add(SlowCall call) {
  if (!wants(call.step)) return;
  const auto longer = [](const SlowCall& a, const SlowCall& b) { return is_longer(a.step, b.step); };
  calls_.insert(std::upper_bound(calls_.begin(), calls_.end(), call, longer), std::move(call));
  if (calls_.size() > limit_) calls_.pop_back();
}

FunctionFilter filter_of(const std::string& function, const FunctionTable& functions) {
  return {functions, function.empty() ? std::vector<std::string>() : std::vector{function}};
}

std::vector<FunctionRow> ranked(const FunctionOrder& order, const FunctionProfile& profile, const FunctionTable& functions) {
  std::vector<FunctionRow> rows;
  FunctionFilter filter = filter_of(order.function, functions);
  for (FunctionId id = 0; id < profile.functions().size(); ++id) {
    if (profile.functions()[id].met() && filter.wanted(id)) rows.push_back({id, &profile.functions()[id]});
  }
  if (order.function.empty() && profile.untraced().met()) rows.push_back({kNoFunction, &profile.untraced()});
  // Numbers of functions depend on which stream met one first.
  const auto names = [&](const FunctionRow& row) {
    using Names = std::pair<std::string_view, std::string_view>;
    return row.id == kNoFunction ? Names() : Names(functions.info(row.id).name, functions.info(row.id).module);
  };
  std::sort(rows.begin(), rows.end(), [&](const FunctionRow& a, const FunctionRow& b) {
    const uint64_t of_a = rank_of(order.sort, *a.totals, order.timed), of_b = rank_of(order.sort, *b.totals, order.timed);
    return of_a != of_b ? of_a > of_b : names(a) < names(b);
  });
  return rows;
}

nlohmann::json function_json(const FunctionRow& row, bool timed, const FunctionTable& functions) {
  const FunctionTotals& t = *row.totals;
  nlohmann::json json = {{"function", function_text(functions, row.id)},
                         {"module", row.id == kNoFunction ? "" : functions.info(row.id).module},
                         {"calls", t.calls},
                         {"partial", t.partial()},
                         {"no_start", t.no_start},
                         {"no_end", t.no_end},
                         {"self_instructions", t.self_instructions},
                         {"total_instructions", t.instructions}};
  if (timed) {
    const auto sum = [&t](uint64_t ns) { return t.has_times() ? nlohmann::json(ns) : nlohmann::json(); };
    const auto of_calls = [&t](uint64_t ns) { return t.durations.count() == 0 ? nlohmann::json() : nlohmann::json(ns); };
    json.update({{"self_ns", sum(t.self_ns)},
                 {"total_ns", sum(t.total_ns)},
                 {"off_cpu_ns", sum(t.off_cpu_ns)},
                 {"untraced_ns", sum(t.untraced_ns)},
                 {"lost_ns", sum(t.lost_ns)},
                 {"self_cycles", t.self_cycles},
                 {"total_cycles", t.cycles},
                 {"p50_ns", of_calls(t.durations.quantile(0.5))},
                 {"p99_ns", of_calls(t.durations.quantile(0.99))},
                 {"max_ns", of_calls(t.durations.max())},
                 {"estimated", t.estimated}});
  }
  return json;
}

std::string start_text(const CallStep& step) { return step.start_floor == kTimeMin ? std::string() : moment_text(step.start_floor); }

nlohmann::json slow_call_json(const SlowCall& call, const FunctionTable& functions) {
  nlohmann::json json = {{"call", function_text(functions, call.step.function)},
                         {"pid", call.pid},
                         {"tid", call.tid},
                         {"comm", call.comm},
                         {"instructions", call.step.instructions},
                         {"end_seen", (call.step.flags & kCallCut) == 0},
                         {"estimated", (call.step.flags & kCallEstimated) != 0}};
  if ((call.step.flags & kCallUndated) != 0) return json;
  json.update({{"start", start_text(call.step)},
               {"end", moment_text(call.step.time)},
               {"start_ns", call.step.start.value},
               {"end_ns", call.step.time.value},
               {"off_cpu_ns", call.step.off_cpu_ns},
               {"untraced_ns", call.step.untraced_ns}});
  return json;
}

}  // namespace ptd::cli
