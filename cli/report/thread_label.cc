// How reports name a thread: see thread_label.h.
#include "cli/report/thread_label.h"

#include "ptdecode/guest.h"

namespace ptd::cli {

std::string thread_label(const Recording& recording, int32_t tid) {
  if (tid == 0) return "swapper";
  if (tid < 0) return "thread not known";
  const auto known = recording.thread_names().find(tid);
  std::string name = known == recording.thread_names().end() ? std::string() : known->second;
  if (name.empty() && machine_of_thread(tid) != 0) name = recording.comm_at(tid, kTimeMax);
  return (name.empty() ? "?" : name) + " " + std::to_string(own_number(tid));
}

}  // namespace ptd::cli
