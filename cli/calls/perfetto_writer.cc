// Perfetto's trace format, written by hand: a few fields of few messages. See call_export.h.
#include <fmt/format.h>

#include <algorithm>

#include "cli/calls/call_export.h"
#include "cli/text/clean_text.h"

namespace ptd::cli {

namespace {

// Field numbers: perfetto/protos/perfetto/trace/{trace,trace_packet,interned_data}.proto, track_event/*.proto.
constexpr unsigned kTracePacket = 1;
constexpr unsigned kPacketTimestamp = 8, kPacketSequence = 10, kPacketTrackEvent = 11, kPacketInterned = 12, kPacketSequenceFlags = 13,
                   kPacketTrackDescriptor = 60;
constexpr unsigned kInternedEventNames = 2, kEventNameId = 1, kEventName = 2;
constexpr unsigned kTrackEventType = 9, kTrackEventNameId = 10, kTrackEventTrack = 11;
constexpr unsigned kDescriptorUuid = 1, kDescriptorName = 2, kDescriptorProcess = 3, kDescriptorThread = 4, kDescriptorParent = 5;
constexpr unsigned kProcessPid = 1, kProcessName = 6, kThreadPid = 1, kThreadTid = 2, kThreadName = 5;
constexpr unsigned kSliceBegin = 1, kSliceEnd = 2, kInstant = 3;
constexpr uint64_t kStateCleared = 1, kNeedsState = 2;
constexpr uint64_t kSequence = 1, kPokeTrack = 1, kProcessTracks = 1ULL << 40, kThreadTracks = 1ULL << 41;

void put_number(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<char>(value | 128));
  out.push_back(static_cast<char>(value));
}

void put(std::string& out, unsigned field, uint64_t value) {
  put_number(out, uint64_t{field} << 3);
  put_number(out, value);
}

void put(std::string& out, unsigned field, std::string_view bytes) {
  put_number(out, uint64_t{field} << 3 | 2);
  put_number(out, bytes.size());
  out.append(bytes);
}

void put_packet(std::string& out, std::string packet, uint64_t flags) {
  put(packet, kPacketSequence, kSequence);
  put(packet, kPacketSequenceFlags, flags);
  put(out, kTracePacket, packet);
}

}  // namespace

void PerfettoWriter::begin_sequence(std::string& out) {
  if (std::exchange(begun_, true)) return;
  put_packet(out, {}, kStateCleared);
}

void PerfettoWriter::describe(uint32_t index, const CallTree& tree, std::string& out) {
  if (!described_.insert(index).second) return;
  const CallThread& thread = tree.threads()[index];
  const int32_t pid = thread.pid < 0 ? thread.tid : thread.pid;
  if (pid > 0 && processes_.insert(pid).second) {
    std::string process, descriptor, packet;
    put(process, kProcessPid, static_cast<uint64_t>(pid));
    put(process, kProcessName, shown(input_.comm(index, tree)));
    put(descriptor, kDescriptorUuid, kProcessTracks + static_cast<uint64_t>(pid));
    put(descriptor, kDescriptorProcess, process);
    put(packet, kPacketTrackDescriptor, descriptor);
    put_packet(out, packet, kNeedsState);
  }
  std::string descriptor, packet;
  put(descriptor, kDescriptorUuid, kThreadTracks + index);
  if (pid > 0) {
    std::string member;
    put(member, kThreadPid, static_cast<uint64_t>(pid));
    put(member, kThreadTid, static_cast<uint64_t>(thread.tid));
    put(member, kThreadName, shown(input_.comm(index, tree)));
    put(descriptor, kDescriptorThread, member);
    put(descriptor, kDescriptorParent, kProcessTracks + static_cast<uint64_t>(pid));
  } else {
    put(descriptor, kDescriptorName, fmt::format("{} (cpu {})", thread.tid == 0 ? "idle" : "unknown thread", thread.cpu));
  }
  put(packet, kPacketTrackDescriptor, descriptor);
  put_packet(out, packet, kNeedsState);
}

uint64_t PerfettoWriter::name_id(const std::string& name, std::string& interned) {
  const auto [place, is_new] = names_.emplace(name, names_.size() + 1);
  if (is_new) {
    std::string entry;
    put(entry, kEventNameId, place->second);
    put(entry, kEventName, shown(name));
    put(interned, kInternedEventNames, entry);
  }
  return place->second;
}

void PerfettoWriter::event(uint64_t track, unsigned type, TimeNs when, const std::string& name, std::string& out) {
  std::string packet, event, interned;
  put(event, kTrackEventType, type);
  put(event, kTrackEventTrack, track);
  if (type != kSliceEnd) put(event, kTrackEventNameId, name_id(name, interned));
  put(packet, kPacketTimestamp, when.value);
  put(packet, kPacketTrackEvent, event);
  if (!interned.empty()) put(packet, kPacketInterned, interned);
  put_packet(out, packet, kNeedsState);
  slices_ += type == kSliceBegin ? 1 : 0;
}

void PerfettoWriter::take(std::span<const CallStep> steps, const CallTree& tree, std::string& out) {
  begin_sequence(out);
  for (const CallStep& step : steps) {
    if (!input_.wanted(step, tree)) continue;
    describe(step.thread, tree, out);
    const uint64_t track = kThreadTracks + step.thread;
    TimeNs& last = last_[step.thread];
    const TimeNs when = std::max(last, step.time);
    last = when;
    switch (step.kind) {
      case CallStepKind::enter:
        event(track, kSliceBegin, when, function_text(input_.functions(), step.function), out);
        break;
      case CallStepKind::leave:
        event(track, kSliceEnd, when, {}, out);
        break;
      case CallStepKind::off:
        if (gaps_as_slices_) last = step.time;  // written, with its reason, when it is over
        break;
      case CallStepKind::on: {
        const uint64_t waits = step.off_cpu_ns + step.untraced_ns + step.lost_ns;
        if (!gaps_as_slices_ || waits == 0) break;
        const char* what = step.lost_ns != 0 ? "[flow lost]" : step.off_cpu_ns >= step.untraced_ns ? "[off cpu]" : "[not traced]";
        event(track, kSliceBegin, std::min(step.start, when), what, out);
        event(track, kSliceEnd, when, {}, out);
        break;
      }
      case CallStepKind::lost:
        event(track, kInstant, when, step.loss == CallLoss::gap ? fmt::format("flow lost: {}", ptd::name(step.gap)) : sentence(step.loss),
              out);
        break;
    }
  }
}

void PerfettoWriter::add_pokes(std::string& out) {
  begin_sequence(out);
  const Timeline& timeline = input_.recording().timeline();
  bool described = false;
  for (SiteId site = 0; site < timeline.site_count(); ++site) {
    const Timeline::SiteInfo info = timeline.site(site);
    for (uint32_t version = 1; version < info.versions; ++version) {
      const Interval possible = timeline.version(site, version).possible;
      if (possible.first == kTimeMin) continue;
      if (!std::exchange(described, true)) {
        std::string descriptor, packet;
        put(descriptor, kDescriptorUuid, kPokeTrack);
        put(descriptor, kDescriptorName, "changes of code");
        put(packet, kPacketTrackDescriptor, descriptor);
        put_packet(out, packet, kNeedsState);
      }
      const auto symbol = input_.recording().symbolizer().find(info.space, info.ip, possible.first);
      event(kPokeTrack, kInstant, possible.first,
            symbol ? fmt::format("{}+{:#x}", symbol->name, symbol->offset_bytes) : fmt::format("{:#x}", info.ip.value), out);
    }
  }
}

}  // namespace ptd::cli
