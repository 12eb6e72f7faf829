// Any bytes as packets: the reader advances or stops, stays in bounds, and what it read is written back byte for byte.
#include <algorithm>
#include <vector>

#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/pt/pt_clock.h"
#include "tests/fuzz/check.h"

using namespace ptd;

namespace {

void read_all(Bytes bytes) {
  pt::Config config;
  config.mtc_period = 3;
  config.tsc_ctc_ratio_n = 80;
  config.tsc_ctc_ratio_d = 1;
  pt::PtClock clock(config);
  pt::PacketReader reader(bytes);
  pt::Packet packet;
  uint64_t last_ip = 0;
  while (reader.offset() < bytes.size()) {
    const uint64_t before = reader.offset();
    if (reader.next(packet) != pt::PacketReader::Status::ok) {
      PTD_FUZZ_CHECK(reader.offset() == before);
      const uint64_t psb = pt::find_psb(bytes, before + 1);
      PTD_FUZZ_CHECK(psb > before && psb <= bytes.size());
      reader.seek(psb);
      continue;
    }
    PTD_FUZZ_CHECK(reader.offset() == before + packet.size_bytes && reader.offset() <= bytes.size());
    (void)pt::decompress_ip(packet, last_ip);
    (void)clock.on_packet(packet);
    PTD_FUZZ_CHECK(clock.earliest() <= clock.latest());
    std::vector<std::byte> again;
    pt::PacketWriter writer(again);
    if (writer.write(packet)) {
      // Reserved bits may be lost when written; the meaning may not.
      pt::Packet second;
      pt::PacketReader second_reader{Bytes(again)};
      if (packet.kind != pt::PacketKind::bip && second_reader.next(second) == pt::PacketReader::Status::ok) {
        PTD_FUZZ_CHECK(second.kind == packet.kind && second.value == packet.value && second.flags == packet.flags);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  read_all(std::as_bytes(std::span(data, size)));
  return 0;
}
