// Whether a guest runs in a trace: in all of it, or in a sample of its parts. More guests than can be told apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "perfio/format/wire.h"
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
  EXPECT_EQ(told("only 62 guests can be told apart: 38 more have no code, and their flow is a gap (processes 1062, 1063, 1064, 1065, ...)"),
            1);
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

/// A guest of process 500 with events of two of its cpus, and one of an unknown cpu, whose rings have the numbers of the host's.
class GuestRings : public Fold {
 protected:
  static constexpr uint64_t kHost = 70, kFirst = 71, kSecond = 72, kUnknown = 73, kOther = 74, kThread = 75;
  static constexpr int32_t kProcess = 300;  ///< of the guest
  static constexpr uint64_t kAt = 0x401000;

  GuestRings() {
    constexpr uint64_t kNone = ~uint64_t{0};
    const std::vector<std::array<uint64_t, 6>> events = {// id, idx, cpu, tid; machine_pid, vcpu
                                                         {kHost, 0, 0, kNone, 0, kNone}, {kFirst, 0, 0, 501, 500, 0},
                                                         {kSecond, 0, 0, 502, 500, 1},   {kUnknown, 0, 0, 503, 500, kNone},
                                                         {kOther, 0, 0, 601, 600, 0},    {kThread, 0, kNone, 701, 700, 0}};
    std::vector<uint64_t> words = {0, events.size()};  // the header comes first
    for (const auto& event : events) words.insert(words.end(), event.begin(), event.begin() + 4);
    for (const auto& event : events) words.insert(words.end(), event.begin() + 4, event.end());
    perfio::Record index;
    index.type = perfio::kRecordIdIndex;
    index.raw = std::as_bytes(std::span(words));
    fold_->on_record(index);
  }
  void on_ring(uint64_t id, perfio::Payload payload, uint64_t time, int32_t tid = kProcess) {
    perfio::Record record;
    record.payload = std::move(payload);
    record.sample_id = {kProcess, tid, time, time != 0, 0, id};
    fold_->on_record(record);
  }
};

// The cpu of their records is the host's, whose only switches here are those of tasks.
TEST_F(GuestRings, RecordsOfAGuestDoNotSayWhatRunsOnTheHost) {
  const auto change = [this](int32_t pid, int32_t tid, bool out, uint64_t time) {
    perfio::SwitchRecord record;
    record.out = out;
    feed(record, time, pid, tid);
  };
  comm(500, 501, "CPU 0/KVM", false, 50);
  change(500, 501, false, 100);
  on_ring(kFirst, perfio::CommRecord{kProcess, kProcess, "one", true}, 1000);
  on_ring(kFirst, perfio::TaskRecord{kProcess, kProcess, kProcess, kProcess, 1100, true}, 1100);
  change(500, 501, true, 2000);
  change(500, 501, false, 3000);
  on_ring(kFirst, perfio::LostRecord{kFirst, 7, false}, 3100);
  change(600, 601, true, 4000);  // its IN is missing
  finish();
  for (const uint64_t time : {500, 1050, 1500}) EXPECT_EQ(data_->contexts.at_cpu(0, TimeNs{time}).tid, 501) << time;
  EXPECT_EQ(data_->contexts.at_cpu(0, TimeNs{3500}).tid, -1);
  EXPECT_EQ(data_->contexts.leaves(0), (std::vector<TimeNs>{TimeNs{2000}, TimeNs{4000}}));
}

