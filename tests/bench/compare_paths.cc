// Decodes a recording with the exact walker, with the fast path and on several threads, and compares their output segment by segment.
//
// usage: compare_paths RECORDING [SYMFS] [--drop-nth-poke N[,SEED]] [--fast-only | --time THREADS]
// Prints the processor time of each, in seconds. Exits with status 1 at the first difference.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "ptdecode/recording.h"
#include "recording/data/open_request.h"

namespace ptd {
namespace {

/// Running hash of one list; the order of entries matters.
class ListHash {
 public:
  void put(uint64_t v) {
    hash_ = (hash_ ^ v) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 29;
  }
  [[nodiscard]] uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 1;
};

/// The hash of one segment's output, with one hash for each list, since batches may be cut anywhere. It covers what node ids refer to, not
/// the ids.
class OutputHash {
 public:
  void add(const Batch& batch, const BlockTable& table) {
    for (const Block& block : batch.blocks) {
      const BlockInfo& info = table.info(block.node);
      lists_[0].put(info.ip.value ^ uint64_t{info.space.value} << 50);
      lists_[0].put(uint64_t{block.instructions} << 32 | uint64_t{block.flags} << 16 | info.size_bytes);
      lists_[0].put(static_cast<uint64_t>(table.bytes(block.node).back()) << 8 | static_cast<uint64_t>(table.bytes(block.node).front()));
    }
    for (const Mark& mark : batch.marks) {
      for (const uint64_t v : {blocks_ + mark.before_block, mark.time.first.value, mark.time.last.value,
                               uint64_t{mark.space.value} << 32 | static_cast<uint32_t>(mark.tid), mark.about.value,
                               mark.cycles << 8 | static_cast<uint64_t>(mark.mode) << 1 | (mark.time_known ? 1 : 0)}) {
        lists_[1].put(v);
      }
    }
    for (const Event& event : batch.events) {
      for (const uint64_t v : {blocks_ + event.before_block, static_cast<uint64_t>(event.kind) << 8 | event.flags, event.from.value,
                               event.to.value, event.payload, event.aux, event.stream_offset_bytes, event.time.first.value,
                               event.time.last.value, event.about.value, event.cycles}) {
        lists_[2].put(v);
      }
    }
    for (const Gap& gap : batch.gaps) {
      for (const uint64_t v :
           {blocks_ + gap.before_block, static_cast<uint64_t>(gap.reason), gap.ip.value, gap.stream_offset_bytes, gap.lost_bytes}) {
        lists_[3].put(v);
      }
    }
    blocks_ += batch.blocks.size();
  }
  [[nodiscard]] uint64_t value() const {
    ListHash all;
    for (const ListHash& list : lists_) all.put(list.value());
    return all.value();
  }

