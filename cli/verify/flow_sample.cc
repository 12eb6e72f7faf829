// Small pieces of flow as lines: see flow_sample.h.
#include "cli/verify/flow_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "cli/cache/node_cache.h"
#include "cli/list/code_text.h"
#include "cli/report/finding_text.h"
#include "ptdecode/disassembler.h"
#include "ptdecode/flow_cursor.h"

namespace ptd::cli {

namespace {

constexpr size_t kMaxHits = 10'000, kMaxVersions = 16, kBlocksBefore = 2, kBlocksAfter = 1;

/// Watches one stream for blocks that cover places whose code changed.
class Watcher {
 public:
  Watcher(const Recording& recording, int32_t cpu, ChangedFlow& flow) : recording_(recording), cpu_(cpu), flow_(flow) {}

  void take(const Batch& batch, const BlockTable& blocks) {
    nodes_.bind(blocks);
    if (blocks.size() > sites_.size()) sites_.resize(blocks.size());
    cursor_.begin(batch);
    for (FlowItem item = cursor_.next(); item != FlowItem::end; item = cursor_.next()) {
      if (item == FlowItem::mark) now_ = cursor_.mark().time.first;
      if (item == FlowItem::event) take_event(cursor_.event());
      if (item != FlowItem::blocks) continue;
      for (const Block& block : cursor_.blocks()) take_block(block);
    }
    flow_.gaps += batch.gaps.size();
  }

 private:
  void take_event(const Event& event) {
    if ((event.flags & kEventBreakpoint) != 0 && flow_.int3.size() < kMaxHits)
      flow_.int3.push_back({cpu_, event.time.first, event.from, event.to});
  }

  /// The changing places that a block covers; looked up once a block.
  const std::vector<SiteId>& sites_of(NodeId node) {
    std::optional<std::vector<SiteId>>& known = sites_[node];
    if (known) return *known;
    const BlockInfo& info = nodes_.info(node);
    known = recording_.timeline().sites_in(info.space, info.ip, info.size_bytes);
    std::erase_if(*known, [&](SiteId id) { return recording_.timeline().site(id).versions < 2; });
    return *known;
  }

  void take_block(const Block& block) {
    flow_.instructions += block.instructions;
    if (continued_ != nullptr && wanted_after_ != 0) {
      add_lines(block.node, continued_->around, "  ");
      if (--wanted_after_ == 0) continued_ = nullptr;
    }
    for (const SiteId site : sites_of(block.node)) take_site(site, block.node);
    recent_.push_back(block.node);
    if (recent_.size() > kBlocksBefore) recent_.pop_front();
  }

  void take_site(SiteId id, NodeId node) {
    const BlockInfo& info = nodes_.info(node);
    const Timeline::SiteInfo site = recording_.timeline().site(id);
    if (site.ip < info.ip) return;  // the block begins inside of it
    const uint64_t offset = site.ip - info.ip;
    const Bytes all = nodes_.bytes(node);
    if (offset >= all.size()) return;
    const Bytes ran = all.subspan(offset, std::min<uint64_t>(site.size_bytes, all.size() - offset));
    std::vector<RanVersion>& versions = flow_.ran[id];
    const std::string bytes = hex_text(ran);
    const auto same = std::find_if(versions.begin(), versions.end(), [&](const RanVersion& version) { return version.bytes == bytes; });
    if (same != versions.end()) {
      ++same->times;
      same->last = now_;
      return;
    }
    if (versions.size() >= kMaxVersions) return;
    versions.reserve(kMaxVersions);  // keeps continued_ valid
    RanVersion& version = versions.emplace_back();
    version.bytes = bytes;
    version.text = line_of(node, offset, ran.size());
    version.first = version.last = now_;
    version.times = 1;
    for (const NodeId before : recent_) add_lines(before, version.around, "  ");
    add_lines(node, version.around, "> ");
    continued_ = &version;
    wanted_after_ = kBlocksAfter;
  }

  /// The instructions of a block that lie in `size_bytes` at an offset, in part at least.
  std::string line_of(NodeId node, uint64_t offset_bytes, uint64_t size_bytes) {
    const BlockInfo& info = nodes_.info(node);
    std::string text;
    for (const CachedInsn& insn : nodes_.insns(node)) {
      if (insn.offset_bytes + insn.length_bytes <= offset_bytes || insn.offset_bytes >= offset_bytes + size_bytes) continue;
      const Bytes bytes = nodes_.bytes(node).subspan(insn.offset_bytes, insn.length_bytes);
      text += (text.empty() ? "" : "; ") + disassembler_.text(bytes, info.ip + insn.offset_bytes, info.mode);
    }
    return text;
  }

  void add_lines(NodeId node, std::vector<std::string>& lines, std::string_view lead) {
    const BlockInfo& info = nodes_.info(node);
    const Bytes bytes = nodes_.bytes(node);
    for (const CachedInsn& insn : nodes_.insns(node)) {
      const Ip ip = info.ip + insn.offset_bytes;
      lines.push_back(fmt::format("{}{:16x} {:<36} {}", lead, ip.value, symbol_text(recording_, info.space, ip, now_),
                                  disassembler_.text(bytes.subspan(insn.offset_bytes, insn.length_bytes), ip, info.mode)));
    }
  }

  const Recording& recording_;
  const int32_t cpu_;
  ChangedFlow& flow_;
  NodeCache nodes_;
  Disassembler disassembler_;
  std::vector<std::optional<std::vector<SiteId>>> sites_;
  std::deque<NodeId> recent_;
  RanVersion* continued_ = nullptr;
  size_t wanted_after_ = 0;
  FlowCursor cursor_;
  TimeNs now_;
};

}  // namespace

ChangedFlow watch_changes(const Recording& recording) {
  ChangedFlow flow;
  for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
    Watcher watcher(recording, recording.streams()[stream].cpu, flow);
    const Status status =
        recording.decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
          watcher.take(batch, decoder.blocks());
          return true;
        });
    if (!status) break;
  }
  std::stable_sort(flow.int3.begin(), flow.int3.end(), [](const Int3Hit& a, const Int3Hit& b) { return a.when < b.when; });
  return flow;
}

std::vector<std::string> segment_lines(const Recording& recording, uint32_t stream, uint64_t segment, size_t limit) {
  std::vector<std::string> lines;
  NodeCache nodes;
  FlowCursor cursor;
  const Disassembler disassembler;
  const Status status =
      recording.decode(stream, segment, segment + 1, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
        nodes.bind(decoder.blocks());
        cursor.begin(batch);
        for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
          if (item == FlowItem::gap) {
            const Gap& gap = cursor.gap();
            lines.push_back(fmt::format("gap: {} at {:x}, {} trace bytes skipped", name(gap.reason), gap.ip.value, gap.lost_bytes));
          }
          if (item != FlowItem::blocks) continue;
          for (const Block& block : cursor.blocks()) {
            if (lines.size() >= limit) return false;
            const BlockInfo& info = nodes.info(block.node);
            for (const CachedInsn& insn : nodes.insns(block.node)) {
              const Ip ip = info.ip + insn.offset_bytes;
              const Bytes bytes = nodes.bytes(block.node).subspan(insn.offset_bytes, insn.length_bytes);
              lines.push_back(fmt::format("{:16x} {}", ip.value, disassembler.text(bytes, ip, info.mode)));
            }
          }
        }
        return lines.size() < limit;
      });
  if (!status) lines.push_back(status.error().message);
  return lines;
}

}  // namespace ptd::cli
