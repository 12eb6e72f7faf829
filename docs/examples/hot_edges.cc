// Lists the branches that were taken most often, with symbols of the time at which they ran. Usage: hot_edges [RECORDING]
#include <ptdecode/recording.h>
#include <ptdecode/stream_cursor.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

std::string name_of(const ptd::Recording& recording, const ptd::BlockInfo& block, ptd::TimeNs when) {
  const auto symbol = recording.symbolizer().find(block.space, block.ip, when);
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%llx", static_cast<unsigned long long>(symbol ? symbol->offset_bytes : block.ip.value));
  return (symbol ? std::string(symbol->name) : "[unknown]") + offset;
}

}  // namespace

int main(int argc, char** argv) {
  ptd::OpenOptions options;
  options.stashes = ptd::usual_stashes();
  if (argc > 1) options.path = argv[1];
  const auto opened = ptd::Recording::open(options);
  if (!opened.ok()) {
    std::fprintf(stderr, "hot_edges: %s\n", opened.error().message.c_str());
    return 1;
  }
  const ptd::Recording& recording = **opened;

  std::map<std::pair<std::string, std::string>, uint64_t> total;
  uint64_t instructions = 0, uncertain = 0, gaps = 0;
  for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
    struct Edge {
      uint64_t count = 0;
      ptd::TimeNs when;  ///< of its first passage: code at this address may have another name later, but then it is another node
    };
    std::map<std::pair<ptd::NodeId, ptd::NodeId>, Edge> edges;
    std::optional<ptd::NodeId> from;
    ptd::StreamCursor cursor(recording, stream);
    for (ptd::FlowItem item = cursor.next(); item != ptd::FlowItem::end; item = cursor.next()) {
      if (item == ptd::FlowItem::gap) ++gaps;
      if (item == ptd::FlowItem::gap || item == ptd::FlowItem::event) from.reset();  // what follows was not reached by a branch
      if (item != ptd::FlowItem::blocks) continue;
      for (const ptd::Block& block : cursor.blocks()) {
        if (from) {
          Edge& edge = edges[{*from, block.node}];
          if (edge.count++ == 0) edge.when = cursor.now();
        }
        from = ptd::has(block.flags, ptd::BlockFlag::taken) ? std::optional(block.node) : std::nullopt;
        instructions += block.instructions;
        if ((block.flags & ptd::kUncertainFlags) != 0) uncertain += block.instructions;
      }
    }
    const ptd::BlockTable& table = cursor.table();
    for (const auto& [nodes, edge] : edges)
      total[{name_of(recording, table.info(nodes.first), edge.when), name_of(recording, table.info(nodes.second), edge.when)}] +=
          edge.count;
  }

  std::vector<std::pair<uint64_t, std::pair<std::string, std::string>>> ranked;
  for (const auto& [names, count] : total) ranked.emplace_back(count, names);
  std::sort(ranked.rbegin(), ranked.rend());
  if (ranked.size() > 20) ranked.resize(20);
  for (const auto& [count, names] : ranked)
    std::printf("%12llu  %s -> %s\n", static_cast<unsigned long long>(count), names.first.c_str(), names.second.c_str());
  std::printf("%llu instructions, %llu of them marked uncertain, %llu gaps\n", static_cast<unsigned long long>(instructions),
              static_cast<unsigned long long>(uncertain), static_cast<unsigned long long>(gaps));
  return 0;
}
