// TimelineBuilder: collects sections, edits and dated copies in any order; build() sorts, verifies, heals.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ptdecode/edit.h"
#include "ptdecode/error.h"
#include "ptdecode/export.h"
#include "ptdecode/finding.h"
#include "ptdecode/timeline.h"

namespace ptd {

/// A copy of memory read at some moment of `taken` (kcore before, between, after). Neither atomic nor exactly dated:
/// each edited address is dated by its own bytes, and records are applied backwards and forwards from there.
struct DatedCopy {
  SpaceId space = kKernelSpace;
  Ip ip;
  CodeBytes code;
  Interval taken;
  std::string path;
  std::string build_id;  ///< of what the copy is of, hex; may be empty
};

/// Not thread-safe. The timeline that build() returns is independent of the builder. add_* may come in any order; build() may be called
/// once.
class PTD_API TimelineBuilder {
 public:
  TimelineBuilder();
  ~TimelineBuilder();
  TimelineBuilder(TimelineBuilder&&) noexcept;
  TimelineBuilder& operator=(TimelineBuilder&&) noexcept;

  /// A new user address space, empty.
  [[nodiscard]] SpaceId add_space();
  /// A new user address space that starts with what `parent` has mapped at `when` (fork).
  [[nodiscard]] SpaceId fork_space(SpaceId parent, TimeNs when);
  /// A mapping from section.live.first on; what it covers ends there (mmap over something). live.last may cut it short.
  void add_section(Section section);
  /// [ip, ip+size) is mapped no more from `when` on (munmap, module unload, ksymbol unregister).
  void remove(SpaceId space, Ip ip, uint64_t size_bytes, TimeNs when);
  void add_edit(Edit edit);
  void add_copy(DatedCopy copy);
  /// Kernel code consists of words of so many bytes, each patched as a whole (A64: 4). 0, the default: instructions of x86.
  void set_word_bytes(unsigned word_bytes);
  /// Records of the kernel image were lost during `window`.
  void add_lost_window(Interval window);
  void add_finding(Finding finding);
  /// Switches verification off: the timeline keeps each address's first version only. For tests that must fail without pokes.
  void freeze_at_first_version();

  [[nodiscard]] Timeline build();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
