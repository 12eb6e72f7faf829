// Finds the anchors of an opened recording: scans its packets around kernel patches.
#include <algorithm>
#include <utility>

#include "ptdecode/guest.h"
#include "recording/data/recording_data.h"
#include "recording/trace/anchors.h"

namespace ptd {
namespace {

/// The rounds of a change are passed within this time of its record: the one who patches waits for every cpu.
constexpr uint64_t kAroundRecordNs = 50'000'000;
/// Where records are nearer to each other than this, what lies between them is looked at too.
constexpr uint64_t kTogetherNs = 4 * kAroundRecordNs;

// Of a long trace only what surrounds the records is worth a look, in order and apart from each other; of a short one all is.
std::vector<Interval> times_of_patching(const RecordingData& data) {
  uint64_t total = 0;
  for (const AuxStream& stream : data.streams) total += stream.size_bytes();
  if (total <= kWholeTraceBytes || !data.timing.use_time) return {Interval{}};
  std::vector<TimeNs> times;
  for (const PokeStamp& poke : data.pokes) times.push_back(poke.time);
  std::sort(times.begin(), times.end());
  std::vector<Interval> windows;
  for (const TimeNs time : times) {
    if (windows.empty() || windows.back().last.value + kTogetherNs < time.value) {
      windows.push_back({TimeNs{time.value - std::min(time.value, kAroundRecordNs)}, {}});
    }
    windows.back().last = TimeNs{time.value + std::min(kAroundRecordNs, kTimeMax.value - time.value)};
  }
  return windows;
}

/// Returns the addresses of a function in the host's kernel, not in those of guests.
std::vector<Ip> host_addresses(const RecordingData& data, const char* name) {
  std::vector<Ip> addresses = data.symbolizer->addresses_of(name);
  if (guests_of(data.contexts).empty()) return addresses;
  std::erase_if(addresses, [&](Ip ip) {
    const std::vector<std::string> names = data.symbolizer->names_at(kKernelSpace, ip, kTimeMax);
    return std::ranges::find(names, name) == names.end();
  });
  return addresses;
}

}  // namespace

void find_kernel_places(RecordingData& data) {
  const std::vector<Ip> entries = host_addresses(data, kSwitchFunctions[0]);
  if (!entries.empty()) data.decoder.switch_entry = entries.front();
  for (const char* name : kSwitchFunctions) {
    if (entries.empty()) break;
    for (const Ip ip : host_addresses(data, name)) {
      const std::optional<Symbol> function = data.symbolizer->find(kKernelSpace, ip, kTimeMax);
      if (!is_kernel_half(ip) || !function || function->start != ip || function->size_bytes == 0) continue;
      data.decoder.after_switch.push_back({ip, Ip{ip.value + function->size_bytes - 1}});
    }
  }
  const auto has_switches = [&](int32_t cpu) { return data.contexts.switches(cpu).size() > 1; };
  data.decoder.time_switches = entries.empty() && data.event_names.trace('k') && std::ranges::any_of(data.contexts.cpus(), has_switches);
}

void add_anchors(const OpenRequest& options, RecordingData& data) {
  if (!options.anchors || options.freeze || data.pokes.empty() || data.streams.empty()) return;
  const std::vector<Ip> syncs = host_addresses(data, "do_sync_core");
  const std::vector<Ip> writes = host_addresses(data, "perf_event_text_poke_output");
  if (syncs.empty() || writes.empty()) return;
  std::vector<AnchorStream> found(data.streams.size());
  std::vector<std::byte> scratch;
  const std::vector<Interval> windows = times_of_patching(data);
  for (size_t s = 0; s < data.streams.size(); ++s) {
    if (data.infos[s].cpu < 0) return;  // rounds can be counted on cpus only
    found[s].cpu = data.infos[s].cpu;
    PassedPages passed;
    const SegmentIndex& index = data.indexes[s];
    uint64_t at = 0;  // the records before it were examined
    for (const Interval& window : windows) {
      if (window.first != kTimeMin) at = std::max(at, index.at(window.first, data.timing));
      for (auto entry = index.next(at); entry; entry = index.next(at)) {
        if (window.last < index.time_of(*entry, data.timing).first) break;
        passed.at(data.pages, data.streams[s], entry->offset_bytes);
        const AuxSegment segment = index.segment(*entry, data.timing, scratch);
        scan_anchors(segment, data.decoder.config, data.decoder.slack_ns, syncs, writes, found[s]);
        at = entry->offset_bytes + 1;
      }
    }
  }
  data.anchors = match_anchors(std::move(found), data.pokes);
}

}  // namespace ptd