// As Fold.AThreadThatCallsExecRunsTheNewProgram. The ring of a guest is that of a thread of the host, with a cpu or without.
TEST_F(GuestRings, AThreadOfAGuestThatCallsExecRunsTheNewProgram) {
  for (const uint64_t id : {kFirst, kThread}) {
    const uint64_t from = id * 10'000;
    const auto change = [&](int32_t tid, bool out, uint64_t time) {
      perfio::SwitchRecord record;
      record.cpu_wide = true;
      record.out = out;
      on_ring(id, record, time, tid);
    };
    on_ring(id, perfio::CommRecord{kProcess, kProcess, "one", true}, from);
    on_ring(id, perfio::TaskRecord{kProcess, kProcess, kProcess + 1, kProcess, from + 100, false}, from + 100);
    change(kProcess + 1, false, from + 1000);
    on_ring(id, perfio::CommRecord{kProcess, kProcess, "two", true}, from + 2000);
    change(kProcess, true, from + 3000);
  }
  finish();
  const auto in_guest = [this](int32_t host, uint64_t time) { return context_in_guest(data_->contexts, {-1, host, {}}, 0, TimeNs{time}); };
  for (const auto& [id, host, machine] : {std::tuple(kFirst, 501, 1U), std::tuple(kThread, 701, 2U)}) {
    const Context before = in_guest(host, id * 10'000 + 1500), after = in_guest(host, id * 10'000 + 2500);
    EXPECT_EQ(before.tid, thread_of_machine(machine, kProcess + 1));
    EXPECT_EQ(after.tid, thread_of_machine(machine, kProcess));
    EXPECT_NE(after.space, before.space);
    EXPECT_EQ(after.space, data_->contexts.at_thread(after.tid, TimeNs{id * 10'000 + 2500}).space);
    EXPECT_TRUE(data_->contexts.thread_changes(host).empty());
  }
}

class GuestLosses : public GuestRings {
 protected:
  GuestLosses() {
    for (const int32_t pid : {500, 600, kProcess}) comm(pid, pid, "one", true, 100);
    map(kProcess, kAt, "/bin/one", 100);
  }
  void lose(uint64_t id, uint64_t time, bool samples = false) { on_ring(id, perfio::LostRecord{id, 7, samples}, time); }
  void patch(uint64_t id, uint64_t offset, uint64_t time) {
    on_ring(id, perfio::TextPokeRecord{kText.value + offset, image_test::bytes_of({0x90}), image_test::bytes_of({0xc3})}, time);
  }
  void map_in_guest(uint64_t id, uint64_t time) {
    perfio::MmapRecord map;
    map.pid = map.tid = kProcess;
    map.addr = kAt;
    map.size_bytes = 4096;
    map.path = "/bin/one";
    map.executable = true;
    on_ring(id, map, time);
  }
  [[nodiscard]] std::vector<std::string> losses() const {
    std::vector<std::string> out;
    for (const Finding& finding : data_->timeline.findings()) {
      if (finding.kind != FindingKind::records_lost) continue;
      const std::string end = finding.time.last == kTimeMax ? "end" : std::to_string(finding.time.last.value);
      out.push_back(finding.what + " " + std::to_string(finding.time.first.value) + " to " + end);
    }
    return out;
  }
  [[nodiscard]] SpaceId space_in(uint32_t machine) const {
    return data_->contexts.at_thread(thread_of_machine(machine, kProcess), TimeNs{150}).space;
  }
  [[nodiscard]] bool is_suspect(SpaceId space, uint64_t ip, uint64_t time) const {
    CodeView view(data_->timeline);
    std::array<CodeCandidate, 8> out;
    const FetchResult result = view.fetch(space, Ip{ip}, {TimeNs{time}, TimeNs{time}}, {}, out);
    EXPECT_GT(result.count, 0U) << ip << " at " << time;
    return result.count > 0 && any(out[0].flags, CodeFlag::suspect);
  }
};

TEST_F(GuestLosses, AreCountedDatedAndNamedWithTheGuest) {
  patch(kFirst, 0, 1000);
  patch(kSecond, 8, 1500);
  patch(kHost, 0, 1800);  // also of a ring with number 0
  lose(kFirst, 2000);
  lose(kSecond, 3000, true);  // samples only
  lose(kSecond, 0);           // until the ring's next record
  lose(kSecond, 0);
  patch(kFirst, 0x10, 3500);
  patch(kSecond, 0x18, 4000);
  patch(kUnknown, 0x20, 4500);
  lose(kUnknown, 5000);
  on_ring(0, perfio::LostRecord{kFirst, 7, false}, 0);  // no record has its event's id
  finish();
  EXPECT_EQ(data_->lost.lost_records, 6U);
  EXPECT_EQ(data_->lost.records, 42U);
  const std::vector<std::string> want = {"7 records of cpu 0 of the guest of process 500 were lost 1000 to 2000",
                                         "14 records of cpu 1 of the guest of process 500 were lost 3000 to 4000",
                                         "7 records of the guest of process 500 were lost 4500 to 5000",
                                         "7 records of cpu 0 of the guest of process 500 were lost 3500 to end"};
  EXPECT_EQ(losses(), want);
}

TEST_F(GuestLosses, LeaveTheCodeOfThatGuestInDoubt) {
  options_.guestmount = dir_.path() + "/guests";
  for (const char* guest : {"guests/500/", "guests/600/"}) {
    image_test::SmallElf elf;
    elf.code = image_test::bytes_of({0x55, 0xc3});
    dir_.write(guest + std::string("bin/one"), elf.bytes());
  }
  fold_->set_guests({});
  for (const uint64_t id : {kFirst, kOther}) {
    on_ring(id, perfio::CommRecord{kProcess, kProcess, "one", true}, 100);
    map_in_guest(id, 100);
    patch(id, 0, 1000);
  }
  patch(kHost, 0, 1000);
  lose(kFirst, 2000);
  patch(kFirst, 0x40, 5000);
  finish();
  const SpaceId user = space_in(1), kernel = kernel_of_machine(1);
  ASSERT_EQ(machine_of(user), 1U);
  ASSERT_FALSE(is_kernel_space(user));
  for (const uint64_t time : {999, 1000, 1500, 2000, 2001}) {
    const bool within = time >= 1000 && time <= 2000;
    EXPECT_EQ(is_suspect(user, kAt + kCode, time), within) << time;
    EXPECT_EQ(is_suspect(kernel, kText.value, time), time >= 1000) << time << ": nothing shows the bytes after the loss";
  }
  for (const uint64_t time : {1500, 2001}) {
    for (const uint32_t machine : {0U, 2U}) {
      EXPECT_FALSE(is_suspect(space_in(machine), kAt + kCode, time)) << machine << " at " << time;
      EXPECT_FALSE(is_suspect(kernel_of_machine(machine), kText.value, time)) << machine << " at " << time;
    }
  }
}

}  // namespace
}  // namespace ptd
