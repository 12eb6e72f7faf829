// SidebandFold: converts perf records to address spaces, mappings, edits, context switches, streams. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "image/build/text_pool.h"
#include "perfio/announce/announce_event.h"
#include "perfio/format/records.h"
#include "recording/data/hole_times.h"
#include "recording/data/recording_data.h"
#include "recording/image/announced/announced_code.h"
#include "recording/image/image_build.h"
#include "recording/image/jit_image.h"
#include "recording/image/kernel_image.h"
#include "recording/image/poke_order.h"
#include "recording/perf/guest_machines.h"
#include "recording/perf/mapping_ranges.h"
#include "recording/perf/program_starts.h"
#include "recording/perf/ring_index.h"
#include "recording/perf/task_switches.h"
#include "recording/perf/undated_records.h"

namespace ptd {

/// The text of a perf map. `file`: the identity of its file; two processes do not share one.
struct PerfMapText {
  std::string text;  ///< "": there is none
  std::optional<std::pair<uint64_t, uint64_t>> file = {};
};

/// Not thread-safe. Feed every record, then finish().
class SidebandFold {
 public:
  SidebandFold(const OpenRequest& options, ImageBuild& image, RecordingData& data);

  void on_record(const perfio::Record& record);
  /// The recording's events, which must outlive the fold: whether their records have a time.
  void set_attrs(const std::vector<perfio::EventAttr>& attrs) {
    attrs_ = &attrs;
    undated_.set_attrs(attrs);
  }
  /// Snapshot recordings overlap their payloads. `word`: what AUXTRACE_INFO says.
  void set_snapshot_word(uint64_t word) { snapshot_word_ = word; }
  /// Returns whether the recording has snapshots, after finish().
  [[nodiscard]] bool is_snapshot() const { return snapshot_; }
  /// Declares that the trace is recorded in rings of cpus, not of threads: known once AUXTRACE_INFO was seen.
  void set_per_cpu(bool on) { per_cpu_ = on; }
  /// Declares that the records have another clock than the trace.
  void set_other_clock(bool on) { other_clock_ = on; }
  /// Sets how much memory the trace in compressed records may take: for tests.
  void limit_copies(uint64_t bytes) { windows_.free_bytes = bytes; }
  /// Returns the recording's address filter, from AUXTRACE_INFO.
  void set_filter(const std::string& text) { filter_ = text; }
  /// Sets where the code of guests is. `kcore_dirs`: PerfReader::kcore_dirs().
  void set_guests(const std::vector<std::string>& kcore_dirs) { guests_.add_sources(options_, kcore_dirs, data_.warnings); }
  using Holes = std::vector<perfio::ReadDamage::Hole>;
  /// Bytes that the reader skips, filled while it reads: bounds the time of what they held. Must outlive the fold.
  void watch_holes(const Holes& holes) { holes_ = &holes; }
  /// Reports skipped bytes, and that files end early: what these held is of the time between, or after, the file's other records. `files`:
  /// PerfReader::mappings().
  void on_damage(const perfio::ReadDamage& damage, const std::vector<Bytes>& files);
  /// Resolves everything that needs the features: user mappings, jitdumps, the kernel; completes streams and contexts.
  void finish(perfio::Features features, KernelImage::Copies copies, bool monotonic);

  [[nodiscard]] const KernelImage& kernel() const { return kernel_; }
  [[nodiscard]] uint64_t guest_records() const { return guest_records_; }
  /// Returns the number of records of guests beyond kMostGuests.
  [[nodiscard]] uint64_t refused_guest_records() const { return refused_guest_records_; }
  [[nodiscard]] uint64_t pokes() const { return pokes_; }
  [[nodiscard]] TimeNs last_time() const { return last_time_; }
  /// Returns true if OpenRequest::drop_nth_poke drops poke number `index`.
  [[nodiscard]] static bool drops(const OpenRequest& options, uint64_t index);

