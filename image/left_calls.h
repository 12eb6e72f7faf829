// Where longjmp goes on, and how open calls are searched: what all that follow calls need to know about it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// Whether the kernel executes a system call again: the flow goes on at SYSCALL, SYSENTER or INT (2 bytes), or SVC (2 or 4).
constexpr bool is_restart(Ip to, Ip return_to) { return return_to - to == 2 || return_to - to == 4; }

/// Searches stacks of calls from the innermost call on. A search that finds a call, which then ends the calls inside of it, costs less than
/// these calls did. Other searches are limited: after kMost calls that they looked at, only the innermost kAlways calls are searched. So no
/// flow takes a time that grows with the product of its length and its depth. Not thread-safe.
class BoundedSearch {
 public:
  static constexpr size_t kAlways = 256;
  static constexpr uint64_t kMost = 1ULL << 26;  ///< beyond kAlways in each search

  /// Returns the index + 1 of the innermost frame that fits, or 0 if none does. The frames inside of it are about to end. `always`: in the
  /// place of kAlways.
  template <typename Frames, typename Fits>
  size_t innermost(const Frames& frames, Fits fits, size_t always = kAlways) {
    const size_t size = frames.size(), least = looked_at_ > kMost && size > always ? size - always : 0;
    for (size_t i = size; i > least; --i) {
      if (fits(frames[i - 1])) return i;
    }
    looked_at_ += size - least - std::min(size - least, always);
    return 0;
  }
  /// The same if no frame is about to end.
  template <typename Frames, typename Fits>
  size_t look(const Frames& frames, Fits fits) {
    const size_t match = innermost(frames, fits), passed = match == 0 ? 0 : frames.size() - match;
    looked_at_ += passed - std::min(passed, kAlways);
    return match;
  }

 private:
  uint64_t looked_at_ = 0;
};

/// Returns whether a function of this name returns a second time by longjmp: setjmp as C libraries name it, [POSIX] "setjmp", "sigsetjmp".
[[nodiscard]] inline bool is_setjmp_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp"};
  return name.ends_with("setjmp") && std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

/// Returns whether a function of this name never returns: those of C, C++ and their ABIs that compilers call. [C11] "abort", "exit", "_Exit",
/// "quick_exit", "longjmp"; [Itanium C++ ABI] "__cxa_throw", "_Unwind_Resume".
[[nodiscard]] inline bool is_noreturn_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"abort",
                                         "exit",
                                         "_exit",
                                         "_Exit",
                                         "quick_exit",
                                         "longjmp",
                                         "_longjmp",
                                         "siglongjmp",
                                         "__assert",
                                         "__chk_fail",
                                         "__cxa_throw",
                                         "__cxa_rethrow",
                                         "__cxa_bad_cast",
                                         "__longjmp_chk",
                                         "__cxa_bad_typeid",
                                         "__assert_fail",
                                         "pthread_exit",
                                         "__fortify_fail",
                                         "_Unwind_Resume",
                                         "__stack_chk_fail",
                                         "__libc_fatal",
                                         "err",
                                         "errx",
                                         "verr",
                                         "verrx",
                                         "__assert_perror_fail",
                                         "__assert_rtn",
                                         "__stack_chk_fail_local",
                                         "std::terminate()",
                                         "__cxa_throw_bad_array_new_length"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || name.starts_with("std::__throw_");
}

/// The open calls that have called setjmp, outermost first. A trace does not say which jmp_buf longjmp was given. Of several calls of one
/// function that called setjmp at one place, the innermost is taken. One that longjmp has brought back already, and that then calls longjmp
/// itself, passes the error on: the call further out is taken.
///
/// A call is known by its depth, and by a number that no two calls at one depth share. Not thread-safe.
class SavedPlaces {
 public:
  struct Found {
    size_t depth = 0;  ///< frames further out
    bool several = false;
  };
  /// setjmp was called and returns to `place`, in the call at `depth`.
  void save(size_t depth, uint64_t number, Ip place) {
    size_t left = kMostInCall;
    for (auto at = saved_.rbegin(); at != saved_.rend() && at->depth == depth && at->number == number && left != 0; ++at, --left) {
      if (at->place != place) continue;
      at->used = false;
      return;
    }
    if (left != 0 && saved_.size() < kMost) saved_.push_back({depth, number, place, false});
  }
  /// Forgets the calls that have ended: those for which `is_open(depth, number)` returns false.
  template <typename IsOpen>
  void drop_ended(IsOpen is_open) {
    while (!saved_.empty() && !is_open(saved_.back().depth, saved_.back().number)) saved_.pop_back();
  }
  /// Returns the call in which the flow goes on at `place`, and marks it. `from`: the depth of the call that jumps. `is_open(depth)`:
  /// whether the call there is of the function that contains the place. False: none called setjmp.
  template <typename IsOpen>
  bool take(Ip place, size_t from, IsOpen is_open, Found& found) {
    constexpr size_t kJumpers = 2;  // longjmp, and the function that restores the registers
    const auto is_here = [&](const Saved& saved) { return saved.place == place && is_open(saved.depth); };
    size_t at = search_.innermost(saved_, is_here);
    if (at == 0) return false;
    const size_t outer = search_.look(std::span(saved_).first(at - 1), is_here);
    found.several = outer != 0;
    if (found.several && saved_[at - 1].used && from <= saved_[at - 1].depth + kJumpers) at = outer;
    saved_[at - 1].used = true;
    found.depth = saved_[at - 1].depth;
    return true;
  }
  /// Returns whether take() would find a call, which does not mark it.
  template <typename IsOpen>
  bool has(Ip place, IsOpen is_open) {
    return search_.look(saved_, [&](const Saved& saved) { return saved.place == place && is_open(saved.depth); }) != 0;
  }
  /// Replaces the number of each call by `renumber(depth)`.
  template <typename Renumber>
  void renumber(Renumber renumber) {
    for (Saved& saved : saved_) saved.number = renumber(saved.depth);
  }

 private:
  static constexpr size_t kMost = 1U << 16, kMostInCall = 64;
  struct Saved {
    size_t depth = 0;
    uint64_t number = 0;
    Ip place;
    bool used = false;  ///< longjmp has come back to it since
  };
  std::vector<Saved> saved_;  ///< those of ended calls come last
  BoundedSearch search_;
};

}  // namespace ptd
