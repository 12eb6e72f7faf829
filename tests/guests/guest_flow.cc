// `guest_flow RECORDING [OPTION...]`: decodes a host's recording and compares the flow of each machine on each cpu with the truth.
//   --truth=MACHINE,CPU,FILE   checkpoints of a guest's instructions on a cpu (tests/corpus/truth.h)
//   --prefix                   the recording has only the first part of the flow of the truth
//   --host=FILE                the addresses at which the host's blocks begin, by cpu: "CPU ADDRESS" a line
// Prints, for each cpu and machine: instructions, those in uncertain blocks, checkpoints passed, and the first difference. Exits with 1 if
// a flow differs.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "ptdecode/guest.h"
#include "ptdecode/recording.h"
#include "tests/corpus/truth.h"

namespace ptd {
namespace {

struct Words {
  OpenOptions options;
  std::map<std::pair<uint32_t, int32_t>, std::string> truths;
  std::string host;
  bool prefix = false;
};

bool take(const std::string& word, const char* name, std::string& out) {
  if (!word.starts_with(name)) return false;
  out = word.substr(std::strlen(name));
  return true;
}

Words parse(int argc, char** argv) {
  Words words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    OpenOptions& options = words.options;
    std::string text;
    if (take(word, "--guestmount=", options.guestmount) || take(word, "--guestkallsyms=", options.guestkallsyms) ||
        take(word, "--guestmodules=", options.guestmodules) || take(word, "--guestvmlinux=", options.guestvmlinux) ||
        take(word, "--host=", words.host))
      continue;
    if (take(word, "--truth=", text)) {
      const size_t first = text.find(','), second = text.find(',', first + 1);
      words.truths[{std::stoul(text), std::stoi(text.substr(first + 1))}] = text.substr(second + 1);
    } else if (word == "--prefix") {
      words.prefix = true;
    } else if (word == "--exact") {
      options.exact_only = true;
    } else {
      options.path = word;
    }
  }
  return words;
}

/// The flow of one machine on one cpu.
struct Flow {
  test::TruthChecker checker{{}};
  uint64_t gaps = 0;
};

class HostCheck {
 public:
  explicit HostCheck(const std::string& path) {
    std::ifstream in(path);
    int32_t cpu = 0;
    for (std::string address; in >> cpu >> address;) want_[cpu].push_back(std::stoull(address, nullptr, 16));
  }
  void add(int32_t cpu, uint64_t ip) {
    std::vector<uint64_t>& want = want_[cpu];
    size_t& at = at_[cpu];
    if (at < want.size() && want[at] == ip) {
      ++at;
    } else {
      ++wrong_[cpu];
    }
  }
  bool report() const {
    bool equal = true;
    for (const auto& [cpu, want] : want_) {
      const uint64_t at = at_.contains(cpu) ? at_.at(cpu) : 0, wrong = wrong_.contains(cpu) ? wrong_.at(cpu) : 0;
      std::printf("host cpu %d: %zu blocks, %llu equal in order, %llu others\n", cpu, want.size(), static_cast<unsigned long long>(at),
                  static_cast<unsigned long long>(wrong));
      equal = equal && at == want.size() && wrong == 0;
    }
    return equal;
  }

 private:
  std::map<int32_t, std::vector<uint64_t>> want_;
  std::map<int32_t, size_t> at_;
  std::map<int32_t, uint64_t> wrong_;
};

int run(const Words& words) {
  const auto recording = Recording::open(words.options);
  if (!recording.ok()) {
    (void)std::fprintf(stderr, "%s\n", recording.error().message.c_str());
    return 2;
  }
  for (const std::string& warning : (*recording)->warnings()) (void)std::fprintf(stderr, "warning: %s\n", warning.c_str());
  for (const auto& missing : (*recording)->missing_images())
    (void)std::fprintf(stderr, "missing: %s: %s\n", missing.path.c_str(), missing.reason.c_str());
  bool equal = true;
  HostCheck host(words.host);
  const auto& streams = (*recording)->streams();
  for (uint32_t stream = 0; stream < streams.size(); ++stream) {
    const int32_t cpu = streams[stream].cpu;
    std::map<uint32_t, Flow> flows;
    for (const auto& [key, path] : words.truths) {
      if (key.second == cpu) flows[key.first].checker = test::TruthChecker(test::read_truth(path));
    }
    std::map<uint32_t, Batch> parts;
    const Status status =
        (*recording)->decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
          for (auto& [machine, part] : parts) part.clear();
          for (const Block& block : batch.blocks) {
            const BlockInfo info = decoder.blocks().info(block.node);
            const uint32_t machine = machine_of(info.space);
            parts[machine].blocks.push_back(block);
            if (machine == 0) host.add(cpu, info.ip.value);
          }
          for (const Gap& gap : batch.gaps) {
            if (flows[machine_of(gap.space)].gaps++ == 0)
              std::printf("cpu %d machine %u: first gap at %#llx: %s\n", cpu, machine_of(gap.space),
                          static_cast<unsigned long long>(gap.ip.value), sentence(gap.reason));
          }
          for (auto& [machine, part] : parts) flows[machine].checker.add(part, decoder.blocks());
          return true;
        });
    if (!status.ok()) std::printf("%s\n", status.error().message.c_str());
    for (const auto& [machine, flow] : flows) {
      const test::TruthChecker& checker = flow.checker;
      std::printf("cpu %d machine %u: %llu instructions, %llu uncertain, %llu gaps, %zu of %zu checkpoints%s%s\n", cpu, machine,
                  static_cast<unsigned long long>(checker.instructions()), static_cast<unsigned long long>(checker.flagged()),
                  static_cast<unsigned long long>(flow.gaps), checker.checkpoints_passed(), checker.checkpoints(),
                  checker.difference().empty() ? "" : ", ", checker.difference().c_str());
      equal = equal && checker.difference().empty() && (words.prefix || checker.checkpoints_passed() == checker.checkpoints());
    }
  }
  return host.report() && equal ? 0 : 1;
}

}  // namespace
}  // namespace ptd

int main(int argc, char** argv) { return ptd::run(ptd::parse(argc, argv)); }
