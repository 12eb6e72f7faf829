// Resolver: speculation depth, commits and cancels ([ETMv4] "Speculation resolution").
#include "decoder/arm/resolver.h"

#include <algorithm>
#include <utility>

namespace ptd::arm {
namespace {

constexpr uint64_t kCommitAtOnce = 128;     // P0 elements, approximately
constexpr uint64_t kMostAtOnce = 1U << 12;  // bytes of trace

bool is_conditional(PacketKind kind) { return kind >= PacketKind::cond_i_f1 && kind <= PacketKind::cond_res_f4; }

EventKind event_of(ElementKind kind) {
  switch (kind) {
    case ElementKind::transaction_start:
    case ElementKind::transaction_state:
      return EventKind::tsx_begin;
    case ElementKind::transaction_commit:
      return EventKind::tsx_commit;
    case ElementKind::transaction_fail:
      return EventKind::tsx_abort;
    case ElementKind::instrumentation:
      return EventKind::instrumentation;
    case ElementKind::marker:
      return EventKind::sync_marker;
    case ElementKind::exception_return:
      return EventKind::exception_return;
    default:
      return EventKind::trace_event;
  }
}

/// Returns whether a packet says nothing of the flow, or begins it.
bool comes_before_info(PacketKind kind) {
  using enum PacketKind;
  return kind == async || kind == trace_info || kind == discard || kind == timestamp || kind == ts_marker || kind == ignore ||
         kind == ccnt_f1 || kind == ccnt_f2 || kind == ccnt_f3;
}

}  // namespace

void Resolver::begin(Bytes bytes, std::span<const TimestampRepair> repairs) {
  bytes_ = bytes;
  reader_.restart(bytes);
  reader_.set_repairs(repairs);
  queue_.restart();
  end_ahead();
  depth_ = 0;
  ignored_ = 0;
  awaits_address_ = overflowed_ = false;
  unread_from_ = kNone;
  unread_ = 0;
  state_ = State::no_sync;
  sync_from_ = 0;
}

bool Resolver::resync(uint64_t from) {
  const uint64_t at = find_async(bytes_, from);
  if (at >= bytes_.size()) {
    state_ = State::done;
    return false;
  }
  reader_.seek(at);
  unread_from_ = kNone;
  unread_ = 0;
  info_is_lost_ = false;
  state_ = State::wait_info;
  return true;
}

/// The trace info after an A-Sync is damaged or lost: nothing up to `end` was decoded ([ETMv4] "Trace Info instruction trace packet").
void Resolver::lose_unread(uint64_t end) {
  const uint64_t from = std::exchange(unread_from_, kNone);
  if (from != kNone) flows_->each([&](Follower& f) { f.lose(GapReason::bad_packet, from, end - from); });
}

/// Handles packets that cannot be split or that contradict each other: skips to the next A-Sync at or after `from`.
void Resolver::lose_sync(GapReason reason, uint64_t offset, uint64_t from) {
  lose_unread(offset);
  const uint64_t next = std::min<uint64_t>(find_async(bytes_, from), bytes_.size());
  flows_->each([&](Follower& f) { f.lose(reason, offset, next - std::min(next, offset)); });
  queue_.clear();
  end_ahead();
  depth_ = 0;
  awaits_address_ = false;
  state_ = State::no_sync;
  sync_from_ = from;
}

TraceStop Resolver::run(BatchTarget target, uint64_t end_offset) {
  flows_->into(target);
  Packet packet;
  while (!target.is_full()) {
    if (state_ == State::no_sync && !resync(sync_from_)) break;
    if (state_ == State::done) break;
    if (reader_.offset() >= end_offset || flows_->met_fork()) return TraceStop::bound;
    if (!exact_only_ && !flows_->takes_forks() && run_plain(end_offset)) continue;
    const uint64_t offset = packet_offset_ = reader_.offset();
    switch (reader_.next(packet)) {
      case PacketReader::Status::ok:
        on_packet(packet, offset);
        break;
      case PacketReader::Status::bad_packet:
        lose_sync(GapReason::bad_packet, offset, offset + 1);
        break;
      case PacketReader::Status::cut:
      case PacketReader::Status::end:
        state_ = State::done;
    }
  }
  if (state_ != State::done) return TraceStop::full;
  lose_unread(bytes_.size());
  if (ignored_ != 0) {
    Element element;
    element.value = ignored_;
    element.offset_bytes = reader_.offset();
    flows_->each([&](Follower& f) { f.simple_event(EventKind::ignored_packets, element); });
    ignored_ = 0;
  }
  const bool has_unseen = !queue_.empty() && queue_.front().kind == ElementKind::unseen;
  flows_->end(depth_ - std::min<uint64_t>(depth_, has_unseen ? queue_.front().count : 0));
  return TraceStop::end;
}

/// Processes atoms and addresses that no speculative element precedes, which are most of a trace. Returns false if another packet is next.
bool Resolver::run_plain(uint64_t end_offset) {
  if (state_ != State::decoding || awaits_address_) return false;
  if (config_.max_speculation() != 0) return !flows_->only().code_changes() && run_ahead();
  if (!queue_.empty()) return false;
  return flows_->only().plain_packets(reader_, end_offset);
}

/// Same with speculation: examines packets only for what they commit, and leaves them in the trace until they are committed.
bool Resolver::run_ahead() {
  if (ahead_ != reader_.offset()) end_ahead();
  // Packets cannot stay in the trace if an exception has no address yet or the queue is filling up: those errors are reported at the packet
  // that commits.
  const bool at_once = queue_.holds_unbound() || queue_.size() > ElementQueue::kMost / 2 ||
                       config_.max_speculation() > ElementQueue::kMost / 4 || ahead_ - behind_ > ElementQueue::kMost / 2;
  uint64_t due = 0;
  const bool more = !at_once && look_ahead(due);
  depth_ += due;
  commit(due);
  if (more || state_ != State::decoding) return true;
  queue_ahead();
  return state_ != State::decoding;
}

/// Examines packets until enough of them are committed. Returns false if another packet is next.
bool Resolver::look_ahead(uint64_t& due) {
  const auto& forms = plain_forms();
  const Bytes bytes = bytes_;
  const uint64_t most = config_.max_speculation();
  const uint64_t end = std::min<uint64_t>(bytes.size(), ahead_ + kMostAtOnce);
  const uint64_t addresses_end = bytes.size() - std::min<uint64_t>(bytes.size(), PacketReader::kLongestAddress - 1);
  uint64_t at = ahead_, depth = depth_;
  bool plain = true;
  while (at < end && due < kCommitAtOnce) {
    const PlainForm& form = forms[static_cast<uint8_t>(bytes[at])];
    if (form.count != 0) {
      packet_offset_ = at++;
      depth += form.count;
      if (depth <= most) continue;
      due += depth - most;
      depth = most;
    } else if (form.address != AddressForm::none && at < addresses_end) {
      PacketReader::Address address;
      packet_offset_ = at;
      at = static_cast<uint64_t>(reader_.plain_address(bytes.data() + at, form.address, address) - bytes.data());
      push(noted_, {address.value, 0, PacketKind::addr_match, address.isa, 0, static_cast<uint8_t>(at - packet_offset_)});
    } else {
      plain = form.aside && pass_aside(at, depth, due);
      if (!plain) break;
    }
  }
  reader_.seek(at);
  ahead_ = at;
  depth_ = depth;
  return plain && at < bytes.size();
}

/// Moves past the packet at `at` if it does not affect the path of the flow. Returns false for other packets and for commits of more
/// elements than exist.
bool Resolver::pass_aside(uint64_t& at, uint64_t& depth, uint64_t& due) {
  Packet packet;
  reader_.seek(at);
  if (reader_.next_aside(packet) != PacketReader::Status::ok) return false;
  const bool commits = packet.kind == PacketKind::commit || (packet.flags & kFlagCommit) != 0;
  if (commits && packet.value > depth) return false;
  if (commits) due += packet.value;
  if (commits) depth -= packet.value;
  packet_offset_ = at;
  at = reader_.offset();
  push(noted_, {packet.value, packet.cycles, packet.kind, 0, packet.flags, static_cast<uint8_t>(at - packet_offset_)});
  return true;
}

/// Moves the examined packets to the queue.
void Resolver::queue_ahead() {
  for (uint64_t at = behind_; at < ahead_;) {
    const PlainForm& form = plain_forms()[static_cast<uint8_t>(bytes_[at])];
    const uint64_t offset = at;
    Element element;
    if (form.count != 0) {
      element.p0 = true;
      element.count = form.count - gone_;
      element.value = form.atoms >> gone_;
      element.offset_bytes = at++;
      gone_ = 0;
    } else {
      const Noted& noted = noted_[first_noted_++];
      at += noted.size_bytes;
      if (noted.kind == PacketKind::commit) continue;
      element = element_of(noted, offset);
    }
    if (!queue_.push(element)) return lose_sync(GapReason::limit, offset, ahead_);
  }
  end_ahead();
}

/// Discards the examined packets, which are done.
void Resolver::end_ahead() {
  behind_ = ahead_ = reader_.offset();
  gone_ = 0;
  noted_.clear();
  first_noted_ = 0;
}

/// Before the first trace info packet, only packets outside the flow are meaningful. Trace units write few others (seen: an atom).
void Resolver::on_start(const Packet& packet, uint64_t offset) {
  Element element;
  element.offset_bytes = offset;
  element.value = packet.value;
  if (packet.kind == PacketKind::event) return flows_->each([&](Follower& f) { f.simple_event(EventKind::trace_event, element); });
  if (packet.kind == PacketKind::overflow) return stop(packet, offset);
  if (packet.kind == PacketKind::async && unread_from_ != kNone) info_is_lost_ = true;
  if (!comes_before_info(packet.kind)) {
    unread_from_ = std::min(unread_from_, offset);
    ++unread_;
  }
  if (packet.kind != PacketKind::trace_info) return;
  if (info_is_lost_ || unread_ > kMostUnread) lose_unread(offset);
  unread_from_ = kNone;
  unread_ = 0;
  state_ = State::decoding;
  depth_ = packet.extra;
  if (depth_ != 0) {
    Element unseen = element;
    unseen.kind = ElementKind::unseen;
    unseen.p0 = true;
    unseen.count = packet.extra;
    (void)queue_.push(unseen);
  }
  add(element, ElementKind::trace_info, 0);
  if (config_.is_ete() && (packet.value & 0x40) != 0) add(element, ElementKind::transaction_state, 0);
  commit_excess();
}

void Resolver::on_packet(const Packet& packet, uint64_t offset) {
  if (state_ == State::wait_info) return on_start(packet, offset);
  Element element;
  element.offset_bytes = offset;
  element.flags = packet.flags;
  if (is_atom(packet.kind)) {
    if (config_.max_speculation() == 0 && queue_.empty()) return flows_->atoms(packet.value, packet.bits, offset);
    element.value = packet.value;
    add(element, ElementKind::atoms, packet.bits);
    return commit_excess();
  }
  if (is_address(packet.kind)) return on_address(packet, element);
  element.isa = packet.isa;
  element.value = packet.value;
  element.aux = packet.aux;
  element.cycles = packet.cycles;
  on_flow(packet, element);
}

void Resolver::on_address(const Packet& packet, Element element) {
  element.value = packet.value;
  element.isa = packet.isa;
  add(element, ElementKind::address, 0);
  if (packet.context.present) {
    element.context = packet.context;
    add(element, ElementKind::context, 0);
  }
  if (!awaits_address_) return;
  awaits_address_ = false;
  ++depth_;
  commit_excess();
}

void Resolver::on_q(const Packet& packet, Element element) {
  element.with_address = (packet.flags & kFlagAddress) != 0;
  add(element, ElementKind::q, element.with_address ? 1 : 0);
  awaits_address_ = !element.with_address;
}

/// Processes commits, cancels and mispredicts; the atoms in a cancel or mispredict packet precede it.
void Resolver::on_speculation(const Packet& packet, Element element) {
  if (packet.kind == PacketKind::commit) return commit(packet.value);
  if (packet.bits != 0) {
    element.value = packet.aux;
    add(element, ElementKind::atoms, packet.bits);
    commit_excess();
    if (state_ != State::decoding) return;
  }
  if (queue_.is_unwieldy(packet_offset_)) return lose_sync(GapReason::limit, packet_offset_, reader_.offset());
  const size_t bound = queue_.bound();
  uint64_t cancelled = queue_.cancel(packet.value);
  bool fits = cancelled == packet.value;
  if (awaits_address_ && queue_.bound() != bound) {  // the newest bound element, which is counted only when its address comes
    awaits_address_ = false;
    --cancelled;
  }
  depth_ -= std::min(depth_, cancelled);
  if (fits && packet.kind != PacketKind::cancel_f1) fits = queue_.mispredict();
  if (!fits) lose_sync(GapReason::bad_packet, packet_offset_, reader_.offset());
}

void Resolver::stop(const Packet& packet, uint64_t offset) {
  lose_unread(offset);
  // Elements that are not part of the flow are still output.
  for (size_t i = 0; i < queue_.size(); ++i) {
    const Element& element = *queue_.at(i);
    const bool aside = element.kind == ElementKind::event || element.kind == ElementKind::timestamp ||
                       element.kind == ElementKind::cycles || element.kind == ElementKind::marker ||
                       element.kind == ElementKind::instrumentation;
    if (aside) execute(element);
  }
  queue_.clear();
  end_ahead();
  depth_ = 0;
  awaits_address_ = false;
  const bool overflow = packet.kind == PacketKind::overflow;
  flows_->each([&](Follower& f) { overflow ? f.overflow(offset) : f.discard(offset); });
  state_ = State::no_sync;
  sync_from_ = reader_.offset();
}

void Resolver::on_flow(const Packet& packet, Element element) {
  using enum PacketKind;
  if (is_source_address(packet.kind)) {
    add(element, ElementKind::source_address, 1);
    return commit_excess();
  }
  if (is_conditional(packet.kind)) {
    ++ignored_;
    return;
  }
  switch (packet.kind) {
    case trace_info:
      return add(element, ElementKind::trace_info, 0);
    case trace_on:
      return add(element, ElementKind::trace_on, 0);
    case ctxt:
      element.context = packet.context;
      return add(element, ElementKind::context, 0);
    case except:
      element.value = packet.extra;
      add(element, ElementKind::exception, 0);
      awaits_address_ = true;
      return;
    case except_rtn:
      add(element, ElementKind::exception_return, config_.m_profile && config_.v7_core ? 1 : 0);
      return commit_excess();
    case func_ret:
      if (config_.m_profile && !config_.v7_core) add(element, ElementKind::function_return, 1);
      return commit_excess();
    case pe_reset:
      element.value = packet.extra;
      add(element, ElementKind::pe_reset, 1);
      return commit_excess();
    case PacketKind::q:
      on_q(packet, element);
      return commit_excess();
    case trans_st:
      add(element, ElementKind::transaction_start, config_.transaction_is_p0() ? 1 : 0);
      return commit_excess();
    case trans_commit:
      return add(element, ElementKind::transaction_commit, 0);
    case trans_fail:
      return add(element, ElementKind::transaction_fail, 0);
    case ite:
      element.aux = packet.bits;
      return add(element, ElementKind::instrumentation, 0);
    case event:
      return add(element, ElementKind::event, 0);
    case ts_marker:
      return add(element, ElementKind::marker, 0);
    case timestamp:
      return add(element, ElementKind::timestamp, 0);
    case ccnt_f1:
    case ccnt_f2:
    case ccnt_f3:
      add(element, ElementKind::cycles, 0);
      if ((packet.flags & kFlagCommit) != 0) this->commit(packet.value);
      return;
    case PacketKind::commit:
    case cancel_f1:
    case cancel_f1_mispred:
    case cancel_f2:
    case cancel_f3:
    case mispredict:
      return on_speculation(packet, element);
    case overflow:
    case discard:
      return stop(packet, element.offset_bytes);
    case num_ds_mkr:
    case unnum_ds_mkr:
      ++ignored_;
      return;
    default:
      return;  // A-Sync, ignore
  }
}

void Resolver::add(Element element, ElementKind kind, uint32_t p0) {
  element.kind = kind;
  element.p0 = p0 != 0 || kind == ElementKind::exception || kind == ElementKind::q;
  element.count = p0;
  depth_ += p0;
  // Without speculation only elements that need an address wait.
  const bool binds = kind == ElementKind::exception || kind == ElementKind::q;
  if (config_.max_speculation() == 0 && queue_.empty() && !binds) {
    execute(element);
    depth_ -= p0;
    return;
  }
  if (!queue_.push(element)) lose_sync(GapReason::limit, element.offset_bytes, reader_.offset());
}

void Resolver::commit_excess() {
  const uint64_t most = config_.max_speculation();
  if (state_ == State::decoding && depth_ > most) commit(depth_ - most);
}

void Resolver::commit(uint64_t count) {
  uint64_t left = count;
  while (left != 0) {
    if (queue_.empty() ? !commit_ahead(left) : !commit_one(left)) {
      lose_sync(GapReason::bad_packet, packet_offset_, reader_.offset());
      return;
    }
  }
  depth_ -= std::min(depth_, count);
  // Without speculation, the elements after the last P0 element are committed too.
  if (config_.max_speculation() != 0) return;
  while (!queue_.empty() && !queue_.front().p0) {
    execute(queue_.front());
    queue_.pop_front();
  }
}

/// Executes the oldest element, or some of its atoms.
bool Resolver::commit_one(uint64_t& left) {
  Element& oldest = queue_.front();
  if (!exact_only_ && !flows_->takes_forks() && is_plain(oldest.kind)) {
    flows_->only().queued(queue_, left);
    return true;
  }
  if (oldest.kind == ElementKind::atoms || oldest.kind == ElementKind::unseen) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(left, oldest.count));
    if (oldest.kind == ElementKind::atoms) flows_->atoms(oldest.value, count, oldest.offset_bytes);
    queue_.take(count);
    left -= count;
    return true;
  }
  const Element element = oldest;
  queue_.pop_front();
  if (element.p0) --left;
  if (element.kind == ElementKind::exception || element.kind == ElementKind::q) return commit_bound(element);
  execute(element);
  return true;
}

