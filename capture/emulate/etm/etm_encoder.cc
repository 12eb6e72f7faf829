// EtmEncoder: packets of ETMv4 and ETE.
#include "capture/emulate/etm/etm_encoder.h"

#include <algorithm>
#include <utility>

namespace ptd::emulate {
namespace {

constexpr unsigned kCall = 2;  // exception type of SVC
constexpr unsigned kTraceInfo = 0x01, kTimestamp = 0x02, kTraceOn = 0x04, kException = 0x06, kContext = 0x81;
constexpr unsigned kMostRun = 23;  // E atoms that format 6 counts
constexpr size_t kMostWaiting = 256;
constexpr size_t kSourceRun = 12;  // N atoms: they take as many bytes as a short source address

}  // namespace

struct EtmEncoder::AddressHeaders {
  unsigned match, short_form, long_32, long_64;
};

void EtmEncoder::put_little(uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) put(static_cast<unsigned>(value >> (8 * i) & 0xff));
}

void EtmEncoder::atom(bool executed) {
  atoms_.push_back(executed);
  if (atoms_.size() >= kMostWaiting) flush_atoms();
}

void EtmEncoder::flush_atoms() {
  while (!atoms_.empty()) atoms_.erase(atoms_.begin(), atoms_.begin() + put_atoms());
}

// One packet for the oldest atoms; how many it took.
unsigned EtmEncoder::put_atoms() {
  const auto run = static_cast<unsigned>(std::find(atoms_.begin(), atoms_.end(), false) - atoms_.begin());
  const auto count = static_cast<unsigned>(atoms_.size());
  unsigned run_before_last = std::min(run, kMostRun);
  if (run_before_last == count) --run_before_last;
  if (run_before_last >= 3) {  // format 6: so many E, then one of either kind
    put(0xc0 | (run_before_last - 3) | (atoms_[run_before_last] ? 0U : 0x20U));
    return run_before_last + 1;
  }
  unsigned bits = 0;  // the oldest lowest
  for (unsigned i = 0; i < std::min(count, 5U); ++i) bits |= atoms_[i] ? 1U << i : 0U;
  constexpr std::array<unsigned, 4> kFives{0x1e, 0x00, 0x0a, 0x15}, kFours{0x0e, 0x00, 0x0a, 0x05};
  constexpr std::array<unsigned, 4> kFiveHeaders{0xf5, 0xd5, 0xd6, 0xd7};
  for (unsigned i = 0; i < 4 && count >= 5; ++i) {
    if (bits != kFives[i]) continue;
    put(kFiveHeaders[i]);
    return 5;
  }
  for (unsigned i = 0; i < 4 && count >= 4; ++i) {
    if ((bits & 0xf) != kFours[i]) continue;
    put(0xdc | i);
    return 4;
  }
  const unsigned taken = std::min(count, 3U);
  put(taken == 3 ? 0xf8 | (bits & 7) : taken == 2 ? 0xd8 | (bits & 3) : 0xf6 | (bits & 1));
  return taken;
}

void EtmEncoder::address(uint64_t ip) {
  flush_atoms();
  put_address(ip, {0x90, 0x95, 0x9a, 0x9d});
}

// [ETE] "Source Address element": the branch at `ip` was taken, all P0 instructions since the last element were not. Writes it if it
// replaces enough atoms, but not directly after a return whose address was left out: OpenCSD 1.3.3 takes the address of such a return from
// its stack only before an atom.
bool EtmEncoder::put_source(uint64_t ip) {
  if (!unit_.ete || std::exchange(returned_, false)) return false;
  const auto skipped = static_cast<size_t>(std::find(atoms_.rbegin(), atoms_.rend(), true) - atoms_.rbegin());
  if (skipped < kSourceRun) return false;
  atoms_.resize(atoms_.size() - skipped);
  flush_atoms();
  put_address(ip, {0xb0, 0xb4, 0xb6, 0xb8});
  return true;
}

void EtmEncoder::put_address(uint64_t ip, const AddressHeaders& headers) {
  const auto same = std::find(last_.begin(), last_.end(), ip);
  const uint64_t changed = ip ^ last_[0];
  if (same != last_.end()) {
    put(headers.match | static_cast<unsigned>(same - last_.begin()));
  } else if (changed < (1U << 17)) {
    const bool two = changed >= (1U << 9);
    put(headers.short_form);
    put(static_cast<unsigned>(ip >> 2 & 0x7f) | (two ? 0x80U : 0U));
    if (two) put(static_cast<unsigned>(ip >> 9 & 0xff));
  } else {
    const bool wide = changed >> 32 != 0;
    put(wide ? headers.long_64 : headers.long_32);
    put(static_cast<unsigned>(ip >> 2 & 0x7f));
    put(static_cast<unsigned>(ip >> 9 & 0x7f));
    put_little(ip >> 16, wide ? 6 : 2);
  }
  last_ = {ip, last_[0], last_[1]};
}

void EtmEncoder::context(uint8_t level, uint32_t id) {
  context_due_ = context_due_ || level != level_ || id != context_id_;
  level_ = level;
  context_id_ = id;
}

void EtmEncoder::put_context() {
  context_due_ = false;
  put(kContext);
  put(0xb0U | level_);  // AArch64, non-secure, a context id
  put_little(context_id_, 4);
}

void EtmEncoder::put_due_context() {
  if (!context_due_) return;
  flush_atoms();
  put_context();
}

