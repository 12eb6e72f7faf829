// Dumps of a machine's memory as the kernel's text of a recording.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/image/kernel_dump_support.h"
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

class DumpedKernel : public Fold {
 protected:
  DumpedKernel() {
    kernel_.pid = -1;
    kernel_.addr = kernel_.file_offset_bytes = image_test::kDumpedText;
    kernel_.size_bytes = 2 * image_test::kPage;
    kernel_.executable = kernel_.kernel = true;
    kernel_.path = "[kernel.kallsyms]_text";
    features_.arch = "x86_64";
    copies_.last_record = TimeNs{900};
    copies_.after_dirs = {dir_.path() + "/vmcore"};
  }
  void SetUp() override {
    if (!image_test::has_kdumpfile()) GTEST_SKIP() << "libkdumpfile is not installed";
  }
  void open(const image_test::Machine& machine) {
    dir_.write("vmcore", machine.dump());
    start();
    feed(kernel_, 0);
    feed(perfio::TextPokeRecord{image_test::kDumpedText + 8, image_test::bytes_of({0x55}), image_test::bytes_of({0x90})}, 500, 0, 0);
    finish(copies_);
  }
  perfio::MmapRecord kernel_;
  KernelImage::Copies copies_;
};

image_test::Machine machine_with(const std::string& build_id = {}) {
  image_test::Machine machine;
  machine.symbol("_stext", 16 * image_test::kPage);
  if (!build_id.empty()) machine.line("BUILD-ID=" + build_id);
  machine.put_names({"T_stext", "Tasm_exc_int3"}, {0x10000, 0x10020}, image_test::kTextBase);
  return machine;
}

TEST_F(DumpedKernel, GivesTheTextAfterTheLastRecordAndNames) {
  open(machine_with());
  EXPECT_TRUE(data_->warnings.empty()) << data_->warnings.front();
  EXPECT_EQ(byte_at(kKernelSpace, image_test::kDumpedText + 8, 700), 0x90);
  EXPECT_EQ(byte_at(kKernelSpace, image_test::kDumpedText + 8, 300), 0x55);
  EXPECT_EQ(byte_at(kKernelSpace, image_test::kDumpedText + 9, 300), 0x90);
  EXPECT_EQ(data_->decoder.breakpoint_entry.value, image_test::kDumpedText + 0x20);
  EXPECT_EQ(data_->symbolizer->find(kKernelSpace, Ip{image_test::kDumpedText + 4}, TimeNs{1})->name, "_stext");
}

TEST_F(DumpedKernel, OfAnotherBuildIsNotUsed) {
  features_.build_ids = {{"[kernel.kallsyms]", std::string(20, '\x44'), -1, 1}};
  for (const bool same : {false, true}) {
    open(machine_with(std::string(40, same ? '4' : '7')));
    EXPECT_EQ(data_->warnings.empty(), same);
    EXPECT_EQ(byte_at(kKernelSpace, image_test::kDumpedText + 9, 300), same ? 0x90 : -1);
    if (!same) {
      EXPECT_NE(data_->warnings.front().find("/vmcore is of the kernel with build id 7777"), std::string::npos) << data_->warnings.front();
    }
  }
}

TEST_F(DumpedKernel, OfAnotherBootIsNotUsed) {
  for (const std::string reference : {"_text", "_stext"}) {
    for (const uint64_t distance : {uint64_t{0}, uint64_t{0x10000}, uint64_t{0x200000}, ~uint64_t{0xfff}}) {
      kernel_.path = "[kernel.kallsyms]" + reference;
      kernel_.file_offset_bytes = image_test::kDumpedText - distance;  // the recorded address
      open(machine_with());
      const bool same = distance == 0 || (distance == 0x10000 && reference == "_text");
      EXPECT_EQ(data_->warnings.empty(), same) << reference << distance;
      if (!same) {
        EXPECT_NE(data_->warnings.front().find("/vmcore is of another boot"), std::string::npos) << data_->warnings.front();
      }
    }
  }
}

}  // namespace
}  // namespace ptd
