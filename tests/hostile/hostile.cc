// Damaged captures: cut and mutated at seeded places. Usage: hostile CUTS MUTATIONS [SEED] [NAME-PART]
//
// Captures: generated traces, the fuzz inputs and the bundled recording always; every file of the corpus if it is there. Files above 4 MiB
// are recordings, of which the sideband and three segments of each stream are taken.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/differential/trace_generator.h"
#include "tests/hostile/damage.h"
#include "tests/hostile/guard.h"

namespace ptd::test {
namespace {
namespace fs = std::filesystem;

constexpr uint64_t kWholeBytes = 4U << 20;
constexpr unsigned kSegments = 3;
constexpr long kMaxPeakMib = 2048;

struct Run {
  DamagePlan plan;
  std::string filter;
  std::vector<std::string> findings;
  unsigned captures = 0;

  template <class Check>
  void one(const std::string& name, uint64_t bytes, const Check& check) {
    if (!filter.empty() && name.find(filter) == std::string::npos) return;
    ++captures;
    const size_t before = findings.size();
    check();
    std::printf("%-72s %9llu bytes: %zu findings\n", name.c_str(), static_cast<unsigned long long>(bytes), findings.size() - before);
    std::fflush(stdout);
  }
  void pt(const PtCapture& capture) {
    one(capture.name + " (flow)", capture.trace.size(), [&] { check_damaged_pt(capture, plan, findings); });
  }
  void perf(const PerfCapture& capture) {
    one(capture.name + " (recording)", capture.file.size(), [&] { check_damaged_perf(capture, plan, findings); });
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

std::vector<fs::path> files_below(const fs::path& dir) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(dir, error)) {
    if (entry.is_regular_file(error)) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool is_recording(const std::vector<std::byte>& file) {
  static constexpr char kMagic[] = "PERFILE2";
  return file.size() > 104 && std::equal(kMagic, kMagic + 8, reinterpret_cast<const char*>(file.data()));
}

void seeds_and_demo(Run& run) {
  const fs::path root(PTD_SOURCE_DIR);
  for (const auto& path : files_below(root / "tests/fuzz/corpus/perf_data")) {
    if (path.filename() == "arm")
      run.one("arm (CoreSight recording)", 0, [&] { check_damaged_etm_perf("arm", *read_file(path.string()), run.plan, run.findings); });
    if (path.filename() == "small" || path.filename() == "pipe") run.perf({path.filename().string(), *read_file(path.string()), {}, {}});
  }
  const std::string bundle = (root / "data/user/plain.bundle").string();
  run.one("tiny items", 0, [&] { check_tiny_items(bundle, run.findings); });
  if (const auto demo = read_file((root / "data/demo/data").string()))
    run.perf({"demo", first_segments_of(*demo, kSegments), (root / "data/demo/kcore_dir").string(), {}});
}

void corpus_recordings(Run& run) {
  for (const auto& path : files_below(corpus_dir())) {
    const auto file = read_file(path.string());
    const std::string name = path.lexically_relative(corpus_dir()).string();
    if (file && is_recording(*file) && name.starts_with("pt-")) run.perf({name, *file, {}, {}});
    if (file && is_recording(*file) && name.starts_with("cs-") && name.find("missing-aux") == std::string::npos)
      run.one(name + " (CoreSight recording)", file->size(), [&] { check_damaged_etm_perf(name, *file, run.plan, run.findings); });
    if (path.filename() == "snapshot.ini")
      run.one(name + " (snapshot)", 0, [&] { check_damaged_snapshot(path.parent_path().string(), run.plan, run.findings); });
    if (path.filename() == "trace.json")
      run.one(name + " (bundle)", 0, [&] { check_damaged_bundle(path.parent_path().string(), run.plan, run.findings); });
  }
  std::string why;
  const std::string dir = unpacked_kernel_pokes(why);
  const auto data = dir.empty() ? std::nullopt : read_file(dir + "/recording/data");
  if (!data) {
    run.findings.push_back("pt-kernel-pokes: " + why);
    return;
  }
  run.perf({"pt-kernel-pokes", first_segments_of(*data, kSegments), dir + "/recording/kcore_dir", {dir + "/root"}});
}

void corpus_files(Run& run) {
  for (const auto& path : files_below(corpus_dir())) {
    std::error_code error;
    if (fs::file_size(path, error) > kWholeBytes) continue;
    auto file = read_file(path.string());
    if (!file) continue;
    if (file->size() > kWholeBytes) file->resize(kWholeBytes);  // a listing that unpacks to more
    const std::string name = path.lexically_relative(corpus_dir()).string();
    // Listings of expected results are not captures: they are opened once, and must be refused.
    const bool capture = name.find("/expected/") == std::string::npos;
    const DamagePlan plan = capture ? run.plan : DamagePlan{0, 0, 1};
    run.one(name, file->size(), [&] { check_damaged_file(name, *file, plan, run.findings); });
  }
}

}  // namespace
}  // namespace ptd::test

// A size in a damaged file must not become an allocation: with AddressSanitizer, an allocation above this ends the program.
// NOLINTNEXTLINE: the name is the sanitizer's.
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=768:quarantine_size_mb=64"; }

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
  ptd::test::seeds_and_demo(run);
  if (ptd::test::corpus_dir().empty()) {
    std::printf("no corpus: set PTDECODE_CORPUS to its directory; its captures are left out\n");
    if (ptd::test::corpus_required()) return 1;
  } else {
    ptd::test::corpus_traces(run);
    ptd::test::corpus_recordings(run);
    ptd::test::corpus_files(run);
  }
  for (const auto& finding : run.findings) std::printf("%s\n", finding.c_str());
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  const auto& worst = ptd::test::CaseGuard::worst();
  std::printf("worst case: %.2f s (%s), %ld MiB (%s)\n", worst.seconds, worst.slowest.c_str(), worst.growth_mib, worst.largest.c_str());
  std::printf("%u captures, %llu cuts and %llu mutations of each: %zu findings; peak memory %ld MiB\n", run.captures,
              static_cast<unsigned long long>(run.plan.cuts), static_cast<unsigned long long>(run.plan.mutations), run.findings.size(),
              usage.ru_maxrss / 1024);
  // Memory is bounded by the captures, not by the sizes in damaged files.
  if (usage.ru_maxrss / 1024 > ptd::test::kMaxPeakMib) {
    std::printf("peak memory above %ld MiB\n", ptd::test::kMaxPeakMib);
    return 1;
  }
  return run.findings.empty() && run.captures != 0 ? 0 : 1;
}
