// Snapshots that name one file often: memory does not grow with how often, or under how many paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptdecode/recording.h"
#include "tests/coresight/support/folder.h"

namespace ptd::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RepeatedFiles : public testing::Test {
 protected:
  /// Opens a snapshot of one core with two trace units, ETM_0 and `unit`. `buffers`: trace.ini.
  std::unique_ptr<Recording> open(const std::string& unit, const std::string& buffers) const {
    const auto trace_unit = [&](const std::string& file, const std::string& name) {
      folder_.text(file, "[device]\nname=" + name +
                             "\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR=0x1\nTRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\n"
                             "TRCIDR1=0x4100f403\nTRCIDR2=0x488\nTRCIDR8=0\n");
    };
    trace_unit("etm.ini", "ETM_0");
    trace_unit("other.ini", unit);
    folder_.text(
        "snapshot.ini",
        "[snapshot]\nversion=1.0\n[device_list]\ndevice0=cpu.ini\ndevice1=etm.ini\ndevice2=other.ini\n[trace]\nmetadata=trace.ini\n");
    folder_.text("cpu.ini", "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A53\n");
    folder_.text("trace.ini", buffers);
    folder_.bytes("trace.bin", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04});
    OpenOptions options;
    options.path = folder_.path();
    auto opened = Recording::open(options);
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
    return opened.ok() ? std::move(*opened) : nullptr;
  }
  Folder folder_;
};

TEST_F(RepeatedFiles, ATraceUnderManyPathsIsReadAFewTimes) {
  std::string paths = "trace.bin", before;
  for (int i = 0; i < 100; ++i) paths += "," + (before += "./") + "trace.bin";
  const auto recording =
      open("ETM_1", "[trace_buffers]\nbuffers=b\n[b]\nname=ETB\nfile=" + paths + "\nformat=source_data\n[source_buffers]\nETM_0=ETB\n");
  ASSERT_TRUE(recording);
  EXPECT_EQ(recording->streams().at(0).size_bytes, 16U * 16);
  EXPECT_THAT(recording->warnings(), ElementsAre(HasSubstr("named more than 16 times")));
}

// Each use of a source has its name: with long names, a short list of buffers would take gigabytes.
TEST_F(RepeatedFiles, ALongNameIsReportedOnce) {
  const std::string unit(10000, 'u');
  std::string uses = "=ETB";
  for (int i = 0; i < 100; ++i) uses += ",ETB";
  const auto recording =
      open(unit, "[trace_buffers]\nbuffers=b\n[b]\nname=ETB\nfile=trace.bin\nformat=source_data\n[source_buffers]\nETM_0=ETB\n" + unit +
                     uses + "\n");
  ASSERT_TRUE(recording);
  EXPECT_EQ(recording->streams().size(), 1U);
  EXPECT_THAT(recording->warnings(),
              ElementsAre(HasSubstr("more than 4096 bytes; the device is ignored"), HasSubstr("is not a readable device")));
}

}  // namespace
}  // namespace ptd::test
