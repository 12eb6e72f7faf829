// LossFold: see loss_fold.h.
#include "capture/live/session/fold/loss_fold.h"

#include <algorithm>
#include <cstring>

#include "capture/live/session/session_log.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

/// LOST has the event's id before the count.
size_t count_at(uint32_t type) { return kRecordHeaderBytes + (type == kRecordLost ? sizeof(uint64_t) : 0); }

uint64_t count_of(Bytes record, uint32_t type) { return Cursor(record.subspan(count_at(type))).u64(); }

}  // namespace

void LossFold::take(Bytes record, uint16_t ring) {
  const uint32_t type = read_record_header(record).type;
  if (record.size() < count_at(type) + sizeof(uint64_t)) return;
  const auto [place, is_first] = last_.try_emplace({ring, type}, record.begin(), record.end());
  if (is_first) return;
  std::vector<std::byte>& last = place->second;
  uint64_t count = count_of(last, type);
  count += std::min(count_of(record, type), ~count);
  if (trailer_time(record) >= trailer_time(last)) last.assign(record.begin(), record.end());
  std::memcpy(last.data() + count_at(type), &count, sizeof(count));
}

void LossFold::add_lost(Bytes record, uint16_t ring) {
  if (record.size() < kRecordHeaderBytes + kTrailerBytes) return;
  const Bytes trailer = record.last(kTrailerBytes);
  const Bytes id = trailer.last(sizeof(uint64_t));
  const uint64_t count = 1;
  RecordHeader header = read_record_header(record);
  header.type = kRecordLost;
  header.size_bytes = static_cast<uint16_t>(kRecordHeaderBytes + 2 * sizeof(uint64_t) + kTrailerBytes);
  std::vector<std::byte> lost;
  for (const Bytes part : {Bytes(std::as_bytes(std::span(&header, 1))), id, Bytes(std::as_bytes(std::span(&count, 1))), trailer})
    lost.insert(lost.end(), part.begin(), part.end());
  take(lost, ring);
}

void LossFold::each(const std::function<void(uint16_t ring, const std::vector<std::byte>& record)>& on_record) const {
  for (const auto& [place, record] : last_) on_record(place.first, record);
}

}  // namespace ptd::live
