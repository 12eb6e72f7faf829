// Any bytes as the trace of a Windows process, its list of modules, and one of its files: they open or report an error. The input begins
// with the sizes of trace and list (u32 each); the file is the rest.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "ptdecode/recording.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/first_segments.h"

using namespace ptd;

namespace {

// A folder that is removed at exit.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ptd-windows-XXXXXX").string();
    PTD_FUZZ_CHECK(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
  [[nodiscard]] std::string write(const char* name, std::span<const unsigned char> bytes) const {
    std::ofstream(path / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return (path / name).string();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  static const Folder folder;
  if (size < 8) return 0;
  uint32_t trace_bytes = 0, list_bytes = 0;
  std::memcpy(&trace_bytes, data, 4);
  std::memcpy(&list_bytes, data + 4, 4);
  std::span<const unsigned char> rest(data + 8, size - 8);
  const auto trace = rest.first(std::min<size_t>(trace_bytes, rest.size()));
  rest = rest.subspan(trace.size());
  const auto list = rest.first(std::min<size_t>(list_bytes, rest.size()));
  RawOptions raw;
  raw.winipt_path = folder.write("trace", trace);
  if (!list.empty()) raw.modules_path = folder.write("list", list);
  (void)folder.write("m.dll", rest.subspan(list.size()));
  const auto recording = Recording::open_raw(raw, {});
  if (!recording.ok()) {
    PTD_FUZZ_CHECK(!recording.error().message.empty());
    return 0;
  }
  (void)(*recording)->symbolizer().pick_all();
  (void)(*recording)->findings();
  for (uint32_t stream = 0; stream < (*recording)->streams().size() && stream < 8; ++stream) {
    const auto status = (*recording)
                            ->decode(stream, 0, test::third_segment_end(**recording, stream),
                                     [](const Batch&, const FlowDecoder&, const AuxSegment&) { return true; });
    (void)status;
  }
  return 0;
}
