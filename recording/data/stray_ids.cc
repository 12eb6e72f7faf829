// StrayIds: see stray_ids.h.
#include "recording/data/stray_ids.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "decoder/arm/packet/frame_reader.h"

namespace ptd {
namespace {

// [CoreSight] "Trace formatter": formatters repeat an id after eight frames. Some do it up to two frames later.
constexpr uint64_t kRepeatFrames = 8, kLatestRepeatFrames = 10;
constexpr uint8_t kFirstReservedId = 0x70, kFlushId = 0x7b, kTriggerId = 0x7d;  // [CoreSight] "Trace IDs"
constexpr uint32_t kSyncZeros = 5;                                              // before 0x80: A-Sync of ETM, PTM and ITM
constexpr uint32_t kSyncOnes = 10;                                              // ASYNC of STM
constexpr uint64_t kFewStrays = 4, kIdsPerStray = 16;                           // see Reader::finish()
constexpr size_t kMostLosses = 4096;                                            // bounds the memory

bool is_of_formatter(uint8_t id) { return id == 0 || id == kFlushId || id == kTriggerId; }
// What a formatter writes with its own ids is no stray, so that one of them is damaged, too.
bool is_never_right(uint8_t id) { return id == 0 || id >= kFirstReservedId; }

/// The bytes of a stray.
struct Content {
  uint64_t bytes = 0;
  uint64_t zeros = 0, ones = 0;  ///< bytes 0 and 0xff in a row, at the end
  uint8_t value = 0;             ///< of the bytes that are not 0, if they have the same
  bool is_one_value = true, begins_with_sync = false, has_sync = false;

  void add(uint8_t byte);
  /// Returns whether a formatter writes this with its own id. A flush or a trigger has the id of the source that caused it.
  [[nodiscard]] bool is_of_formatter(uint8_t id) const {
    return id == 0 ? value == 0 : bytes != 0 && is_one_value && value < kFirstReservedId;
  }
};

void Content::add(uint8_t byte) {
  const bool is_sync = (byte == 0x80 && zeros >= kSyncZeros) || (byte == 0xff && ones + 1 >= kSyncOnes);
  begins_with_sync |= is_sync && std::max(zeros, ones) == bytes;
  has_sync |= is_sync;
  ++bytes;
  zeros = byte == 0 ? zeros + 1 : 0;
  ones = byte == 0xff ? ones + 1 : 0;
  if (byte != 0) is_one_value &= value == 0 || value == byte;
  if (byte != 0) value = byte;
}

}  // namespace

/// Reads one buffer.
class StrayIds::Reader final : public arm::FrameReader {
 public:
  Reader(StrayIds& strays, arm::FrameFormat format, const std::vector<Source>& sources, arm::FrameReader& next)
      : strays_(strays), format_(format), sources_(sources), next_(next) {
    for (const Source& source : sources) {
      if (source.id != 0) read_[source.id] = &strays.read_[source.index];
    }
  }
  void on_run(const arm::FrameRun& run) override;
  void on_id(const IdByte& id) override;
  void on_barrier(uint64_t offset_bytes) override {
    next_.on_barrier(offset_bytes);
    end();
  }
  void on_loss(uint64_t offset_bytes) override {
    next_.on_loss(offset_bytes);
    end();
  }
  void end() {
    if (stray_) close(*std::exchange(stray_, std::nullopt));
    last_.reset();
    pending_.clear();
  }
  void finish();

 private:
  /// The id byte before a stray or another id byte. An id that is repeated too early leaves the frame.
  struct Last {
    uint8_t id = 0;
    uint64_t frame = 0;
  };
  struct Stray {
    uint8_t id = 0;
    uint64_t frame = 0;
    std::optional<Last> before;
    bool is_repeated = false, is_cut_short = false;  ///< its id; a regularly repeated id of the source before it ends it
    std::vector<Loss> losers;
    Content content;
  };
  static void decide(Stray& stray, const Last& next);
  void close(const Stray& stray);
  static bool begins_no_frame(const IdByte& id) { return id.offset_bytes % arm::kFrameBytes != 0 || id.is_late; }
  [[nodiscard]] std::vector<Loss> losers_at(const IdByte& id) const;
  void meet_odd(const IdByte& id, const std::vector<Loss>& losses);
  void add_odd(const std::vector<Loss>& losses);

