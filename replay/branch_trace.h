// The branch trace of a thread before a position, as GDB's remote protocol transfers it (BTS).
#pragma once

#include <string>

#include "replay/replay_cursor.h"
#include "replay/replay_memory.h"

namespace ptd::replay {

/// A contiguous sequence of executed instructions.
struct BranchBlock {
  Ip begin;
  Ip end;  ///< the address of the last instruction
};

/// Returns the blocks that a thread executed before its next instruction, newest first. The newest block ends with that instruction, which
/// is not executed yet. At most `most_blocks`. The trace begins after the last gap, after the last change of the address space, and
/// where the executed code still is what the debugger reads in memory now: it disassembles the blocks.
[[nodiscard]] std::vector<BranchBlock> branch_trace(const ReplayCursor& cursor, ThreadKey thread, size_t most_blocks, ReplayMemory& memory);
/// Returns the blocks as a document of GDB's btrace.dtd.
[[nodiscard]] std::string btrace_document(const std::vector<BranchBlock>& blocks);

}  // namespace ptd::replay
