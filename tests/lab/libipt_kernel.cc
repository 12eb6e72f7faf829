// `libipt_kernel RECORDING [--symfs DIR] [--after DIR] [--per-segment]` decodes a kernel's trace with libipt, whose image has no time. The
// image is the text of the kernel copy or, with --per-segment, the text at the middle of each segment between two PSBs. Prints the
// instructions, the errors, and the number of segments equal to ptdecode's. `ptdecode verify` compares those with the ground truth.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>

#include "cli/cache/node_cache.h"
#include "ptdecode/code_view.h"
#include "ptdecode/recording.h"
#include "tests/oracle/libipt_oracle.h"

namespace {

using namespace ptd;

constexpr size_t kPlaces = 8;

struct Counts {
  uint64_t instructions = 0, right = 0, ours = 0, errors = 0, segments = 0, equal_segments = 0, wrong = 0;
  std::map<std::string, uint64_t> messages;
  std::map<uint64_t, uint64_t> places;  // of errors; the first few
};

/// Code at one time, in one thread's space.
oracle::MemoryReader code_at(CodeView& code, SpaceId space, TimeNs time) {
  return [&code, space, time](uint64_t ip, std::span<std::byte> out) -> size_t {
    CodeCandidate candidates[4];
    const FetchResult found = code.fetch(is_kernel_half(Ip{ip}) ? kKernelSpace : space, Ip{ip}, {time, time}, {}, candidates, 15);
    if (found.count == 0) return 0;
    const Bytes bytes = candidates[found.count - 1].bytes;
    const size_t size = std::min(out.size(), bytes.size());
    std::copy_n(bytes.begin(), size, out.begin());
    return size;
  };
}

std::vector<uint64_t> our_flow(const Recording& recording, uint32_t stream, uint64_t segment) {
  std::vector<uint64_t> flow;
  cli::NodeCache nodes;  // of one decoder
  (void)recording.decode(stream, segment, segment + 1, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
    nodes.bind(decoder.blocks());
    for (const Block& block : batch.blocks) {
      for (const cli::CachedInsn& insn : nodes.insns(block.node)) flow.push_back((nodes.info(block.node).ip + insn.offset_bytes).value);
    }
    return true;
  });
  return flow;
}

/// Counts equal instructions of two flows, in order: where they differ, it searches for the next position where eight are equal.
uint64_t common(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  constexpr size_t kRun = 8, kAhead = 1U << 16;
  const auto alike = [&](size_t i, size_t j) {
    for (size_t k = 0; k < kRun; ++k) {
      if (i + k >= a.size() || j + k >= b.size()) return k != 0;
      if (a[i + k] != b[j + k]) return false;
    }
    return true;
  };
  uint64_t equal = 0;
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i] == b[j]) {
      ++equal, ++i, ++j;
      continue;
    }
    std::unordered_map<uint64_t, size_t> where;
    for (size_t k = j; k < std::min(b.size(), j + kAhead); ++k) where.emplace(b[k], k);
    bool found = false;
    for (size_t k = i; k < a.size() && k < i + kAhead && !found; ++k) {
      const auto at = where.find(a[k]);
      if (at != where.end() && alike(k, at->second)) i = k, j = at->second, found = true;
    }
    if (!found) break;
  }
  return equal;
}

}  // namespace

int main(int argc, char** argv) {
  OpenOptions options, frozen_options;
  bool per_segment = false;
  if (argc < 2) return 2;
  options.path = argv[1];
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--per-segment") == 0) per_segment = true;
    if (std::strcmp(argv[i], "--symfs") == 0 && i + 1 < argc) options.symfs = {argv[++i]};
    if (std::strcmp(argv[i], "--after") == 0 && i + 1 < argc) options.kcore_after = {argv[++i]};
  }
  frozen_options = options;
  frozen_options.freeze = true;
  const auto recording = Recording::open(options);
  const auto frozen = Recording::open(frozen_options);
  if (!recording || !frozen) {
    std::fprintf(stderr, "libipt_kernel: %s\n", (!recording ? recording : frozen).error().message.c_str());
    return 1;
  }
  for (uint32_t stream = 0; stream < (*recording)->streams().size(); ++stream) {
    CodeView code((per_segment ? *recording : *frozen)->timeline());
    const pt::Config& config = (*recording)->decoder_options().config;
    oracle::OracleOptions oracle_options;
    oracle_options.cpu = config.cpu;
    Counts counts;
    std::vector<std::byte> scratch;
    const ContextTrack& contexts = (*recording)->contexts();
    AuxSegment aux;
    for (uint64_t at = 0; (*recording)->next_segment(stream, at, aux, scratch);) {
      const TimeNs middle{aux.time.first.value / 2 + std::min(aux.time.last, TimeNs{aux.time.first.value + 1'000'000}).value / 2};
      const int32_t cpu = (*recording)->streams()[stream].cpu;
      const std::vector<uint64_t> ours = our_flow(**recording, stream, aux.stream_offset_bytes);
      oracle_options.max_instructions = 2 * ours.size() + 100'000;  // wrong code may loop without a packet
      const oracle::OracleFlow flow =
          oracle::decode_insns(aux.bytes, oracle_options, code_at(code, contexts.at_cpu(cpu, middle).space, middle));
      counts.instructions += flow.insns.size();
      counts.ours += ours.size();
      const uint64_t equal = common(ours, flow.insns);
      counts.right += equal;
      counts.wrong += flow.insns.size() - equal;
      counts.errors += flow.errors.size();
      for (const auto& error : flow.errors) {
        ++counts.messages[error.message];
        if (counts.places.size() < kPlaces) ++counts.places[error.ip];
      }
      ++counts.segments;
      counts.equal_segments += ours == flow.insns ? 1 : 0;
    }
    std::printf("cpu %d: libipt %s: %llu instructions, %llu of our %llu found, %llu others, %llu errors, %llu of %llu stretches equal;",
                (*recording)->streams()[stream].cpu, per_segment ? "with the text of each stretch's middle" : "with the text of the copy",
                static_cast<unsigned long long>(counts.instructions), static_cast<unsigned long long>(counts.right),
                static_cast<unsigned long long>(counts.ours), static_cast<unsigned long long>(counts.wrong),
                static_cast<unsigned long long>(counts.errors), static_cast<unsigned long long>(counts.equal_segments),
                static_cast<unsigned long long>(counts.segments));
    for (const auto& [message, count] : counts.messages) std::printf(" %s: %llu", message.c_str(), static_cast<unsigned long long>(count));
    std::printf("\n");
    for (const auto& [ip, count] : counts.places) {
      std::printf("  %llu errors at %llx\n", static_cast<unsigned long long>(count), static_cast<unsigned long long>(ip));
    }
  }
  return 0;
}