  StrayIds& strays_;
  const arm::FrameFormat format_;
  const std::vector<Source>& sources_;
  FrameReader& next_;
  std::array<uint64_t*, 128> read_{};  ///< by id; null: no source has it
  std::optional<Stray> stray_;
  std::map<uint8_t, Seen> seen_;  ///< in this buffer
  size_t losses_ = 0;             ///< in seen_
  uint64_t known_ids_ = 0;        ///< id bytes of sources
  std::optional<Last> last_;
  std::vector<Loss> odd_;  ///< as those of strays_
  uint64_t odd_count_ = 0;
  std::vector<Loss> pending_;  ///< of an odd id at the beginning of a frame, before its first byte
};

void StrayIds::Reader::on_run(const arm::FrameRun& run) {
  next_.on_run(run);
  if (read_[run.id] != nullptr) *read_[run.id] += run.bytes.size();
  // Where a sink that was stopped is enabled again, a frame begins with the id, and the source with its A-Sync.
  const Bytes first = run.bytes.first(std::min<size_t>(run.bytes.size(), kSyncZeros));
  if (!pending_.empty() && std::any_of(first.begin(), first.end(), [](std::byte byte) { return byte != std::byte{0}; })) add_odd(pending_);
  pending_.clear();
  if (!stray_) return;
  for (const std::byte byte : run.bytes) stray_->content.add(static_cast<uint8_t>(byte));
}

void StrayIds::Reader::on_id(const IdByte& id) {
  next_.on_id(id);
  const Last next{id.id, id.offset_bytes / arm::kFrameBytes};
  const bool repeats = last_ && last_->id == id.id;
  if (stray_ && repeats && id.id != 0) {
    stray_->is_repeated = true;
  } else {
    if (stray_) {
      decide(*stray_, next);
      const Stray stray = *std::exchange(stray_, std::nullopt);
      close(stray);
      // Padding ends with its frame. Frames with syncs have unknown offsets.
      const bool is_padding = stray.id == 0 && stray.content.value == 0 && format_ == arm::FrameFormat::aligned;
      if (is_padding && (begins_no_frame(id) || stray.content.bytes == 0)) meet_odd(id, stray.losers);
    }
    if (read_[id.id] == nullptr) stray_ = Stray{id.id, next.frame, last_, false, false, losers_at(id), {}};
  }
  if (read_[id.id] != nullptr) {
    ++known_ids_;
    if (repeats && next.frame - last_->frame < kRepeatFrames) {
      std::vector<Loss> losers = losers_at(id);
      std::erase_if(losers, [&](const Loss& loser) { return loser.id != id.id; });
      return meet_odd(id, losers);
    }
  }
  last_ = next;
}

/// Returns all sources that may lose bytes at `id`. Those of a damaged id byte are of any source but the one before, those of a damaged
/// data byte are of that one.
std::vector<StrayIds::Loss> StrayIds::Reader::losers_at(const IdByte& id) const {
  std::vector<Loss> losers;
  for (const Source& source : sources_) {
    if (source.id == 0) continue;
    uint64_t at = strays_.read_[source.index];
    // The data byte came before the one that still has the old id.
    if (id.is_late && last_ && last_->id == source.id && at != 0) --at;
    losers.push_back({source.index, at, source.id});
  }
  return losers;
}

void StrayIds::Reader::decide(Stray& stray, const Last& next) {
  const bool returns = stray.before && stray.before->id == next.id;
  const uint64_t frames = next.frame - (returns ? stray.before->frame : stray.frame);
  stray.is_cut_short = returns && frames >= kRepeatFrames && frames <= kLatestRepeatFrames;
  const bool others = std::any_of(stray.losers.begin(), stray.losers.end(), [&](const Loss& loser) { return loser.id != next.id; });
  if (frames < kRepeatFrames && others) std::erase_if(stray.losers, [&](const Loss& loser) { return loser.id == next.id; });
}

void StrayIds::Reader::close(const Stray& stray) {
  if (is_of_formatter(stray.id) && stray.content.is_of_formatter(stray.id)) return;
  Seen& seen = seen_[stray.id];
  seen.is_source |= stray.is_repeated || (stray.content.begins_with_sync && !stray.is_cut_short);
  seen.has_sync |= stray.content.has_sync;
  if (seen.strays++ != 0 && (!is_never_right(stray.id) || losses_ > kMostLosses)) return;
  losses_ += stray.losers.size();
  seen.losers.insert(seen.losers.end(), stray.losers.begin(), stray.losers.end());
}

void StrayIds::Reader::meet_odd(const IdByte& id, const std::vector<Loss>& losses) {
  if (begins_no_frame(id)) return add_odd(losses);
  pending_ = losses;
}

void StrayIds::Reader::add_odd(const std::vector<Loss>& losses) {
  ++odd_count_;
  if (odd_.size() < kMostLosses) odd_.insert(odd_.end(), losses.begin(), losses.end());
}

// Where such strays are no exception, the buffer does not hold frames of these sources.
void StrayIds::Reader::finish() {
  end();
  uint64_t exceptions = 0;
  for (const auto& [id, seen] : seen_) {
    if (is_never_right(id) || (seen.strays == 1 && !seen.is_source)) exceptions += seen.strays;
  }
  if (exceptions > kFewStrays && exceptions * kIdsPerStray > known_ids_) return;
  for (const auto& [id, own] : seen_) {
    Seen& seen = strays_.seen_[id];
    if (seen.strays == 0 || is_never_right(id)) seen.losers.insert(seen.losers.end(), own.losers.begin(), own.losers.end());
    seen.strays += own.strays;
    seen.is_source |= own.is_source;
    seen.has_sync |= own.has_sync;
  }
  strays_.known_ids_ += known_ids_;
  strays_.odd_count_ += odd_count_;
  if (strays_.odd_.size() < kMostLosses) strays_.odd_.insert(strays_.odd_.end(), odd_.begin(), odd_.end());
}

void StrayIds::add_frames(Bytes buffer, arm::FrameFormat format, const std::vector<Source>& sources, arm::FrameReader& reader) {
  Reader own(*this, format, sources, reader);
  arm::read_frames(buffer, format, own);
  own.finish();
}

std::vector<uint8_t> StrayIds::undescribed() const {
  std::vector<uint8_t> ids;
  for (const auto& [id, seen] : seen_) {
    if (seen.has_sync && !is_never_right(id) && (seen.is_source || seen.strays > 1)) ids.push_back(id);
  }
  return ids;
}

std::multimap<size_t, StrayIds::Loss> StrayIds::losses() const {
  std::multimap<size_t, Loss> losses;
  for (const auto& [id, seen] : seen_) {
    if (!is_never_right(id) && (seen.strays != 1 || seen.is_source)) continue;
    for (const Loss& loser : seen.losers) losses.emplace(loser.index, loser);
  }
  if (odd_count_ * kIdsPerStray <= known_ids_) {
    for (const Loss& loser : odd_) losses.emplace(loser.index, loser);
  }
  return losses;
}

}  // namespace ptd
