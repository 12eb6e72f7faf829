// Any bytes as a bundle, and the same with corrected checksums, so that the content is read: it opens or reports an error, and decodes.
#include <vector>

#include "ptdecode/recording.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/first_segments.h"
#include "tests/fuzz/repaired_chunks.h"
#include "tests/fuzz/temp_file.h"

using namespace ptd;

namespace {

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
  open_and_decode(test::repaired_chunks({data, size}));
  return 0;
}
