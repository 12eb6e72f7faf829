// SidebandFold: which task is on a cpu, and which program it runs. See sideband_fold.h.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "recording/perf/sideband_fold.h"

namespace ptd {

void SidebandFold::set_switch(int32_t cpu, TimeNs time, const Context& to) {
  if (cpu < 0) return;
  cpu_seen_[cpu] = true;
  data_.contexts.add_switch(cpu, time, to);
}

// Between OUT of one task and IN of the next only the scheduler runs, so both records say who owns the user half from then on. An OUT that
// does not name the next task leaves the old one in place: what then runs is not traced, and a clock that lags must not lose the way.
void SidebandFold::on_switch(const perfio::Record& record, const perfio::SwitchRecord& change) {
  note_order(record, false);
  const perfio::SampleId& id = record.sample_id;
  if (!id.has_time) return;
  if (change.cpu_wide && id.cpu >= 0) check_switch(record, change);
  const bool first = id.cpu >= 0 && cpu_seen_.find(id.cpu) == cpu_seen_.end();
  if (first && change.out) set_switch(id.cpu, kTimeMin, context_of(id.pid, id.tid));
  if (first && !change.out && change.cpu_wide) set_switch(id.cpu, kTimeMin, context_of(change.next_prev_pid, change.next_prev_tid));
  if (!change.out) {
    set_switch(id.cpu, TimeNs{record.sample_id.time}, context_of(id.pid, id.tid));
  } else if (change.cpu_wide) {
    set_switch(id.cpu, TimeNs{record.sample_id.time}, context_of(change.next_prev_pid, change.next_prev_tid));
  }
}

// OUT and the IN after it name the next thread and the one before, each twice. A thread has the same number when it comes and when it leaves, unless it
// calls exec: then it and the leader of its process exchange their numbers.
void SidebandFold::check_switch_threads(const perfio::Record& record, const LastSwitch& last, const LastSwitch& now) {
  const auto report = [&](int32_t process, int32_t one, int32_t other) {
    if (one <= 0 || other <= 0 || one == other) return false;
    Finding finding;
    finding.kind = FindingKind::bad_record;
    finding.time = {last.time, now.time};
    finding.what = "context switch of cpu " + std::to_string(record.sample_id.cpu) + " at file offset " + std::to_string(record.file_offset_bytes) +
                   " contradicts the one before it: one is of thread " + std::to_string(one) + " of process " + std::to_string(process) +
                   ", the other of thread " + std::to_string(other) + "; its flow may be given to the wrong thread";
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
// runs. Where it is of another process, records are missing between the two. A kernel that omits both records of a task (Linux 6.18 does, of some)
// leaves a chain through the names of its neighbours. The records of one event alternate: OUT, IN, OUT.
void SidebandFold::check_switch(const perfio::Record& record, const perfio::SwitchRecord& change) {
  const perfio::SampleId& id = record.sample_id;
  const int32_t own = id.pid, cpu = id.cpu;
  const auto [place, is_new] = last_switches_.try_emplace(cpu);
  LastSwitch& last = place->second;
  const TimeNs time{id.time};
  const LastSwitch now = change.out ? LastSwitch{change.next_prev_pid, change.next_prev_tid, own, id.tid, true, time}
                                    : LastSwitch{own, id.tid, change.next_prev_pid, change.next_prev_tid, false, time};
  const auto contradict = [](int32_t one, int32_t other) { return one > 0 && other > 0 && one != other; };
  const bool repeated = now.pid == last.pid && now.out == last.out && !contradict(now.other, last.other);  // of another event on the same cpu
  const bool follows = !change.out && !contradict(last.pid, change.next_prev_pid);
  const bool is_missing = !is_new && !repeated && !follows && last.time < now.time && contradict(last.pid, own);
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
      finding.what += std::string(", or one has a wrong direction: two in a row ") + (change.out ? "leave it" : "come to it") + ", the second is of process " +
                      std::to_string(own);
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
  finding.what = "COMM at file offset " + std::to_string(record.file_offset_bytes) + " contradicts itself: thread " + std::to_string(comm.tid) +
                 " of process " + std::to_string(comm.pid) + " starts a program, written by thread " + std::to_string(id.tid) + " of process " +
                 std::to_string(id.pid) + "; taken as process " + std::to_string(best);
  image_.builder.add_finding(std::move(finding));
  comm.pid = comm.tid = best;
}

void SidebandFold::on_comm(const perfio::Record& record, perfio::CommRecord comm) {
  const TimeNs time = record.sample_id.has_time ? TimeNs{record.sample_id.time} : kTimeMin;
  if (comm.exec && record.sample_id.has_time) check_exec(record, comm);
  name_thread(comm.tid, time, comm.comm);
  if (comm.exec && comm.pid > 0) {
    spaces_[comm.pid] = image_.builder.add_space(machine_of_thread(comm.pid));
    data_.contexts.add_thread(comm.tid, time, context_of(comm.pid, comm.tid));
  } else if (comm.pid > 0 && comm.tid > 0 && pids_.find(comm.tid) == pids_.end()) {
    data_.contexts.add_thread(comm.tid, record.sample_id.has_time ? time : kTimeMin, context_of(comm.pid, comm.tid));
  }
}

void SidebandFold::on_sched_switch(const perfio::Record& record, const perfio::SchedSwitchSample& change) {
  const perfio::SampleId& id = record.sample_id;
  if (!id.has_time) return;
  if (id.cpu >= 0 && cpu_seen_.find(id.cpu) == cpu_seen_.end()) set_switch(id.cpu, kTimeMin, context_of(id.pid, change.prev_tid));
  set_switch(id.cpu, TimeNs{record.sample_id.time}, change.next_tid == 0 ? Context{0, 0, kNoSpace} : context_of(-1, change.next_tid));
}

}  // namespace ptd
