// EventSet: see event_set.h.
#include "capture/live/events/event_set.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "capture/live/kernel/start_scan.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

constexpr size_t index_of(RingRole role) { return static_cast<size_t>(role); }

/// Every thread takes a descriptor on every cpu.
void allow_many_files() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &files);
}

EventSpec target_spec(const TargetChoice& target, const RingSizes& sizes) {
  EventSpec spec;
  spec.exclude_kernel = spec.exclude_hv = true;  // of the event's own samples, of which there are none
  spec.tasks = spec.build_ids = spec.switches = spec.namespaces = true;
  spec.inherit = target.inherit && !target.everything && !target.per_thread;
  spec.wake_bytes = sizes.target_pages * 4096U / 4;
  return spec;
}

std::string kernel_release() {
  utsname system{};
  return uname(&system) == 0 ? system.release : "";
}

EventSpec kernel_spec() {
  EventSpec spec;
  spec.exclude_kernel = spec.exclude_hv = true;
  spec.ksymbols = spec.bpf = spec.text_pokes = true;
  spec.wake_bytes = 1;  // BPF programs and trampolines may be gone soon
  return spec;
}

}  // namespace

bool says_trace_was_cut(Bytes record) {
  constexpr uint64_t kTruncated = 1;  // PERF_AUX_FLAG_TRUNCATED
  if (record.size() < kRecordHeaderBytes || read_record_header(record).type != kRecordAux) return false;
  Cursor body(record.subspan(kRecordHeaderBytes));
  body.skip(16);  // offset, size
  return (body.u64() & kTruncated) != 0 && body.ok();
}

std::optional<uint64_t> EventRings::lost_total() const {
  uint64_t total = 0;
  const auto add = [&total](const LiveEvent& event) {
    const std::optional<uint64_t> lost = event.lost();
    total += lost.value_or(0);
    return lost.has_value();
  };
  for (const LiveEvent& event : events) {
    if (!add(event)) return std::nullopt;
  }
  for (const auto& [event, choice] : companions) {
    if (!add(event)) return std::nullopt;
  }
  return total;
}

std::vector<uint64_t> EventRings::ids() const {
  std::vector<uint64_t> ids;
  for (const LiveEvent& event : events) ids.push_back(event.id());
  for (const auto& [event, choice] : companions) ids.push_back(event.id());
  return ids;
}

Result<EventSet> EventSet::open(const EventChoice& choice) {
  allow_many_files();
  EventSet set;
  set.choice_ = choice;
  set.cpus_ = choice.target.cpus.empty() ? online_cpus() : choice.target.cpus;
  set.specs_[index_of(RingRole::target)] = target_spec(choice.target, choice.sizes);
  set.specs_[index_of(RingRole::target)].switches = choice.switches;
  set.specs_[index_of(RingRole::kernel)] = kernel_spec();
  if (choice.trace) {
    EventSpec& spec = set.specs_[index_of(RingRole::trace)];
    spec = choice.trace->event;
    spec.disabled = true;
    spec.enable_on_exec = choice.target.waiting_command >= 0;
    spec.inherit = choice.target.inherit && !choice.target.everything && !choice.target.per_thread;
  }
  for (EventSpec& spec : set.specs_) spec.losses = true;
  if (Status status = set.open_kernel(); !status) return status.error();
  if (Status status = set.open_target(); !status) return status.error();
  set.collect_attrs();
  return set;
}

Status EventSet::map_ring(EventRings& rings) const {
  const RingSizes& sizes = choice_.sizes;
  const uint32_t pages = rings.role == RingRole::target   ? sizes.target_pages
                         : rings.role == RingRole::kernel ? sizes.kernel_pages
                                                          : sizes.trace_pages;
  Result<std::unique_ptr<EventRing>> ring = EventRing::map(rings.events.front().fd(), pages);
  if (!ring) return ring.error();
  rings.ring = std::move(*ring);
  if (rings.role != RingRole::trace) return {};
  Result<std::unique_ptr<AuxRing>> aux = AuxRing::map(rings.events.front().fd(), *rings.ring, sizes.aux_bytes, choice_.trace->mode);
  if (!aux) {
    if (aux.error().kind() != ErrorKind::unsupported) return aux.error();
    return Error{ErrorCode::no_hardware, choice_.trace->name + " only counts and cannot trace: it has no AUX area", 0};
  }
  rings.aux = std::move(*aux);
  return {};
}

Status EventSet::map_again() {
  for (EventRings& rings : rings_) {  // nothing is mapped there any more, and nothing new yet
    rings.aux.reset();
    rings.ring.reset();
  }
  for (EventRings& rings : rings_) {
    if (Status status = map_ring(rings); !status) return status;
  }
  return {};
}

