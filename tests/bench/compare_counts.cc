// Counts of recordings made in two ways: of the flow given block by block, and by a decoder that counts on the way.
//
// usage: compare_counts [--drop-nth-poke N] RECORDING[,SYMFS]...
// Prints what was compared. Exit status 1 if anything differs: blocks by their bytes, so that versions of one place are told apart, and
// the ways out of each.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "decoder/flow_counts.h"
#include "decoder/pt/decoder.h"
#include "tests/bench/recorded.h"

namespace ptd::bench {
namespace {

using BlockName = std::tuple<uint32_t, uint64_t, int, unsigned, std::vector<std::byte>>;

struct Counted {
  std::map<BlockName, uint64_t> blocks;
  std::map<std::pair<BlockName, uint64_t>, uint64_t> ways;
  uint64_t instructions = 0;
};

Counted count(const RecordedStream& stream, bool in_place) {
  pt::DecoderOptions options = stream.recording->decoder_options();
  options.counts = in_place;
  pt::Decoder decoder(stream.recording->timeline(), stream.recording->contexts(), options);
  const FlowTables tables{decoder.blocks(), decoder.sequences()};
  FlowCounts counts;
  Batch batch;
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
  uint32_t drop_nth_poke = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--drop-nth-poke" && i + 1 < argc) {
      drop_nth_poke = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 10));
      continue;
    }
    const size_t comma = word.find(',');
    std::string why;
    const auto streams =
        ptd::bench::load_recording(word.substr(0, comma), comma == std::string::npos ? "" : word.substr(comma + 1), why, drop_nth_poke);
    if (streams.empty()) {
      std::fprintf(stderr, "compare_counts: %s: %s\n", word.c_str(), why.c_str());
      return 2;
    }
    for (const auto& stream : streams) {
      const auto flow = ptd::bench::count(stream, false), in_place = ptd::bench::count(stream, true);
      const bool same = flow.instructions == in_place.instructions && flow.blocks == in_place.blocks && flow.ways == in_place.ways;
      std::printf("%s: %llu instructions, %zu blocks, %zu of them other versions, %zu ways: %s\n", word.c_str(),
                  static_cast<unsigned long long>(flow.instructions), flow.blocks.size(), ptd::bench::versions_of(flow), flow.ways.size(),
                  same ? "equal" : "DIFFERENT");
      if (!same) status = 1;
    }
  }
  return status;
}
