// Init of the lab's machine for AUX rings: loads the test PMU and reads its areas through the ring layer, byte for byte against its
// pattern.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "perfio/ring/aux_ring.h"
#include "perfio/ring/event_ring.h"
#include "perfio/ring/live_event.h"

namespace ptd::lab {
namespace {

using perfio::AuxMode;
using perfio::AuxRing;
using perfio::RingPart;

constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;  // of the module's pattern
constexpr uint32_t kRecordAux = 11;               // PERF_RECORD_AUX
constexpr uint64_t kTruncated = 1, kOverwrite = 2;

int g_failures = 0;

void say(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  (void)std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  std::printf("aux: %s\n", line);
  (void)std::fflush(stdout);
}

#define CHECK(condition, ...)                          \
  do {                                                 \
    if (!(condition)) {                                \
      ++g_failures;                                    \
      say("FAILED line %d: %s", __LINE__, #condition); \
      say("  " __VA_ARGS__);                           \
      return;                                          \
    }                                                  \
  } while (false)

uint64_t pattern_word(uint64_t number, int cpu) { return (number * kFactor) ^ (static_cast<uint64_t>(cpu) << 56); }

bool matches(Bytes bytes, uint64_t k, int cpu) {
  for (size_t i = 0; i < bytes.size();) {
    const uint64_t wanted = pattern_word((k + i) / 8, cpu);
    if ((k + i) % 8 == 0 && bytes.size() - i >= 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, sizeof word);
      if (word != wanted) return false;
      i += 8;
    } else {
      if (bytes[i] != static_cast<std::byte>(wanted >> (8 * ((k + i) % 8)))) return false;
      ++i;
    }
  }
  return true;
}

/// Returns the position of bytes in the pattern, from their content: the factor is odd, so a word determines its number.
std::optional<uint64_t> place_of(Bytes bytes, int cpu) {
  uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;  // Newton's steps modulo 2^64
  for (uint64_t shift = 0; shift < 8 && bytes.size() >= shift + 64; ++shift) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + shift, sizeof word);
    const uint64_t number = (word ^ (static_cast<uint64_t>(cpu) << 56)) * inverse;
    if (number * 8 >= shift && matches(bytes.first(64), number * 8 - shift, cpu)) return number * 8 - shift;
  }
  return std::nullopt;
}

struct AuxRecord {
  uint64_t offset = 0, size = 0, flags = 0;
};

struct Setting {
  uint64_t bytes = 1000, config1 = 0, period_ns = 500'000, area_bytes = 64 << 10;
  uint32_t wake_bytes = 0;
  AuxMode mode = AuxMode::full;
  int cpu = 0;
};

/// An event of the test PMU with its rings.
class Tap {
 public:
  static std::unique_ptr<Tap> open(const Setting& setting) {
    auto tap = std::make_unique<Tap>();
    perfio::EventSpec spec;
    spec.type = type();
    spec.config = setting.bytes;
    spec.config1 = setting.config1;
    spec.config2 = setting.period_ns;
    spec.disabled = true;
    spec.aux_wake_bytes = setting.wake_bytes;
    auto event = perfio::LiveEvent::open(spec, {-1, setting.cpu});
    if (!event.ok()) return say("%s", event.error().message.c_str()), nullptr;
    tap->event_ = std::make_unique<perfio::LiveEvent>(std::move(*event));
    auto ring = perfio::EventRing::map(tap->event_->fd(), 16);
    if (!ring.ok()) return say("%s", ring.error().message.c_str()), nullptr;
    tap->ring_ = std::move(*ring);
    auto aux = AuxRing::map(tap->event_->fd(), *tap->ring_, setting.area_bytes, setting.mode);
    if (!aux.ok()) return say("%s", aux.error().message.c_str()), nullptr;
    tap->aux_ = std::move(*aux);
    return tap;
  }
  static uint32_t type() {
    static const uint32_t number = [] {
      FILE* file = std::fopen("/sys/bus/event_source/devices/ptd_aux_test/type", "r");
      unsigned value = 0;
      if (file == nullptr || std::fscanf(file, "%u", &value) != 1) value = 0;
      if (file != nullptr) std::fclose(file);
      return value;
    }();
    return number;
  }
  void records(std::vector<AuxRecord>& out) {
    (void)ring_->drain([&](Bytes record) {
      uint32_t kind = 0;
      std::memcpy(&kind, record.data(), sizeof kind);
      AuxRecord aux;
      if (kind != kRecordAux || record.size() < 8 + sizeof aux) return;
      std::memcpy(&aux, record.data() + 8, sizeof aux);
      out.push_back(aux);
    });
  }
  bool wait(int ms) const {
    pollfd p{event_->fd(), POLLIN, 0};
    return ::poll(&p, 1, ms) > 0;
  }
  perfio::LiveEvent& event() { return *event_; }
  AuxRing& aux() { return *aux_; }

