// ThreadList: the threads that a recording traces.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ptdecode/recording.h"
#include "replay/replay_cursor.h"

namespace ptd::replay {

/// The traced threads that pass a filter, by ThreadKey. A thread that only the flow shows is added when it is seen. At most kMostThreads.
class ThreadList {
 public:
  static constexpr size_t kMostThreads = 1U << 16;

  ThreadList(const Recording& recording, const ReplayFilter& filter);

  struct Thread {
    int32_t pid = -1, tid = -1;
    uint32_t stream = 0;  ///< of flow whose thread is not known
  };
  [[nodiscard]] const std::map<ThreadKey, Thread>& all() const { return threads_; }
  [[nodiscard]] bool contains(ThreadKey key) const { return threads_.contains(key); }
  void see(const ReplayPlace& place);
  /// Returns the processes of the threads, in order.
  [[nodiscard]] std::vector<int32_t> pids() const;
  /// Returns a name for people, at a time: "init (pid 1)".
  [[nodiscard]] std::string name(ThreadKey key, TimeNs when) const;

 private:
  void add(const Context& context, int32_t cpu, uint32_t stream, const ReplayFilter& filter);
  const Recording* recording_;
  std::map<ThreadKey, Thread> threads_;
};

}  // namespace ptd::replay
