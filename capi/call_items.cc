// The items of call cursors.
#include <atomic>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/names/call_names.h"
#include "capi/items.h"
#include "ptdecode/call_walk.h"

namespace ptd::capi {

namespace {

class CallItems final : public ItemSource {
 public:
  CallItems(const CursorRequest& request, Control& control)
      : recording_(request.recording), control_(control), cursor_(*recording_->recording, walk_options(request), functions_) {}

  bool next(ptd_item& item) override {
    for (;;) {
      for (; at_ < steps_.size(); ++at_) {
        const CallStep& step = steps_[at_];
        if (step.kind == CallStepKind::enter || step.kind == CallStepKind::off) continue;
        ++at_;
        fill(item, step);
        return true;
      }
      at_ = 0;
      control_.check();
      const bool more = cursor_.next(steps_);
      control_.check();
      if (more) continue;
      if (const Status& status = cursor_.status(); !status) throw Failure(status.error());
      return false;
    }
  }

 private:
  CallWalkOptions walk_options(const CursorRequest& request) {
    for (const uint32_t stream : request.streams) total_ += recording_->recording->streams()[stream].size_bytes;
    control_.progress(0, total_);
    CallWalkOptions options;
    options.streams = request.streams;
    options.time = request.time;
    options.threads = request.threads;
    options.stopped = [this] { return control_.cancelled(); };
    options.progress = [this](uint64_t bytes) { control_.progress(done_ += bytes, total_); };
    return options;
  }

  void fill(ptd_item& item, const CallStep& step) {
    const CallThread& thread = cursor_.tree().threads()[step.thread];
    item.kind = PTD_ITEM_CALL;
    item.stream = PTD_NONE;
    item.pid = thread.pid;
    item.tid = thread.tid;
    item.cpu = step.cpu;
    item.space = PTD_NONE;
    item.mode = item.reserved = 0;
    item.cycles = 0;
    item.time_ns = item.time_first_ns = item.time_last_ns = to_ns(step.time);
    ptd_call& call = item.u.call;
    call = {};
    call.function = call.module = "";
    const bool lost = step.kind == CallStepKind::lost;
    call.comm = comm_of(thread.tid, lost ? step.time : step.start);
    call.depth = step.depth;
    call.start_ns = to_ns(lost ? step.time : step.start);
    call.end_ns = to_ns(step.time);
    call.off_cpu_ns = step.off_cpu_ns;
    call.untraced_ns = step.untraced_ns;
    call.lost_ns = step.lost_ns;
    if (lost) {
      call.what = "lost";
      call.kind = step.loss == CallLoss::gap ? name(step.gap) : sentence(step.loss);
    } else if (step.kind == CallStepKind::on) {
      call.what = "pause";
      call.kind = pause_name(step);
      call.kernel = (step.flags & kCallKernel) != 0 ? 1 : 0;
    } else {
      fill_call(call, step);
    }
  }
  void fill_call(ptd_call& call, const CallStep& step) {
    call.what = "call";
    call.kind = name(step.frame);
    const bool traced = step.function != kNoFunction;
    const Names names = traced ? names_of(step.function) : Names{"[not traced]", ""};
    call.function = names.function;
    call.module = names.module;
    call.self_ns = step.self_ns;
    call.instructions = step.instructions;
    call.self_instructions = step.self_instructions;
    call.cycles = step.cycles;
    call.self_cycles = step.self_cycles;
    call.start_seen = (step.flags & (kCallNoStart | kCallMiddle)) == 0 ? 1 : 0;
    call.end_seen = (step.flags & kCallCut) == 0 ? 1 : 0;
    call.estimated = (step.flags & kCallEstimated) != 0 ? 1 : 0;
  }

  struct Names {
    const char* function = nullptr;  // null: not looked up yet
    const char* module = nullptr;
  };
  const Names& names_of(uint32_t function) {
    if (function >= names_.size()) names_.resize(function + 1);
    Names& names = names_[function];
    if (names.function == nullptr) {
      const FunctionInfo& info = functions_.info(function);
      names = {recording_->strings.keep(info.name), recording_->strings.keep(info.module)};
    }
    return names;
  }

  /// A thread's name, and when it has it.
  struct Known {
    Interval valid{kTimeMax, kTimeMin};
    const char* comm = "";
  };
  const char* comm_of(int32_t tid, TimeNs when) {
    Known& known = comms_[tid];
    if (!known.valid.contains(when)) known.comm = recording_->strings.keep(recording_->recording->comm_at(tid, when, &known.valid));
    return known.comm;
  }

  const std::shared_ptr<const OpenedRecording> recording_;
  Control& control_;
  std::atomic<uint64_t> done_{0};
  uint64_t total_ = 0;
  FunctionTable functions_;
  std::unordered_map<int32_t, Known> comms_;
  std::vector<Names> names_;  // by function
  std::span<const CallStep> steps_;
  size_t at_ = 0;
  CallCursor cursor_;  // its threads use what is above
};

}  // namespace

std::unique_ptr<ItemSource> make_call_items(const CursorRequest& request, Control& control) {
  return std::make_unique<CallItems>(request, control);
}

}  // namespace ptd::capi
