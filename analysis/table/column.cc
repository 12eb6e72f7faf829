// Column: see column.h.
#include "analysis/table/column.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace ptd {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Bytes of the UTF-8 character at the front of `text`, 0 if there is none. Source: RFC 3629, section 4.
size_t character_bytes(std::string_view text) {
  const auto byte = [text](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto between = [](unsigned value, unsigned first, unsigned last) { return first <= value && value <= last; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (between(lead, 0xC2, 0xDF)) return between(byte(1), 0x80, 0xBF) ? 2 : 0;
  if (between(lead, 0xE0, 0xEF)) {
    const unsigned least = lead == 0xE0 ? 0xA0 : 0x80, most = lead == 0xED ? 0x9F : 0xBF;
    return between(byte(1), least, most) && between(byte(2), 0x80, 0xBF) ? 3 : 0;
  }
  if (!between(lead, 0xF0, 0xF4)) return 0;
  const unsigned least = lead == 0xF0 ? 0x90 : 0x80, most = lead == 0xF4 ? 0x8F : 0xBF;
  return between(byte(1), least, most) && between(byte(2), 0x80, 0xBF) && between(byte(3), 0x80, 0xBF) ? 4 : 0;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char letter) { return static_cast<unsigned char>(letter) < 0x80; });
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    out += bytes == 0 ? kReplacement : text.substr(0, bytes);
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

NameList::NameList() {
  reserve(0);
  offsets_[0] = 0;
}

/// Reserves memory for one more name of so many bytes. What snapshots share is never moved: a larger copy replaces it.
void NameList::reserve(size_t bytes) {
  const auto used = static_cast<size_t>(offsets_ ? offsets_[count_] : 0);
  if (!bytes_ || used + bytes > bytes_capacity_) {
    bytes_capacity_ = std::max<size_t>(2 * bytes_capacity_, std::max<size_t>(used + bytes, 4096));
    std::shared_ptr<char[]> larger(new char[bytes_capacity_]);
    if (used != 0) std::memcpy(larger.get(), bytes_.get(), used);
    bytes_ = std::move(larger);
  }
  const auto entries = static_cast<size_t>(count_) + 2;
  if (entries <= offsets_capacity_) return;
  offsets_capacity_ = std::max<size_t>(2 * offsets_capacity_, 256);
  std::shared_ptr<int32_t[]> larger(new int32_t[offsets_capacity_]);
  if (offsets_) std::memcpy(larger.get(), offsets_.get(), (static_cast<size_t>(count_) + 1) * sizeof(int32_t));
  offsets_ = std::move(larger);
}

int32_t NameList::index_of(std::string_view name) {
  if (const auto known = indexes_.find(name); known != indexes_.end()) return known->second;
  const std::string text = valid_utf8(name);
  if (text.size() > static_cast<size_t>(kMostBytes - offsets_[count_])) return -1;
  reserve(text.size());
  std::memcpy(bytes_.get() + offsets_[count_], text.data(), text.size());
  offsets_[count_ + 1] = offsets_[count_] + static_cast<int32_t>(text.size());
  indexes_.emplace(name, count_);
  return count_++;
}

bool Column::put_text(std::string_view text) {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) - values_.size()) {
    put_no_text();
    return false;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  values_.insert(values_.end(), bytes, bytes + text.size());
  offsets_.push_back(static_cast<int32_t>(values_.size()));
  add_valid(1, 1);
  return true;
}

void Column::put_no_text() {
  offsets_.push_back(static_cast<int32_t>(values_.size()));
  add_valid(0, 1);
}

void Column::repeat_last(size_t count) {
  if (count == 0) return;
  const auto repeat = [this, count]<typename T>(T value) {
    std::memcpy(&value, values_.data() + values_.size() - sizeof(T), sizeof(T));
    std::fill_n(extend<T>(count), count, value);
  };
  if (info_.type == ColumnType::int64 || info_.type == ColumnType::uint64) {
    repeat(uint64_t{});
  } else {
    repeat(uint32_t{});
  }
  const bool valid = valid_.empty() || (valid_[(rows_ - 1) / 8] >> ((rows_ - 1) % 8) & 1) != 0;
  add_rows(count, valid);
}

void Column::add_same_rows(size_t count, bool valid) {
  const size_t first = std::min((8 - rows_ % 8) % 8, count), bytes = (count - first) / 8, last = (count - first) % 8;
  const auto few = [this, valid](size_t some) { add_valid(valid ? (uint64_t{1} << some) - 1 : 0, static_cast<unsigned>(some)); };
  if (!valid && valid_.empty()) mark_valid_from_start();
  if (first != 0) few(first);
  valid_.resize(valid_.size() + bytes, valid ? 0xFF : 0);
  rows_ += 8 * bytes;
  if (!valid) nulls_ += 8 * bytes;
  if (last != 0) few(last);
}

