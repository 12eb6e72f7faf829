// TextWrites: changes of an arm64 kernel's code, from samples before and after each write.
#include "capture/live/kernel/text_writes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perfio/format/byte_writer.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kImage = 0xffff800080000000, kImageBytes = 0x4000, kPlace = 0x40200000;
constexpr uint64_t kModule = 0xffff80007a000000, kModulePlace = 0x51000000, kModuleBytes = 0x1000;
constexpr uint64_t kPoke = 3;  // the fixmap's index
constexpr uint32_t kNop = 0xd503201f, kBranch = 0x14000010, kTrap = 0xd4200000;
constexpr size_t kWordAt = 5;  // on the stack

using Stack = std::array<uint64_t, TextWrites::kStackWords>;

/// A kernel whose writes are sampled.
class Kernel : public testing::Test {
 protected:
  Kernel() : image_(kImageBytes), module_(kModuleBytes), writes_({kImage, kImageBytes}, kPlace) {
    for (std::vector<std::byte>* code : {&image_, &module_}) {
      for (size_t at = 0; at < code->size(); at += 4) put(*code, at, kNop);
    }
    writes_.on_code(kImage, image_);
  }
  static void put(std::vector<std::byte>& code, uint64_t at, uint32_t word) { std::memcpy(code.data() + at, &word, sizeof(word)); }
  /// Samples one side of a write; `place` 0: after it.
  void sample(uint64_t time_ns, uint64_t place, const Stack& stack, int32_t cpu = 0) {
    constexpr size_t kCommonBytes = 16;
    std::vector<std::byte> record;
    constexpr uint32_t kRaw = kCommonBytes + 16 + sizeof(Stack);
    perfio::ByteWriter out(record);
    out.u32(perfio::kRecordSample)
        .u16(0)
        .u16(perfio::kRecordHeaderBytes + 12 + kRaw)
        .u64(time_ns)
        .u32(kRaw)
        .zeros(kCommonBytes)
        .u64(kPoke)
        .u64(place);
    for (const uint64_t word : stack) out.u64(word);
    writes_.on_record(record, cpu);
  }
  void lost(uint64_t time_ns, uint64_t count, int32_t cpu = 0) {
    std::vector<std::byte> record;
    perfio::ByteWriter(record).u32(perfio::kRecordLost).u16(0).u16(32).u64(7).u64(count).u64(time_ns);
    writes_.on_record(record, cpu);
  }
  static Stack stack_of(uint32_t word, uint64_t address) {
    Stack stack{};
    stack[kWordAt] = word;
    stack[kWordAt + 1] = address;
    return stack;
  }
  /// Writes a word of the image and samples that.
  void write(uint64_t time_ns, uint64_t offset, uint32_t word, Stack stack) {
    sample(time_ns, kPlace + offset, stack);
    put(image_, offset, word);
    sample(time_ns + 1, 0, stack);
  }
  void write(uint64_t time_ns, uint64_t offset, uint32_t word) { write(time_ns, offset, word, stack_of(word, kImage + offset)); }
  void write_module(uint64_t time_ns, uint64_t offset, uint32_t word) {
    sample(time_ns, kModulePlace + offset, stack_of(word, kModule + offset));
    put(module_, offset, word);
    sample(time_ns + 1, 0, stack_of(word, kModule + offset));
  }
  static std::string text(const CodeChange& change) {
    const auto hex = [](const std::vector<std::byte>& bytes) {
      uint32_t word = 0;
      if (bytes.size() == sizeof(word)) std::memcpy(&word, bytes.data(), sizeof(word));
      return bytes.empty() ? "-" : word == kNop ? "nop" : word == kBranch ? "b" : word == kTrap ? "brk" : std::to_string(word);
    };
    const bool image = change.poke.addr >= kImage;
    return std::to_string(change.time_ns) + " " + (image ? "i" : "m") + std::to_string(change.poke.addr - (image ? kImage : kModule)) +
           " " + hex(change.poke.old_bytes) + ">" + hex(change.poke.new_bytes);
  }
  std::vector<std::string> take() {
    unknown_.clear();
    const auto read = [this](MemoryExtent extent) {
      const bool image = extent.address >= kImage;
      const std::vector<std::byte>& code = image ? image_ : module_;
      const auto at = code.begin() + static_cast<ptrdiff_t>(extent.address - (image ? kImage : kModule));
      return std::vector<std::byte>(at, at + static_cast<ptrdiff_t>(extent.size_bytes));
    };
    std::vector<std::string> lines;
    for (const CodeChange& change : writes_.take(read, [this](uint64_t time_ns, int32_t) { unknown_.push_back(time_ns); }))
      lines.push_back(text(change));
    return lines;
  }

