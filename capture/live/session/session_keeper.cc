// SessionKeeper: see session_keeper.h. Its answers are in session_keeper_answers.cc.
#include "capture/live/session/session_keeper.h"

#include <malloc.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <span>

#include "capture/live/kernel/map_build_ids.h"
#include "capture/live/kernel/start_scan.h"
#include "capture/live/session/state_fold.h"
#include "image/base/system_error.h"
#include "perfio/announce/announce_event.h"
#include "perfio/format/feature_encode.h"
#include "perfio/format/features.h"
#include "perfio/format/oversized_record.h"
#include "perfio/format/record_encode.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

/// The session's sizes: in overwrite mode the kernel's data rings are small, the log is where sideband stays.
Result<EventChoice> choose_events(const SessionChoice& choice) {
  EventChoice events;
  events.target = choice.target;
  events.trace = choice.trace;
  events.switches = choice.trace.has_value();  // who ran when is for the trace; without one it would only fill the log
  RingWishes wishes = choice.wishes;
  wishes.trace = choice.trace.has_value();
  wishes.rings = static_cast<uint32_t>(choice.target.cpus.empty() ? online_cpus().size() : choice.target.cpus.size());
  const Result<RingSizes> sizes = choose_ring_sizes(read_limits(), wishes);
  if (!sizes) return sizes.error();
  events.sizes = *sizes;
  return events;
}

/// What is large for a moment (the kernel's symbols, a log that is folded) goes back to the system at once.
void keep_little_memory() {
#if defined(__GLIBC__)
  constexpr int kLargeBytes = 128 << 10;
  (void)mallopt(M_MMAP_THRESHOLD, kLargeBytes);  // a fixed threshold does not grow
  (void)mallopt(M_TRIM_THRESHOLD, kLargeBytes);
  (void)malloc_trim(0);  // memory that the program left which requested the session
#endif
}

}  // namespace

Result<std::unique_ptr<SessionKeeper>> SessionKeeper::prepare(const SessionChoice& choice, SessionDir dir,
                                                              std::unique_ptr<announce::AnnounceSocket> offers) {
  std::unique_ptr<SessionKeeper> keeper(new SessionKeeper(choice, std::move(dir)));
  keeper->offers_ = std::move(offers);
  const Result<EventChoice> events = choose_events(choice);
  if (!events) return events.error();
  Result<EventSet> set = EventSet::open(*events);
  if (!set) return set.error();
  keeper->events_ = std::move(*set);
  Result<std::unique_ptr<SessionLog>> log = SessionLog::create(choice.log_bytes, keeper->events_->rings().size());
  if (!log) return log.error();
  keeper->log_ = std::move(*log);
  keeper->log_->ask_who_lives([](int32_t pid) { return pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH; });
  Result<std::unique_ptr<CommitPage>> counters = CommitPage::create(kCounters + 2 * keeper->events_->rings().size());
  if (!counters) return counters.error();
  keeper->counters_ = std::move(*counters);
  keeper->count(kStarted, static_cast<uint64_t>(time(nullptr)));
  if (Status status = keeper->open_trigger(); !status) return status.error();
  if (Status status = keeper->note_start(); !status) return status.error();
  if (Status status = keeper->open_socket(); !status) return status.error();
  return keeper;
}

SessionKeeper::~SessionKeeper() {
  for (Client& client : clients_) close_client(client);
  for (const int fd : {listen_fd_, folder_fd_, signal_fd_}) {
    if (fd >= 0) close(fd);
  }
}

Status SessionKeeper::open_trigger() {
  if (!choice_.self_snapshots) return {};
  const std::vector<int32_t> threads = events_->wanted_threads();
  if (threads.empty() && !choice_.target.everything)  // they have ended since their events were opened
    return Error{ErrorCode::no_such_thread, "--trigger: no such process or thread", 0};
  Result<std::unique_ptr<TriggerWatch>> watch = TriggerWatch::open(choice_.self_snapshots->trigger, choice_.target, threads);
  if (!watch) return watch.error();
  trigger_ = std::move(*watch);
  return {};
}

