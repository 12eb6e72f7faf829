// CallStacks: how deep each thread is in calls, for indentation.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::cli {

/// Return addresses by thread; bounded. A return pops down to its address if it is on the stack, else one level.
class CallStacks {
 public:
  void select(int32_t tid) { current_ = &stacks_[tid]; }
  [[nodiscard]] size_t depth() const { return current_ == nullptr ? 0 : current_->size(); }
  void call(Ip return_to) {
    if (current_ != nullptr && current_->size() < kMaxDepth) current_->push_back(return_to.value);
  }
  void ret(Ip to) {
    if (current_ == nullptr || current_->empty()) return;
    const size_t looked_at = current_->size() < kMaxSearch ? current_->size() : kMaxSearch;
    for (size_t up = 1; up <= looked_at; ++up) {
      if ((*current_)[current_->size() - up] != to.value) continue;
      current_->resize(current_->size() - up);
      return;
    }
    current_->pop_back();
  }
  /// Tracing resumes at `to`: returns from the call that left the traced region, if it was one.
  void resume(Ip to) {
    if (current_ != nullptr && !current_->empty() && current_->back() == to.value) current_->pop_back();
  }
  /// Flow was lost: nothing is known of the depth.
  void lose() {
    if (current_ != nullptr) current_->clear();
  }

 private:
  static constexpr size_t kMaxDepth = 4096, kMaxSearch = 64;
  std::unordered_map<int32_t, std::vector<uint64_t>> stacks_;
  std::vector<uint64_t>* current_ = nullptr;
};

}  // namespace ptd::cli