  std::vector<std::byte> image_, module_;  // memory
  TextWrites writes_;
  std::vector<uint64_t> unknown_;  // of the last take()
};

TEST_F(Kernel, AWriteIsTwoRecords) {
  write(10, 8, kBranch);
  write(20, 8, kTrap);
  EXPECT_THAT(take(), ElementsAre("10 i8 nop>b", "11 i8 b>b", "20 i8 b>brk", "21 i8 brk>brk"));
  EXPECT_THAT(unknown_, IsEmpty());
  EXPECT_EQ(writes_.counts().changes, 2U);
}

// /proc/iomem may have another start of the code than the image's.
TEST_F(Kernel, AnImageThatIsElsewhereGivesNoChangesOfOtherCode) {
  write(10, 8, kBranch, stack_of(kBranch, kImage + 0x1008));
  EXPECT_THAT(take(), IsEmpty());
  for (int round = 0; round < 200; ++round) {
    take();
    if (!unknown_.empty()) break;
  }
  EXPECT_THAT(unknown_, ElementsAre(10));
}

TEST(Vmcoreinfo, Number) {
  constexpr std::string_view kText =
      "OSRELEASE=6.12\nNUMBER(VA_BITS)=48\nNUMBER(kimage_voffset)=0xffff99b928c00000\nNUMBER(PHYS_OFFSET)=0x40000000\n";
  EXPECT_EQ(vmcoreinfo_number(kText, "kimage_voffset"), 0xffff99b928c00000U);
  EXPECT_EQ(vmcoreinfo_number(kText, "PHYS_OFFSET"), 0x40000000U);
  EXPECT_EQ(vmcoreinfo_number(kText, "kimage"), std::nullopt);
  EXPECT_EQ(vmcoreinfo_number(kText, "VA_BITS"), std::nullopt);
  EXPECT_EQ(vmcoreinfo_number("\nNUMBER(PHYS_OFFSET)=0x", "PHYS_OFFSET"), std::nullopt);
}

TEST_F(Kernel, TheFirstChangeIsOfTheImage) { EXPECT_EQ(text(writes_.first_change()), "1 i0 nop>nop"); }

TEST_F(Kernel, TheFirstChangeOfAnImageThatCannotBeReadHasNoBytes) {
  writes_ = TextWrites({kImage, kImageBytes}, kPlace);
  EXPECT_EQ(text(writes_.first_change()), "1 i0 ->-");
  writes_.on_code(kImage + 0x100, image_);  // another extent is no match
  EXPECT_EQ(text(writes_.first_change()), "1 i0 ->-");
  writes_.on_code(kImage, Bytes(image_).first(2));
  EXPECT_EQ(text(writes_.first_change()), "1 i0 ->-");
}

TEST_F(Kernel, PlacesThatDisagreeGiveNoWord) {
  Stack both = stack_of(kBranch, kImage);
  both[2] = kBranch;  // in two places
  write(10, 8, kBranch, both);
  EXPECT_THAT(take(), ElementsAre("10 i8 nop>b", "11 i8 b>b"));
  Stack differ = stack_of(kTrap, kImage);
  differ[2] = kBranch;
  write(20, 12, kTrap, differ);  // not the last one there: memory does not say which
  Stack same = stack_of(kBranch, kImage);
  same[2] = kBranch;
  write(30, 12, kBranch, same);
  EXPECT_THAT(take(), ElementsAre("31 i12 b>b"));  // what was there before is not known
  EXPECT_THAT(unknown_, ElementsAre(20));
  EXPECT_EQ(writes_.counts().unknown, 1U);
  write(40, 16, kTrap, differ);  // now memory does
  EXPECT_THAT(take(), ElementsAre("40 i16 nop>brk", "41 i16 brk>brk"));
  EXPECT_THAT(unknown_, IsEmpty());
}

