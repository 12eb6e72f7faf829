// ProcessImage: the program, the libraries and the auxiliary vector of a process, for a debugger.
#pragma once

#include <string>
#include <vector>

#include "replay/replay_memory.h"

namespace ptd::replay {

/// The program and libraries of a process at a time.
class ProcessImage {
 public:
  /// `comm`: the name of a thread of the process, which chooses among several programs; may be empty.
  ProcessImage(ReplayMemory& memory, SpaceId space, TimeNs when, const std::string& comm);

  /// Returns the path of the file that provides the program's code; "" if there is none.
  [[nodiscard]] std::string program() const;
  /// Returns an auxiliary vector with what follows from the mappings: AT_PHDR, AT_PHENT, AT_PHNUM, AT_BASE, AT_ENTRY. Little-endian words
  /// of the program's size. Empty without a program.
  [[nodiscard]] std::string auxiliary_vector() const;
  /// Returns the libraries as a document of GDB's library-list-svr4.dtd.
  [[nodiscard]] std::string library_list() const;
  /// Returns the mapped files, the program first.
  [[nodiscard]] const std::vector<MappedElf>& files() const { return files_; }

 private:
  std::vector<MappedElf> files_;
  bool has_program_ = false;
};

}  // namespace ptd::replay
