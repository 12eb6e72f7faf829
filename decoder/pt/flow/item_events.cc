// ItemReader: packets of events, and the position in the flow to which each is bound.
#include <algorithm>

#include "decoder/pt/flow/item.h"

namespace ptd::pt {
namespace {

constexpr size_t kMaxHeld = 64;  // events that wait for one packet

// [SDM] "CFE Packet": types of control-flow events, and what determines their ip.
enum class CfePlace : uint8_t {
  fup,     ///< the FUP of the asynchronous branch, INT or SYSCALL that the event describes
  branch,  ///< the returning or entering instruction: the branch of the TIP, even if an earlier FUP gave its ip
  none,    ///< the event comes while tracing is off
};

CfePlace place_of(uint8_t type) {
  switch (type) {
    case 0x01:  // INTR
    case 0x03:  // SMI
    case 0x06:  // INIT
    case 0x08:  // VMEXIT
    case 0x09:  // VMEXIT_INTR
    case 0x0a:  // SHUTDOWN
    case 0x0c:  // UINTR
    case 0x0e:  // SWINTR
    case 0x0f:  // SYSCALL
      return CfePlace::fup;
    case 0x02:  // IRET
    case 0x07:  // VMENTRY
    case 0x0d:  // UIRET
      return CfePlace::branch;
    default:  // RSM, SIPI, unknown
      return CfePlace::none;
  }
}

CfePlace place_of(const Item& event) {
  if (event.event == EventKind::evd) return CfePlace::fup;
  return event.event == EventKind::cfe ? place_of(static_cast<uint8_t>(event.value & 0xff)) : CfePlace::none;
}

// MWAIT and PWRE come before the EXSTOP that they belong to.
bool precedes_exstop(EventKind kind) { return kind == EventKind::mwait || kind == EventKind::pwre; }

}  // namespace

void ItemReader::push_held() {
  for (const Item& held : held_) {
    const Item event = held;
    Item& item = push(ItemKind::now, event.offset_bytes);
    item.event = event.event;
    item.value = event.value;
    item.aux = event.aux;
    item.flags = event.flags;
  }
  held_.clear();
}

// Creates the item of an event. Inside a compound the event is held back until the compound ends.
void ItemReader::push_event(ItemKind kind, const Item& event) {
  const bool in_compound = in_overflow_ || (has_fup_ && !fup_optional_);
  if (in_compound && held_.size() < kMaxHeld) {
    held_.push_back(event);
    return;
  }
  if (in_compound && !in_overflow_) return fail(event.offset_bytes);
  Item& item = push(kind, event.offset_bytes);
  item.event = event.event;
  item.ip = event.ip;
  item.value = event.value;
  item.aux = event.aux;
  item.flags = event.flags;
}

void ItemReader::bind_later(const Item& event) {
  if (binding_.size() >= kMaxHeld) return fail(event.offset_bytes);
  binding_.push_back(event);
}

void ItemReader::wait(const Item& event) {
  if (waiting_.size() >= kMaxHeld) give_waiting();
  waiting_.push_back(event);
}

// Binds events to a FUP at cursor_.last_ip. Sets `bound` if the FUP belongs to an event. Returns true if the FUP may nevertheless be that
// of an asynchronous branch.
bool ItemReader::bind_events(bool& bound) {
  bool asynchronous = false;
  const auto binds = [&](EventKind kind) {
    return std::any_of(binding_.begin(), binding_.end(), [&](const Item& event) { return event.event == kind; });
  };
  const bool at_exstop = binds(EventKind::exstop), at_cfe = binds(EventKind::cfe);
  std::vector<Item> after;
  for (const Item& event : waiting_) {
    const bool here = event.event == EventKind::mwait ? at_exstop
                      : event.event == EventKind::evd ? at_cfe || enabled_
                                                      : enabled_ && place_of(event) == CfePlace::fup;
    if (event.event == EventKind::pwre && at_exstop) {
      after.push_back(event);
      continue;
    }
    Item& item = push(here ? ItemKind::at_ip : ItemKind::now, event.offset_bytes);
    item.event = event.event;
    item.value = event.value;
    item.aux = event.aux;
    item.ip = here ? cursor_.last_ip : 0;
  }
  waiting_.clear();
  for (const Item& event : binding_) {
    const CfePlace place = place_of(event);
    Item& item = push(place == CfePlace::branch && enabled_ ? ItemKind::at_insn : ItemKind::at_ip, event.offset_bytes);
    item.event = event.event;
    item.value = event.value;
    item.aux = event.aux;
    item.ip = cursor_.last_ip;
    bound = true;
    if (event.event == EventKind::cfe && place == CfePlace::fup) asynchronous = true;
  }
  binding_.clear();
  for (const Item& event : after) push_event(ItemKind::now, event);
  return asynchronous;
}

// Outputs the waiting events because the next flow packet is not a FUP. Events of a branch become items of `branch_kind`.
void ItemReader::give_waiting(ItemKind branch_kind) {
  for (const Item& event : waiting_) {
    const bool at_branch = event.event == EventKind::evd || place_of(event) == CfePlace::branch;
    push_event(at_branch && enabled_ ? branch_kind : ItemKind::now, event);
  }
  waiting_.clear();
}

// Outputs events whose FUP is missing.
void ItemReader::give_unbound() {
  for (const Item& event : binding_) push_event(ItemKind::now, event);
  binding_.clear();
}

void ItemReader::on_event(const Packet& packet, uint64_t offset) {
  Item item;
  item.offset_bytes = offset;
  item.kind = ItemKind::now;
  item.value = packet.value;
  item.aux = packet.aux;
  const bool has_fup = (packet.flags & kFlagIp) != 0;
  switch (packet.kind) {
    case PacketKind::pip:
      item.kind = ItemKind::at_insn;
      item.event = EventKind::paging;
      if ((packet.flags & kFlagNonRoot) != 0) item.flags |= kItemNonRoot;
      break;
    case PacketKind::vmcs:
      item.kind = ItemKind::at_insn;
      item.event = EventKind::vmcs;
      break;
    case PacketKind::trace_stop:
      item.event = EventKind::trace_stop;
      break;
    case PacketKind::mnt:
      item.event = EventKind::mnt;
      break;
    case PacketKind::ptw:
      item.kind = ItemKind::at_insn;
      item.event = EventKind::ptwrite;
      item.aux = packet.bits;
      break;
    case PacketKind::exstop:
      item.event = EventKind::exstop;
      break;
    case PacketKind::mwait:
      item.event = EventKind::mwait;
      break;
    case PacketKind::pwre:
      item.event = EventKind::pwre;
      item.aux = packet.flags;
      break;
    case PacketKind::pwrx:
      item.event = EventKind::pwrx;
      break;
    case PacketKind::bbp:
      item.event = EventKind::pebs_begin;
      item.aux = packet.extra;
      break;
    case PacketKind::bip:
      item.event = EventKind::pebs_item;
      item.aux = packet.bits;
      break;
    case PacketKind::bep:
      item.event = EventKind::pebs_end;
      break;
    case PacketKind::cfe:
      item.event = EventKind::cfe;
      item.value = packet.bits | (uint64_t{packet.extra} << 8);
      break;
    case PacketKind::evd:
      item.event = EventKind::evd;
      item.aux = packet.bits;
      break;
    case PacketKind::trig:  // [SDM] "TRIG Packet": without an ip it may count the instructions since its anchor
      item.event = EventKind::trig;
      item.value = packet.extra;
      item.aux = (packet.flags & kFlagMult) != 0 ? 1 : 0;
      item.ip = packet.bits != 0 ? packet.value : 0;
      if (!has_fup && packet.bits != 0) item.kind = ItemKind::after_insns;
      break;
    default:
      return fail(offset);
  }
  if (has_fup) return bind_later(item);
  const bool in_compound = in_overflow_ || (has_fup_ && !fup_optional_);
  const bool waits = item.event == EventKind::cfe || item.event == EventKind::evd || precedes_exstop(item.event);
  if (waits && !in_compound) return wait(item);
  give_waiting();
  push_event(enabled_ ? item.kind : ItemKind::now, item);
}

}  // namespace ptd::pt
