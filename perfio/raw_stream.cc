// Splits a data section into records.
#include "perfio/raw_stream.h"

#include <algorithm>
#include <cstring>

#include "perfio/damage_log.h"
#include "perfio/format/oversized_record.h"
#include "perfio/scattered_read.h"

namespace ptd::perfio {
namespace {

constexpr size_t kChunkBytes = 256U << 10;
constexpr unsigned kChain = 4;                         // valid headers in a row show that records begin there
constexpr unsigned kChainBehind = 2;                   // the same after a record of unknown type
constexpr size_t kMostHoles = 64;                      // in a recording; after them, damage ends its file
constexpr uint64_t kMostSearchedBytes = 256ULL << 20;  // for records after a damaged header

constexpr uint64_t kHeader2Bytes = kRecordHeaderBytes + 8;  // COMPRESSED2: header and data_size
constexpr uint64_t kMostData2Bytes = 256U << 20;            // of a COMPRESSED2 record: perf compresses one ring at a time

/// A record's header and true size.
struct Extent {
  RecordHeader header;
  uint64_t size_bytes = 0;
  bool overflowed = false;  // the size in the header is the low 16 bits of another
};

// perf 6.16 and later write COMPRESSED2 records whose size does not fit the header's 16 bits (tools/perf builtin-record.c,
// record__pushfn()): size is then the aligned size modulo 2^16, data_size is right, and the padding is missing.
Extent extent_of(Bytes rest) {
  Extent extent{read_record_header(rest), 0, false};
  extent.size_bytes = extent.header.size_bytes;
  if (extent.header.type != kRecordCompressed2 || rest.size() < kHeader2Bytes) return extent;
  const uint64_t data_bytes = Cursor(rest.subspan(kRecordHeaderBytes)).u64();
  if (data_bytes > kMostData2Bytes) return extent;
  const uint64_t aligned = (kHeader2Bytes + data_bytes + 7) / 8 * 8;
  extent.overflowed = aligned > extent.header.size_bytes && static_cast<uint16_t>(aligned) == extent.header.size_bytes;
  if (extent.overflowed) extent.size_bytes = kHeader2Bytes + data_bytes;
  return extent;
}

// Whether a record may begin with `extent`, with `left` bytes up to the end of the section (tools/perf
// Documentation/perf.data-file-format.txt, perf_event.h). The kernel's records are multiples of eight bytes. perf leaves `misc` of
// compressed records as it finds it. `newer`: its type may be one that is not known.
bool is_plausible(const Extent& extent, uint64_t left, bool newer) {
  constexpr uint16_t kReservedMisc = 0x0ff8;
  constexpr uint32_t kMostTypes = 256;
  const RecordHeader& header = extent.header;
  const bool compressed = header.type == kRecordCompressed || header.type == kRecordCompressed2;
  if (is_unknown_type(header.type) && (!newer || header.type == 0 || header.type >= kMostTypes)) return false;
  if (!compressed && (header.misc & kReservedMisc) != 0) return false;
  const bool aligned = header.type < kRecordUserStart || is_unknown_type(header.type);
  if (extent.size_bytes < kRecordHeaderBytes || extent.size_bytes > left || (aligned && extent.size_bytes % 8 != 0)) return false;
  switch (header.type) {
    case kRecordFinishedRound:
    case kRecordFinishedInit:
      return header.size_bytes == kRecordHeaderBytes;
    case kRecordAuxtrace:
      return header.size_bytes == 48;
    case kRecordAux:
      return header.size_bytes >= 32;
    default:
      return extent.size_bytes > kRecordHeaderBytes || header.type == kRecordSwitch;
  }
}

// Bytes of the record at the front of `rest` and of what follows it.
uint64_t whole_size(Bytes rest, const Extent& extent) {
  Cursor body(rest.first(static_cast<size_t>(extent.size_bytes)).subspan(kRecordHeaderBytes));
  uint64_t payload_bytes = 0;
  if (extent.header.type == kRecordAuxtrace) payload_bytes = body.u64();
  if (extent.header.type == kRecordHeaderTracingData) payload_bytes = body.u32();
  return extent.size_bytes + std::min<uint64_t>(payload_bytes, rest.size());
}

// Whether `rest` begins with `count` records, or is nothing but records. `newer`: of any type.
bool is_chain(Bytes rest, unsigned count, bool newer) {
  for (unsigned i = 0; i < count; ++i) {
    if (rest.empty() && i != 0) return true;
    if (rest.size() < kRecordHeaderBytes) return false;
    const Extent extent = extent_of(rest);
    if (!is_plausible(extent, rest.size(), newer)) return false;
    const uint64_t size = whole_size(rest, extent);
    if (size > rest.size()) return false;
    rest = rest.subspan(static_cast<size_t>(size));
  }
  return true;
}

// Whether the front of `rest`, `size_bytes` of it, is whole records, or `rest` begins with a chain of them.
bool is_records(Bytes rest, uint64_t size_bytes) {
  return is_chain(rest, kChain, false) || is_chain(rest.first(static_cast<size_t>(size_bytes)), ~0U, false);
}

// Returns the offset of the first byte from `at` on that is not zero, or the size of `bytes`.
uint64_t skip_zeros(Bytes bytes, uint64_t at) {
  static constexpr std::byte kZeros[4096]{};
  while (bytes.size() - at >= sizeof(kZeros) && std::memcmp(bytes.data() + at, kZeros, sizeof(kZeros)) == 0) at += sizeof(kZeros);
  while (at < bytes.size() && bytes[static_cast<size_t>(at)] == std::byte{0}) ++at;
  return at;
}

// Returns the offset in [at, end) of the first chain of records, or `end`. A header is never all zeros, as a record's size is not 0.
uint64_t find_chain(Bytes bytes, uint64_t at, uint64_t end) {
  const Bytes searched = bytes.first(static_cast<size_t>(std::min<uint64_t>(end + kRecordHeaderBytes, bytes.size())));
  while (at < end && at + kRecordHeaderBytes <= bytes.size()) {
    const Bytes rest = bytes.subspan(static_cast<size_t>(at));
    if (is_chain(rest, kChain, false)) return at;
    ++at;
    if (Cursor(rest).u64() == 0) at = std::max(at, skip_zeros(searched, at) - (kRecordHeaderBytes - 1));
  }
  return end;
}

// The data of an overflowed COMPRESSED2 record. perf compresses into records of at most kMostPartBytes of data and then writes the sizes of
// all over those of the first one; the others have a header with their own size, and an undefined data_size.
std::vector<std::byte> data_of_parts(Bytes data) {
  constexpr uint64_t kMostPartBytes = 65519;
  if (data.size() <= kMostPartBytes) return {data.begin(), data.end()};
  std::vector<bool> tried(data.size());  // positions from which no chain of headers reaches the end
  for (uint64_t first = kMostPartBytes; first > 0; --first) {
    std::vector<Bytes> parts{data.first(static_cast<size_t>(first))};
    uint64_t at = first;
    while (at + kHeader2Bytes <= data.size() && !tried[at]) {
      tried[at] = true;
      const RecordHeader header = read_record_header(data.subspan(static_cast<size_t>(at)));
      if (header.type != kRecordCompressed2 || header.size_bytes < kHeader2Bytes || header.size_bytes > data.size() - at) break;
      parts.push_back(data.subspan(static_cast<size_t>(at + kHeader2Bytes), header.size_bytes - kHeader2Bytes));
      at += header.size_bytes;
    }
    if (at != data.size()) continue;
    std::vector<std::byte> joined;
    for (const Bytes part : parts) joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }
  return {};
}

}  // namespace

bool RawStream::next(RawRecord& out) {
  const auto is_compressed = [&out] { return out.header.type == kRecordCompressed || out.header.type == kRecordCompressed2; };
  damage_->file = number_;
  while (true) {
    while (next_decompressed(out)) {
      if (!is_compressed()) return true;
      add_bad_record(*damage_, chunk_offset_bytes_, "a compressed record inside the data of a compressed record");  // perf writes none
    }
    if (!next_plain(out)) {
      if (chunk_.size() > chunk_position_) {
        add_cut(*damage_, chunk_offset_bytes_, "the compressed stream ends inside a record");
        chunk_.clear();
        chunk_position_ = 0;
      } else if (!compressed_failed_ && zstd_.ends_inside_block()) {  // nothing of its last block comes out
        fail_compressed("the compressed stream ends inside a block");
      }
      return false;
    }
    if (!is_compressed()) return true;
    begin_compressed(out);
  }
}

bool RawStream::next_plain(RawRecord& out) {
  if (position_ >= end_) return false;
  if (position_ >= window_end_) window_end_ = read_window(file_, position_);
  const uint64_t left = end_ - position_;
  const Bytes rest = file_.subspan(static_cast<size_t>(position_), static_cast<size_t>(left));
  if (left < kRecordHeaderBytes) {
    add_cut(*damage_, position_, "the file ends inside a record header");
    position_ = end_;
    return false;
  }
  const Extent extent = extent_of(rest);
  out = RawRecord{};
  out.header = extent.header;
  out.file_offset_bytes = position_;
  if (is_damaged(rest)) return skip_damage() && next_plain(out);
  last_record_ = position_;
  out.bytes = rest.first(static_cast<size_t>(extent.size_bytes));
  out.overflowed = extent.overflowed;
  position_ += extent.size_bytes;
  attach_payload(out);
  return true;
}

// A record of unknown type is one of a newer perf if records follow it.
bool RawStream::is_damaged(Bytes rest) {
  const Extent extent = extent_of(rest);
  if (is_plausible(extent, rest.size(), false)) return false;
  if (extent.size_bytes < kRecordHeaderBytes || extent.size_bytes > rest.size()) return true;
  const Bytes after = rest.subspan(static_cast<size_t>(extent.size_bytes));
  return !after.empty() && !is_chain(after, kChainBehind, true);
}

// The record at position_ is damaged, or the size of the one before it is wrong. Moves on to the next chain of records. False if there is
// none: the rest is lost.
bool RawStream::skip_damage() {
  const uint64_t from = position_, first = last_record_ < from ? last_record_ + kRecordHeaderBytes : from + 1;
  const Bytes rest = file_.subspan(0, static_cast<size_t>(end_));
  const bool searches = damage_->holes.size() < kMostHoles;
  const uint64_t until = searches ? std::min(end_, first + kMostSearchedBytes) : first;
  const uint64_t at = find_chain(rest, first, until);
  const RecordHeader header = read_record_header(rest.subspan(static_cast<size_t>(from)));
  if (at == until) {
    if (header.size_bytes > end_ - from) {
      add_cut(*damage_, from, "the file ends inside a record");
    } else {
      const char* what = header.size_bytes < kRecordHeaderBytes ? "impossible size " : "damaged header, size ";
      const std::string unsearched = searches && until < end_ ? " (no records in " + std::to_string(until - first) + " bytes; the " +
                                                                    std::to_string(end_ - until) + " bytes after them were not searched)"
                                                              : "";
      add_cut(*damage_, from,
              "the " + std::to_string(end_ - from) + " bytes from a record of " + what + std::to_string(header.size_bytes) +
                  " on are lost" + unsearched + ",");
    }
    position_ = end_;
    return false;
  }
  const uint64_t begin = at < from ? last_record_ : from;
  damage_->holes.push_back({begin, at - begin, number_});
  add_damage_message(*damage_,
                     "a record header is damaged: " + std::to_string(at - begin) + " bytes are skipped," + place_in(*damage_, begin));
  position_ = at;
  last_record_ = ~uint64_t{0};
  if (compressed_bytes_ != 0 && !compressed_failed_) fail_compressed("the compressed stream has a gap");
  return true;
}

void RawStream::shorten(RawRecord& out, uint64_t own_bytes, bool is_certain) {
  const uint64_t excess = out.bytes.size() - own_bytes;
  const Bytes after = out.transient ? Bytes(chunk_).subspan(chunk_position_ - static_cast<size_t>(excess))
                                    : file_.first(static_cast<size_t>(end_)).subspan(static_cast<size_t>(position_ - excess));
  const bool follow = is_records(after, excess);
  if (!follow && !is_certain) return;
  out.bytes = out.bytes.first(static_cast<size_t>(own_bytes));
  out.header.size_bytes = static_cast<uint16_t>(own_bytes);
  if (!follow && is_written_too_long(out.header.type)) return;
  if (follow) {
    ++damage_->oversized_records;
    add_damage_message(*damage_, "a record of type " + std::to_string(out.header.type) + " has a size of " +
                                     std::to_string(own_bytes + excess) + " bytes instead of " + std::to_string(own_bytes) +
                                     ": the records in it are read," + place_in(*damage_, out.file_offset_bytes));
    (out.transient ? chunk_position_ : position_) -= excess;
  } else if (!out.transient) {
    position_ -= excess;
    last_record_ = ~uint64_t{0};
    (void)skip_damage();
  } else {
    add_bad_record(*damage_, out.file_offset_bytes, "bytes after the content of a record of type " + std::to_string(out.header.type));
  }
}

void RawStream::attach_payload(RawRecord& out) {
  uint64_t payload_bytes = 0;
  Cursor body(out.bytes.subspan(kRecordHeaderBytes));
  if (out.header.type == kRecordAuxtrace) payload_bytes = body.u64();
  if (out.header.type == kRecordHeaderTracingData) payload_bytes = body.u32();
  if (payload_bytes == 0) return;
  const uint64_t left = end_ - position_;
  if (payload_bytes > left) {
    add_cut(*damage_, position_, "the payload of a record ends " + std::to_string(payload_bytes - left) + " bytes early", end_);
    payload_bytes = left;
  }
  out.payload = file_.subspan(static_cast<size_t>(position_), static_cast<size_t>(payload_bytes));
  position_ += payload_bytes;
}

void RawStream::begin_compressed(const RawRecord& record) {
  if (compressed_failed_) {
    ++damage_->bad_records;
    return;
  }
  input_ = record.bytes.subspan(kRecordHeaderBytes);
  input_offset_bytes_ = record.file_offset_bytes;
  if (chunk_.size() == chunk_position_) chunk_offset_bytes_ = input_offset_bytes_;
  if (record.header.type == kRecordCompressed2) {  // u64 data_size, then that much; the rest is padding
    Cursor in(input_);
    const uint64_t data_bytes = in.u64();
    if (record.overflowed) {
      joined_ = data_of_parts(in.rest());
      begin_input(joined_);
      if (input_.empty()) fail_compressed("a compressed record longer than 64 KiB has no parts of a known size");
      return;
    }
    if (!in.ok() || data_bytes > in.remaining()) {
      input_ = {};
      add_bad_record(*damage_, record.file_offset_bytes, "a compressed record is shorter than its header says");
      fail_compressed("the compressed stream has a gap");
      return;
    }
    input_ = in.take(data_bytes);
  }
  begin_input(input_);
}

void RawStream::begin_input(Bytes input) {
  input_ = input;
  compressed_bytes_ += input_.size();
  budget_->add_compressed(input_.size());
  more_output_ = true;
}

/// Moves the undelivered tail to the front of the chunk and decompresses more after it. False at the end.
bool RawStream::refill() {
  if (!more_output_ || compressed_failed_) return false;
  chunk_.erase(chunk_.begin(), chunk_.begin() + static_cast<std::ptrdiff_t>(chunk_position_));
  chunk_position_ = 0;
  const size_t kept = chunk_.size();
  chunk_.resize(kept + kChunkBytes);
  const size_t got = zstd_.step(input_, std::span(chunk_).subspan(kept));
  chunk_.resize(kept + got);
  if (!budget_->take(got)) {
    chunk_.resize(kept);
    fail_compressed("the compressed stream expands to more than " + std::to_string(ExpansionBudget::kFreeBytes >> 20) + " MiB and " +
                    std::to_string(ExpansionBudget::kMaxGrowth) + " times its size,");
    return false;
  }
  if (zstd_.failed()) fail_compressed("the compressed stream is damaged");
  more_output_ = got == kChunkBytes && !zstd_.failed();
  return got > 0;
}

void RawStream::fail_compressed(const std::string& why) {
  compressed_failed_ = true;
  more_output_ = false;
  input_ = {};
  zstd_ = {};  // frees its window
  add_cut(*damage_, input_offset_bytes_, why);
}

bool RawStream::next_decompressed(RawRecord& out) {
  while (true) {
    const Bytes rest = Bytes(chunk_).subspan(chunk_position_);
    if (rest.size() >= kRecordHeaderBytes) {
      out = RawRecord{};
      out.header = read_record_header(rest);
      if (out.header.size_bytes < kRecordHeaderBytes) {
        fail_compressed("a record of impossible size in the compressed stream");
        chunk_.clear();
        chunk_position_ = 0;
        return false;
      }
      if (out.header.size_bytes <= rest.size()) {
        out.bytes = rest.first(out.header.size_bytes);
        out.file_offset_bytes = chunk_offset_bytes_;
        out.transient = true;
        chunk_position_ += out.header.size_bytes;
        chunk_offset_bytes_ = input_offset_bytes_;
        return true;
      }
    }
    if (!refill()) return false;
  }
}

}  // namespace ptd::perfio
