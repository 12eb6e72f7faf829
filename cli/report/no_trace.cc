// Recordings without a trace: see no_trace.h.
#include "cli/report/no_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"
#include "perfio/emulated.h"
#include "ptdecode/survey.h"

namespace ptd::cli {

namespace {

/// The findings of trace that the file lacks although its records name it.
std::string missing_trace_text(const Recording& recording) {
  std::string text;
  for (const Finding& finding : recording.findings()) {
    if (finding.kind == FindingKind::trace_lost && text.empty()) text = "; " + finding.what;
  }
  return text.empty() ? text : text + ": the file is incomplete";
}

/// What a recording without a trace is, and how to make one with a trace.
std::string no_trace_text(const InputOptions& input, const Recording& recording) {
  const std::string missing = missing_trace_text(recording);
  const Result<OpenRequest> options = open_options(input.repeated());
  const Result<Survey> facts = options ? survey(*options) : Result<Survey>(options.error());  // a pipe cannot be read again
  std::string events;
  for (const auto& [name, count] : facts ? facts->other_events : std::map<std::string, uint64_t>())
    events += (events.empty() ? ", but " : ", ") + fmt::format("{} of {}", counted(count, "sample"), name);
  if (!missing.empty()) return fmt::format("{}: {} contains no trace{}", input.path, facts ? facts->form : "recording", missing);
  if (perfio::is_emulated(recording.description()))
    return fmt::format(
        "{}: {} contains no trace; if 'record --emulate --aux-sample' made it, give a smaller --aux-sample-every: no thread's trace was as "
        "long",
        input.path, facts ? facts->form : "recording");
  const bool is_snapshot = facts && facts->form == "CoreSight snapshot";
  if (is_snapshot)
    return fmt::format("{}: {} contains no trace of the sources that it names: their trace ids are not in its buffers", input.path,
                       facts->form);
  return fmt::format(
      "{}: {} contains no trace{}; record one with 'perf record -e intel_pt//u -- PROGRAM' or, on any machine, 'ptdecode record "
      "--emulate -- PROGRAM' (see 'ptdecode doctor')",
      input.path, facts ? facts->form : "recording", events);
}

}  // namespace

bool has_trace(const Recording& recording) {
  return std::ranges::any_of(recording.streams(), [](const StreamInfo& stream) { return stream.size_bytes != 0; });
}

Result<std::unique_ptr<Recording>> open_traced(const InputOptions& input) {
  Result<std::unique_ptr<Recording>> recording = open_recording(input);
  if (recording && !has_trace(**recording)) return Error{ErrorCode::no_trace, no_trace_text(input, **recording), 0};
  return recording;
}

void note_absent_trace(const InputOptions& input, const Recording& recording) {
  say_on_error("ptdecode: " + shown(no_trace_text(input, recording)) + "\n");
}

Error no_source_lines(const std::string& what) {
  return {ErrorCode::not_recorded,
          what + ": a bundle contains code and names but no source lines of files; use the recording that it was made from", 0};
}

}  // namespace ptd::cli
