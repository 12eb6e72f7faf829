// FlowCheck: which mapped files the flow contradicts and which code it misses, found by decoding a bounded part of the trace.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/options/progress.h"
#include "cli/report/missing_report.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

/// One mapped file (or other code) whose bytes are not the executed ones.
struct FlowContradiction {
  std::string path, build_id;  ///< may be empty
  uint64_t packets = 0;        ///< packets that do not fit
  std::vector<Ip> places;      ///< different addresses, in order of the flow; at most kShownPlaces
  uint64_t more_places = 0;    ///< different addresses beyond those (counted up to kCountedPlaces in all)
  Interval first_time;         ///< of the first
  std::string file;            ///< the bytes come from it, and only its build id proves them; "" if more does
  std::string jitdump;         ///< names code of the same process; its times may be what is wrong
};

/// A jitdump, or the text pokes of the kernel, whose times the packets contradict: code ran at other times than they say.
struct WrongTimes {
  std::string path;     ///< of the jitdump; "[kernel]"
  uint64_t blocks = 0;  ///< that fit the packets only with code of another time, and gaps where code of another time is known
  Ip first_place;
  Interval first_time;
};

/// Flow that trace bytes of one stream lost, for one reason.
struct TraceDamage {
  uint32_t stream = 0;
  GapReason reason = GapReason::bad_packet;  ///< or aux_lost, where no record says that trace is missing
  uint64_t gaps = 0, lost_bytes = 0;         ///< bytes that are skipped
  uint64_t first_offset_bytes = 0;           ///< of the first, in the stream
  Interval first_time;
};

struct FlowCheck {
  static constexpr size_t kShownPlaces = 4, kCountedPlaces = 1U << 16;
  std::vector<FlowContradiction> contradictions;  ///< by packets, most first
  std::vector<WrongTimes> wrong_times;            ///< by path
  std::vector<MissingLine> missing;               ///< code without bytes that the flow came to; the largest loss first
  std::vector<TraceDamage> damage;                ///< by stream and reason
  std::vector<Finding> findings;                  ///< Recording::findings(), and those of reading all times: see miscount_findings()
  uint64_t blocks = 0;                            ///< decoded
  uint64_t instructions = 0, uncertain = 0;       ///< decoded; of these in blocks that are ambiguous or suspect
  uint64_t decoded_bytes = 0, all_bytes = 0;      ///< of trace
  bool has_flow = true;                           ///< false: recorded without the packets that give one
  [[nodiscard]] bool is_empty() const { return has_flow && all_bytes != 0 && decoded_bytes == all_bytes && blocks == 0; }
  [[nodiscard]] bool agrees() const {
    return contradictions.empty() && wrong_times.empty() && missing.empty() && damage.empty() && !is_empty();
  }
};

/// Decodes the beginning of each stream of `recording`: about `budget_bytes` of all streams together, each with its share by size, and at
/// least its first segment. The result depends on the recording and the budget only.
[[nodiscard]] FlowCheck check_flow(const Recording& recording, uint64_t budget_bytes, Progress& progress);
/// "cpu 3", or "tid 4711" of a stream of one thread.
[[nodiscard]] std::string stream_name(const StreamInfo& stream);
/// For people, without newline.
[[nodiscard]] std::string contradiction_text(const FlowContradiction& contradiction);
[[nodiscard]] nlohmann::json contradiction_json(const FlowContradiction& contradiction);
[[nodiscard]] std::string wrong_times_text(const WrongTimes& times);
[[nodiscard]] nlohmann::json wrong_times_json(const WrongTimes& times);
/// One line of FlowCheck::damage, without newline. `stream`: the name of its stream.
[[nodiscard]] std::string damage_text(const TraceDamage& damage, const std::string& stream);
[[nodiscard]] nlohmann::json damage_json(const TraceDamage& damage, const std::string& stream);
/// One line of FlowCheck::missing, without newline.
[[nodiscard]] std::string missing_code_text(const MissingLine& line);

}  // namespace ptd::cli