/// In a child of fork(), which has none of the mappings.
Status SessionKeeper::map_rings() {
  if (Status status = events_->map_again(); !status || trigger_ == nullptr) return status;
  return trigger_->map();
}

Status SessionKeeper::open_socket() {
  listen_fd_ = dir_.listen_as(choice_.name);
  if (listen_fd_ < 0) return system_error("cannot make " + dir_.path() + "/" + choice_.name, ErrorCode::write_failed);
  inode_ = dir_.inode(choice_.name);
  return {};
}

/// Who is there and what is mapped, as the log's first entries.
Status SessionKeeper::note_start() {
  const int32_t index = events_->attr_of(RingRole::target);
  const EventAttr& attr = events_->attrs()[static_cast<size_t>(index)];
  const auto& rings = events_->rings();
  const auto target = std::find_if(rings.begin(), rings.end(), [](const EventRings& ring) { return ring.role == RingRole::target; });
  const auto ring = static_cast<uint16_t>(target - rings.begin());
  std::vector<std::byte> bytes;
  MapBuildIds build_ids;
  const auto add = [&](Payload payload, const RecordContext& context) {
    bytes.clear();
    if (auto* map = std::get_if<MmapRecord>(&payload)) {
      if (map->pid == choice_.target.waiting_command) return Status();  // until its exec it is a copy of this program
      map->build_id = build_ids.of(*map);
    }
    if (encode_record(payload, {context.sample_id, context.misc, true}, attr, bytes)) log_->append({EntryKind::record, ring, 0, bytes});
    return Status();
  };
  for (const int32_t pid : recorded_processes()) {
    if (Status status = scan_process(pid, add); !status) return status;
  }
  return {};
}

std::vector<int32_t> SessionKeeper::recorded_processes() const {
  std::vector<int32_t> pids = choice_.target.everything ? list_processes() : choice_.target.pids;
  for (const int32_t tid : choice_.target.tids) pids.push_back(process_of(tid));
  if (choice_.target.waiting_command >= 0) pids.push_back(choice_.target.waiting_command);
  for (size_t i = 0, given = pids.size(); choice_.target.tree && i < given; ++i) {
    const std::vector<int32_t> tree = list_tree(pids[i]);
    if (!tree.empty()) pids.insert(pids.end(), tree.begin() + 1, tree.end());
  }
  return pids;
}

/// Announcements go into the log. A session at rest is not woken often for processes that have no ring. A keeper that takes over reads on
/// where the log ends.
void SessionKeeper::make_tap(bool continues) {
  constexpr int kLookForRingsMs = 16000;
  const auto sink = [this](int32_t pid, int32_t tid, uint64_t time, Bytes record) {
    const AnnouncementHead head{pid, tid, time};
    std::vector<std::byte> shifted(record.begin(), record.end());
    shift_numbers(shifted, AnnounceFold::kShift);
    const Bytes front = std::as_bytes(std::span(&head, 1));
    shifted.insert(shifted.begin(), front.begin(), front.end());
    log_->append({EntryKind::announcement, kNoRing, 0, shifted});
  };
  const auto on_sample = [sink](const OtherSample& sample, const SampleId& when) {
    sink(when.pid, when.tid, when.time, Bytes(sample.raw).subspan(kTracepointCommonBytes));
  };
  clock_.see_own_record();
  tap_ = std::make_unique<AnnounceTap>(clock_, on_sample, offers_.get(), continues, kLookForRingsMs);
  for (const int32_t pid : recorded_processes()) tap_->add_process(pid);
  if (!continues) return;
  log_->each([this](const LogEntry& entry) {  // those that were started meanwhile
    if (const int32_t pid = StateFold::process_of(entry); pid > 0) tap_->add_process(pid);
  });
}

void SessionKeeper::leave_offers() const {
  if (offers_ != nullptr) offers_->forget();
}

void SessionKeeper::follow(Bytes record) {
  if (trigger_ != nullptr) trigger_->target().on_record(record);
  if (tap_ == nullptr) return;
  const uint32_t type = read_record_header(record).type;
  const int32_t pid = Cursor(record.subspan(kRecordHeaderBytes)).i32();
  if (type == kRecordFork) tap_->add_process(pid);
  if (type == kRecordMmap2 || type == kRecordComm) tap_->look_soon(pid);
}

