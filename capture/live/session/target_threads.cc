// TargetThreads: see target_threads.h.
#include "capture/live/session/target_threads.h"

#include <cerrno>
#include <csignal>
#include <utility>

#include "perfio/format/wire.h"

namespace ptd::live {

using namespace perfio;

TargetThreads::TargetThreads(const TargetChoice& target, const std::vector<int32_t>& threads)
    : everything_(target.everything),
      inherits_(target.inherit && !target.per_thread),
      by_process_(inherits_ && target.tids.empty()),
      threads_(threads.begin(), threads.end()) {}

void TargetThreads::on_record(Bytes record) {
  if (everything_ || record.size() < kRecordHeaderBytes) return;
  const RecordHeader header = read_record_header(record);
  Cursor body(record.subspan(kRecordHeaderBytes));
  const auto thread_at = [&](size_t skipped_bytes) {
    body.skip(skipped_bytes);
    const int32_t tid = body.i32();
    return body.ok() ? tid : -1;
  };
  int32_t tid = -1;
  switch (header.type) {
    case kRecordFork:  // of a thread of the target: what it starts has inherited its events
      if (inherits_) tid = thread_at(8);
      break;
    case kRecordComm:  // a thread that calls exec becomes the main thread of its process
      if ((header.misc & kMiscCommExec) != 0) tid = thread_at(4);
      break;
    case kRecordExit:
      if (tid = thread_at(8); threads_.contains(tid)) ended_.emplace(tid, false);
      return;
    case kRecordLost:
      lost_ = true;
      return;
    default:
      return;
  }
  if (tid < 0) return;
  threads_.insert(tid);
  ended_.erase(tid);  // the number of a thread before it
}

/// The log keeps the FORK records of threads until it is folded, then a COMM for each thread that lives.
void TargetThreads::on_entry(const LogEntry& entry) {
  if (entry.kind != EntryKind::record || entry.bytes.size() < kRecordHeaderBytes) return;
  if (!by_process_ || read_record_header(entry.bytes).type != kRecordComm) return on_record(entry.bytes);
  Cursor body(entry.bytes.subspan(kRecordHeaderBytes + 4));
  if (const int32_t tid = body.i32(); body.ok()) threads_.insert(tid);
}

bool TargetThreads::contains(int32_t pid, int32_t tid) const {
  return everything_ || threads_.contains(tid) || (by_process_ && threads_.contains(pid));
}

void TargetThreads::mark_ended() {
  for (auto& [tid, marked] : ended_) marked = true;
}

void TargetThreads::forget_ended() {
  const auto is_gone = [](int32_t tid) { return kill(tid, 0) != 0 && errno == ESRCH; };
  std::erase_if(ended_, [&](const auto& each) {
    if (!each.second || !is_gone(each.first)) return false;
    threads_.erase(each.first);  // a loss may have taken it already
    return true;
  });
  if (std::exchange(lost_, false)) std::erase_if(threads_, is_gone);  // an EXIT may be among what was lost
}

}  // namespace ptd::live
