// Any bytes as a jitdump: records stay within the file.
#include "image/source/jitdump.h"
#include "tests/fuzz/check.h"

using namespace ptd;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const Bytes bytes = std::as_bytes(std::span(data, size));
  const auto result = read_jitdump(bytes, [&](const JitCode& code) {
    PTD_FUZZ_CHECK(code.code.empty() || (code.code.data() >= bytes.data() && code.code.data() + code.code.size() <= bytes.data() + size));
    PTD_FUZZ_CHECK(code.name.size() <= size);
  });
  if (result.ok()) PTD_FUZZ_CHECK(result->end_offset_bytes <= size);
  return 0;
}
