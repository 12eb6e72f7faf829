// Samples of other events among the lines of the flow: see other_lines.h.
#include "cli/calls/other_lines.h"

#include <fmt/format.h>

#include "cli/list/line_writer.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

namespace {

constexpr size_t kMostSamples = 500'000;

void list_samples(const Recording& recording, const ScriptOptions& options, const OtherEvents& samples, ChunkSink& sink) {
  LineWriter writer(recording, options, -1);
  Chunk chunk;
  for (const OtherEvent& event : samples.events) {
    if (!among(options.cpus, event.cpu)) continue;
    Mark mark;
    mark.time = {event.time, event.time};
    mark.time_known = event.time.value != 0;
    mark.pid = event.pid;
    mark.tid = event.tid;
    mark.space = recording.contexts().at_thread(event.tid, event.time).space;
    writer.set_cpu(event.cpu);
    writer.set_mark(mark);
    if (!writer.wanted() || !writer.symbol_wanted(event.ip)) continue;
    chunk.cut(event.time);
    writer.sample(chunk.text, event, samples.names[event.name]);
    if (chunk.text.size() >= sink.chunk_bytes() && !sink.push(chunk)) return;
  }
  sink.push(chunk);
}

}  // namespace

OtherEvents read_samples(const InputOptions& input, const std::vector<Interval>& times) {
  if (input.is_raw()) return {};
  Result<OtherEvents> samples = read_other_events(input.path, times, kMostSamples);
  if (!samples) {
    say_on_error("ptdecode: warning: samples of other events are not listed: " + samples.error().message + "\n");
    return {};
  }
  if (samples->left_out != 0)
    say_on_error(fmt::format("ptdecode: {} not listed; choose with --time\n",
                             counted(samples->left_out, "more sample of other events is", "more samples of other events are")));
  return std::move(*samples);
}

StreamTask sample_task(const Recording& recording, const ScriptOptions& options, const OtherEvents& samples) {
  return {samples.events.front().time,
          [&recording, &options, &samples](ChunkSink& sink) { list_samples(recording, options, samples, sink); }};
}

void SampleMerge::take(std::span<const CallStep> steps, const CallTree& tree, TextBuffer& out) {
  size_t given = 0;
  for (size_t i = 0; i < steps.size() && next_ < samples_.events.size(); ++i) {
    if (steps[i].time <= samples_.events[next_].time) continue;
    give(steps.subspan(given, i - given), tree, out);
    given = i;
    give_until(steps[i].time, &tree, out);
  }
  give(steps.subspan(given), tree, out);
}

void SampleMerge::give_until(TimeNs time, const CallTree* tree, TextBuffer& out) {
  for (; next_ < samples_.events.size() && samples_.events[next_].time < time; ++next_) {
    const OtherEvent& event = samples_.events[next_];
    if (script_ != nullptr) script_->sample(event, samples_.names[event.name], tree, out);
    if (json_ != nullptr) json_->sample(event, samples_.names[event.name], out);
  }
}

void SampleMerge::give(std::span<const CallStep> steps, const CallTree& tree, TextBuffer& out) {
  if (script_ != nullptr) script_->take(steps, tree, out);
  if (json_ != nullptr) json_->take(steps, tree, out);
}

}  // namespace ptd::cli
