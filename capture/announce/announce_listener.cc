// AnnounceListener: see announce_listener.h.
#include "capture/announce/announce_listener.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "perfio/announce/announcement.h"

namespace ptd::announce {
namespace {

constexpr uint64_t kMostRecords = 1U << 16;  // of a ring in one round
constexpr int kPauseUs = 2000;
constexpr int kLooksUntilGone = 3;  // a busy system may hide a mapping from a look
constexpr size_t kMostRings = 4096, kMostTroubles = 16;

Error too_many(int32_t pid) {
  return Error{ErrorCode::too_large,
               "the announcements of process " + std::to_string(pid) + " are not read: too many processes announce at once", 0};
}

}  // namespace

Moment moment_now() {
  Moment moment;
#if defined(__x86_64__)
  moment.ticks = __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  asm volatile("isb; mrs %0, cntvct_el0" : "=r"(moment.ticks));
#endif
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  moment.mono_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
  return moment;
}

void AnnounceListener::hear(int32_t pid, Bytes record) {
  const Moment now = moment_now();
  Heard heard{pid, pid, now, record};
  if (const auto parsed = parse_announce_record(record); parsed.ok()) {
    // A reader's own records are not for a process to write.
    if (parsed->kind == AnnounceKind::attach || parsed->kind == AnnounceKind::detach) return;
    heard.tid = static_cast<int32_t>(parsed->tid);
    heard.when = {std::min(parsed->ticks, now.ticks), std::min(parsed->mono_ns, now.mono_ns)};
  }
  ++records_;
  sink_(heard);
}

void AnnounceListener::tell(const Source& source, bool attached, uint64_t seq, const Moment& when) {
  const AnnounceKind kind = attached ? AnnounceKind::attach : AnnounceKind::detach;
  const std::vector<std::byte> record = encode_reader_record(kind, source.ring->instance(), seq);
  sink_({source.pid, source.pid, when, record});
}

void AnnounceListener::open(int32_t pid, const RingPlace& place) {
  if (sources_.size() >= kMostRings) return refuse(pid, place.inode, too_many(pid));
  if (const auto known = refused_.find({pid, place.inode}); known != refused_.end() && known->second.tries_left == 0) return;
  auto ring = AnnounceRing::open(pid, place);
  // The reader that was killed may keep the file open for a moment after its end was noticed.
  while (continues_ && !ring.ok() && ring.error().code == ErrorCode::busy && tries_left_ > 0) {
    --tries_left_;
    (void)usleep(kPauseUs);
    ring = AnnounceRing::open(pid, place);
  }
  if (!ring) return refuse(pid, place.inode, ring.error());
  const bool own = (*ring)->is_of(pid);
  add({pid, own, std::move(*ring)});
}

void AnnounceListener::note_trouble(const std::string& why) {
  if (troubles_.size() < kMostTroubles) troubles_.push_back(why);
}

// Whoever has it may let go of it: another reader, or a process that is starting or ending.
void AnnounceListener::refuse(int32_t pid, uint64_t inode, const Error& error) {
  const auto [place, is_new] = refused_.try_emplace({pid, inode});
  Refused& refused = place->second;
  if (is_new) refused.since = moment_now();
  refused.why = error.message;
  const bool may_pass = error.code == ErrorCode::busy || error.code == ErrorCode::permission_denied || error.code == ErrorCode::too_large;
  refused.tries_left = may_pass ? std::max(refused.tries_left - 1, 0) : 0;
}

void AnnounceListener::tell_refused() {
  for (const auto& [ring, refused] : refused_) {
    const auto& [pid, inode] = ring;
    if (read_.contains(inode)) continue;
    note_trouble(refused.why);
    const std::vector<std::byte> record = encode_reader_record(AnnounceKind::detach, inode, 0);
    sink_({pid, pid, refused.since, record});
  }
  refused_.clear();
}

void AnnounceListener::add(Source source) {
  read_.insert(source.ring->place().inode);
  if (source.own) {
    ++rings_found_;
    const uint64_t first = source.ring->enable(continues_);
    tell(source, true, first, moment_now());
  } else {
    source.ring->ask_forked();
  }
  sources_.push_back(std::move(source));
}

void AnnounceListener::take(AnnounceSocket::Offer offer) {
  struct stat info {};
  (void)fstat(offer.file.get(), &info);
  if (read_.contains(info.st_ino)) return;  // it was found in /proc before
  if (sources_.size() >= kMostRings) return refuse(offer.pid, info.st_ino, too_many(offer.pid));
  auto ring = AnnounceRing::adopt(offer.pid, offer.uid, std::move(offer.file));
  if (!ring) return refuse(offer.pid, info.st_ino, ring.error());
  add({offer.pid, true, std::move(*ring)});
}

bool AnnounceListener::is_gone(Source& source, Seen& seen) const {
  const auto same = [&](const RingPlace& place) {
    return place.inode == source.ring->place().inode && place.device == source.ring->place().device;
  };
  if (std::any_of(seen.places.begin(), seen.places.end(), same)) {
    source.missed = 0;
    return false;
  }
  if (!seen.ended) seen.ended = has_ended(source.pid);
  return *seen.ended || (is_readable(source.pid) && ++source.missed >= kLooksUntilGone);
}

void AnnounceListener::look(const std::vector<int32_t>& pids) {
  std::map<int32_t, Seen> processes;  // a process may have many rings, and each look at it takes long then
  const auto seen = [&](int32_t pid) -> Seen& {
    const auto [at, is_new] = processes.try_emplace(pid);
    if (is_new) at->second.places = find_rings(pid);
    return at->second;
  };
  left_bytes_ = search_bytes_;
  for (Source& source : sources_) {
    if (!is_gone(source, seen(source.pid))) continue;
    source.late = source.own && source.ring->size_bytes() > left_bytes_;
    if (!source.late) close(source, true);
  }
  std::erase_if(sources_, [](const Source& source) { return source.ring == nullptr; });
  for (const int32_t pid : pids) {
    for (const RingPlace& place : seen(pid).places) {
      const auto same = [&](const Source& source) {
        return source.ring->place().inode == place.inode && source.ring->place().device == place.device;
      };
      if (std::none_of(sources_.begin(), sources_.end(), same)) open(pid, place);
    }
  }
}

uint64_t AnnounceListener::drain() {
  uint64_t count = 0;
  for (Source& source : sources_) {
    if (source.own) count += source.ring->read([&](Bytes record) { hear(source.pid, record); }, kMostRecords);
  }
  return count;
}

void AnnounceListener::release() {
  for (const Source& source : sources_) {
    if (source.own) source.ring->release();
  }
}

void AnnounceListener::close(Source& source, bool gone) {
  const Moment end = moment_now();    // from here on, a change may be unheard
  if (!gone) source.ring->disable();  // what a process that is gone shares with a child stays on: the child's ring starts so
  if (source.own) {
    const auto on_record = [&](Bytes record) { hear(source.pid, record); };
    if (gone) {
      left_bytes_ -= std::min(left_bytes_, source.ring->read_rest(on_record));
    } else {
      (void)source.ring->read(on_record, kMostRecords);
      if (source.late)
        note_trouble("the announcements of process " + std::to_string(source.pid) +
                     " are not read to their end: too many processes ended at once in the middle of one");
    }
    tell(source, false, source.ring->given_out(), end);
    source.ring->release();
  }
  source.ring.reset();
}

void AnnounceListener::stop() {
  for (Source& source : sources_) close(source, false);
  sources_.clear();
  tell_refused();
}

}  // namespace ptd::announce
