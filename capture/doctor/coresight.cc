// CoreSight: trace units, TRBE and ETR of a machine.
#include "capture/doctor/coresight.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "capture/live/kernel/start_scan.h"

namespace ptd::doctor {
namespace {

constexpr const char* kEvent = "bus/event_source/devices/cs_etm";
using Numbers = std::set<int32_t>;

/// Returns the numbers N of the names PREFIXN in a folder of sysfs.
Numbers numbered(const Facts& facts, const std::string& folder, std::string_view prefix) {
  Numbers numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator at(facts.machine.sys + "/" + folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    int32_t number = 0;
    if (!name.starts_with(prefix)) continue;
    const auto [next, bad] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
    if (bad == std::errc{} && next == name.data() + name.size()) numbers.insert(number);
  }
  return numbers;
}

/// Returns "cpu 1" or "cpus 1, 2 and 3"; of more than eight, the number.
std::string cpu_words(const Numbers& cpus) {
  constexpr size_t kMostNamed = 8;
  if (cpus.size() > kMostNamed) return std::to_string(cpus.size()) + " cpus";
  std::string text = cpus.size() == 1 ? "cpu " : "cpus ";
  size_t left = cpus.size();
  for (const int32_t cpu : cpus) {
    text += std::to_string(cpu) + (left > 2 ? ", " : left == 2 ? " and " : "");
    --left;
  }
  return text;
}

Numbers without(const Numbers& all, const Numbers& some) {
  Numbers rest;
  std::ranges::set_difference(all, some, std::inserter(rest, rest.end()));
  return rest;
}

Check trace_units(const Facts& facts, const Numbers& online, const Numbers& units) {
  const std::string event = "cs_etm, type " + facts.sys(std::string(kEvent) + "/type");
  if (units.empty())
    return {"pmu", Verdict::blocked, event + ", but no processor has a trace unit",
            facts.sudo() + "modprobe coresight-etm4x; or the firmware does not describe the trace units"};
  const Numbers missing = without(online, units);
  if (missing.empty()) return {"pmu", Verdict::good, event + "; all processors have a trace unit", ""};
  return {"pmu", Verdict::limit, event + "; no trace unit for " + cpu_words(missing) + ": what runs there is not traced",
          "keep the program on the others: taskset -c"};
}

/// Why there is no TRBE, and what to do. Its driver refuses kernels whose page tables are not mapped while user code runs.
std::string trbe_fix(const Facts& facts) {
  if (facts.sys("devices/system/cpu/vulnerabilities/meltdown").find("PTI") != std::string::npos)
    return "a TRBE cannot be used with kernel page-table isolation: boot with kpti=off if the processor has one";
  return facts.sudo() + "modprobe coresight-trbe, if the processor has a TRBE (Armv9)";
}

Check sinks(const Facts& facts, const Numbers& units) {
  const std::string folder = std::string(kEvent) + "/sinks";
  Numbers trbe = numbered(facts, folder, "trbe");
  trbe.merge(numbered(facts, "bus/coresight/devices", "trbe"));  // named by the number of the processor
  const Numbers etr = numbered(facts, folder, "tmc_etr"), etf = numbered(facts, folder, "tmc_etf"),
                etb = numbered(facts, folder, "tmc_etb"), old_etb = numbered(facts, folder, "etb");
  const Numbers no_trbe = without(units, trbe);
  if (!trbe.empty() && no_trbe.empty()) return {"sink", Verdict::good, "TRBE: each processor writes to a buffer of its own in memory", ""};
  if (!etr.empty()) {
    const std::string some = trbe.empty() ? "" : "; TRBE on the other processors, none on " + cpu_words(no_trbe);
    return {"sink", Verdict::limit, "ETR (tmc_etr" + std::to_string(*etr.begin()) + "): one buffer in memory for all processors" + some,
            trbe_fix(facts)};
  }
  if (!trbe.empty())
    return {"sink", Verdict::limit, "no TRBE for " + cpu_words(no_trbe) + ", and no ETR: what runs there is not traced",
            "keep the program on the others: taskset -c"};
  if (!etf.empty() || !etb.empty() || !old_etb.empty())
    return {"sink", Verdict::limit,
            "no TRBE and no ETR, only memory on the chip (ETF or ETB): more than some KiB between two context switches are lost",
            facts.sudo() + "modprobe coresight-tmc; " + trbe_fix(facts)};
  return {"sink", Verdict::blocked, "no TRBE, ETR, ETF or ETB: the trace cannot be written",
          facts.sudo() + "modprobe -a coresight-tmc coresight-trbe; " + trbe_fix(facts)};
}

}  // namespace

void check_coresight(const Facts& facts, std::vector<Check>& checks) {
  const std::vector<int32_t> cpus = live::parse_cpu_list(facts.sys("devices/system/cpu/online"));
  const Numbers online(cpus.begin(), cpus.end()), units = numbered(facts, kEvent, "cpu");
  checks.push_back(trace_units(facts, online, units));
  checks.push_back(sinks(facts, units));
}

}  // namespace ptd::doctor
