// Any bytes as CoreSight: as frames, as ETMv4 and ETE trace with code, as ETMv3, PTM, STM and ITM, as a snapshot's ini, as cs_etm metadata.
#include <cstring>
#include <string_view>
#include <vector>

#include "decoder/arm/decoder.h"
#include "decoder/arm/legacy_decoder.h"
#include "decoder/arm/packet/legacy_packets.h"
#include "image/source/code_bytes.h"
#include "perfio/format/auxtrace_etm.h"
#include "ptdecode/arm/frames.h"
#include "ptdecode/timeline_builder.h"
#include "recording/coresight/snapshot_ini.h"
#include "tests/fuzz/check.h"

using namespace ptd;

namespace {

constexpr uint64_t kCodeBytes = 256;
constexpr size_t kMostBlocks = 200 * 512;  // approximately: full batches

arm::TraceConfig config_of(uint8_t choice) {
  arm::TraceConfig config;
  config.protocol = (choice & 1) != 0 ? arm::Protocol::ete : arm::Protocol::etmv4;
  config.devarch = (choice & 1) != 0 ? 0x47735a13 : 0;
  config.idr0 |= (choice & 2) != 0 ? 0x18040 : 0;
  config.configr = (choice & 2) != 0 ? 0x700 : 0;
  config.idr8 = (choice & 4) != 0 ? 0xffffffff : (choice & 8) != 0 ? 20 : 0;
  config.configr |= (choice & 16) != 0 ? 0x1000 : 0;
  config.m_profile = (choice & 32) != 0;
  return config;
}

/// A sum for each kind of output, independent of how the flow is cut into batches.
struct FlowSums {
  uint64_t blocks = 0, marks = 0, events = 0, gaps = 0;
  bool whole = true;  ///< false: cut by the bound, which two decoders may reach at different batches

