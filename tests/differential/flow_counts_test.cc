// Counts against the flow spelled out instruction by instruction.
#include "ptdecode/flow_counts.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "ptdecode/insn.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/timeline_builder.h"
#include "tests/differential/trace_generator.h"
#include "tests/support/corpus.h"
#include "tests/support/flow.h"
#include "tests/support/segments.h"

namespace ptd {
namespace {

using Ways = std::map<std::pair<uint64_t, uint64_t>, uint64_t>;  // (address of a branch, where it went) -> times

TEST(FlowCounts, EqualTheFlow) {
  uint64_t compared = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto options = test::options_of_seed(seed);
    const auto trace = test::generate(options);
    const auto machine = test::make_machine(trace.memory);
    pt::DecoderOptions decoding;
    decoding.config = trace.config;
    decoding.config.errata = pt::errata_of(trace.config.cpu);

    decoding.exact_only = true;
    const test::Flow flow = test::decode_stream(trace.trace, machine, decoding);
    // Branches that nothing but the next instruction follows.
    std::set<uint64_t> interrupted(flow.segment_starts.begin(), flow.segment_starts.end());
    for (const auto& placed : flow.events) interrupted.insert(placed.before_insn);
    for (const auto& placed : flow.gaps) interrupted.insert(placed.before_insn);
    Ways want;
    uint64_t interrupted_branches = 0;
    for (const uint64_t at : flow.branch_ends) {
      if (at + 1 >= flow.insns.size() || interrupted.count(at + 1) != 0) {
        ++interrupted_branches;
      } else {
        ++want[{flow.insns[at], flow.insns[at + 1]}];
      }
    }

    decoding.exact_only = false;
    pt::Decoder decoder(machine.timeline, machine.contexts, decoding);
    const FlowTables tables{decoder.blocks(), decoder.sequences()};
    FlowCounts counts;
    Batch batch;
    batch.capacity_blocks = 100;
    for (const AuxSegment& segment : test::cut_segments(trace.trace)) {
      decoder.begin(segment);
      for (bool more = true; more;) {
        more = decoder.next(batch);
        counts.add(batch, tables);
      }
      counts.end_segment();
    }
    EXPECT_EQ(counts.instructions(), flow.insns.size()) << describe(options);
    uint64_t total = 0, matched = 0;
    Ways got;
    for (const EdgeCount& edge : counts.edges(decoder.blocks())) {
      const BlockInfo& info = decoder.blocks().info(edge.from);
      Bytes rest = decoder.blocks().bytes(edge.from);
      uint64_t ip = info.ip.value;
      for (unsigned i = 0; i + 1 < info.instructions; ++i) {
        const unsigned length = classify(rest, info.mode).length_bytes;
        rest = rest.subspan(length);
        ip += length;
      }
      got[{ip, edge.to.value}] += edge.count;
      total += edge.count;
    }
    for (const auto& [way, times] : want) {
      EXPECT_GE(got[way], times) << describe(options) << ": " << std::hex << way.first << " to " << way.second;
      matched += times;
      ++compared;
    }
    EXPECT_GE(total, matched) << describe(options);
    EXPECT_LE(total, matched + interrupted_branches) << describe(options);
  }
  EXPECT_GT(compared, 1000U);
}

/// How often a trace is decoded: sequences are made of code that comes often.
constexpr int kRounds = 6;

/// A block by what it stands for: space, address, mode, instructions and its bytes.
using BlockName = std::tuple<uint32_t, uint64_t, int, unsigned, std::vector<std::byte>>;

BlockName name_of(const BlockTable& table, NodeId node) {
  const BlockInfo& info = table.info(node);
  const Bytes bytes = table.bytes(node);
  return {info.space.value, info.ip.value, static_cast<int>(info.mode), info.instructions, {bytes.begin(), bytes.end()}};
}

/// All that is counted of a trace, times not 0.
struct Counted {
  std::map<BlockName, uint64_t> blocks, time_ns;
  std::map<std::pair<BlockName, uint64_t>, uint64_t> edges;
  uint64_t instructions = 0;
  size_t sequences = 0;
};

Counted count(Bytes trace, const test::Machine& machine, const pt::DecoderOptions& options) {
  pt::Decoder decoder(machine.timeline, machine.contexts, options);
  const FlowTables tables{decoder.blocks(), decoder.sequences()};
  FlowCounts counts;
  Batch batch;
  batch.capacity_blocks = 300;
  for (int round = 0; round < kRounds; ++round) {
    for (const AuxSegment& segment : test::cut_segments(trace)) {
      decoder.begin(segment);
      for (bool more = true; more;) {
        more = decoder.next(batch);
        counts.add(batch, tables);
      }
      counts.end_segment();
    }
  }
  size_t sequences = decoder.sequences().size();
  counts.finish(tables, decoder.take_paths());
  Counted all;
  all.instructions = counts.instructions();
  all.sequences = sequences;
  const BlockTable& table = decoder.blocks();
  for (NodeId node = 0; node < counts.blocks().size(); ++node) {
    if (counts.blocks()[node] != 0) all.blocks[name_of(table, node)] = counts.blocks()[node];
    if (counts.time_ns()[node] != 0) all.time_ns[name_of(table, node)] = counts.time_ns()[node];
  }
  for (const EdgeCount& edge : counts.edges(table)) all.edges[{name_of(table, edge.from), edge.to.value}] = edge.count;
  return all;
}

void compare_ways_of_counting(Bytes trace, const test::Machine& machine, pt::DecoderOptions options, size_t& sequences) {
  const Counted one_by_one = count(trace, machine, options);
  options.sequences = true;
  const Counted packed = count(trace, machine, options);
  EXPECT_EQ(packed.instructions, one_by_one.instructions);
  EXPECT_TRUE(packed.blocks == one_by_one.blocks);
  EXPECT_TRUE(packed.time_ns == one_by_one.time_ns);
  EXPECT_TRUE(packed.edges == one_by_one.edges);
  options.sequences = false;
  options.counts = true;
  const Counted in_place = count(trace, machine, options);
  EXPECT_EQ(in_place.instructions, one_by_one.instructions);
  EXPECT_TRUE(in_place.blocks == one_by_one.blocks);
  EXPECT_TRUE(in_place.edges == one_by_one.edges);
  EXPECT_EQ(one_by_one.sequences, 0U);
  sequences += packed.sequences;
}

TEST(FlowCounts, SequencesChangeNothing) {
  size_t sequences = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto made = test::generate(test::options_of_seed(seed));
    pt::DecoderOptions options;
    options.config = made.config;
    compare_ways_of_counting(made.trace, test::make_machine(made.memory), options, sequences);
  }
  EXPECT_GT(sequences, 1000U);
}

