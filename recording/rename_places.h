// RenamePlaces: gives the renames of threads a place in the flow.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ptdecode/context_track.h"
#include "ptdecode/flow_decoder.h"
#include "recording/data/recording_data.h"

namespace ptd {

/// A thread gives itself a name, maybe the same as before: that takes a system call, too.
struct Rename {
  TimeNs time;
  int32_t tid = -1;
};

/// Returns all renames in order of time, without those of which the records say that another thread made them.
[[nodiscard]] std::vector<Rename> renames_of(const RecordingData& data);
/// Returns those of one thread.
[[nodiscard]] std::vector<Rename> renames_of(const RecordingData& data, int32_t tid);

/// Decodes as another decoder does, and narrows the times of the flow around renames: the flow before one has a lower time, and the flow
/// after it has no lower time. So all times that may be taken for a place in the flow give it the same name, whether a packet gives them or
/// an estimate.
///
/// The kernel writes the record in a system call of the thread ([Linux] perf_event_comm()). So of the flow between two timing packets,
/// the rename has one of these places:
///  - a pause of user-only trace that a branch out of the traced region began: not an interrupt, and not another system call, if its number
///    shows;
///  - in traced kernel code, or where it returns to user code.
/// Several such places are told apart by the system call's number or else by the instructions up to them, and several renames have
/// different ones. Without such a place, another thread wrote the record (/proc/PID/task/TID/comm): it says nothing about this thread's
/// flow, whose times stay as they are.
///
/// Limitation: the place is a guess if several places remain between two timing packets. Of thousands of renames in a segment, only the
/// first have one.
class RenamePlaces final : public FlowDecoder {
 public:
  using Renames = std::vector<Rename>;
  /// `renames`: in order of time. `contexts` must outlive it.
  RenamePlaces(std::unique_ptr<FlowDecoder> decoder, std::shared_ptr<const Renames> renames, const ContextTrack& contexts)
      : decoder_(std::move(decoder)), kept_(std::move(renames)), renames_(*kept_), contexts_(contexts) {}

  void begin(const AuxSegment& segment) override;
  [[nodiscard]] const BlockTable& blocks() const override { return decoder_->blocks(); }

 private:
  /// The flow of a batch between two timing packets.
  struct Window {
    size_t first_mark = 0, end_mark = 0;  ///< of the batch's marks
    uint32_t first_block = 0, end_block = 0;
    TimeNs begin = kTimeMin, end = kTimeMax;  ///< of the flow's times; these: unknown
  };
  /// A place before a block.
  struct Place {
    uint32_t block = 0;
    uint64_t ran = 0;  ///< instructions in the window up to it
  };
  /// Places in a window, each list in their order.
  struct Places {
    std::vector<Place> renaming;  ///< at system calls that rename
    std::vector<Place> left;      ///< others where user code was left, or kernel code ran
    std::optional<Place> begun;   ///< before the first block, if a pause ends there whose cause is not in the window
    bool has_flow = false;        ///< of the thread
    uint64_t ran = 0;             ///< instructions in the window
  };

  bool fill(Batch& batch, size_t batch_blocks) override;
  static constexpr uint32_t kNoBlock = ~uint32_t{0};
  void skip_others();
  bool place_next(Batch& batch, bool more);
  [[nodiscard]] Window window_of(const Batch& batch, size_t end_mark) const;
  [[nodiscard]] Places find_places(const Batch& batch, const Window& window) const;
  [[nodiscard]] std::optional<Place> choose(Places& places, const Window& window) const;
  void put(Batch& batch, const Window& window, uint32_t block);
  void raise(Batch& batch);
  void hold_back(Batch& batch);

  std::unique_ptr<FlowDecoder> decoder_;
  const std::shared_ptr<const Renames> kept_;
  const Renames& renames_;
  const ContextTrack& contexts_;
  AuxSegment segment_;
  size_t next_ = 0, end_ = 0;         ///< of renames_: those in the segment's time that have no place yet
  uint64_t searched_ = 0;             ///< blocks and marks of the segment in the windows of renames
  uint32_t placed_block_ = kNoBlock;  ///< the place of the last one, in the batch
  TimeNs floor_ = kTimeMin;           ///< the flow from here on is not before it; kTimeMin: its times say so themselves
  Batch held_, read_;                 ///< held_: flow that a rename may be in
};

}  // namespace ptd
