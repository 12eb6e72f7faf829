// Converts payloads of AUXTRACE records to streams.
#include "recording/trace/streams.h"

#include <algorithm>
#include <cstring>

#include "ptdecode/pt/packet_reader.h"

namespace ptd {
namespace {

constexpr uint64_t kMaxPaddingBytes = 7;          // PERF_AUXTRACE_RECORD_ALIGNMENT - 1
constexpr uint64_t kMaxCopyBytes = 256ULL << 20;  // of one segment that straddles payloads
constexpr uint64_t kPsbBytes = 16;
constexpr uint64_t kQuickCompareBytes = 256;
constexpr int kMaxLongCompares = 32;

}  // namespace

uint64_t overlap_bytes(Bytes previous, Bytes next) {
  const uint64_t psb = pt::find_psb(next, 0);
  if (psb + kPsbBytes > next.size()) return 0;
  // The first bytes of a PSB+ hold its TSC and ip, so only the true place matches for long; the budget is for hostile data.
  int long_compares = 0;
  for (uint64_t at = pt::find_psb(previous, 0); at + kPsbBytes <= previous.size() && long_compares < kMaxLongCompares;
       at = pt::find_psb(previous, at + kPsbBytes)) {
    const uint64_t shared = previous.size() - at;
    if (shared > next.size() - psb) continue;
    const uint64_t quick = std::min(shared, kQuickCompareBytes);
    if (std::memcmp(previous.data() + at, next.data() + psb, quick) != 0) continue;
    ++long_compares;
    if (std::memcmp(previous.data() + at, next.data() + psb, shared) == 0) return psb + shared;
  }
  return 0;
}

void AuxStream::add_payload(uint64_t offset_bytes, uint64_t size_bytes, Bytes payload, bool snapshot) {
  if (payload.size() > size_bytes) payload = payload.first(size_bytes);
  const bool first = chunks_.empty();
  snapshot_ = snapshot_ || snapshot;
  AuxBreak why = AuxBreak::none;
  uint64_t at = offset_bytes;
  if (first) {
    at = snapshot ? 0 : offset_bytes;
    why = AuxBreak::stream_start;
  } else if (snapshot) {
    at = chunks_.back().end();
    const uint64_t shared = overlap_bytes(chunks_.back().bytes, payload);
    if (shared == 0) why = AuxBreak::snapshot;
    payload = payload.subspan(shared);
  } else {
    AuxChunk& last = chunks_.back();
    const uint64_t end = last.end();
    at = offset_bytes + static_cast<uint64_t>(shift_bytes_);
    if (at < end && end - at <= kMaxPaddingBytes && at > last.offset_bytes) {
      size_bytes_ -= end - at;
      last.bytes = last.bytes.first(last.bytes.size() - (end - at));
    } else if (at < end || end + size_bytes < end) {
      // Offsets go back: another ring under the same name, or damage. Keep file order, do not join.
      shift_bytes_ += static_cast<int64_t>(end - at);
      at = end;
      why = AuxBreak::missing;
    } else if (at > end) {
      why = AuxBreak::missing;
    }
  }
  // A hostile offset must not wrap the stream.
  if (at > ~uint64_t{0} / 2 || payload.size() > ~uint64_t{0} / 2 - at) at = first ? 0 : chunks_.back().end();
  if (why != AuxBreak::none) seams_.push_back({at, why});
  if (shift_bytes_ == 0 && !snapshot && payload.size() < size_bytes && at <= ~size_bytes) add_announced(at + size_bytes);
  if (payload.empty() && !first) return;
  size_bytes_ += payload.size();
  chunks_.push_back({at, payload});
}

void AuxStream::restore(std::vector<AuxChunk> chunks, std::vector<Seam> seams, std::vector<Written> written) {
  chunks_ = std::move(chunks);
  seams_ = std::move(seams);
  written_ = std::move(written);
  losses_.clear();
  size_bytes_ = 0;
  shift_bytes_ = 0;
  snapshot_ = finished_ = false;
  for (const AuxChunk& chunk : chunks_) size_bytes_ += chunk.bytes.size();
}

void AuxStream::finish() {
  if (finished_) return;
  finished_ = true;
  if (snapshot_) written_.clear();
  for (Written& record : written_) record.end_offset_bytes += static_cast<uint64_t>(shift_bytes_);
  std::stable_sort(written_.begin(), written_.end(),
                   [](const Written& a, const Written& b) { return a.end_offset_bytes < b.end_offset_bytes; });
  for (const AuxLoss& loss : losses_) {
    if (snapshot_) break;  // offsets of snapshots place nothing
    const uint64_t at = loss.end_offset_bytes + static_cast<uint64_t>(shift_bytes_);
    if (at > begin_offset() && at <= end_offset()) seams_.push_back({at, loss.why});
  }
  // Offsets that ran backwards say nothing about the end.
  if (!snapshot_ && shift_bytes_ == 0 && announced_end_ > end_offset()) seams_.push_back({end_offset(), AuxBreak::missing});
  std::stable_sort(seams_.begin(), seams_.end(), [](const Seam& a, const Seam& b) { return a.offset_bytes < b.offset_bytes; });
  // One seam a place; what the hardware said (TRUNCATED) explains a hole better than the hole itself.
  std::vector<Seam> unique;
  for (const Seam& seam : seams_) {
    if (!unique.empty() && unique.back().offset_bytes == seam.offset_bytes) {
      if (unique.back().why == AuxBreak::missing) unique.back().why = seam.why;
    } else {
      unique.push_back(seam);
    }
  }
  seams_ = std::move(unique);
}

Bytes AuxStream::read(uint64_t offset_bytes, uint64_t end_offset_bytes, std::vector<std::byte>& scratch) const {
  auto chunk = std::upper_bound(chunks_.begin(), chunks_.end(), offset_bytes,
                                [](uint64_t value, const AuxChunk& candidate) { return value < candidate.offset_bytes; });
  if (chunk == chunks_.begin()) return {};
  --chunk;
  if (offset_bytes >= chunk->end() || end_offset_bytes <= offset_bytes) return {};
  const uint64_t wanted = end_offset_bytes - offset_bytes;
  const Bytes here = chunk->bytes.subspan(offset_bytes - chunk->offset_bytes);
  if (here.size() >= wanted) return here.first(wanted);
  if (std::next(chunk) == chunks_.end() || std::next(chunk)->offset_bytes != chunk->end()) return here;
  scratch.clear();
  uint64_t at = offset_bytes;
  for (; chunk != chunks_.end() && at < end_offset_bytes && chunk->offset_bytes <= at && scratch.size() < kMaxCopyBytes; ++chunk) {
    const Bytes part = chunk->bytes.subspan(at - chunk->offset_bytes);
    const Bytes used = part.first(std::min<uint64_t>({part.size(), end_offset_bytes - at, kMaxCopyBytes - scratch.size()}));
    scratch.insert(scratch.end(), used.begin(), used.end());
    at += used.size();
  }
  return scratch;
}

const Seam* AuxStream::seam_after(uint64_t offset_bytes) const {
  const auto seam = std::upper_bound(seams_.begin(), seams_.end(), offset_bytes,
                                     [](uint64_t value, const Seam& candidate) { return value < candidate.offset_bytes; });
  return seam == seams_.end() ? nullptr : &*seam;
}

const Seam* AuxStream::seam_between(uint64_t floor_bytes, uint64_t offset_bytes) const {
  auto seam = std::upper_bound(seams_.begin(), seams_.end(), offset_bytes,
                               [](uint64_t value, const Seam& candidate) { return value < candidate.offset_bytes; });
  if (seam == seams_.begin()) return nullptr;
  --seam;
  return seam->offset_bytes > floor_bytes || seam->why == AuxBreak::stream_start ? &*seam : nullptr;
}

TimeNs AuxStream::written_by(uint64_t end_offset_bytes) const {
  const auto record = std::lower_bound(written_.begin(), written_.end(), end_offset_bytes,
                                       [](const Written& candidate, uint64_t value) { return candidate.end_offset_bytes < value; });
  if (record != written_.end()) return record->time;
  const bool is_padding = !written_.empty() && end_offset_bytes - written_.back().end_offset_bytes <= kMaxPaddingBytes;
  return is_padding && end_offset_bytes == end_offset() ? written_.back().time : kTimeMax;
}

TimeNs AuxStream::written_from(uint64_t offset_bytes) const {
  constexpr uint64_t kEarlyNs = 1'000'000;  // the record may be stamped after tracing goes on
  const auto record = std::upper_bound(written_.begin(), written_.end(), offset_bytes,
                                       [](uint64_t value, const Written& entry) { return value < entry.end_offset_bytes; });
  if (record == written_.begin()) return kTimeMin;
  const uint64_t time = std::prev(record)->time.value;
  return TimeNs{time - std::min(time, kEarlyNs)};
}

}  // namespace ptd