 private:
  std::unique_ptr<perfio::LiveEvent> event_;
  std::unique_ptr<perfio::EventRing> ring_;
  std::unique_ptr<AuxRing> aux_;
};

/// A reader's view of a stream: checks bytes against the pattern, and records against the bytes.
struct Stream {
  int cpu = 0;
  uint64_t next = 0;  // of the pattern
  uint64_t bytes = 0, wraps = 0, wakes = 0;
  bool good = true;

  void take(const RingPart& part) {
    for (const Bytes piece : {part.first, part.second}) {
      if (good && !matches(piece, next, cpu)) {
        good = false;
        say("stream differs within %zu bytes at %llu", piece.size(), static_cast<unsigned long long>(next));
      }
      next += piece.size();
    }
    wraps += part.second.empty() ? 0 : 1;
    bytes += part.size_bytes();
  }
};

bool follow_each_other(const std::vector<AuxRecord>& records, uint64_t total) {
  uint64_t at = 0;
  for (const AuxRecord& record : records) {
    if (record.offset != at) return false;
    at += record.size;
  }
  return at == total;
}

void wrap(int cpu, uint64_t wanted) {
  Setting setting;
  setting.cpu = cpu;
  const auto tap = Tap::open(setting);
  CHECK(tap != nullptr, "no event");
  Stream stream;
  stream.cpu = cpu;
  std::vector<AuxRecord> records;
  tap->event().enable();
  while (stream.bytes < wanted && stream.good) {
    stream.wakes += tap->wait(1000) ? 1 : 0;
    tap->records(records);
    const RingPart part = tap->aux().pending();
    stream.take(part);
    tap->aux().read_to(part.end);
    tap->aux().release();
  }
  tap->event().disable();
  const RingPart rest = tap->aux().pending();
  stream.take(rest);
  tap->records(records);
  uint64_t truncated = 0;
  for (const AuxRecord& record : records) truncated += record.flags & kTruncated;
  CHECK(stream.good, "bytes differ");
  CHECK(stream.wraps > 20 && stream.wakes > 20, "%llu wraps, %llu wake-ups", static_cast<unsigned long long>(stream.wraps),
        static_cast<unsigned long long>(stream.wakes));
  CHECK(truncated == 0, "%llu cut although the reader kept up", static_cast<unsigned long long>(truncated));
  CHECK(follow_each_other(records, stream.bytes), "AUX records do not cover %llu bytes", static_cast<unsigned long long>(stream.bytes));
  say("wrap, cpu %d: %llu bytes equal, %llu times around, %llu wake-ups, %zu AUX records", cpu,
      static_cast<unsigned long long>(stream.bytes), static_cast<unsigned long long>(stream.wraps),
      static_cast<unsigned long long>(stream.wakes), records.size());
}

