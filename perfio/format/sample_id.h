// Parses sample_id trailers and the leading fields of SAMPLE records, using the attr of the record.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "perfio/format/event_attr.h"
#include "perfio/format/records.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {

/// Finds the attr of a record ([perf_event.h] "PERF_SAMPLE_IDENTIFIER"; tools/perf evlist: the id has the same position in all events).
class AttrFinder {
 public:
  /// Restarts, for example when the ids of attrs change.
  void set(const std::vector<EventAttr>& attrs);
  /// Adds the next attr, in time proportional to its own ids.
  void add(const EventAttr& attr);
  /// Returns the index of the first attr with this id, or -1.
  [[nodiscard]] int64_t index_of(uint64_t id) const;
  /// Returns the index of the attr of `record` (with header); 0 if its id is absent, 0 or unknown.
  [[nodiscard]] uint32_t find(const RecordHeader& header, Bytes record) const;

 private:
  static constexpr int kNoPosition = -1;
  std::unordered_map<uint64_t, uint32_t> by_id_;
  uint32_t count_ = 0;
  int sample_position_ = kNoPosition;   ///< u64 words from the start of a SAMPLE's body
  int trailer_position_ = kNoPosition;  ///< u64 words from the end of any other record, 1 = the last
};

/// Returns the size of the trailer that `attr` adds to every record except SAMPLE; 0 without sample_id_all.
[[nodiscard]] uint64_t trailer_bytes(const EventAttr& attr);
/// Returns whether the trailers of `attr` contain its id.
[[nodiscard]] bool has_trailer_id(const EventAttr& attr);
/// Reads a trailer of exactly trailer_bytes(attr).
void parse_trailer(const EventAttr& attr, Bytes trailer, SampleId& out);
/// Returns the trailer of a record (with header) other than SAMPLE; no fields if the record is too short to have one.
[[nodiscard]] SampleId trailer_of(const EventAttr& attr, Bytes record);

/// The fields of a SAMPLE up to and including RAW, and AUX.
struct SampleFields {
  SampleId id;
  uint64_t ip = 0, addr = 0;
  uint64_t period = 0;         ///< of the sample; else the fixed one of its event; 0: not known
  Bytes raw;                   ///< PERF_SAMPLE_RAW data
  Bytes aux;                   ///< PERF_SAMPLE_AUX data
  uint64_t content_bytes = 0;  ///< of the whole body; 0 if some of it is not known
};
/// Returns false if the body is shorter than its sample_type requires.
[[nodiscard]] bool parse_sample(const EventAttr& attr, Bytes body, SampleFields& out);

/// Parses a perf_event_attr of any size from 64 bytes on; does not change name and ids. Returns false if it is too short.
[[nodiscard]] bool parse_attr(Bytes raw, EventAttr& out);

}  // namespace ptd::perfio
