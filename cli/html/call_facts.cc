// CallFacts: see call_facts.h.
#include "cli/html/call_facts.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

namespace ptd::cli {

namespace {

// Class of a duration: four for each doubling; below 4 ns, one for each.
size_t class_of(uint64_t ns) {
  const auto width = static_cast<unsigned>(std::bit_width(ns));
  return width <= 2 ? ns : (size_t{width} - 2) * 4 + ((ns >> (width - 3)) & 3);
}

uint64_t start_of(size_t index) {
  if (index < 4) return index;
  const size_t width = index / 4 + 2;
  return width > 64 ? std::numeric_limits<uint64_t>::max() : uint64_t{4 + (index & 3)} << (width - 3);
}

}  // namespace

PageLimits PageLimits::halved() const {
  PageLimits half = *this;
  for (size_t PageLimits::*each : {&PageLimits::functions, &PageLimits::detailed, &PageLimits::frames, &PageLimits::changes,
                                   &PageLimits::regions, &PageLimits::mappings, &PageLimits::findings, &PageLimits::rows,
                                   &PageLimits::streams, &PageLimits::images, &PageLimits::threads, &PageLimits::name_bytes})
    half.*each = std::max<size_t>(half.*each / 2, 4);
  return half;
}

void LatencyCounts::add(uint64_t ns) {
  const size_t index = class_of(ns);
  if (index >= classes_.size()) classes_.resize(index + 1);
  if (classes_[index] != std::numeric_limits<uint32_t>::max()) ++classes_[index];
}

nlohmann::json LatencyCounts::json() const {
  nlohmann::json counts = nlohmann::json::array();
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i] != 0) counts.push_back({start_of(i), start_of(i + 1), classes_[i]});
  }
  return counts;
}

void CallFacts::take(std::span<const CallStep> steps, const CallTree& tree) {
  stacks_.take(steps, tree);
  profile_.add(steps);
  for (const CallStep& step : steps) {
    const bool started = (step.flags & (kCallNoStart | kCallMiddle)) == 0;
    if (step.kind != CallStepKind::leave || !started || step.function == kNoFunction || (step.flags & kCallUndated) != 0) continue;
    if (step.function >= latencies_.size()) {
      const size_t size = std::max<size_t>(size_t{step.function} + 1, latencies_.size() * 2);
      latencies_.resize(size);
      slowest_.resize(size, SlowCalls(kSlowest));
    }
    if ((step.flags & kCallCut) == 0) latencies_[step.function].add(step.total_ns());
    if (!slowest_[step.function].wants(step)) continue;
    const CallThread& thread = tree.threads()[step.thread];
    slowest_[step.function].add({step, thread.pid, thread.tid, input_.comm(step, tree)});
  }
}

nlohmann::json CallFacts::functions_json(const PageLimits& limits) {
  const bool timed = input_.timed();
  const std::vector<FunctionRow> rows = ranked({"self", "", timed}, profile_, input_.functions());
  std::map<FunctionId, size_t> wanted;  // those in the table, with their row
  nlohmann::json json = {{"timed", timed}, {"all", rows.size()}, {"rows", nlohmann::json::array()}, {"details", nlohmann::json::object()}};
  uint64_t all_self = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    all_self += timed ? rows[i].totals->self_ns : rows[i].totals->self_instructions;
    if (i >= limits.functions) continue;
    json["rows"].push_back(function_json(rows[i], timed, input_.functions()));
    wanted.emplace(rows[i].id, i);
  }
  json["all_self"] = all_self;
  std::set<FunctionId> detailed;
  for (const char* sort : {"self", "max"}) {
    size_t left = limits.detailed / 2;
    for (const FunctionRow& row : ranked({sort, "", timed}, profile_, input_.functions())) {
      if (left == 0 || !timed) break;
      if (row.id == kNoFunction || row.id >= slowest_.size() || !wanted.contains(row.id) || slowest_[row.id].calls().empty()) continue;
      detailed.insert(row.id);
      --left;
    }
  }
  for (const FunctionId id : detailed) {
    nlohmann::json slow = nlohmann::json::array();
    for (const SlowCall& call : slowest_[id].calls()) {
      slow.push_back(slow_call_json(call, input_.functions()));
      slow.back()["took_ns"] = call.step.total_ns();
    }
    json["details"][std::to_string(wanted[id])] = {{"latencies", latencies_[id].json()}, {"slowest", std::move(slow)}};
  }
  return json;
}

// The frames with the largest amounts: [name, parent, amount, self, calls]. A parent comes before its children.
nlohmann::json CallFacts::flame_json(const PageLimits& limits) {
  stacks_.finish();
  const std::vector<StackTotals::Node>& nodes = stacks_.nodes();
  std::vector<uint64_t> totals(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {
    totals[i] += stacks_.self_of(nodes[i]);
    if (i != 0) totals[nodes[i].parent] += totals[i];
  }
  const auto used = std::count_if(totals.begin(), totals.end(), [](uint64_t total) { return total != 0; });
  std::vector<uint64_t> largest(totals);
  std::sort(largest.begin(), largest.end(), std::greater<>());
  const uint64_t least = std::max<uint64_t>(1, largest.size() > limits.frames ? largest[limits.frames] + 1 : 0);
  nlohmann::json json = {{"unit", input_.timed() ? "ns" : "instructions"},
                         {"all", used},
                         {"names", nlohmann::json::array()},
                         {"frames", nlohmann::json::array()}};
  std::unordered_map<std::string, size_t> names;
  std::vector<size_t> places(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i != 0 && totals[i] < least) continue;
    const auto [name, is_new] = names.emplace(nodes[i].name, names.size());
    if (is_new) json["names"].push_back(nodes[i].name);
    places[i] = json["frames"].size();
    json["frames"].push_back({name->second, places[nodes[i].parent], totals[i], stacks_.self_of(nodes[i]), nodes[i].calls});
  }
  return json;
}

}  // namespace ptd::cli