/// Opens the events of a trace's group.
Status EventSet::add_companions(const LiveEvent& leader, const EventTarget& target, EventRings& rings) {
  for (size_t i = 0; i < choice_.trace->companions.size(); ++i) {
    const CounterEvent& wanted = choice_.trace->companions[i];
    EventSpec spec = wanted.spec;
    spec.inherit = specs_[index_of(RingRole::trace)].inherit;
    spec.losses = specs_[index_of(RingRole::trace)].losses;
    int number = 0;
    Result<LiveEvent> event = LiveEvent::open(spec, {target.tid, target.cpu, leader.fd()}, &number);
    if (!event) return Error{event.error().code, "record: " + why_refused(wanted, choice_.trace->name, number, kernel_release()), 0};
    if (Status status = event->send_to(rings.events.front()); !status) return status;
    rings.companions.emplace_back(std::move(*event), i);
  }
  return {};
}

/// Opens an event; it gets its own ring, or shares that of its role and cpu.
Status EventSet::add_event(RingRole role, const EventTarget& target) {
  EventSpec& spec = specs_[index_of(role)];
  refused_ = 0;
  Result<LiveEvent> event =
      known_[index_of(role)] ? LiveEvent::open(spec, target, &refused_) : LiveEvent::open_what_is_known(spec, target, without_, &refused_);
  if (!event && spec.aux_action != 0)
    return Error{event.error().code, "record: " + why_refused({spec, choice_.trace->name}, choice_.trace->name, refused_, kernel_release()),
                 0};
  if (!event) return event.error();
  known_[index_of(role)] = true;
  if (role == RingRole::trace && !choice_.trace->filter.empty()) {
    if (Status status = event->set_filter(choice_.trace->filter); !status) return status;
  }
  if (target.cpu >= 0) {
    for (EventRings& rings : rings_) {
      if (rings.role != role || rings.cpu != target.cpu) continue;
      if (Status status = event->send_to(rings.events.front()); !status) return status;
      rings.events.push_back(std::move(*event));
      rings.ended.push_back(false);
      return role == RingRole::trace ? add_companions(rings.events.back(), target, rings) : Status();
    }
  }
  EventRings rings;
  rings.role = role;
  rings.cpu = target.cpu;
  rings.tid = target.cpu >= 0 ? -1 : target.tid;
  rings.events.push_back(std::move(*event));
  rings.ended.push_back(false);
  if (Status status = map_ring(rings); !status) return status;
  if (role == RingRole::trace) {
    if (Status status = add_companions(rings.events.front(), target, rings); !status) return status;
  }
  rings_.push_back(std::move(rings));
  return {};
}

Status EventSet::open_kernel() {
  for (const int32_t cpu : online_cpus()) {
    const Status status = add_event(RingRole::kernel, {-1, cpu});
    if (status.ok()) continue;
    without_.push_back("changes of the kernel's code are not recorded (KSYMBOL, BPF_EVENT, TEXT_POKE): " + status.error().message);
    std::erase_if(rings_, [](const EventRings& rings) { return rings.role == RingRole::kernel; });
    break;
  }
  return {};
}

Status EventSet::open_target() {
  if (!choice_.target.everything) return attach_all();
  for (const int32_t cpu : cpus_) {
    if (Status status = add_event(RingRole::target, {-1, cpu}); !status) return status;
    if (!choice_.trace) continue;
    if (Status status = add_event(RingRole::trace, {-1, cpu}); !status) return status;
  }
  return {};
}

Status EventSet::open_thread(int32_t tid) {
  std::vector<int32_t> cpus = cpus_;
  if (choice_.target.per_thread) cpus = {-1};
  for (const int32_t cpu : cpus) {
    if (Status status = add_event(RingRole::target, {tid, cpu}); !status) return status;
    if (!choice_.trace) continue;
    if (Status status = add_event(RingRole::trace, {tid, cpu}); !status) return status;
  }
  return {};
}

std::vector<int32_t> EventSet::wanted_threads() const {
  const TargetChoice& target = choice_.target;
  if (target.everything) return {};
  std::vector<int32_t> tids = target.tids;
  if (target.waiting_command >= 0) tids.push_back(target.waiting_command);
  for (const int32_t pid : target.pids) {
    for (const int32_t process : target.tree ? list_tree(pid) : std::vector<int32_t>{pid}) {
      const std::vector<int32_t> threads = list_threads(process);
      tids.insert(tids.end(), threads.begin(), threads.end());
    }
  }
  std::sort(tids.begin(), tids.end());
  tids.erase(std::unique(tids.begin(), tids.end()), tids.end());
  return tids;
}

