// PerfWriter: header, records, payloads, feature sections.
#include "perfio/perf_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "image/base/system_error.h"
#include "perfio/format/byte_writer.h"
#include "perfio/format/record_encode.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

namespace fs = std::filesystem;

constexpr size_t kAttrBytes = 128;               // PERF_ATTR_SIZE_VER7
constexpr size_t kCompressAtBytes = 256U << 10;  // how much is compressed at a time
constexpr size_t kMaxCompressedBytes = 65528 - kRecordHeaderBytes;

/// The one size that all attrs are written with.
size_t common_attr_bytes(const std::vector<EventAttr>& attrs) {
  size_t largest = 0;
  bool all_raw = !attrs.empty();
  for (const EventAttr& attr : attrs) {
    largest = std::max(largest, attr.raw.size());
    all_raw = all_raw && !attr.raw.empty();
  }
  return all_raw ? largest : std::max(largest, kAttrBytes);
}

}  // namespace

PerfWriter::PerfWriter(std::unique_ptr<OutputFile> file, std::string path, WriterOptions options)
    : file_(std::move(file)), path_(std::move(path)), options_(std::move(options)), attr_bytes_(common_attr_bytes(options_.attrs)) {
  if (options_.compression_level > 0) compressor_ = std::make_unique<ZstdCompressor>(options_.compression_level);
}

PerfWriter::~PerfWriter() = default;

Result<std::unique_ptr<PerfWriter>> PerfWriter::create(const std::string& path, const WriterOptions& options) {
  if (options.directory) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error)
      return Error{code_of_errno(error.value(), ErrorCode::write_failed), "cannot create the directory " + path + ": " + error.message(),
                   0};
  }
  const std::string file_path = options.directory ? path + "/data" : path;
  auto file = options.fd >= 0 ? OutputFile::on_descriptor(options.fd, path, options.pipe) : OutputFile::create(file_path);
  if (!file) return file.error();
  std::unique_ptr<PerfWriter> writer(new PerfWriter(std::move(file).value(), path, options));
  if (Status status = options.pipe ? writer->write_pipe_start() : writer->write_start(); !status) return status.error();
  return writer;
}

const EventAttr& PerfWriter::attr_of(uint32_t index) const { return index < options_.attrs.size() ? options_.attrs[index] : no_attr_; }

std::vector<std::byte> PerfWriter::header(uint64_t data_size_bytes) const {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  const uint64_t stride = attr_bytes_ + 16;
  out.u64(kPerfMagic2).u64(kFileHeaderBytes).u64(stride).u64(attrs_offset_).u64(options_.attrs.size() * stride);
  out.u64(data_offset_).u64(data_size_bytes).u64(0).u64(0);
  uint64_t bits[4] = {};
  for (const auto& [bit, section] : features_) bits[bit / 64] |= 1ULL << (bit % 64);
  for (const uint64_t word : bits) out.u64(word);
  return bytes;
}

/// Header, ids, attrs: all that precedes the records.
Status PerfWriter::write_start() {
  std::vector<std::byte> ids_and_attrs;
  ByteWriter out(ids_and_attrs);
  std::vector<uint64_t> id_offsets;
  for (const EventAttr& attr : options_.attrs) {
    id_offsets.push_back(kFileHeaderBytes + out.size());
    for (const uint64_t id : attr.ids) out.u64(id);
  }
  attrs_offset_ = kFileHeaderBytes + out.size();
  for (size_t i = 0; i < options_.attrs.size(); ++i) {
    out.bytes(encode_attr(options_.attrs[i], attr_bytes_)).u64(id_offsets[i]).u64(options_.attrs[i].ids.size() * 8);
  }
  data_offset_ = kFileHeaderBytes + out.size();
  if (Status status = file_->append(header(0)); !status) return status;
  if (Status status = file_->append(ids_and_attrs); !status) return status;
  return file_->flush();
}

