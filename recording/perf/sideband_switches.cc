// SidebandFold: which task is on a cpu, and which program it runs. See sideband_fold.h.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "image/guest_tracks.h"
#include "perfio/format/wire.h"
#include "recording/perf/sideband_fold.h"

namespace ptd {
namespace {

constexpr uint16_t kMiscForkExec = 1U << 13;  // PERF_RECORD_MISC_FORK_EXEC: perf's own FORK of a process whose mappings follow
constexpr uint64_t kOfTasks = perfio::kAttrEnableOnExec | perfio::kAttrInherit;  // the event is attached to a program and its threads

}  // namespace

void SidebandFold::set_switch(int32_t cpu, TimeNs time, const Context& to) {
  if (cpu < 0) return;
  cpu_seen_[cpu] = true;
  data_.contexts.add_switch(cpu, time, to);
}

void SidebandFold::add_bad_record(const perfio::Record& record, const std::string& what) {
  Finding finding;
  finding.kind = FindingKind::bad_record;
  finding.time = {TimeNs{record.sample_id.time}, TimeNs{record.sample_id.time}};
  finding.what = what;
  image_.builder.add_finding(std::move(finding));
}

// A task that has ended is -1, and no number is less ([Linux] perf_event_pid_type()). The idle task, and a task of another name space, is 0
// in both numbers; before Linux 4.15, the thread of a task that exits is 0 when it leaves the cpu. An impossible other task becomes
// unknown.
SidebandFold::PossibleTasks SidebandFold::check_numbers(const perfio::Record& record, perfio::SwitchRecord& change) {
  const perfio::SampleId& id = record.sample_id;
  const auto is_possible = [](int32_t pid, int32_t tid, bool leaves) {
    return pid >= -1 && tid >= -1 && (pid < 0 || tid < 0 || (pid == 0) == (tid == 0) || (leaves && tid == 0));
  };
  const PossibleTasks tasks{is_possible(id.pid, id.tid, change.out), is_possible(change.next_prev_pid, change.next_prev_tid, !change.out)};
  if (change.next_prev_pid > 0 && change.next_prev_tid == 0) change.next_prev_tid = -1;
  if (tasks.own && tasks.other) return tasks;
  add_bad_record(record, "context switch of cpu " + std::to_string(id.cpu) + " at file offset " + std::to_string(record.file_offset_bytes) +
                             " names an impossible task, " +
                             (tasks.own ? name_of_task(change.next_prev_pid, change.next_prev_tid) : name_of_task(id.pid, id.tid)) +
                             ": it is not used");
  if (!tasks.other) change.next_prev_pid = change.next_prev_tid = -1;
  return tasks;
}

void SidebandFold::on_switch(const perfio::Record& record, perfio::SwitchRecord change) {
  note_order(record, false);
  if (!record.sample_id.has_time) return;
  const PossibleTasks tasks = check_numbers(record, change);
  for (const int32_t tid : {record.sample_id.tid, change.next_prev_tid}) note_ran(tid, TimeNs{record.sample_id.time});
  const bool has_thread = record.sample_id.pid <= 0 || record.sample_id.tid != 0;
  if (tasks.own && has_thread) return use_switch(record, change, tasks);
  if (!tasks.own && !change.cpu_wide) return;
  perfio::Record other = record;
  other.sample_id.tid = -1;
  if (!tasks.own) other.sample_id.pid = -1;  // tells only the other task
  use_switch(other, change, tasks);
}

// Between OUT of one task and IN of the next only the scheduler runs, so both records say who owns the user half from then on. An OUT that
// does not name the next task leaves the old one in place: what then runs is not traced, and a clock that lags must not lose the way. So
// does an IN of an impossible task: the OUT before it names the one that comes.
void SidebandFold::use_switch(const perfio::Record& record, const perfio::SwitchRecord& change, PossibleTasks tasks) {
  const perfio::SampleId& id = record.sample_id;
  if (change.cpu_wide && id.cpu >= 0) {
    task_switches_.ignore(id.cpu);
    check_switch(record, change);
  }
  if (!change.cpu_wide && per_cpu_) task_switches_.on_switch(record, change.out, attrs_ != nullptr && attrs_->size() == 1);
  const bool first = id.cpu >= 0 && cpu_seen_.find(id.cpu) == cpu_seen_.end();
  if (first && change.out) set_switch(id.cpu, kTimeMin, context_of(id.pid, id.tid));
  if (first && !change.out && change.cpu_wide) set_switch(id.cpu, kTimeMin, context_of(change.next_prev_pid, change.next_prev_tid));
  if (!change.out && tasks.own) set_switch(id.cpu, TimeNs{id.time}, context_of(id.pid, id.tid));
  if (change.out && (!change.cpu_wide || traces_tasks())) add_leave(id.cpu, TimeNs{id.time});
  if (change.out && change.cpu_wide && tasks.other)
    set_switch(id.cpu, TimeNs{id.time}, context_of(change.next_prev_pid, change.next_prev_tid));
}

// Of events that are attached to tasks: the trace of the task stops after this record, and that of the next one starts before its own IN.
void SidebandFold::add_leave(int32_t cpu, TimeNs time) {
  if (per_cpu_ && !is_arm_ && cpu >= 0) data_.contexts.add_leave(cpu, time);
}

bool SidebandFold::traces_tasks() const {
  return attrs_ != nullptr &&
         std::ranges::any_of(*attrs_, [](const perfio::EventAttr& attr) { return (attr.flags & kOfTasks) == kOfTasks; });
}

void SidebandFold::report_task_switches() {
  const bool asked = attrs_ == nullptr || std::ranges::any_of(*attrs_, [](const perfio::EventAttr& attr) {
                       return (attr.flags & perfio::kAttrContextSwitch) != 0;
                     });
  for (TaskSwitches::Doubt& doubt : task_switches_.finish()) {
    if (!stream_of_.contains({doubt.cpu, -1})) continue;
    Finding finding;
    finding.kind = FindingKind::records_lost;
    finding.what = (doubt.has_switches ? "context switches of cpu " : "all context switches of cpu ") + std::to_string(doubt.cpu) +
                   " are missing" +
                   (doubt.has_switches ? ", or one is wrong: "
                    : asked            ? ": "
                                       : ", because no event records them: ") +
                   doubt.what + "; its flow may be given to the wrong thread";
    finding.time = doubt.windows.front();
    for (const Interval& window : doubt.windows) {
      finding.time = hull(finding.time, window);
      image_.builder.add_lost_window(window);
    }
    data_.warnings.push_back(finding.what);
    image_.builder.add_finding(std::move(finding));
  }
}

// OUT and the IN after it name the next thread and the one before, each twice. A thread has the same number when it comes and when it
// leaves, unless it calls exec: then it and the leader of its process exchange their numbers.
void SidebandFold::check_switch_threads(const perfio::Record& record, const LastSwitch& last, const LastSwitch& now) {
  const auto report = [&](int32_t process, int32_t one, int32_t other) {
    if (one <= 0 || other <= 0 || one == other) return false;
    Finding finding;
    finding.kind = FindingKind::bad_record;
    finding.time = {last.time, now.time};
    finding.what = "context switch of cpu " + std::to_string(record.sample_id.cpu) + " at file offset " +
                   std::to_string(record.file_offset_bytes) + " contradicts the one before it: one is of thread " + std::to_string(one) +
                   " of process " + std::to_string(process) + ", the other of thread " + std::to_string(other) +
                   "; its flow may be given to the wrong thread";
    image_.builder.add_finding(std::move(finding));
    return true;
  };
  if (last.out && !now.out && now.pid == last.pid) {
    if (report(now.pid, last.tid, now.tid) || now.other != last.other) return;
    report(now.other, last.other_tid, now.other_tid);
  } else if (!last.out && now.out && now.other == last.pid && now.other_tid != now.other && last.tid != last.pid) {
    report(now.other, last.tid, now.other_tid);
  }
}

// The records of a cpu make a chain: OUT names the next task, IN is of that task or names it as the one before, and OUT is of the task that
// runs. Where it is of another process, records are missing between the two. A kernel that omits both records of a task (Linux 6.18 does,
// of some) leaves a chain through the names of its neighbours. The records of one event alternate: OUT, IN, OUT.
void SidebandFold::check_switch(const perfio::Record& record, const perfio::SwitchRecord& change) {
  const perfio::SampleId& id = record.sample_id;
  const int32_t own = id.pid, cpu = id.cpu;
  const auto [place, is_new] = last_switches_.try_emplace(cpu);
  LastSwitch& last = place->second;
  const TimeNs time{id.time};
  const LastSwitch now = change.out ? LastSwitch{change.next_prev_pid, change.next_prev_tid, own, id.tid, true, time}
                                    : LastSwitch{own, id.tid, change.next_prev_pid, change.next_prev_tid, false, time};
  const auto contradict = [](int32_t one, int32_t other) { return one > 0 && other > 0 && one != other; };
  // Of another event on the same cpu.
  const bool repeated = now.pid == last.pid && now.out == last.out && !contradict(now.other, last.other);
  const bool follows = !change.out && !contradict(last.pid, change.next_prev_pid);
  // An IN that neither is of the task that OUT names nor follows it: also if one is the idle task.
  const bool is_other = last.out && !change.out && last.pid >= 0 && own >= 0 && change.next_prev_pid > 0 && last.pid != own &&
                        last.pid != change.next_prev_pid;
  const bool is_missing = !is_new && !repeated && last.time < now.time && (is_other || (!follows && contradict(last.pid, own)));
  const bool runs = !is_new && !change.out && !last.out && now.pid == last.pid && contradict(now.other, last.other);
  Interval window{last.time, now.time};
  if (!is_new) check_switch_threads(record, last, now);
  bool alternates = true;
  if (id.id != 0 || (attrs_ != nullptr && attrs_->size() == 1)) {
    const auto [of_event, is_first] = last_of_event_.try_emplace({cpu, id.id}, now);
    alternates = is_first || of_event->second.out != now.out;
    if (!alternates) window.first = of_event->second.time;
    of_event->second = now;
  }
  if (is_missing || runs || !alternates) {
    Finding finding;
    finding.kind = FindingKind::records_lost;
    finding.time = window;
    finding.what = "context switches of cpu " + std::to_string(cpu) + " are missing";
    if (is_missing) {
      finding.what += ": process " + std::to_string(last.pid) + " was on it, then process " + std::to_string(own);
    } else {
      finding.what += std::string(", or one has a wrong direction: two in a row ") + (change.out ? "leave it" : "come to it") +
                      ", the second is of process " + std::to_string(own);
    }
    image_.builder.add_lost_window(finding.time);
    image_.builder.add_finding(std::move(finding));
  }
  last = now;
}

// The thread that calls exec has the number of its process from then on, and it is the task that writes the record ([Linux] fs/exec.c,
// begin_new_exec()). So the record names one number four times, and the one that most of them have is right. In doubt it is the trailer's.
void SidebandFold::check_exec(const perfio::Record& record, perfio::CommRecord& comm) {
  const perfio::SampleId& id = record.sample_id;
  std::vector<int32_t> all{comm.pid, comm.tid};
  if (id.pid != -1 || id.tid != -1) all.insert(all.begin(), {id.pid, id.tid});  // the event has PERF_SAMPLE_TID
  const auto named = [&all](int32_t number) { return own_number(number) > 0 ? std::ranges::count(all, number) : 0; };
  const int32_t best = *std::ranges::max_element(all, {}, named);
  if (std::ranges::count(all, best) == std::ssize(all)) return;
  Finding finding;
  finding.kind = FindingKind::bad_record;
  finding.time = {TimeNs{id.time}, TimeNs{id.time}};
  finding.what = "COMM at file offset " + std::to_string(record.file_offset_bytes) + " contradicts itself: thread " +
                 std::to_string(comm.tid) + " of process " + std::to_string(comm.pid) + " starts a program, written by thread " +
                 std::to_string(id.tid) + " of process " + std::to_string(id.pid) + "; taken as process " + std::to_string(best);
  image_.builder.add_finding(std::move(finding));
  comm.pid = comm.tid = best;
}

void SidebandFold::on_comm(const perfio::Record& record, perfio::CommRecord comm) {
  const TimeNs time = record.sample_id.has_time ? TimeNs{record.sample_id.time} : kTimeMin;
  if (comm.exec && record.sample_id.has_time) check_exec(record, comm);
  const bool was_named = data_.comms.contains(comm.pid);
  name_thread(comm.tid, time, comm.comm);
  const perfio::SampleId& writer = record.sample_id;  // the task that runs ([Linux] perf_event_comm_output())
  if (writer.has_time && writer.tid > 0 && writer.tid != comm.tid) note_given_name(comm.tid, time);
  if (comm.exec && comm.pid > 0) {
    programs_.forget(comm.pid);
    const int32_t caller = caller_of_exec(record, comm.pid);
    if (time != kTimeMin) doubt_program_before(comm.pid, caller, was_named, time);
    start_program(comm.pid, time, image_.builder.add_space(machine_of_thread(comm.pid)));
    if (caller > 0) data_.contexts.add_thread(caller, time, context_of(comm.pid, comm.pid));
    if (per_cpu_) task_switches_.on_exec(record);
  } else if (comm.pid > 0 && comm.tid > 0 && pids_.find(comm.tid) == pids_.end()) {
    data_.contexts.add_thread(comm.tid, record.sample_id.has_time ? time : kTimeMin, context_of(comm.pid, comm.tid));
  }
}

// A thread with ITRACE_START was on a cpu at that time.
void SidebandFold::note_ran(int32_t tid, TimeNs time) {
  if (const auto start = started_.find(tid); start != started_.end() && time > start->second.time) start->second.ran = true;
}

// Whether a thread ran before it called exec. Where exec enables the event, the kernel writes ITRACE_START directly before COMM ([Linux]
// begin_new_exec()).
bool SidebandFold::ran_before_exec(int32_t tid, TimeNs time) const {
  constexpr uint64_t kMostNs = 100'000;
  const auto start = started_.find(tid);
  const auto& changes = data_.contexts.thread_changes(tid);
  const bool is_forked = std::ranges::any_of(changes, [](const auto& change) { return change.time != kTimeMin; });
  return start == started_.end() || is_forked || start->second.ran ||
         (time > start->second.time && time.value - start->second.time.value > kMostNs);
}

// A process calls exec, by its thread `caller` if it is not the first one. If no record named it or its mappings before, what ran before is
// unknown: it may have had code where the new program has.
void SidebandFold::doubt_program_before(int32_t pid, int32_t caller, bool was_named, TimeNs time) {
  for (const int32_t tid : {pid, caller}) {
    std::vector<ContextTrack::Switch> changes = data_.contexts.thread_changes(tid);
    if (tid <= 0 || (was_named && !changes.empty()) || (tid == pid && !ran_before_exec(tid, time))) continue;
    if (changes.empty()) changes.push_back({kTimeMin, {pid, tid, kNoSpace}});
    for (const ContextTrack::Switch& change : changes) {
      if (!mapped_.contains(change.to.space)) data_.contexts.add_thread(tid, change.time, {pid, tid, kNoSpace});
    }
  }
}

// The thread that calls exec has another number before it if it is not the first of its process. The cpu's latest switch names it by that
// number, and so does its ring. Of a guest, the cpu is the guest's, and the ring that of a thread of the host. Returns -1 if neither does.
int32_t SidebandFold::caller_of_exec(const perfio::Record& record, int32_t pid) const {
  const RingIndex::Ring* ring = rings_.find(record.sample_id.id);
  const bool of_guest = ring != nullptr && ring->machine_pid > 0;
  if (of_guest && ring->vcpu < 0) return -1;
  const bool has_own_ring = ring != nullptr && ring->cpu < 0 && !of_guest;
  const std::vector<ContextTrack::Switch>& switches =
      of_guest ? guest_switches(data_.contexts, {machine_of_thread(pid), ring->machine_pid, ring->vcpu})
               : data_.contexts.switches(record.sample_id.cpu);
  int32_t tid = -1;
  if (has_own_ring && record.sample_id.pid == pid) tid = ring->tid;
  if (!has_own_ring && !switches.empty() && switches.back().to.pid == pid) tid = switches.back().to.tid;
  return tid == pid ? -1 : tid;
}

// Not the first one, which is also that before it.
void SidebandFold::note_given_name(int32_t tid, TimeNs time) {
  if (data_.comms[tid].size() > 1) data_.given_comms.emplace(tid, time);
}

// Its only thread has the number of the process.
void SidebandFold::start_program(int32_t pid, TimeNs time, SpaceId space) {
  spaces_[pid] = space;
  data_.contexts.add_thread(pid, time, context_of(pid, pid));
  if (time != kTimeMin) program_starts_[pid].push_back({pid, time, space});
}

// The kernel maps a program, then its loader, then the vdso. Returns when the first of these was mapped, kTimeMax if none was.
TimeNs SidebandFold::move_program(int32_t pid, SpaceId from, SpaceId to) {
  const auto is_loader = [](std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return name.starts_with("ld") && name.find(".so") != std::string_view::npos;
  };
  const UserMapping* after = nullptr;  // the one that was mapped next
  for (auto mapping = mappings_.rbegin(); mapping != mappings_.rend(); ++mapping) {
    if (mapping->pid != pid) continue;
    const bool same = after != nullptr && mapping->path == after->path && mapping->file_offset_bytes < after->file_offset_bytes;
    const bool is_program = after != nullptr && mapping->path != after->path && is_loader(after->path) && !is_loader(mapping->path);
    if (mapping->space != from || (after != nullptr && !same && !is_program)) break;
    mapping->space = to;
    after = &*mapping;
  }
  return after == nullptr ? kTimeMax : after->from;
}

// Without the COMM record of exec, its program would be part of the one before it.
void SidebandFold::check_program(const perfio::Record& record, const perfio::MmapRecord& map) {
  TimeNs time = record.sample_id.has_time ? TimeNs{record.sample_id.time} : kTimeMin;
  const std::optional<ProgramStarts::Start> start = programs_.on_mapping(map, time);
  if (!start) return;
  const SpaceId before = space_of(map.pid), space = image_.builder.add_space(machine_of_thread(map.pid));
  if (start->vdso) time = std::min(time, move_program(map.pid, before, space));
  start_program(map.pid, time, space);
  if (const auto names = data_.comms.find(map.pid); names == data_.comms.end() || names->second.back().first != time)
    name_thread(map.pid, time, {});
  Finding finding;
  finding.kind = FindingKind::records_lost;
  finding.time = {time, time};
  finding.what = "process " + std::to_string(map.pid) + " starts a program, as " +
                 (start->vdso ? "its new vdso shows" : "its ITRACE_START record shows") +
                 ", but the COMM record of that is missing: the program's name is not known";
  image_.builder.add_finding(std::move(finding));
}

// A task writes these records itself, so the trailer names it, too. In doubt it is right.
void SidebandFold::check_writer(const perfio::Record& record, const char* type, int32_t& pid, int32_t& tid) {
  const perfio::SampleId& id = record.sample_id;
  if (!id.has_time || id.pid <= 0 || id.tid <= 0 || (pid == id.pid && tid == id.tid)) return;
  add_bad_record(record, std::string(type) + " at file offset " + std::to_string(record.file_offset_bytes) +
                             " contradicts itself: it is of " + name_of_task(pid, tid) + ", written by " + name_of_task(id.pid, id.tid) +
                             "; taken as of the latter");
  pid = id.pid;
  tid = id.tid;
}

void SidebandFold::on_exit(const perfio::Record& record, const perfio::TaskRecord& task) {
  if (per_cpu_ && !is_arm_) task_switches_.on_exit(record);
  const perfio::SampleId& id = record.sample_id;
  if (id.has_time && (traces_tasks() || !data_.contexts.leaves(id.cpu).empty())) add_leave(id.cpu, TimeNs{id.time});
  if (task.pid == task.tid) programs_.forget(task.pid);
  if (task.pid == task.tid && record.sample_id.has_time) ended_[task.pid] = TimeNs{record.sample_id.time};
  if (task.pid > 0 && task.tid > 0 && !pids_.contains(task.tid))
    data_.contexts.add_thread(task.tid, kTimeMin, context_of(task.pid, task.tid));
}

// The kernel writes FORK for the task that runs: a new thread is of its process, and a new process has the number of its only thread, also
// with CLONE_PARENT ([Linux] perf_event_task_output()). The trailer names the task that runs; that of ptdecode's emulator, the new one.
// Returns whether the record can be used; else later records of the task say which process it is of.
bool SidebandFold::check_fork(const perfio::Record& record, perfio::TaskRecord& task) {
  const perfio::SampleId& id = record.sample_id;
  if (task.pid <= 0 || task.ppid <= 0 || task.tid <= 0) return true;
  const bool is_possible = task.pid == task.ppid || task.pid == task.tid;
  const bool is_own = !id.has_time || id.pid <= 0 || id.pid == task.ppid || id.pid == task.pid;
  if (is_possible && is_own) return true;
  add_bad_record(record, "FORK at file offset " + std::to_string(record.file_offset_bytes) + " contradicts itself: process " +
                             std::to_string(task.ppid) + " starts " + name_of_task(task.pid, task.tid) +
                             (is_own ? "" : ", written by process " + std::to_string(id.pid)) + (is_possible ? "" : "; it is not used"));
  if (is_possible && task.pid == task.tid) task.ppid = id.pid;
  return is_possible;
}

// A child starts with what its parent has.
void SidebandFold::on_fork(SpaceId parent, SpaceId child) {
  forks_.add(parent, child);
  anonymous_.fork(parent, child);
  mapped_files_.fork(parent, child);
  writable_code_.fork(parent, child);
  if (jitdump_spaces_.contains(parent)) jitdump_spaces_.insert(child);
  if (mapped_.contains(parent)) mapped_.insert(child);
}

void SidebandFold::on_task(const perfio::Record& record, perfio::TaskRecord task) {
  if (task.exit) {
    check_writer(record, "EXIT", task.pid, task.tid);
    return on_exit(record, task);
  }
  if (task.pid <= 0 || !check_fork(record, task)) return;
  if (record.sample_id.has_time) task_switches_.on_fork(task.tid, TimeNs{record.sample_id.time});
  if (task.pid != task.ppid && task.ppid > 0) parents_[task.pid] = task.ppid;
  if (task.pid != task.ppid) programs_.fork(task.ppid, task.pid);
  const TimeNs time = record.sample_id.has_time ? TimeNs{record.sample_id.time} : TimeNs{task.time};
  const bool synthesized = time == kTimeMin || (record.misc & kMiscForkExec) != 0;
  if (task.pid != task.ppid) {
    if (!synthesized) {
      spaces_[task.pid] =
          task.ppid > 0 ? image_.builder.fork_space(space_of(task.ppid), time) : image_.builder.add_space(machine_of_thread(task.pid));
      program_starts_[task.pid].push_back({task.pid, time, spaces_[task.pid]});
      if (task.ppid > 0) on_fork(space_of(task.ppid), spaces_[task.pid]);
    } else {
      space_of(task.pid);
    }
  }
  pids_[task.tid] = task.pid;
  data_.contexts.add_thread(task.tid, time, context_of(task.pid, task.tid));
  const auto parent = data_.thread_names.find(task.ptid);
  if (!synthesized && parent != data_.thread_names.end()) {
    name_thread(task.tid, time, std::string(parent->second));
    note_given_name(task.tid, time);
  }
}

void SidebandFold::on_itrace_start(const perfio::Record& record, perfio::ItraceStartRecord start) {
  check_writer(record, "ITRACE_START", start.pid, start.tid);
  if (start.pid < 0 || start.tid < 0) return;
  const Context context = context_of(start.pid, start.tid);
  // A trace without times begins with the thread's first program; later ones begin at their records.
  const TimeNs time = record.sample_id.has_time ? TimeNs{record.sample_id.time} : kTimeMax;
  if (start.tid > 0 && started_.try_emplace(start.tid, Start{time}).second) data_.contexts.add_thread(start.tid, kTimeMin, context);
  if (!record.sample_id.has_time) return;
  if (!per_cpu_) programs_.on_start(start.tid, TimeNs{record.sample_id.time});
  if (per_cpu_ && !is_arm_) task_switches_.on_start(record);
  set_switch(record.sample_id.cpu, TimeNs{record.sample_id.time}, context);
  // The stream of one thread is empty until here.
  aux_ends_.push_back({-1, start.tid, 0, AuxBreak::none, true, TimeNs{record.sample_id.time}, 0});
}

void SidebandFold::on_sched_switch(const perfio::Record& record, const perfio::SchedSwitchSample& change) {
  const perfio::SampleId& id = record.sample_id;
  if (!id.has_time) return;
  if (id.cpu >= 0) task_switches_.ignore(id.cpu);
  if (id.cpu >= 0 && cpu_seen_.find(id.cpu) == cpu_seen_.end()) set_switch(id.cpu, kTimeMin, context_of(id.pid, change.prev_tid));
  for (const int32_t tid : {change.prev_tid, change.next_tid}) note_ran(tid, TimeNs{id.time});
  set_switch(id.cpu, TimeNs{record.sample_id.time}, change.next_tid == 0 ? Context{0, 0, kNoSpace} : context_of(-1, change.next_tid));
}

}  // namespace ptd
