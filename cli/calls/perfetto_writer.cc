// Perfetto's trace format, written by hand: a few fields of few messages. See call_export.h.
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "cli/calls/call_export.h"
#include "cli/calls/perfetto_fields.h"
#include "cli/text/clean_text.h"

namespace ptd::cli {

namespace {

std::string fibre_text(const CallThread& thread, const std::string& comm) {
  const std::string of = comm.empty() ? "" : " of " + comm;
  if (thread.fibre == kUnknownFibre) return fmt::format("unknown fibre{} (tid {})", of, thread.tid);
  return fmt::format("fibre {}{} (pid {})", thread.fibre, of, thread.pid);
}

}  // namespace

void PerfettoWriter::begin_sequence(std::string& out) {
  if (std::exchange(begun_, true)) return;
  std::string packet, interned;
  const auto name = [&interned](uint64_t id, std::string_view text) {
    std::string entry;
    put(entry, kEventNameId, id);
    put(entry, kEventName, text);
    put(interned, kInternedAnnotationNames, entry);
  };
  name(kFoldedNameId, "shorter calls");
  name(kEstimatedNameId, "estimated times");
  put(packet, kPacketInterned, interned);
  put_packet(out, packet, kStateCleared);
}

void PerfettoWriter::describe(uint32_t index, const CallTree& tree, std::string& out) {
  if (!described_.insert(index).second) return;
  const CallThread& thread = tree.threads()[index];
  const int32_t pid = thread.pid < 0 ? thread.tid : thread.pid;
  if (pid > 0 && processes_.insert(pid).second) {
    std::string process, descriptor, packet;
    put(process, kProcessPid, static_cast<uint64_t>(pid));
    put(process, kProcessName, shown(input_.comm(index, tree)));
    put(descriptor, kDescriptorUuid, process_track(pid));
    put(descriptor, kDescriptorProcess, process);
    put(packet, kPacketTrackDescriptor, descriptor);
    put_packet(out, packet, kNeedsState);
  }
  std::string descriptor, packet;
  put(descriptor, kDescriptorUuid, thread_track(index));
  if (thread.fibre != 0) {
    put(descriptor, kDescriptorName, fibre_text(thread, shown(input_.comm(index, tree))));
    if (pid > 0) put(descriptor, kDescriptorParent, process_track(pid));
  } else if (pid > 0) {
    std::string member;
    put(member, kThreadPid, static_cast<uint64_t>(pid));
    put(member, kThreadTid, static_cast<uint64_t>(thread.tid));
    put(member, kThreadName, shown(input_.comm(index, tree)));
    put(descriptor, kDescriptorThread, member);
    put(descriptor, kDescriptorParent, process_track(pid));
  } else {
    put(descriptor, kDescriptorName, fmt::format("{} (cpu {})", thread.tid == 0 ? "swapper" : "unknown thread", thread.cpu));
  }
  put(packet, kPacketTrackDescriptor, descriptor);
  put_packet(out, packet, kNeedsState);
}

uint64_t PerfettoWriter::name_id(const std::string& name) {
  const auto [place, is_new] = names_.emplace(name, names_.size() + 1);
  if (is_new) {
    std::string entry;
    put(entry, kEventNameId, place->second);
    put(entry, kEventName, shown(name));
    put(interned_, kInternedEventNames, entry);
  }
  return place->second;
}

uint64_t PerfettoWriter::name_id(FunctionId function) {
  if (function == kNoFunction) return name_id(function_text(input_.functions(), function));
  if (function >= function_names_.size()) function_names_.resize(input_.functions().size());
  uint64_t& id = function_names_[function];
  if (id == 0) id = name_id(function_text(input_.functions(), function));
  return id;
}

void PerfettoWriter::event(uint64_t track, unsigned type, TimeNs when, uint64_t name, std::string& out, const Notes& notes) {
  event_.clear();
  put(event_, kTrackEventType, type);
  put(event_, kTrackEventTrack, track);
  if (type != kSliceEnd) put(event_, kTrackEventNameId, name);
  const auto annotate = [this](uint64_t id, uint64_t value) {
    if (value == 0) return;
    std::string note;
    put(note, kAnnotationNameId, id);
    put(note, kAnnotationUint, value);
    put(event_, kTrackEventAnnotation, note);
  };
  annotate(kFoldedNameId, notes.folded);
  annotate(kEstimatedNameId, notes.estimated ? 1 : 0);
  packet_.clear();
  put(packet_, kPacketTimestamp, when.value);
  put(packet_, kPacketTrackEvent, event_);
  if (!interned_.empty()) put(packet_, kPacketInterned, interned_);
  interned_.clear();
  put_packet(out, packet_, kNeedsState);
  slices_ += type == kSliceBegin ? 1 : 0;
}

template <typename Value>
void PerfettoWriter::count(uint64_t track, TimeNs when, Value value, std::string& out) {
  std::string packet, event;
  put(event, kTrackEventType, kCounter);
  put(event, kTrackEventTrack, track);
  if constexpr (std::is_floating_point_v<Value>) {
    put_double(event, kTrackEventDouble, value);
  } else {
    put(event, kTrackEventCounter, value);
  }
  put(packet, kPacketTimestamp, when.value);
  put(packet, kPacketTrackEvent, event);
  put_packet(out, packet, kNeedsState);
}

template void PerfettoWriter::count(uint64_t track, TimeNs when, uint64_t value, std::string& out);
template void PerfettoWriter::count(uint64_t track, TimeNs when, double value, std::string& out);

// Writes the instructions per cycle of each thread that ran in the steps taken, for the time since its previous value. A value applies
// until the next one. A 0 ends the last one.
void PerfettoWriter::add_ipc(const CallTree& tree, std::string& out) {
  constexpr uint64_t kShortest = 10'000;
  for (uint32_t index = 0; index < threads_.size(); ++index) {
    Thread& thread = threads_[index];
    const CallThread& now = tree.threads()[index];
    if (!std::exchange(thread.ran, false) && !tree.finished()) continue;
    const TimeNs since = std::max(thread.counted_to, now.first);
    const bool due = tree.finished() || (since < now.last && now.last.value - since.value >= std::max(min_ns_, kShortest));
    if (!due || now.cycles <= thread.cycles || now.instructions < thread.instructions) continue;
    const std::string whose = now.fibre == 0 ? fmt::format("tid {}", now.tid) : fibre_text(now, "");
    const uint64_t track = track_of("instructions per cycle, " + whose, true, out);
    count(track, since, static_cast<double>(now.instructions - thread.instructions) / static_cast<double>(now.cycles - thread.cycles), out);
    if (tree.finished()) count(track, now.last, 0.0, out);
    thread.counted_to = now.last;
    thread.instructions = now.instructions;
    thread.cycles = now.cycles;
  }
}

// A call is as long as any call in it, so where one has a slice, all that are open have one. They begin in the order of their depth:
// viewers nest slices that begin at one time as they are written.
void PerfettoWriter::begin_open(uint64_t track, Thread& thread, std::string& out) {
  for (; thread.begun < thread.open.size(); ++thread.begun) {
    Call& call = thread.open[thread.begun];
    event(track, kSliceBegin, call.begin, name_id(call.function), out);
  }
}

void PerfettoWriter::leave(uint64_t track, Thread& thread, const CallStep& step, TimeNs when, std::string& out) {
  if (thread.open.empty()) return;
  if (thread.begun == thread.open.size() || step.total_ns() >= min_ns_) begin_open(track, thread, out);
  const Call call = thread.open.back();
  const bool has_slice = thread.begun == thread.open.size();
  thread.open.pop_back();
  thread.begun = std::min(thread.begun, thread.open.size());
  if (has_slice) return event(track, kSliceEnd, when, 0, out, {call.folded, (step.flags & kCallEstimated) != 0});
  ++folded_;
  if (!thread.open.empty()) thread.open.back().folded += call.folded + 1;
}

void PerfettoWriter::go_on(uint64_t track, Thread& thread, const CallStep& step, TimeNs when, std::string& out) {
  const uint64_t waits = step.off_cpu_ns + step.untraced_ns + step.lost_ns;
  const TimeNs begin = std::min(step.start, when);
  if (waits == 0 || when.value - begin.value < min_ns_) return;
  begin_open(track, thread, out);
  const char* what = step.lost_ns != 0 ? "[flow lost]" : step.off_cpu_ns >= step.untraced_ns ? "[off cpu]" : "[not traced]";
  event(track, kSliceBegin, begin, name_id(what), out);
  event(track, kSliceEnd, when, 0, out, {0, (step.flags & kCallEstimated) != 0});
}

void PerfettoWriter::take(std::span<const CallStep> steps, const CallTree& tree, std::string& out) {
  begin_sequence(out);
  for (const CallStep& step : steps) {
    const bool undated = step.time == kTimeMin || (step.kind == CallStepKind::leave && (step.flags & kCallUndated) != 0);
    if (undated || !input_.wanted(step, tree)) continue;
    describe(step.thread, tree, out);
    const uint64_t track = thread_track(step.thread);
    if (step.thread >= threads_.size()) threads_.resize(size_t{step.thread} + 1);
    Thread& thread = threads_[step.thread];
    const TimeNs when = std::max(thread.last, step.time);
    thread.last = when;
    thread.ran = true;
    switch (step.kind) {
      case CallStepKind::enter:
        thread.open.push_back({step.function, when});
        if (min_ns_ == 0) begin_open(track, thread, out);
        break;
      case CallStepKind::leave:
        leave(track, thread, step, when, out);
        break;
      case CallStepKind::off:
        thread.last = step.time;  // written, with its reason, when it is over
        break;
      case CallStepKind::on:
        go_on(track, thread, step, when, out);
        break;
      case CallStepKind::lost:
        event(track, kInstant, when,
              name_id(step.loss == CallLoss::gap ? fmt::format("flow lost: {}", ptd::name(step.gap)) : sentence(step.loss)), out);
        break;
    }
  }
  add_ipc(tree, out);
}

}  // namespace ptd::cli
