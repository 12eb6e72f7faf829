// WaypointRun and RunCache: code from an address to the next P0 instruction, read from the timeline once.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "decoder/arm/options.h"
#include "ptdecode/arm_insn.h"
#include "ptdecode/code_view.h"
#include "ptdecode/flow.h"
#include "ptdecode/timeline.h"

namespace ptd::arm {

/// Which instructions besides branches and ISB are P0.
struct WaypointRules {
  bool wait = false;          ///< WFI, WFE
  bool transactions = false;  ///< TSTART
  bool barriers = false;      ///< DMB, DSB
  bool every = false;         ///< all instructions: ETMv3 traces each one
};

enum class RunStop : uint8_t {
  waypoint,  ///< a P0 instruction
  stop,      ///< the requested address
  cut,       ///< the maximum number of instructions of a block; the flow continues after it
  no_image,  ///< no bytes at `end`
  too_many,  ///< the bytes at `end` have too many versions
  bad_insn,  ///< the bytes at `end` are not an instruction
};

/// Consecutive instructions. `instructions` may be 0 if `end` is not waypoint.
struct WaypointRun {
  Ip ip, end;  ///< [ip, end)
  SpaceId space = kNoSpace;
  ExecMode mode = ExecMode::unknown, target_mode = ExecMode::unknown;
  RunStop stop = RunStop::no_image;
  uint16_t instructions = 0;
  uint16_t block_flags = 0;  ///< BlockFlag bits of its bytes
  NodeId node = 0;           ///< valid if instructions != 0
  ArmInsn last;              ///< the waypoint
  Ip last_ip, target;        ///< address of the last instruction; target of a direct branch
  Ip bad_ip{};               ///< the first address in the run whose bytes are not an instruction, if has_bad
  bool has_bad = false;
  bool conditional = false;        ///< the waypoint may not be taken: it is conditional, in an IT block, or possibly in an IT block that
                                   ///< begins before the run
  bool chosen = false;             ///< some bytes were chosen from several contents, so the run is read again each time
  SectionId section = kNoSection;  ///< no_image: the section whose bytes are missing
  Interval certain;                ///< when these bytes, and no others, were live; empty if they were chosen
  /// Returns whether the run ends in an unconditional branch. Some trace units report one to the next instruction as not taken.
  [[nodiscard]] bool is_always_taken() const {
    if (conditional) return false;
    return last.cls == ArmClass::indirect || (last.cls == ArmClass::direct && target != end);
  }
};

/// What an atom does at the end of a run.
enum class Way : uint8_t {
  on,             ///< the flow continues after the run, or at the target of its direct branch
  call,           ///< same, and the branch writes the link register
  indirect,       ///< a taken indirect branch, whose target comes from the trace
  indirect_call,  ///< same, and it writes the link register
  no_code,        ///< the run is empty: its bytes are not known
  other,          ///< a contradiction, a change of the instruction set, or a run that ends before a P0 instruction
  none,           ///< there is no run
};

/// The data of a run that following atoms needs, and its successors. Index [executed]: 0 for atom N, 1 for atom E.
struct alignas(64) Step {
  std::array<Block, 2> blocks{};  ///< the blocks to output; if the run has no code, the first node is its section
  /// The next runs: the one after this run, and the one at its branch target (for an indirect branch the last target); 0: not known yet.
  /// For a run that does not end in a branch both are the same.
  std::array<uint32_t, 2> next{};
  Ip ip, end;
  Interval certain;
  SpaceId space = kNoSpace;
  std::array<Way, 2> way = {Way::none, Way::none};
  ExecMode mode = ExecMode::unknown;
  bool branch = false;
};
static_assert(sizeof(Step) == 64);

/// A fetch that several versions of the code answer.
struct CodeFork {
  Ip ip;
  ExecMode mode = ExecMode::unknown;
  Interval when;
  bool through_branches = false;  ///< the flow continues after the instruction even if it is a branch
  std::span<const CodeCandidate> candidates;
};
struct CodeChoice {
  size_t index = 0;         ///< of a candidate
  unsigned size_bytes = 0;  ///< of the instruction; the choice does not extend to the bytes after it
  uint16_t block_flags = 0;
};

/// Chooses which of several versions was executed, and knows what earlier choices imply.
class CandidateChooser {
 public:
  virtual ~CandidateChooser() = default;
  [[nodiscard]] virtual CodeChoice choose(const CodeFork& fork) = 0;
  /// Returns the part of `when` that the versions chosen so far allow.
  [[nodiscard]] virtual Interval narrowed(Interval when) const { return when; }
  /// Returns the versions that were reached.
  [[nodiscard]] virtual std::span<const VersionFloor> floors() const { return {}; }
};

/// Reads code and owns the blocks. One per decoder.
class RunCache {
 public:
  /// `own_upper`: of FollowOptions.
  RunCache(const Timeline& timeline, WaypointRules rules, bool own_upper = false);