Status PerfWriter::write_compressed(Bytes compressed) {
  while (!compressed.empty()) {
    const Bytes piece = compressed.first(std::min(compressed.size(), kMaxCompressedBytes));
    compressed = compressed.subspan(piece.size());
    std::vector<std::byte> head;
    ByteWriter(head).u32(kRecordCompressed).u16(0).u16(static_cast<uint16_t>(kRecordHeaderBytes + piece.size()));
    if (Status status = file_->append(head); !status) return status;
    if (Status status = file_->append(piece); !status) return status;
  }
  return {};
}

Status PerfWriter::flush_compressed() {
  if (to_compress_.empty()) return {};
  std::vector<std::byte> compressed;
  if (!compressor_->add(to_compress_, compressed)) return Error{ErrorCode::unsupported_compression, "zstd cannot compress " + path_, 0};
  to_compress_.clear();
  return write_compressed(compressed);
}

/// Kernel records may be compressed; what perf itself writes never is, and waits until they are out.
Status PerfWriter::write_record(Bytes record) {
  if (compressor_ == nullptr) return file_->append(record);
  if (read_record_header(record).type < kRecordUserStart) {
    to_compress_.insert(to_compress_.end(), record.begin(), record.end());
    return to_compress_.size() < kCompressAtBytes ? Status() : flush_compressed();
  }
  if (Status status = flush_compressed(); !status) return status;
  return file_->append(record);
}

Status PerfWriter::add_raw(Bytes record, Bytes payload) {
  if (record.size() < kRecordHeaderBytes || read_record_header(record).size_bytes != record.size()) {
    return Error{ErrorCode::invalid_argument, "a record's header does not fit its size", 0};
  }
  if (Status status = write_record(record); !status) return status;
  const RecordHeader head = read_record_header(record);
  if (head.type == kRecordAuxtrace) index_.push_back({file_->size_bytes() - record.size(), record.size()});
  return payload.empty() ? Status() : file_->append(payload);
}

Status PerfWriter::add(const Payload& payload, const RecordContext& context) {
  if (const auto* auxtrace = std::get_if<AuxtraceRecord>(&payload)) return add_auxtrace(*auxtrace);
  scratch_.clear();
  if (!encode_record(payload, {context.sample_id, context.misc, true}, attr_of(context.attr_index), scratch_)) {
    return Error{ErrorCode::bad_option, "a record cannot be written to perf.data or is longer than 65,528 bytes", 0};
  }
  return add_raw(scratch_);
}

Status PerfWriter::add_mmap2(const MmapRecord& record, const RecordContext& context) { return add(record, context); }

Status PerfWriter::add_mmap(const MmapRecord& record, const RecordContext& context) {
  scratch_.clear();
  if (!encode_record(record, {context.sample_id, context.misc, false}, attr_of(context.attr_index), scratch_)) {
    return Error{ErrorCode::bad_option, "the path of a mapping is longer than a record", 0};
  }
  return add_raw(scratch_);
}

Status PerfWriter::add_auxtrace(const AuxtraceRecord& record, Bytes second_piece) {
  const size_t payload_bytes = record.payload.size() + second_piece.size();
  const size_t pad = (8 - payload_bytes % 8) % 8;
  AuxtraceRecord whole = record;
  whole.size_bytes = payload_bytes + pad;
  if (whole.reference == 0) whole.reference = 1;
  scratch_.clear();
  if (!encode_record(whole, {}, no_attr_, scratch_)) return Error{ErrorCode::invalid_argument, "an AUXTRACE record cannot be written", 0};
  if (Status status = add_raw(scratch_, record.payload); !status) return status;
  if (Status status = file_->append(second_piece); !status) return status;
  constexpr std::byte kZeros[8] = {};
  return file_->append(Bytes(kZeros).first(pad));
}

