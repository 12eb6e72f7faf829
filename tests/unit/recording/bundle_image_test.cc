// The image of a bundle: what a small file must not cost.
#include "recording/bundle/bundle_image.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ptdecode/guest.h"
#include "ptdecode/timeline_builder.h"
#include "recording/bundle/bundle_container.h"

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
  return read_image(ByteReader(chunk), {}, request, image, pokes);
}

TEST(BundleImage, AddressSpacesAreLimitedByTheirMemory) {
  constexpr uint64_t kMost = (1U << 20) - 1;  // and the kernel's
  for (const ImageOp& op : {ImageOp(AddSpaceOp{}), ImageOp(ForkSpaceOp{kKernelSpace, TimeNs{5}})}) {
    EXPECT_TRUE(read(repeated(op, kMost)).ok());
    const std::vector<std::byte> chunk = repeated(op, kMost + 1);
    const Status status = read(chunk);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::contradictory_record);
    EXPECT_LT(status.error().offset_bytes, chunk.size());                     // the entry that exceeds the limit,
    EXPECT_GT(status.error().offset_bytes, chunk.size() - chunk.size() / 8);  // which is the last
  }
}

// Operations on a space that no operation before has made.
TEST(BundleImage, SpacesOfGuestsAreThoseOfTheirMachine) {
  const auto status_of = [](const std::vector<ImageOp>& ops) {
    ImageLog log;
    log.ops = ops;
    ByteWriter chunk;
    write_image(log, {}, chunk);
    return read(chunk.bytes()).ok();
  };
  const auto edit = [](SpaceId space) {
    Edit nop;
    nop.space = space;
    nop.ip = Ip{0x1000};
    nop.new_bytes = {std::byte{0x90}};
    return ImageOp(nop);
  };
  const SpaceId guest = space_of_machine(1, 2);  // after the kernel's of its machine
  EXPECT_TRUE(
      status_of({AddSpaceOp{1}, edit(guest), edit(kernel_of_machine(1)), ForkSpaceOp{guest, TimeNs{5}}, edit(space_of_machine(1, 3))}));
  EXPECT_TRUE(status_of({AddSpaceOp{1}, AddSpaceOp{0}, edit(SpaceId{3}), AddSpaceOp{1}, edit(space_of_machine(1, 4)), AddSpaceOp{2},
                         edit(space_of_machine(2, 6))}));
  for (const SpaceId wrong :
       {SpaceId{1}, SpaceId{2}, space_of_machine(1, 1), space_of_machine(1, 3), space_of_machine(2, 2), kernel_of_machine(2), kNoSpace}) {
    EXPECT_FALSE(status_of({AddSpaceOp{1}, edit(wrong)})) << wrong.value;
    EXPECT_FALSE(status_of({AddSpaceOp{1}, ForkSpaceOp{wrong, TimeNs{5}}})) << wrong.value;
    EXPECT_FALSE(status_of({AddSpaceOp{1}, RemoveOp{wrong, Ip{0x1000}, 16, TimeNs{5}}})) << wrong.value;
    EXPECT_FALSE(status_of({AddSpaceOp{1}, SpaceLostWindowOp{wrong, {TimeNs{5}, TimeNs{6}}}})) << wrong.value;
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
  const auto read = read_symbols(ByteReader(out.bytes()));
  ASSERT_TRUE(read.ok());
  for (const std::string& cut : {read->ranges[0].name.str(), read->ranges[0].module, read->files[0].module, read->files[0].symbols[0].name})
    EXPECT_EQ(cut, name.substr(0, 4096));
  EXPECT_EQ(read->files[0].symbols[1].name, "short");
}

TEST(BundleImage, LinesOfGeneratedCode) {
  GeneratedLines lines;
  lines.file = "a.js";
  lines.lines = {{0, 10}, {4, 8}, {4, 9}, {0xffffffff, 0xffffffff}};
  SymbolPick pick;
  for (uint64_t i = 0; i < 3; ++i) pick.ranges.push_back({SpaceId{1}, Ip{0x1000 + i * 16}, 16, {}, "f", "[jit]"});
  ByteWriter none;
  EXPECT_FALSE(write_range_lines(pick, none));
  pick.ranges[1].lines = std::make_shared<GeneratedLines>(lines);
  ByteWriter out;
  ASSERT_TRUE(write_range_lines(pick, out));
  SymbolPick read = pick;
  read.ranges[1].lines = nullptr;
  ASSERT_TRUE(read_range_lines(ByteReader(out.bytes()), read).ok());
  EXPECT_EQ(read.ranges[0].lines, nullptr);
  EXPECT_EQ(read.ranges[2].lines, nullptr);
  ASSERT_NE(read.ranges[1].lines, nullptr);
  EXPECT_EQ(read.ranges[1].lines->file, "a.js");
  ASSERT_EQ(read.ranges[1].lines->lines.size(), lines.lines.size());
  for (size_t i = 0; i < lines.lines.size(); ++i) {
    EXPECT_EQ(read.ranges[1].lines->lines[i].offset_bytes, lines.lines[i].offset_bytes);
    EXPECT_EQ(read.ranges[1].lines->lines[i].line, lines.lines[i].line);
  }
  read.ranges.resize(1);  // no range 1
  EXPECT_FALSE(read_range_lines(ByteReader(out.bytes()), read).ok());
  EXPECT_FALSE(read_range_lines(ByteReader(Bytes(out.bytes()).first(out.bytes().size() - 1)), pick).ok());
}

// The lists of fetched addresses, of a timeline with 5000 spaces.
TEST(BundleLines, AreOfSpacesThatExist) {
  TimelineBuilder builder;
  SpaceId last;
  for (int i = 0; i < 5000; ++i) last = builder.add_space();
  const Timeline timeline = builder.build();
  const auto read = [&timeline](const CodeLines& lines) {
    ByteWriter out;
    write_lines(lines, out);
    return read_lines(ByteReader(out.bytes()), timeline);
  };
  const auto far = read({{last.value, {3}}});  // far from the list before it
  ASSERT_TRUE(far.ok());
  EXPECT_EQ((*far)->at_hand(last, 3 * kCodeLineBytes, ~uint64_t{0}), kCodeLineBytes);
  const auto unknown = read({{0, {1}}, {kNoSpace.value, {1, 2}}});
  ASSERT_TRUE(unknown.ok());
  EXPECT_EQ((*unknown)->at_hand(kNoSpace, kCodeLineBytes, ~uint64_t{0}), 0U);
  EXPECT_EQ((*unknown)->at_hand(kKernelSpace, kCodeLineBytes, ~uint64_t{0}), kCodeLineBytes);
  EXPECT_FALSE(read({{last.value + 1, {3}}}).ok());
}

TEST(BundleFile, OneThatCannotBeReadIsNotWritten) {
  const std::string path = testing::TempDir() + "unreadable-" + std::to_string(::getpid()) + ".ptb";
  auto file = BundleFileWriter::create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->add(chunk::kInfo, {}).ok());
  const Status status = (*file)->finish();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::missing_part);
  file->reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace ptd
