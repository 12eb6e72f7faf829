// The items of flow cursors and branch cursors.
#include "capi/items.h"

#include <utility>

#include "analysis/table/flow/branch_flow.h"
#include "ptdecode/recording_cursor.h"

namespace ptd::capi {

namespace {

uint64_t total_bytes(const CursorRequest& request) {
  uint64_t bytes = 0;
  for (const uint32_t stream : request.streams) bytes += request.recording->recording->streams()[stream].size_bytes;
  return bytes;
}

/// Sets the item's bounds, which contain its time: that one never goes back, and the bounds may, where the clock contradicts itself.
void set_times(ptd_item& item, Interval time, TimeNs now) {
  const bool known = now > kTimeMin && now < kTimeMax;
  item.time_ns = to_ns(now);
  item.time_first_ns = to_ns(known ? std::min(time.first, now) : time.first);
  item.time_last_ns = to_ns(known ? std::max(time.last, now) : time.last);
}

class FlowItems final : public ItemSource {
 public:
  FlowItems(const CursorRequest& request, Control& control)
      : request_(request),
        control_(control),
        cursor_(*request.recording->recording, request.streams, request.time),
        total_(total_bytes(request)) {
    control_.progress(0, total_);
    cursor_.set_check([this] {
      control_.progress(cursor_.decoded_bytes(), total_);
      control_.check();
      return true;
    });
  }

  bool next(ptd_item& item) override {
    for (;;) {
      const FlowItem kind = cursor_.next();
      if (kind == FlowItem::end) return false;
      if (!request_.time.contains(cursor_.item().now())) continue;
      const StreamCursor& at = cursor_.item();
      fill_context(item, request_.recording->recording->streams()[cursor_.stream()], cursor_.stream(), at.context(), at.now());
      fill(item, kind, at);
      return true;
    }
  }

 private:
  void fill(ptd_item& item, FlowItem kind, const StreamCursor& at) {
    if (kind == FlowItem::blocks) return fill_blocks(item, at);
    if (kind == FlowItem::gap) return fill_gap(item, at.gap(), at.now());
    item.kind = PTD_ITEM_MARK;
    if (kind == FlowItem::mark) return;
    const Event& event = at.event();
    item.kind = PTD_ITEM_EVENT;
    set_times(item, event.time, at.now());
    item.cycles = event.cycles;
    item.u.event = {
        static_cast<uint8_t>(event.kind), event.flags, name(event.kind), event.from.value, event.to.value, event.payload, event.aux,
        event.stream_offset_bytes};
  }
  void fill_blocks(ptd_item& item, const StreamCursor& at) {
    blocks_.clear();
    for (const Block& block : at.blocks()) {
      const BlockInfo& info = at.table().info(block.node);
      blocks_.push_back({info.ip.value,
                         reinterpret_cast<const uint8_t*>(info.first_byte),
                         info.size_bytes,
                         block.node,
                         block.instructions,
                         block.flags,
                         static_cast<uint8_t>(info.mode),
                         {}});
    }
    item.kind = PTD_ITEM_BLOCKS;
    item.u.blocks = {blocks_.data(), blocks_.size()};
  }

  const CursorRequest request_;
  Control& control_;
  RecordingCursor cursor_;
  const uint64_t total_;
  std::vector<ptd_block> blocks_;
};

/// The runs of one stream, for TimeMerge.
struct BranchSource {
  uint32_t stream = 0;
  StreamCursor cursor;
  BranchFlow flow;
  const BranchRun* run = nullptr;
  bool over = false;

  bool advance() {
    for (;;) {
      run = flow.next();
      if (run != nullptr) return true;
      if (over) {
        flow = {};
        cursor.release();
        return false;
      }
      const FlowItem item = cursor.next();
      flow.take(item, cursor);
      over = item == FlowItem::end;
    }
  }
  [[nodiscard]] TimeNs time() const { return run->order; }
};

class BranchItems final : public ItemSource {
 public:
  BranchItems(const CursorRequest& request, Control& control) : request_(request), control_(control), total_(total_bytes(request)) {
    control_.progress(0, total_);
    merge_.reserve(request.streams.size());
    for (const uint32_t stream : request.streams)
      merge_.add(BranchSource{stream, StreamCursor(*request.recording->recording, stream, request.time), {}},
                 request.recording->recording->streams()[stream].time.first);
    for (BranchSource& source : merge_.sources()) {
      source.cursor.set_check([this] {
        control_.progress(decoded_bytes(), total_);
        control_.check();
        return true;
      });
      source.cursor.set_past_end([&source](uint64_t segment) { return source.flow.is_open_before(segment); });
    }
  }

  bool next(ptd_item& item) override {
    BranchSource* source = merge_.next();
    while (source != nullptr && !request_.time.contains(source->run->order)) source = merge_.next();
    if (source == nullptr) return false;
    const BranchRun& run = *source->run;
    fill_context(item, request_.recording->recording->streams()[source->stream], source->stream, run.context, run.time);
    if (run.gap) {
      fill_gap(item, *run.gap, run.time);
      return true;
    }
    branches_.clear();
    source->flow.each(run, [&](const FlowBranch& branch, const BranchEnds& ends) {
      branches_.push_back({ends.has_from ? ends.from.value : 0, ends.has_to ? ends.to.value : 0, source->flow.kind(ends.kind),
                           branch.instructions, branch.block.flags, 0});
    });
    item.kind = PTD_ITEM_BRANCHES;
    item.u.branches = {branches_.data(), branches_.size()};
    return true;
  }

 private:
  [[nodiscard]] uint64_t decoded_bytes() const {
    uint64_t bytes = 0;
    for (const BranchSource& source : merge_.sources()) bytes += source.cursor.decoded_bytes();
    return bytes;
  }

  const CursorRequest request_;
  Control& control_;
  const uint64_t total_;
  TimeMerge<BranchSource> merge_;
  std::vector<ptd_branch> branches_;
};

}  // namespace

void fill_context(ptd_item& item, const StreamInfo& info, uint32_t stream, const Mark& context, TimeNs now) {
  item.stream = stream;
  item.pid = context.pid;
  item.tid = context.tid >= 0 ? context.tid : info.tid;
  item.cpu = info.cpu;
  item.space = context.space == kNoSpace ? PTD_NONE : context.space.value;
  item.mode = static_cast<uint32_t>(context.mode);
  item.reserved = 0;
  item.cycles = context.cycles;
  set_times(item, context.time, now);
}

void fill_gap(ptd_item& item, const Gap& gap, TimeNs now) {
  item.kind = PTD_ITEM_GAP;
  set_times(item, gap.time, now);
  item.u.gap = {static_cast<uint8_t>(gap.reason), name(gap.reason), sentence(gap.reason), gap.ip.value,
                gap.stream_offset_bytes,          gap.lost_bytes};
}

std::unique_ptr<ItemSource> make_flow_items(const CursorRequest& request, Control& control) {
  return std::make_unique<FlowItems>(request, control);
}
std::unique_ptr<ItemSource> make_branch_items(const CursorRequest& request, Control& control) {
  return std::make_unique<BranchItems>(request, control);
}

}  // namespace ptd::capi