 private:
  ListHash lists_[4];
  uint64_t blocks_ = 0;
};

struct Way {
  const char* name;
  const Recording* recording;
  unsigned threads;
};

struct Decoded {
  std::vector<uint64_t> segments;
  uint64_t blocks = 0, instructions = 0;
  double cpu_s = 0, wall_s = 0;
};

double cpu_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Decoded decode(const Way& way, uint32_t stream, bool hash) {
  Decoded out;
  const double start = cpu_now();
  const auto wall = std::chrono::steady_clock::now();
  OutputHash current;
  uint64_t at = ~uint64_t{0};
  const auto sink = [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
    out.blocks += batch.blocks.size();
    if (!hash) return true;
    if (segment.stream_offset_bytes != at) {
      if (at != ~uint64_t{0}) out.segments.push_back(current.value());
      current = {};
      at = segment.stream_offset_bytes;
    }
    for (const Block& block : batch.blocks) out.instructions += block.instructions;
    current.add(batch, decoder.blocks());
    return true;
  };
  (void)way.recording->decode_parallel(stream, 0, Recording::kStreamEnd, way.threads, sink);
  out.segments.push_back(current.value());
  out.cpu_s = cpu_now() - start;
  out.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
  return out;
}

int run(const std::string& path, const std::string& symfs, const OpenRequest& dropping, bool fast_only) {
  OpenRequest options = dropping;
  options.path = path;
  if (!symfs.empty()) options.symfs = {symfs};
  const auto fast = open_recording(options);
  if (!fast.ok()) {
    std::fprintf(stderr, "%s\n", fast.error().message.c_str());
    return 2;
  }
  options.exact_only = true;
  const auto exact = open_recording(options);
  if (!exact.ok()) return 2;
  std::vector<Way> ways{{"exact", exact->get(), 1},
                        {"fast", fast->get(), 1},
                        {"2 threads", fast->get(), 2},
                        {"3 threads", fast->get(), 3},
                        {"8 threads", fast->get(), 8}};
  if (fast_only) ways.erase(ways.begin());
  int status = 0;
  for (uint32_t stream = 0; stream < (*fast)->streams().size(); ++stream) {
    Decoded first;
    for (const Way& way : ways) {
      const Decoded timed = decode(way, stream, false);
      const Decoded result = decode(way, stream, true);
      std::printf("stream %u %-9s %12llu blocks %13llu instructions %6zu segments %8.3f s cpu %8.3f s wall\n", stream, way.name,
                  static_cast<unsigned long long>(result.blocks), static_cast<unsigned long long>(result.instructions),
                  result.segments.size(), timed.cpu_s, timed.wall_s);
      std::fflush(stdout);
      if (first.segments.empty()) {
        first = result;
        continue;
      }
      for (size_t i = 0; i < std::max(first.segments.size(), result.segments.size()); ++i) {
        if (i < first.segments.size() && i < result.segments.size() && first.segments[i] == result.segments[i]) continue;
        std::printf("stream %u %s: segment %zu differs\n", stream, way.name, i);
        status = 1;
        break;
      }
    }
  }
  return status;
}

/// Prints the elapsed time of each of `rounds` decodes of the whole recording, in seconds.
int time_rounds(const std::string& path, const std::string& symfs, unsigned threads, unsigned rounds) {
  OpenRequest options;
  options.path = path;
  if (!symfs.empty()) options.symfs = {symfs};
  const auto recording = open_recording(options);
  if (!recording.ok()) {
    std::fprintf(stderr, "%s\n", recording.error().message.c_str());
    return 2;
  }
  const Way way{"", recording->get(), threads};
  for (unsigned round = 0; round < rounds; ++round) {
    double wall_s = 0, cpu_s = 0;
    for (uint32_t stream = 0; stream < (*recording)->streams().size(); ++stream) {
      const Decoded decoded = decode(way, stream, false);
      wall_s += decoded.wall_s;
      cpu_s += decoded.cpu_s;
    }
    std::printf("%.4f %.4f\n", wall_s, cpu_s);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace ptd

int main(int argc, char** argv) {
  std::vector<std::string> words;
  bool fast_only = false;
  unsigned timed = 0;  // threads
  ptd::OpenRequest dropping;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--fast-only") == 0) {
      fast_only = true;
    } else if (std::strcmp(argv[i], "--time") == 0 && i + 1 < argc) {
      timed = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    } else if (std::strcmp(argv[i], "--drop-nth-poke") == 0 && i + 1 < argc) {
      char* rest = nullptr;
      dropping.drop_nth_poke = static_cast<uint32_t>(std::strtoul(argv[++i], &rest, 10));
      if (*rest == ',') dropping.drop_poke_seed = static_cast<uint32_t>(std::strtoul(rest + 1, nullptr, 10));
    } else {
      words.emplace_back(argv[i]);
    }
  }
  if (words.empty()) {
    std::fprintf(stderr, "usage: compare_paths RECORDING [SYMFS] [--drop-nth-poke N[,SEED]] [--fast-only | --time THREADS]\n");
    return 2;
  }
  if (timed != 0) return ptd::time_rounds(words[0], words.size() > 1 ? words[1] : std::string(), timed, 5);
  return ptd::run(words[0], words.size() > 1 ? words[1] : std::string(), dropping, fast_only);
}
