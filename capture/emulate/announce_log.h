// AnnounceLog: what emulated programs announced, in the working folder.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "capture/announce/announce_socket.h"
#include "capture/emulate/user_output.h"
#include "ptdecode/types.h"

namespace ptd::emulate {

/// Listens to the processes of a recording on a thread of its own, from construction to destruction.
class AnnounceWatcher {
 public:
  /// `socket`: where programs offer their rings; null: they are found in /proc. `troubles`: gets sentences on rings that were not read,
  /// when it ends.
  AnnounceWatcher(const std::string& folder, announce::AnnounceSocket* socket, std::vector<std::string>& troubles);
  ~AnnounceWatcher();
  AnnounceWatcher(const AnnounceWatcher&) = delete;
  AnnounceWatcher& operator=(const AnnounceWatcher&) = delete;

 private:
  void watch(const std::string& folder, announce::AnnounceSocket* socket, std::vector<std::string>& troubles);
  std::mutex lock_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

/// An announcement, or a record of the listener.
struct LoggedAnnouncement {
  int32_t pid = -1, tid = -1;
  uint64_t ticks = 0, mono_ns = 0;
  Bytes record;  ///< views the log
};
struct AnnounceLog {
  LogData data;
  std::vector<LoggedAnnouncement> entries;
};
/// Returns what was logged, up to where the log is damaged; empty if there is none.
[[nodiscard]] AnnounceLog read_announce_log(const std::string& folder);

}  // namespace ptd::emulate
