// Copies of the kernel's text that are of another boot or build.
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

constexpr uint64_t kPage = 4096, kPages = 64;

/// Returns code that does not repeat, so that moved code differs in most bytes.
std::vector<std::byte> text(uint32_t seed = 1) {
  std::vector<std::byte> bytes;
  while (bytes.size() < kPages * kPage) {
    seed = seed * 1664525 + 1013904223;
    bytes.push_back(static_cast<std::byte>(0x40 + (seed >> 24) % 64));  // none starts an instruction that a kernel writes
  }
  return bytes;
}

class ForeignText : public Fold {
 protected:
  ForeignText() {
    kernel_.pid = -1;
    kernel_.addr = kernel_.file_offset_bytes = kText.value;
    kernel_.size_bytes = kPages * kPage;
    kernel_.executable = kernel_.kernel = true;
    kernel_.path = "[kernel.kallsyms]_text";
    copies_.last_record = TimeNs{900};
  }
  void write(const std::string& name, std::vector<std::byte> code, const std::string& names = {}) {
    image_test::SmallElf core;
    core.type = ET_CORE;
    core.address = kText.value + (name == "base" ? base_at_ : 0);
    core.code = std::move(code);
    std::vector<std::byte> file = core.bytes();
    if (repeats_) {
      const uint64_t offset = 5 * kPage;
      const Elf64_Phdr segment{PT_LOAD, PF_R | PF_X, offset, core.address + offset, 0, 16, 16, kPage};
      std::memcpy(file.data() + sizeof(Elf64_Ehdr) + sizeof segment, &segment, sizeof segment);
    }
    dir_.write(name + "/kcore", file);
    dir_.write(name + "/kallsyms", names);
    dir_.write(name + "/modules", std::string());
  }
  /// Whether the recording's own copy, or the later one, is refused with one warning and one finding.
  bool refuses(bool own, const std::string& what) {
    write("base", base_, base_names_);
    write("after", after_, after_names_);
    start();
    feed(kernel_, 0);
    for (uint64_t i = 0; i < pokes_; ++i) poke(kCode + i * kPage, old_, image_test::bytes_of({0xe8, 1, 2, 3, 4}), 500);
    copies_.kcore_dir = own || !after_.empty() ? dir_.path() + "/base" : "";
    copies_.after_dirs.clear();
    if (!own) copies_.after_dirs = {dir_.path() + "/after"};
    finish(copies_);
    size_t told = 0;
    for (const Finding& finding : data_->timeline.findings()) {
      if (finding.kind == FindingKind::file_changed && finding.what.find((own ? "/base/" : "/after/") + what) != std::string::npos) ++told;
    }
    return told == 1 && byte_at(kKernelSpace, kText.value + kCode + 9, 500) == (own ? -1 : std::to_integer<int>(base_[9]));
  }
  void set_sites(std::vector<std::byte>& code) const {
    const std::vector<std::byte> nop = image_test::bytes_of({0x0f, 0x1f, 0x44, 0, 0});
    for (uint64_t i = 0; i < pokes_; ++i) std::copy(nop.begin(), nop.end(), code.begin() + static_cast<ptrdiff_t>(i * kPage));
  }

  perfio::MmapRecord kernel_;
  KernelImage::Copies copies_;
  std::vector<std::byte> base_ = text(), after_ = text();
  std::string base_names_, after_names_;
  std::vector<std::byte> old_ = image_test::bytes_of({0x0f, 0x1f, 0x44, 0, 0});
  uint64_t pokes_ = 0, base_at_ = 0;
  bool repeats_ = false;  // a second segment has some bytes of the first
};

std::string names(uint64_t moved, uint64_t functions = 200) {
  std::string lines;
  for (uint64_t i = 0; i < functions; ++i) {
    std::array<char, 64> line{};
    (void)std::snprintf(line.data(), line.size(), "%llx T %s%llu\n",
                        static_cast<unsigned long long>(kText.value + kCode + 64 * i + (i > 100 ? moved : 0)), "fn",
                        static_cast<unsigned long long>(i));
    lines += line.data();
  }
  return lines + "ffffffff81000200 T _stext\nffffffff81030000 T _etext\n";
}