Status PerfWriter::add_id_index(const std::vector<IdIndexEntry>& entries) {
  constexpr size_t kMaxEntries = 2000;  // of 32 bytes, in a record of less than 64 KiB
  for (size_t from = 0; from < entries.size(); from += kMaxEntries) {
    const size_t count = std::min(kMaxEntries, entries.size() - from);
    std::vector<std::byte> record;
    ByteWriter out(record);
    out.u32(kRecordIdIndex).u16(0).u16(static_cast<uint16_t>(16 + 32 * count)).u64(count);
    for (size_t i = from; i < from + count; ++i) {
      out.u64(entries[i].id).u64(entries[i].idx).put(entries[i].cpu).put(entries[i].tid);
    }
    if (Status status = add_raw(record); !status) return status;
  }
  return {};
}

Status PerfWriter::add_finished_round() {
  std::vector<std::byte> record;
  ByteWriter(record).u32(kRecordFinishedRound).u16(0).u16(8);
  return add_raw(record);
}

Status PerfWriter::add_finished_init() {
  std::vector<std::byte> record;
  ByteWriter(record).u32(kRecordFinishedInit).u16(0).u16(8);
  return add_raw(record);
}

void PerfWriter::set_features(const Features& features) {
  for (auto& [bit, bytes] : encode_features(features, options_.attrs, attr_bytes_)) features_[bit] = std::move(bytes);
}

void PerfWriter::set_feature_bytes(uint32_t bit, Bytes bytes) {
  if (bit < kFeatureBits) features_[bit].assign(bytes.begin(), bytes.end());
}

Status PerfWriter::add_kcore_dir(const std::string& source_dir, const std::string& name) {
  if (!options_.directory) return Error{ErrorCode::contradictory_options, "only the directory form contains a " + name, 0};
  return copy_kcore_dir(source_dir, path_ + "/" + name);
}

Status copy_kcore_dir(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error)
    return Error{code_of_errno(error.value(), ErrorCode::write_failed), "cannot create the directory " + to + ": " + error.message(), 0};
  for (const char* file : {"kcore", "kallsyms", "modules"}) {
    const std::string source = from + "/" + file;
    if (!fs::exists(source, error)) continue;
    fs::copy_file(source, to + "/" + file, fs::copy_options::overwrite_existing, error);
    if (error)
      return Error{code_of_errno(error.value(), ErrorCode::write_failed), "cannot copy " + source + " to " + to + ": " + error.message(),
                   0};
  }
  return {};
}

Status PerfWriter::flush() {
  if (compressor_ != nullptr) {
    if (Status status = flush_compressed(); !status) return status;
  }
  return file_->flush();
}

Status PerfWriter::continue_from(uint64_t size_bytes) {
  finished_ = false;
  to_compress_.clear();
  if (Status status = file_->cut_at(size_bytes); !status) return status;
  if (options_.pipe) return {};
  index_.clear();
  constexpr size_t kPieceBytes = 1U << 20;
  std::vector<std::byte> piece;
  uint64_t piece_at = 0;
  for (uint64_t at = data_offset_; at < size_bytes;) {  // AUXTRACE records are between the others
    if (at < piece_at || at + kAuxtraceRecordBytes > piece_at + piece.size()) {
      piece = file_->read_back(at, kPieceBytes);
      piece_at = at;
    }
    const Bytes bytes = Bytes(piece).subspan(static_cast<size_t>(at - piece_at));
    if (bytes.size() < kRecordHeaderBytes) break;
    const RecordHeader head = read_record_header(bytes);
    if (head.size_bytes < kRecordHeaderBytes) break;
    const uint64_t start = at;
    at += head.size_bytes;
    if (head.type != kRecordAuxtrace) continue;
    index_.push_back({start, head.size_bytes});
    Cursor body(bytes.subspan(kRecordHeaderBytes));
    at += body.u64();
  }
  return {};
}

void PerfWriter::add_own_features() {
  if (!index_.empty()) features_[kFeatureAuxtrace] = encode_auxtrace_index(index_);
  if (options_.directory && features_.count(kFeatureDirFormat) == 0) ByteWriter(features_[kFeatureDirFormat]).u64(0);
  if (compressor_ != nullptr) {  // version, type zstd, level, ratio, ring size: more than any one COMPRESSED record expands to
    auto& section = features_[kFeatureCompressed];
    section.clear();
    ByteWriter(section).u32(0).u32(1).u32(static_cast<uint32_t>(options_.compression_level)).u32(1).u32(4 * kCompressAtBytes);
  }
}

