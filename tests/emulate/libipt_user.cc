// `libipt_user RECORDING TRUTH.tidN.ptt...`: libipt's instruction decoder on the threads of an emulated recording, against the ground truth.
// libipt's image has no time: it gets the code at the time when the thread's program ended, so it is right exactly where code is static.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "capture/emulate/etm/truth_file.h"
#include "ptdecode/code_view.h"
#include "ptdecode/recording.h"
#include "ptdecode/timeline.h"
#include "tests/oracle/libipt_oracle.h"

namespace {

using namespace ptd;

/// The true flow of a thread, and how much of it precedes each PSB.
struct Truth {
  std::vector<uint64_t> insns;
  std::vector<std::pair<uint64_t, size_t>> psbs;  ///< stream offset, instructions before it

  [[nodiscard]] size_t before(uint64_t offset_bytes) const {
    for (const auto& [offset, count] : psbs) {
      if (offset >= offset_bytes) return count;
    }
    return insns.size();
  }
};

bool read_truth(const std::string& path, Truth& truth) {
  auto reader = emulate::TruthFileReader::open(path);
  if (!reader) return false;
  emulate::TruthRecord record;
  while ((*reader)->next(record)) {
    if (record.tag == emulate::TruthTag::psb) truth.psbs.emplace_back(record.offset_bytes, truth.insns.size());
    if (record.tag != emulate::TruthTag::block && record.tag != emulate::TruthTag::part) continue;
    uint64_t ip = record.block->ip;
    for (uint32_t i = 0; i < record.first + record.count; ++i) {
      if (i >= record.first) truth.insns.push_back(ip);
      ip += record.block->lengths[i];
    }
  }
  return (*reader)->error().empty();
}

/// The trace of one program that a thread ran: from exec to exec.
struct Piece {
  SpaceId space;
  TimeNs last;
  uint64_t offset_bytes = 0;
  std::vector<std::byte> bytes;
};

std::vector<Piece> pieces_of(const Recording& recording, uint32_t stream) {
  std::vector<Piece> pieces;
  std::vector<std::byte> scratch;
  AuxSegment segment;
  for (uint64_t at = 0; recording.next_segment(stream, at, segment, scratch);) {
    const SpaceId space = recording.contexts().at_thread(segment.tid, segment.time.first).space;
    if (pieces.empty() || pieces.back().space != space) pieces.push_back({space, {}, segment.stream_offset_bytes, {}});
    pieces.back().last = segment.time.last;
    const Bytes own = segment.bytes.first(segment.bytes.size() - segment.tail_bytes);
    pieces.back().bytes.insert(pieces.back().bytes.end(), own.begin(), own.end());
  }
  return pieces;
}

oracle::MemoryReader code_at(CodeView& code, SpaceId space, TimeNs time) {
  return [&code, space, time](uint64_t ip, std::span<std::byte> out) -> size_t {
    CodeCandidate candidates[4];
    const FetchResult found = code.fetch(space, Ip{ip}, {time, time}, {}, candidates, 15);
    if (found.count == 0) return 0;
    const Bytes bytes = candidates[found.count - 1].bytes;
    const size_t size = std::min(out.size(), bytes.size());
    std::copy_n(bytes.begin(), size, out.begin());
    return size;
  };
}

/// True if libipt's flow of every program of the thread is the true one.
bool compare(const Recording& recording, uint32_t stream, const Truth& truth) {
  const std::vector<Piece> pieces = pieces_of(recording, stream);
  CodeView code(recording.timeline());
  bool equal = !pieces.empty();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const size_t first = truth.before(piece.offset_bytes);
    const size_t end = i + 1 < pieces.size() ? truth.before(pieces[i + 1].offset_bytes) : truth.insns.size();
    oracle::OracleOptions options;
    options.cpu = recording.decoder_options().config.cpu;
    const oracle::OracleFlow flow = oracle::decode_insns(piece.bytes, options, code_at(code, piece.space, piece.last));
    const auto want = std::span(truth.insns).subspan(first, end - first);
    const auto differ = std::mismatch(want.begin(), want.end(), flow.insns.begin(), flow.insns.end());
    const auto alike = static_cast<size_t>(differ.first - want.begin());
    const bool same = alike == want.size() && alike == flow.insns.size() && flow.errors.empty();
    std::printf("tid %d, program %zu: libipt gives %zu instructions, %zu ran, the first %zu are equal, %zu errors%s%s\n",
                recording.streams()[stream].tid, i, flow.insns.size(), want.size(), alike, flow.errors.size(),
                flow.errors.empty() ? "" : ": ", flow.errors.empty() ? "" : oracle::text(flow.errors.front()).c_str());
    equal = equal && same;
  }
  return equal;
}

int32_t tid_of(const std::string& path) {
  const size_t at = path.rfind(".tid");
  return at == std::string::npos ? -1 : std::atoi(path.c_str() + at + 4);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  OpenOptions options;
  options.path = argv[1];
  const auto recording = Recording::open(options);
  if (!recording) {
    std::fprintf(stderr, "libipt_user: %s\n", recording.error().message.c_str());
    return 1;
  }
  bool equal = true;
  for (int i = 2; i < argc; ++i) {
    const auto& streams = (*recording)->streams();
    const auto at = std::find_if(streams.begin(), streams.end(), [&](const StreamInfo& s) { return s.tid == tid_of(argv[i]); });
    Truth truth;
    if (at == streams.end() || !read_truth(argv[i], truth)) {
      std::fprintf(stderr, "libipt_user: %s: no truth of a thread of this recording\n", argv[i]);
      return 1;
    }
    equal = compare(**recording, static_cast<uint32_t>(at - streams.begin()), truth) && equal;
  }
  return equal ? 0 : 3;
}
