// Any bytes as a plan and as the steps of a unit, and the same with corrected checksums: they open or report an error, units decode, and
// calls follow.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "analysis/table/flow/unit_pass.h"
#include "analysis/table/table.h"
#include "analysis/walk/recorded_steps.h"
#include "analysis/walk/step_wire.h"
#include "ptdecode/recording.h"
#include "recording/bundle/plan.h"
#include "recording/data/recording_data.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/repaired_chunks.h"
#include "tests/fuzz/temp_file.h"

using namespace ptd;

namespace {

constexpr unsigned kMostItems = 200;

// Steps as blocks: the input has their content, each after its size. `head`: plan and unit.
std::string step_file(std::string_view magic, std::span<const unsigned char> input, const StepFileHead& head) {
  char path[] = "/tmp/fuzz-steps-XXXXXX";
  const int fd = ::mkstemp(path);
  if (fd >= 0) ::close(fd);
  auto file = WholeFile::open(path);
  PTD_FUZZ_CHECK(file.ok());
  put_step_header(**file, magic, head.plan, head.unit);
  while (input.size() >= 4) {
    const size_t size = std::min<size_t>(input[1] | size_t{input[2]} << 8, input.size() - 4);
    put_step_block(**file, static_cast<StepBlock>(1 + input[0] % 3), input[3], std::as_bytes(input.subspan(4, size)));
    input = input.subspan(4 + size);
  }
  PTD_FUZZ_CHECK((*file)->finish().ok());
  return path;
}

void read_all(const Recording& plan, std::string_view name, const TableRequest& request) {
  auto table = open_table(plan, name, request);
  if (!table) return;
  for (unsigned i = 0; i < kMostItems; ++i) {
    const auto batch = (*table)->next();
    if (!batch || batch->rows == 0) return;
  }
}

// The plan has no trace files here: units whose bytes it contains decode, the others fail.
void decode_units(const Recording& plan) {
  for (uint32_t unit = 0; unit < units_of(plan).size() && unit < 3; ++unit) {
    (void)ranges_of(plan, units_of(plan)[unit]);
    if (!check_unit(plan, units_of(plan)[unit])) continue;
    UnitPass pass(plan, unit);
    (void)pass.follow_calls({});
    for (unsigned i = 0; i < kMostItems; ++i) {
      const auto more = pass.pump(TableRequest());
      if (!more || !more.value()) break;
    }
  }
}

std::unique_ptr<Recording> opened(std::span<const unsigned char> bytes) {
  const test::MemoryFile file(bytes);
  OpenRequest request;
  request.path = file.path();
  request.without_trace = true;
  auto plan = open_recording(request);
  if (!plan.ok()) {
    PTD_FUZZ_CHECK(!plan.error().message.empty());
    return nullptr;
  }
  if (!is_plan(**plan)) return nullptr;
  (void)plan_json(**plan);
  return std::move(*plan);
}

/// A plan to which steps belong: tests/fuzz/corpus/plan/plan.
const Recording* a_plan() {
  static const std::unique_ptr<Recording> plan = [] {
    OpenRequest request;
    request.path = std::string(PTD_SOURCE_DIR) + "/tests/fuzz/corpus/plan/plan";
    request.without_trace = true;
    auto found = open_recording(request);
    return found.ok() && is_plan(**found) ? std::move(*found) : nullptr;
  }();
  return plan.get();
}

void follow(std::span<const unsigned char> input) {
  const Recording* const plan = a_plan();
  if (plan == nullptr || input.size() < 3) return;
  const size_t split = std::min<size_t>(input[1] | size_t{input[2]} << 8, input.size() - 3);
  std::vector<std::string> paths;
  const auto files = std::make_shared<StepFiles>();
  for (uint32_t unit = 0; unit < units_of(*plan).size() && unit < 2; ++unit) {
    const StepFileHead head{data_of(*plan).plan->id, unit};
    const std::string path = step_file(kStepsMagic, input.subspan(3, split), head),
                      all = step_file(kAllStepsMagic, input.subspan(3 + split), head);
    PTD_FUZZ_CHECK(std::rename(all.c_str(), all_steps_path(path).c_str()) == 0);
    paths.push_back(path);
    files->by_stream[(input[0] & 8) != 0 ? unit : 0].push_back({unit, path});
  }
  TableRequest request;
  request.threads = 1;
  request.steps = files;
  constexpr std::string_view kTables[] = {"functions", "call_groups", "open_calls", "calls", "threads"};
  read_all(*plan, kTables[(input[0] & 7) % std::size(kTables)], request);
  for (const std::string& path : paths) {
    (void)std::remove(path.c_str());
    (void)std::remove(all_steps_path(path).c_str());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const std::span<const unsigned char> input(data, size);
  constexpr std::string_view kSteps = "STEPS";
  if (size > kSteps.size() && std::memcmp(data, kSteps.data(), kSteps.size()) == 0) {
    follow(input.subspan(kSteps.size()));
    return 0;
  }
  if (const auto plan = opened(input); plan != nullptr) decode_units(*plan);
  if (const auto plan = opened(test::repaired_chunks(input)); plan != nullptr) decode_units(*plan);
  return 0;
}
