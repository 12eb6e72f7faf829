// Bundles of 1 MB with lists of tiny items that compress to next to nothing.
#include <array>
#include <string_view>

#include "perfio/zstd_stream.h"
#include "ptdecode/bundle.h"
#include "recording/bundle/bundle_container.h"
#include "recording/bundle/bundle_events.h"
#include "recording/bundle/bundle_wire.h"
#include "tests/hostile/damage.h"
#include "tests/hostile/guard.h"
#include "tests/hostile/temp_dir.h"
#include "tests/support/flow.h"

namespace ptd::test {
namespace {

constexpr uint64_t kFileBytes = 1U << 20;
/// Sizes of lists: below the limit of the container, so that only the limit of lists refuses them, and above it.
constexpr std::array<uint64_t, 2> kListBytes = {56U << 20, 200U << 20};

/// A part of a bundle that has nothing but one list (docs/FORMAT.md): what comes before the number of its items, an item, and what comes
/// after.
struct TinyList {
  const char* name;
  std::string_view type;
  std::vector<uint8_t> before, item;
  size_t zeros_after = 0;
};

std::vector<TinyList> tiny_lists() {
  using namespace chunk;
  return {{"warnings", kNotes, {}, {0}, 6},
          {"missing images", kNotes, {0}, {0, 0, 0}, 5},
          {"switches", kContexts, {1, 0}, {1, 2, 2, 1}, 3},
          {"cpus", kContexts, {}, {0, 0}, 3},
          {"threads' names", kContexts, {0, 0}, {2, 0}, 1},
          {"names of a thread", kContexts, {0, 0, 0, 1, 2}, {1, 0}},
          {"ranges", kSymbols, {}, {0, 0x80, 1, 1, 1, 0, 0, 0}, 1},
          {"files", kSymbols, {0}, {0, 0, 0, 0}},
          {"symbols", kSymbols, {0, 1, 0, 0, 0}, {0, 0, 0, 0}},
          {"findings", kImage, {}, {7, 0, 0, 0, 1, 0, 0, 0, 0}},
          {"unmappings", kImage, {}, {3, 0, 0x80, 0x20, 1, 1}},
          {"lost records", kImage, {}, {6, 1, 2}},
          {"pokes", kPokes, {}, {1, 0}},
          {"blobs", kCode, {}, {0, 0}},
          {"runs of lines", kLines, {1, 0}, {1, 1}},
          {"pieces", kStreams, {1, 0, 1, 0}, {0, 0}, 2},
          {"seams", kStreams, {1, 0, 1, 0, 0}, {0, 1}, 1},
          {"AUX records", kStreams, {1, 0, 1, 0, 0, 0}, {0, 1}},
          {"sync points", kSpans, {1}, {0, 1, 0}},
          {"names of events", kEvents, {}, {0}, 2}};
}

class BundleBytes {
 public:
  BundleBytes() {
    for (const char c : std::string_view("PTDBUNDL")) bytes_.push_back(static_cast<std::byte>(c));
    put(1, 8);  // version 1: without a hash of headers
  }
  void add(std::string_view type, Bytes stored, uint64_t raw_bytes, bool compressed) {
    for (const char c : type) bytes_.push_back(static_cast<std::byte>(c));
    put(compressed ? 1 : 0, 4);
    put(stored.size(), 8);
    put(raw_bytes, 8);
    put(hash_of_chunk(stored), 8);
    bytes_.insert(bytes_.end(), stored.begin(), stored.end());
    ++chunks_;
  }
  std::vector<std::byte> finish() {
    const std::vector<std::byte> pad(kFileBytes - std::min<uint64_t>(kFileBytes, bytes_.size()));
    if (!pad.empty()) add("pads", pad, pad.size(), false);
    const std::array<std::byte, 4> count = {static_cast<std::byte>(chunks_), {}, {}, {}};
    add(chunk::kEnd, count, count.size(), false);
    return std::move(bytes_);
  }

 private:
  void put(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  std::vector<std::byte> bytes_;
  uint32_t chunks_ = 0;
};

std::vector<std::byte> content_of(const TinyList& list, uint64_t list_bytes) {
  ByteWriter out;
  for (const uint8_t byte : list.before) out.number(byte);
  const uint64_t items = list_bytes / list.item.size();
  out.number(items);
  std::vector<std::byte> content = out.bytes();
  content.reserve(content.size() + list_bytes + list.zeros_after);
  for (uint64_t i = 0; i < items; ++i) {
    for (const uint8_t byte : list.item) content.push_back(static_cast<std::byte>(byte));
  }
  content.resize(content.size() + list.zeros_after);
  return content;
}

}  // namespace

void check_tiny_items(const std::string& bundle, std::vector<std::string>& findings) {
  const auto file = read_file(bundle);
  if (!file) return findings.push_back(bundle + ": cannot be read");
  const auto chunks = read_bundle_chunks(*file, bundle);
  if (!chunks.ok()) return findings.push_back(chunks.error().message);
  const TempDir dir;
  for (const uint64_t list_bytes : kListBytes) {
    for (const TinyList& list : tiny_lists()) {
      const std::string what = std::string("bundle with ") + std::to_string(list_bytes >> 20) + " MiB of " + list.name;
      {
        BundleBytes out;
        for (const auto& [type, content] : *chunks) {
          if (type != list.type && type != chunk::kEnd) out.add(type, content, content.size(), false);
        }
        const std::vector<std::byte> content = content_of(list, list_bytes);
        std::vector<std::byte> stored = perfio::zstd_compress(content, 1);
        perfio::zstd_pad(stored, content.size());
        out.add(list.type, stored, content.size(), true);
        dir.write("bundle", out.finish());
      }
      CaseGuard guard(what);
      OpenOptions options;
      options.path = dir / "bundle";
      const auto recording = Recording::open(options);
      const auto events = read_bundled_events(dir / "bundle", {}, 1);
      guard.end(findings);
      const std::string said = !recording.ok() ? recording.error().message : !events.ok() ? events.error().message : "";
      if (said.find(" limit of ") == std::string::npos) findings.push_back(what + ": no message names a limit: " + said);
    }
  }
  // What is written is read, however well it compresses.
  const auto writer = BundleFileWriter::create(dir / "long");
  if (!writer.ok()) return findings.push_back(writer.error().message);
  const std::vector<std::byte> zeros(kListBytes[1]);
  Status status;
  for (const auto& [type, content] : *chunks) {
    if (status.ok() && type != chunk::kEnd) status = (*writer)->add(type, content);
  }
  if (status.ok()) status = (*writer)->add("zero", zeros);
  if (status.ok()) status = (*writer)->finish();
  const auto written = read_file(dir / "long");
  const auto read = status.ok() && written ? read_bundle_chunks(*written, "long") : Result<BundleChunks>(status.error());
  if (!read.ok() || read->size() != chunks->size())
    findings.push_back("a bundle that compresses well is not read as written: " + (read.ok() ? "" : read.error().message));
}

}  // namespace ptd::test
