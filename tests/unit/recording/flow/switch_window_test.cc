// The thread at the start of each segment of data/kernel is the same without the MTC packets, which tell when a switch is past.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/recording.h"

namespace ptd {
namespace {

std::vector<std::byte> without_mtc(const AuxSegment& segment) {
  std::vector<std::byte> bytes(segment.bytes.begin(), segment.bytes.end());
  pt::PacketReader reader(segment.bytes);
  pt::Packet packet;
  for (uint64_t at = 0; reader.next(packet) == pt::PacketReader::Status::ok; at = reader.offset()) {
    // PAD.
    if (packet.kind == pt::PacketKind::mtc) std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), packet.size_bytes, std::byte{0});
  }
  return bytes;
}

int32_t first_thread(pt::Decoder& decoder, const AuxSegment& segment) {
  decoder.begin(segment);
  Batch batch;
  while (decoder.next(batch) && batch.marks.empty()) batch.clear();
  return batch.marks.empty() ? -1 : batch.marks.front().tid;
}

TEST(SwitchWindow, NeedsNoClock) {
  OpenOptions options;
  options.path = PTD_SOURCE_DIR "/data/kernel/kernel.bundle";
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok());
  const Recording& recording = **opened;
  EXPECT_EQ(recording.decoder_options().after_switch.size(), 2U);
  pt::Decoder decoder(recording.timeline(), recording.contexts(), recording.decoder_options());
  size_t between = 0;
  for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
    AuxSegment segment;
    std::vector<std::byte> scratch;
    for (uint64_t at = 0; recording.next_segment(stream, at, segment, scratch);) {
      const int32_t thread = first_thread(decoder, segment);
      if (thread != recording.contexts().at_cpu(segment.cpu, segment.time.first).tid) ++between;
      const std::vector<std::byte> bytes = without_mtc(segment);
      segment.bytes = bytes;
      EXPECT_EQ(first_thread(decoder, segment), thread) << segment.cpu << ' ' << segment.stream_offset_bytes;
    }
  }
  EXPECT_GT(between, 1U);
}

}  // namespace
}  // namespace ptd
