// Splits a data section into records.
#include "perfio/raw_stream.h"

#include <algorithm>

#include "perfio/damage_log.h"
#include "perfio/scattered_read.h"

namespace ptd::perfio {
namespace {

constexpr size_t kChunkBytes = 256U << 10;
// Records shrink some ten to a hundred times; a file that grows without end is no recording.
constexpr uint64_t kFreeBytes = 64ULL << 20;
constexpr uint64_t kMaxGrowth = 1000;

}  // namespace

bool RawStream::next(RawRecord& out) {
  while (true) {
    if (next_decompressed(out)) return true;
    if (!next_plain(out)) {
      if (chunk_.size() > chunk_position_) {
        add_cut(*damage_, chunk_offset_bytes_, "the compressed stream ends inside a record");
        chunk_.clear();
        chunk_position_ = 0;
      }
      return false;
    }
    if (out.header.type != kRecordCompressed && out.header.type != kRecordCompressed2) return true;
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
  out = RawRecord{};
  out.header = read_record_header(rest);
  out.file_offset_bytes = position_;
  if (out.header.size_bytes < kRecordHeaderBytes) {
    add_cut(*damage_, position_, "the " + std::to_string(left) + " bytes from a record of impossible size " + std::to_string(out.header.size_bytes) + " on are lost,");
    position_ = end_;
    return false;
  }
  if (out.header.size_bytes > left) {
    add_cut(*damage_, position_, "the file ends inside a record");
    position_ = end_;
    return false;
  }
  out.bytes = rest.first(out.header.size_bytes);
  position_ += out.header.size_bytes;
  attach_payload(out);
  return true;
}

void RawStream::attach_payload(RawRecord& out) {
  uint64_t payload_bytes = 0;
  Cursor body(out.bytes.subspan(kRecordHeaderBytes));
  if (out.header.type == kRecordAuxtrace) payload_bytes = body.u64();
  if (out.header.type == kRecordHeaderTracingData) payload_bytes = body.u32();
  if (payload_bytes == 0) return;
  const uint64_t left = end_ - position_;
  if (payload_bytes > left) {
    add_cut(*damage_, position_, "the payload of a record ends " + std::to_string(payload_bytes - left) + " bytes early");
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
    if (!in.ok() || data_bytes > in.remaining()) {
      input_ = {};
      add_bad_record(*damage_, record.file_offset_bytes, "a compressed record is shorter than its header says");
      fail_compressed("the compressed stream has a gap");
      return;
    }
    input_ = in.take(data_bytes);
  }
  compressed_bytes_ += input_.size();
  more_output_ = true;
}

/// Moves the undelivered tail to the front of the chunk and decompresses more behind it. False if nothing more comes.
bool RawStream::refill() {
  if (!more_output_ || compressed_failed_) return false;
  chunk_.erase(chunk_.begin(), chunk_.begin() + static_cast<std::ptrdiff_t>(chunk_position_));
  chunk_position_ = 0;
  const size_t kept = chunk_.size();
  chunk_.resize(kept + kChunkBytes);
  const size_t got = zstd_.step(input_, std::span(chunk_).subspan(kept));
  chunk_.resize(kept + got);
  decompressed_bytes_ += got;
  if (decompressed_bytes_ > kFreeBytes && (decompressed_bytes_ - kFreeBytes) / kMaxGrowth > compressed_bytes_) {
    chunk_.resize(kept);
    fail_compressed("the compressed stream expands beyond the limit");
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
