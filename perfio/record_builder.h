// Converts raw records to Record values and keeps the content of HEADER_* records.
#pragma once

#include <vector>

#include "perfio/format/sample_id.h"
#include "perfio/format/tracing_data.h"
#include "perfio/perf_reader.h"
#include "perfio/raw_stream.h"

namespace ptd::perfio {

/// Owns the attrs and features of a recording read so far.
class RecordBuilder {
 public:
  RecordBuilder(std::vector<EventAttr> attrs, Features features, Bytes tracing_data);

  /// Applies HEADER_ATTR, EVENT_UPDATE, HEADER_FEATURE, HEADER_BUILD_ID, HEADER_TRACING_DATA; ignores others. False: inconsistent.
  [[nodiscard]] bool apply_header_record(const RawRecord& raw);
  /// Returns the time to sort by; 0 if the record has none.
  [[nodiscard]] uint64_t time_of(const RawRecord& raw) const;
  /// The size of a record's header, content and trailer.
  struct OwnSize {
    uint64_t bytes = 0;       ///< the size in the header if nothing tells another
    bool is_certain = false;  ///< the trailer there names an event of the recording, and the end of the record does not
  };
  [[nodiscard]] OwnSize own_size(const RawRecord& raw) const;
  /// Returns false if the record is inconsistent.
  [[nodiscard]] bool build(const RawRecord& raw, Record& out) const;

  [[nodiscard]] const std::vector<EventAttr>& attrs() const { return attrs_; }
  [[nodiscard]] const Features& features() const { return features_; }

 private:
  bool apply_attr(Bytes body);
  void note_trailer(const EventAttr& attr);
  bool apply_event_update(Bytes body);
  bool apply_feature(Bytes body);
  bool build_sample(const RawRecord& raw, Record& out) const;
  [[nodiscard]] bool contradicts_event(const RawRecord& raw, const Record& record, uint64_t trailer) const;
  [[nodiscard]] bool is_sched_switch(const EventAttr& attr) const;
  [[nodiscard]] bool ends_in_trailer(const RecordHeader& header, Bytes record, uint64_t trailer) const;
  /// Returns the size of the trailer of a record that is not a SAMPLE.
  [[nodiscard]] uint64_t trailer_bytes_of(const RawRecord& raw, uint32_t attr_index) const;

  std::vector<EventAttr> attrs_;
  Features features_;
  AttrFinder finder_;
  std::vector<uint64_t> trailer_sizes_;  ///< of the attrs, each once: at most 7
  SchedSwitchFormat sched_switch_;
  bool event_desc_seen_ = false;  ///< in a HEADER_FEATURE record
};

}  // namespace ptd::perfio