/// Executes examined packets up to the last committed atom, or some of them. Returns false if there are none.
bool Resolver::commit_ahead(uint64_t& left) {
  if (behind_ == ahead_) return false;
  PlaceAhead place = {behind_, ahead_, gone_, noted_.data() + first_noted_};
  flows_->only().packets_ahead(bytes_, place, left);
  behind_ = place.offset_bytes;
  gone_ = place.taken;
  first_noted_ = static_cast<size_t>(place.noted - noted_.data());
  if (first_noted_ < noted_.size() / 2) return true;
  noted_.erase(noted_.begin(), noted_.begin() + static_cast<std::ptrdiff_t>(first_noted_));
  first_noted_ = 0;
  return true;
}

/// Executes an exception or a Q element with its address, which a context may precede.
bool Resolver::commit_bound(Element element) {
  if (element.kind == ElementKind::q && element.with_address) {
    flows_->each([&](Follower& f) { f.q(element, Ip{element.value}, element.isa); });
    return true;
  }
  if (!queue_.empty() && queue_.front().kind == ElementKind::context) {
    execute(queue_.front());
    queue_.pop_front();
  }
  if (queue_.empty() || queue_.front().kind != ElementKind::address) return false;
  const Element address = queue_.front();
  queue_.pop_front();
  flows_->each([&](Follower& f) {
    if (element.kind == ElementKind::q) return f.q(element, Ip{address.value}, address.isa);
    f.exception(element, Ip{address.value}, address.isa, element.aux == 2);
  });
  return true;
}

