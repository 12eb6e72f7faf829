// Example of the library: opens a recording and prints the functions that ran the most instructions. Usage: hot_functions [perf.data]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "ptdecode/recording.h"

int main(int argc, char** argv) {
  ptd::OpenOptions options;
  options.stashes = ptd::usual_stashes();  // code that ptdecode record has kept: this user's, by the environment, and the machine's
  if (argc > 1) options.path = argv[1];
  const auto opened = ptd::Recording::open(options);
  if (!opened.ok()) {
    std::fprintf(stderr, "hot_functions: %s\n", opened.error().message.c_str());
    return 1;
  }
  const ptd::Recording& recording = **opened;

  std::map<std::string, uint64_t> instructions;
  uint64_t total = 0, gaps = 0, uncertain = 0;
  for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
    const auto status = recording.decode(stream, 0, ptd::Recording::kStreamEnd,
                                         [&](const ptd::Batch& batch, const ptd::FlowDecoder& decoder, const ptd::AuxSegment& segment) {
                                           for (const ptd::Block& block : batch.blocks) {
                                             const ptd::BlockInfo& info = decoder.blocks().info(block.node);
                                             const auto symbol = recording.symbolizer().find(info.space, info.ip, segment.time.first);
                                             instructions[symbol ? std::string(symbol->name) : "[unknown]"] += block.instructions;
                                             total += block.instructions;
                                             if ((block.flags & ptd::kUncertainFlags) != 0) uncertain += block.instructions;
                                           }
                                           gaps += batch.gaps.size();
                                           return true;
                                         });
    if (!status.ok()) {
      std::fprintf(stderr, "hot_functions: %s\n", status.error().message.c_str());
      return 1;
    }
  }

  std::vector<std::pair<uint64_t, std::string>> ranked;
  for (const auto& [name, count] : instructions) ranked.emplace_back(count, name);
  std::sort(ranked.rbegin(), ranked.rend());
  for (size_t i = 0; i < ranked.size() && i < 20; ++i)
    std::printf("%12llu  %s\n", static_cast<unsigned long long>(ranked[i].first), ranked[i].second.c_str());
  std::printf("%llu instructions, %llu of them marked uncertain, %llu gaps\n", static_cast<unsigned long long>(total),
              static_cast<unsigned long long>(uncertain), static_cast<unsigned long long>(gaps));
  return 0;
}
