// RecordingData: all data of an opened recording. Private to recording.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "decoder/arm/options.h"
#include "image/source/elf_file.h"
#include "ptdecode/context_track.h"
#include "ptdecode/pt/decoder.h"
#include "ptdecode/recording.h"
#include "ptdecode/symbols.h"
#include "ptdecode/timeline.h"
#include "recording/data/arm_sources.h"
#include "recording/data/event_names.h"
#include "recording/data/open_request.h"
#include "recording/data/plan_data.h"
#include "recording/trace/anchors.h"
#include "recording/trace/page_release.h"
#include "recording/trace/segments.h"
#include "recording/trace/streams.h"

namespace ptd {

/// A trace of up to this size is scanned when it is opened; for a longer one, only a sample and the times of patching.
inline constexpr uint64_t kWholeTraceBytes = 32ULL << 20;

/// The form of an opened recording.
enum class RecordingKind : uint8_t { perf, raw, lldb, snapshot };

/// Filled by one of the load functions, then immutable.
struct RecordingData {
  RecordingKind kind = RecordingKind::perf;
  Timeline timeline;
  ContextTrack contexts;
  std::unique_ptr<Symbolizer> symbolizer;
  pt::DecoderOptions decoder;
  SegmentTiming timing;
  std::vector<AuxStream> streams;
  std::vector<std::string> sample_names;            ///< of events whose samples hold trace, by AuxSample::event
  std::vector<SegmentIndex> indexes;                ///< one a stream
  std::vector<StreamInfo> infos;                    ///< one a stream
  std::vector<ArmSource> arm;                       ///< one a stream of CoreSight trace; empty: Intel PT
  arm::FollowOptions arm_follow;                    ///< of CoreSight streams
  std::vector<PokeStamp> pokes;                     ///< TEXT_POKE records kept, for anchors
  std::vector<std::vector<pt::SyncPoint>> anchors;  ///< one a stream, or empty
  std::map<int32_t, std::string> thread_names;
  std::map<int32_t, std::vector<std::pair<TimeNs, std::string>>> comms;  ///< tid -> names in order of time
  std::set<std::pair<int32_t, TimeNs>> given_comms;                      ///< those that the thread did not give itself
  /// The ELF files that provide the bytes of sections, by path and build id of the section.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const ElfFile>> elf_files;
  std::map<std::pair<std::string, std::string>, ExecMode> modes;  ///< bits32 or bits64, of the files of sections, likewise
  std::vector<MissingImage> missing;
  LostRecords lost;
  std::vector<std::string> warnings;
  bool lacks_period = false;       ///< whether that period is to be found in the packets of a raw trace
  std::string period_contradicts;  ///< a sentence, if MTC packets have another period than the settings say, as found by index_streams()
  Origin origin;
  std::string description;
  Interval part;  ///< the time to which a bundle was cut; Interval{}: it was not
  EventNames event_names;
  std::vector<std::shared_ptr<const void>> owners;  ///< keep mapped payloads alive
  PageRelease pages;
  std::shared_ptr<const PlanData> plan;  ///< null: the recording holds its trace
};

Status load_raw(const RawOptions& raw, const OpenRequest& options, RecordingData& data);
Status load_lldb_bundle(const OpenRequest& options, RecordingData& data);
Status load_perf(const OpenRequest& options, RecordingData& data);
/// Returns contradictory_options if there are options that only a raw capture or CoreSight snapshot takes.
Status check_options_of_perf(const OpenOptions& options);
Status load_bundle(const OpenRequest& options, RecordingData& data);
Status load_snapshot(const OpenRequest& options, const std::string& dir, RecordingData& data);
/// Returns the snapshot directory that `path` names, directly or by its snapshot.ini; empty if it is not a snapshot.
[[nodiscard]] std::string snapshot_directory(const std::string& path);

/// The implementation of an opened recording.
[[nodiscard]] const RecordingData& data_of(const Recording& recording);

/// Returns whether a segment is the first of another snapshot or AUX sample, before which other code may have run. The trace of a CoreSight
/// cpu stops and starts with the events that record it.
[[nodiscard]] inline bool begins_window(const Recording& recording, uint32_t stream, const AuxSegment& segment) {
  return segment.break_before == AuxBreak::snapshot && recording.arm_config(stream) == nullptr;
}

/// Functions of the kernel that a context switch executes only after it entered the first one, before it writes the record of the incoming
/// thread. Compilers name the second one differently.
inline constexpr const char* kSwitchFunctions[] = {"__switch_to", "finish_task_switch", "finish_task_switch.isra.0",
                                                   "finish_task_switch.constprop.0"};

/// Looks up the kernel functions that the decoder needs by name (context switches).
void find_kernel_places(RecordingData& data);
/// Scans the streams for anchors, if the recording has pokes to order.
void add_anchors(const OpenRequest& options, RecordingData& data);

/// Scans the streams for PSBs and fills indexes, infos and timing from streams and decoder.
void index_streams(const OpenRequest& options, RecordingData& data);

}  // namespace ptd
