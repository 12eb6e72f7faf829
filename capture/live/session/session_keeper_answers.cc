// SessionKeeper: permissions and answers to requests; a snapshot is a perf.data file in memory.
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "capture/live/kernel/start_scan.h"
#include "capture/live/session/session_keeper.h"
#include "capture/live/session/snapshot_file.h"
#include "image/base/system_error.h"
#include "perfio/announce/announce_event.h"
#include "perfio/format/features.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

constexpr size_t kMaxClients = 32, kMaxSnapshots = 4;  // at once

/// The owner of the session, or root, who could do it anyway.
bool may_ask(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

uint64_t now_ns() {
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec);
}

/// An announcement of the log, as a sample of the event after those of the kernel.
Status add_announcement(PerfWriter& writer, Bytes entry, size_t attr_index) {
  AnnouncementHead head;
  if (entry.size() < sizeof(head)) return {};
  std::memcpy(&head, entry.data(), sizeof(head));
  RecordContext context;
  context.attr_index = static_cast<uint32_t>(attr_index);
  context.misc = kMiscUser;
  context.sample_id.pid = head.pid;
  context.sample_id.tid = head.tid;
  context.sample_id.time = head.time;
  context.sample_id.has_time = head.time != 0;
  context.sample_id.cpu = 0;
  context.sample_id.id = AnnounceTap::kEventId;
  const std::vector<std::byte> raw = announce_sample(head.tid, entry.subspan(sizeof(head)));
  return writer.add_sample(OtherSample{0, raw}, context);
}

}  // namespace

void SessionKeeper::close_client(Client& client) const {
  if (client.fd >= 0) close(client.fd);
  client.fd = -1;
}

void SessionKeeper::accept_clients() {
  for (;;) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && errno == EINTR) continue;
    if (fd < 0) return;
    if (!may_ask(fd) || clients_.size() >= kMaxClients) {
      close(fd);
    } else {
      clients_.push_back({fd, false});
    }
  }
}

SessionStatus SessionKeeper::status() const {
  const std::vector<uint64_t> numbers = counters_->read().positions;
  SessionStatus status;
  status.name = choice_.name;
  status.what = choice_.what;
  status.keeper_pid = getpid();
  status.backup_pid = backup_ ? backup_->pid() : -1;
  status.started_s = numbers[kStarted];
  status.snapshots = numbers[kSnapshots];
  status.records = numbers[kRecords];
  status.lost_records = numbers[kLost];
  status.takeovers = numbers[kTakeovers];
  status.trace_stop_ns = numbers[kStopNs];
  status.trigger_hits = numbers[kHits];
  status.triggered = numbers[kTriggered];
  status.trigger_failures = numbers[kFailures];
  status.log_used_bytes = log_->used_bytes();
  status.log_folds = log_->folds();
  status.forgotten = log_->forgotten();
  for (const EventRings& rings : events_->rings()) status.aux_bytes += rings.aux == nullptr ? 0 : rings.aux->capacity_bytes();
  status.target_ended = !choice_.target.everything && events_->target_ended();
  status.alive = true;
  return status;
}

/// One question, one answer, and the end; a client with a snapshot is kept until it hangs up, so that they can be counted.
void SessionKeeper::answer(Client& client) {
  std::vector<std::byte> bytes(sizeof(RequestPacket));
  int passed = -1;
  const long got = receive_packet(client.fd, bytes, passed, false);
  if (passed >= 0) close(passed);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
  RequestPacket request;
  if (got != static_cast<long>(sizeof(request)) || client.has_snapshot) return close_client(client);
  std::memcpy(&request, bytes.data(), sizeof(request));
  if (request.magic != kSessionMagic) return close_client(client);
  SessionReply reply;
  int memory = -1;
  drain();
  if (request.request == SessionRequest::snapshot) {
    size_t open = 0;
    for (const Client& other : clients_) open += other.has_snapshot ? 1 : 0;
    memory = open < kMaxSnapshots ? memfd_create("ptdecode-snapshot", MFD_CLOEXEC) : -1;
    const Status written =
        memory >= 0 ? write_snapshot(memory) : Status(Error{ErrorCode::bad_option, "too many snapshots at the same time", 0});
    if (!written.ok()) reply.error = written.error().message;
    client.has_snapshot = written.ok();
  }
  stop_ = stop_ || request.request == SessionRequest::stop;
  if (stop_) dir_.remove(choice_.name, inode_);  // gone before the answer
  reply.status = status();
  (void)send_packet(client.fd, encode_reply(reply), client.has_snapshot ? memory : -1, false);
  if (memory >= 0) close(memory);
  if (!client.has_snapshot && !stop_) close_client(client);  // a client that requested the stop gets its answer when the session has ended
}

/// Maps of the kernel and its modules; read again only when modules came or went.
void SessionKeeper::refresh_kernel_maps() {
  const Result<std::string> modules = read_text_file("/proc/modules");
  if (!kernel_maps_.empty() && modules.ok() && *modules == modules_) return;
  kernel_maps_.clear();
  modules_ = modules.ok() ? *modules : "";
  const Result<std::string> kallsyms = read_text_file("/proc/kallsyms");
  if (!kallsyms) return;
  (void)scan_kernel_maps(*kallsyms, [&](const MmapRecord& map) {
    kernel_maps_.push_back(map);
    return Status();
  });
}

