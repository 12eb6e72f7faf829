// Finds the anchors of an opened recording: one scan of its packets.
#include "recording/anchors.h"
#include "recording/recording_data.h"

namespace ptd {

void find_kernel_places(RecordingData& data) {
  const std::vector<Ip> entries = data.symbolizer->addresses_of("__switch_to");
  if (!entries.empty()) data.decoder.switch_entry = entries.front();
}

void add_anchors(const OpenOptions& options, RecordingData& data) {
  if (!options.anchors || options.freeze || data.pokes.empty() || data.streams.empty()) return;
  const std::vector<Ip> syncs = data.symbolizer->addresses_of("do_sync_core");
  const std::vector<Ip> writes = data.symbolizer->addresses_of("perf_event_text_poke_output");
  if (syncs.empty() || writes.empty()) return;
  std::vector<AnchorStream> found(data.streams.size());
  std::vector<std::byte> scratch;
  for (size_t s = 0; s < data.streams.size(); ++s) {
    if (data.infos[s].cpu < 0) return;  // rounds can be counted on cpus only
    found[s].cpu = data.infos[s].cpu;
    PassedPages passed;
    const SegmentIndex& index = data.indexes[s];
    for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) {
      passed.at(data.pages, data.streams[s], entry->offset_bytes);
      const AuxSegment segment = index.segment(*entry, data.timing, scratch);
      scan_anchors(segment, data.decoder.config, data.decoder.slack_ns, syncs, writes, found[s]);
    }
  }
  data.anchors = match_anchors(found, data.pokes);
}

}  // namespace ptd
