// Any bytes as the trace.json of an LLDB bundle: it opens or reports an error.
#include <filesystem>
#include <fstream>

#include "ptdecode/recording.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/first_segments.h"

using namespace ptd;

namespace {

// A folder with a trace to which the bundle can refer; removed at exit.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ptd-bundle-XXXXXX").string();
    PTD_FUZZ_CHECK(mkdtemp(name.data()) != nullptr);
    path = name;
    std::ofstream trace(path / "trace.bin", std::ios::binary);
    for (int i = 0; i < 8; ++i) trace << "\x02\x82";
    trace << "\x02\x23";
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  static const Folder folder;
  const auto json = folder.path / "trace.json";
  std::ofstream(json, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  OpenOptions options;
  options.path = json.string();
  const auto recording = Recording::open(options);
  if (!recording.ok()) {
    PTD_FUZZ_CHECK(!recording.error().message.empty());
    return 0;
  }
  for (uint32_t stream = 0; stream < (*recording)->streams().size() && stream < 8; ++stream) {
    const auto status = (*recording)
                            ->decode(stream, 0, test::third_segment_end(**recording, stream),
                                     [](const Batch&, const FlowDecoder&, const AuxSegment&) { return true; });
    (void)status;
  }
  return 0;
}
