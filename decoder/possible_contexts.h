// PossibleContexts: the threads and programs that flow without times may have. Private to the project.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/context_track.h"
#include "ptdecode/timeline.h"

namespace ptd {

/// The contexts that a thread, or a cpu, has within bounds of time, and the one that the flow takes.
class PossibleContexts {
 public:
  /// Lists those of `tid`, in order of time. A thread does not run before its first record.
  void list_thread(const ContextTrack& contexts, int32_t tid, Interval bounds);
  /// Lists those of the threads that records of `cpu` name, at another time if it is only one; none if `cpu` is -1. The idle thread runs no
  /// user code.
  void list_cpu(const ContextTrack& contexts, int32_t cpu, Interval bounds);
  [[nodiscard]] Context now() const { return list_.empty() ? Context{} : list_[now_]; }
  [[nodiscard]] bool has_several() const { return list_.size() > 1 || is_cut_; }
  /// Returns whether the thread is uncertain.
  [[nodiscard]] bool has_threads() const { return has_threads_; }
  /// User code begins at `ip`. Takes the next context that maps it: the present one, unless the flow `leaves` it. Returns whether no other
  /// one maps it.
  bool choose(const Timeline& timeline, Ip ip, bool leaves);
  /// Returns whether another context maps `ip`, but not the present one.
  [[nodiscard]] bool is_elsewhere(const Timeline& timeline, Ip ip) const;

 private:
  static constexpr size_t kMost = 64;
  void begin(Interval bounds);
  void add_thread(const ContextTrack& contexts, int32_t tid, Interval within);
  void add(Context context);
  [[nodiscard]] bool maps(const Timeline& timeline, const Context& context, Ip ip) const;

  std::vector<Context> list_;
  size_t now_ = 0;
  Interval bounds_;
  bool is_cut_ = false;       ///< there may be more
  bool has_threads_ = false;  ///< they are of several threads, or may be
  bool is_ordered_ = false;   ///< none comes again after a later one
};

}  // namespace ptd