void wake_ups() {
  for (const uint32_t watermark : {4096U, 16384U, 40000U}) {
    Setting setting;
    setting.wake_bytes = watermark;
    setting.bytes = 512;
    const auto tap = Tap::open(setting);
    CHECK(tap != nullptr, "no event");
    tap->event().enable();
    uint64_t least = ~uint64_t{0}, most = 0;
    for (int i = 0; i < 20; ++i) {
      CHECK(tap->wait(2000), "nobody woke at a watermark of %u", watermark);
      const RingPart part = tap->aux().pending();
      least = std::min(least, part.size_bytes());
      most = std::max(most, part.size_bytes());
      std::vector<AuxRecord> records;
      tap->records(records);
      tap->aux().read_to(part.end);
      tap->aux().release();
    }
    tap->event().disable();
    // Outputs end at the first tick at or after the watermark; a late reader finds more.
    CHECK(least + 512 >= watermark, "woken for %llu bytes at a watermark of %u", static_cast<unsigned long long>(least), watermark);
    say("wake-ups: watermark %u, woken at %llu to %llu bytes", watermark, static_cast<unsigned long long>(least),
        static_cast<unsigned long long>(most));
  }
}

// Without a reader, the area fills, the kernel reports it and stops; the content is complete, and it continues when there is space.
void truncation() {
  Setting setting;
  const auto tap = Tap::open(setting);
  CHECK(tap != nullptr, "no event");
  Stream stream;
  std::vector<AuxRecord> records;
  for (int round = 0; round < 50; ++round) {
    tap->event().enable();
    uint64_t before = ~uint64_t{0};
    for (int i = 0; i < 50; ++i) {  // until it stops: longer than the area takes to fill by half
      ::usleep(40'000);
      const uint64_t now = tap->aux().pending().size_bytes();
      if (now == before && now != 0) break;
      before = now;
    }
    const RingPart part = tap->aux().pending();
    // One byte stays free, as otherwise an empty ring and a full one would look the same.
    CHECK(part.size_bytes() == setting.area_bytes - 1, "%llu bytes in a full area", static_cast<unsigned long long>(part.size_bytes()));
    std::vector<AuxRecord> now;
    tap->records(now);
    CHECK(!now.empty() && (now.back().flags & kTruncated) != 0, "no record says that it was cut");
    if (round > 0) {  // some bytes of the tick that did not fit are lost: fewer than it had
      std::vector<std::byte> start(part.first.begin(), part.first.end());
      start.insert(start.end(), part.second.begin(), part.second.end());
      start.resize(64);
      uint64_t jump = 0;
      while (jump < setting.bytes && !matches(start, stream.next + jump, 0)) ++jump;
      CHECK(jump > 0 && jump < setting.bytes, "the stream does not go on behind the cut");
      stream.next += jump;
    }
    stream.take(part);
    CHECK(stream.good, "bytes differ in round %d", round);
    records.insert(records.end(), now.begin(), now.end());
    tap->event().disable();
    tap->aux().read_to(part.end);
    tap->aux().release();
  }
  tap->records(records);
  CHECK(follow_each_other(records, stream.bytes), "AUX records do not cover the bytes");
  say("truncation: filled and cut 50 times, %llu bytes equal, each cut said and its loss as large as it was",
      static_cast<unsigned long long>(stream.bytes));
}

// Losses with free space, like overflows: each follows an output that reports it, and has the configured size.
void losses() {
  constexpr uint64_t kEvery = 3, kLost = 777;
  Setting setting;
  setting.config1 = kEvery << 8 | kLost << 16;
  setting.wake_bytes = 8192;
  const auto tap = Tap::open(setting);
  CHECK(tap != nullptr, "no event");
  Stream stream;
  std::vector<AuxRecord> records;
  std::vector<std::byte> all;
  tap->event().enable();
  while (all.size() < (1U << 20)) {
    (void)tap->wait(1000);
    tap->records(records);
    const RingPart part = tap->aux().pending();
    all.insert(all.end(), part.first.begin(), part.first.end());
    all.insert(all.end(), part.second.begin(), part.second.end());
    tap->aux().read_to(part.end);
    tap->aux().release();
  }
  tap->event().disable();
  tap->records(records);
  uint64_t cuts = 0;
  for (const AuxRecord& record : records) {
    if (record.offset + record.size > all.size()) break;
    CHECK(matches(Bytes(all).subspan(record.offset, record.size), stream.next, 0), "bytes differ at %llu",
          static_cast<unsigned long long>(record.offset));
    stream.next += record.size;
    if ((record.flags & kTruncated) != 0) stream.next += kLost, ++cuts;
  }
  CHECK(cuts > 20, "%llu losses", static_cast<unsigned long long>(cuts));
  say("losses: %llu of %llu bytes each, found where the records say, %zu bytes equal", static_cast<unsigned long long>(cuts),
      static_cast<unsigned long long>(kLost), all.size());
}

// Overwrite mode: each snapshot ends with the newest byte, is complete, and follows the previous one.
void snapshots(bool place, int count) {
  Setting setting;
  setting.mode = AuxMode::overwrite;
  setting.config1 = place ? 1 : 0;
  setting.bytes = 777;
  setting.period_ns = 100'000;
  const auto tap = Tap::open(setting);
  CHECK(tap != nullptr, "no event");
  uint64_t last_end = 0, full = 0, partial = 0;
  for (int i = 0; i < count; ++i) {
    tap->event().enable();
    ::usleep(i % 3 == 0 ? 1000 : 12000);  // some before the area is full for the first time
    tap->event().disable();
    std::vector<AuxRecord> records;
    tap->records(records);
    for (const AuxRecord& record : records) CHECK((record.flags & kOverwrite) != 0, "no overwrite flag");
    const RingPart part = tap->aux().snapshot();
    if (part.size_bytes() == 0) continue;
    std::vector<std::byte> bytes(part.first.begin(), part.first.end());
    bytes.insert(bytes.end(), part.second.begin(), part.second.end());
    const auto begin = place_of(bytes, 0);
    CHECK(begin && matches(bytes, *begin, 0), "snapshot %d: %zu bytes are not of one piece", i, bytes.size());
    const uint64_t end = *begin + bytes.size();
    CHECK(end >= last_end, "snapshot %d is older than the one before", i);
    CHECK(bytes.size() == std::min<uint64_t>(end, setting.area_bytes), "snapshot %d: %zu of %llu bytes", i, bytes.size(),
          static_cast<unsigned long long>(end));
    last_end = end;
    ++(bytes.size() == setting.area_bytes ? full : partial);
  }
  CHECK(full > static_cast<uint64_t>(count) / 2, "%llu full ones", static_cast<unsigned long long>(full));
  say("snapshots, head as a %s: %llu whole areas and %llu before the first was full, each of one piece; %llu bytes were written",
      place ? "place" : "count", static_cast<unsigned long long>(full), static_cast<unsigned long long>(partial),
      static_cast<unsigned long long>(last_end));
}

void both_cpus() {
  std::thread one([] { wrap(0, 2U << 20); });
  std::thread two([] { wrap(1, 2U << 20); });
  one.join();
  two.join();
}

void start_machine() {
  (void)::mount("proc", "/proc", "proc", 0, nullptr);
  (void)::mount("sysfs", "/sys", "sysfs", 0, nullptr);
  (void)::mount("devtmpfs", "/dev", "devtmpfs", 0, nullptr);
  const int console = ::open("/dev/console", O_RDWR);
  (void)::dup2(console, STDOUT_FILENO);
  (void)::dup2(console, STDERR_FILENO);
  const int module = ::open("/ptd_aux_test.ko", O_RDONLY);
  if (::syscall(SYS_finit_module, module, "", 0) != 0) {
    ++g_failures;
    say("FAILED: the module is not taken: %s", std::strerror(errno));
  }
}

int run() {
  start_machine();
  if (g_failures == 0) {
    wrap(0, 4U << 20);
    both_cpus();
    wake_ups();
    truncation();
    losses();
    snapshots(false, 300);
    snapshots(true, 300);
    if (::syscall(SYS_delete_module, "ptd_aux_test", 0) != 0) {
      ++g_failures;
      say("FAILED: the module is still in use: %s", std::strerror(errno));
    }
  }
  say(g_failures == 0 ? "all equal" : "%d failures", g_failures);
  ::sync();
  (void)::reboot(RB_POWER_OFF);
  return 0;
}

}  // namespace
}  // namespace ptd::lab

int main() { return ptd::lab::run(); }