/// Threads whose FORK is in a ring: their parent had its events, so they have inherited them.
std::vector<int32_t> EventSet::told_threads() {
  std::vector<int32_t> tids;
  for (EventRings& rings : rings_) {
    if (rings.role != RingRole::target) continue;
    const uint64_t from = rings.ring->position();
    (void)rings.ring->read([&](Bytes record) {
      if (read_record_header(record).type != kRecordFork) return;
      Cursor body(record.subspan(kRecordHeaderBytes));
      body.skip(8);  // pid, ppid
      tids.push_back(body.i32());
    });
    rings.ring->seek(from);
  }
  return tids;
}

/// Threads may start while others are attached: looks again until there is none that is new and did not inherit.
Status EventSet::attach_all() {
  constexpr int kMaxRounds = 64;
  std::set<int32_t> known;
  size_t attached = 0;
  Status last;
  for (int round = 0; round < kMaxRounds; ++round) {
    // The list of threads is read before the rings: otherwise a thread that starts in between gets its events twice, and where threads
    // start all the time no round would end without a new one.
    const std::vector<int32_t> wanted = wanted_threads();
    if (specs_[index_of(RingRole::target)].inherit) {
      for (const int32_t tid : told_threads()) known.insert(tid);
    }
    bool fresh = false;
    for (const int32_t tid : wanted) {
      if (!known.insert(tid).second) continue;
      fresh = true;
      const Status status = open_thread(tid);
      attached += status.ok() ? 1 : 0;
      if (status.ok()) continue;
      last = status;
      // A thread that has ended is visible until its parent has read its status.
      if (refused_ != ESRCH && process_of(tid) >= 0) return status;
    }
    if (!fresh) break;
  }
  if (attached != 0) return {};
  return last.ok() ? Status(Error{ErrorCode::no_such_thread, "nothing to record: no such process or thread", 0}) : last;
}

void EventSet::collect_attrs() {
  for (const RingRole role : {RingRole::trace, RingRole::target, RingRole::kernel}) {
    EventAttr attr = file_attr(specs_[index_of(role)], role == RingRole::trace && choice_.trace ? choice_.trace->name : "dummy:u");
    for (const EventRings& rings : rings_) {
      if (rings.role != role) continue;
      for (const LiveEvent& event : rings.events) attr.ids.push_back(event.id());
    }
    if (attr.ids.empty()) continue;
    attr_index_[index_of(role)] = static_cast<int32_t>(attrs_.size());
    attrs_.push_back(std::move(attr));
  }
  for (size_t i = 0; choice_.trace && i < choice_.trace->companions.size(); ++i) {
    EventAttr attr = file_attr(choice_.trace->companions[i].spec, choice_.trace->companions[i].name);
    for (const EventRings& rings : rings_) {
      for (const auto& [event, number] : rings.companions) {
        if (number == i) attr.ids.push_back(event.id());
      }
    }
    attrs_.push_back(std::move(attr));
  }
}

void EventSet::enable_trace() const {
  for (const EventRings& rings : rings_) {
    if (rings.role != RingRole::trace) continue;
    for (const LiveEvent& event : rings.events) event.enable();
  }
}

void EventSet::restart_ring(size_t index) const {
  for (const LiveEvent& event : rings_[index].events) event.restart();
}

void EventSet::disable_trace() const {
  for (const EventRings& rings : rings_) {
    if (rings.role != RingRole::trace) continue;
    for (const LiveEvent& event : rings.events) event.disable();
  }
}

void EventSet::disable_all() const {
  for (const EventRings& rings : rings_) {
    for (const LiveEvent& event : rings.events) event.disable();
  }
}

bool EventSet::wait(const std::vector<int>& more, std::vector<bool>& ready, int timeout_ms) {
  std::vector<pollfd> fds;
  for (const int fd : more) fds.push_back({fd, POLLIN, 0});
  for (const EventRings& rings : rings_) {
    for (size_t i = 0; i < rings.events.size(); ++i) fds.push_back({rings.ended[i] ? -1 : rings.events[i].fd(), POLLIN, 0});
  }
  ready.assign(more.size(), false);
  if (poll(fds.data(), fds.size(), timeout_ms) <= 0) return false;
  for (size_t i = 0; i < more.size(); ++i) ready[i] = fds[i].revents != 0;
  bool woken = false;
  size_t at = more.size(), left = 0;
  for (EventRings& rings : rings_) {
    for (size_t i = 0; i < rings.events.size(); ++i, ++at) {
      // poll() reports an event whose threads have all ended again and again: it is not polled any more.
      const bool ended = (fds[at].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
      woken = woken || ended || (fds[at].revents & POLLIN) != 0;
      rings.ended[i] = rings.ended[i] || ended;
      left += rings.role == RingRole::target && !rings.ended[i] ? 1 : 0;
    }
  }
  ended_ = left == 0;
  return woken;
}

}  // namespace ptd::live
