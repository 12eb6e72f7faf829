// Any bytes as CoreSight: as frames, as ETMv4 and ETE trace with code, as ETMv3, PTM, STM and ITM, as a snapshot's ini, as cs_etm metadata.
#include <cstring>
#include <string_view>
#include <vector>

#include "decoder/arm/decoder.h"
#include "decoder/arm/frames.h"
#include "decoder/arm/legacy_decoder.h"
#include "decoder/arm/legacy_packets.h"
#include "image/source/mapped_file.h"
#include "image/timeline_builder.h"
#include "perfio/auxtrace_etm.h"
#include "recording/snapshot_ini.h"
#include "tests/fuzz/check.h"

using namespace ptd;

namespace {

constexpr uint64_t kCodeBytes = 256;
constexpr size_t kMaxBatches = 200;

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

/// Returns a sum of what came.
uint64_t run(FlowDecoder& decoder, Bytes trace, size_t capacity_blocks = 512) {
  uint64_t sum = 0;
  AuxSegment segment;
  segment.bytes = trace;
  decoder.begin(segment);
  Batch batch;
  batch.capacity_blocks = capacity_blocks;
  bool more = true;
  for (size_t i = 0; i < kMaxBatches && more; ++i) {
    batch.clear();
    more = decoder.next(batch);
    for (const Block& block : batch.blocks) {
      const BlockInfo& info = decoder.blocks().info(block.node);
      sum = (sum ^ info.ip.value ^ uint64_t{block.flags} << 48 ^ uint64_t{block.instructions} << 32) * 0x100000001b3;
      PTD_FUZZ_CHECK(block.instructions != 0 && block.instructions == info.instructions && info.size_bytes >= 2U * info.instructions);
    }
    for (const Mark& mark : batch.marks) PTD_FUZZ_CHECK(mark.before_block <= batch.blocks.size());
    for (const Event& event : batch.events) PTD_FUZZ_CHECK(event.before_block <= batch.blocks.size());
    for (const Gap& gap : batch.gaps) {
      sum = (sum ^ gap.ip.value ^ static_cast<uint64_t>(gap.reason) ^ gap.stream_offset_bytes << 8) * 0x100000001b3;
      PTD_FUZZ_CHECK(gap.before_block <= batch.blocks.size());
    }
  }
  return more ? 0 : sum;  // cut by the bound: batches of two decoders may differ in size
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

// Twice the same code, and a moment between that nothing tells where the first words change.
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
  options.max_tries = 8;
  const Bytes trace = rest.subspan(code.size());
  arm::Decoder decoder(timeline, contexts, options);
  options.follow.exact_only = true;
  arm::Decoder exact(timeline, contexts, options);
  const uint64_t fast_sum = run(decoder, trace), exact_sum = run(exact, trace);
  PTD_FUZZ_CHECK(fast_sum == exact_sum || fast_sum == 0 || exact_sum == 0);
  list_packets(trace, options.config);
  for (const arm::Protocol protocol : {arm::Protocol::etmv3, arm::Protocol::ptm}) {
    options.config.protocol = protocol;
    arm::LegacyDecoder legacy(timeline, contexts, options.config, options.follow),
        in_parts(timeline, contexts, options.config, options.follow);
    const uint64_t sum = run(legacy, trace), same = run(in_parts, trace, 60);
    PTD_FUZZ_CHECK(sum == same || sum == 0 || same == 0);
  }
  return 0;
}
