// Any bytes from a peer of `ptdecode replay --gdb`: no crash, bounded replies, and the session goes on to its end. With text that is easy
// to mutate: each line of the input also comes as a packet with its right checksum.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "ptdecode/recording.h"
#include "replay/gdb/gdb_server.h"
#include "tests/fuzz/check.h"

using namespace ptd;

namespace {

const Recording& recording() {
  static const std::unique_ptr<Recording> opened = [] {
    OpenOptions options;
    options.path = PTD_SOURCE_DIR "/data/user/patch.bundle";
    auto made = Recording::open(options);
    PTD_FUZZ_CHECK(made.ok());
    return std::move(*made);
  }();
  return *opened;
}

void serve(std::string_view bytes) {
  constexpr size_t kMostOutput = 1U << 22;
  constexpr int kMostWork = 400;
  replay::GdbServer server(recording(), {}, "");
  server.receive(bytes);
  size_t size = 0;
  for (int i = 0; i < kMostWork && !server.done() && (server.has_input() || server.running()); ++i) {
    server.work();
    size += server.take_output().size();
    PTD_FUZZ_CHECK(size < 64 * kMostOutput);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  constexpr size_t kMostBytes = 1U << 14;
  const std::string_view input(reinterpret_cast<const char*>(data), std::min(size, kMostBytes));
  serve(input);
  std::string packets;
  for (size_t at = 0; at < input.size();) {
    const size_t end = std::min(input.find('\n', at), input.size());
    packets += replay::packet_of(input.substr(at, end - at));
    at = end + 1;
  }
  serve(packets);
  return 0;
}