Status SessionKeeper::write_header(PerfWriter& writer) {
  const std::optional<TimeConvRecord> clock = events_->rings().front().ring->time_conversion();
  if (choice_.make_info) {
    const Result<AuxtraceInfoRecord> info = choice_.make_info(clock ? &*clock : nullptr);
    if (!info) return info.error();
    if (Status status = writer.add_auxtrace_info(*info); !status) return status;
  }
  std::vector<IdIndexEntry> index;
  for (size_t i = 0; i < events_->rings().size(); ++i) {
    const EventRings& rings = events_->rings()[i];
    for (const uint64_t id : rings.ids()) index.push_back({id, i, rings.cpu, rings.tid});
  }
  if (Status status = writer.add_id_index(index); !status) return status;
  if (clock) {
    if (Status status = writer.add_time_conv(*clock); !status) return status;
  }
  refresh_kernel_maps();
  RecordContext context;
  context.attr_index = static_cast<uint32_t>(events_->attr_of(RingRole::target));
  context.misc = kMiscKernel;
  context.sample_id.pid = context.sample_id.tid = context.sample_id.cpu = 0;
  for (const MmapRecord& map : kernel_maps_) {
    if (Status status = writer.add_mmap(map, context); !status) return status;
  }
  return {};
}

/// The AUX areas while the trace is stopped; sideband, which has separate events, continues.
Status SessionKeeper::write_trace(PerfWriter& writer) {
  if (!choice_.trace) return {};
  const uint64_t stopped = now_ns();
  set(kStopped, 1);
  events_->disable_trace();
  Status status;
  for (size_t i = 0; i < events_->rings().size() && status.ok(); ++i) {
    const EventRings& rings = events_->rings()[i];
    if (rings.aux == nullptr) continue;
    const RingPart part = rings.aux->snapshot();
    if (part.size_bytes() == 0) continue;
    AuxtraceRecord record;
    record.offset_bytes = part.begin;
    record.reference = stopped;
    record.idx = static_cast<uint32_t>(i);
    record.cpu = rings.cpu;
    record.tid = rings.tid;
    record.payload = part.first;
    status = writer.add_auxtrace(record, part.second);
  }
  events_->enable_trace();
  set(kStopped, 0);
  set(kStopNs, now_ns() - stopped);
  drain();  // the records of the stop
  return status;
}

Status SessionKeeper::write_log(PerfWriter& writer, Features& features) const {
  Status status;
  std::vector<EventAttr> no_attrs;
  log_->each([&](const LogEntry& entry) {
    if (entry.kind == EntryKind::program) {
      (void)parse_feature(kFeatureBpfProgInfo, entry.bytes, features, no_attrs);
    } else if (status.ok() && entry.kind == EntryKind::announcement) {
      status = add_announcement(writer, entry.bytes, events_->attrs().size());
    } else if (status.ok()) {
      status = writer.add_raw(entry.bytes);
    }
  });
  return status;
}

Status SessionKeeper::write_snapshot(int fd) {
  WriterOptions options;
  options.attrs = events_->attrs();
  if (choice_.announcements) {
    const EventAttr& target = events_->attrs()[static_cast<size_t>(events_->attr_of(RingRole::target))];
    options.attrs.push_back(announce_attr(target, AnnounceTap::kEventId));
  }
  options.fd = fd;
  Result<std::unique_ptr<PerfWriter>> writer = PerfWriter::create("the snapshot", options);
  if (!writer) return writer.error();
  if (Status status = write_header(**writer); !status) return status;
  if (Status status = write_trace(**writer); !status) return status;
  Features features = machine_features();
  features.cmdline = {"ptdecode", "snapshot", choice_.name};
  tell_losses();
  if (Status status = write_log(**writer, features); !status) return status;
  if (Status status = (*writer)->add_finished_round(); !status) return status;
  (*writer)->set_features(features);
  if (choice_.announcements) (*writer)->set_feature_bytes(kFeatureTracingData, announce_tracing_data());
  if (Status status = (*writer)->finish(); !status) return status;
  count(kSnapshots, 1);
  return {};
}

/// Takes one snapshot at a time, at a limited rate: a function that is hit again and again must not keep the session from its work.
void SessionKeeper::look_at_trigger() {
  constexpr uint64_t kPauseNs = 1'000'000'000;
  if (trigger_->read()) drain();
  const uint64_t hits = trigger_->count();
  if (hits == 0) return;
  count(kHits, hits);
  const uint64_t taken = counters_->read().positions[kTriggered], now = now_ns();
  if (taken >= choice_.self_snapshots->most || (triggered_at_ns_ != 0 && now - triggered_at_ns_ < kPauseNs)) return;
  triggered_at_ns_ = now;
  const std::string& output = choice_.self_snapshots->output;
  const Status status = take_own_snapshot(taken == 0 ? output : output + "." + std::to_string(taken + 1));
  count(status.ok() ? kTriggered : kFailures, 1);
}

Status SessionKeeper::take_own_snapshot(const std::string& output) {
  const int memory = memfd_create("ptdecode-snapshot", MFD_CLOEXEC);
  if (memory < 0) return system_error("the snapshot", ErrorCode::write_failed);
  Status status = write_snapshot(memory);
  if (status.ok()) status = save_snapshot(memory, output);
  close(memory);
  return status;
}

}  // namespace ptd::live
