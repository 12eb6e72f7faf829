// CallPaths and OpenCalls: see call_paths.h.
#include "analysis/paths/call_paths.h"

namespace ptd {

uint32_t CallPaths::below(uint32_t parent, FunctionId function) {
  const uint64_t key = uint64_t{parent} << 32 | function;
  if (const auto known = ids_.find(key); known != ids_.end()) return known->second;
  const uint32_t depth = paths_[parent].depth + 1;
  if (depth > kMostDepth || paths_.size() >= kMostPaths) {
    ++left_out_;
    return parent;
  }
  const auto id = static_cast<uint32_t>(paths_.size());
  paths_.push_back({parent, depth, function});
  ids_.emplace(key, id);
  return id;
}

void OpenCalls::enter(const CallStep& step) {
  std::vector<Call>& calls = open(step.thread);
  while (!calls.empty() && calls.back().depth >= step.depth) calls.pop_back();
  const uint32_t parent = calls.empty() ? CallPaths::kRoot : calls.back().path;
  calls.push_back({++last_, paths_.below(parent, step.function), step.depth});
}

std::optional<OpenCalls::Ended> OpenCalls::leave(const CallStep& step) {
  std::vector<Call>& calls = open(step.thread);
  while (!calls.empty() && calls.back().depth > step.depth) calls.pop_back();
  if (calls.empty() || calls.back().depth != step.depth) return std::nullopt;
  const Call ended = calls.back();
  calls.pop_back();
  return Ended{ended, calls.empty() ? Call{} : calls.back()};
}

}  // namespace ptd
