// Speed of packets and flow, with libipt's two decoders in the same run. `tests/bench/table.py` prints the table.
//
// usage: bench [--benchmark_...] [NAME=RECORDING[,SYMFS]]...
// Captures: the streams of the recordings that are named. Without any the made ones of synthetic.h (PTDECODE_BENCH_INSTRUCTIONS of each,
// default 20,000,000) and those of the corpus that hold a flow; with PTDECODE_BENCH_POKES=N made ones whose code is poked N times.
// Counters: instructions, blocks (one ends after each branch) and bytes of trace per second.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/pt/packet_reader.h"
#include "tests/bench/pokes.h"
#include "tests/bench/recorded.h"
#include "tests/bench/synthetic.h"
#include "tests/oracle/libipt_speed.h"
#include "tests/support/corpus.h"
#include "tests/support/flow.h"
#include "tests/support/segments.h"

namespace ptd::bench {
namespace {

struct Capture {
  std::string name;
  std::vector<std::byte> trace;
  pt::DecoderOptions options;
  test::Machine machine;
  std::vector<AuxSegment> segments;
  std::shared_ptr<const Recording> recording;  ///< keeps alive what `machine` uses
  std::unique_ptr<oracle::PeerImage> peer;
  uint64_t instructions = 0;
};

std::vector<std::unique_ptr<Capture>> captures;
std::filesystem::path scratch;

/// Writes the memory to one file for libipt.
std::vector<oracle::PeerSection> peer_sections(const std::string& name, const test::SparseMemory& memory) {
  const std::string path = (scratch / (name + ".bin")).string();
  std::ofstream file(path, std::ios::binary);
  std::vector<oracle::PeerSection> sections;
  uint64_t offset = 0;
  for (const auto& [address, bytes] : memory.pieces()) {
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    // Adjacent pieces become one section.
    if (!sections.empty() && sections.back().address + sections.back().size_bytes == address) {
      sections.back().size_bytes += bytes.size();
    } else {
      sections.push_back({path, offset, bytes.size(), address});
    }
    offset += bytes.size();
  }
  return sections;
}

void add_capture(const std::string& name, std::vector<std::byte> trace, const pt::Config& config, const test::SparseMemory& memory) {
  auto capture = std::make_unique<Capture>();
  capture->name = name;
  capture->trace = std::move(trace);
  capture->options.config = config;
  capture->options.config.errata = pt::errata_of(config.cpu);
  capture->machine = test::make_machine(memory);
  capture->segments = test::cut_segments(capture->trace);
  capture->peer = std::make_unique<oracle::PeerImage>(peer_sections(name, memory));
  captures.push_back(std::move(capture));
}

/// The same program and trace with `count` pokes; our rows only.
void add_poked(const std::string& name, const Synthetic& made, PokePlace place, uint64_t count) {
  auto capture = std::make_unique<Capture>();
  capture->name = name;
  capture->trace = made.trace;
  capture->options.config = made.config;
  capture->segments = test::cut_segments(capture->trace);
  const Interval time = time_of(capture->segments, test::make_machine(made.memory), capture->options);
  capture->machine = make_poked_machine(made.memory, place, count, time);
  captures.push_back(std::move(capture));
}

void add_all_poked(uint64_t count, uint64_t instructions) {
  for (const Character& character : characters()) {
    if (character.name != "tnt" && character.name != "call") continue;
    const Synthetic made = make_synthetic(character, instructions, 1);
    add_poked(character.name + "-no-pokes", made, PokePlace::cold, 0);
    add_poked(character.name + "-cold", made, PokePlace::cold, count);
    add_poked(character.name + "-near", made, PokePlace::near, count);
    add_poked(character.name + "-hot-1000", made, PokePlace::hot, 1000);
    add_poked(character.name + "-hot", made, PokePlace::hot, count);
  }
}

/// One capture for each stream of "NAME=RECORDING[,SYMFS]". False, with a message, if there is none.
bool add_recording(const std::string& word) {
  const size_t name_end = word.find('='), path_end = word.find(',');
  const std::string name = word.substr(0, name_end);
  const size_t path = name_end == std::string::npos ? 0 : name_end + 1;
  std::string why;
  auto streams = load_recording(word.substr(path, path_end - path), path_end == std::string::npos ? "" : word.substr(path_end + 1), why);
  for (size_t i = 0; i < streams.size(); ++i) {
    auto capture = std::make_unique<Capture>();
    capture->name = streams.size() == 1 ? name : name + "." + std::to_string(i);
    const std::string image = (scratch / (std::to_string(captures.size()) + ".bin")).string();
    capture->peer = std::make_unique<oracle::PeerImage>(image_of(streams[i], image));
    capture->recording = streams[i].recording;
    capture->options = capture->recording->decoder_options();
    capture->machine = {capture->recording->timeline(), capture->recording->contexts()};
    capture->trace = std::move(streams[i].trace);
    capture->segments = std::move(streams[i].segments);
    captures.push_back(std::move(capture));
  }
  if (streams.empty()) std::fprintf(stderr, "bench: %s: %s\n", word.c_str(), why.c_str());
  return !streams.empty();
}

void report(benchmark::State& state, const Capture& capture, uint64_t instructions, uint64_t blocks) {
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["insn/s"] = benchmark::Counter(static_cast<double>(instructions) * rounds, benchmark::Counter::kIsRate);
  state.counters["block/s"] = benchmark::Counter(static_cast<double>(blocks) * rounds, benchmark::Counter::kIsRate);
  state.counters["MB/s"] = benchmark::Counter(static_cast<double>(capture.trace.size()) * rounds / 1e6, benchmark::Counter::kIsRate);
  state.counters["insns"] = static_cast<double>(instructions);
}

void packets(benchmark::State& state, const Capture& capture) {
  uint64_t count = 0;
  for (auto _ : state) {
    pt::PacketReader reader(capture.trace);
    pt::Packet packet;
    while (reader.next(packet) == pt::PacketReader::Status::ok) ++count;
  }
  benchmark::DoNotOptimize(count);
  report(state, capture, 0, 0);
}

uint64_t count_instructions(const Capture& capture) {
  uint64_t instructions = 0;
  Batch batch;
  pt::Decoder decoder(capture.machine.timeline, capture.machine.contexts, capture.options);
  for (const AuxSegment& segment : capture.segments) {
    decoder.begin(segment);
    for (bool more = true; more;) {
      more = decoder.next(batch);
      instructions += instructions_of(batch.blocks);
    }
  }
  return instructions;
}

void flow(benchmark::State& state, const Capture& capture, bool exact) {
  pt::DecoderOptions options = capture.options;
  options.exact_only = exact;
  uint64_t blocks = 0;
  Batch batch;
  for (auto _ : state) {
    pt::Decoder decoder(capture.machine.timeline, capture.machine.contexts, options);
    for (const AuxSegment& segment : capture.segments) {
      decoder.begin(segment);
      for (bool more = true; more;) {
        more = decoder.next(batch);
        benchmark::DoNotOptimize(batch.blocks.data());
      }
    }
    blocks = decoder.stats().blocks;
  }
  report(state, capture, capture.instructions, blocks);
}

void libipt(benchmark::State& state, const Capture& capture, bool whole_blocks) {
  oracle::PeerCounts counts;
  for (auto _ : state) {
    counts = whole_blocks ? capture.peer->decode_blocks(capture.trace, capture.options.config)
                          : capture.peer->decode_insns(capture.trace, capture.options.config);
  }
  report(state, capture, counts.instructions, counts.blocks);
  state.counters["errors"] = static_cast<double>(counts.errors);
}

void register_all() {
  for (const auto& owned : captures) {
    owned->instructions = count_instructions(*owned);
    const Capture& c = *owned;
    const auto add = [&](const std::string& stage, auto&& run) {
      benchmark::RegisterBenchmark((stage + "/" + c.name).c_str(), run)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();
    };
    add("packets", [&](benchmark::State& state) { packets(state, c); });
    add("flow", [&](benchmark::State& state) { flow(state, c, false); });
    if (!c.peer) continue;
    add("libipt_block", [&](benchmark::State& state) { libipt(state, c, true); });
    add("walker", [&](benchmark::State& state) { flow(state, c, true); });
    add("libipt_insn", [&](benchmark::State& state) { libipt(state, c, false); });
  }
}

void load_captures() {
  uint64_t instructions = 20'000'000;
  if (const char* env = std::getenv("PTDECODE_BENCH_INSTRUCTIONS")) instructions = std::strtoull(env, nullptr, 0);
  if (const char* pokes = std::getenv("PTDECODE_BENCH_POKES")) return add_all_poked(std::strtoull(pokes, nullptr, 0), instructions);
  for (const Character& character : characters()) {
    Synthetic made = make_synthetic(character, instructions, 1);
    add_capture(character.name, std::move(made.trace), made.config, made.memory);
  }
  if (!std::filesystem::exists(test::corpus_dir())) return;
  for (const std::string& name : {std::string("pt-xdc-mruby"), std::string("pt-xdc-unzip")}) {
    std::string why;
    auto c = test::load_case(name, why);
    if (!c) continue;
    pt::Config config;
    config.cpu = c->cpu;
    add_capture(name, std::move(c->trace), config, c->memory);
  }
}

}  // namespace
}  // namespace ptd::bench

int main(int argc, char** argv) {
  ptd::bench::scratch = std::filesystem::temp_directory_path() / ("ptdecode-bench-" + std::to_string(getpid()));
  std::filesystem::create_directories(ptd::bench::scratch);
  benchmark::Initialize(&argc, argv);
  bool loaded = true;
  for (int i = 1; i < argc; ++i) loaded = ptd::bench::add_recording(argv[i]) && loaded;
  if (argc == 1) ptd::bench::load_captures();
  ptd::bench::register_all();
  if (loaded) benchmark::RunSpecifiedBenchmarks();
  ptd::bench::captures.clear();
  std::filesystem::remove_all(ptd::bench::scratch);
  return loaded ? 0 : 1;
}
