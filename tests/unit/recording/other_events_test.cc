// Samples of other events: their memory use is bounded, whatever their formats declare.
#include "recording/data/other_events.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "perfio/perf_writer.h"

namespace ptd {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kTracingData = 1, kRaw = 1U << 10, kTime = 1U << 2;  // perf.data-file-format.txt, enum perf_event_sample_format

/// A recording of `count` samples of 16 bytes each, and a format with `fields` fields over the same four of them.
class Overlaid {
 public:
  Overlaid(size_t count, size_t fields) {
    std::string name = (fs::temp_directory_path() / "ptd-events-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) folder_ = name;
    perfio::WriterOptions options;
    perfio::EventAttr attr;
    attr.type = 2;
    attr.config = 77;
    attr.sample_type = kRaw | kTime;
    options.attrs = {attr};
    auto writer = perfio::PerfWriter::create(path(), options);
    if (!writer.ok()) return;
    for (size_t i = 0; i < count; ++i) {
      std::vector<std::byte> record(8 + 8 + 4 + 12);
      const uint32_t type = 9, raw_bytes = 12;
      const auto size = static_cast<uint16_t>(record.size());
      const uint64_t time = 1000 + i;
      std::memcpy(record.data(), &type, 4);
      std::memcpy(record.data() + 6, &size, 2);
      std::memcpy(record.data() + 8, &time, 8);
      std::memcpy(record.data() + 16, &raw_bytes, 4);
      EXPECT_TRUE((*writer)->add_raw(record).ok());
    }
    std::string format = "\nname: x\nID: 77\nformat:\n";
    for (size_t i = 0; i < fields; ++i) format += "\tfield:int f" + std::to_string(i) + ";\toffset:8;\tsize:4;\tsigned:1;\n";
    format += "\nprint fmt: x\n";
    (*writer)->set_feature_bytes(kTracingData, std::as_bytes(std::span(format)));
    EXPECT_TRUE((*writer)->finish().ok());
  }
  ~Overlaid() {
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  [[nodiscard]] std::string path() const { return (folder_ / "perf.data").string(); }

 private:
  fs::path folder_;
};

// perf names no symbol of the host there, either.
TEST(OtherEvents, TheAddressOfAGuestsSampleIsNotTheHosts) {
  constexpr uint32_t kIp = 1;  // PERF_SAMPLE_IP
  const std::string path = (fs::temp_directory_path() / ("ptd-guest-sample-" + std::to_string(getpid()))).string();
  perfio::WriterOptions options;
  perfio::EventAttr attr;
  attr.sample_type = kIp;
  options.attrs = {attr};
  auto writer = perfio::PerfWriter::create(path, options);
  ASSERT_TRUE(writer.ok());
  for (const uint64_t mode : {1, 2, 4, 5}) {  // PERF_RECORD_MISC_KERNEL, _USER, _GUEST_KERNEL, _GUEST_USER
    std::array<uint64_t, 2> record{9 | (mode << 32) | (uint64_t{sizeof record} << 48), 0x401000};
    ASSERT_TRUE((*writer)->add_raw(std::as_bytes(std::span(record))).ok());
  }
  ASSERT_TRUE((*writer)->finish().ok());
  const auto read = read_other_events(path, {}, 10);
  fs::remove(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  std::vector<uint64_t> ips;
  for (const OtherEvent& event : read->events) ips.push_back(event.ip.value);
  EXPECT_EQ(ips, (std::vector<uint64_t>{0x401000, 0x401000, 0, 0}));
}

TEST(OtherEvents, FieldsThatLieOverEachOtherTakeNoMoreThanTheBudget) {
  const Overlaid recording(1000, 100);
  const auto all = read_other_events(recording.path(), {}, 5000);
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_EQ(all->events.size(), 1000U);
  ASSERT_EQ(all->events[0].fields.size(), 100U);
  EXPECT_EQ(*all->events[0].fields[99].name, "f99");
  EXPECT_EQ(all->events[0].fields[99].value, "0");
  EXPECT_EQ(all->events[0].fields[99].name, all->events[999].fields[99].name) << "one name for all";
  const uint64_t each = bytes_of(all->events[0]);
  EXPECT_GE(each, 100 * sizeof(TracepointField));
  const auto some = read_other_events(recording.path(), {}, 5000, 10 * each + each / 2);
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some->events.size(), 10U);
  EXPECT_EQ(some->left_out, 990U);
}

}  // namespace
}  // namespace ptd