 private:
  void on_mmap(const perfio::Record& record, const perfio::MmapRecord& map);
  void on_guest_record(const perfio::Record& record, const RingIndex::Ring& ring);
  void on_unplaced_guest_mmap(const perfio::MmapRecord& map);
  void on_guest_mmap(TimeNs time, const perfio::MmapRecord& map, const GuestMachine& machine);
  void on_guest_switch(const perfio::Record& record, const perfio::SwitchRecord& change, const Guest& guest, std::map<int32_t, bool>& seen);
  void on_guest_poke(const perfio::Record& record, const perfio::TextPokeRecord& poke, GuestMachine& machine);
  void finish_guests();
  void on_sample(const perfio::Record& record, const perfio::OtherSample& sample);
  void add_mapping(UserMapping mapping);
  void add_file_mapping(UserMapping mapping);
  void trust_complete_jitdumps();
  /// A program from its exec or fork on.
  struct Program {
    int32_t pid = -1;
    TimeNs time;
    SpaceId space;
  };
  [[nodiscard]] const Program* program_of(const JitdumpHeader& header) const;
  [[nodiscard]] JitChild child_that_logs(const std::set<SpaceId>& owners, int32_t pid, TimeNs time) const;
  [[nodiscard]] JitWriter writer_of(int32_t pid, SpaceId space) const;
  void place_complete_jitdumps();
  void fold_jitdumps(bool monotonic, CodeNames& names);
  void fold_announcements(const Timeline& mapped, CodeNames& names);
  void fold_perf_maps();
  void end_inherited(const std::map<SpaceId, AddressRanges>& named);
  [[nodiscard]] PerfMapText perf_map_of(int32_t pid);
  [[nodiscard]] bool hides_given_code(const UserMapping& mapping) const;
  [[nodiscard]] bool keeps_changes(const UserMapping& mapping);
  void fold_mappings(const perfio::Features& features);
  void add_guest_mapping(UserMapping& mapping);
  void report_unknown_processes();
  void add_assumed();
  void add_given();
  [[nodiscard]] const UserMapping* remapped(size_t index, const LatestMappings& latest) const;
  [[nodiscard]] const std::vector<std::string>* roots_of(int32_t pid) const;
  void on_comm(const perfio::Record& record, perfio::CommRecord comm);
  [[nodiscard]] int32_t caller_of_exec(const perfio::Record& record, int32_t pid) const;
  void note_ran(int32_t tid, TimeNs time);
  [[nodiscard]] bool ran_before_exec(int32_t tid, TimeNs time) const;
  void doubt_program_before(int32_t pid, int32_t caller, bool was_named, TimeNs time);
  void start_program(int32_t pid, TimeNs time, SpaceId space);
  void check_program(const perfio::Record& record, const perfio::MmapRecord& map);
  TimeNs move_program(int32_t pid, SpaceId from, SpaceId to);
  void check_exec(const perfio::Record& record, perfio::CommRecord& comm);
  void on_task(const perfio::Record& record, perfio::TaskRecord task);
  void on_exit(const perfio::Record& record, const perfio::TaskRecord& task);
  void on_fork(SpaceId parent, SpaceId child);
  [[nodiscard]] bool check_fork(const perfio::Record& record, perfio::TaskRecord& task);
  void check_writer(const perfio::Record& record, const char* type, int32_t& pid, int32_t& tid);
  void on_switch(const perfio::Record& record, perfio::SwitchRecord change);
  /// Which tasks of a switch record can be: its own, and the next or the one before.
  struct PossibleTasks {
    bool own = true, other = true;
  };
  PossibleTasks check_numbers(const perfio::Record& record, perfio::SwitchRecord& change);
  void use_switch(const perfio::Record& record, const perfio::SwitchRecord& change, PossibleTasks tasks);
  void add_bad_record(const perfio::Record& record, const std::string& what);
  void report_task_switches();
  void add_leave(int32_t cpu, TimeNs time);
  [[nodiscard]] bool traces_tasks() const;
  struct LastSwitch {
    int32_t pid = -1, tid = -1;          // of the task that runs since then
    int32_t other = -1, other_tid = -1;  // of the task that ran before
    bool out = false;
    TimeNs time;
  };
  void check_switch_threads(const perfio::Record& record, const LastSwitch& last, const LastSwitch& now);
  void check_switch(const perfio::Record& record, const perfio::SwitchRecord& change);
  void on_sched_switch(const perfio::Record& record, const perfio::SchedSwitchSample& change);
  void on_itrace_start(const perfio::Record& record, perfio::ItraceStartRecord start);
  void on_text_poke(const perfio::Record& record, const perfio::TextPokeRecord& poke);
  void note_order(const perfio::Record& record, bool is_poke, bool is_late = false);
  void report_poke_order();
  void add_text_edits();
  void doubt_kernel();
  void on_lost(const perfio::Record& record, const perfio::LostRecord& lost);
  /// Records that one ring, or one cpu, lost.
  struct Loss {
    TimeNs first;  // of the ring's latest record
    uint64_t count = 0;
    int32_t cpu = -1;       // of the host or the guest; -1: of several, or unknown
    int32_t guest_pid = 0;  // the process that runs the guest; 0: the host
  };
  void add_lost(Interval window, const Loss& loss);
  [[nodiscard]] const RingIndex::Ring* ring_of(const perfio::Record& record) const;
  void note_time(const perfio::Record& record);
  void note_ring_time(uint64_t ring, TimeNs now);
  void on_aux(const perfio::Record& record, const perfio::AuxRecord& aux);
  void on_auxtrace(const perfio::AuxtraceRecord& aux);
  void on_aux_sample(const perfio::Record& record, const perfio::OtherSample& sample);
  AuxStream& stream_at(RingIndex::StreamKey key, uint32_t idx);
  uint32_t sample_name(uint32_t attr_index, const perfio::EventAttr& attr);
  void report_windows();
  void settle_snapshot_mode();
  void report_absent_streams(bool emulated);
  void report_unnamed_trace();
  void report_strange_times();
  SpaceId space_of(int32_t pid);
  Context context_of(int32_t pid, int32_t tid);
  void set_switch(int32_t cpu, TimeNs time, const Context& to);
  void name_thread(int32_t tid, TimeNs time, const std::string& name);
  void note_given_name(int32_t tid, TimeNs time);

