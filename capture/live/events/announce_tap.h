// AnnounceTap: announcements of the recorded processes, as samples of a recording.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "capture/announce/announce_listener.h"
#include "capture/live/events/live_clock.h"
#include "perfio/perf_writer.h"

namespace ptd::live {

/// Follows the processes that it is given and those that they fork. Not thread-safe.
class AnnounceTap {
 public:
  using Sink = std::function<void(const perfio::OtherSample& sample, const perfio::SampleId& when)>;
  /// `clock` must outlive it and know the time (LiveClock::see_own_record()). `continues`: for a recorder that was killed.
  /// `socket`: where the program that the recorder starts offers its rings; null: there is none. It must outlive the tap.
  /// `longest_pause_ms`: between two looks for new rings of one process.
  AnnounceTap(const LiveClock& clock, Sink sink, announce::AnnounceSocket* socket, bool continues, int longest_pause_ms = 1000);

  /// The id of its event.
  static constexpr uint64_t kEventId = 0x7074640000000001;

  void add_process(int32_t pid);
  /// The process has started a program or mapped code: it is looked at often again.
  void look_soon(int32_t pid);
  /// Finds new rings, and passes on what was announced. Returns the number of records.
  uint64_t drain();
  /// Gives back the space of what was drained: its samples are in the file.
  void release() { listener_->release(); }
  /// Turns announcements off and passes on the rest.
  void stop();
  /// In a child of fork(): lets go of the rings, which the parent reads.
  void abandon();
  /// Returns when to drain again, in ms: soon if much was announced; `most` if nothing is.
  [[nodiscard]] int pause_ms(int most) const;
  /// Returns when to look for new rings again, in ms; -1: there is no process.
  [[nodiscard]] int look_ms() const;
  [[nodiscard]] uint64_t records() const { return listener_->records(); }
  [[nodiscard]] const std::vector<std::string>& troubles() const { return listener_->troubles(); }

 private:
  void take_offers();
  void pass_on(const announce::Heard& heard);

  struct Turn {
    uint64_t next_ns = 0, pause_ns = 0;  // CLOCK_MONOTONIC
  };
  uint64_t latest_ = 0;  // records of the latest round
  const LiveClock& clock_;
  Sink sink_;
  announce::AnnounceSocket* socket_;
  uint64_t longest_pause_ns_;
  std::map<int32_t, Turn> processes_;
  std::unique_ptr<announce::AnnounceListener> listener_;
};

}  // namespace ptd::live
