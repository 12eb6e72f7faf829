// The survey as JSON: see survey_json.h.
#include "recording/survey_json.h"

#include <nlohmann/json.hpp>

namespace ptd {

namespace {

bool bounded(Interval time) { return time.first != kTimeMin && time.last != kTimeMax; }

}  // namespace

std::string survey_json(const Survey& survey) {
  nlohmann::json json = {{"schema", "ptdecode-info-1"},
                         {"form", survey.form},
                         {"trace", survey.trace},
                         {"host", survey.hostname},
                         {"kernel", survey.kernel},
                         {"cpu", survey.cpu},
                         {"cpuid", survey.cpuid},
                         {"command", survey.command},
                         {"clock", survey.clock},
                         {"timing", survey.timing},
                         {"traces_user", survey.traces_user},
                         {"traces_kernel", survey.traces_kernel},
                         {"snapshot", survey.snapshot},
                         {"file_bytes", survey.file_bytes},
                         {"trace_bytes", survey.trace_bytes},
                         {"kernel_copy", survey.kernel_copy},
                         {"text_pokes", survey.text_pokes},
                         {"switches", survey.switches},
                         {"other_events", survey.other_events},
                         {"warnings", survey.warnings}};
  if (bounded(survey.time)) json["time_ns"] = {survey.time.first.value, survey.time.last.value};
  if (survey.has_wall_clock) json["wall_offset_ns"] = survey.wall_offset_ns;
  json["streams"] = nlohmann::json::array();
  for (const SurveyStream& stream : survey.streams) {
    json["streams"].push_back({{"cpu", stream.cpu}, {"tid", stream.tid}, {"source", stream.source}, {"bytes", stream.size_bytes}});
    if (bounded(stream.time)) json["streams"].back()["time_ns"] = {stream.time.first.value, stream.time.last.value};
  }
  json["threads"] = nlohmann::json::array();
  for (const ThreadInfo& thread : survey.threads)
    json["threads"].push_back({{"pid", thread.pid}, {"tid", thread.tid}, {"comm", thread.comm}});
  json["images"] = nlohmann::json::array();
  for (const SurveyImage& image : survey.images)
    json["images"].push_back({{"path", image.path},
                              {"build_id", image.build_id},
                              {"found", image.found},
                              {"reason", image.reason},
                              {"from", image.from},
                              {"file", image.file}});
  return json.dump(2, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace ptd
