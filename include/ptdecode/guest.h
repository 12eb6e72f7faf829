// Guests: the virtual machines of a host's recording, and how their address spaces, threads and cpus are numbered.
//
//   space   0 1 2 ...                  of the host: 0 is its kernel
//           kGuest | m << 23 | n       of guest m: n == 0 is its kernel
//   thread  0 ... 2^22 - 1             of the host (the kernel's PID_MAX_LIMIT)
//           m << 22 | own number       of guest m
//   cpu     0 1 2 ...                  of the host
//           below kGuestCpus           of guests, in a ContextTrack: see image/guest.cc
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/context_track.h"
#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd {

/// Machine 0 is the host. A guest of which the recording has no code is kUnknownGuest.
inline constexpr uint32_t kMostGuests = 62, kUnknownGuest = 63;
/// Below all cpus of the host: tracks of guests in a ContextTrack, which ContextTrack::cpus() leaves out.
inline constexpr int32_t kGuestCpus = -0x0400'0000;
inline constexpr uint32_t kGuestBit = 1U << 29;
inline constexpr uint32_t kGuestSpaceBits = 23, kGuestThreadBits = 22;

/// Returns the machine that a space is of; 0, the host, for kNoSpace.
constexpr uint32_t machine_of(SpaceId space) {
  return space == kNoSpace || (space.value & kGuestBit) == 0 ? 0 : (space.value >> kGuestSpaceBits) & kUnknownGuest;
}
/// Returns space number `index` of a machine; 0 is its kernel.
constexpr SpaceId space_of_machine(uint32_t machine, uint32_t index) {
  return SpaceId{machine == 0 ? index : kGuestBit | machine << kGuestSpaceBits | index};
}
constexpr SpaceId kernel_of_machine(uint32_t machine) { return space_of_machine(machine, 0); }
/// Returns true for the kernel of the host or of a guest.
constexpr bool is_kernel_space(SpaceId space) { return space == kernel_of_machine(machine_of(space)); }
/// Returns the space that `ip` belongs to where `space` is the user space: addresses of the kernel half are the kernel's of the same
/// machine.
constexpr SpaceId space_at(SpaceId space, Ip ip) { return is_kernel_half(ip) ? kernel_of_machine(machine_of(space)) : space; }

/// Returns the machine of a thread or process number; 0 for the host and for unknown threads (-1).
constexpr uint32_t machine_of_thread(int32_t number) { return number < 0 ? 0 : static_cast<uint32_t>(number) >> kGuestThreadBits; }
/// Returns the number in this recording of a machine's thread or process. Negative numbers stay as they are.
constexpr int32_t thread_of_machine(uint32_t machine, int32_t own) {
  return own < 0 ? own : static_cast<int32_t>(machine << kGuestThreadBits | (static_cast<uint32_t>(own) & ((1U << kGuestThreadBits) - 1)));
}
/// Returns the number of a thread or process on its own machine. Idle tasks of a guest, one for each cpu, are 0.
PTD_API int32_t own_number(int32_t number);

/// A guest, and the cpu of it that a host thread runs.
struct Guest {
  uint32_t machine = 0;  ///< 0: none
  int32_t pid = 0;       ///< of the host process that runs it; 0: any
  int32_t vcpu = -1;     ///< -1: unknown
};

/// Sets the process that runs a guest, 0 for a guest that any process may run which no other guest names.
PTD_API void add_guest(ContextTrack& contexts, const Guest& guest);
/// Sets the guest cpu that a host thread runs.
PTD_API void add_guest_cpu(ContextTrack& contexts, int32_t host_tid, const Guest& guest);
/// Adds a context switch of a guest cpu. `to` has the recording's numbers.
PTD_API void add_guest_switch(ContextTrack& contexts, const Guest& guest, TimeNs time, Context to);
/// Returns the guests that were added, by machine.
[[nodiscard]] PTD_API std::vector<Guest> guests_of(const ContextTrack& contexts);
/// Returns the guest that the host thread runs; machine kUnknownGuest if none was added for it.
[[nodiscard]] PTD_API Guest guest_run_by(const ContextTrack& contexts, const Context& host);
/// Returns the thread of the guest that the host thread runs at `time`. Without records of the guest's context switches, all of a guest cpu
/// is one thread, whose number is that of the host thread. `cpu` is the host's.
[[nodiscard]] PTD_API Context context_in_guest(const ContextTrack& contexts, const Context& host, int32_t cpu, TimeNs time);

}  // namespace ptd
