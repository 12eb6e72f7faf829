// Writes seeds for fuzz_bundle: bundles with their chunks uncompressed, of at most BYTES of each stream's trace.
// Usage: make_bundle_seeds RECORDING FROM_NS TO_NS BYTES OUTPUT
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "image/base/mapped_file.h"
#include "ptdecode/bundle.h"
#include "recording/bundle/bundle_container.h"
#include "recording/bundle/bundle_wire.h"

using namespace ptd;

namespace {

void put(std::ofstream& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.put(static_cast<char>(value >> (8 * i)));
}

void put_chunk(std::ofstream& out, const std::string& type, Bytes content) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : content) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  out << type;
  put(out, 0, 4);
  put(out, content.size(), 8);
  put(out, content.size(), 8);
  put(out, hash, 8);
  out.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
}

// Cuts each stream after `most` bytes: the chunks STRM and AUX (docs/FORMAT.md).
void shorten(BundleChunks& chunks, uint64_t most) {
  ByteReader in{Bytes{chunks["STRM"]}};
  Bytes trace{chunks["AUX "]};
  ByteWriter out;
  std::vector<std::byte> kept;
  const uint64_t streams = in.number();
  out.number(streams);
  for (uint64_t i = 0; i < streams; ++i) {
    out.signed_number(in.signed_number());
    out.signed_number(in.signed_number());
    out.number(in.number());
    uint64_t left = most;
    const uint64_t pieces = in.number();
    out.number(pieces);
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      out.number(in.number());
      const uint64_t size = in.number(), taken = std::min(size, left);
      out.number(taken);
      kept.insert(kept.end(), trace.begin(), trace.begin() + static_cast<std::ptrdiff_t>(taken));
      trace = trace.subspan(size);
      left -= taken;
    }
    for (int list = 0; list < 2; ++list) {  // seams, AUX records: two numbers each
      const uint64_t count = in.number();
      out.number(count);
      for (uint64_t n = 0; n < 2 * count; ++n) out.number(in.number());
    }
  }
  chunks["STRM"] = out.bytes();
  chunks["AUX "] = kept;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  OpenOptions options;
  options.path = argv[1];
  BundleOptions bundle;
  bundle.output_path = argv[5];
  bundle.time = {TimeNs{std::strtoull(argv[2], nullptr, 10)}, TimeNs{std::strtoull(argv[3], nullptr, 10)}};
  if (bundle.time.last.value == 0) bundle.time = {};
  const auto report = write_bundle(options, bundle);
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.error().message.c_str());
    return 1;
  }
  const auto file = MappedFile::open(argv[5]);
  auto chunks = file.ok() ? read_bundle_chunks((*file)->bytes(), argv[5]) : Result<BundleChunks>(file.error());
  if (!chunks.ok()) return 1;
  shorten(*chunks, std::strtoull(argv[4], nullptr, 10));
  std::ofstream out(argv[5], std::ios::binary);
  out << kBundleMagic;
  put(out, 1, 4);  // this version has no hash of headers, which a changed seed would not match
  put(out, 0, 4);
  for (const auto& [type, content] : *chunks) put_chunk(out, type, content);
  const std::byte count[4] = {static_cast<std::byte>(chunks->size())};
  put_chunk(out, "END ", count);
  return out.good() ? 0 : 1;
}
