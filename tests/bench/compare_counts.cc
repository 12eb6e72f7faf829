// Counts of recordings made in several ways: of the flow given block by block by the exact walker, and by the fast path in large and in
// small batches; and by a decoder that counts on the way.
//
// usage: compare_counts [--drop-nth-poke N[,SEED]] RECORDING[,SYMFS]...
// Prints what was compared. Exit status 1 if anything differs: blocks by their bytes, so that versions of one place are told apart, and
// the ways out of each.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ptdecode/flow_counts.h"
#include "ptdecode/pt/decoder.h"
#include "tests/bench/recorded.h"

namespace ptd::bench {
namespace {

using BlockName = std::tuple<uint32_t, uint64_t, int, unsigned, std::vector<std::byte>>;

struct Counted {
  std::map<BlockName, uint64_t> blocks;
  std::map<std::pair<BlockName, uint64_t>, uint64_t> ways;
  uint64_t instructions = 0;

  friend bool operator==(const Counted&, const Counted&) = default;
};

struct Way {
  const char* name;
  bool exact_only, in_place;
  size_t batch_blocks;
};
constexpr Way kExact{"exact walker", true, false, 4096};
constexpr Way kOthers[] = {
    {"fast path", false, false, 1U << 14}, {"small batches", false, false, 300}, {"counted on the way", false, true, 4096}};

Counted count(const RecordedStream& stream, const Way& way) {
  pt::DecoderOptions options = stream.recording->decoder_options();
  options.exact_only = way.exact_only;
  options.counts = way.in_place;
  pt::Decoder decoder(stream.recording->timeline(), stream.recording->contexts(), options);
  const FlowTables tables{decoder.blocks(), decoder.sequences()};
  FlowCounts counts;
  Batch batch;
  batch.capacity_blocks = way.batch_blocks;
  for (const AuxSegment& segment : stream.segments) {
    decoder.begin(segment);
    for (bool more = true; more;) {
      more = decoder.next(batch);
      counts.add(batch, tables);
    }
    counts.end_segment();
  }
  counts.finish(tables, decoder.take_paths());
  const auto name_of = [&](NodeId node) {
    const BlockInfo& info = tables.blocks.info(node);
    const Bytes bytes = tables.blocks.bytes(node);
    return BlockName{info.space.value, info.ip.value, static_cast<int>(info.mode), info.instructions, {bytes.begin(), bytes.end()}};
  };
  Counted all;
  all.instructions = counts.instructions();
  for (NodeId node = 0; node < counts.blocks().size(); ++node) {
    if (counts.blocks()[node] != 0) all.blocks[name_of(node)] = counts.blocks()[node];
  }
  for (const EdgeCount& edge : counts.edges(tables.blocks)) all.ways[{name_of(edge.from), edge.to.value}] = edge.count;
  return all;
}

/// Contents beyond the first of each place.
size_t versions_of(const Counted& all) {
  std::map<std::pair<uint64_t, unsigned>, size_t> places;
  for (const auto& [name, times] : all.blocks) ++places[{std::get<1>(name), std::get<3>(name)}];
  return all.blocks.size() - places.size();
}

}  // namespace
}  // namespace ptd::bench

int main(int argc, char** argv) {
  int status = argc > 1 ? 0 : 2;
  ptd::bench::DroppedPokes dropped;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--drop-nth-poke" && i + 1 < argc) {
      char* rest = nullptr;
      dropped.nth = static_cast<uint32_t>(std::strtoul(argv[++i], &rest, 10));
      if (*rest == ',') dropped.seed = static_cast<uint32_t>(std::strtoul(rest + 1, nullptr, 10));
      continue;
    }
    const size_t comma = word.find(',');
    std::string why;
    const auto streams =
        ptd::bench::load_recording(word.substr(0, comma), comma == std::string::npos ? "" : word.substr(comma + 1), why, dropped);
    if (streams.empty()) {
      std::fprintf(stderr, "compare_counts: %s: %s\n", word.c_str(), why.c_str());
      return 2;
    }
    for (const auto& stream : streams) {
      const auto exact = ptd::bench::count(stream, ptd::bench::kExact);
      std::printf("%s: %llu instructions, %zu blocks, %zu of them other versions, %zu ways:", word.c_str(),
                  static_cast<unsigned long long>(exact.instructions), exact.blocks.size(), ptd::bench::versions_of(exact),
                  exact.ways.size());
      bool same = true;
      for (const auto& way : ptd::bench::kOthers) {
        const auto counted = ptd::bench::count(stream, way);
        if (counted == exact) continue;
        same = false;
        std::printf(" %s DIFFERENT (%llu instructions)", way.name, static_cast<unsigned long long>(counted.instructions));
      }
      std::printf("%s\n", same ? " equal" : "");
      if (!same) status = 1;
    }
  }
  return status;
}
