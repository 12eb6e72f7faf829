// Calls in the formats of viewers: Perfetto's trace, folded stacks, a flame graph as one SVG.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/paths/call_paths.h"
#include "cli/calls/call_input.h"

namespace ptd::cli {

/// Writes a trace that ui.perfetto.dev opens (protozero, "perfetto/protos/perfetto/trace/trace.proto"): a track for each thread with its
/// calls as slices, what was not traced, off the cpu or lost as slices between them, and tracks of their own for changes of code, modules
/// and BPF programs, gaps, and what packets report as numbers. Not thread-safe.
class PerfettoWriter {
 public:
  /// Calls and waits that are shorter than `min_ns` have no slice; the one that they are part of tells how many calls it has of them.
  explicit PerfettoWriter(CallInput& input, uint64_t min_ns = 0) : input_(input), min_ns_(min_ns) {}
  void take(std::span<const CallStep> steps, const CallTree& tree, std::string& out);
  /// Writes an instant for each change of code of the kernel and of each process, with its time and place, and for each load and unload of
  /// generated code.
  void add_pokes(std::string& out);
  /// Instants of modules and BPF programs that appear and disappear while the recording is made.
  void add_modules(std::string& out);
  /// Reads the trace again, and writes gaps as instants, and PTWRITE, frequency and C-state as counters. `write` takes each piece. Errors:
  /// those of Table::next().
  [[nodiscard]] Status add_events(const std::function<bool(std::string&)>& write);
  [[nodiscard]] uint64_t slices() const { return slices_; }
  /// Calls without a slice.
  [[nodiscard]] uint64_t folded() const { return folded_; }

 private:
  struct Call {
    FunctionId function = kNoFunction;
    TimeNs begin;
    uint64_t folded = 0;  ///< calls in it without a slice
    bool begun = false;   ///< its slice was
  };
  struct Thread {
    TimeNs last;  ///< of its last event: slices of one track must not go back
    std::vector<Call> open;
    size_t begun = 0;   ///< of `open`: how many
    bool ran = false;   ///< in the steps that are taken
    TimeNs counted_to;  ///< the instructions per cycle are written up to this time and these counts
    uint64_t instructions = 0, cycles = 0;
  };
  struct CodeChange {
    SpaceId space;
    Ip ip;
    TimeNs when, named;  ///< named: when the code has its name
    std::string what;    ///< before the name: "load "
  };
  [[nodiscard]] bool is_wanted(TimeNs when) const;
  void change(const CodeChange& at, std::string& out);
  void begin_sequence(std::string& out);
  void describe(uint32_t thread, const CallTree& tree, std::string& out);
  /// Returns the number of a name, which the next event introduces if it is new.
  uint64_t name_id(const std::string& name);
  uint64_t name_id(FunctionId function);
  /// Notes at the end of a slice.
  struct Notes {
    uint64_t folded = 0;     ///< number of calls in it without a slice
    bool estimated = false;  ///< its times are estimates
  };
  /// `name`: its number; without meaning at the end of a slice.
  void event(uint64_t track, unsigned type, TimeNs when, uint64_t name, std::string& out, const Notes& notes);
  void event(uint64_t track, unsigned type, TimeNs when, uint64_t name, std::string& out) { event(track, type, when, name, out, Notes()); }
  template <typename Value>
  void count(uint64_t track, TimeNs when, Value value, std::string& out);
  void add_ipc(const CallTree& tree, std::string& out);
  [[nodiscard]] double megahertz_per_ratio() const;
  void begin_open(uint64_t track, Thread& thread, std::string& out);
  void leave(uint64_t track, Thread& thread, const CallStep& step, TimeNs when, std::string& out);
  void go_on(uint64_t track, Thread& thread, const CallStep& step, TimeNs when, std::string& out);
  uint64_t track_of(const std::string& name, bool counter, std::string& out);

  CallInput& input_;
  const uint64_t min_ns_;
  bool begun_ = false;
  std::set<uint32_t> described_;
  std::set<int32_t> processes_;
  std::map<uint32_t, int32_t> pids_;  ///< of spaces
  std::map<std::string, uint64_t> names_, tracks_;
  std::vector<uint64_t> function_names_;   ///< by FunctionId; 0: it has no number yet
  std::string event_, packet_, interned_;  ///< of the event that is written
  std::vector<Thread> threads_;
  uint64_t slices_ = 0, folded_ = 0;
};

/// What the weight of a stack is.
enum class StackWeight : uint8_t {
  self,  ///< self time; without times, self instructions
  /// Time in which its innermost call did not run: off the cpu, not traced, or lost. A loss of flow ends all calls, and has no stack.
  waiting,
};

/// The weight of every stack of calls. A call is below the name that its thread had when it began. With --comm,
/// calls around a wanted call keep their place in its stack, and their own time does not count.
class StackTotals {
 public:
  explicit StackTotals(CallInput& input, StackWeight weight = StackWeight::self) : input_(input), weight_(weight) {}
  void take(std::span<const CallStep> steps, const CallTree& tree);
  /// After the walk: makes the nodes.
  void finish();

  struct Node {
    std::string name;
    uint64_t self_ns = 0, self_instructions = 0, calls = 0;
    size_t parent = 0;
    std::map<std::string, size_t> children;
  };
  /// Node 0 is the root of all; its children are command names. A node comes after its parent.
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  /// After the walk: the self time of a node, or its instructions if no packet gave a time.
  [[nodiscard]] uint64_t self_of(const Node& node) const { return input_.timed() ? node.self_ns : node.self_instructions; }
  /// Whether any call was counted.
  [[nodiscard]] bool any() const { return any_; }
  /// Whether stacks were left out because of CallPaths::kMostPaths: their calls count as part of the callers.
  [[nodiscard]] bool is_full() const { return open_.paths().paths().size() >= CallPaths::kMostPaths; }
  /// "comm;outer;inner 1234\n" for every stack with self time; a blank or ';' in a name becomes '_' or ':'. Stacks of more than 512 frames
  /// end in "[deeper calls]".
  [[nodiscard]] std::string folded() const;
  /// A self-contained SVG: frames as wide as their time, a click goes into one, Ctrl-F searches.
  [[nodiscard]] std::string svg(const std::string& title) const;

 private:
  struct Sums {
    size_t process = 0;  ///< node of a thread's name; 0: none yet
    uint64_t self_ns = 0, self_instructions = 0, calls = 0;
  };
  struct Thread {
    Interval named{kTimeMax, kTimeMin};  ///< when it has the name of `process`
    size_t process = 0;
  };
  [[nodiscard]] std::vector<uint64_t> shown_self(std::vector<size_t>& depths) const;
  size_t child(size_t parent, const std::string& name);
  size_t process_of(const CallStep& step, const CallTree& tree);
  Sums& sums_of(uint32_t path, size_t process);
  const std::string& name_of(FunctionId function);
  CallInput& input_;
  StackWeight weight_;
  bool any_ = false;
  std::vector<Node> nodes_{Node{"all", 0, 0, 0, 0, {}}};
  OpenCalls open_{OpenCalls::Callers::later};
  std::vector<Sums> sums_;                                  ///< by path, under the first name that a thread has in it
  std::map<std::pair<uint32_t, size_t>, Sums> other_sums_;  ///< by path and process
  std::vector<Thread> threads_;
  std::vector<std::string> names_;  ///< by function, as shown; empty: not needed so far
  std::string untraced_;            ///< that of kNoFunction
};

}  // namespace ptd::cli
