// How reports name threads and address spaces: see thread_label.h.
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

int32_t process_of_guest(const Recording& recording, uint32_t machine) {
  for (const Guest& guest : guests_of(recording.contexts())) {
    if (guest.machine == machine) return guest.pid;
  }
  return 0;
}

std::string space_label(const Recording& recording, SpaceId space) {
  const uint32_t machine = machine_of(space);
  std::string own = is_kernel_space(space) ? "kernel" : "mm" + std::to_string(space.value - kernel_of_machine(machine).value);
  if (machine == 0) return own;
  const int32_t pid = process_of_guest(recording, machine);
  return (pid > 0 ? "VM:" + std::to_string(pid) + " " : "VM ") + own;
}

}  // namespace ptd::cli
