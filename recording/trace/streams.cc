// Converts payloads of AUXTRACE records to streams.
#include "recording/trace/streams.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "decoder/pt/packet/packet_table.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd {
namespace {

constexpr uint64_t kMaxSegmentCopyBytes = 256ULL << 20;  // of one segment that straddles payloads
constexpr uint64_t kQuickCompareBytes = 256;
constexpr int kMaxLongCompares = 32;
constexpr uint64_t kHandlerNs = 1'000'000;  // more than the handler of a sample's interrupt takes

}  // namespace

uint64_t overlap_bytes(Bytes previous, Bytes next) {
  const uint64_t psb = pt::find_psb(next, 0);
  if (psb + pt::kPsbBytes > next.size()) return 0;
  // The first bytes of a PSB+ hold its TSC and ip, so only the true place matches for long; the budget is for hostile data.
  int long_compares = 0;
  for (uint64_t at = pt::find_psb(previous, 0); at + pt::kPsbBytes <= previous.size() && long_compares < kMaxLongCompares;
       at = pt::find_psb(previous, at + pt::kPsbBytes)) {
    const uint64_t shared = previous.size() - at;
    if (shared > next.size() - psb) continue;
    const uint64_t quick = std::min(shared, kQuickCompareBytes);
    if (std::memcmp(previous.data() + at, next.data() + psb, quick) != 0) continue;
    ++long_compares;
    if (std::memcmp(previous.data() + at, next.data() + psb, shared) == 0) return psb + shared;
  }
  return 0;
}

void AuxStream::add_payload(uint64_t offset_bytes, uint64_t size_bytes, Bytes payload, bool snapshot, uint32_t ring) {
  snapshot_ = snapshot_ || snapshot;
  if (payload.size() > size_bytes) payload = payload.first(size_bytes);
  payloads_.push_back({offset_bytes, size_bytes, payload, ring});
  size_bytes_ += payload.size();
}

void AuxStream::add_sample(const AuxSample& sample, Bytes window) {
  samples_.push_back(sample);
  add_payload(0, window.size(), window, true);
}

void AuxStream::join_snapshots() {
  std::map<std::pair<uint32_t, uint64_t>, Bytes> latest;  // by ring and offset
  Bytes previous;                                         // the last payload that was no copy, with what it repeats itself
  for (size_t i = 0; i < payloads_.size(); ++i) {
    const AuxPayload& payload = payloads_[i];
    const Bytes bytes = payload.bytes;
    Bytes& before = latest[{payload.ring, payload.offset_bytes}];
    const bool is_copy = !bytes.empty() && std::equal(bytes.begin(), bytes.end(), before.begin(), before.end());
    before = bytes;
    const uint64_t at = chunks_.empty() ? 0 : chunks_.back().end();
    if (chunks_.empty()) {
      seams_.push_back({0, AuxBreak::stream_start});
      chunks_.push_back({0, bytes});
    } else if (!is_copy) {
      const uint64_t shared = overlap_bytes(previous, bytes);
      if (shared == 0) seams_.push_back({at, AuxBreak::snapshot});
      if (shared != bytes.size()) chunks_.push_back({at, bytes.subspan(shared)});
    }
    if (!is_copy) previous = bytes;
    if (i < samples_.size()) place_sample(samples_[i], bytes.size());
  }
}

// The newest byte of a window is the newest one of the stream. The window was written before the sample's time, but for the handler of the
// sample's own interrupt.
void AuxStream::place_sample(AuxSample& sample, uint64_t size_bytes) {
  sample.last_bytes = chunks_.back().end();
  sample.first_bytes = sample.last_bytes - std::min(size_bytes, sample.last_bytes);
  if (sample.time != kTimeMin) add_written(sample.last_bytes, TimeNs{sample.time.value + std::min(kHandlerNs, ~sample.time.value)});
}

void AuxStream::place() {
  const uint64_t first = payloads_.empty() ? 0 : payloads_.front().offset_bytes;
  for (const AuxPayload& payload : payloads_) {
    if (payload.size_bytes != 0) add_stored_from(payload.offset_bytes);  // also if its bytes are absent
  }
  placed_ = place_payloads(std::move(payloads_));
  chunks_ = std::move(placed_.chunks);
  if (chunks_.empty()) chunks_.push_back({first > ~uint64_t{0} / 2 ? 0 : first, {}});
  seams_.push_back({begin_offset(), AuxBreak::stream_start});
  for (size_t i = 1; i < chunks_.size(); ++i) {
    if (chunks_[i].offset_bytes != chunks_[i - 1].end()) seams_.push_back({chunks_[i].offset_bytes, AuxBreak::missing});
  }
  for (const uint64_t at : placed_.breaks) seams_.push_back({at, AuxBreak::missing});
  const bool conflicts_at_end = !placed_.conflicts.empty() && placed_.conflicts.back().last > end_offset();
  if (placed_.unplaced || conflicts_at_end) seams_.push_back({end_offset(), AuxBreak::missing});
  if (placed_.breaks.empty()) {
    add_announced(placed_.announced_end_bytes);
  } else {  // the records are of one ring, and place nothing in the others
    written_.clear();
    announced_end_ = 0;
    stored_from_ = ~uint64_t{0};
  }
}

