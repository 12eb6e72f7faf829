// ThreadState: reads the state after the thread's death.
#include "capture/emulate/shared/thread_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <vector>

#include "capture/emulate/shared/mapped_log.h"
#include "capture/emulate/unit/truth_log.h"
#include "ptdecode/pt/packet_writer.h"

namespace ptd::emulate {
namespace {

using Flag = TraceStep::Flag;

struct Ending {
  std::vector<std::byte> packets, truth;
  bool unknown = false;
};

Ending ending_of(const TraceStep& step) {
  Ending ending;
  pt::PacketWriter packets(ending.packets);
  TruthLog truth(ending.truth);
  const auto has = [&](Flag flag) { return (step.flags & flag) != 0; };
  if (has(Flag::kEnded)) return ending;
  packets.set_compression(false);  // the last ip is not known here
  bool lost = has(Flag::kLosing);
  if (!lost && step.branch_count != 0) packets.tnt(step.branches, step.branch_count);
  if (!lost && has(Flag::kEnabled) && has(Flag::kEntered)) {
    truth.event(TruthEvent::interrupt, step.ip);
    packets.fup(step.ip);
    packets.tip_pgd_suppressed();
  }
  if (!lost && has(Flag::kEnabled) && !has(Flag::kHeld)) {
    truth.lose();
    lost = ending.unknown = true;
  }
  if (lost && !ending.unknown) packets.ovf();  // the unit's own loss; code that ran unrecorded is a cut of the recording
  if (lost) truth.recover();
  truth.end();
  return ending;
}

/// A log of a process that is gone, open for its last bytes.
class DeadLog {
 public:
  explicit DeadLog(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0 || lseek(fd_, 0, SEEK_END) < static_cast<off_t>(kMappedLogHeaderBytes)) return;
    void* head = mmap(nullptr, kMappedLogHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (head != MAP_FAILED) head_ = static_cast<std::byte*>(head);
  }
  ~DeadLog() {
    if (head_ != nullptr) munmap(head_, kMappedLogHeaderBytes);
    if (fd_ >= 0) ::close(fd_);
  }
  DeadLog(const DeadLog&) = delete;
  DeadLog& operator=(const DeadLog&) = delete;
  [[nodiscard]] bool is_open() const { return head_ != nullptr; }
  [[nodiscard]] ThreadState& state() { return *std::launder(reinterpret_cast<ThreadState*>(head_ + kMappedLogOwnerAt)); }
  void write_end(uint64_t at, const std::vector<std::byte>& bytes) {
    const auto offset = static_cast<off_t>(kMappedLogHeaderBytes + at);
    const bool written = pwrite(fd_, bytes.data(), bytes.size(), offset) == static_cast<ssize_t>(bytes.size());
    uint64_t header[2] = {};  // size, cut
    std::memcpy(header, head_, sizeof header);
    header[0] = written ? at + bytes.size() : at;
    constexpr uint64_t kLacksEnd = 2;  // cut by a full disk here, not by the program's process: a later try may succeed
    if (!written && header[1] == 0) header[1] = kLacksEnd;
    if (written && header[1] == kLacksEnd) header[1] = 0;
    static_cast<void>(ftruncate(fd_, static_cast<off_t>(kMappedLogHeaderBytes + header[0])) == 0);  // readers obey the size in the header
    std::memcpy(head_, header, sizeof header);
  }

 private:
  int fd_ = -1;
  std::byte* head_ = nullptr;
};

}  // namespace

ThreadEnd complete_thread(const std::string& stem, bool has_truth) {
  ThreadEnd end;
  DeadLog packets(stem + ".pt");
  if (!packets.is_open()) return end;  // the thread could not be recorded, which is counted elsewhere
  end.moment = packets.state().read();
  const Ending ending = ending_of(end.moment.step);
  end.unknown = ending.unknown;
  DeadLog truth(stem + ".truth");
  if (has_truth && truth.is_open()) truth.write_end(end.moment.totals.truth_bytes, ending.truth);
  packets.write_end(end.moment.totals.packet_bytes, ending.packets);
  return end;
}

}  // namespace ptd::emulate