TEST_F(ForeignText, ALaterCopyWithOtherPagesIsRefused) {
  EXPECT_FALSE(refuses(false, "kcore is of another kernel")) << "equal";
  after_.insert(after_.begin() + 40 * kPage, 16, std::byte{0x55});
  after_.resize(kPages * kPage);
  EXPECT_TRUE(refuses(false, "kcore is of another kernel or another boot than "));
}

// A dump without names has data and reused pages after the text, in the same range.
TEST_F(ForeignText, ALaterCopyWithOtherDataIsUsed) {
  base_.resize(6U << 20);
  after_ = base_;
  std::fill(after_.begin() + (5 << 20), after_.end(), std::byte{1});
  kernel_.size_bytes = base_.size();
  EXPECT_FALSE(refuses(false, "kcore is"));
  base_names_ = after_names_ = "ffffffff81000200 T _stext\nffffffff81600000 T _etext\n";
  EXPECT_TRUE(refuses(false, "kcore is of another kernel"));
}

// Of these copies, none or one names the end of the text. Data differs in whole pages and in single words, text in an instruction.
TEST_F(ForeignText, DataThatDiffersIsNoLostRecord) {
  base_.resize(8U << 20, std::byte{0x41});
  after_ = base_;
  std::fill(after_.begin() + (6 << 20), after_.begin() + (7 << 20), std::byte{1});
  after_[(7 << 20) + 8] = std::byte{0x42};
  const std::vector<std::byte> nop = image_test::bytes_of({0x0f, 0x1f, 0x44, 0, 0});
  const uint64_t at_page_end = (uint64_t{9} << 19) + kPage - kCode - 2;  // two bytes of an instruction are on one page, three on the next
  const std::vector<uint64_t> changed = {1 << 20, at_page_end, 5 << 20};
  for (const uint64_t at : changed) std::copy(nop.begin(), nop.end(), after_.begin() + static_cast<ptrdiff_t>(at));
  kernel_.size_bytes = base_.size();
  const std::string bounds = "ffffffff81000000 T _stext\nffffffff81600000 T _etext\n";
  for (const auto& [of_base, of_after] :
       {std::pair(std::string(), std::string()), std::pair(bounds, std::string()), std::pair(std::string(), bounds)}) {
    base_names_ = of_base;
    after_names_ = of_after;
    EXPECT_FALSE(refuses(false, "kcore is"));
    std::vector<uint64_t> lost;
    for (const Finding& finding : data_->timeline.findings()) {
      if (finding.kind == FindingKind::poke_lost_by_copy) lost.push_back(finding.ip.value - kText.value - kCode);
    }
    EXPECT_EQ(lost, changed) << of_base << of_after;
  }
}

// As if each function were traced.
TEST_F(ForeignText, ALaterCopyWithChangesInAllPagesIsUsed) {
  for (size_t at = 0; at < after_.size(); at += 64) after_[at] = std::byte{0xe8};
  EXPECT_FALSE(refuses(false, "kcore"));
  EXPECT_GT(data_->timeline.findings().size(), kPages);
}

TEST_F(ForeignText, ALaterCopyWithFunctionsAtOtherAddressesIsRefused) {
  base_names_ = after_names_ = names(0);
  EXPECT_FALSE(refuses(false, "kcore"));
  after_names_ = names(16);
  EXPECT_TRUE(refuses(false, "kcore is of another kernel or another boot than "));
}

TEST_F(ForeignText, NamesOfAnotherBootRefuseTheCodeToo) {
  for (const bool own : {false, true}) {
    (own ? base_names_ : after_names_) = "ffffffff81200000 T _text\n";
    EXPECT_TRUE(refuses(own, "kallsyms is of another kernel or another boot: it has _text at 0xffffffff81200000"));
    EXPECT_EQ(data_->warnings.front().find("its names are"), std::string::npos);
  }
}