  const OpenRequest& options_;
  ImageBuild& image_;
  RecordingData& data_;
  KernelImage kernel_;
  UndatedRecords undated_;
  GuestMachines guests_;
  std::vector<Edit> guest_edits_;
  std::vector<std::pair<int32_t, Interval>> guest_losses_;  // process that runs the guest, when its records were lost
  // Arm: a change whose end is not reported yet, by address. A record that replaces bytes by the same says that it is done.
  bool is_arm_ = false, text_reported_ = false;
  std::map<uint64_t, Edit> text_edits_;
  std::unordered_map<int32_t, SpaceId> spaces_;   // pid -> current space
  std::unordered_map<int32_t, int32_t> pids_;     // tid -> pid
  std::unordered_map<int32_t, int32_t> parents_;  // pid -> the process that started it
  ForkedSpaces forks_;
  ProgramStarts programs_;
  PokeOrder poke_order_;
  // Id of an event that no ID_INDEX names -> the cpu that writes its records; -1: several.
  std::unordered_map<uint64_t, int32_t> event_cpus_;
  /// Of the records of one file.
  struct FileTimes {
    HoleTimes::CpuTimes latest;
    HoleTimes holes;
    /// A time after which every cpu's records from here on are: the least of the latest.
    [[nodiscard]] TimeNs passed() const;
  };
  FileTimes& times_of(uint32_t file);
  void on_hole(const perfio::ReadDamage& damage, const perfio::ReadDamage::Hole& hole, Interval window);
  void on_cut(const perfio::ReadDamage& damage, const perfio::ReadDamage::Cut& cut, uint64_t unread_bytes);
  std::vector<FileTimes> file_times_;  // by Record::file
  RingIndex rings_;
  std::unordered_map<uint64_t, TimeNs> ring_times_;                   // ring -> time of its latest record
  std::map<uint64_t, Loss> open_losses_;                              // ring -> reported without a time: ends with the ring's next record
  std::map<int32_t, bool> cpu_seen_;                                  // cpus with a switch
  std::map<int32_t, LastSwitch> last_switches_;                       // cpu -> its latest record of cpu-wide switches
  std::map<std::pair<int32_t, uint64_t>, LastSwitch> last_of_event_;  // the same of each event on a cpu
  struct Start {
    TimeNs time;       // kTimeMax: unknown
    bool ran = false;  // another record of the thread came after it
  };
  std::map<int32_t, Start> started_;  // by thread: its first ITRACE_START
  std::set<SpaceId> mapped_;          // spaces of which some mapping is known
  TaskSwitches task_switches_;
  TextPool texts_;  // of mappings_
  UserMappings mappings_;
  std::vector<JitdumpMapping> jitdumps_;
  std::set<SpaceId> jitdump_spaces_;
  std::map<int32_t, TimeNs> ended_;                         // process -> its end
  std::map<int32_t, std::vector<Program>> program_starts_;  // process -> its execs and forks
  std::set<SpaceId> jit_named_;                             // spaces in which a jitdump or an announcement names code
  std::set<SpaceId> complete_spaces_;                       // spaces of which a jitdump has all code that ran
  const std::vector<perfio::EventAttr>* attrs_ = nullptr;
  AnnouncedCode announced_;
  AnonymousRanges anonymous_;
  MappedFiles mapped_files_;
  WritableCode writable_code_;
  std::map<std::pair<std::string, uint64_t>, uint64_t> file_places_;  // path, and offset minus address -> number for writable_code_
  struct AuxEnd {
    int32_t cpu = -1, tid = -1;
    uint64_t end_offset_bytes = 0;
    AuxBreak why = AuxBreak::none;
    bool has_time = false;
    TimeNs time;
    uint64_t size_bytes = 0;  // of trace that the recorder must store
  };
  std::vector<AuxEnd> aux_ends_;
  std::map<std::pair<int32_t, int32_t>, size_t> stream_of_;  // (cpu, tid) -> index in data_.streams
  /// The stream that an AUX record is of: that of its cpu, else that of its thread; stream_of_.end() if there is none.
  [[nodiscard]] auto place_of(const AuxEnd& end) const {
    const auto place = stream_of_.find({end.cpu, -1});
    return place != stream_of_.end() ? place : stream_of_.find({-1, end.tid});
  }
  const Holes* holes_ = nullptr;
  TimeNs last_time_;
  RecordTimes times_;
  uint64_t guest_records_ = 0, refused_guest_records_ = 0, pokes_ = 0;
  std::string filter_;
  std::map<uint32_t, uint32_t> sample_names_;  // attr -> index in data_.sample_names
  struct Windows {
    uint64_t samples = 0, without_trace = 0, left_out = 0;
    uint64_t free_bytes = 1ULL << 30;  // for trace in compressed records, which no mapping holds
  };
  Windows windows_;
  uint64_t snapshot_word_ = 0, overwritten_aux_ = 0, stored_aux_ = 0;  // AUX records with and without the flag that the ring is overwritten
  bool snapshot_ = false, per_cpu_ = true, other_clock_ = false;
};

}  // namespace ptd