void SessionKeeper::make_capture(bool first) {
  const auto& rings = events_->rings();
  const auto kernel_ring = std::find_if(rings.begin(), rings.end(), [](const EventRings& ring) { return ring.role == RingRole::kernel; });
  const bool kernel = kernel_ring != rings.end();
  const auto ring = static_cast<uint16_t>(kernel ? kernel_ring - rings.begin() : 0);
  CaptureSink sink;
  sink.add_code = [this, ring](const TextPokeRecord& poke, const SampleId& when) {
    const EventAttr& attr = events_->attrs()[static_cast<size_t>(events_->attr_of(RingRole::kernel))];
    std::vector<std::byte> bytes;
    if (encode_record(poke, {when, kMiscKernel, true}, attr, bytes)) log_->append({EntryKind::code, ring, 0, bytes});
    return Status();
  };
  sink.add_program = [this, ring](const BpfProgInfo& program) {
    Features one;
    one.bpf_progs = {program};
    log_->append({EntryKind::program, ring, 0, encode_features(one, {}, 0).at(kFeatureBpfProgInfo)});
    return Status();
  };
  Result<std::unique_ptr<KernelMemory>> memory = kernel ? KernelMemory::open() : Error{};
  std::unique_ptr<ModuleWatch> modules;
  if (memory.ok()) modules = ModuleWatch::start(static_cast<int32_t>(online_cpus().size()));
  capture_ = std::make_unique<KernelCapture>(memory.ok() ? std::move(*memory) : nullptr, std::move(modules), std::move(sink));
  if (!kernel || !first) return;
  (void)capture_->note_loaded_programs();
  // The programs' names and numbers, as records of the state at the start.
  const EventAttr& attr = events_->attrs()[static_cast<size_t>(events_->attr_of(RingRole::kernel))];
  std::vector<BpfProgInfo> loaded;
  log_->each([&](const LogEntry& entry) {
    if (entry.kind != EntryKind::program) return;
    Features features;
    std::vector<EventAttr> none;
    if (parse_feature(kFeatureBpfProgInfo, entry.bytes, features, none))
      loaded.insert(loaded.end(), features.bpf_progs.begin(), features.bpf_progs.end());
  });
  for (const BpfProgInfo& program : loaded) {
    (void)tell_program(program, [&](const Payload& payload, const RecordContext& context) {
      std::vector<std::byte> bytes;
      if (encode_record(payload, {context.sample_id, context.misc, true}, attr, bytes)) log_->append({EntryKind::record, ring, 0, bytes});
      return Status();
    });
  }
}

void SessionKeeper::watch_folder() {
  folder_fd_ = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (folder_fd_ < 0) return;
  constexpr uint32_t kGone = IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
  if (inotify_add_watch(folder_fd_, dir_.path().c_str(), kGone) >= 0) return;
  close(folder_fd_);
  folder_fd_ = -1;  // then serve() looks from time to time
}

void SessionKeeper::watch_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  (void)sigprocmask(SIG_SETMASK, &set, nullptr);
  (void)signal(SIGTERM, SIG_DFL);
  if (signal_fd_ >= 0) close(signal_fd_);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Status SessionKeeper::settle() {
  keep_little_memory();
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTSTP}) (void)signal(number, SIG_IGN);
  watch_signals();
  if (Status status = map_rings(); !status) return status;
  watch_folder();
  make_capture(true);
  if (choice_.announcements) make_tap(false);
  return start_backup();
}

Status SessionKeeper::start_backup() {
  BackupProcess::Duties duties;
  duties.adopt = [this] {
    for (Client& client : clients_) close_client(client);
    clients_.clear();
    if (tap_ != nullptr) tap_->abandon();
    if (offers_ != nullptr) offers_->forget();
    capture_.reset();  // its mappings did not come along; their places are free for the rings
    return map_rings();
  };
  duties.take_over = [this] { take_over(); };
  Result<BackupProcess> backup = BackupProcess::start(duties);
  if (!backup) return backup.error();
  backup_ = std::move(*backup);
  return {};
}

