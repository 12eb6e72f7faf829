// RenamePlaces: hand-made flow of 100 instructions a block. Each test says where the thread gets its name, by the rules of rename_places.h.
#include "recording/rename_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "decoder/batch_edit.h"
#include "ptdecode/flow_cursor.h"

namespace ptd {
namespace {

constexpr int32_t kTid = 7, kOtherThread = 8, kCpu = 2;
constexpr uint16_t kRuns = 100;
constexpr Ip kUser{0x1000}, kKernel{0xffffffff81000000};

/// Flow of one segment.
class Flow {
 public:
  Flow() {
    plain_ = blocks_->intern(SpaceId{1}, kUser, ExecMode::bits64, kRuns, bytes_of({0xc3}));
    kernel_ = blocks_->intern(kKernelSpace, kKernel, ExecMode::bits64, kRuns, bytes_of({0xc3}));
    prctl_ = blocks_->intern(SpaceId{1}, Ip{0x2000}, ExecMode::bits64, kRuns, bytes_of({0xb8, 157, 0, 0, 0, 0x0f, 0x05}));
    getppid_ = blocks_->intern(SpaceId{1}, Ip{0x3000}, ExecMode::bits64, kRuns, bytes_of({0xb8, 110, 0, 0, 0, 0x0f, 0x05}));
  }
  /// A timing packet.
  Flow& at(uint64_t time, int32_t tid = kTid) {
    Mark mark;
    mark.before_block = size();
    mark.time.first = mark.about = TimeNs{now_ = time};
    mark.tid = mark.pid = tid;
    mark.time_known = true;
    batch_.marks.push_back(mark);
    return *this;
  }
  Flow& run(uint32_t count) { return add(plain_, count); }
  Flow& run_kernel(uint32_t count) { return add(kernel_, count); }
  Flow& stop(EventKind kind = EventKind::disabled) { return event(kind); }
  Flow& start() { return event(EventKind::enabled); }
  Flow& call_prctl() { return add(prctl_, 1).stop().start(); }
  Flow& call_getppid() { return add(getppid_, 1).stop().start(); }
  Flow& interrupt() { return stop(EventKind::async_disabled).start(); }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(batch_.blocks.size()); }
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] const std::shared_ptr<BlockTable>& blocks() const { return blocks_; }

 private:
  static Bytes bytes_of(std::initializer_list<int> values) {
    static std::vector<std::vector<std::byte>> kept;
    std::vector<std::byte>& bytes = kept.emplace_back();
    for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
    return bytes;
  }
  Flow& add(NodeId node, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) batch_.blocks.push_back({node, kRuns, 0});
    return *this;
  }
  Flow& event(EventKind kind) {
    Event event;
    event.kind = kind;
    event.before_block = size();
    event.time.first = event.about = TimeNs{now_};
    batch_.events.push_back(event);
    return *this;
  }

  std::shared_ptr<BlockTable> blocks_ = std::make_shared<BlockTable>();
  NodeId plain_ = 0, kernel_ = 0, prctl_ = 0, getppid_ = 0;
  Batch batch_;
  uint64_t now_ = 0;
};

/// Outputs the flow in batches of about `batch_blocks` blocks.
class FlowPlayer final : public FlowDecoder {
 public:
  explicit FlowPlayer(const Flow& flow) : blocks_(flow.blocks()), left_(flow.batch()) {}
  void begin(const AuxSegment&) override {}
  [[nodiscard]] const BlockTable& blocks() const override { return *blocks_; }

 private:
  bool fill(Batch& batch, size_t batch_blocks) override {
    Batch rest;
    if (batch_blocks < left_.blocks.size()) split(left_, place_of(left_, batch_blocks), rest);
    append_batch(batch, left_);
    left_ = std::move(rest);
    return !is_empty(left_);
  }
  std::shared_ptr<BlockTable> blocks_;
  Batch left_;
};

using Renames = std::vector<Rename>;

/// Returns before which blocks the lower time of the flow passes the time of a rename, by the marks as FlowCursor gives them: one place a
/// rename. In batches of all sizes, with lower times that do not go back.
std::vector<uint32_t> places(const Flow& flow, const Renames& renames, uint64_t end = 10'000, int32_t cpu = -1,
                             const ContextTrack& contexts = {}) {
  std::vector<uint32_t> first;
  for (const size_t batch_blocks : {size_t{1000}, size_t{7}, size_t{1}}) {
    RenamePlaces decoder(std::make_unique<FlowPlayer>(flow), std::make_shared<const Renames>(renames), contexts);
    AuxSegment segment;
    segment.cpu = cpu;
    segment.tid = cpu < 0 ? kTid : -1;
    segment.time = {TimeNs{1}, end == 0 ? kTimeMax : TimeNs{end}};
    decoder.begin(segment);
    std::vector<uint32_t> found(renames.size(), ~uint32_t{0});
    FlowCursor cursor;
    Batch batch;
    uint32_t passed = 0;
    TimeNs lower{};
    for (bool more = true; more;) {
      batch.clear();
      more = decoder.next(batch, batch_blocks);
      cursor.begin(batch);
      for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
        if (item == FlowItem::event && cursor.event().kind == EventKind::enabled) lower = std::max(lower, cursor.event().time.first);
        if (item == FlowItem::event && cursor.event().kind == EventKind::disabled) {
          EXPECT_LE(cursor.event().time.first, lower);
        }
        if (item != FlowItem::mark) continue;
        EXPECT_LE(lower, cursor.mark().time.first);
        lower = cursor.mark().time.first;
        for (size_t i = 0; i < renames.size(); ++i) {
          if (!(lower < renames[i].time)) found[i] = std::min(found[i], passed + cursor.position());
        }
      }
      passed += static_cast<uint32_t>(batch.blocks.size());
    }
    EXPECT_EQ(flow.size(), passed);
    if (first.empty()) first = found;
    EXPECT_EQ(first, found) << batch_blocks;
  }
  return first;
}