  /// Returns the space that contains the code at `ip` for a flow in `space`.
  [[nodiscard]] SpaceId home(SpaceId space, Ip ip) const { return is_kernel_half(ip) && !own_upper_ ? kKernelSpace : space; }

  /// Returns the index of the run at (space, ip, mode) at a time within `when`; reads it if needed.
  uint32_t find(SpaceId space, Ip ip, ExecMode mode, Interval when, CandidateChooser& chooser) {
    space = home(space, ip);
    const size_t slot = slot_of(space, ip, mode);
    const uint32_t index = slots_[slot];
    if (index != 0 && (!changes_ || steps_[index].certain.contains(when))) return index;
    return find_new(space, ip, mode, when, chooser, slot);
  }
  /// Returns true if the last failed lookup also shows that there is no code at `ip`; `section` is the section there.
  [[nodiscard]] bool is_known_hole(SpaceId space, Ip ip, Interval when, SectionId& section) const {
    const Hole& hole = holes_[hole_];
    section = hole.code.section;
    return hole.holds(home(space, ip), place(ip), when);
  }
  /// Returns the run with an index. Valid until the next find().
  [[nodiscard]] const WaypointRun& run(uint32_t index) const { return runs_[index]; }
  [[nodiscard]] const Step& step(uint32_t index) const { return steps_[index]; }
  /// Links run `from`, with its branch taken or not, to its successor `to`. Transfers between spaces are not linked, because in another
  /// context they may lead elsewhere.
  void link(uint32_t from, bool taken, uint32_t to) {
    Step& step = steps_[from];
    if (step.space != steps_[to].space || to == hole_run_) return;
    step.next[taken ? 1 : 0] = to;
    if (!step.branch) step.next[1] = to;
  }
  /// Returns a run that ends at `stop` and contains no P0 instruction before it, unless `through_branches`; not cached.
  WaypointRun read_to(SpaceId space, Ip ip, ExecMode mode, Interval when, Ip stop, bool through_branches, CandidateChooser& chooser);
  /// Returns a run up to and including the instruction at `last`, and no P0 instruction before it, unless `through_branches`; not cached.
  WaypointRun read_through(SpaceId space, Ip ip, ExecMode mode, Interval when, Ip last, bool through_branches, CandidateChooser& chooser);
  /// Returns a run of at most `most` instructions that ends with the first P0 instruction; not cached.
  WaypointRun read_some(SpaceId space, Ip ip, ExecMode mode, Interval when, uint64_t most, CandidateChooser& chooser);
  [[nodiscard]] const BlockTable& blocks() const { return table_; }
  [[nodiscard]] SectionId section_at(SpaceId space, Ip ip, Interval when);
  [[nodiscard]] bool changes() const { return changes_; }
  [[nodiscard]] const Timeline& timeline() const { return timeline_; }

