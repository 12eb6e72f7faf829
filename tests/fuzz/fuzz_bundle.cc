// Any bytes as a bundle, and the same with corrected checksums, so that the content is read: it opens or reports an error, and decodes.
#include <cstring>
#include <vector>

#include "ptdecode/recording.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/first_segments.h"
#include "tests/fuzz/temp_file.h"

using namespace ptd;

namespace {

constexpr size_t kHeaderBytes = 16, kChunkHeaderBytes = 32;

uint64_t fnv1a(std::span<const unsigned char> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

// Valid lengths, correct checksums, the number of chunks at the end: docs/FORMAT.md.
std::vector<unsigned char> repaired(std::span<const unsigned char> input) {
  std::vector<unsigned char> out(input.begin(), input.end());
  uint32_t count = 0;
  for (size_t at = kHeaderBytes; at + kChunkHeaderBytes <= out.size(); ++count) {
    uint32_t method = 0;
    uint64_t stored = 0;
    std::memcpy(&method, &out[at + 4], sizeof method);
    std::memcpy(&stored, &out[at + 8], sizeof stored);
    stored = std::min<uint64_t>(stored, out.size() - at - kChunkHeaderBytes);
    unsigned char* content = out.data() + at + kChunkHeaderBytes;
    if (std::memcmp(&out[at], "END ", 4) == 0 && stored >= sizeof count) {
      stored = sizeof count;
      std::memcpy(content, &count, sizeof count);
    }
    const uint64_t sum = fnv1a({content, stored});
    std::memcpy(&out[at + 8], &stored, sizeof stored);
    if (method == 0) std::memcpy(&out[at + 16], &stored, sizeof stored);
    std::memcpy(&out[at + 24], &sum, sizeof sum);
    at += kChunkHeaderBytes + stored;
  }
  return out;
}

void open_and_decode(std::span<const unsigned char> bytes) {
  const test::MemoryFile file(bytes);
  OpenOptions options;
  options.path = file.path();
  const auto recording = Recording::open(options);
  if (!recording.ok()) {
    PTD_FUZZ_CHECK(!recording.error().message.empty());
    return;
  }
  for (uint32_t stream = 0; stream < (*recording)->streams().size() && stream < 8; ++stream) {
    uint64_t batches = 0;
    const auto status = (*recording)
                            ->decode(stream, 0, test::third_segment_end(**recording, stream),
                                     [&](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
                                       for (const Event& event : batch.events) {
                                         (void)(*recording)->symbolizer().find(kKernelSpace, event.to, event.time.first);
                                       }
                                       return ++batches < 100;
                                     });
    (void)status;
  }
  const Timeline& timeline = (*recording)->timeline();
  for (SectionId id = 0; id < timeline.section_count() && id < 16; ++id) {
    (void)(*recording)->symbolizer().find(timeline.section(id).space, timeline.section(id).ip, kTimeMax);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  open_and_decode({data, size});
  open_and_decode(repaired({data, size}));
  return 0;
}
