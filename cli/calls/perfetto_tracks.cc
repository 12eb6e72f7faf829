// PerfettoWriter: the tracks beside those of threads. See call_export.h.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/table/row_reader.h"
#include "cli/calls/call_export.h"
#include "cli/calls/perfetto_fields.h"
#include "cli/options/thread_filters.h"
#include "image/mapped_kind.h"

namespace ptd::cli {

namespace {

constexpr size_t kTrackPieceBytes = size_t{1} << 20;
enum : size_t { kTime, kCpu, kPid, kTid, kName, kPayload };

std::string where(const RowReader& row) {
  return row.has(kCpu) ? fmt::format("cpu {}", row.number(kCpu, 0)) : fmt::format("tid {}", row.number(kTid, 0));
}

}  // namespace

uint64_t PerfettoWriter::track_of(const std::string& name, bool counter, std::string& out) {
  const auto [place, is_new] = tracks_.emplace(name, other_track(tracks_.size()));
  if (!is_new) return place->second;
  std::string descriptor, packet;
  put(descriptor, kDescriptorUuid, place->second);
  put(descriptor, kDescriptorName, name);
  if (counter) put(descriptor, kDescriptorCounter, std::string_view());
  put(packet, kPacketTrackDescriptor, descriptor);
  put_packet(out, packet, kNeedsState);
  return place->second;
}

bool PerfettoWriter::is_wanted(TimeNs when) const {
  const std::vector<Interval>& times = input_.filter().times;
  return times.empty() || times.front().contains(when);
}

void PerfettoWriter::change(const CodeChange& at, std::string& out) {
  if (at.when == kTimeMin || at.when == kTimeMax) return;
  if (!is_wanted(at.when)) return;
  const ScriptOptions& filter = input_.filter();
  const auto pid = pids_.find(at.space.value);
  if (at.space != kKernelSpace && !among(filter.pids, pid == pids_.end() ? -1 : pid->second)) return;
  const std::string whose = pid == pids_.end() ? "" : fmt::format(", pid {}", pid->second);
  const auto symbol = input_.recording().symbolizer().find(at.space, at.ip, at.named);
  const std::string name = !symbol ? fmt::format("{:#x}", at.ip.value) : fmt::format("{}+{:#x}", symbol->name, symbol->offset_bytes);
  event(track_of("changes of code" + whose, false, out), kInstant, at.when, name_id(at.what + name), out);
}

void PerfettoWriter::add_pokes(std::string& out) {
  begin_sequence(out);
  const Timeline& timeline = input_.recording().timeline();
  const ContextTrack& contexts = input_.recording().contexts();
  const auto know = [this](const std::vector<ContextTrack::Switch>& switches) {
    for (const ContextTrack::Switch& each : switches) {
      if (each.to.space != kNoSpace && each.to.space != kKernelSpace && each.to.pid >= 0) pids_.emplace(each.to.space.value, each.to.pid);
    }
  };
  for (const int32_t tid : contexts.threads()) know(contexts.thread_changes(tid));
  for (const int32_t cpu : contexts.cpus()) know(contexts.switches(cpu));
  for (SiteId site = 0; site < timeline.site_count(); ++site) {
    const Timeline::SiteInfo info = timeline.site(site);
    for (uint32_t version = 1; version < info.versions; ++version) {
      const TimeNs when = timeline.version(site, version).possible.first;
      change({info.space, info.ip, when, when, ""}, out);
    }
  }
  constexpr uint64_t kPageBytes = 4096;
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    // Of a file, or of memory whose code other sections have.
    const bool is_mapping = (section.ip.value | section.size_bytes) % kPageBytes == 0;
    if (section.space == kKernelSpace || (is_mapping && (!is_generated_code(section.path) || section.code.bytes.empty()))) continue;
    const TimeNs first = section.live.first, last = section.live.last;
    const auto is_free = [&](TimeNs when) { return timeline.section_at(section.space, section.ip, when) == kNoSection; };
    change({section.space, section.ip, first, first, first > kTimeMin && is_free(TimeNs{first.value - 1}) ? "load " : ""}, out);
    if (last < kTimeMax && is_free(TimeNs{last.value + 1})) change({section.space, section.ip, last, first, "unload "}, out);
  }
}

