// Samples of other events: one more pass over the records of a perf.data file.
#include "recording/perf/perf_samples.h"

#include <algorithm>
#include <map>

#include "perfio/announce/announce_event.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/tracepoint_format.h"
#include "perfio/perf_reader.h"
#include "recording/data/event_names.h"

namespace ptd {
namespace {

constexpr uint32_t kSoftwareType = 1;
constexpr uint64_t kSoftwareDummy = 9;
constexpr size_t kMaxRawBytes = 256, kMaxLayouts = 4096;

// Trace, or there for the records of the kernel only.
bool has_no_samples(const perfio::EventAttr& attr) {
  return attr.name.starts_with("intel_pt") || attr.name.starts_with("cs_etm") || perfio::is_announcement(attr) ||
         (attr.type == kSoftwareType && attr.config == kSoftwareDummy);
}

class Collector {
 public:
  Collector(const perfio::PerfReader& reader, const std::vector<Interval>& times, size_t most, uint64_t most_bytes)
      : reader_(reader), times_(times), most_(most), bytes_left_(most_bytes) {}
  void take(const perfio::Record& record) {
    if (record.type != perfio::kRecordSample || record.attr_index >= reader_.attrs().size()) return;
    if (std::holds_alternative<perfio::SchedSwitchSample>(record.payload)) return;
    if (perfio::is_announcement(reader_.attrs()[record.attr_index])) return;  // the image has them
    const TimeNs time{record.sample_id.time};
    const auto inside = [time](const Interval& range) { return range.contains(time); };
    if (!times_.empty() && std::none_of(times_.begin(), times_.end(), inside)) return;
    if (out_.events.size() >= most_ || bytes_left_ == 0) {
      ++out_.left_out;
      return;
    }
    const perfio::EventAttr& attr = reader_.attrs()[record.attr_index];
    perfio::SampleFields sample;
    if (!perfio::parse_sample(attr, record.raw.subspan(perfio::kRecordHeaderBytes), sample)) return;
    OtherEvent event;
    event.time = time;
    event.pid = sample.id.pid;
    event.tid = sample.id.tid;
    event.cpu = sample.id.cpu;
    event.name = name_index(record.attr_index, attr);
    if (!perfio::is_guest(record.misc)) event.ip = Ip{sample.ip};  // a guest's address is none of the host's
    event.period = sample.period;
    if (!sample.raw.empty()) take_payload(attr, sample.raw, event);
    const uint64_t bytes = bytes_of(event);
    if (bytes > bytes_left_) {
      bytes_left_ = 0;
      ++out_.left_out;
      return;
    }
    bytes_left_ -= bytes;
    out_.events.push_back(std::move(event));
  }
  OtherEvents finish() {
    std::stable_sort(out_.events.begin(), out_.events.end(), [](const OtherEvent& a, const OtherEvent& b) { return a.time < b.time; });
    return std::move(out_);
  }

 private:
  uint32_t name_index(uint32_t attr_index, const perfio::EventAttr& attr) {
    const auto [known, is_new] = names_.emplace(attr_index, static_cast<uint32_t>(out_.names.size()));
    if (is_new) out_.names.push_back(event_name(attr));
    return known->second;
  }
  // Of a pipe they are known when their record was read.
  [[nodiscard]] Bytes formats() const {
    for (const perfio::RawFeature& feature : reader_.features().raw) {
      if (feature.bit == perfio::kFeatureTracingData) return feature.bytes;
    }
    return {};
  }
  struct Layout {
    std::vector<perfio::TracepointSlot> slots;
    std::vector<std::shared_ptr<const std::string>> names;  // of slots
  };
  const Layout& layout_of(uint64_t tracepoint) {
    const Bytes now = formats();
    if (formats_.data().data() != now.data()) formats_ = perfio::TracepointFormats(now);
    static const Layout kNone;
    const auto known = layouts_.find(tracepoint);
    if (known != layouts_.end()) return known->second;
    if (layouts_.size() >= kMaxLayouts) return kNone;
    Layout layout;
    layout.slots = formats_.find(tracepoint);
    for (const perfio::TracepointSlot& slot : layout.slots) layout.names.push_back(std::make_shared<const std::string>(slot.name));
    return layouts_[tracepoint] = std::move(layout);
  }
  void take_payload(const perfio::EventAttr& attr, Bytes raw, OtherEvent& event) {
    if (attr.type == perfio::kEventTypeTracepoint) {
      const Layout& layout = layout_of(attr.config);
      event.fields.reserve(layout.slots.size());
      for (size_t i = 0; i < layout.slots.size(); ++i) {
        perfio::SlotValue value = perfio::read_slot(layout.slots[i], raw);
        event.fields.push_back({layout.names[i], std::move(value.text), value.number});
      }
      if (!event.fields.empty()) return;
    }
    event.raw.assign(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(std::min(raw.size(), kMaxRawBytes)));
  }

  const perfio::PerfReader& reader_;
  const std::vector<Interval>& times_;
  const size_t most_;
  uint64_t bytes_left_;
  std::map<uint32_t, uint32_t> names_;  // attr -> index of its name
  perfio::TracepointFormats formats_;
  std::map<uint64_t, Layout> layouts_;  // by id of the tracepoint
  OtherEvents out_;
};

}  // namespace

Result<OtherEvents> read_perf_samples(const std::string& path, const std::vector<Interval>& times, size_t most, uint64_t most_bytes) {
  auto opened = perfio::PerfReader::open(path);
  if (!opened) return opened.error();
  perfio::PerfReader& reader = **opened;
  if (!reader.is_pipe() && std::all_of(reader.attrs().begin(), reader.attrs().end(), has_no_samples)) return OtherEvents{};
  Collector collector(reader, times, most, most_bytes);
  const Status status = reader.read([&](const perfio::Record& record) {
    collector.take(record);
    return true;
  });
  if (!status) return status.error();
  return collector.finish();
}

}  // namespace ptd
