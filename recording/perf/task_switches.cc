// TaskSwitches: see task_switches.h.
#include "recording/perf/task_switches.h"

#include <algorithm>
#include <utility>

namespace ptd {
namespace {

constexpr uint64_t kMostSkewNs = 1'000'000;  // by which records of two cpus, or of a start and its IN, may differ

bool is_much_later(TimeNs time, TimeNs than) { return time.value > than.value && time.value - than.value > kMostSkewNs; }

}  // namespace

// Null if the record does not say which task runs where.
TaskSwitches::Cpu* TaskSwitches::cpu_of(const perfio::Record& record) {
  const perfio::SampleId& id = record.sample_id;
  if (!id.has_time || id.cpu < 0) return nullptr;
  Cpu& cpu = cpus_[id.cpu];
  cpu.doubt.cpu = id.cpu;
  forget_lost(cpu);
  if (cpu.is_ignored) return nullptr;
  if (id.tid > 0 && id.pid > 0 && TimeNs{id.time} >= cpu.since) return &cpu;
  forget(cpu);  // of another name space, or not in order
  cpu.since = std::max(cpu.since, TimeNs{id.time});
  return nullptr;
}

TaskSwitches::Seen TaskSwitches::seen_in(const perfio::Record& record) {
  const perfio::SampleId& id = record.sample_id;
  return {{id.pid, id.tid}, TimeNs{id.time}};
}

void TaskSwitches::set(Cpu& cpu, State state, const Seen& seen) {
  Life& life = lives_[seen.task.tid];
  life.cpu = state == State::on ? cpu.doubt.cpu : -1;
  (state == State::on ? life.on : life.from) = seen.time;
  life.ended = state == State::ended;
  cpu.task = seen.task;
  cpu.state = state;
  cpu.since = seen.time;
}

// A thread that called exec has the number of its process.
bool TaskSwitches::is_same(const Cpu& cpu, const Task& task) const {
  if (task.tid == cpu.task.tid) return true;
  const auto leader = lives_.find(task.pid);
  return task.pid == cpu.task.pid && task.tid == task.pid && (leader == lives_.end() || leader->second.ended);
}

void TaskSwitches::doubt(Cpu& cpu, const Seen& seen, const std::string& what) {
  cpu.doubt.windows.push_back({cpu.since, seen.time});
  if (cpu.doubts++ == 0) cpu.doubt.what = what;
}

std::string TaskSwitches::latest_of(const Cpu& cpu) {
  return name_of_task(cpu.task.pid, cpu.task.tid) + (cpu.state == State::ended ? " ended on it"
                                                     : cpu.state == State::off ? " left it"
                                                                               : " was on it");
}

// The task came to the cpu without a record, after the latest record of the cpu and after its own start. If another task was there then,
// the time is unknown.
void TaskSwitches::assign(Cpu& cpu, const Seen& seen) {
  if (cpu.state == State::unknown) return;
  const auto life = lives_.find(seen.task.tid);
  const TimeNs from = life == lives_.end() ? cpu.since : std::clamp(life->second.from, cpu.since, seen.time);
  const bool is_free = cpu.state != State::on;
  if (is_free) {
    runs_(cpu.doubt.cpu, from, seen.task.pid, seen.task.tid);
  } else {
    runs_(cpu.doubt.cpu, from, seen.task.pid == cpu.task.pid ? seen.task.pid : -1, -1);
    runs_(cpu.doubt.cpu, seen.time, seen.task.pid, seen.task.tid);
  }
}

// Decides about an AUX record of a task that was not on the cpu. `in`: the IN record that follows, null for another record.
void TaskSwitches::settle(Cpu& cpu, const Seen* in) {
  if (!std::exchange(cpu.is_early, false)) return;
  const Seen early = cpu.early;
  if (in != nullptr && in->task.tid == early.task.tid && !is_much_later(in->time, early.time)) return;
  doubt(cpu, early, latest_of(cpu) + ", then " + name_of_task(early.task.pid, early.task.tid) + " runs there");
  assign(cpu, early);
  set(cpu, State::on, early);
}

void TaskSwitches::on_in(Cpu& cpu, const Seen& seen, bool is_of_event) {
  settle(cpu, &seen);
  const auto life = lives_.find(seen.task.tid);
  if (life != lives_.end() && life->second.ended && seen.task.tid != seen.task.pid) {
    doubt(cpu, seen, name_of_task(seen.task.pid, seen.task.tid) + " comes to it after its end");
  } else if (cpu.state == State::on && !is_same(cpu, seen.task)) {
    doubt(cpu, seen, latest_of(cpu) + ", then " + name_of_task(seen.task.pid, seen.task.tid) + " comes to it");
  } else if (cpu.state == State::on && is_of_event) {
    doubt(cpu, seen, "two in a row come to it, of " + name_of_task(seen.task.pid, seen.task.tid));
  }
  set(cpu, State::on, seen);
}

void TaskSwitches::on_out(Cpu& cpu, const Seen& seen, bool is_of_event) {
  settle(cpu, nullptr);
  const auto life = lives_.find(seen.task.tid);
  const bool same = is_same(cpu, seen.task);
  const bool elsewhere =
      life != lives_.end() && life->second.cpu >= 0 && life->second.cpu != cpu.doubt.cpu && is_much_later(seen.time, life->second.on);
  if (cpu.state == State::on && !same) {
    doubt(cpu, seen, latest_of(cpu) + ", then " + name_of_task(seen.task.pid, seen.task.tid) + " leaves it");
    assign(cpu, seen);
  } else if ((cpu.state == State::off || cpu.state == State::ended) && (!same || (cpu.state == State::off && is_of_event))) {
    doubt(cpu, seen, "two in a row leave it, the second is " + name_of_task(seen.task.pid, seen.task.tid));
    assign(cpu, seen);
  } else if (cpu.state == State::on && elsewhere) {
    doubt(cpu, seen, name_of_task(seen.task.pid, seen.task.tid) + " leaves it after it came to cpu " + std::to_string(life->second.cpu));
  }
  const bool ended = cpu.state == State::ended && same;
  set(cpu, ended ? State::ended : State::off, seen);
}

void TaskSwitches::on_switch(const perfio::Record& record, bool out, bool is_only_event) {
  Cpu* cpu = cpu_of(record);
  if (cpu == nullptr) return;
  const perfio::SampleId& id = record.sample_id;
  const Seen seen = seen_in(record);
  const bool is_of_event = cpu->is_of_event && cpu->event == id.id && (id.id != 0 || is_only_event);
  out ? on_out(*cpu, seen, is_of_event) : on_in(*cpu, seen, is_of_event);
  cpu->event = id.id;
  cpu->is_of_event = cpu->has_switches = true;
}

// Another task than the latest of the cpu.
void TaskSwitches::on_seen(Cpu& cpu, const Seen& seen) {
  if (cpu.state == State::unknown) return set(cpu, State::on, seen);
  if (cpu.is_early && (cpu.early.task.tid != seen.task.tid || is_much_later(seen.time, cpu.early.time))) settle(cpu, nullptr);
  if (cpu.is_early || is_same(cpu, seen.task)) return;
  cpu.early = seen;
  cpu.is_early = true;
}

void TaskSwitches::on_aux(const perfio::Record& record) {
  if (Cpu* cpu = cpu_of(record)) on_seen(*cpu, seen_in(record));
}

void TaskSwitches::on_start(const perfio::Record& record) {
  Cpu* cpu = cpu_of(record);
  if (cpu == nullptr) return;
  const Seen seen = seen_in(record);
  settle(*cpu, nullptr);
  if (cpu->state == State::on && !is_same(*cpu, seen.task)) {
    doubt(*cpu, seen, latest_of(*cpu) + ", then the trace of " + name_of_task(seen.task.pid, seen.task.tid) + " starts");
  }
  set(*cpu, State::on, seen);
  cpu->is_of_event = false;
}

void TaskSwitches::on_exit(const perfio::Record& record) {
  Cpu* cpu = cpu_of(record);
  if (cpu == nullptr) return;
  const Seen seen = seen_in(record);
  on_seen(*cpu, seen);
  settle(*cpu, nullptr);
  set(*cpu, State::ended, seen);
}

void TaskSwitches::on_exec(const perfio::Record& record) {
  Cpu* cpu = cpu_of(record);
  if (cpu == nullptr) return;
  const perfio::SampleId& id = record.sample_id;
  const Seen seen = seen_in(record);
  settle(*cpu, nullptr);
  const bool renames = cpu->state == State::on && cpu->task.pid == id.pid;
  if (renames && cpu->task.tid == id.tid) return;
  if (renames) {
    runs_(id.cpu, seen.time, id.pid, id.tid);
  } else if (cpu->state != State::unknown) {
    doubt(*cpu, seen, latest_of(*cpu) + ", then " + name_of_task(id.pid, id.tid) + " calls exec there");
    assign(*cpu, seen);
  }
  set(*cpu, State::on, seen);
}

void TaskSwitches::on_lost(int32_t cpu) {
  if (cpu < 0) ++losses_of_all_;
  if (const auto found = cpus_.find(cpu); found != cpus_.end()) forget(found->second);
}

void TaskSwitches::forget(Cpu& cpu) {
  cpu.state = State::unknown;
  cpu.is_early = false;
}

void TaskSwitches::forget_lost(Cpu& cpu) const {
  if (std::exchange(cpu.losses_of_all, losses_of_all_) != losses_of_all_) forget(cpu);
}

std::vector<TaskSwitches::Doubt> TaskSwitches::finish() {
  std::vector<Doubt> doubts;
  for (auto& [number, cpu] : cpus_) {
    if (cpu.is_ignored) continue;
    forget_lost(cpu);
    settle(cpu, nullptr);
    if (cpu.doubts == 0) continue;
    if (cpu.doubts > 1) cpu.doubt.what += "; and " + std::to_string(cpu.doubts - 1) + " more";
    cpu.doubt.has_switches = cpu.has_switches;
    doubts.push_back(std::move(cpu.doubt));
  }
  return doubts;
}

}  // namespace ptd
