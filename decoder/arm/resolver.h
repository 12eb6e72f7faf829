// Resolver: converts packets to elements and passes them to the flows once they are committed.
#pragma once

#include "decoder/arm/elements.h"
#include "decoder/arm/windows.h"
#include "ptdecode/arm/packet_reader.h"

namespace ptd::arm {

/// Processes one segment's packets. Invariant: an element reaches the flows only once it is committed; a cancelled one never does.
class Resolver {
 public:
  /// `exact_only`: processes atoms one by one.
  Resolver(Flows& flows, const TraceConfig& config, bool exact_only)
      : flows_(&flows), config_(config), reader_({}, config), exact_only_(exact_only) {}

  /// `repairs`: of timestamps; they must outlive the decoding of the segment.
  void begin(Bytes bytes, std::span<const TimestampRepair> repairs);
  /// Processes packets until the batch is full, a packet at or after `end_offset`, a fork was met, or the segment is done.
  TraceStop run(BatchTarget target, uint64_t end_offset);
  [[nodiscard]] uint64_t offset() const { return reader_.offset(); }
  /// Returns the number of elements that are not committed.
  [[nodiscard]] uint64_t queued() const { return queue_.size(); }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  enum class State : uint8_t { no_sync, wait_info, decoding, done };

  bool run_plain(uint64_t end_offset);
  bool run_ahead();
  bool look_ahead(uint64_t& due);
  bool pass_aside(uint64_t& at, uint64_t& depth, uint64_t& due);
  void queue_ahead();
  void end_ahead();
  bool resync(uint64_t from);
  void lose_unread(uint64_t end);
  void lose_sync(GapReason reason, uint64_t offset, uint64_t from);
  void on_packet(const Packet& packet, uint64_t offset);
  void on_flow(const Packet& packet, Element element);
  void on_start(const Packet& packet, uint64_t offset);
  void on_address(const Packet& packet, Element element);
  void on_q(const Packet& packet, Element element);
  void on_speculation(const Packet& packet, Element element);
  void stop(const Packet& packet, uint64_t offset);
  void add(Element element, ElementKind kind, uint32_t p0);
  void commit(uint64_t count);
  void commit_excess();
  bool commit_one(uint64_t& left);
  bool commit_ahead(uint64_t& left);
  bool commit_bound(Element element);
  void execute(const Element& element);
  static void execute_on(Follower& follower, const Element& element);

  Flows* flows_;
  TraceConfig config_;
  Bytes bytes_;
  PacketReader reader_;
  bool exact_only_;
  ElementQueue queue_;
  State state_ = State::done;
  uint64_t depth_ = 0;           ///< P0 elements that are not committed
  bool awaits_address_ = false;  ///< the newest P0 element is incomplete until its address comes
  bool overflowed_ = false;
  uint64_t ignored_ = 0;          ///< packets of conditional and data trace
  uint64_t sync_from_ = 0;        ///< where the search for sync began
  uint64_t unread_from_ = kNone;  ///< the first packet of the flow between an A-Sync and its trace info
  uint32_t unread_ = 0;           ///< number of such packets
  bool info_is_lost_ = false;     ///< and another A-Sync came
  uint64_t packet_offset_ = 0;
  // The examined packets come after the queue and end at the position of the reader; their commits are counted.
  uint64_t behind_ = 0, ahead_ = 0;  ///< the first examined packet, and the end of the last
  uint8_t gone_ = 0;                 ///< atoms of the first that were executed
  std::vector<Noted> noted_;
  size_t first_noted_ = 0;  ///< the oldest entry that was not executed
};

}  // namespace ptd::arm
