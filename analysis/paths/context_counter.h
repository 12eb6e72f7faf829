// count_contexts(): how often each line ran in each context, which is the chain of calls that led to it. For context-sensitive profiles.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/branch_code.h"
#include "analysis/code_counter.h"
#include "analysis/function_finder.h"
#include "image/left_calls.h"
#include "ptdecode/counts.h"

namespace ptd {

/// A function in one context.
struct ContextProfile {
  using Line = std::pair<uint32_t, uint32_t>;             ///< offset from the function's line, and discriminator
  uint64_t entries = 0;                                   ///< calls and tail calls whose start was seen
  std::map<Line, uint64_t> lines;                         ///< how often the most executed instruction of a line ran
  std::map<Line, std::map<std::string, uint64_t>> calls;  ///< from a line, by the function's name; in whichever context it runs
};

/// Context profiles by context: "main:3 @ outer:1.2 @ inner": a call on line 3 of main, counted from its declaration, and so on.
using ContextProfiles = std::map<std::string, ContextProfile>;

/// Counts the code of files with debug information. Inlined functions have contexts of their own, as if they were called.
///
/// A tail call is a call: the function that jumps to another one's start stays in the context. Code without lines that jumps on, such as a
/// stub of a procedure linkage table, has no part in it. A context begins where a function is entered otherwise than by a call from code
/// with lines: the start of a program or of the trace, a call from code without lines, an interrupt or signal, a switch of threads on a
/// cpu, and lost flow. A function that calls itself stays in its context, and one that tail calls lead back to is again in the context that
/// they began in. After a return, an exception, longjmp and a signal, the flow is again in the context of the open call that it goes on in,
/// which is found as CallTree does it. Limitation: after kMostTailCalls tail calls in a row, a new context begins.
/// Limitation: beyond kMostDepth calls, kMostContexts contexts, kMostContextBytes of text of one context, or kMostTextBytes of text of all,
/// contexts are shorter.
/// Errors: those of Recording::decode().
[[nodiscard]] Result<ContextProfiles> count_contexts(const Recording& recording, const CodeCountOptions& options);

/// Fed with the batches of one stream after the other. Not thread-safe.
class ContextCounter {
 public:
  static constexpr uint32_t kMostDepth = 128, kMostContexts = 1U << 20, kMostTailCalls = 8;
  static constexpr uint64_t kMostContextBytes = 1U << 18, kMostTextBytes = 1U << 28;
  ContextCounter(const Recording& recording, const CodeCountOptions& options, FunctionTable& functions);
  void take(const Batch& batch, const BlockTable& blocks);
  /// The stream is over.
  void finish();
  [[nodiscard]] ContextProfiles profiles() const;

