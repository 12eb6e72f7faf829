// TimelineBuilder: collects sections, edits and dated copies in any order; build() sorts, verifies and heals them.
#pragma once

#include <memory>
#include <string>

#include "ptdecode/edit.h"
#include "ptdecode/error.h"
#include "ptdecode/export.h"
#include "ptdecode/finding.h"
#include "ptdecode/timeline.h"

namespace ptd {

/// A copy of memory that was read at some time within `taken` (kcore before, during or after the recording). The copy is neither atomic
/// nor exactly dated: each edited address is dated by its own bytes, and records are applied backwards and forwards from that time.
struct DatedCopy {
  SpaceId space = kKernelSpace;
  Ip ip;
  CodeBytes code;
  Interval taken;
  std::string path;
  std::string build_id;  ///< build id of the copied code, in hex; may be empty
};

/// Not thread-safe. The timeline that build() returns is independent of the builder. add_* may come in any order; build() may be called
/// once.
class PTD_API TimelineBuilder {
 public:
  TimelineBuilder();
  ~TimelineBuilder();
  TimelineBuilder(TimelineBuilder&&) noexcept;
  TimelineBuilder& operator=(TimelineBuilder&&) noexcept;

  /// Returns a new, empty user address space.
  [[nodiscard]] SpaceId add_space();
  /// The same for a machine (guest.h). The first space of a machine makes its kernel's space too. Returns kNoSpace if there are too many
  /// machines.
  [[nodiscard]] SpaceId add_space(uint32_t machine);
  /// Returns a new user address space with the mappings that `parent` has at `when` (fork).
  [[nodiscard]] SpaceId fork_space(SpaceId parent, TimeNs when);
  /// Adds a mapping from section.live.first on, which ends the mappings that it covers (mmap over them). live.last may end it early.
  void add_section(Section section);
  /// Removes the mappings of [ip, ip+size) from `when` on (munmap, module unload, ksymbol unregister).
  void remove(SpaceId space, Ip ip, uint64_t size_bytes, TimeNs when);
  void add_edit(Edit edit);
  void add_copy(DatedCopy copy);
  /// Sets the size in bytes of the words of kernel code, each patched as a whole (A64: 4). 0, the default: x86 instructions.
  void set_word_bytes(unsigned word_bytes);
  /// Declares that records of the kernel image were lost during `window`.
  void add_lost_window(Interval window);
  /// Declares that records of the code of one space were lost during `window`. A space that is forked from it during `window` is suspect
  /// too. For the kernel's space, it declares that kernel code changed without records; user code is not affected. For the space of a
  /// guest's kernel, it declares that records of the guest were lost: all code of the guest is affected.
  void add_lost_window(SpaceId space, Interval window);
  void add_finding(Finding finding);
  /// Switches verification off: the timeline keeps each address's first version only. For tests that show what happens without pokes.
  void freeze_at_first_version();

  /// Returns the sections so far, without edits and copies.
  [[nodiscard]] Timeline sections() const;
  [[nodiscard]] Timeline build();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
