// A plan as JSON, for programs that distribute its units.
#include <string>

#include "recording/bundle/plan.h"
#include "recording/data/json_text.h"
#include "recording/data/recording_data.h"

namespace ptd {
namespace {

std::string quoted(const std::string& text) {
  std::string out;
  add_json_text(text, out);
  return out;
}

std::string bound(TimeNs time) { return time == kTimeMin || time == kTimeMax ? "null" : std::to_string(time.value); }

std::string unit_text(const Recording& recording, const PlanUnit& unit, size_t number) {
  const StreamInfo& stream = recording.streams()[unit.stream];
  std::string text = "{\"unit\":" + std::to_string(number) + ",\"stream\":" + std::to_string(unit.stream);
  text += ",\"cpu\":" + (stream.cpu < 0 ? "null" : std::to_string(stream.cpu)) +
          ",\"tid\":" + (stream.tid < 0 ? "null" : std::to_string(stream.tid));
  text += ",\"first_offset_bytes\":" + std::to_string(unit.first_offset);
  text += ",\"end_offset_bytes\":" + std::to_string(unit.last_offset == Recording::kStreamEnd ? unit.end_offset : unit.last_offset);
  text += ",\"first_ns\":" + bound(unit.time.first) + ",\"last_ns\":" + bound(unit.time.last) + ",\"ranges\":[";
  bool any = false;
  for (const FileRange& range : ranges_of(recording, unit)) {
    text += any ? "," : "";
    text += "[" + std::to_string(range.file) + "," + std::to_string(range.offset_bytes) + "," + std::to_string(range.size_bytes) + "]";
    any = true;
  }
  return text + "]}";
}

}  // namespace

std::string plan_json(const Recording& recording) {
  const PlanData& plan = *data_of(recording).plan;
  std::string text =
      "{\"schema\":\"ptdecode-plan-1\",\"id\":" + std::to_string(plan.id) + ",\"description\":" + quoted(recording.description());
  text += ",\"utc_offset_ns\":" + (plan.wall_offset_ns ? std::to_string(*plan.wall_offset_ns) : "null") + ",\"files\":[";
  for (size_t i = 0; i < plan.files.size(); ++i) {
    text += (i != 0 ? "," : "") + ("{\"path\":" + quoted(plan.files[i].path)) +
            ",\"size_bytes\":" + std::to_string(plan.files[i].size_bytes) + "}";
  }
  text += "],\"units\":[";
  for (size_t i = 0; i < plan.units.size(); ++i) text += (i != 0 ? "," : "") + unit_text(recording, plan.units[i], i);
  return text + "]}";
}

}  // namespace ptd