/// In the backup process: the keeper is dead.
void SessionKeeper::take_over() {
  backup_.reset();
  watch_signals();
  count(kTakeovers, 1);
  if (offers_ != nullptr) offers_->own();
  const std::vector<uint64_t> positions = log_->positions();
  for (size_t i = 0; i < positions.size(); ++i) {
    EventRings& rings = events_->rings()[i];
    rings.ring->seek(std::max(positions[i], rings.ring->position()));
    const std::vector<uint64_t> numbers = counters_->read().positions;
    rings.losses = {numbers[kCounters + 2 * i], numbers[kCounters + 2 * i + 1]};
  }
  if (trigger_ != nullptr) {
    trigger_->take_over();
    log_->each([this](const LogEntry& entry) { trigger_->target().on_entry(entry); });  // of threads that were started meanwhile
  }
  make_capture(false);
  if (choice_.announcements) make_tap(true);
  if (counters_->read().positions[kStopped] != 0) {  // it was killed while the trace was stopped for a snapshot
    events_->enable_trace();
    set(kStopped, 0);
  }
  if (start_backup().ok()) serve();
}

void SessionKeeper::count(Counter counter, uint64_t by) {
  Progress now = counters_->read();
  now.positions[counter] += by;
  counters_->publish(now);
}

void SessionKeeper::set(Counter counter, uint64_t value) {
  Progress now = counters_->read();
  now.positions[counter] = value;
  counters_->publish(now);
}

void SessionKeeper::on_record(size_t ring, Bytes record) {
  const EventRings& rings = events_->rings()[ring];
  const uint64_t after = rings.ring->position() + record.size();
  if (read_record_header(record).type == kRecordLost) {
    record = news_of_lost(events_->rings()[ring], record);
    if (record.empty()) return;
  }
  if (!clock_.is_exact() && read_record_header(record).type != kRecordSample) {
    const SampleId id = trailer_of(events_->attrs()[static_cast<size_t>(events_->attr_of(rings.role))], record);
    if (id.has_time) clock_.saw(id.time);
  }
  // The kernel turns a trace off that has lost something (LiveEvent::restart()).
  if (rings.role == RingRole::trace && says_trace_was_cut(record)) resume_.push_back(ring);
  if (rings.role == RingRole::target) follow(record);
  if (rings.role != RingRole::kernel) return log_->append({EntryKind::record, static_cast<uint16_t>(ring), after, record});
  const EventAttr& attr = events_->attrs()[static_cast<size_t>(events_->attr_of(RingRole::kernel))];
  record = without_excess(record, attr, scratch_);
  log_->append({EntryKind::record, static_cast<uint16_t>(ring), after, record});
  capture_->on_record(record, attr);
}

/// A LOST record without the losses already reported to a snapshot (tell_losses()); empty if nothing is left.
Bytes SessionKeeper::news_of_lost(EventRings& rings, Bytes record) {
  constexpr size_t kCountAt = kRecordHeaderBytes + 8;  // after the event's id
  Cursor body(record.subspan(kRecordHeaderBytes));
  body.skip(8);
  const uint64_t count = body.u64();
  if (!body.ok()) return record;
  const uint64_t news = rings.losses.on_record(count);
  if (news == count) return record;
  if (news == 0) return {};
  lost_.assign(record.begin(), record.end());
  std::memcpy(lost_.data() + kCountAt, &news, sizeof(news));
  return lost_;
}

