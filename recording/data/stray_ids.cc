// StrayIds: see stray_ids.h.
#include "recording/data/stray_ids.h"

#include <algorithm>
#include <utility>

#include "decoder/arm/packet/frame_reader.h"

namespace ptd {
namespace {

constexpr uint64_t kRepeatFrames = 8;  // formatters repeat an id after so many frames
constexpr uint8_t kFlushId = 0x7b, kTriggerId = 0x7d;    // [CoreSight] "Trace IDs": written without a source
constexpr uint32_t kSyncZeros = 5;                       // before 0x80: A-Sync of ETM, PTM and ITM
constexpr uint32_t kSyncOnes = 10;                       // ASYNC of STM
constexpr size_t kFewStrays = 4, kIdsPerStray = 16;      // see finish()

}  // namespace

/// Reads one buffer.
class StrayIds::Reader final : public arm::FrameReader {
 public:
  Reader(StrayIds& strays, const std::vector<Source>& sources, arm::FrameReader& next) : strays_(strays), sources_(sources), next_(next) {
    for (const Source& source : sources) {
      if (source.id != 0) read_[source.id] = &strays.read_[source.index];
    }
  }
  void on_run(const arm::FrameRun& run) override;
  void on_id(uint8_t id, uint64_t offset_bytes) override;
  void on_barrier(uint64_t offset_bytes) override {
    next_.on_barrier(offset_bytes);
    end();
  }
  void on_loss(uint64_t offset_bytes) override {
    next_.on_loss(offset_bytes);
    end();
  }
  void end() {
    close();
    id_known_ = false;
  }
  void finish();

 private:
  void open(bool is_soon);
  void close();
  static void exclude(std::vector<Loss>& losers, uint8_t id) {
    std::erase_if(losers, [&](const Loss& loser) { return loser.id == id; });
  }

  StrayIds& strays_;
  const std::vector<Source>& sources_;
  FrameReader& next_;
  std::array<uint64_t*, 128> read_{};  ///< by id; null: no source has it
  std::optional<Stray> stray_;
  std::vector<uint8_t> strays_met_;  ///< their ids
  uint64_t known_ids_ = 0;           ///< id bytes of sources
  uint8_t id_ = 0;  ///< the last id byte's
  uint64_t id_offset_ = 0;
  bool id_known_ = false;
};

void StrayIds::Reader::on_run(const arm::FrameRun& run) {
  next_.on_run(run);
  if (read_[run.id] != nullptr) *read_[run.id] += run.bytes.size();
  if (!stray_) return;
  for (const std::byte byte : run.bytes) {
    if (byte == std::byte{0x80} && stray_->zeros >= kSyncZeros) stray_->is_source = stray_->has_sync = true;
    stray_->zeros = byte == std::byte{0} ? stray_->zeros + 1 : 0;
    stray_->ones = byte == std::byte{0xff} ? stray_->ones + 1 : 0;
    if (stray_->ones >= kSyncOnes) stray_->is_source = stray_->has_sync = true;
    stray_->has_data = stray_->has_data || byte != std::byte{0};
  }
}

void StrayIds::Reader::on_id(uint8_t id, uint64_t offset_bytes) {
  next_.on_id(id, offset_bytes);
  const bool repeats = id_known_ && id == id_;
  const bool is_soon = id_known_ && offset_bytes / arm::kFrameBytes - id_offset_ / arm::kFrameBytes < kRepeatFrames;
  if (stray_ && repeats && id != 0) {
    stray_->is_source = true;
  } else {
    if (stray_ && is_soon) exclude(stray_->losers, id);
    close();
    known_ids_ += read_[id] != nullptr ? 1 : 0;
    if (read_[id] == nullptr && id != kFlushId && id != kTriggerId) open(is_soon);
  }
  id_ = id;
  id_offset_ = offset_bytes;
  id_known_ = true;
}

void StrayIds::Reader::open(bool is_soon) {
  stray_.emplace();
  for (const Source& source : sources_) {
    if (source.id != 0) stray_->losers.push_back({source.index, strays_.read_[source.index], source.id});
  }
  if (is_soon) exclude(stray_->losers, id_);
}

void StrayIds::Reader::close() {
  if (!stray_) return;
  const Stray stray = *std::exchange(stray_, std::nullopt);
  if (!stray.has_data) return;
  strays_met_.push_back(id_);
  Seen& seen = strays_.seen_[id_];
  if (seen.strays++ == 0) seen.losers = stray.losers;
  seen.is_source = seen.is_source || stray.is_source;
  seen.has_sync = seen.has_sync || stray.has_sync;
}

// Where strays are no exception, the buffer does not hold frames of these sources.
void StrayIds::Reader::finish() {
  end();
  if (strays_met_.size() <= kFewStrays || strays_met_.size() * kIdsPerStray <= known_ids_) return;
  for (const uint8_t id : strays_met_) strays_.seen_[id].is_source = true;
}

void StrayIds::add_frames(Bytes buffer, arm::FrameFormat format, const std::vector<Source>& sources, arm::FrameReader& reader) {
  Reader own(*this, sources, reader);
  arm::read_frames(buffer, format, own);
  own.finish();
}

std::vector<uint8_t> StrayIds::undescribed() const {
  std::vector<uint8_t> ids;
  for (const auto& [id, seen] : seen_) {
    if (seen.has_sync && id != 0) ids.push_back(id);
  }
  return ids;
}

std::multimap<size_t, StrayIds::Loss> StrayIds::losses() const {
  std::multimap<size_t, Loss> losses;
  for (const auto& [id, seen] : seen_) {
    if (seen.strays != 1 || seen.is_source) continue;
    for (const Loss& loser : seen.losers) losses.emplace(loser.index, loser);
  }
  return losses;
}

}  // namespace ptd