 private:
  /// Returns the address in the timeline of the code at `ip` ([FollowOptions] own_upper).
  [[nodiscard]] Ip place(Ip ip) const { return own_upper_ ? lowered(ip) : ip; }
  static constexpr uint64_t kMostInstructions = 0xfff0;  ///< of a block
  struct Request {
    SpaceId space;
    Ip ip;
    ExecMode mode;
    Interval when;
    bool has_stop = false;
    Ip stop;
    bool through_branches = false;
    bool stop_is_last = false;  ///< the run includes the instruction at `stop`
    uint64_t most = kMostInstructions;
  };
  /// Additional state while a run is read.
  struct Reading {
    unsigned it_left = 0;     ///< remaining instructions of the current IT block
    unsigned bad_in_row = 0;  ///< consecutive invalid instructions
    bool saw_it = false;
  };
  /// Bytes of the timeline with a single version; valid as long as the timeline.
  struct Stretch {
    SpaceId space = kNoSpace;
    Ip ip;
    PlainCode code;
    uint16_t block_flags = 0;
    [[nodiscard]] bool holds(SpaceId in, Ip at, Interval when) const {
      return space == in && at - ip < code.bytes.size() && code.certain.contains(when);
    }
  };
  struct Hole {
    SpaceId space = kNoSpace;
    NoCode code;
    [[nodiscard]] bool holds(SpaceId in, Ip at, Interval when) const { return space == in && code.covers(at, when); }
  };
  WaypointRun read(const Request& request, CandidateChooser& chooser);
  [[nodiscard]] static bool ends_here(const Request& request, WaypointRun& run);
  bool pass_plain(const Request& request, WaypointRun& run, Reading& reading);
  bool take_one(const Request& request, WaypointRun& run, Reading& reading);
  void take(WaypointRun& run, uint64_t instructions, uint64_t size_bytes, uint64_t last_bytes);
  void intern(WaypointRun& run);
  bool fetch(const Request& request, WaypointRun& run, CandidateChooser& chooser);
  void copy(const CodeCandidate& from, unsigned most_bytes);
  bool fetch_plain(const Request& request, Ip ip);
  const std::byte* find_waypoint(Bytes code, ArmInsn& waypoint) const;
  [[nodiscard]] const Stretch* stretch_at(SpaceId space, Ip ip, Interval when);
  const Stretch* look_up_stretch(SpaceId space, Ip ip, Interval when);
  const Stretch* keep_stretch(SpaceId space, Ip ip, const PlainCode& code);
  [[nodiscard]] const Hole* hole_at(SpaceId space, Ip ip, Interval when);
  bool is_hole(const Request& request, WaypointRun& run);
  static void start(const Request& request, WaypointRun& run);
  [[nodiscard]] bool at_hand(Ip ip) const;
  void keep_piece();
  [[nodiscard]] bool is_waypoint(const ArmInsn& insn) const { return ((waypoints_ >> static_cast<unsigned>(insn.cls)) & 1) != 0; }
  uint32_t find_new(SpaceId space, Ip ip, ExecMode mode, Interval when, CandidateChooser& chooser, size_t slot);
  uint32_t read_new(SpaceId space, Ip ip, ExecMode mode, Interval when, CandidateChooser& chooser, size_t slot);
  void grow();
  uint32_t run_at(SpaceId space, Ip ip, ExecMode mode, size_t slot);
  /// Returns the position of the run in slots_, or the free position for it.
  [[nodiscard]] size_t slot_of(SpaceId space, Ip ip, ExecMode mode) const {
    const size_t mask = slots_.size() - 1;
    for (size_t slot = hash_of(space, ip, mode) & mask;; slot = (slot + 1) & mask) {
      if (slots_[slot] == 0) return slot;
      const Step& step = steps_[slots_[slot]];
      if (step.ip == ip && step.space == space && step.mode == mode) return slot;
    }
  }
  [[nodiscard]] static uint64_t hash_of(SpaceId space, Ip ip, ExecMode mode) {
    uint64_t hash = ip.value ^ (uint64_t{space.value} << 48) ^ (uint64_t{static_cast<uint8_t>(mode)} << 61);
    hash *= 0x9e3779b97f4a7c15ULL;
    return hash ^ (hash >> 32);
  }

  Timeline timeline_;
  CodeView view_;
  WaypointRules rules_;
  uint32_t waypoints_;  ///< one bit per ArmClass that ends a run
  BlockTable table_;
  bool own_upper_ = false;
  bool changes_ = false;  ///< some code of the timeline has several versions
  // Entries below run_count_ are valid; entry 0 is unused.
  std::vector<WaypointRun, RoomFor<WaypointRun>> runs_;
  std::vector<Step, RoomFor<Step>> steps_;
  uint32_t run_count_ = 0;
  uint32_t hole_run_ = 0;        // the run shared by all lookups without code, set by the last one; 0: none yet
  std::vector<uint32_t> slots_;  // open addressing, power of two; 0: empty
  static constexpr size_t kWindowBytes = 64;
  std::vector<CodeCandidate> candidates_;  // empty before the first fetch
  // The bytes of the run being read: bytes_, then piece_.
  std::vector<std::byte> bytes_;
  Bytes piece_;  // in the window
  // The result of the last fetch.
  Bytes window_;
  Ip window_ip_;
  Interval window_certain_;
  bool window_chosen_ = false;
  uint16_t window_flags_ = 0;
  std::array<std::byte, kWindowBytes> copied_;  // a copy of the window's bytes if they are valid only until the next fetch
  // The most recently used lookups of whole stretches, which save fetches.
  static constexpr size_t kStretches = 4;
  std::array<Stretch, kStretches> stretches_;
  std::array<Hole, kStretches> holes_;
  size_t stretch_ = 0, hole_ = 0;  // the one used last
};

}  // namespace ptd::arm