/// The pipe form (tools/perf Documentation/perf.data-file-format.txt, "Pipe-mode data"): a short header, then what the file form keeps in
/// sections as records.
Status PerfWriter::write_pipe_start() {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.u64(kPerfMagic2).u64(kPipeHeaderBytes);
  for (const EventAttr& attr : options_.attrs) {
    const size_t size = kRecordHeaderBytes + attr_bytes_ + 8 * attr.ids.size();
    if (size > kMaxCompressedBytes) return Error{ErrorCode::contradictory_options, "too many events for the pipe form: write a file", 0};
    out.u32(kRecordHeaderAttr).u16(0).u16(static_cast<uint16_t>(size)).bytes(encode_attr(attr, attr_bytes_));
    for (const uint64_t id : attr.ids) out.u64(id);
  }
  for (const EventAttr& attr : options_.attrs) {
    constexpr uint64_t kName = 2;  // PERF_EVENT_UPDATE__NAME
    if (attr.ids.empty() || attr.name.empty()) continue;
    const size_t name_bytes = attr.name.size() + 8 - attr.name.size() % 8;
    out.u32(kRecordEventUpdate).u16(0).u16(static_cast<uint16_t>(kRecordHeaderBytes + 16 + name_bytes));
    out.u64(kName).u64(attr.ids.front()).text(attr.name, 8);
  }
  data_offset_ = bytes.size();
  if (Status status = file_->append(bytes); !status) return status;
  add_own_features();
  if (Status status = write_pipe_features(); !status) return status;
  features_.clear();
  return file_->flush();
}

Status PerfWriter::write_pipe_features() {
  for (const auto& [bit, section] : features_) {
    // The events are in separate records; an index and a form of directory are for files.
    if (bit == kFeatureEventDesc || bit == kFeatureAuxtrace || bit == kFeatureDirFormat) continue;
    const size_t padded = (section.size() + 7) / 8 * 8;
    if (padded + kRecordHeaderBytes + 8 > kMaxCompressedBytes) continue;  // perf has no form for it either
    std::vector<std::byte> record;
    ByteWriter out(record);
    out.u32(kRecordHeaderFeature).u16(0).u16(static_cast<uint16_t>(kRecordHeaderBytes + 8 + padded));
    out.u64(bit).bytes(section).zeros(padded - section.size());
    if (Status status = file_->append(record); !status) return status;
  }
  return {};
}

Status PerfWriter::write_features() {
  uint64_t at = file_->size_bytes() + 16 * features_.size();
  std::vector<std::byte> table;
  ByteWriter entries(table);
  for (const auto& [bit, section] : features_) {
    entries.u64(at).u64(section.size());
    at += section.size();
  }
  if (Status status = file_->append(table); !status) return status;
  for (const auto& [bit, section] : features_) {
    if (Status status = file_->append(section); !status) return status;
  }
  return file_->flush();
}

Status PerfWriter::finish() {
  if (finished_) return {};
  finished_ = true;
  if (compressor_ != nullptr) {
    if (Status status = flush_compressed(); !status) return status;
  }
  add_own_features();
  if (options_.pipe) {
    if (Status status = write_pipe_features(); !status) return status;
    return file_->close();
  }
  if (Status status = file_->flush(); !status) return status;
  const uint64_t data_end = file_->size_bytes(), data_size = data_end - data_offset_;
  const Status features = write_features();
  if (!features.ok()) {
    features_.clear();
    if (Status status = file_->cut_at(data_end); !status) return status;
  }
  if (Status status = file_->patch(0, header(data_size)); !status) return status;
  const Status closed = file_->close();
  return features.ok() ? closed : features;
}

}  // namespace ptd::perfio