TEST_F(Kernel, AWordThatWasWrittenAgainDoesNotReplaceThePlace) {
  for (uint64_t time = 10; time < 60; time += 10) write(time, 4 * time, kBranch);
  EXPECT_EQ(take().size(), 10U);
  Stack stack = stack_of(kBranch, kImage);
  stack[9] = kTrap;
  write(100, 8, kBranch, stack);
  put(image_, 8, kTrap);  // by a write that is not read yet
  EXPECT_THAT(take(), ElementsAre("100 i8 nop>b", "101 i8 b>b"));
  sample(110, kPlace + 8, stack_of(kTrap, kImage + 8));
  sample(111, 0, {});
  write(120, 4, kBranch);
  EXPECT_THAT(take(), ElementsAre("110 i8 b>brk", "111 i8 brk>brk", "120 i4 nop>b", "121 i4 b>b"));
}

TEST_F(Kernel, ALossBeginsAtTheSampleBefore) {
  write(10, 8, kBranch);
  EXPECT_EQ(take().size(), 2U);
  put(image_, 12, kTrap);  // not sampled
  lost(500, 4);
  EXPECT_THAT(take(), IsEmpty());
  EXPECT_THAT(unknown_, ElementsAre(11, 500));
  EXPECT_EQ(writes_.counts().unknown, 4U);
  write(600, 12, kNop);  // what was lost is read from memory
  EXPECT_THAT(take(), ElementsAre("600 i12 brk>nop", "601 i12 nop>nop"));
}

TEST_F(Kernel, ALossBetweenTheSamplesOfAWrite) {
  write(10, 8, kBranch);
  sample(20, kPlace + 12, stack_of(kTrap, kImage + 12));
  put(image_, 12, kTrap);
  put(image_, 16, kTrap);  // the end of one write and the begin of the other are lost
  lost(40, 2);
  sample(40, 0, {});
  write(50, 16, kBranch);
  EXPECT_THAT(take(), ElementsAre("10 i8 nop>b", "11 i8 b>b", "51 i16 b>b"));
  EXPECT_THAT(unknown_, ElementsAre(20, 40));
}

TEST_F(Kernel, CodeThatMemoryHadAlready) {
  write(10, 8, kBranch);
  writes_.on_code(kImage, image_);  // was read after the write
  EXPECT_THAT(take(), ElementsAre("11 i8 b>b"));
}

TEST_F(Kernel, CodeInsideKnownCodeLeavesTheRest) {
  write(10, 8, kBranch);
  EXPECT_EQ(take().size(), 2U);
  std::vector<std::byte> piece(16);
  put(piece, 4, kTrap);
  writes_.on_code(kImage + 0x1000, piece);
  write(20, 0xffc, kBranch);
  write(30, 0x1004, kBranch);
  write(40, 0x1010, kBranch);
  EXPECT_THAT(take(), ElementsAre("20 i4092 nop>b", "21 i4092 b>b", "30 i4100 brk>b", "31 i4100 b>b", "40 i4112 nop>b", "41 i4112 b>b"));
  EXPECT_EQ(text(writes_.first_change()), "1 i0 nop>nop");
}

