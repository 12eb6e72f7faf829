// AnnounceListener: finds, enables and drains the rings of announcements of a set of processes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "capture/announce/announce_ring.h"
#include "capture/announce/announce_socket.h"

namespace ptd::announce {

/// The processor's counter and CLOCK_MONOTONIC, read together.
struct Moment {
  uint64_t ticks = 0;  ///< 0 where libptd-announce has no counter
  uint64_t mono_ns = 0;
};
[[nodiscard]] Moment moment_now();

/// A record and who announced it. `when` is the process's claim, but never later than it was read.
struct Heard {
  int32_t pid = -1, tid = -1;
  Moment when;
  Bytes record;
};

/// A ring is kept until its process ends, so nothing in it is lost then. Not thread-safe.
class AnnounceListener {
 public:
  using Sink = std::function<void(const Heard& heard)>;
  /// Two of the largest rings, so that each fits after another one.
  static constexpr uint64_t kSearchBytes = 512U << 20;
  /// `continues`: reads on where a reader of the same recording was killed. `search_bytes`: how many bytes of the rings of ended processes
  /// a look searches for records past unfinished ones, at most.
  explicit AnnounceListener(Sink sink, bool continues = false, uint64_t search_bytes = kSearchBytes)
      : sink_(std::move(sink)), continues_(continues), search_bytes_(search_bytes) {}
  ~AnnounceListener() { stop(); }
  AnnounceListener(const AnnounceListener&) = delete;
  AnnounceListener& operator=(const AnnounceListener&) = delete;

  /// Finds new rings of these processes, and closes those of processes that have ended or run another program since. Rings that are too
  /// many to be searched now wait for the next call; stop() reads them up to the first unfinished record.
  void look(const std::vector<int32_t>& pids);
  /// Takes a ring that a process offered.
  void take(AnnounceSocket::Offer offer);
  /// Passes on what is in the rings, at most a bounded number of records of each, and returns how many.
  uint64_t drain();
  /// Gives back the space of what was drained; call it when the records are safe.
  void release();
  /// Turns announcements off and passes on the rest. Of each process with a ring that could not be read, tells that nobody listened: a
  /// detach of 0 numbers without an attach.
  void stop();
  /// In a child of fork(): lets go of the rings without a trace.
  void abandon() { sources_.clear(); }
  [[nodiscard]] size_t listening() const { return sources_.size(); }
  [[nodiscard]] uint64_t rings() const { return rings_found_; }
  [[nodiscard]] uint64_t records() const { return records_; }
  /// Sentences on rings that cannot be read, one each; after stop().
  [[nodiscard]] const std::vector<std::string>& troubles() const { return troubles_; }

 private:
  struct Source {
    int32_t pid = -1;
    bool own = false;  ///< of this process; else of one that it was forked from
    std::unique_ptr<AnnounceRing> ring;
    int missed = 0;     ///< looks, the last ones, that did not find it in the process's memory
    bool late = false;  ///< its process is gone, and it was not read to its end yet
  };
  void hear(int32_t pid, Bytes record);
  void tell(const Source& source, bool attached, uint64_t seq, const Moment& when);
  void open(int32_t pid, const RingPlace& place);
  void add(Source source);
  void note_trouble(const std::string& why);
  /// A ring that cannot be read, and since when. That of a process that is ending may have been offered.
  struct Refused {
    Moment since;
    std::string why;
    int tries_left = 100;
  };
  void refuse(int32_t pid, uint64_t inode, const Error& error);
  void tell_refused();
  /// What a look has seen of a process.
  struct Seen {
    std::vector<RingPlace> places;
    std::optional<bool> ended;
  };
  [[nodiscard]] bool is_gone(Source& source, Seen& seen) const;
  void close(Source& source, bool gone);

  Sink sink_;
  bool continues_;
  uint64_t search_bytes_;
  int tries_left_ = 200;  // to open rings that are busy, together
  std::vector<Source> sources_;
  std::map<std::pair<int32_t, uint64_t>, Refused> refused_;  ///< by process and inode
  std::set<uint64_t> read_;                                  ///< inodes of rings
  std::vector<std::string> troubles_;
  uint64_t rings_found_ = 0, records_ = 0;
  uint64_t left_bytes_ = 0;  ///< that may still be searched in this look
};

}  // namespace ptd::announce