void Resolver::execute(const Element& element) {
  if (element.kind == ElementKind::atoms) return flows_->atoms(element.value, element.count, element.offset_bytes);
  flows_->each([&](Follower& follower) { execute_on(follower, element); });
}

void Resolver::execute_on(Follower& follower, const Element& element) {
  switch (element.kind) {
    case ElementKind::address:
      return follower.address(Ip{element.value}, element.isa, element.offset_bytes);
    case ElementKind::context:
      return follower.context(element.context, element.offset_bytes);
    case ElementKind::source_address:
      return follower.source_address(element);
    case ElementKind::trace_on:
      return follower.trace_on(element.offset_bytes);
    case ElementKind::trace_info:
      return follower.trace_info();
    case ElementKind::timestamp:
      return follower.timestamp(element.value, element.flags, element.cycles, element.offset_bytes);
    case ElementKind::cycles:
      return follower.cycles(element.flags, element.cycles);
    case ElementKind::pe_reset:
      return follower.reset(element);
    case ElementKind::atoms:
    case ElementKind::unseen:
    case ElementKind::function_return:
    case ElementKind::data:
    case ElementKind::exception:
    case ElementKind::q:
      return;
    default:
      return follower.simple_event(event_of(element.kind), element);
  }
}

}  // namespace ptd::arm
