// Writes seeds for fuzz_bundle: bundles with their chunks uncompressed. Usage: make_bundle_seeds RECORDING FROM_NS TO_NS OUTPUT
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "image/source/mapped_file.h"
#include "recording/bundle.h"
#include "recording/bundle_container.h"

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  OpenOptions options;
  options.path = argv[1];
  BundleOptions bundle;
  bundle.output_path = argv[4];
  bundle.time = {TimeNs{std::strtoull(argv[2], nullptr, 10)}, TimeNs{std::strtoull(argv[3], nullptr, 10)}};
  if (bundle.time.last.value == 0) bundle.time = {};
  const auto report = write_bundle(options, bundle);
  if (!report.ok()) {
    std::fprintf(stderr, "%s\n", report.error().message.c_str());
    return 1;
  }
  const auto file = MappedFile::open(argv[4]);
  auto chunks = file.ok() ? read_bundle_chunks((*file)->bytes(), argv[4]) : Result<BundleChunks>(file.error());
  if (!chunks.ok()) return 1;
  std::ofstream out(argv[4], std::ios::binary);
  out << kBundleMagic;
  put(out, kBundleVersion, 4);
  put(out, 0, 4);
  for (const auto& [type, content] : *chunks) put_chunk(out, type, content);
  const std::byte count[4] = {static_cast<std::byte>(chunks->size())};
  put_chunk(out, "END ", count);
  return out.good() ? 0 : 1;
}
