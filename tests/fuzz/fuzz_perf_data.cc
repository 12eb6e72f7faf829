// Any bytes as a perf.data file: records are within the file; the recording opens or reports an error, and its first segments decode.
#include "perfio/perf_reader.h"
#include "ptdecode/recording.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/first_segments.h"
#include "tests/fuzz/temp_file.h"

using namespace ptd;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const test::MemoryFile file(std::span(data, size));
  auto reader = perfio::PerfReader::open(file.path());
  if (reader.ok()) {
    uint64_t records = 0;
    const Status status = (*reader)->read([&](const perfio::Record& record) {
      PTD_FUZZ_CHECK(record.attr_index < (*reader)->attrs().size() || record.attr_index == 0);
      return ++records < 1'000'000;
    });
    (void)status;
    PTD_FUZZ_CHECK((*reader)->damage().messages.size() <= 64);
  }
  OpenOptions options;
  options.path = file.path();
  options.symfs = {"/nonexistent"};
  options.debug_dirs.clear();
  const auto recording = Recording::open(options);
  if (!recording.ok()) return 0;
  for (uint32_t stream = 0; stream < (*recording)->streams().size() && stream < 8; ++stream) {
    uint64_t batches = 0;
    const auto status = (*recording)
                            ->decode(stream, 0, test::third_segment_end(**recording, stream),
                                     [&](const Batch&, const FlowDecoder&, const AuxSegment&) { return ++batches < 100; });
    (void)status;
  }
  return 0;
}
