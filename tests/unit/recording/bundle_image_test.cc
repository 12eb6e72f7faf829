// The image of a bundle: what a small file must not cost.
#include "recording/bundle/bundle_image.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ptd {
namespace {

/// A chunk with the operation `count` times. In a compressed bundle, that takes next to nothing.
std::vector<std::byte> repeated(const ImageOp& op, uint64_t count) {
  ImageLog log;
  log.ops.push_back(op);
  ByteWriter once, chunk;
  write_image(log, {}, once);
  const Bytes bytes = Bytes(once.bytes()).subspan(1);  // after the number of operations
  chunk.number(count);
  std::vector<std::byte> out(chunk.bytes().begin(), chunk.bytes().end());
  for (uint64_t i = 0; i < count; ++i) out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

Status read(const std::vector<std::byte>& chunk) {
  const OpenRequest request;
  ImageBuild image(request);
  std::vector<PokeStamp> pokes;
  return read_image(chunk, {}, request, image, pokes);
}

TEST(BundleImage, AddressSpacesAreLimitedByTheirMemory) {
  constexpr uint64_t kMost = (1U << 20) - 1;  // and the kernel's
  for (const ImageOp& op : {ImageOp(AddSpaceOp{}), ImageOp(ForkSpaceOp{kKernelSpace, TimeNs{5}})}) {
    EXPECT_TRUE(read(repeated(op, kMost)).ok());
    const std::vector<std::byte> chunk = repeated(op, kMost + 1);
    const Status status = read(chunk);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::contradictory_record);
    EXPECT_LT(status.error().offset_bytes, chunk.size());               // the entry that exceeds the limit,
    EXPECT_GT(status.error().offset_bytes, chunk.size() - chunk.size() / 8);  // which is the last
  }
}

TEST(BundleImage, NamesAreCutAsInASymbolTable) {
  SymbolPick pick;
  const std::string name(2'000'000, 'n');
  pick.ranges.push_back({kKernelSpace, Ip{0x1000}, 16, {}, name, name});
  FileSymbolPick& file = pick.files.emplace_back();
  file.module = name;
  file.symbols.emplace_back().name = name;
  file.symbols.emplace_back().name = "short";
  ByteWriter out;
  write_symbols(pick, out);
  const auto read = read_symbols(out.bytes());
  ASSERT_TRUE(read.ok());
  for (const std::string& cut : {read->ranges[0].name, read->ranges[0].module, read->files[0].module, read->files[0].symbols[0].name})
    EXPECT_EQ(cut, name.substr(0, 4096));
  EXPECT_EQ(read->files[0].symbols[1].name, "short");
}

}  // namespace
}  // namespace ptd
