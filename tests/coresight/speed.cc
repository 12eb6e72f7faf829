// Times the flow of CoreSight captures and OpenCSD's full decode of them (library, no printing) in one run.
// Usage: coresight_speed [--rounds N] DIR...
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ptdecode/recording.h"
#include "tests/coresight/support/opencsd_peer.h"

using namespace ptd;
using ptd::test::make_peer;

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLeastSeconds = 0.5;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

uint64_t peer_instructions = 0;

ocsd_datapath_resp_t on_element(const void*, const ocsd_trc_index_t, const uint8_t, const ocsd_generic_trace_elem* element) {
  if (element->elem_type == OCSD_GEN_TRC_ELEM_INSTR_RANGE) peer_instructions += element->num_instr_range;
  return OCSD_RESP_CONT;
}

struct PeerSeconds {
  double making = 1e9, decoding = 1e9;
};
struct Sum {
  double own = 0, making = 0, decoding = 0;
  int sources = 0;
  void add(double mine, const PeerSeconds& peer) {
    own += mine;
    making += peer.making;
    decoding += peer.decoding;
    ++sources;
  }
  void print(const char* what) const {
    std::printf("%-60s %d sources  own %9.1f us  OpenCSD %9.1f us, %5.1f of making  %6.1fx, %5.1fx\n", what, sources, 1e6 * own,
                1e6 * decoding, 1e6 * making, (decoding + making) / own, decoding / own);
  }
};

/// Returns the seconds to create and destroy a decoder, and of one full decode. Our side has one figure for both. The time to register the
/// code is not included on either side.
PeerSeconds time_peer(const Recording& recording, uint32_t stream, Bytes trace) {
  const Clock::time_point making = Clock::now();
  const dcd_tree_handle_t tree = ocsd_create_dcd_tree(OCSD_TRC_SRC_SINGLE, 0);
  if (tree == C_API_INVALID_TREE_HANDLE || !make_peer(tree, *recording.arm_config(stream))) return {};
  const double made = seconds_since(making);
  for (size_t i = 0; i < recording.timeline().section_count(); ++i) {
    const Section& section = recording.timeline().section(static_cast<SectionId>(i));
    if (section.code.bytes.empty()) continue;
    const auto* code = reinterpret_cast<const uint8_t*>(section.code.bytes.data());
    (void)ocsd_dt_add_buffer_mem_acc(tree, section.ip.value, OCSD_MEM_SPACE_ANY, code, static_cast<uint32_t>(section.code.bytes.size()));
  }
  (void)ocsd_dt_set_gen_elem_outfn(tree, on_element, nullptr);
  const Clock::time_point start = Clock::now();
  peer_instructions = 0;
  for (uint64_t at = 0; at < trace.size();) {
    uint32_t used = 0;
    const auto* data = reinterpret_cast<const uint8_t*>(trace.data() + at);
    const auto response =
        ocsd_dt_process_data(tree, OCSD_OP_DATA, static_cast<ocsd_trc_index_t>(at), static_cast<uint32_t>(trace.size() - at), data, &used);
    at += used;
    if (OCSD_DATA_RESP_IS_FATAL(response) || used == 0) break;
  }
  (void)ocsd_dt_process_data(tree, OCSD_OP_EOT, 0, 0, nullptr, nullptr);
  const double seconds = seconds_since(start);
  const Clock::time_point unmaking = Clock::now();
  ocsd_destroy_dcd_tree(tree);
  return {made + seconds_since(unmaking), seconds};
}

double time_own(const Recording& recording, uint32_t stream, uint64_t& instructions) {
  const Clock::time_point start = Clock::now();
  instructions = 0;
  (void)recording.decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
    instructions += instructions_of(batch.blocks);
    return true;
  });
  return seconds_since(start);
}

void compare(const char* path, int rounds, Sum& all) {
  OpenOptions options;
  options.path = path;
  const auto opened = Recording::open(options);
  if (!opened.ok()) return void(std::fprintf(stderr, "%s\n", opened.error().message.c_str()));
  const Recording& recording = **opened;
  Sum capture;
  for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
    const arm::TraceConfig& config = *recording.arm_config(stream);
    if (config.protocol != arm::Protocol::etmv4 && config.protocol != arm::Protocol::ete) continue;
    std::vector<std::byte> trace, scratch;
    AuxSegment segment;
    for (uint64_t at = 0; recording.next_segment(stream, at, segment, scratch);) {
      trace.insert(trace.end(), segment.bytes.begin(), segment.bytes.end());
    }
    if (trace.empty()) continue;
    double seconds = 0, own = 1e9;
    PeerSeconds peer;
    uint64_t instructions = 0;
    for (int round = 0; round < rounds || (rounds == 0 && (round < 3 || seconds < kLeastSeconds)); ++round) {
      const double mine = time_own(recording, stream, instructions);
      const PeerSeconds theirs = time_peer(recording, stream, trace);
      seconds += mine + theirs.making + theirs.decoding;
      own = std::min(own, mine);
      peer = {std::min(peer.making, theirs.making), std::min(peer.decoding, theirs.decoding)};
    }
    std::printf(
        "%-60s id %02x %8zu bytes  own %9llu instructions %9.1f us  OpenCSD %9llu instructions %9.1f us, %5.1f of making  %6.1fx, %5.1fx\n",
        path, config.trace_id, trace.size(), static_cast<unsigned long long>(instructions), 1e6 * own,
        static_cast<unsigned long long>(peer_instructions), 1e6 * peer.decoding, 1e6 * peer.making, (peer.decoding + peer.making) / own,
        peer.decoding / own);
    capture.add(own, peer);
    all.add(own, peer);
  }
  if (capture.sources > 1) capture.print(path);
}

}  // namespace

int main(int argc, char** argv) {
  const bool fixed = argc > 3 && std::strcmp(argv[1], "--rounds") == 0;
  Sum all;
  for (int i = fixed ? 3 : 1; i < argc; ++i) compare(argv[i], fixed ? std::atoi(argv[2]) : 0, all);
  if (all.sources > 1) all.print("all");
  return argc > 1 ? 0 : 2;
}
