// SidebandFold: which task is on a cpu. See sideband_fold.h.
#include <string>
#include <utility>

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

// The records of a cpu make a chain: OUT names the next task, IN is of that task or names it as the one before, and OUT is of the task that
// runs. Where it is of another process, records are missing between the two. Threads are not compared: the thread that calls exec takes the
// leader's number. A kernel that omits both records of a task (Linux 6.18 does, of some) leaves a chain through the names of its neighbours.
void SidebandFold::check_switch(const perfio::Record& record, const perfio::SwitchRecord& change) {
  const int32_t own = record.sample_id.pid, cpu = record.sample_id.cpu;
  const auto [place, is_new] = last_switches_.try_emplace(cpu);
  LastSwitch& last = place->second;
  const LastSwitch now{change.out ? change.next_prev_pid : own, change.out, TimeNs{record.sample_id.time}};
  const bool repeated = now.pid == last.pid && now.out == last.out;  // of another event on the same cpu
  const auto contradict = [](int32_t one, int32_t other) { return one > 0 && other > 0 && one != other; };
  const bool follows = !change.out && !contradict(last.pid, change.next_prev_pid);
  if (!is_new && !repeated && !follows && last.time < now.time && contradict(last.pid, own)) {
    Finding finding;
    finding.kind = FindingKind::records_lost;
    finding.time = {last.time, now.time};
    finding.what = "context switches of cpu " + std::to_string(cpu) + " are missing: process " + std::to_string(last.pid) +
                   " was on it, then process " + std::to_string(own);
    image_.builder.add_lost_window(finding.time);
    image_.builder.add_finding(std::move(finding));
  }
  last = now;
}

void SidebandFold::on_sched_switch(const perfio::Record& record, const perfio::SchedSwitchSample& change) {
  const perfio::SampleId& id = record.sample_id;
  if (!id.has_time) return;
  if (id.cpu >= 0 && cpu_seen_.find(id.cpu) == cpu_seen_.end()) set_switch(id.cpu, kTimeMin, context_of(id.pid, change.prev_tid));
  set_switch(id.cpu, TimeNs{record.sample_id.time}, change.next_tid == 0 ? Context{0, 0, kNoSpace} : context_of(-1, change.next_tid));
}

}  // namespace ptd