void AuxStream::restore(std::vector<AuxChunk> chunks, std::vector<Seam> seams, std::vector<Written> written) {
  chunks_ = std::move(chunks);
  seams_ = std::move(seams);
  written_ = std::move(written);
  losses_.clear();
  payloads_.clear();
  placed_ = {};
  size_bytes_ = 0;
  snapshot_ = finished_ = begin_lost_ = false;
  for (const AuxChunk& chunk : chunks_) size_bytes_ += chunk.bytes.size();
}

void AuxStream::finish() {
  if (finished_) return;
  finished_ = true;
  if (snapshot_) written_.clear();  // offsets of AUX records place nothing in snapshots; samples do
  if (!payloads_.empty()) snapshot_ ? join_snapshots() : place();
  payloads_ = {};
  size_bytes_ = 0;
  for (const AuxChunk& chunk : chunks_) size_bytes_ += chunk.bytes.size();
  std::stable_sort(written_.begin(), written_.end(), [](const Written& a, const Written& b) {
    return std::pair(a.end_offset_bytes, a.time) < std::pair(b.end_offset_bytes, b.time);
  });
  for (const AuxLoss& loss : losses_) {
    if (snapshot_) break;  // offsets of snapshots place nothing
    const uint64_t at = loss.end_offset_bytes;
    if (at > begin_offset() && at <= end_offset()) seams_.push_back({at, loss.why});
    if (at <= begin_offset() && !seams_.empty()) seams_.front().why = loss.why;  // where the stream begins
  }
  const bool lacks_begin = begin_lost_ || (!snapshot_ && stored_from_ < begin_offset());
  if (lacks_begin && !seams_.empty() && seams_.front().why == AuxBreak::stream_start) seams_.front().why = AuxBreak::missing;
  if (!snapshot_ && announced_end_ > end_offset()) seams_.push_back({end_offset(), AuxBreak::missing});
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

void AuxStream::lose_begin() {
  begin_lost_ = true;
  if (finished_ && !seams_.empty() && seams_.front().why == AuxBreak::stream_start) seams_.front().why = AuxBreak::missing;
}

void AuxStream::lose_end() {
  if (finished_ && (seams_.empty() || seams_.back().offset_bytes != end_offset())) seams_.push_back({end_offset(), AuxBreak::missing});
}

uint64_t AuxStream::written_zeros_at_end() const {
  if (snapshot_ || !samples_.empty() || written_.empty()) return 0;
  uint64_t zeros = 0;
  for (auto chunk = chunks_.rbegin(); chunk != chunks_.rend(); ++chunk) {
    const auto last = std::find_if(chunk->bytes.rbegin(), chunk->bytes.rend(), [](std::byte b) { return b != std::byte{}; });
    zeros += static_cast<uint64_t>(last - chunk->bytes.rbegin());
    if (last != chunk->bytes.rend()) break;
  }
  const uint64_t written = std::min(written_.back().end_offset_bytes, end_offset()), first = end_offset() - zeros;
  return written - std::min(first, written);
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
  for (; chunk != chunks_.end() && at < end_offset_bytes && chunk->offset_bytes <= at && scratch.size() < kMaxSegmentCopyBytes; ++chunk) {
    const Bytes part = chunk->bytes.subspan(at - chunk->offset_bytes);
    const Bytes used = part.first(std::min<uint64_t>({part.size(), end_offset_bytes - at, kMaxSegmentCopyBytes - scratch.size()}));
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

TimeNs AuxStream::written_from(uint64_t offset_bytes, uint64_t early_ns) const {
  const auto record = std::upper_bound(written_.begin(), written_.end(), offset_bytes,
                                       [](uint64_t value, const Written& entry) { return value < entry.end_offset_bytes; });
  if (record == written_.begin()) return kTimeMin;
  const uint64_t time = std::prev(record)->time.value;
  return TimeNs{time - std::min(time, early_ns)};
}

std::string name_of(const AuxStream& stream) {
  if (stream.cpu >= 0) return "cpu " + std::to_string(stream.cpu);
  return stream.tid >= 0 ? "thread " + std::to_string(stream.tid) : "the trace";
}

}  // namespace ptd