TEST(FlowCounts, SequencesChangeNothingOnCorpus) {
  PTD_NEED_CORPUS();
  for (const std::string& name : test::flow_cases()) {
    SCOPED_TRACE(name);
    std::string why;
    const auto c = test::load_case(name, why);
    ASSERT_TRUE(c) << why;
    pt::DecoderOptions options;
    options.config.cpu = c->cpu;
    options.config.errata = pt::errata_of(c->cpu);
    size_t sequences = 0;
    compare_ways_of_counting(c->trace, test::make_machine(c->memory), options, sequences);
  }
}

// More runs that take no packet than one tape has room for, in an image with versions: what is counted is the arithmetic's.
TEST(FlowCounts, ManyLinksBetweenTwoBranches) {
  constexpr uint64_t kAt = 0x401000, kJumps = 100, kTnts = 6000, kBits = 6;
  std::vector<std::byte> code;
  for (uint64_t i = 0; i < kJumps; ++i) code.insert(code.end(), {std::byte{0xeb}, std::byte{0}});  // jmp to the next
  const auto back = static_cast<uint32_t>(-static_cast<int64_t>(code.size() + 6));
  code.insert(code.end(), {std::byte{0x0f}, std::byte{0x85}});  // jnz to the first
  for (unsigned i = 0; i < 4; ++i) code.push_back(static_cast<std::byte>(back >> (8 * i)));
  TimelineBuilder builder;
  Section section;
  section.space = builder.add_space();
  section.path = "program";
  const auto add = [&](uint64_t ip, std::vector<std::byte> bytes, TimeNs from) {
    const auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    section.ip = Ip{ip};
    section.size_bytes = owner->size();
    section.code = {owner, Bytes(*owner)};
    section.live = {from, kTimeMax};
    builder.add_section(section);
  };
  add(kAt, code, kTimeMin);
  add(0x900000, {std::byte{0x90}, std::byte{0x90}}, kTimeMin);
  add(0x900000, {std::byte{0xc3}, std::byte{0x90}}, TimeNs{1'000'000});
  test::Machine machine;
  machine.timeline = builder.build();
  machine.contexts.add_switch(0, kTimeMin, {1, 1, section.space});
  machine.contexts.sort();
  std::vector<std::byte> trace;
  pt::PacketWriter writer(trace);
  writer.psb();
  writer.mode_exec(ExecMode::bits64);
  writer.psbend();
  writer.tip_pge(kAt);
  for (uint64_t i = 0; i < kTnts; ++i) writer.tnt(63, kBits);
  for (const bool in_place : {false, true}) {
    pt::DecoderOptions options;
    options.counts = in_place;
    pt::Decoder decoder(machine.timeline, machine.contexts, options);
    const FlowTables tables{decoder.blocks(), decoder.sequences()};
    FlowCounts counts;
    Batch batch;
    for (const AuxSegment& segment : test::cut_segments(trace)) {
      decoder.begin(segment);
      for (bool more = true; more;) {
        more = decoder.next(batch);
        EXPECT_TRUE(batch.gaps.empty());
        counts.add(batch, tables);
      }
      counts.end_segment();
    }
    counts.finish(tables, decoder.take_paths());
    EXPECT_GE(counts.instructions(), kTnts * kBits * (kJumps + 1));
    EXPECT_LE(counts.instructions(), kTnts * kBits * (kJumps + 1) + kJumps);
  }
}

