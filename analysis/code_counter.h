// CodeCounter: counts one stream's flow for count_code().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/base/key_counts.h"
#include "ptdecode/counts.h"
#include "ptdecode/flow_cursor.h"

namespace ptd {

/// Returns whether the flow of `mark`, whose time begins with the likeliest moment, counts.
[[nodiscard]] bool counts(const CodeCountOptions& options, const Mark& mark);
/// Returns the streams to count.
[[nodiscard]] std::vector<uint32_t> streams_of(const Recording& recording, const CodeCountOptions& options);
/// Decodes one of them. Sets `stopped` if options.progress says so. Errors: those of Recording::decode().
[[nodiscard]] Status count_stream(const Recording& recording, const CodeCountOptions& options, uint32_t stream, bool& stopped,
                                  const std::function<void(const Batch&, const BlockTable&)>& take);

/// Fed with one stream's batches in order. Not thread-safe.
class CodeCounter {
 public:
  /// Which marks' flow counts; empty: all. Their time begins with the likeliest moment.
  using Wanted = std::function<bool(const Mark&)>;
  CodeCounter(const Symbolizer& symbolizer, Wanted wanted) : symbolizer_(symbolizer), wanted_(std::move(wanted)) {}

  void take(const Batch& batch, const BlockTable& blocks);
  /// The stream is over.
  void finish();
  struct FileSum {
    bool relocatable = false;
    std::map<std::pair<uint64_t, uint64_t>, CodeRun> runs;
    std::map<std::pair<uint64_t, uint64_t>, CodeBranch> branches;
    std::map<uint64_t, uint64_t> not_taken, exits, entries;  // by address
  };
  /// By path and build id. Code without a file is left out.
  using FileSums = std::map<std::pair<std::string, std::string>, FileSum>;
  /// Adds the counts to `files`.
  void add_to(FileSums& files) const;
  [[nodiscard]] uint64_t instructions() const { return instructions_; }
  /// Of these, those of code that is of no file.
  [[nodiscard]] uint64_t fileless() const { return fileless_; }

 private:
  static constexpr NodeId kNone = 0xffffffffU;
  static constexpr uint32_t kNoFile = 0xffffffffU;
  /// One line of the cache a block. The way that was gone last is counted here, and put with the others when another one is.
  struct Node {
    Ip ip, next;  ///< of its first instruction, and after its last one
    uint32_t file = kNoFile;
    bool known = false, jumps = false;  ///< jumps: ends in a jump, conditional or not
    bool conditional = false;           ///< ends in a conditional branch
    bool indirect = false;              ///< CodeBranch::is_indirect
    bool far = false;                   ///< ends in a far transfer, which is no branch of a profile
    bool by_jump = false;               ///< of `run_last`
    NodeId branch_to = kNone, run_last = kNone;
    uint32_t branch_count = 0, run_count = 0;
    uint64_t not_taken = 0;
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
  void take_mark(Mark mark);
  void take_blocks(std::span<const Block> batch, const BlockTable& blocks);
  void take_event(const Event& event);
  void lose();
  void close_run();
  uint32_t file_id(const FilePlace& place);
  void cut_branch(Ip to);
  void count_branch(NodeId to);
  void cross(NodeId to);
  void put_away(NodeId id);

  const Symbolizer& symbolizer_;
  const Wanted wanted_;
  std::vector<Node> nodes_;
  std::vector<Place> places_;                                      ///< of each node
  KeyCounts runs_[2];                                              ///< by first and last node; not by a jump, by a jump
  KeyCounts branches_;                                             ///< by the node that it ends, and the one that it goes to
  std::map<std::pair<NodeId, uint64_t>, uint64_t> cut_branches_;   ///< to an address of its file at which an interrupt or a fault came
  KeyCounts exits_, entries_;                                      ///< branches to and from other code; by number of their node, + 1
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> cut_entries_;  ///< by file and address at which an interrupt or a fault came
  struct File {
    uint32_t id = 0;
    bool relocatable = false;
  };
  std::map<std::pair<std::string_view, std::string_view>, File> file_ids_;  ///< by path and build id
  NodeId first_ = kNone, last_ = kNone;                                     ///< of the open run
  NodeId branch_ = kNone;  ///< its last block took a branch, which went where the next block is
  bool by_jump_ = false, counts_ = true;
  FlowCursor cursor_;
  SpaceId space_ = kNoSpace;
  uint64_t instructions_ = 0, fileless_ = 0;
};

}  // namespace ptd
