// Allocations that fail, one after the other: each call of the C API returns PTD_ERROR_OUT_OF_MEMORY or the right result, on any thread,
// and nothing leaks (the test is linked with LeakSanitizer). Usage: memory_test DATA_FOLDER [RUNS]
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "ptdecode/ptdecode.h"

namespace {

std::atomic<int64_t> allocations{0};  // since the run began
std::atomic<int64_t> first_bad{-1};   // number of the first that fails; -1: none
std::atomic<bool> all_after{false};   // and all after it
std::atomic<bool> counting{false};    // only while the library is used

bool fails() {
  if (!counting.load(std::memory_order_relaxed)) return false;
  const int64_t number = allocations.fetch_add(1, std::memory_order_relaxed), bad = first_bad.load(std::memory_order_relaxed);
  return bad >= 0 && (all_after.load(std::memory_order_relaxed) ? number >= bad : number == bad);
}

void* allocate(size_t size) { return fails() ? nullptr : std::malloc(size == 0 ? 1 : size); }
void* allocate(size_t size, std::align_val_t alignment) {
  void* memory = nullptr;
  return fails() || ::posix_memalign(&memory, static_cast<size_t>(alignment), size) != 0 ? nullptr : memory;
}
void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return or_throw(allocate(size)); }
void* operator new[](size_t size) { return or_throw(allocate(size)); }
void* operator new(size_t size, std::align_val_t alignment) { return or_throw(allocate(size, alignment)); }
void* operator new[](size_t size, std::align_val_t alignment) { return or_throw(allocate(size, alignment)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

int failures = 0;

/// Counts allocations, and makes some fail, during its lifetime.
struct Counting {
  Counting() {
    allocations = 0;
    counting = true;
  }
  ~Counting() { counting = false; }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
};

/// The result of a run. `sums` has an entry for each of its steps.
struct Outcome {
  std::vector<uint64_t> sums;
  bool out_of_memory = false;

  bool good(const char* what, ptd_code code) {
    if (code == PTD_OK || code == PTD_END) return true;
    if (code == PTD_ERROR_OUT_OF_MEMORY) {
      out_of_memory = true;
    } else {
      ++failures;
      std::fprintf(stderr, "%s, allocation %lld: %s\n", what, static_cast<long long>(first_bad), ptd_code_name(code));
    }
    return false;
  }
};

void walk(const ptd_recording* recording, int kind, Outcome& outcome, uint64_t& sum) {
  ptd_cursor_options options = PTD_CURSOR_OPTIONS_INIT;
  options.kind = kind;
  options.threads = 3;
  ptd_cursor* cursor = nullptr;
  char* message = nullptr;
  if (outcome.good("ptd_cursor_open", ptd_cursor_open(recording, &options, &cursor, &message))) {
    ptd_item item = PTD_INIT(ptd_item);
    ptd_code code = PTD_OK;
    while ((code = ptd_cursor_next(cursor, &item, nullptr)) == PTD_OK) {
      sum = sum * 31 + static_cast<uint64_t>(item.kind) + static_cast<uint64_t>(item.time_ns);
      if (item.kind == PTD_ITEM_BLOCKS) sum += item.u.blocks.count;
      if (item.kind == PTD_ITEM_BRANCHES) sum += item.u.branches.count;
      if (item.kind == PTD_ITEM_CALL) sum += std::strlen(item.u.call.function);
    }
    (void)outcome.good("ptd_cursor_next", code);
    if (ptd_cursor_next(cursor, &item, nullptr) != code) ++failures;  // it stays failed, or at the end
  }
  ptd_free(message);
  (void)ptd_cursor_free(cursor);
}

void read_table(const ptd_recording* recording, const char* table, Outcome& outcome, uint64_t& sum) {
  ArrowArrayStream stream;
  ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
  options.threads = 3;
  options.batch_rows = 5000;
  char* message = nullptr;
  if (!outcome.good(table, ptd_table(recording, table, &options, &stream, &message))) return ptd_free(message);
  ArrowSchema schema;
  if (const int status = stream.get_schema(&stream, &schema); status == 0) {
    sum += static_cast<uint64_t>(schema.n_children);
    schema.release(&schema);
  } else {
    (void)outcome.good("get_schema", status == ENOMEM ? PTD_ERROR_OUT_OF_MEMORY : status);
  }
  for (;;) {
    ArrowArray array;
    const int status = stream.get_next(&stream, &array);
    if (!outcome.good("get_next", status == ENOMEM ? PTD_ERROR_OUT_OF_MEMORY : status) || array.release == nullptr) break;
    sum = sum * 31 + static_cast<uint64_t>(array.length);
    array.release(&array);
  }
  stream.release(&stream);
}

void read_facts(const ptd_recording* recording, Outcome& outcome, uint64_t& sum) {
  uint32_t count = 0;
  char* text = nullptr;
  ptd_place place = PTD_INIT(ptd_place);
  ptd_symbol symbol = PTD_INIT(ptd_symbol);
  place.ip = 0x401000;
  place.time_ns = PTD_TIME_UNKNOWN;
  if (outcome.good("ptd_finding_count", ptd_finding_count(recording, &count, nullptr))) sum += count;
  if (outcome.good("ptd_info_json", ptd_info_json(recording, &text, nullptr))) sum += std::strlen(text);
  ptd_free(text);
  if (outcome.good("ptd_symbol_at", ptd_symbol_at(recording, &place, &symbol, nullptr))) sum += std::strlen(symbol.name);
  if (outcome.good("ptd_disassemble", ptd_disassemble(recording, &place, 4, &text, nullptr))) sum += std::strlen(text);
  ptd_free(text);
}

void use(ptd_recording* recording, Outcome& outcome) {
  for (int kind = PTD_CURSOR_FLOW; kind <= PTD_CURSOR_CALLS; ++kind) walk(recording, kind, outcome, outcome.sums.emplace_back());
  for (const char* table : {"branches", "calls", "functions", "edges", "findings", "sections", "threads"})
    read_table(recording, table, outcome, outcome.sums.emplace_back());
  read_facts(recording, outcome, outcome.sums.emplace_back());
}

Outcome open_and_use(const std::string& path) {
  Outcome outcome;
  outcome.sums.reserve(16);
  const Counting use_of_library;
  ptd_recording* recording = nullptr;
  if (outcome.good("ptd_open", ptd_open(path.c_str(), nullptr, &recording, nullptr))) use(recording, outcome);
  (void)ptd_close(recording);
  return outcome;
}

Outcome build_and_use() {
  Outcome outcome;
  outcome.sums.reserve(16);
  const Counting use_of_library;
  ptd_builder* builder = nullptr;
  ptd_recording* recording = nullptr;
  uint8_t attr[128] = {}, code[64] = {};
  attr[4] = sizeof attr;
  const uint8_t comm[] = {3, 0, 0, 0, 0, 0, 24, 0, 7, 0, 0, 0, 7, 0, 0, 0, 'n', 'a', 'm', 'e', 0, 0, 0, 0};
  ptd_pt_config config = PTD_INIT(ptd_pt_config);
  config.cpuid = "GenuineIntel-6-8E-A";
  config.filter = "filter * @ /a/file/with/a/long/name";
  const uint64_t id = 5;
  if (!outcome.good("ptd_builder_new", ptd_builder_new(&builder, nullptr))) return outcome;
  (void)outcome.good("add_attr", ptd_builder_add_attr(builder, attr, sizeof attr, &id, 1, "an_event_with_a_long_name", nullptr));
  for (uint32_t ring = 0; ring < 3; ++ring) {
    (void)outcome.good("add_records", ptd_builder_add_records(builder, ring, comm, 10, nullptr));
    (void)outcome.good("add_records", ptd_builder_add_records(builder, ring, comm + 10, sizeof comm - 10, nullptr));
  }
  (void)outcome.good("add_aux", ptd_builder_add_aux(builder, 0, -1, PTD_AUX_NEXT, code, sizeof code, nullptr));
  (void)outcome.good("add_code", ptd_builder_add_code(builder, 7, 0x401000, code, sizeof code, 0, "a_function_with_a_long_name", nullptr));
  (void)outcome.good("set_feature", ptd_builder_set_feature(builder, 3, code, sizeof code, nullptr));
  (void)outcome.good("set_pt", ptd_builder_set_pt(builder, &config, nullptr));
  // A failed addition leaves the builder unchanged; a record may then be cut, which is another error.
  if (!outcome.out_of_memory && outcome.good("ptd_builder_open", ptd_builder_open(builder, nullptr, &recording, nullptr)))
    use(recording, outcome);
  (void)ptd_close(recording);
  (void)ptd_builder_free(builder);
  return outcome;
}

/// A trace bundle of LLDB, in a folder that is removed at the end.
class LldbBundle {
 public:
  LldbBundle() {
    char folder[] = "/tmp/ptdecode-memory-XXXXXX";
    if (::mkdtemp(folder) == nullptr) std::abort();
    folder_ = folder;
    std::string modules;
    for (int i = 0; i < 8; ++i) {
      modules += std::string(i == 0 ? "" : ",") + "{\"systemPath\":\"/a/module/with/a/long/name/" + std::to_string(i) +
                 "\",\"loadAddress\":\"0x" + std::to_string(i + 1) + "000000\",\"uuid\":\"0011223344556677889900112233445566778899\"}";
    }
    write("trace.json",
          R"({"type":"intel-pt","cpuInfo":{"vendor":"GenuineIntel","family":6,"model":142,"stepping":10},"processes":[{"pid":7,)"
          R"("threads":[{"tid":7,"iptTrace":"7.intelpt_trace"}],"modules":[)" +
              modules + "]}]}");
    std::string trace;
    for (int i = 0; i < 8; ++i) trace += "\x02\x82";  // PSB, then PSBEND
    write("7.intelpt_trace", trace + "\x02\x23");
  }
  ~LldbBundle() { std::filesystem::remove_all(folder_); }
  LldbBundle(const LldbBundle&) = delete;
  LldbBundle& operator=(const LldbBundle&) = delete;
  [[nodiscard]] std::string path() const { return folder_ + "/trace.json"; }

 private:
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ + "/" + name) << text; }
  std::string folder_;
};

