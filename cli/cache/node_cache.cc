// NodeCache: see node_cache.h.
#include "cli/cache/node_cache.h"

#include "decoder/insn/executed_insn.h"

namespace ptd::cli {

void NodeCache::bind(const BlockTable& table) {
  if (table_ == &table && table.size() >= nodes_.size()) return;
  table_ = &table;
  nodes_.clear();
  insns_.clear();
  texts_.clear();
}

const NodeCache::Node& NodeCache::fill(NodeId id) {
  if (id >= nodes_.size()) nodes_.resize(table_->size());
  Node& node = nodes_[id];
  const BlockInfo& info = table_->info(id);
  const Bytes bytes = table_->bytes(id);
  node.first = static_cast<uint32_t>(insns_.size());
  uint32_t offset = 0;
  while (node.count < info.instructions && offset < bytes.size()) {
    const Insn insn = executed_insn(bytes.subspan(offset), info.mode);
    if (insn.length_bytes == 0) break;
    insns_.push_back({offset, insn.length_bytes, insn.cls, insn.detail, insn.displacement});
    offset += insn.length_bytes;
    ++node.count;
  }
  if (node.count == 0) {  // a decoder gives only whole instructions; keep the address all the same
    insns_.push_back({0, static_cast<uint8_t>(bytes.size() < 15 ? bytes.size() : 15), InsnClass::bad, InsnDetail::none, 0});
    node.count = 1;
  }
  return node;
}

void NodeCache::fill_text(NodeId id) {
  const Ip ip = table_->info(id).ip;
  const std::span<const CachedInsn> instructions = insns(id);
  const size_t start = texts_.size();
  for (const CachedInsn& insn : instructions) {
    texts_.hex((ip + insn.offset_bytes).value);
    texts_.ch('\n');
  }
  nodes_[id].text = start + 1;
  nodes_[id].text_size = static_cast<uint32_t>(texts_.size() - start);
}

}  // namespace ptd::cli
