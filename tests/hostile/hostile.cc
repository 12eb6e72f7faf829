// Damaged captures: cut and mutated at seeded places. Usage: hostile CUTS MUTATIONS [SEED] [NAME-PART]
//
// Captures: generated traces and the fuzz inputs always; the corpus' pt-* captures if it is there.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/differential/trace_generator.h"
#include "tests/hostile/damage.h"

namespace ptd::test {
namespace {
namespace fs = std::filesystem;

struct Run {
  DamagePlan plan;
  std::string filter;
  std::vector<std::string> findings;
  unsigned captures = 0;

  bool wanted(const std::string& name) const { return filter.empty() || name.find(filter) != std::string::npos; }

  void pt(PtCapture capture) {
    if (!wanted(capture.name)) return;
    ++captures;
    const size_t before = findings.size();
    check_damaged_pt(capture, plan, findings);
    std::printf("%-40s %9zu bytes: %zu findings\n", capture.name.c_str(), capture.trace.size(), findings.size() - before);
    std::fflush(stdout);
  }
  void perf(const std::string& name, const std::vector<std::byte>& file) {
    if (!wanted(name)) return;
    ++captures;
    const size_t before = findings.size();
    check_damaged_perf(name, file, plan, findings);
    std::printf("%-40s %9zu bytes: %zu findings\n", name.c_str(), file.size(), findings.size() - before);
    std::fflush(stdout);
  }
};

void generated(Run& run) {
  for (const uint64_t seed : {1ULL, 3ULL, 5ULL, 8ULL, 13ULL, 21ULL}) {
    auto options = options_of_seed(seed);
    options.steps = 4000;
    auto trace = generate(options);
    PtCapture capture{"generated-" + std::to_string(seed), std::move(trace.trace), make_machine(trace.memory), {}};
    capture.options.config = trace.config;
    capture.options.config.errata = ptd::pt::errata_of(trace.config.cpu);
    run.pt(std::move(capture));
  }
}

void corpus_traces(Run& run) {
  for (const std::string& name : flow_cases()) {
    std::string why;
    auto c = load_case(name, why);
    if (!c) {
      run.findings.push_back(why);
      continue;
    }
    PtCapture capture{name, std::move(c->trace), make_machine(c->memory), {}};
    capture.options.config.cpu = c->cpu;
    capture.options.config.errata = ptd::pt::errata_of(c->cpu);
    run.pt(std::move(capture));
  }
  if (auto trace = read_file(corpus_dir() + "/pt-xdc-kernel-packets/trace.bin")) {
    run.pt({"pt-xdc-kernel-packets", std::move(*trace), make_machine({}), {}});
  }
}

void perf_files(Run& run) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(PTD_SOURCE_DIR) / "tests/fuzz/corpus/perf_data", error)) {
    if (entry.path().filename() != "cut") paths.push_back(entry.path());
  }
  if (!corpus_dir().empty()) {
    for (const auto& entry : fs::recursive_directory_iterator(corpus_dir() + "/pt-perfdata-skylake", error)) {
      const auto name = entry.path().filename().string();
      if (entry.is_regular_file() && name.find("perf") == 0 && name.find(".txt") == std::string::npos) paths.push_back(entry.path());
    }
  }
  // The recording of the kernel that patches itself, if the corpus test has unpacked it: sideband and some trace.
  for (const auto& entry : fs::directory_iterator(fs::path(PTD_BINARY_DIR) / "corpus-cache", error)) {
    if (fs::exists(entry.path() / "recording" / "data")) paths.push_back(entry.path() / "recording" / "data");
  }
  for (const auto& path : paths) {
    auto file = read_file(path.string());
    if (!file) continue;
    if (file->size() > (4U << 20)) *file = without_aux(*file, 8192);
    run.perf(path.parent_path().parent_path().filename().string() + "/" + path.filename().string(), *file);
  }
}

}  // namespace
}  // namespace ptd::test

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s CUTS MUTATIONS [SEED] [NAME-PART]\n", argv[0]);
    return 2;
  }
  ptd::test::Run run;
  run.plan.cuts = std::strtoull(argv[1], nullptr, 0);
  run.plan.mutations = std::strtoull(argv[2], nullptr, 0);
  if (argc > 3) run.plan.seed = std::strtoull(argv[3], nullptr, 0);
  if (argc > 4) run.filter = argv[4];
  ptd::test::generated(run);
  if (ptd::test::corpus_dir().empty()) {
    std::printf("no corpus: set PTDECODE_CORPUS to its directory; its captures are left out\n");
    if (ptd::test::corpus_required()) return 1;
  } else {
    ptd::test::corpus_traces(run);
  }
  ptd::test::perf_files(run);
  for (const auto& finding : run.findings) std::printf("%s\n", finding.c_str());
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  std::printf("%u captures, %llu cuts and %llu mutations of each: %zu findings; peak memory %ld MiB\n", run.captures,
              static_cast<unsigned long long>(run.plan.cuts), static_cast<unsigned long long>(run.plan.mutations), run.findings.size(),
              usage.ru_maxrss / 1024);
  // Memory is bounded by the captures, not by what damaged sizes claim.
  if (usage.ru_maxrss / 1024 > 2048) {
    std::printf("peak memory above 2 GiB\n");
    return 1;
  }
  return run.findings.empty() ? 0 : 1;
}
