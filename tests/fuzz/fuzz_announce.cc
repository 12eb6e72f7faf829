// Any bytes as a ring of announcements, and as samples of them: nothing is read outside of them, and a timeline can be built.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "announce/ptd_announce.h"
#include "capture/announce/announce_ring.h"
#include "perfio/announce/announce_event.h"
#include "recording/data/open_request.h"
#include "recording/perf/sideband_fold.h"
#include "tests/fuzz/check.h"

using namespace ptd;

namespace {

// The ring: a memfd with these bytes, sealed as the reader wants it, and with a header that it accepts if the bytes do not say otherwise.
void read_as_ring(Bytes bytes) {
  Fd file(memfd_create(PTD_ANNOUNCE_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr uint64_t kOffset = 4096, kRing = 8192;
  ptd_announce_header header{};
  std::memcpy(header.magic, PTD_ANNOUNCE_MAGIC, sizeof header.magic);
  header.version = PTD_ANNOUNCE_VERSION;
  header.ring_offset = kOffset;
  header.ring_bytes = kRing;
  header.flags = PTD_ANNOUNCE_HEADER_FROM_START;
  const size_t changed = std::min<size_t>(bytes.size(), 8);  // of the header, at a place that the first two bytes choose
  if (changed >= 4) {
    const size_t at = (std::to_integer<size_t>(bytes[0]) * 256 + std::to_integer<size_t>(bytes[1])) % 512;
    if (at + changed <= sizeof header) std::memcpy(reinterpret_cast<char*>(&header) + at, bytes.data(), changed);
  }
  if (!file.ok() || ftruncate(file.get(), kOffset + kRing) != 0) return;
  (void)!pwrite(file.get(), &header, sizeof header, 0);
  (void)!pwrite(file.get(), bytes.data(), std::min<size_t>(bytes.size(), kRing), kOffset);
  (void)fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  const auto ring = announce::AnnounceRing::adopt(getpid(), getuid(), std::move(file));
  if (!ring.ok()) return;
  (void)(*ring)->enable();
  uint64_t total = 0;
  const auto take = [&](Bytes record) {
    total += record.size();
    (void)parse_announce_record(record);
  };
  (void)(*ring)->read(take, 4096);
  (*ring)->release();
  (void)(*ring)->read_rest(take);
  PTD_FUZZ_CHECK(total <= 2 * kRing);
}

// Samples: a byte for the process and one for the time, two for the length, then the record.
void read_as_samples(Bytes bytes) {
  const OpenRequest options;
  RecordingData data;
  ImageBuild image(options);
  SidebandFold fold(options, image, data);
  const std::vector<perfio::EventAttr> attrs{perfio::announce_attr({}, 1)};
  fold.set_attrs(attrs);
  const auto feed = [&](perfio::Payload payload, int32_t pid, uint64_t time) {
    perfio::Record record;
    record.payload = std::move(payload);
    record.sample_id.pid = record.sample_id.tid = pid;
    record.sample_id.time = time;
    record.sample_id.has_time = true;
    fold.on_record(record);
  };
  for (int32_t pid = 1; pid < 4; ++pid) {
    perfio::MmapRecord map;
    map.pid = map.tid = pid;
    map.addr = 0x10000;
    map.size_bytes = 0x10000;
    map.path = "//anon";
    feed(map, pid, 1);
  }
  for (size_t at = 0; at + 4 <= bytes.size();) {
    const auto byte = [&](size_t i) { return std::to_integer<uint32_t>(bytes[at + i]); };
    const int32_t pid = static_cast<int32_t>(byte(0) % 4);
    const uint64_t time = 2 + byte(1);
    const size_t size = std::min<size_t>(byte(2) | byte(3) << 8, bytes.size() - at - 4);
    const std::vector<std::byte> raw = perfio::announce_sample(pid, bytes.subspan(at + 4, size));
    feed(perfio::OtherSample{0, raw}, pid, time);
    at += 4 + size;
  }
  fold.finish({}, {}, true);
  image.finish(data);
  for (SectionId id = 0; id < data.timeline.section_count(); ++id) {
    const Section& section = data.timeline.section(id);
    PTD_FUZZ_CHECK(section.path != "[jit]" || (section.ip.value >= 0x10000 && section.ip.value + section.size_bytes <= 0x20000));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const Bytes bytes = std::as_bytes(std::span(data, size));
  read_as_ring(bytes);
  read_as_samples(bytes);
  return 0;
}
