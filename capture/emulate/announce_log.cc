// AnnounceLog: see announce_log.h.
#include "capture/emulate/announce_log.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "capture/announce/announce_listener.h"

namespace ptd::emulate {
namespace {

constexpr const char* kLogName = "/announcements";

struct Head {
  uint32_t record_bytes = 0;
  int32_t pid = -1, tid = -1;
  uint32_t reserved = 0;
  uint64_t ticks = 0, mono_ns = 0;
};

// The processes of a program that run. Another program's process may get the number of one that has ended.
class LoggedProcesses {
 public:
  // The logs of each process are named after it: "PID.TSC...".
  std::vector<int32_t> running(const std::string& folder) {
    std::map<int32_t, bool> pids;  // whether it runs
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      int32_t pid = 0;
      const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (bad != std::errc() || pid <= 0 || rest == name.data() + name.size() || *rest != '.' || ended_.contains(name)) continue;
      const auto [place, is_new] = pids.try_emplace(pid);
      if (is_new) place->second = !announce::has_ended(pid);
      if (!place->second) ended_.insert(name);
    }
    std::vector<int32_t> running;
    for (const auto& [pid, runs] : pids) {
      if (runs) running.push_back(pid);
    }
    return running;
  }

 private:
  std::set<std::string> ended_;  // logs
};

}  // namespace

AnnounceWatcher::AnnounceWatcher(const std::string& folder, announce::AnnounceSocket* socket, std::vector<std::string>& troubles)
    : thread_([this, folder, socket, &troubles] { watch(folder, socket, troubles); }) {}

AnnounceWatcher::~AnnounceWatcher() {
  {
    const std::lock_guard hold(lock_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void AnnounceWatcher::watch(const std::string& folder, announce::AnnounceSocket* socket, std::vector<std::string>& troubles) {
  constexpr std::chrono::milliseconds kPause{2};
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen((folder + kLogName).c_str(), "wbe"), std::fclose);
  if (!file) {
    troubles = {folder + kLogName + " cannot be written: nothing that programs announce is recorded"};
    return;
  }
  announce::AnnounceListener listener([&](const announce::Heard& heard) {
    const Head head{static_cast<uint32_t>(heard.record.size()), heard.pid, heard.tid, 0, heard.when.ticks, heard.when.mono_ns};
    (void)std::fwrite(&head, sizeof head, 1, file.get());
    (void)std::fwrite(heard.record.data(), 1, heard.record.size(), file.get());
  });
  LoggedProcesses processes;
  const auto take_offers = [&] {
    if (socket != nullptr) socket->take([&](announce::AnnounceSocket::Offer offer) { listener.take(std::move(offer)); });
  };
  std::unique_lock hold(lock_);
  while (!done_) {
    hold.unlock();
    take_offers();
    listener.look(processes.running(folder));
    const uint64_t heard = listener.drain();
    if (heard != 0 && std::fflush(file.get()) == 0) listener.release();  // a full disk: what is not read is counted as lost
    hold.lock();
    if (heard == 0) (void)changed_.wait_for(hold, kPause, [this] { return done_; });
  }
  hold.unlock();
  take_offers();
  listener.look({});
  listener.stop();
  troubles = listener.troubles();
}

AnnounceLog read_announce_log(const std::string& folder) {
  AnnounceLog log;
  auto file = MappedFile::open(folder + kLogName);
  if (!file.ok()) return log;
  log.data = {*file, (*file)->bytes(), false};
  for (size_t at = 0; log.data.bytes.size() - at >= sizeof(Head);) {
    Head head;
    std::memcpy(&head, log.data.bytes.data() + at, sizeof head);
    at += sizeof head;
    if (head.record_bytes > log.data.bytes.size() - at) break;
    log.entries.push_back({head.pid, head.tid, head.ticks, head.mono_ns, log.data.bytes.subspan(at, head.record_bytes)});
    at += head.record_bytes;
  }
  return log;
}

}  // namespace ptd::emulate
