// ArmPerf: the trace of a cs_etm recording, from its AUX and AUXTRACE records to one stream a trace source. Private to recording.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "perfio/auxtrace_etm.h"
#include "perfio/records.h"
#include "recording/recording_data.h"

namespace ptd {

/// The trace unit of a cpu as the metadata tell it.
[[nodiscard]] arm::TraceConfig arm_config(const perfio::EtmCpu& cpu);

/// Collects what it needs of every record; finish() makes the streams. Payloads must stay valid as long as the recording.
class ArmPerf {
 public:
  void on_record(const perfio::Record& record);
  /// Replaces data.streams. Warnings tell what belongs to no source.
  void finish(const perfio::EtmInfo& info, bool use_time, RecordingData& data);

 private:
  struct Piece {  ///< an AUX record
    int32_t cpu = -1, tid = -1;
    uint64_t offset_bytes = 0, size_bytes = 0, flags = 0;
    bool has_time = false;
    TimeNs time;
  };
  struct Payload {  ///< an AUXTRACE record
    int32_t cpu = -1, tid = -1;
    uint64_t offset_bytes = 0;
    Bytes bytes;
  };
  void add_sources(const perfio::EtmInfo& info);
  void add_payload(const Payload& payload, const std::vector<Piece>& pieces, uint64_t buffer_offset);
  void add_piece(const Payload& payload, const Piece& piece, Bytes bytes, uint64_t buffer_offset);
  [[nodiscard]] std::vector<size_t> members_of(int32_t cpu) const;

  std::vector<Piece> pieces_;
  std::vector<Payload> payloads_;
  std::map<int32_t, perfio::EtmHwId> hw_ids_;  // cpu -> its last id
  ArmSources sources_;
  std::vector<int32_t> cpus_;         // of each source
  std::map<size_t, int32_t> thread_;  // source -> thread of a per-thread recording
};

}  // namespace ptd
