// Counts what is still right in the decode of a damaged recording: decodes it whole and with a part removed, and compares (see kUsage).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "ptdecode/recording.h"
#include "recording/data/open_request.h"
#include "tests/lossy/flow_diff.h"

namespace {

using ptd::Batch;

struct Arguments {
  ptd::OpenRequest whole, damaged;
  int cpu = -1;
  uint64_t first = 0, segments = ~uint64_t{0};
  size_t show = 0;
};

constexpr const char* kUsage =
    "usage: lossy RECORDING [--symfs DIR] [--after DIR] [--cpu N] [--drop N] [--seed S] [--slack NS] [--freeze] [--no-anchors]\n"
    "                       [--damaged RECORDING] [--damaged-symfs DIR] [--first SEGMENT] [--segments N] [--show N]\n";

bool parse(int argc, char** argv, Arguments& arguments) {
  if (argc < 2) return false;
  arguments.whole.path = argv[1];
  arguments.damaged.path = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--freeze") {
      arguments.damaged.freeze = true;
      continue;
    }
    if (word == "--no-anchors") {
      arguments.damaged.anchors = false;
      continue;
    }
    if (i + 1 >= argc) return false;
    const char* value = argv[++i];
    if (word == "--symfs")
      arguments.whole.symfs = arguments.damaged.symfs = {value};
    else if (word == "--damaged-symfs")
      arguments.damaged.symfs = {value};
    else if (word == "--after")
      arguments.damaged.kcore_after = {value};
    else if (word == "--cpu")
      arguments.cpu = std::atoi(value);
    else if (word == "--drop")
      arguments.damaged.drop_nth_poke = static_cast<uint32_t>(std::atoi(value));
    else if (word == "--seed")
      arguments.damaged.drop_poke_seed = static_cast<uint32_t>(std::atoi(value));
    else if (word == "--slack")
      arguments.damaged.slack_ns = std::strtoull(value, nullptr, 10);
    else if (word == "--damaged")
      arguments.damaged.path = value;
    else if (word == "--first")
      arguments.first = std::strtoull(value, nullptr, 10);
    else if (word == "--show")
      arguments.show = std::strtoull(value, nullptr, 10);
    else if (word == "--segments")
      arguments.segments = std::strtoull(value, nullptr, 10);
    else
      return false;
  }
  return true;
}

double percent(uint64_t part, uint64_t whole) { return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole); }

void print(const char* who, const ptd::test::DiffCounts& c, const std::map<std::string, uint64_t>& gaps) {
  std::printf(
      "%s: truth %llu right %llu (%.5f %%) right-marked %llu wrong-marked %llu silently-wrong %llu lost %llu | uncertain %.4f %% healed "
      "%.4f %% |",
      who, static_cast<unsigned long long>(c.truth), static_cast<unsigned long long>(c.right), percent(c.right, c.truth),
      static_cast<unsigned long long>(c.right_flagged), static_cast<unsigned long long>(c.wrong_flagged),
      static_cast<unsigned long long>(c.silently_wrong), static_cast<unsigned long long>(c.lost), percent(c.flagged, c.truth),
      percent(c.healed, c.truth));
  for (const auto& [reason, count] : gaps) std::printf(" %s %llu", reason.c_str(), static_cast<unsigned long long>(count));
  std::printf("\n");
}

void print_largest(std::vector<std::pair<ptd::test::Split, uint64_t>>& splits, size_t count) {
  std::stable_sort(splits.begin(), splits.end(), [](const auto& a, const auto& b) {
    return a.first.unmarked + a.first.true_steps > b.first.unmarked + b.first.true_steps;
  });
  for (size_t i = 0; i < std::min(count, splits.size()); ++i) {
    const auto& [split, offset] = splits[i];
    std::printf("  segment at %#llx: behind %llx: true %llx (%llu instructions), given %llx (%llu, %llu of them not marked)\n",
                static_cast<unsigned long long>(offset), static_cast<unsigned long long>(split.last_common),
                static_cast<unsigned long long>(split.true_ip), static_cast<unsigned long long>(split.true_steps),
                static_cast<unsigned long long>(split.given_ip), static_cast<unsigned long long>(split.given_steps),
                static_cast<unsigned long long>(split.unmarked));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const auto whole = ptd::open_recording(arguments.whole);
  const auto damaged = ptd::open_recording(arguments.damaged);
  if (!whole.ok() || !damaged.ok()) {
    std::fprintf(stderr, "lossy: %s\n", (whole.ok() ? damaged : whole).error().message.c_str());
    return 1;
  }
  std::map<int, uint64_t> findings;
  for (const auto& finding : (*damaged)->timeline().findings()) ++findings[static_cast<int>(finding.kind)];
  std::printf("findings by kind:");
  for (const auto& [kind, count] : findings) std::printf(" %d:%llu", kind, static_cast<unsigned long long>(count));
  std::printf("\n");
  ptd::test::DiffCounts all;
  std::map<std::string, uint64_t> all_gaps;
  for (uint32_t s = 0; s < (*whole)->streams().size(); ++s) {
    if (arguments.cpu >= 0 && (*whole)->streams()[s].cpu != arguments.cpu) continue;
    ptd::test::DiffCounts counts;
    std::map<std::string, uint64_t> gaps;
    ptd::test::StepReader true_reader, given_reader;
    std::vector<std::pair<ptd::test::Split, uint64_t>> largest;
    const std::vector<uint64_t> starts = (*whole)->segment_starts(s);
    const uint64_t last = std::min<uint64_t>(starts.size(), arguments.first + std::min(arguments.segments, ~uint64_t{0} - arguments.first));
    constexpr uint64_t kChunk = 64;
    for (uint64_t from = arguments.first; from < last; from += kChunk) {
      const uint64_t to = std::min(last, from + kChunk);
      const uint64_t begin = starts[from], end = to < starts.size() ? starts[to] : ptd::Recording::kStreamEnd;
      std::map<uint64_t, std::vector<ptd::test::Step>> true_steps, given_steps;
      // One decoder per chunk: each has its own block tables.
      ptd::test::StepReader a, b;
      (void)(*whole)->decode(s, begin, end, [&](const Batch& batch, const ptd::FlowDecoder& decoder, const ptd::AuxSegment& segment) {
        a.add(batch, decoder.blocks(), true_steps[segment.stream_offset_bytes]);
        return true;
      });
      (void)(*damaged)->decode(s, begin, end, [&](const Batch& batch, const ptd::FlowDecoder& decoder, const ptd::AuxSegment& segment) {
        b.add(batch, decoder.blocks(), given_steps[segment.stream_offset_bytes]);
        for (const auto& gap : batch.gaps) ++gaps[ptd::name(gap.reason)];
        return true;
      });
      for (auto& [offset, steps] : true_steps) {
        std::vector<ptd::test::Split> splits;
        counts.add(ptd::test::diff_segment(steps, given_steps[offset], &splits));
        for (const auto& split : splits) largest.push_back({split, offset});
      }
    }
    char who[32];
    std::snprintf(who, sizeof who, "cpu %d", (*whole)->streams()[s].cpu);
    print(who, counts, gaps);
    print_largest(largest, arguments.show);
    all.add(counts);
    for (const auto& [reason, count] : gaps) all_gaps[reason] += count;
  }
  print("all", all, all_gaps);
  return 0;
}
