// RecordingPlan as a text file: lines of a name and hex words.
#include "capture/emulate/recording_plan.h"

#include <time.h>

#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "capture/emulate/shared/work_clock.h"
#include "capture/emulate/user_output.h"
#include "image/base/mapped_file.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ptd::emulate {
namespace {

constexpr uint64_t kMostPlanBytes = uint64_t{64} << 20;

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

// mult and shift as the kernel has them for its TSC: 31 bits of fraction at most.
TimeConversion conversion_of(ClockPair start, ClockPair end) {
  TimeConversion time;
  const uint64_t ticks = end.tsc - start.tsc, ns = end.ns - start.ns;
  if (ticks == 0 || ns == 0) return time;
  const double ns_per_tick = static_cast<double>(ns) / static_cast<double>(ticks);
  time.time_shift = 31;
  while (time.time_shift > 0 && ns_per_tick * static_cast<double>(uint64_t{1} << time.time_shift) >= 4294967295.0) --time.time_shift;
  time.time_mult = static_cast<uint32_t>(ns_per_tick * static_cast<double>(uint64_t{1} << time.time_shift));
  time.time_zero = start.ns - time.to_ns(Tsc{start.tsc}).value;
  return time;
}

}  // namespace

// The closest of a few readings.
ClockPair read_clocks() {
  ClockPair best;
#if defined(__x86_64__)
  uint64_t width = ~uint64_t{0};
  for (int i = 0; i < 16; ++i) {
    const uint64_t before = __rdtsc(), ns = monotonic_ns(), after = __rdtsc();
    if (after - before >= width) continue;
    width = after - before;
    best = {before + width / 2, ns};
  }
#else
  best.tsc = best.ns = monotonic_ns();
#endif
  return best;
}

std::string this_boot() {
  std::string boot = read_text_file("/proc/sys/kernel/random/boot_id", 64);
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  return boot;
}

Status write_plan(const RecordingPlan& plan) {
  const RecordingOptions& recording = plan.recording;
  const std::string path = recording.work_folder + "/" + kPlanFile;
  std::ofstream file(path);
  file << "aarch64 " << (recording.aarch64 ? 1 : 0) << "\npsb_period " << static_cast<unsigned>(recording.psb_period) << "\noutput "
       << hex_of(recording.output) << "\ntruth " << hex_of(recording.truth_folder) << "\nboot " << hex_of(plan.boot) << "\nbefore "
       << plan.before.tsc << ' ' << plan.before.ns << "\nstart " << plan.start.tsc << ' ' << plan.start.ns << "\ncommand";
  for (const std::string& word : recording.command_line) file << ' ' << hex_of(word);
  file << '\n' << std::flush;
  if (!file) return Error{ErrorCode::write_failed, "cannot write " + path, 0};
  return {};
}

Result<RecordingPlan> read_plan(const std::string& folder) {
  std::map<std::string, UserEvent> lines;
  std::istringstream text(read_text_file(folder + "/" + kPlanFile, kMostPlanBytes));
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    UserEvent values;
    words >> values.kind;
    for (std::string word; words >> word;) values.words.push_back(word);
    lines[values.kind] = values;
  }
  RecordingPlan plan;
  plan.recording.output = lines["output"].text(0);
  if (plan.recording.output.empty() || lines["start"].words.size() != 2)
    return Error{ErrorCode::bad_format, folder + " is not the working folder of 'ptdecode record --emulate'", 0};
  plan.recording.work_folder = folder;
  plan.recording.aarch64 = lines["aarch64"].number(0) != 0;
  plan.recording.psb_period = static_cast<uint8_t>(lines["psb_period"].number(0));
  plan.recording.truth_folder = lines["truth"].text(0);
  plan.recording.config = config_from_text(read_text_file(folder + "/" + kConfigFile, kMostPlanBytes));
  for (size_t i = 0; i < lines["command"].words.size(); ++i) plan.recording.command_line.push_back(lines["command"].text(i));
  plan.boot = lines["boot"].text(0);
  plan.before = {lines["before"].number(0), lines["before"].number(1)};
  plan.start = {lines["start"].number(0), lines["start"].number(1)};
  return plan;
}

void set_time(RecordingPlan& plan) {
  if (plan.recording.config.work_clock) {
    plan.recording.time = conversion_of({0, kNsPerSecond}, {kWorkTicksPerSecond, 2 * kNsPerSecond});
  } else {
    plan.recording.time = conversion_of(plan.before, plan.boot == this_boot() ? read_clocks() : plan.start);
  }
}

}  // namespace ptd::emulate
