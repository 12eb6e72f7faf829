// Packets of GDB's remote protocol: see packets.h.
#include "replay/gdb/packets.h"

#include <algorithm>

namespace ptd::replay {

namespace {

constexpr char kHex[] = "0123456789abcdef";

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void PacketReader::finish() {
  state_ = State::idle;
  if (items_.size() >= kMostItems) return;
  if (too_long_ || (checked_ && wanted_ != (sum_ & 0xff))) {
    items_.push_back({Kind::bad, {}});
    return;
  }
  std::string text;
  for (size_t i = 0; i < body_.size(); ++i) {
    if (body_[i] == '}' && i + 1 < body_.size()) {
      text += static_cast<char>(body_[++i] ^ 0x20);
    } else {
      text += body_[i];
    }
  }
  items_.push_back({Kind::packet, std::move(text)});
}

void PacketReader::add(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '$') {  // never part of a packet unless escaped: the beginning of one
      state_ = State::body;
      body_.clear();
      sum_ = 0;
      too_long_ = false;
      continue;
    }
    switch (state_) {
      case State::idle:
        if ((c == '\x03' || c == '-') && items_.size() < kMostItems) items_.push_back({c == '-' ? Kind::repeat : Kind::interrupt, {}});
        break;
      case State::body:
        if (c == '#') {
          state_ = State::sum_high;
        } else if (body_.size() >= kMostBytes) {
          too_long_ = true;
        } else {
          body_ += c;
          sum_ += static_cast<unsigned char>(c);
        }
        break;
      case State::sum_high:
        wanted_ = static_cast<unsigned>(digit(c)) << 4;
        state_ = State::sum_low;
        break;
      case State::sum_low:
        wanted_ |= static_cast<unsigned>(digit(c));  // no digit: no sum is that large
        finish();
        break;
    }
  }
}

PacketReader::Item PacketReader::next() {
  if (items_.empty()) return {};
  Item item = std::move(items_.front());
  items_.pop_front();
  return item;
}

bool PacketReader::take_interrupt() {
  const auto found = std::find_if(items_.begin(), items_.end(), [](const Item& item) { return item.kind == Kind::interrupt; });
  if (found == items_.end()) return false;
  items_.erase(found);
  return true;
}

std::string packet_of(std::string_view text) {
  std::string body;
  for (const char c : text) {
    if (c == '$' || c == '#' || c == '}' || c == '*') {
      body += '}';
      body += static_cast<char>(c ^ 0x20);
    } else {
      body += c;
    }
  }
  unsigned sum = 0;
  for (const char c : body) sum += static_cast<unsigned char>(c);
  return '$' + body + '#' + kHex[sum >> 4 & 15] + kHex[sum & 15];
}

std::string to_hex(std::string_view bytes) {
  std::string digits;
  digits.reserve(2 * bytes.size());
  for (const char c : bytes) {
    digits += kHex[static_cast<unsigned char>(c) >> 4];
    digits += kHex[static_cast<unsigned char>(c) & 15];
  }
  return digits;
}

std::optional<std::string> from_hex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = digit(digits[i]), low = digit(digits[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

std::optional<uint64_t> take_hex(std::string_view& text) {
  uint64_t value = 0;
  size_t count = 0;
  for (; count < text.size() && digit(text[count]) >= 0; ++count) {
    if (count == 16) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit(text[count]));
  }
  if (count == 0) return std::nullopt;
  text.remove_prefix(count);
  return value;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace ptd::replay
