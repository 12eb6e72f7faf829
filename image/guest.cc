// Guests in a ContextTrack: its tracks with numbers below kGuestCpus, one entry each that says which guest it is, or switches of guest
// cpus.
//
//   kByMachine - machine            -> {pid of the host process, -1, kernel space of the guest}
//   kByProcess - pid                -> the same; pid 0: the guest of all other processes
//   kByThread - tid                 -> {pid, vcpu, kernel space}
//   kByCpu - (machine << 16 | vcpu) -> switches of that guest cpu
//   kThreads                        -> {tid, -1, no space} for each track of kByThread
//   kCpus                           -> {machine, vcpu, no space} for each track of kByCpu
#include <algorithm>

#include "image/guest_tracks.h"

namespace ptd {
namespace {

constexpr int32_t kByMachine = -0x0800'0000, kByProcess = -0x1000'0000, kByThread = -0x2000'0000, kByCpu = -0x4000'0000;
constexpr int32_t kThreads = kByMachine + 1, kCpus = kByMachine + 2;
constexpr int32_t kMostCpus = 1 << 16;
constexpr int32_t kIdleNumbers = 256;  // the highest numbers of a guest's threads are its idle tasks, one for each cpu
constexpr int32_t kFirstIdle = (1 << kGuestThreadBits) - kIdleNumbers;
static_assert(kByMachine < kGuestCpus && kCpus <= kGuestCpus);

int32_t key_of_cpu(const Guest& guest) {
  return kByCpu - static_cast<int32_t>(guest.machine << 16U) - std::clamp(guest.vcpu, 0, kMostCpus - 1);
}
int32_t idle_of(int32_t cpu) { return kFirstIdle + std::max(cpu, 0) % kIdleNumbers; }

// Whether a process or thread of the host can have this number. Files may have any.
bool is_number(int32_t number) { return number > 0 && number < 1 << kGuestThreadBits; }

bool find(const ContextTrack& contexts, int32_t key, Guest& guest) {
  const std::vector<ContextTrack::Switch>& track = contexts.switches(key);
  if (track.empty()) return false;
  const Context& entry = track.back().to;
  guest = {machine_of(entry.space), entry.pid, entry.tid};
  return true;
}

void put(ContextTrack& contexts, int32_t key, const Guest& guest) {
  contexts.add_switch(key, kTimeMin, {guest.pid, guest.vcpu, kernel_of_machine(guest.machine)});
}

}  // namespace

int32_t own_number(int32_t number) {
  const uint32_t machine = machine_of_thread(number);
  if (machine == 0) return number;
  const auto own = static_cast<int32_t>(static_cast<uint32_t>(number) & ((1U << kGuestThreadBits) - 1));
  return own >= kFirstIdle ? 0 : own;
}

void add_guest(ContextTrack& contexts, const Guest& guest) {
  put(contexts, kByMachine - static_cast<int32_t>(guest.machine), guest);
  if (guest.pid <= 0 || is_number(guest.pid)) put(contexts, kByProcess - std::max(guest.pid, 0), guest);
}

void add_guest_cpu(ContextTrack& contexts, int32_t host_tid, const Guest& guest) {
  if (!is_number(host_tid)) return;
  if (contexts.switches(kByThread - host_tid).empty()) contexts.add_switch(kThreads, kTimeMin, {host_tid, -1, kNoSpace});
  put(contexts, kByThread - host_tid, guest);
}

void add_guest_switch(ContextTrack& contexts, const Guest& guest, TimeNs time, Context to) {
  if (own_number(to.tid) == 0) to.tid = thread_of_machine(guest.machine, idle_of(guest.vcpu));
  if (to.space == kNoSpace) to.space = kernel_of_machine(guest.machine);
  const int32_t key = key_of_cpu(guest);
  if (contexts.switches(key).empty()) contexts.add_switch(kCpus, kTimeMin, {static_cast<int32_t>(guest.machine), guest.vcpu, kNoSpace});
  contexts.add_switch(key, time, to);
}

std::vector<Guest> guests_of(const ContextTrack& contexts) {
  std::vector<Guest> all;
  Guest guest;
  for (uint32_t machine = 1; machine <= kUnknownGuest; ++machine) {
    if (find(contexts, kByMachine - static_cast<int32_t>(machine), guest)) all.push_back(guest);
  }
  return all;
}

std::vector<GuestCpuThread> guest_cpu_threads(const ContextTrack& contexts) {
  std::vector<GuestCpuThread> all;
  for (const ContextTrack::Switch& known : contexts.switches(kThreads)) {
    GuestCpuThread thread{known.to.pid, {}};
    if (is_number(thread.host_tid) && find(contexts, kByThread - thread.host_tid, thread.guest)) all.push_back(thread);
  }
  return all;
}

std::vector<Guest> guest_cpus(const ContextTrack& contexts) {
  std::vector<Guest> all;
  for (const ContextTrack::Switch& known : contexts.switches(kCpus)) {
    const auto machine = static_cast<uint32_t>(known.to.pid);
    if (machine != 0 && machine <= kUnknownGuest) all.push_back({machine, 0, known.to.tid});
  }
  return all;
}

const std::vector<ContextTrack::Switch>& guest_switches(const ContextTrack& contexts, const Guest& guest) {
  return contexts.switches(key_of_cpu(guest));
}

Guest guest_run_by(const ContextTrack& contexts, const Context& host) {
  Guest guest;
  if (is_number(host.tid) && find(contexts, kByThread - host.tid, guest)) return guest;
  if (is_number(host.pid) && find(contexts, kByProcess - host.pid, guest)) return guest;
  if (find(contexts, kByProcess, guest)) return guest;
  return {kUnknownGuest, std::max(host.pid, 0), -1};
}

Context context_in_guest(const ContextTrack& contexts, const Context& host, int32_t cpu, TimeNs time) {
  const Guest guest = guest_run_by(contexts, host);
  if (guest.vcpu >= 0) {
    const Context known = contexts.at_cpu(key_of_cpu(guest), time);
    if (known.space != kNoSpace) return known;
  }
  const int32_t own = host.tid > 0 ? host.tid : idle_of(cpu);
  return {thread_of_machine(guest.machine, 0), thread_of_machine(guest.machine, own), kernel_of_machine(guest.machine)};
}

}  // namespace ptd