/// Runs with about `runs` different allocations failing: the first ones all, later ones in growing steps.
template <typename Run>
void sweep(const char* name, int runs, const Run& run) {
  first_bad = -1;
  (void)run();  // initialises the per-process data
  const Outcome expected = run();
  const int64_t total = allocations;
  if (expected.out_of_memory || expected.sums.size() < 10) ++failures;
  int bad = 0, out_of_memory = 0;
  for (int i = 0; i < runs; ++i) {
    const double part = static_cast<double>(i) / runs;
    first_bad = static_cast<int64_t>(part * part * part * static_cast<double>(total)) + i;
    all_after = i % 4 == 3;
    const Outcome outcome = run();
    out_of_memory += outcome.out_of_memory ? 1 : 0;
    if (outcome.out_of_memory || outcome.sums == expected.sums) continue;
    ++bad;
    std::fprintf(stderr, "%s: allocation %lld fails: no error, and another result\n", name, static_cast<long long>(first_bad));
  }
  failures += bad;
  first_bad = -1;
  std::printf("%s: %lld allocations, %d runs, %d out of memory\n", name, static_cast<long long>(total), runs, out_of_memory);
  if (out_of_memory < runs / 4) ++failures;
}

/// Each allocation of two additions fails once: the second works, whatever the first has left.
void add_again() {
  const uint8_t bytes[64] = {};
  int64_t bad = 0;
  bool failed = true;
  for (all_after = false; failed; ++bad) {
    first_bad = bad;
    const Counting use_of_library;
    ptd_builder* builder = nullptr;
    failed = ptd_builder_new(&builder, nullptr) != PTD_OK;
    for (int i = 0; i < 2; ++i) failed |= ptd_builder_add_aux(builder, 0, -1, PTD_AUX_NEXT, bytes, sizeof bytes, nullptr) != PTD_OK;
    (void)ptd_builder_free(builder);
  }
  first_bad = -1;
  std::printf("builder that goes on: %lld runs\n", static_cast<long long>(bad));
  if (bad < 4) ++failures;
}

