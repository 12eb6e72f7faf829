// CodeCounts: how often which code of which file ran, and which ways its branches took. For coverage and for profiles of compilers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/flow.h"
#include "ptdecode/likeliest_time.h"
#include "ptdecode/path_counts.h"
#include "ptdecode/recording.h"

namespace ptd {

/// Instructions that ran one behind the other, from where a branch went (or flow began) to the next taken branch.
struct CodeRun {
  uint64_t first = 0, last = 0;  ///< addresses of the first and the last instruction
  uint64_t end = 0;              ///< behind the last one
  uint64_t count = 0;
  uint64_t by_jump = 0;  ///< how many of them began where a jump of this file went; the others behind calls and returns, or from outside
};
struct CodeBranch {
  uint64_t from = 0, to = 0;  ///< address of the branch, and where it went
  uint64_t count = 0;
};

/// What ran of one file. Addresses are the file's own (p_vaddr).
struct PTD_API FileCounts {
  std::string path, build_id;
  uint64_t offset_to_address = 0;    ///< add to an offset in the file for the address of code there
  bool relocatable = false;          ///< see FilePlace::relocatable
  std::vector<CodeRun> runs;         ///< by first and last
  std::vector<CodeBranch> branches;  ///< near ones that were taken and stay in the file, by from and to
  /// Bytes of code that ran, each as often as it did.
  [[nodiscard]] uint64_t ran_bytes() const;
};

/// How often each address ran.
class PTD_API AddressCounts {
 public:
  explicit AddressCounts(const std::vector<CodeRun>& runs);
  /// The highest count of [first, end).
  [[nodiscard]] uint64_t highest(uint64_t first, uint64_t end) const;

 private:
  std::vector<std::pair<uint64_t, uint64_t>> steps_;  ///< from this address on, that many
};

/// Fed with one stream's batches in order. Not thread-safe.
class PTD_API CodeCounter {
 public:
  /// Which marks' flow counts; empty: all. Their time begins with the likeliest moment.
  using Wanted = std::function<bool(const Mark&)>;
  CodeCounter(const Symbolizer& symbolizer, Wanted wanted) : symbolizer_(symbolizer), wanted_(std::move(wanted)) {}

  void take(const Batch& batch, const BlockTable& blocks);
  /// The stream is over.
  void finish();
  struct FileSum {
    uint64_t offset_to_address = 0;
    bool relocatable = false;
    std::map<std::pair<uint64_t, uint64_t>, CodeRun> runs;
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> branches;
  };
  /// By path and build id. Code without a file is left out.
  using FileSums = std::map<std::pair<std::string, std::string>, FileSum>;
  /// Adds what was counted to what is there.
  void add_to(FileSums& files) const;
  [[nodiscard]] uint64_t instructions() const { return instructions_; }
  /// Of these, those of code that is of no file.
  [[nodiscard]] uint64_t fileless() const { return fileless_; }

 private:
  static constexpr NodeId kNone = 0xffffffffU;
  static constexpr uint32_t kNoFile = 0xffffffffU;
  /// One line of the cache a block. The way that was gone last is counted here, and put with the others when another one is.
  struct Node {
    Ip ip, next;  ///< of its first instruction, and behind its last one
    uint32_t file = kNoFile;
    bool known = false, jumps = false;  ///< jumps: ends in a jump, conditional or not
    bool far = false;                   ///< ends in a far transfer, which is no branch of a profile
    bool by_jump = false;               ///< of `run_last`
    NodeId branch_to = kNone, run_last = kNone;
    uint32_t branch_count = 0, run_count = 0;
  };
  struct Place {
    uint64_t address = 0;
    uint32_t last_offset = 0, size_bytes = 0;
  };
  Node& node(NodeId id, const BlockTable& blocks) {
    if (id < nodes_.size() && nodes_[id].known) return nodes_[id];
    return meet(id, blocks);
  }
  Node& meet(NodeId id, const BlockTable& blocks);
  void take_mark(const Mark& told);
  void take_blocks(std::span<const Block> batch, const BlockTable& blocks);
  void take_event(const Event& event);
  void lose();
  void close_run();
  void count_branch(NodeId to);
  void put_away(NodeId id);

  const Symbolizer& symbolizer_;
  const Wanted wanted_;
  std::vector<Node> nodes_;
  std::vector<Place> places_;                                     ///< of each node
  KeyCounts runs_[2];                                             ///< by first and last node; not by a jump, by a jump
  KeyCounts branches_;                                            ///< by the node that it ends, and the one that it goes to
  std::map<std::pair<NodeId, uint64_t>, uint64_t> cut_branches_;  ///< to an address at which an interrupt came
  struct File {
    uint32_t id = 0;
    uint64_t offset_to_address = 0;
    bool relocatable = false;
  };
  std::map<std::pair<std::string_view, std::string_view>, File> file_ids_;  ///< by path and build id
  NodeId first_ = kNone, last_ = kNone;                                     ///< of the open run
  NodeId branch_ = kNone;  ///< its last block took a branch, which went where the next block is
  bool by_jump_ = false, counts_ = true;
  LikeliestTime time_;
  SpaceId space_ = kNoSpace;
  uint64_t instructions_ = 0, fileless_ = 0;
};

struct CodeCountOptions {
  std::vector<uint32_t> streams;                 ///< empty: all
  Interval time;                                 ///< what likeliest ran outside of it does not count
  std::function<bool(const Mark&)> wanted;       ///< which threads count; empty: all
  std::function<bool(uint64_t bytes)> progress;  ///< trace bytes decoded since the last call; false stops
  std::function<void(const Gap&)> on_gap;
};
struct CodeCounts {
  std::vector<FileCounts> files;  ///< by bytes that ran, most first
  uint64_t instructions = 0, fileless = 0;
};

/// Counts a recording's streams one after the other. Errors: those of Recording::decode.
[[nodiscard]] PTD_API Result<CodeCounts> count_code(const Recording& recording, const CodeCountOptions& options);

}  // namespace ptd