  [[nodiscard]] bool fits(const FlowSums& other) const {
    const bool same = blocks == other.blocks && marks == other.marks && events == other.events && gaps == other.gaps;
    return same || !whole || !other.whole;
  }
};

template <typename... Values>
void mix(uint64_t& sum, Values... values) {
  ((sum = (sum ^ static_cast<uint64_t>(values)) * 0x100000001b3, sum ^= sum >> 29), ...);
}

void mix_time(uint64_t& sum, Interval time) { mix(sum, time.first.value, time.last.value); }

/// `before`: number of blocks in the batches before this one.
void add_batch(FlowSums& sums, const Batch& batch, const BlockTable& table, uint64_t before) {
  for (const Block& block : batch.blocks) {
    const BlockInfo& info = table.info(block.node);
    mix(sums.blocks, info.ip.value, block.flags, block.instructions);
    PTD_FUZZ_CHECK(block.instructions != 0 && block.instructions == info.instructions && info.size_bytes >= 2U * info.instructions);
  }
  for (const Mark& mark : batch.marks) {
    PTD_FUZZ_CHECK(mark.before_block <= batch.blocks.size());
    mix(sums.marks, before + mark.before_block, mark.pid, mark.tid, mark.space.value, mark.mode, mark.time_known, mark.cycles);
    mix_time(sums.marks, mark.time);
  }
  for (const Event& event : batch.events) {
    PTD_FUZZ_CHECK(event.before_block <= batch.blocks.size());
    mix(sums.events, before + event.before_block, event.kind, event.flags, event.from.value, event.to.value, event.payload, event.aux);
    mix(sums.events, event.stream_offset_bytes, event.cycles);
    mix_time(sums.events, event.time);
  }
  for (const Gap& gap : batch.gaps) {
    PTD_FUZZ_CHECK(gap.before_block <= batch.blocks.size());
    mix(sums.gaps, before + gap.before_block, gap.reason, gap.stream_offset_bytes, gap.ip.value, gap.space.value, gap.lost_bytes);
    mix_time(sums.gaps, gap.time);
  }
}

FlowSums run(FlowDecoder& decoder, Bytes trace, size_t batch_blocks = 512) {
  FlowSums sums;
  AuxSegment segment;
  segment.bytes = trace;
  decoder.begin(segment);
  Batch batch;
  uint64_t before = 0;
  for (size_t batches = kMostBlocks / batch_blocks; sums.whole; --batches) {
    batch.clear();
    const bool more = decoder.next(batch, batch_blocks);
    add_batch(sums, batch, decoder.blocks(), before);
    before += batch.blocks.size();
    if (!more) break;
    sums.whole = batches > 1;
  }
  return sums;
}

void list_packets(Bytes trace, arm::TraceConfig config) {
  for (const arm::Protocol protocol : {arm::Protocol::itm, arm::Protocol::stm}) {
    config.protocol = protocol;
    arm::LegacyReader reader(trace, config);
    for (const auto* packets = &reader.next(); !packets->empty(); packets = &reader.next()) {
      for (const arm::LegacyPacket& packet : *packets) PTD_FUZZ_CHECK(packet.offset_bytes <= trace.size());
    }
  }
}

// The same code twice, and the first words change at an unknown time in between.
Timeline timeline_of(Bytes code, bool changes) {
  TimelineBuilder builder;
  for (const uint64_t ip : {uint64_t{0}, uint64_t{0xffff000000000000}}) {
    Section section;
    section.ip = Ip{ip};
    section.space = kKernelSpace;
    section.code = own_bytes(code);
    section.size_bytes = code.size();
    builder.add_section(std::move(section));
    if (!changes || code.size() < 16) continue;
    Edit edit;
    edit.ip = Ip{ip};
    edit.old_bytes.assign(code.begin(), code.begin() + 8);
    edit.new_bytes.assign(code.begin() + 8, code.begin() + 16);
    edit.origin = EditOrigin::dated_copy;
    builder.add_edit(std::move(edit));
  }
  return builder.build();
}

void frames(Bytes bytes) {
  for (const arm::FrameFormat format : {arm::FrameFormat::aligned, arm::FrameFormat::synced}) {
    uint64_t given = 0;
    const arm::FrameCounts counts = arm::split_frames(
        bytes, format,
        [&](const arm::FrameRun& run) {
          given += run.bytes.size();
          PTD_FUZZ_CHECK(!run.bytes.empty() && run.offset_bytes < bytes.size() && run.id != 0 && run.id < 128);
        },
        [&](uint64_t offset) { PTD_FUZZ_CHECK(offset < bytes.size()); });
    PTD_FUZZ_CHECK(given <= 15 * counts.frames && counts.skipped_bytes <= bytes.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  if (size < 2) return 0;
  const Bytes all = std::as_bytes(std::span(data, size));
  frames(all);
  (void)parse_ini(std::string_view(reinterpret_cast<const char*>(data), size));
  perfio::AuxtraceInfoRecord record;
  record.type = perfio::kAuxtraceCsEtm;
  record.priv.resize(size / 8);
  if (!record.priv.empty()) std::memcpy(record.priv.data(), data, record.priv.size() * 8);
  PTD_FUZZ_CHECK(perfio::parse_etm_info(record).cpus.size() <= size);
  const Bytes rest = all.subspan(1);
  const Bytes code = rest.first(std::min<size_t>(rest.size(), kCodeBytes));
  const Timeline timeline = timeline_of(code, (data[0] & 64) != 0);
  const ContextTrack contexts;
  arm::DecoderOptions options;
  options.config = config_of(data[0]);
  options.follow.default_space = kKernelSpace;
  options.max_flows = 8;
  const Bytes trace = rest.subspan(code.size());
  arm::Decoder decoder(timeline, contexts, options);
  options.follow.exact_only = true;
  arm::Decoder exact(timeline, contexts, options);
  const FlowSums fast_sums = run(decoder, trace);
  PTD_FUZZ_CHECK(fast_sums.fits(run(exact, trace, 60)));
  list_packets(trace, options.config);
  for (const arm::Protocol protocol : {arm::Protocol::etmv3, arm::Protocol::ptm}) {
    options.config.protocol = protocol;
    arm::LegacyDecoder legacy(timeline, contexts, options.config, options.follow),
        in_parts(timeline, contexts, options.config, options.follow);
    const FlowSums sums = run(legacy, trace);
    PTD_FUZZ_CHECK(sums.fits(run(in_parts, trace, 60)));
  }
  return 0;
}