/// LeakSanitizer's list of threads moves when it grows, at each power of two, while threads read it without a lock (GCC 12): such a thread
/// reads unmapped memory. So the list grows here, where no two threads run, beyond what the sweeps need: they start 1,860 threads.
void grow_list_of_threads() {
  constexpr int kThreads = 2100;  // with the sweeps' fewer than 4096
  for (int i = 0; i < kThreads; ++i) std::thread([] {}).join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  grow_list_of_threads();
  const std::string data = argv[1];
  const int runs = argc > 2 ? std::atoi(argv[2]) : 120;
  std::set_terminate([] {
    std::fprintf(stderr, "terminate: allocation %lld failed\n", static_cast<long long>(first_bad));
    std::abort();
  });
  for (const char* name : {"/user/plain.bundle", "/demo", "/arm/threads.bundle"}) {
    const std::string path = data + name;
    sweep(name, runs, [&path] { return open_and_use(path); });
  }
  const LldbBundle bundle;
  sweep("LLDB bundle", 2 * runs, [&bundle] { return open_and_use(bundle.path()); });
  sweep("builder", 2 * runs, [] { return build_and_use(); });
  add_again();
  if (failures != 0) std::fprintf(stderr, "%d failures\n", failures);
  return failures != 0 ? 1 : 0;
}
