// Checks a decoded stream against a truth file.
#include "tests/corpus/truth.h"

#include <cstdio>
#include <fstream>
#include <sstream>

#include "ptdecode/insn.h"

namespace ptd::test {
namespace {
constexpr uint64_t kFnvPrime = 0x100000001b3ULL;
}

std::vector<Checkpoint> read_truth(const std::string& path) {
  std::ifstream file(path);
  std::vector<Checkpoint> out;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    Checkpoint point;
    std::istringstream fields(line);
    std::string last;
    if (!(fields >> point.count >> std::hex >> point.ips_hash >> point.bytes_hash >> last)) continue;
    if (last != "end") point.last_ip = std::stoull(last, nullptr, 16);
    out.push_back(point);
  }
  return out;
}

const std::vector<TruthChecker::InsnSpan>& TruthChecker::spans_of(NodeId node, const BlockTable& table) {
  if (spans_.size() <= node) spans_.resize(table.size());
  auto& spans = spans_[node];
  if (!spans.empty()) return spans;
  const BlockInfo& info = table.info(node);
  const Bytes bytes = table.bytes(node);
  size_t at = 0;
  for (unsigned i = 0; i < info.instructions && at < bytes.size(); ++i) {
    const uint8_t length = classify(bytes.subspan(at), info.mode).length_bytes;
    spans.push_back({static_cast<uint16_t>(at), length});
    at += length == 0 ? 1 : length;
  }
  return spans;
}

void TruthChecker::check(uint64_t last_ip) {
  const Checkpoint& want = truth_[next_];
  if (want.ips_hash == ips_hash_ && want.bytes_hash == bytes_hash_ && (want.last_ip == last_ip || want.last_ip == 0)) {
    ++next_;
    return;
  }
  char buffer[300];
  std::snprintf(buffer, sizeof buffer, "checkpoint %zu (%llu instructions): addresses %s, bytes %s, last ip %llx, truth %llx", next_,
                static_cast<unsigned long long>(want.count), want.ips_hash == ips_hash_ ? "equal" : "differ",
                want.bytes_hash == bytes_hash_ ? "equal" : "differ", static_cast<unsigned long long>(last_ip),
                static_cast<unsigned long long>(want.last_ip));
  difference_ = buffer;
}

void TruthChecker::add(const Batch& batch, const BlockTable& table) {
  for (const Block& block : batch.blocks) {
    if ((block.flags & kUncertainFlags) != 0) flagged_ += block.instructions;
    const uint64_t base = table.info(block.node).ip.value;
    const Bytes bytes = table.bytes(block.node);
    for (const InsnSpan& span : spans_of(block.node, table)) {
      const uint64_t ip = base + span.offset;
      for (int i = 0; i < 64; i += 8) ips_hash_ = (ips_hash_ ^ ((ip >> i) & 0xff)) * kFnvPrime;
      for (const std::byte b : bytes.subspan(span.offset, span.length)) bytes_hash_ = (bytes_hash_ ^ static_cast<uint64_t>(b)) * kFnvPrime;
      ++count_;
      if (difference_.empty() && next_ < truth_.size() && truth_[next_].count == count_) check(ip);
    }
  }
}

}  // namespace ptd::test
