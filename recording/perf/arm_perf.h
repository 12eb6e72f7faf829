// ArmPerf: splits the AUX data of a cs_etm recording into one stream per trace source. Private to recording.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "perfio/format/auxtrace_etm.h"
#include "perfio/format/records.h"
#include "recording/data/recording_data.h"
#include "recording/perf/ring_index.h"
#include "recording/trace/aux_ranges.h"

namespace ptd {

/// The trace unit of a cpu, from the metadata.
[[nodiscard]] arm::TraceConfig arm_config(const perfio::EtmCpu& cpu);

/// Collects data from every record; finish() creates the streams. Payloads must stay valid as long as the recording.
class ArmPerf {
 public:
  /// `attrs` must outlive finish(); without them, ID_INDEX records alone tell which events are attached to tasks.
  void set_attrs(const std::vector<perfio::EventAttr>& attrs) { attrs_ = &attrs; }
  void on_record(const perfio::Record& record);
  /// Replaces data.streams.
  void finish(const perfio::EtmInfo& info, bool use_time, RecordingData& data);
  /// Returns findings about AUX records and trace that do not fit each other, after finish(); see also ArmSources::findings().
  [[nodiscard]] std::vector<Finding> findings() const;

 private:
  struct Piece {  ///< an AUX record
    int32_t cpu = -1, tid = -1;
    uint64_t offset_bytes = 0, size_bytes = 0, flags = 0;
    bool has_time = false;
    TimeNs time;
    uint64_t event = 0;  ///< its id
  };
  struct Payload {  ///< an AUXTRACE record
    int32_t cpu = -1, tid = -1;
    uint64_t offset_bytes = 0, size_bytes = 0;
    Bytes bytes;
    uint32_t idx = 0;

    [[nodiscard]] uint64_t end() const { return offset_bytes + std::min<uint64_t>(bytes.size(), ~offset_bytes); }
  };
  struct Slot {  ///< a source of `sources_`
    int32_t cpu = -1;
    size_t base = 0;   ///< its cpu's place in the metadata
    int32_t tid = -1;  ///< of a per-thread recording: what the thread wrote while it ran on the cpu
  };
  using RingKey = std::pair<int32_t, int32_t>;  ///< cpu, or -1 and thread
  struct Ring {
    uint64_t bytes = 0;  ///< so far
    const Payload* last = nullptr;
    std::vector<AuxRange> named;                               ///< by records of `pieces_`; empty if the kernel overwrites the ring
    std::map<std::pair<uint64_t, uint64_t>, Bytes> snapshots;  ///< of a ring that is overwritten: what was added of each range
    uint64_t unnamed_bytes = 0, first_unnamed = 0;             ///< without padding; offset of the first
  };
  [[nodiscard]] static RingKey ring_of(const Payload& payload) { return {payload.cpu, payload.cpu >= 0 ? -1 : payload.tid}; }
  void add_finding(RingKey ring, const std::string& what);
  void add_homeless(const std::string& what, RecordingData& data);
  void check_cpus(const perfio::EtmInfo& info);
  void order_payloads(std::vector<std::shared_ptr<const void>>& owners);
  void remove_padding();
  [[nodiscard]] std::vector<AuxRange> ranges_of(RingKey ring);
  [[nodiscard]] std::vector<AuxRange> ranges_held(const Payload& payload) const;
  void lose(const Payload& payload, const Piece& piece);
  void lose_between(const Ring& ring, const Payload& payload, uint64_t from, uint64_t to);
  void add_sources(const perfio::EtmInfo& info);
  void add_aux_threads(ContextTrack& contexts) const;
  void find_threads(bool has_times, RecordingData& data);
  [[nodiscard]] bool is_of_tasks() const;
  size_t slot_of(size_t base, int32_t tid);
  void add_payload(const Payload& payload, Ring& ring);
  void add_snapshot(const Payload& payload, Ring& ring);
  void add_without_record(const Payload& payload, Ring& ring, uint64_t from, uint64_t to, const Piece* neighbour);
  void add_piece(const Payload& payload, const Piece& piece, Bytes bytes, uint64_t buffer_offset);
  void add_raw(int32_t cpu, int32_t tid, const Piece& piece, Bytes bytes, uint64_t buffer_offset);
  void date_start(const std::vector<size_t>& members, int32_t cpu, int32_t tid, const Piece& piece);
  [[nodiscard]] std::vector<size_t> members_of(int32_t cpu, int32_t tid, Bytes frames);

  RingIndex events_;
  const std::vector<perfio::EventAttr>* attrs_ = nullptr;
  bool has_switches_ = false;  // records of context switches
  std::vector<Piece> pieces_;
  std::vector<Payload> payloads_;
  std::map<RingKey, std::vector<TimeNs>> starts_;  // ITRACE_START records; sorted by finish()
  std::map<RingKey, TimeNs> written_;              // of each ring: up to which time its trace was added
  bool overwritten_ = false;                       // the kernel overwrites its rings, of which the file has snapshots
  std::vector<Finding> findings_;
  std::map<int32_t, perfio::EtmHwId> hw_ids_;  // cpu -> its last id
  ArmSources sources_;
  std::vector<Slot> slots_;    // of each source; those of the metadata come first
  TimeNs started_ = kTimeMax;  // when tracing started: of the first ITRACE_START or AUX_OUTPUT_HW_ID record
  size_t bases_ = 0;
  std::map<std::pair<int32_t, size_t>, size_t> of_thread_;  // (thread, base) -> slot
  uint64_t unread_ids_ = 0;                                 // AUX_OUTPUT_HW_ID of a version that is not known
  uint64_t homeless_bytes_ = 0;                             // raw trace of an unknown cpu
};

}  // namespace ptd