TEST_F(Kernel, WritesOfAModuleThatIsLoadedWaitForItsCode) {
  write(10, 8, kBranch);
  write_module(20, 0x10, kBranch);
  EXPECT_EQ(take().size(), 2U);
  writes_.on_code(kModule + 0x100000, Bytes(module_));  // of another module
  for (int round = 0; round < 50; ++round) EXPECT_THAT(take(), IsEmpty());
  writes_.on_code(kModule, module_);
  for (int round = 0; round < 100; ++round) {
    EXPECT_THAT(take(), IsEmpty());
    EXPECT_THAT(unknown_, IsEmpty());
  }
  write_module(30, 0x10, kTrap);
  EXPECT_THAT(take(), ElementsAre("30 m16 b>brk", "31 m16 brk>brk"));
}

// A BPF program that is loaded, or was freed, or a module whose code could not be read: no reader has code there.
TEST_F(Kernel, AWriteToCodeThatNobodyKnowsChangesNothing) {
  write(10, 8, kBranch);
  write_module(20, 0x10, kBranch);
  EXPECT_EQ(take().size(), 2U);
  writes_.on_code(kModule + 0x100000, Bytes(module_));
  for (int round = 0; round < 200; ++round) {
    EXPECT_THAT(take(), IsEmpty());
    EXPECT_THAT(unknown_, IsEmpty());
  }
}

// The kernel overwrites the code of a BPF program that is freed, in a function that keeps no address on the stack.
TEST_F(Kernel, AFreedProgramIsKnownByItsPage) {
  write(10, 8, kBranch);
  write_module(20, 0x10, kBranch);
  EXPECT_EQ(take().size(), 2U);
  writes_.on_code(kModule + 0x20, Bytes(module_).first(0x40));  // after the header that was written
  const auto overwrite = [this](uint64_t time_ns, uint64_t place) {
    sample(time_ns, place, stack_of(kTrap, 0));
    sample(time_ns + 1, 0, {});
  };
  overwrite(30, kModulePlace + 0x30);  // not freed yet
  std::vector<uint64_t> unknown;
  const auto wait = [&] {
    for (int round = 0; round < 200; ++round) {
      EXPECT_THAT(take(), IsEmpty());
      unknown.insert(unknown.end(), unknown_.begin(), unknown_.end());
    }
  };
  wait();
  EXPECT_THAT(unknown, ElementsAre(30));
  writes_.on_free({kModule + 0x20, 0x40});
  overwrite(40, kModulePlace + 0x30);
  overwrite(50, kModulePlace + 0x1030);  // another page
  wait();
  EXPECT_THAT(unknown, ElementsAre(30, 50));
}

TEST_F(Kernel, AWriteWithoutAnAddressIsUnknown) {
  write(10, 8, kBranch);
  sample(20, kModulePlace + 0x10, stack_of(kTrap, kModule + 0x14));  // of another instruction
  sample(21, 0, {});
  EXPECT_EQ(take().size(), 2U);
  std::vector<uint64_t> unknown;
  for (int round = 0; round < 200; ++round) {
    EXPECT_THAT(take(), IsEmpty());
    unknown.insert(unknown.end(), unknown_.begin(), unknown_.end());
  }
  EXPECT_THAT(unknown, ElementsAre(20));
}

TEST_F(Kernel, AWriteWithTwoAddressesHasNone) {
  write(10, 8, kBranch);
  writes_.on_code(kModule, module_);
  writes_.on_code(kModule + 0x100000, module_);
  Stack stack = stack_of(kBranch, kModule + 0x10);
  stack[11] = kModule + 0x100010;
  sample(20, kModulePlace + 0x10, stack);
  sample(21, 0, stack);
  EXPECT_EQ(take().size(), 2U);
  EXPECT_EQ(writes_.counts().changes, 1U);
}

TEST_F(Kernel, FreedCodeIsNotKnown) {
  write(10, 8, kBranch);
  writes_.on_code(kModule, module_);
  writes_.on_free({kModule, 0x800});
  EXPECT_EQ(take().size(), 2U);
  write_module(20, 0x10, kBranch);  // while another module is loaded there
  write_module(30, 0x900, kBranch);
  EXPECT_THAT(take(), ElementsAre("30 m2304 nop>b", "31 m2304 b>b"));
}

}  // namespace
}  // namespace ptd::live