void Column::add_names(std::span<int32_t> indexes) {
  constexpr size_t kWord = 64;
  int32_t any = 0, all = -1;
  const std::span<const int32_t> words = indexes.first(indexes.size() / kWord * kWord);
  for (size_t i = 0; i < words.size(); i += kWord) {
    for (size_t j = 0; j < kWord; ++j) any |= words[i + j], all &= words[i + j];  // of constant length, for the compiler
  }
  for (const int32_t index : indexes.subspan(words.size())) any |= index, all &= index;
  if (any >= 0) return add_rows(indexes.size(), true);
  if (all < 0) {
    std::fill(indexes.begin(), indexes.end(), 0);
    return add_rows(indexes.size(), false);
  }
  for (; indexes.size() >= kWord; indexes = indexes.subspan(kWord)) {
    std::array<uint8_t, kWord> is_set;
    for (size_t i = 0; i < kWord; ++i) is_set[i] = indexes[i] >= 0 ? 1 : 0;
    for (size_t i = 0; i < kWord; ++i) indexes[i] &= ~(indexes[i] >> 31);  // 0 if negative
    uint64_t bits = 0;
    for (size_t i = 0; i < kWord; i += 8) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, is_set.data() + i, sizeof(bytes));
      bits |= (bytes * 0x0102040810204080U >> 56) << i;  // the lowest bit of each byte
    }
    add_valid(bits, kWord);
  }
  for (int32_t& index : indexes) {
    add_valid(index >= 0 ? 1 : 0, 1);
    index = std::max(index, 0);
  }
}

void Column::add_valid(uint64_t bits, unsigned count) {
  const size_t missing = bits == 0 ? count : count - static_cast<unsigned>(std::popcount(bits));
  if (missing != 0 && valid_.empty()) mark_valid_from_start();
  if (missing != 0 || !valid_.empty()) {
    const unsigned used = rows_ % 8;  // bits of the last byte
    valid_.resize((rows_ + count + 7) / 8);
    uint8_t* out = valid_.data() + rows_ / 8;
    if (count == 64) {
      const uint64_t word = bits << used | *out;
      std::memcpy(out, &word, sizeof(word));
      if (used != 0) out[8] = static_cast<uint8_t>(bits >> (64 - used));
    } else {
      *out |= static_cast<uint8_t>(bits << used);
      for (unsigned done = 8 - used; done < count; done += 8) *++out = static_cast<uint8_t>(bits >> done);
    }
  }
  rows_ += count;
  nulls_ += missing;
}

void Column::add_rows_but(std::span<const uint8_t> nulls, size_t count) {
  const auto word_at = [&](size_t row) {
    uint64_t word = 0;
    std::memcpy(&word, nulls.data() + row / 8, sizeof(word));
    return count - row >= 64 ? word : word & ((uint64_t{1} << (count - row)) - 1);
  };
  size_t missing = 0;
  for (size_t row = 0; row < count; row += 64) {
    if (const uint64_t word = word_at(row); word != 0) missing += static_cast<unsigned>(std::popcount(word));
  }
  if (missing == 0 && valid_.empty()) return add_rows(count, true);
  if (valid_.empty()) mark_valid_from_start();
  const size_t used = rows_ % 8, size = (rows_ + count + 7) / 8;  // bits of the last byte; bytes
  valid_.resize(size + 2 * sizeof(uint64_t));                     // the loop writes whole words
  uint8_t* out = valid_.data() + rows_ / 8;
  for (size_t row = 0; row < count; row += 64, out += sizeof(uint64_t)) {
    const size_t left = count - row;
    const uint64_t bits = ~word_at(row) & (left >= 64 ? ~uint64_t{} : (uint64_t{1} << left) - 1), word = bits << used | *out;
    std::memcpy(out, &word, sizeof(word));
    if (used != 0) out[sizeof(word)] = static_cast<uint8_t>(bits >> (64 - used));
  }
  valid_.resize(size);
  rows_ += count;
  nulls_ += missing;
}

void Column::mark_valid_from_start() {
  valid_.reserve((expected_rows_ + 7) / 8);
  valid_.assign((rows_ + 7) / 8, 0xFF);
  if (rows_ % 8 != 0) valid_.back() = static_cast<uint8_t>((1U << (rows_ % 8)) - 1);
}

}  // namespace ptd
