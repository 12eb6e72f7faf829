// Runner: the inner loop. Between two timing packets, where all that is taken has the same bounds of time.
#include <algorithm>
#include <bit>
#include <cstring>

#include "decoder/pt/plain_packets.h"
#include "decoder/pt/runner.h"

namespace ptd::pt {

/// Where the loop stands; small enough for registers. What is not of the loop's every round works on a copy.
struct Runner::Spending {
  uint64_t bits = 0;  ///< read and not taken, the oldest in bit (count - 1)
  uint32_t count = 0;
  RunId at = kNoRun;
  Block* out = nullptr;
  uint64_t offset = 0;  ///< of the next packet
  uint64_t position = 0;
};

// Fills up the bits from the TNTs at s.offset.
inline void Runner::read_bits(Spending& s, uint64_t stop) {
  while (s.count < kGroupBits && s.offset < stop) {
    const auto byte = static_cast<unsigned>(data_[s.offset]);
    Unspent& packet = unspent_[packets_read_ % kUnspent];
    uint64_t payload = byte >> 1;
    packet.size_bytes = 1;
    if (!is_short_tnt(byte)) {
      if (byte == 0) {
        ++s.offset;
        continue;
      }
      payload = byte == 0x02 && own_bytes_ - s.offset >= kLongTntBytes ? long_tnt(data_ + s.offset) : 0;
      if (payload == 0) return;
      packet.size_bytes = kLongTntBytes;
    }
    packet.offset_bytes = s.offset;
    packet.bits = static_cast<uint8_t>(std::bit_width(payload) - 1);
    packet.payload = low_bits(payload, packet.bits);
    packet.late_before = cursor_.late;
    cursor_.late = packet.bits != kLongTntBits;
    ++packets_read_;
    s.bits = s.bits << packet.bits | packet.payload;
    s.count += packet.bits;
    s.offset += packet.size_bytes;
  }
}

// At a steady moment: TNTs by memos, and TIPs. Stops before the first packet that is not to be had so, or inside a TNT, with tnt_ pending.
void Runner::spend() {
  FlowState& state = *state_;
  const uint64_t stop = std::min(stop_, sync_limit_);
  const MemoTable& memos = code_.memos();
  packets_read_ = 0;
  Spending s;
  s.at = at_;
  s.out = out_;
  s.offset = cursor_.offset_bytes;
  s.position = state.position;
  ValidId valid = 0;  // holds now
  for (;;) {
    if (s.count < kGroupBits) read_bits(s, stop);
    if (s.out >= out_end_ || s.position + kGroupBits > until_) break;
    const uint32_t bits = std::min(s.count, kGroupBits);
    const auto group = static_cast<uint32_t>(low_bits(s.bits >> (s.count - bits), bits)) | 1U << bits;
    const Memo* memo = bits != 0 ? memos.find(s.at, group) : nullptr;
    if (memo != nullptr && memo->bits != 0) {
      const MemoHead head = memos.head(*memo);
      if (head.valid == valid || code_.holds(head.valid, state.now)) {
        valid = head.valid;
        const uint32_t open = state.returns.count();
        if (!head.plain() && (open + head.depth > ReturnStack::kDepth || open < head.pops)) break;
        copy_blocks(s.out, memos.blocks(*memo), memo->blocks);
        s.out += memo->blocks;
        s.count -= memo->bits;
        s.position += memo->bits;
        s.at = memo->next;
        if (head.plain()) continue;
        push_calls(*memo, head);
        if (head.pops != 0) s.at = pop_call();
        continue;
      }
    }
    Spending slow = s;
    const bool went = bits == 0 ? s.offset < stop && spend_tip(slow) : spend_single(slow, memo, group);
    s = slow;
    if (!went) break;
  }
  at_ = s.at;
  out_ = s.out;
  if (s.position != state.position) moved_ = true;
  if (s.position != state.position) state.silent = 0;
  state.position = s.position;
  cycles_ = cursor_.cycles;
  hand_back(s);
}

// A TIP at s.offset. False: it is left as it is.
bool Runner::spend_tip(Spending& s) {
  const auto byte = static_cast<unsigned>(data_[s.offset]);
  const uint64_t size = kIpSize[byte >> 5];
  if ((byte & kIpOpcodeMask) != kTipOpcode || size == 0 || own_bytes_ - s.offset < 1 + sizeof(uint64_t)) return false;
  s.at = code_.version_at(s.at, state_->now);
  const Run& run = code_.run(s.at);
  if (run.end != RunEnd::indirect && run.end != RunEnd::ret) return false;
  uint64_t payload = 0;
  std::memcpy(&payload, data_ + s.offset + 1, sizeof payload);
  payload &= kIpMask[byte >> 5];
  const uint64_t ip = byte >> 5 == static_cast<unsigned>(IpBytes::sext48) ? static_cast<uint64_t>(static_cast<int64_t>(payload << 16) >> 16)
                                                                          : (cursor_.last_ip & ~kIpMask[byte >> 5]) | payload;
  if ((run.branch_ip >> 63) > (ip >> 63)) return false;  // from the kernel to user code: the context may be another
  copy_blocks(s.out, code_.blocks(run.blocks_first), run.blocks);
  s.out += run.blocks;
  push_calls(run);
  uint64_t dropped = 0;
  if (run.end == RunEnd::ret) (void)state_->returns.pop(dropped);
  s.at = code_.target_at((ip >> 63) != 0 ? kernel_place_ : user_place_, ip);
  cursor_.last_ip = ip;
  ++s.position;
  s.offset += size + 1;
  return true;
}

// Makes the memo that is asked for again, else takes the group bit by bit. False: nothing could be done.
bool Runner::spend_single(Spending& s, const Memo* seen, uint32_t group) {
  if (seen == nullptr) {
    code_.see_memo(s.at, group);
  } else if (code_.make_memo(s.at, group, state_->now) != nullptr) {
    return true;
  }
  const auto bits = static_cast<uint32_t>(std::bit_width(group)) - 1;
  for (uint32_t taken = 0; taken < bits; ++taken) {
    const RunId id = code_.version_at(s.at, state_->now);
    if (id == kNoRun) return taken != 0;
    const Run& run = code_.run(id);
    const bool bit = ((s.bits >> (s.count - 1)) & 1) != 0;
    const bool ret = run.end == RunEnd::ret && returns_compressed_ && bit && state_->returns.count() + run.calls != 0;
    if (run.end != RunEnd::jcc && !ret) return taken != 0;
    copy_blocks(s.out, code_.blocks(run.blocks_first), run.blocks);
    s.out += run.blocks;
    push_calls(run);
    if (ret) {
      s.at = pop_call();
    } else {
      s.out[-1].flags = static_cast<uint16_t>(s.out[-1].flags | (bit ? static_cast<unsigned>(BlockFlag::taken) : 0U));
      s.at = run.next[bit ? 1 : 0];
    }
    --s.count;
    ++s.position;
  }
  return true;
}

// The cursor goes back before the TNTs of which nothing was taken; what is left of one that was begun becomes tnt_, as read_tnt() would
// have left it.
void Runner::hand_back(Spending& s) {
  uint64_t offset = s.offset;
  const Unspent* packet = nullptr;
  for (; s.count != 0; s.count -= packet->bits) {
    packet = &unspent_[--packets_read_ % kUnspent];
    if (s.count < packet->bits) break;
    offset = packet->offset_bytes;
    cursor_.late = packet->late_before;
  }
  tnt_.count = s.count;
  if (s.count != 0) {
    offset = packet->offset_bytes + packet->size_bytes;
    tnt_.bits = low_bits(packet->payload, s.count);
    tnt_.direct = tnt_.begun = true;
    Item& item = tnt_.item;
    item.kind = ItemKind::tnt;
    item.bits = packet->bits;
    item.ip = packet->payload;
    item.offset_bytes = packet->offset_bytes;
    item.cycles = cursor_.cycles;
    item.before = item.lo = cursor_.now_first;
    item.hi = std::max(hi_, item.lo);
  }
  cursor_.offset_bytes = offset;
}

}  // namespace ptd::pt