void PerfettoWriter::add_modules(std::string& out) {
  begin_sequence(out);
  const Timeline& timeline = input_.recording().timeline();
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (section.space != kKernelSpace || section.path.empty()) continue;
    const auto add = [&](TimeNs when, const char* what) {
      if (when != kTimeMin && when != kTimeMax && is_wanted(when))
        event(track_of("modules and BPF programs", false, out), kInstant, when, name_id(fmt::format("{} {}", what, section.path)), out);
    };
    add(section.live.first, "load");
    add(section.live.last, "unload");
  }
}

// Returns the frequency in MHz for a ratio of 1 ([SDM] "CBR Packet": the nominal ratio is that of the TSC); 0 if it is not known.
double PerfettoWriter::megahertz_per_ratio() const {
  const pt::Config& config = input_.recording().decoder_options().config;
  constexpr uint64_t kTicks = 1'000'000'000;
  if (config.max_nonturbo_ratio == 0 || !config.time.valid()) return 0;
  const uint64_t ns = config.time.duration_ns(kTicks);
  return ns == 0 ? 0 : 1000.0 * kTicks / static_cast<double>(ns) / config.max_nonturbo_ratio;
}

Status PerfettoWriter::add_events(const std::function<bool(std::string&)>& write) {
  std::string out;
  begin_sequence(out);
  const ScriptOptions& filter = input_.filter();
  for (const char* table : {"gaps", "events"}) {
    const bool gaps = std::string_view(table) == "gaps";
    TableRequest request;
    request.columns = {"time_ns", "cpu", "pid", "tid", gaps ? "reason" : "event"};
    if (!gaps) request.columns.emplace_back("payload");
    if (!filter.times.empty()) request.time = filter.times.front();
    request.cancelled = interrupted;
    Result<std::unique_ptr<Table>> opened = open_table(input_.recording(), table, request);
    if (!opened) return opened.error();
    RowReader row(std::move(*opened));
    for (;;) {
      const Result<bool> more = row.next();
      if (!more) return more.error();
      if (!more.value()) break;
      const auto passes = [&row](const auto& wanted, size_t column) { return among(wanted, static_cast<int32_t>(row.number(column, -1))); };
      if (!row.has(kTime) || !passes(filter.cpus, kCpu) || !passes(filter.pids, kPid) || !passes(filter.tids, kTid)) continue;
      const TimeNs when{static_cast<uint64_t>(row.number(kTime, 0))};
      const std::string_view name = row.text(kName);
      const auto payload = gaps ? 0 : static_cast<uint64_t>(row.number(kPayload, 0));
      if (gaps) {
        event(track_of("gaps", false, out), kInstant, when, name_id(fmt::format("{}, {}", name, where(row))), out);
      } else if (name == "ptwrite") {
        count(track_of(fmt::format("PTWRITE, tid {}", row.number(kTid, 0)), true, out), when, payload, out);
      } else if (name == "cbr") {
        const double unit = megahertz_per_ratio();
        if (unit != 0) {
          count(track_of("frequency in MHz, " + where(row), true, out), when, static_cast<double>(payload & 0xff) * unit, out);
        } else {
          count(track_of("frequency ratio, " + where(row), true, out), when, payload & 0xff, out);
        }
      } else if (name == "pwre" || name == "pwrx") {  // [SDM] "PWRE Packet": the state that is resolved; after PWRX, C0
        count(track_of("C-state, " + where(row), true, out), when, name == "pwre" ? payload >> 12 & 0xf : 0, out);
      }
      if (out.size() < kTrackPieceBytes) continue;
      if (!write(out)) return {};
      out.clear();
    }
  }
  write(out);
  return {};
}

}  // namespace ptd::cli