Rename at(uint64_t time, int32_t tid = kTid) { return {TimeNs{time}, tid}; }

TEST(RenamePlaces, AreAtThePauseOfASystemCall) {
  Flow flow;
  flow.at(1000).start().run(10).call_prctl().run(30).at(2000).run(10);
  for (const uint64_t time : {1001U, 1500U, 1999U}) EXPECT_EQ(std::vector{11U}, places(flow, {at(time)})) << time;
}

TEST(RenamePlaces, AreNotAtAnInterrupt) {
  Flow flow;
  flow.at(1000).start().run(20).interrupt().run(20).call_prctl().run(20).interrupt().run(20).at(2000).run(1);
  for (const uint64_t time : {1100U, 1500U, 1900U}) EXPECT_EQ(std::vector{41U}, places(flow, {at(time)})) << time;
}

TEST(RenamePlaces, AreNotAtACallThatRenamesNothing) {
  Flow flow;
  flow.at(1000).start().run(20).call_getppid().run(20).call_prctl().run(20).call_getppid().run(20).at(2000).run(1);
  for (const uint64_t time : {1100U, 1500U, 1900U}) EXPECT_EQ(std::vector{42U}, places(flow, {at(time)})) << time;
}

TEST(RenamePlaces, AreTheNearestOfSeveral) {
  Flow flow;
  flow.at(1000).start().run(19).call_prctl().run(39).call_prctl().run(40).at(2000).run(1);
  EXPECT_EQ(std::vector{20U}, places(flow, {at(1210)}));
  EXPECT_EQ(std::vector{60U}, places(flow, {at(1590)}));
}

TEST(RenamePlaces, DifferForSeveralRenames) {
  Flow flow;
  flow.at(1000).start().run(9).call_prctl().run(9).call_prctl().run(9).call_prctl().run(70).at(2000).run(1);
  EXPECT_EQ((std::vector{10U, 20U, 30U}), places(flow, {at(1700), at(1800), at(1900)}));
  EXPECT_EQ((std::vector{10U, 20U, 30U}), places(flow, {at(1001), at(1002), at(1003)}));
}

TEST(RenamePlaces, DifferIfTimingPacketsLieBetweenThem) {
  Flow flow;  // the first call is longer than the time between two packets
  flow.at(1000).start().run(29).call_prctl().at(1900).run(9).call_prctl().run(10).at(2000).run(1);
  EXPECT_EQ((std::vector{30U, 40U}), places(flow, {at(1890), at(1910)}));
}

TEST(RenamePlaces, AreInAPauseAtTheEndOfASegment) {
  Flow flow;
  flow.at(1000).start().run(20).stop();
  EXPECT_EQ(std::vector{20U}, places(flow, {at(1800)}, 1800));
  Flow later;
  later.at(1700).start().run(20).at(2000).run(1);  // the segment after it
  EXPECT_EQ(std::vector{0U}, places(later, {at(1800)}));
}

TEST(RenamePlaces, AreInAPauseWhereTheTraceEnds) {
  Flow flow;  // how long it goes on is unknown
  flow.at(1000).start().run(20).call_prctl().run(20).stop();
  EXPECT_EQ(std::vector{21U}, places(flow, {at(1800)}, 0));
}

TEST(RenamePlaces, AreInTheKernelIfItIsTraced) {
  Flow flow;
  flow.at(1000).run(50).run_kernel(2).run(48).at(2000).run(1);
  for (const uint64_t time : {1100U, 1510U, 1900U}) {
    const std::vector<uint32_t> found = places(flow, {at(time)});
    EXPECT_LE(51U, found[0]) << time;
    EXPECT_GE(52U, found[0]) << time;
  }
}

TEST(RenamePlaces, OfAnotherThreadMoveNothing) {
  Flow flow;  // the thread runs
  flow.at(1000).run(100).at(2000).run(1);
  EXPECT_EQ(std::vector{100U}, places(flow, {at(1300)}));
  Flow waits;  // it waits in a call that renames nothing, nearly all the time
  waits.at(500).run(10).at(1000).run(30).call_getppid().run(59).at(9000).run(1);
  for (const uint64_t time : {1001U, 5000U, 8999U}) EXPECT_EQ(std::vector{100U}, places(waits, {at(time)})) << time;
  Flow waited;  // it waited until a timing packet
  waited.at(1000).run(30).call_getppid().at(9000).run(50).at(9900).run(1);
  EXPECT_EQ(std::vector{31U}, places(waited, {at(8500)}));
  EXPECT_EQ(std::vector{81U}, places(waited, {at(9500)}));
}

TEST(RenamePlaces, AreInTheThreadsOwnFlow) {
  ContextTrack contexts;
  contexts.add_switch(kCpu, TimeNs{1000}, {kOtherThread, kOtherThread, kNoSpace});
  contexts.add_switch(kCpu, TimeNs{1400}, {kTid, kTid, kNoSpace});
  contexts.sort();
  Flow flow;
  flow.at(1000, kOtherThread).start().run(20).call_prctl().run(19).at(1000).call_prctl().run(10).at(2000).run(1);
  EXPECT_EQ(std::vector{41U}, places(flow, {at(1450)}, 10'000, kCpu, contexts));
  // On another cpu then: nothing changes.
  EXPECT_EQ(std::vector{51U}, places(flow, {at(1300)}, 10'000, kCpu, contexts));
}

}  // namespace
}  // namespace ptd