// Paths that are taken apart and put together tell the same of blocks and ways, and are few.
TEST(FlowCounts, PathsPutTogetherTellTheSame) {
  constexpr uint64_t kNodes = 60, kPaths = 400'000;
  BlockTable table;
  const std::vector<std::vector<std::byte>> ends = {{std::byte{0xff}, std::byte{0xe0}},   // jmp *rax
                                                    {std::byte{0x74}, std::byte{0x10}},   // jz
                                                    {std::byte{0x90}, std::byte{0x90}}};  // no branch
  for (uint64_t i = 0; i < kNodes; ++i) {
    ASSERT_EQ(table.intern(kKernelSpace, Ip{0x1000 + 16 * i}, ExecMode::bits64, i % 3 == 2 ? 2 : 1, ends[i % 3]), i);
  }
  PathCounts paths;
  uint64_t random = 1, instructions = 0;
  const auto next = [&random] { return (random = random * 6364136223846793005ULL + 1442695040888963407ULL) >> 40; };
  for (uint64_t i = 0; i < kPaths; ++i) {
    const uint64_t count = 1 + next() % 5;
    for (int k = 0; k < 3; ++k) {
      const auto node = static_cast<NodeId>(next() % kNodes);
      uint16_t flags = node % 3 == 2 ? uint16_t{0} : static_cast<uint16_t>(BlockFlag::ends_in_branch);
      if (node % 3 == 1 && next() % 2 != 0) flags |= static_cast<uint16_t>(BlockFlag::taken);
      const Block block{node, table.info(node).instructions, flags};
      paths.blocks().push_back(block);
      instructions += count * block.instructions;
    }
    paths.add(table.info(static_cast<NodeId>(next() % kNodes)).ip, count, PathEnd::unknown);
  }
  PathCounts fewer = paths;
  fewer.compact(table);
  EXPECT_LE(fewer.paths().size(), 2 * kNodes * kNodes);
  const BlockSequences sequences;
  const FlowTables tables{table, sequences};
  FlowCounts whole, compacted;
  whole.finish(tables, paths);
  compacted.finish(tables, fewer);
  EXPECT_EQ(whole.instructions(), instructions);
  EXPECT_EQ(compacted.instructions(), instructions);
  EXPECT_EQ(whole.blocks(), compacted.blocks());
  const auto told = [&](const FlowCounts& counts) {
    std::vector<std::tuple<NodeId, uint64_t, uint64_t>> ways;
    for (const EdgeCount& edge : counts.edges(table)) ways.emplace_back(edge.from, edge.to.value, edge.count);
    return ways;
  };
  EXPECT_EQ(told(whole), told(compacted));
  EXPECT_GT(told(whole).size(), kNodes);
}

}  // namespace
}  // namespace ptd