/// What the rings have lost after their last record, which the kernel has had no opportunity to write.
void SessionKeeper::tell_losses() {
  Progress now = counters_->read();
  clock_.update(*events_->rings().front().ring);
  for (size_t i = 0; i < events_->rings().size(); ++i) {
    EventRings& rings = events_->rings()[i];
    const std::optional<uint64_t> total = rings.lost_total();
    const uint64_t lost = total ? rings.losses.on_total(*total) : 0;
    if (lost == 0) continue;
    EncodeContext context;
    context.sample_id.pid = context.sample_id.tid = rings.tid;
    context.sample_id.cpu = rings.cpu;
    context.sample_id.id = rings.events.front().id();
    context.sample_id.time = clock_.now_ns();
    std::vector<std::byte> bytes;
    const EventAttr& attr = events_->attrs()[static_cast<size_t>(events_->attr_of(rings.role))];
    if (encode_record(LostRecord{rings.events.front().id(), lost}, context, attr, bytes))
      log_->append({EntryKind::record, static_cast<uint16_t>(i), rings.ring->position(), bytes});
    now.positions[kLost] += lost;
    now.positions[kCounters + 2 * i] = rings.losses.by_kernel;
    now.positions[kCounters + 2 * i + 1] = rings.losses.told;
  }
  counters_->publish(now);
}

void SessionKeeper::drain() {
  capture_->look();
  clock_.update(*events_->rings().front().ring);
  Progress now = counters_->read();
  for (size_t i = 0; i < events_->rings().size(); ++i) {
    EventRings& rings = events_->rings()[i];
    const uint64_t told = rings.losses.told;
    now.positions[kRecords] += rings.ring->read([&](Bytes record) { on_record(i, record); });
    now.positions[kLost] += rings.losses.told - told;
    now.positions[kCounters + 2 * i] = rings.losses.by_kernel;
    now.positions[kCounters + 2 * i + 1] = rings.losses.told;
    rings.ring->release();  // it is in the log
  }
  if (tap_ != nullptr) {
    now.positions[kRecords] += tap_->drain();
    tap_->release();
  }
  for (const size_t ring : resume_) events_->restart_ring(ring);
  resume_.clear();
  (void)capture_->end_round();
  counters_->publish(now);
}

bool SessionKeeper::file_is_gone() {
  alignas(inotify_event) char events[4096];
  while (folder_fd_ >= 0 && read(folder_fd_, events, sizeof(events)) > 0) {
  }
  return dir_.inode(choice_.name) != inode_;
}

void SessionKeeper::serve() {
  constexpr int kLookMs = 1000;
  std::vector<bool> ready;
  enum Place : size_t { kListen, kFolder, kSignal, kHolder, kClients };
  while (!stop_) {
    std::vector<int> more = {listen_fd_, folder_fd_, signal_fd_, backup_ ? backup_->fd() : -1};
    for (const Client& client : clients_) more.push_back(client.fd);
    for (const int fd : capture_->wake_fds()) more.push_back(fd);
    if (offers_ != nullptr) more.push_back(offers_->fd());
    for (const int fd : trigger_ == nullptr ? std::vector<int>() : trigger_->fds()) more.push_back(fd);
    int pause_ms = folder_fd_ >= 0 ? -1 : kLookMs;
    if (tap_ != nullptr) {
      const int look_ms = tap_->pause_ms(tap_->look_ms());
      pause_ms = pause_ms < 0 || look_ms < 0 ? std::max(pause_ms, look_ms) : std::min(pause_ms, look_ms);
    }
    const bool woken = events_->wait(more, ready, pause_ms);
    const bool capture_woke =
        std::find(ready.begin() + static_cast<std::ptrdiff_t>(kClients + clients_.size()), ready.end(), true) != ready.end();
    if (woken || capture_woke || tap_ != nullptr) drain();
    if (trigger_ != nullptr) look_at_trigger();
    if ((ready[kFolder] || folder_fd_ < 0) && file_is_gone()) break;
    if (ready[kSignal]) break;
    if (ready[kHolder]) {
      backup_.reset();  // it was killed: another one
      if (!start_backup().ok()) backup_.reset();
    }
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (ready[kClients + i]) answer(clients_[i]);
    }
    std::erase_if(clients_, [](const Client& client) { return client.fd < 0; });
    if (ready[kListen]) accept_clients();
  }
  if (tap_ != nullptr) tap_->stop();
  offers_.reset();
  dir_.remove(choice_.name, inode_);
  backup_.reset();
}

}  // namespace ptd::live
