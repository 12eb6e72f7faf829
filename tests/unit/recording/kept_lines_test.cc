// keep_lines(): a bundle stores the code that some space looked at, whoever mapped it, at a cost in proportion to the records.
#include "recording/bundle/kept_lines.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <set>

#include "image/fetch_log.h"
#include "ptdecode/guest.h"
#include "recording/bundle/bundle_wire.h"

namespace ptd {
namespace {

constexpr uint64_t kBase = 0x400000;

Section section(uint32_t space, uint64_t ip, Bytes code) {
  Section section;
  section.space = SpaceId{space};
  section.ip = Ip{ip};
  section.size_bytes = code.size();
  section.code.bytes = code;
  return section;
}

// The stored lines are those that a space looked at in the code of itself or of an ancestor, line by line.
TEST(KeptLines, AreThoseOfASpaceAndItsDescendants) {
  std::mt19937 random(7);
  const auto pick = [&](uint64_t most) { return random() % (most + 1); };
  std::vector<ImageOp> ops;
  std::vector<uint32_t> parents{0};
  std::vector<std::vector<std::byte>> code;
  CodeLines lines;
  for (uint32_t id = 1; id <= 60; ++id) {
    const bool forked = id > 1 && pick(9) != 0;
    parents.push_back(forked ? static_cast<uint32_t>(1 + pick(id - 2)) : 0);
    if (forked) {
      ops.emplace_back(ForkSpaceOp{SpaceId{parents.back()}, TimeNs{id}, SpaceId{id}});
    } else {
      ops.emplace_back(AddSpaceOp{0, SpaceId{id}});
    }
    code.emplace_back(size_t{16} * kCodeLineBytes);
    for (int i = 0; i < 2; ++i) ops.emplace_back(section(id, kBase + id * 4 * kCodeLineBytes, code.back()));
    for (int i = 0; i < 3; ++i) lines[id].insert(kBase / kCodeLineBytes + pick(260));
  }
  BundleCodeWriter writer;
  (void)keep_lines(ops, lines, writer);
  ByteWriter out;
  writer.write(out);
  size_t kept = 0;
  for (uint32_t home = 1; home <= 60; ++home) {
    for (uint64_t i = 0; i < 16; ++i) {
      const uint64_t line = kBase / kCodeLineBytes + home * 4 + i;
      bool wanted = false;
      for (uint32_t id = 1; id <= 60; ++id) {
        uint32_t up = id;
        while (up != 0 && up != home) up = parents[up];
        wanted |= up == home && lines[id].contains(line);
      }
      const Bytes piece = Bytes{code[home - 1]}.subspan(i * kCodeLineBytes, kCodeLineBytes);
      ASSERT_EQ(writer.kept_of({piece}), wanted ? kCodeLineBytes : 0) << home << " " << i;
      kept += wanted ? 1 : 0;
    }
  }
  EXPECT_GT(kept, 20U);
  EXPECT_LT(kept, 900U);  // of 960
}

// Kernels of the host and of a guest at the same addresses, and processes of both.
TEST(KeptLines, AreThoseOfTheMachine) {
  constexpr uint64_t kText = 0xffffffff81000000;
  const SpaceId host{1}, guest = space_of_machine(1, 3), child = space_of_machine(1, 4);
  const std::vector<SpaceId> homes{kKernelSpace, kernel_of_machine(1), host, guest};
  std::vector<std::vector<std::byte>> code(homes.size(), std::vector<std::byte>(4 * kCodeLineBytes));
  std::vector<ImageOp> ops{AddSpaceOp{0, host}, AddSpaceOp{1, guest}, ForkSpaceOp{guest, TimeNs{5}, child}};
  for (size_t i = 0; i < homes.size(); ++i) ops.emplace_back(section(homes[i].value, i < 2 ? kText : kBase, code[i]));
  CodeLines lines;
  lines[kernel_of_machine(1).value].insert(kText / kCodeLineBytes + 1);
  lines[kKernelSpace.value].insert(kText / kCodeLineBytes + 2);
  lines[child.value].insert(kBase / kCodeLineBytes + 3);  // of the process that it was forked from
  BundleCodeWriter writer;
  (void)keep_lines(ops, lines, writer);
  ByteWriter out;
  writer.write(out);
  const std::vector<uint64_t> kept{2, 1, 4, 3};  // line, by home; of the host's process none
  for (size_t i = 0; i < homes.size(); ++i) {
    for (uint64_t line = 0; line < 4; ++line)
      EXPECT_EQ(writer.kept_of({Bytes{code[i]}.subspan(line * kCodeLineBytes, kCodeLineBytes)}), line == kept[i] ? kCodeLineBytes : 0)
          << i << " " << line;
  }
  ByteWriter chunk;
  write_lines(lines, chunk);
  const auto limits = read_lines(ByteReader(chunk.bytes()), Timeline());
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ((*limits)->at_hand(kernel_of_machine(1), kText + kCodeLineBytes, 1000), kCodeLineBytes);
  EXPECT_EQ((*limits)->at_hand(kernel_of_machine(1), kText, 1000), 0U);
  EXPECT_EQ((*limits)->at_hand(kKernelSpace, kText + 2 * kCodeLineBytes, 1000), kCodeLineBytes);
  EXPECT_EQ((*limits)->at_hand(child, kBase + 3 * kCodeLineBytes, 1000), kCodeLineBytes);
  EXPECT_EQ((*limits)->at_hand(guest, kBase + 3 * kCodeLineBytes, 1000), 0U);
}

// A chain of forks in which each process looks at a line of its own, and one piece of code mapped again and again.
TEST(KeptLines, TheCostGrowsWithTheRecords) {
  const auto steps_of = [](uint32_t count) {
    const std::vector<std::byte> code(size_t{count} * kCodeLineBytes);
    std::vector<ImageOp> ops{AddSpaceOp{0, SpaceId{1}}};
    CodeLines lines;
    for (uint32_t id = 1; id <= count; ++id) {
      ops.emplace_back(section(1, kBase, code));
      ops.emplace_back(ForkSpaceOp{SpaceId{id}, TimeNs{id}, SpaceId{id + 1}});
      lines[id].insert(kBase / kCodeLineBytes + id);
    }
    BundleCodeWriter writer;
    return keep_lines(ops, lines, writer);
  };
  EXPECT_LE(steps_of(4000), 5 * steps_of(1000));
}

// Pieces of code at one place that differ in size, and lines of which every second one is shown: past a limit, whole pieces are stored.
TEST(KeptLines, ManyPiecesOfManyLinesCostLittle) {
  constexpr uint64_t kCount = 16384;
  const std::vector<std::byte> code(kCount * kCodeLineBytes, std::byte{0x90});
  std::vector<ImageOp> ops{AddSpaceOp{0, SpaceId{1}}};
  CodeLines lines;
  for (uint64_t i = 0; i < kCount; ++i) {
    ops.emplace_back(section(1, kBase, Bytes{code}.first(code.size() - i)));
    if (i % 2 == 0) lines[1].insert(kBase / kCodeLineBytes + i);
  }
  BundleCodeWriter writer;
  EXPECT_LT(keep_lines(ops, lines, writer), uint64_t{1} << 25);
  ByteWriter out;
  writer.write(out);
  EXPECT_EQ(writer.kept_of({code}), code.size());
}

// A few bytes of a bundle can name all lines of a space, and a blob that is mostly zeros.
TEST(KeptLines, ARunOfLinesCostsWhatOneLineCosts) {
  constexpr uint64_t kLines = uint64_t{1} << 57, kPlace = uint64_t{1} << 25;
  std::vector<std::byte> code(size_t{1} << 26);
  code[kPlace] = std::byte{0x90};
  const std::vector<ImageOp> ops{AddSpaceOp{0, SpaceId{1}}, section(1, kBase, code)};
  CodeLines lines;
  lines[1].insert(1, kLines);
  ByteWriter chunk;
  write_lines(lines, chunk);
  EXPECT_LT(chunk.bytes().size(), 100U);
  BundleCodeWriter writer;
  EXPECT_LT(keep_lines(ops, lines, writer), 100U);
  ByteWriter out;
  writer.write(out);
  EXPECT_LT(out.bytes().size(), size_t{1} << 17);
  BundleCodeReader reader;
  ASSERT_TRUE(reader.read(ByteReader(out.bytes())).ok());
  CodeBytes read;
  ASSERT_TRUE(reader.find({1, 0, code.size()}, read));
  EXPECT_TRUE(std::ranges::equal(read.bytes, code));
}

// A bundle of a few bytes can claim that its code is 64 GiB long. What it does not store is not read.
TEST(KeptLines, CodeThatABundleDoesNotStoreIsNotRead) {
  constexpr uint64_t kClaimed = 1U << 26, kStored = 1U << 16;
  const std::vector<std::byte> stored(kStored, std::byte{0x90});
  ByteWriter chunk;
  for (const uint64_t value : {uint64_t{1}, kClaimed, uint64_t{1}, kStored, kStored}) chunk.number(value);  // a blob with a run in it
  chunk.raw(stored);
  BundleCodeReader reader;
  ASSERT_TRUE(reader.read(ByteReader(chunk.bytes())).ok());
  Section claimed = section(1, kBase, {});
  ASSERT_TRUE(reader.find({1, 0, kClaimed}, claimed.code));
  const auto forbid = [&](uint64_t first, uint64_t end) {
    return mprotect(const_cast<std::byte*>(claimed.code.bytes.data()) + first, end - first, PROT_NONE);
  };
  ASSERT_EQ(forbid(0, kStored) | forbid(2 * kStored, kClaimed), 0);
  BundleCodeWriter writer;
  keep_all({AddSpaceOp{0, SpaceId{1}}, claimed}, writer);
  ByteWriter out;
  writer.write(out);
  EXPECT_TRUE(std::ranges::equal(out.bytes(), chunk.bytes()));
}

TEST(LineRuns, AreDisjointAndNotAdjacent) {
  std::mt19937 random(3);
  LineRuns lines, others;
  std::set<uint64_t> want;
  for (int i = 0; i < 400; ++i) {
    const uint64_t first = random() % 4000, last = first + random() % 9;
    (i % 3 == 0 ? others : lines).insert(first, last);
    for (uint64_t line = first; line <= last; ++line) want.insert(line);
  }
  (void)lines.merge(std::move(others));
  uint64_t least = 0;
  for (const auto& [first, last] : lines.runs()) {
    EXPECT_GE(first, least);
    least = last + 2;
  }
  for (uint64_t line = 0; line < 4100; ++line) ASSERT_EQ(lines.contains(line), want.contains(line)) << line;
}

// A number that has the bit of guests' spaces and no machine is of no space, neither of the host's nor of a guest's.
TEST(KeptLines, ASpaceOfNoMachineIsRefused) {
  for (const uint32_t space : {kGuestBit, kGuestBit | 1U << 30, kGuestBit | 7U << 29}) {
    ByteWriter chunk;
    write_lines(CodeLines{{space, {1}}}, chunk);
    EXPECT_FALSE(read_lines(ByteReader(chunk.bytes()), Timeline()).ok()) << space;
  }
}

}  // namespace
}  // namespace ptd