// Bytes above the highest bit that changed since the last timestamp are left out.
void EtmEncoder::timestamp(uint64_t time) {
  uint64_t changed = (time ^ told_time_) >> 7;
  told_time_ = time;
  put(kTimestamp);
  for (unsigned i = 0; i < 8; ++i, time >>= 7, changed >>= 7) {
    put(static_cast<unsigned>(time & 0x7f) | (changed != 0 ? 0x80U : 0U));
    if (changed == 0) return;
  }
  put(static_cast<unsigned>(time & 0xff));
}

void EtmEncoder::put_stamp() {
  if (!stamp_due_) return;
  stamp_due_ = false;
  if (stamp_ <= told_time_) return;
  flush_atoms();
  timestamp(stamp_);
}

void EtmEncoder::stamp(uint64_t time) {
  if (losing_) return;
  stamp_ = time;
  stamp_due_ = true;
  if (!off_ || pause_stamped_) return;
  pause_stamped_ = true;
  put_stamp();
}

void EtmEncoder::put_sync(uint64_t ip, uint64_t time, bool trace_on) {
  put_little(0, 8);
  put_little(uint64_t{0x80} << 24, 4);
  put(kTraceInfo);
  put(1);  // INFO follows
  put(0);
  told_time_ = ~time;  // in full: a reader may start here
  timestamp(time);
  if (trace_on) put(kTraceOn);
  last_ = {};
  stack_.clear();
  put_context();
  address(ip);
}

EtmEncoder::Synced EtmEncoder::sync(uint64_t ip, bool trace_on) {
  flush_atoms();
  time_ = std::max(time_, told_time_);
  Synced synced;
  synced.here = true;
  synced.first_time = std::max(asked_, told_time_);
  synced.twice = asked_ != 0 && synced.first_time != time_;
  if (synced.twice) {
    synced.first_offset_bytes = written_bytes();
    put_sync(ip, synced.first_time, trace_on);
  }
  synced.offset_bytes = written_bytes();
  synced.time = time_;
  put_sync(ip, time_, trace_on && !synced.twice);
  sync_due_ = false;
  return synced;
}

// What was not traced is over.
EtmEncoder::Synced EtmEncoder::begin(uint64_t ip) {
  off_ = false;
  stack_.clear();
  Synced synced;
  if (sync_due_) {
    synced = sync(ip, true);
  } else {
    put(kTraceOn);
    put_due_context();
    address(ip);
  }
  put_stamp();
  return synced;
}

// The waiting P0 instruction led to `next`.
void EtmEncoder::settle(uint64_t next) {
  if (!has_waiting_) return;
  has_waiting_ = false;
  at_target_ = true;
  const uint64_t after = waiting_ip_ + waiting_.length_bytes;
  const bool branch = waiting_.cls != ArmClass::isb;
  const bool taken = !waiting_.conditional || next != after;
  if (!branch || !taken || !put_source(waiting_ip_)) atom(taken);
  put_due_context();
  if (!branch || !taken) return;
  if (waiting_.link) {
    if (stack_.size() == kStackDepth) stack_.erase(stack_.begin());
    stack_.push_back(after);
  }
  if (waiting_.cls != ArmClass::indirect) return;
  if (waiting_.detail == ArmDetail::ret && !waiting_.link && !stack_.empty() && stack_.back() == next) {
    stack_.pop_back();
    returned_ = true;
    return;
  }
  address(next);
}

EtmEncoder::Synced EtmEncoder::insn(uint64_t ip, const ArmInsn& insn, bool may_sync) {
  if (losing_) return {};
  settle(ip);
  Synced synced;
  if (off_) {
    synced = begin(ip);
  } else if (after_exception_) {
    put_due_context();
    address(ip);
    put_stamp();
  } else if (may_sync) {
    if (sync_due_ && at_target_) synced = sync(ip, false);
    if (at_target_) put_stamp();
    stamp_due_ = false;  // a timestamp dates the end of the last P0 instruction: later, this one would be too early
  }
  at_target_ = after_exception_ = false;
  if (insn.cls == ArmClass::direct || insn.cls == ArmClass::indirect || insn.cls == ArmClass::isb) {
    waiting_ = insn;
    waiting_ip_ = ip;
    has_waiting_ = true;
  } else if (insn.detail == ArmDetail::svc && !unit_.traces_kernel) {
    exception(ip + insn.length_bytes, kCall);
  }
  return synced;
}

void EtmEncoder::ask_sync(uint64_t time) {
  time_ = std::max(time, time_);
  if (!sync_due_) asked_ = time_;
  sync_due_ = true;
}

void EtmEncoder::put_exception(uint64_t ip, uint32_t type) {
  settle(ip);
  flush_atoms();
  put(kException);
  put(type << 1 | 1);  // what follows is the preferred return address
  address(ip);
}

void EtmEncoder::traced_exception(uint64_t ip, uint32_t type) {
  if (losing_ || off_) return;
  put_exception(ip, type);
  after_exception_ = true;
}

void EtmEncoder::exception(uint64_t ip, uint32_t type) {
  if (losing_ || off_) return;
  put_exception(ip, type);
  off_ = true;
  pause_stamped_ = false;
}

void EtmEncoder::lose() {
  if (losing_) return;
  flush_atoms();
  has_waiting_ = false;
  losing_ = true;
}

void EtmEncoder::recover() {
  losing_ = false;
  put_little(0x0500, 2);  // Overflow
  off_ = sync_due_ = pause_stamped_ = true;
  asked_ = 0;
  after_exception_ = false;
}

}  // namespace ptd::emulate
