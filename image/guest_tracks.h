// What a ContextTrack knows about guests, for a copy of it. Private to the project.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/guest.h"

namespace ptd {

/// A thread of the host, and the guest cpu that it runs.
struct GuestCpuThread {
  int32_t host_tid = -1;
  Guest guest;
};

/// Returns the threads that add_guest_cpu() has added, each once, in the order of the first call.
[[nodiscard]] std::vector<GuestCpuThread> guest_cpu_threads(const ContextTrack& contexts);
/// Returns the guest cpus with a context switch, in the order of their first one. Their processes are not set.
[[nodiscard]] std::vector<Guest> guest_cpus(const ContextTrack& contexts);
/// Returns the context switches of a guest cpu in time order; may be empty. Valid as ContextTrack::switches().
[[nodiscard]] const std::vector<ContextTrack::Switch>& guest_switches(const ContextTrack& contexts, const Guest& guest);

}  // namespace ptd
