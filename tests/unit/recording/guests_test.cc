// Whether a guest runs in a trace: in all of it, or in a sample of its parts. More guests than can be told apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "ptdecode/pt/packet_reader.h"
#include "recording/trace/guest_entries.h"
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

constexpr size_t kSegmentBytes = 4096, kSegments = 1024;
const std::vector<uint8_t> kPip = {0x02, 0x43, 0x01, 0, 0, 0, 0, 0};  // with NR
const std::vector<uint8_t> kBad = {0x02, 0xff};

/// A trace of segments: a PSB+ and PAD packets.
class GuestEntries : public ::testing::Test {
 protected:
  GuestEntries() : trace_(kSegments * kSegmentBytes) {
    for (size_t i = 0; i < kSegments; ++i) {
      for (size_t at = 0; at < 16; at += 2) put(i, at, {0x02, 0x82});
      put(i, 16, {0x02, 0x23});
    }
  }
  void put(size_t segment, size_t at, const std::vector<uint8_t>& packet) {
    for (size_t i = 0; i < packet.size(); ++i) trace_[segment * kSegmentBytes + at + i] = static_cast<std::byte>(packet[i]);
  }
  bool runs_guests(size_t stretches) {
    AuxStream stream;
    stream.add_payload(0, trace_.size(), trace_, false);
    stream.finish();
    const SegmentIndex index(stream);
    read_ = 0;
    return ptd::runs_guests(index, {}, {}, stretches, [&] { ++read_; });
  }
  std::vector<std::byte> trace_;
  size_t read_ = 0;  ///< segments
};

TEST_F(GuestEntries, AreFoundAnywhere) {
  EXPECT_FALSE(runs_guests(SIZE_MAX));
  EXPECT_EQ(read_, kSegments);
  put(700, 2000, kPip);
  EXPECT_TRUE(runs_guests(SIZE_MAX));
  EXPECT_EQ(read_, 701U);
}

// A packet that cannot be read hides what follows it only up to the next PSB.
TEST_F(GuestEntries, AreFoundAfterADamagedPacket) {
  for (const size_t damaged : {size_t{0}, size_t{699}, size_t{700}}) put(damaged, 100, kBad);
  pt::PacketReader reader(Bytes(trace_).subspan(100));
  pt::Packet packet;
  ASSERT_EQ(reader.next(packet), pt::PacketReader::Status::bad_packet);
  put(700, 2000, kPip);
  EXPECT_FALSE(runs_guests(SIZE_MAX));
  put(701, 2000, kPip);
  EXPECT_TRUE(runs_guests(SIZE_MAX));
}

TEST_F(GuestEntries, OfASampleAreThoseOfItsParts) {
  constexpr size_t kParts = 4, kStretchBytes = 256U << 10;
  EXPECT_FALSE(runs_guests(kParts));
  EXPECT_LE(read_, kParts * kStretchBytes / kSegmentBytes);
  put(kSegments - 1, 2000, kPip);
  EXPECT_TRUE(runs_guests(kParts));
}

/// Guests of a recording, and folders of their file systems.
class ManyGuests : public Fold {
 protected:
  static constexpr int32_t kFirst = 1000;
  void mount(int32_t folders) {
    options_.guestmount = dir_.path() + "/guests";
    for (int32_t i = 0; i < folders; ++i) std::filesystem::create_directories(options_.guestmount + "/" + std::to_string(kFirst + i));
    start();
    fold_->set_guests({});
  }
  void guest_map(int32_t pid, bool kernel) {
    perfio::MmapRecord record;
    record.pid = record.tid = pid;
    record.addr = kernel ? kText.value : 0x1000;
    record.size_bytes = 4096;
    record.path = kernel ? "[guest.kernel.kallsyms]_text" : "/bin/one";
    record.guest = true;
    record.kernel = kernel;
    record.executable = true;
    feed(record, 1);
  }
  [[nodiscard]] bool has_guest(int32_t pid) const {
    return std::ranges::any_of(guests_of(data_->contexts), [&](const Guest& guest) { return guest.pid == pid; });
  }
  [[nodiscard]] int64_t told(const std::string& text) const {
    return std::ranges::count_if(data_->warnings, [&](const std::string& warning) { return warning.find(text) != std::string::npos; });
  }
};

// The recording has processes for the last folders only.
TEST_F(ManyGuests, FoldersOfItsProcessesComeFirst) {
  mount(100);
  for (const int32_t pid : {kFirst + 98, kFirst + 99}) comm(pid, pid, "qemu", false, 1);
  map(kFirst + 98, 0x1000, "/bin/one", 1);
  map(kFirst + 99, 0x1000, "/bin/one", 1);
  finish();
  EXPECT_TRUE(has_guest(kFirst + 98) && has_guest(kFirst + 99));
  EXPECT_FALSE(has_guest(kFirst));
  EXPECT_EQ(told("--guestmount: the recording has no processes for 98 of the 100 folders"), 1);
  EXPECT_EQ(told("can be told apart"), 0);
}

TEST_F(ManyGuests, ThoseThatAreTooManyAreNamed) {
  mount(100);
  for (int32_t pid = kFirst; pid < kFirst + 100; ++pid) map(pid, 0x1000, "/bin/one", 1);
  finish();
  EXPECT_TRUE(has_guest(kFirst + 61));
  EXPECT_FALSE(has_guest(kFirst + 62));
  EXPECT_EQ(told("only 62 guests can be told apart: 38 more have no code, and their flow is a gap (processes 1062, 1063, 1064, 1065, ...)"), 1);
}

TEST_F(ManyGuests, RecordsThatAreIgnoredSayWhy) {
  for (int32_t pid = kFirst; pid < kFirst + 70; ++pid) guest_map(pid, true);
  EXPECT_EQ(fold_->refused_guest_records(), 8U);
  EXPECT_EQ(fold_->guest_records(), 0U);
  guest_map(kFirst, false);
  EXPECT_EQ(fold_->guest_records(), 1U);
  finish();
  EXPECT_EQ(told("only 62 guests can be told apart: 8 more"), 1);
}

}  // namespace
}  // namespace ptd