 private:
  using Frames = std::vector<ProfileFrame>;  ///< innermost first
  struct Node {
    Ip ip, next;
    Way way = Way::none;
    FunctionId function = kNoFunction;
    Ip landing;  ///< where an exception goes on that leaves its call; 0: nowhere in the function
    bool known = false, entry = false;
    bool indirect = false;          ///< BranchCode::indirect
    bool named = false;             ///< FunctionAt::named
    bool lands = false;             ///< it begins at a landing pad
    bool saves = false;             ///< it is where setjmp, or the like, begins
    uint32_t first = 0, count = 0;  ///< places_ of its instructions
    uint32_t own = 0;               ///< the lines of its first instruction: index into frames_
    uint32_t site = 0;              ///< of its last one, if that calls or jumps
  };
  /// Where a function is entered from.
  struct Site {
    uint32_t caller = 0;  ///< context; 0: unknown
    uint32_t site = 0;    ///< index into frames_
    uint32_t tails = 0;   ///< tail calls in a row up to this one
  };
  struct Context : Site {
    uint32_t depth = 0;
    std::string_view function;
    uint64_t entries = 0;
    uint64_t calls = 0;       ///< of the entries, those from `caller` and `site`
    uint64_t text_bytes = 0;  ///< at most, of caller_text()
  };
  /// The context that runs.
  struct Where {
    uint32_t context = 0;  ///< 0: none
    Site from;             ///< code without lines: what it was entered from
  };
  /// A call, an interrupt or a signal's handler, and the function around it.
  struct Frame {
    Ip return_to, landing;
    Where where;
    FunctionId function = kNoFunction;
    bool far = false;     ///< no near call
    uint64_t number = 0;  ///< no two frames share it
  };
  /// A branch whose target is not known yet. Way::none: tracing has stopped.
  struct Pending {
    Way way = Way::none;
    Ip return_to, landing;
    uint32_t site = 0;
  };
  void find_function(Node& node, SpaceId space);
  struct Place {
    uint64_t address = 0;
    uint32_t file = 0, frames = 0;
  };
  struct Instruction {
    uint64_t count = 0;
    uint32_t frames = 0;
  };
  void find_places(const BlockInfo& info, Node& node);
  Node& node(NodeId id);
  uint32_t intern(const Frames& frames);
  uint32_t context(Site from, const Node& callee);
  void enter(const Site& from, const Node& here);
  void enter_context(uint32_t id, const Site& from, const Node& here);
  void take_jump(const Node& from, const Node& here);
  void arrive(const Node& here);
  void arrive_at(Ip ip);
  void take_pending(const Pending& open, const Node& here);
  void push(const Pending& open, bool far);
  void leave_to(size_t depth);
  bool return_to(Ip ip);
  bool unwind(const Node& here);
  void take_return(const Node& here, bool retpoline);
  bool go_back(const Node& here);
  void take_far_return(const Pending& open, const Node& here);
  void resume(const Pending& left, const Node& here);
  void save_place();
  void drop_ended();
  [[nodiscard]] uint64_t number(size_t depth) const { return depth == 0 ? 0 : stack_[depth - 1].number; }
  void stop(const Event& event);
  void take_event(const Event& event);
  void lose();
  void put_away();
  [[nodiscard]] std::string caller_text(uint32_t context) const;

  const Recording& recording_;
  const CodeCountOptions& options_;
  FunctionFinder finder_;
  const BlockTable* blocks_ = nullptr;
  std::vector<Node> nodes_;  ///< of the stream
  std::vector<Place> places_;
  KeyCounts counts_;  ///< by context and node, of the stream
  std::vector<Frames> frames_{Frames()};
  std::map<std::vector<std::pair<std::string_view, std::pair<uint32_t, uint32_t>>>, uint32_t> frame_ids_;
  std::vector<Context> contexts_{Context{}};
  std::map<std::tuple<uint32_t, uint32_t, std::string_view>, uint32_t> context_ids_;
  std::map<std::tuple<uint32_t, uint32_t, std::string_view>, uint64_t> other_calls_;  ///< those that Context::calls does not count
  uint64_t text_bytes_ = 0;                                                           ///< of contexts_
  std::map<std::pair<std::string_view, std::string_view>, uint32_t> files_;           ///< by path and build id
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, Instruction> instructions_;      ///< by context, file and address
  std::vector<Frame> stack_;
  uint64_t frames_made_ = 0;
  SavedPlaces saved_;  ///< depth: index into stack_ of a call that the function made; number: number(depth)
  BoundedSearch search_;
  std::optional<Pending> pending_;
  std::optional<NodeId> jump_;  ///< the last block, if it has jumped
  bool retpoline_ = false;      ///< the last call only filled the return stack: a RET ends a retpoline
  /// The function that has jumped to the start of the one that runs. number: of the innermost call then.
  struct Left {
    FunctionId function = kNoFunction;
    uint64_t number = 0;
    Where where;
  } left_;
  Where where_;
  FunctionId function_ = kNoFunction;  ///< of the last block; kNoFunction: the flow begins anew
  FlowCursor cursor_;
  int32_t tid_ = -1;
  SpaceId space_ = kNoSpace;
  bool wanted_ = true;
};

}  // namespace ptd