TEST_F(ForeignText, RecordsOfChangesThatContradictACopyRefuseIt) {
  pokes_ = 12;
  set_sites(base_);
  EXPECT_FALSE(refuses(true, "kcore"));
  base_ = text();
  EXPECT_TRUE(refuses(true, "kcore is of another kernel or another boot: at 12 of 12 addresses"));
  set_sites(base_);
  after_ = base_;
  EXPECT_FALSE(refuses(false, "kcore"));
  after_.insert(after_.begin(), 16, std::byte{0x55});
  after_.resize(kPages * kPage);
  EXPECT_TRUE(refuses(false, "kcore is of another kernel or another boot: at 12 of 12 addresses"));
}

TEST_F(ForeignText, ACopyThatBeginsLaterIsRefused) {
  pokes_ = 24;
  set_sites(base_);
  EXPECT_FALSE(refuses(true, "kcore"));
  base_at_ = 8 * kPage;
  base_ = text();
  EXPECT_TRUE(refuses(true, "kcore is of another kernel or another boot: at 16 of 16 addresses"));
}

TEST_F(ForeignText, ASegmentInsideAnotherHidesNoContradiction) {
  repeats_ = true;
  base_names_ = after_names_ = names(0);
  pokes_ = 12;
  set_sites(base_);
  EXPECT_FALSE(refuses(true, "kcore"));
  base_ = text();
  EXPECT_TRUE(refuses(true, "kcore is of another kernel or another boot: at 12 of 12 addresses"));
}

// If records were lost, a site has an instruction that no record tells of; it is still one that a kernel writes.
TEST_F(ForeignText, LostRecordsOfChangesRefuseNothing) {
  pokes_ = 12;
  for (uint64_t i = 0; i < pokes_; ++i) base_[i * kPage] = std::byte{0xe9};
  EXPECT_FALSE(refuses(true, "kcore"));
  EXPECT_EQ(byte_at(kKernelSpace, kText.value + kCode + 9, 500), std::to_integer<int>(base_[9]));
}

// The copy has jumps of probes, and later there are probes on instructions that these cover.
TEST_F(ForeignText, PlacesInsideAJumpRefuseNothing) {
  pokes_ = 12;
  for (uint64_t i = 1; i < pokes_; ++i) base_[i * kPage - 1] = std::byte{0xe9};
  EXPECT_FALSE(refuses(true, "kcore"));
}

// Of a probe that becomes a jump, the record that puts the breakpoint was lost.
TEST_F(ForeignText, ABreakpointTellsOnlyTheBytesBehindIt) {
  pokes_ = 12;
  old_ = image_test::bytes_of({0xcc, 0x48, 0x89, 0xe5, 0x41});
  for (uint64_t i = 0; i < pokes_; ++i) std::copy(old_.begin() + 1, old_.end(), base_.begin() + static_cast<ptrdiff_t>(i * kPage + 1));
  EXPECT_FALSE(refuses(true, "kcore"));
  base_ = text();
  EXPECT_TRUE(refuses(true, "kcore"));
}

TEST_F(ForeignText, ContradictionsHereAndThereRefuseNothing) {
  pokes_ = 36;
  set_sites(base_);
  for (uint64_t i = 0; i < pokes_; i += 3) base_[i * kPage] = std::byte{0x55};
  EXPECT_FALSE(refuses(true, "kcore"));
}

// Another build, whose first functions are the same.
TEST_F(ForeignText, OneRegionThatContradictsRefusesACopy) {
  pokes_ = 36;
  set_sites(base_);
  base_.insert(base_.begin() + 26 * kPage, 16, std::byte{0x55});
  base_.resize(kPages * kPage);
  EXPECT_TRUE(refuses(true, "kcore is of another kernel or another boot: at 10 of 36 addresses"));
}

}  // namespace
}  // namespace ptd
