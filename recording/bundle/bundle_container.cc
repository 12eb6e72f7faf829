// Header, chunks, checksums.
#include "recording/bundle/bundle_container.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "image/base/fnv.h"
#include "image/base/interrupt.h"
#include "perfio/zstd_stream.h"

namespace ptd {
namespace {

constexpr uint64_t kHeaderBytes = 16, kChunkHeaderBytes = 32;
constexpr uint64_t kEndBytes = 12, kEndBytesV1 = 4;  // of the chunk `END `
constexpr uint32_t kStored = 0, kZstd = 1;
constexpr int kBestLevel = 19, kFastLevel = 9, kFastestLevel = 1;
constexpr uint64_t kSmallBytes = 8ULL << 20;  // what the best level does in a few seconds

template <class T>
void put(std::byte* at, T value) {
  for (size_t i = 0; i < sizeof value; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
T get(Bytes bytes, uint64_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) value |= static_cast<T>(static_cast<T>(bytes[at + i]) << (8 * i));
  return value;
}

struct ChunkHeader {
  std::string type;
  uint32_t method = kStored;
  uint64_t stored_bytes = 0, raw_bytes = 0, checksum = 0;
};

std::array<std::byte, kChunkHeaderBytes> encode(const ChunkHeader& header) {
  std::array<std::byte, kChunkHeaderBytes> bytes{};
  std::memcpy(bytes.data(), header.type.data(), 4);
  put(bytes.data() + 4, header.method);
  put(bytes.data() + 8, header.stored_bytes);
  put(bytes.data() + 16, header.raw_bytes);
  put(bytes.data() + 24, header.checksum);
  return bytes;
}

ChunkHeader decode(Bytes bytes) {
  ChunkHeader header;
  header.type.assign(reinterpret_cast<const char*>(bytes.data()), 4);
  header.method = get<uint32_t>(bytes, 4);
  header.stored_bytes = get<uint64_t>(bytes, 8);
  header.raw_bytes = get<uint64_t>(bytes, 16);
  header.checksum = get<uint64_t>(bytes, 24);
  return header;
}

bool is_known(std::string_view type) {
  constexpr std::array kKnown = {chunk::kInfo,        chunk::kConfig,     chunk::kStreams, chunk::kAux,          chunk::kContexts,
                                 chunk::kNotes,       chunk::kImage,      chunk::kCode,    chunk::kLines,        chunk::kSymbols,
                                 chunk::kPokes,       chunk::kSpans,      chunk::kArm,     chunk::kGuests,       chunk::kEvents,
                                 chunk::kEventNames,  chunk::kOrigin,     chunk::kWindows, chunk::kSymbolPlaces, chunk::kAliases,
                                 chunk::kRangePlaces, chunk::kRangeLines, chunk::kFrames,  chunk::kSites,        chunk::kGivenComms,
                                 chunk::kLeaves,      chunk::kPlan,       chunk::kIndex,   chunk::kEnd};
  return std::find(kKnown.begin(), kKnown.end(), type) != kKnown.end();
}

/// `most`: of the content, if it is compressed.
Result<std::vector<std::byte>> content_of(const ChunkHeader& header, Bytes stored, uint64_t most) {
  if (hash_of_chunk(stored) != header.checksum) return Error{ErrorCode::bad_checksum, "its bytes do not match their checksum", 0};
  if (header.method == kStored) {
    if (header.raw_bytes != header.stored_bytes) return Error{ErrorCode::contradictory_record, "its sizes contradict each other", 0};
    return std::vector<std::byte>(stored.begin(), stored.end());
  }
  if (header.method != kZstd) return Error{ErrorCode::unsupported_compression, "it is compressed in an unknown way", 0};
  if (header.raw_bytes > perfio::zstd_expansion_limit(header.stored_bytes))
    return Error{ErrorCode::contradictory_record, "its expanded size is above the limit", 0};
  if (header.raw_bytes > most) {
    return Error{ErrorCode::contradictory_record,
                 "with it, the content of the bundle is above the limit of " + std::to_string(kFreeContentBytes >> 20) + " MiB and " +
                     std::to_string(kContentGrowth) + " bytes for each byte of the file",
                 0};
  }
  return perfio::zstd_decompress(stored, header.raw_bytes);
}

}  // namespace

uint64_t hash_of_chunk(Bytes bytes) {
  uint64_t hash = kFnvStart;
  while (!bytes.empty()) {
    constexpr size_t kPieceBytes = 4U << 20;
    check_interrupt();
    const Bytes piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    hash = fnv1a(piece, hash);
    bytes = bytes.subspan(piece.size());
  }
  return hash;
}

Result<std::unique_ptr<BundleFileWriter>> BundleFileWriter::measure() {
  std::unique_ptr<BundleFileWriter> writer(new BundleFileWriter());
  writer->size_bytes_ = kHeaderBytes;
  return writer;
}

Status BundleFileWriter::append(Bytes bytes) {
  size_bytes_ += bytes.size();
  return file_ ? file_->append(bytes) : Status();
}

Result<std::unique_ptr<BundleFileWriter>> BundleFileWriter::create(const std::string& path) {
  std::unique_ptr<BundleFileWriter> writer(new BundleFileWriter());
  if (path == "-") return Error{ErrorCode::bad_output, "a bundle is written to a file, not to standard output", 0};
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    return Error{ErrorCode::not_regular_file, "cannot write " + path + ": it exists and is not a regular file", 0};
  auto whole = WholeFile::open(path, {0600, FileKind::bundle});  // it holds code of processes
  if (!whole) return whole.error();
  writer->whole_ = std::move(*whole);
  auto file = perfio::OutputFile::on_descriptor(writer->whole_->fd(), path, writer->whole_->straight());
  if (!file.ok()) return file.error();
  writer->file_ = std::move(file).value();
  std::array<std::byte, kHeaderBytes> header{};
  std::memcpy(header.data(), kBundleMagic.data(), kBundleMagic.size());
  put(header.data() + 8, kBundleVersion);
  if (Status status = writer->append(header); !status.ok()) return status.error();
  return writer;
}

Status BundleFileWriter::add(std::string_view type, Bytes content) {
  ChunkHeader header;
  header.type = type;
  header.raw_bytes = content.size();
  const std::vector<std::byte> small = perfio::zstd_compress(content, fast_                           ? kFastestLevel
                                                                      : content.size() <= kSmallBytes ? kBestLevel
                                                                                                      : kFastLevel);
  const uint64_t plain = std::min<uint64_t>(content.size(), kContentGrowth * small.size()),
                 beyond = type == chunk::kAux ? 0 : content.size() - plain;
  const bool compressed = !small.empty() && small.size() < content.size() && content.size() <= perfio::zstd_expansion_limit(small.size()) &&
                          beyond <= free_bytes_;
  if (compressed) free_bytes_ -= beyond;
  const Bytes stored = compressed ? Bytes(small) : content;
  header.method = compressed ? kZstd : kStored;
  header.stored_bytes = stored.size();
  header.checksum = hash_of_chunk(stored);
  ++chunks_;
  raw_bytes_ += content.size();
  const auto encoded = encode(header);
  header_hash_ = fnv1a(encoded, header_hash_);
  if (Status status = append(encoded); !status.ok()) return status;
  return append(stored);
}

Status BundleFileWriter::finish() {
  std::array<std::byte, kEndBytes> end{};
  put(end.data(), chunks_);
  put(end.data() + sizeof chunks_, header_hash_);
  if (Status status = add(chunk::kEnd, end); !status.ok()) return status;
  if (!file_) return {};
  if (Status status = file_->close(); !status.ok()) return status;
  if (Status status = check(); !status.ok()) return status;
  return whole_->finish();
}

// Not with a MappedFile: what is written is not an input.
Status BundleFileWriter::check() const {
  if (whole_->straight()) return {};
  void* const memory = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_PRIVATE, whole_->fd(), 0);
  if (memory == MAP_FAILED) return Error{ErrorCode::read_failed, "cannot read what was written of the bundle", 0};
  const Status status = check_bundle({static_cast<const std::byte*>(memory), size_bytes_});
  ::munmap(memory, size_bytes_);
  if (status.ok()) return {};
  return Error{status.error().code, "not written, because it could not be read (please report it): " + status.error().message, 0};
}

Result<BundleChunks> read_bundle_chunks(Bytes file, const std::string& path) {
  if (file.size() < kHeaderBytes) return Error{ErrorCode::truncated_header, path + ": the bundle ends inside its header", file.size()};
  if (std::memcmp(file.data(), kBundleMagic.data(), kBundleMagic.size()) != 0)
    return Error{ErrorCode::bad_magic, path + ": not a bundle", 0};
  const auto version = get<uint32_t>(file, 8);
  if (version == 0 || version > kBundleVersion) {
    return Error{ErrorCode::unsupported_version,
                 path + ": a bundle of version " + std::to_string(version) + ", this program reads up to " + std::to_string(kBundleVersion),
                 8};
  }
  if (get<uint32_t>(file, 12) != 0) return Error{ErrorCode::contradictory_record, path + ": the header of the bundle is damaged", 12};
  BundleChunks chunks;
  std::set<std::string> skipped;
  uint64_t left_bytes = kFreeContentBytes + kContentGrowth * file.size();
  uint32_t count = 0;
  uint64_t header_hash = kFnvStart;
  for (uint64_t at = kHeaderBytes;; ++count) {
    if (file.size() - at < kChunkHeaderBytes) return Error{ErrorCode::truncated, path + ": the bundle is truncated", file.size()};
    const ChunkHeader header = decode(file.subspan(at, kChunkHeaderBytes));
    const std::string what = path + ": part '" + (is_known(header.type) ? header.type : std::string("?")) + "' of the bundle: ";
    if (header.stored_bytes > file.size() - at - kChunkHeaderBytes)
      return Error{ErrorCode::truncated, what + "the file ends inside it", at};
    const Bytes stored = file.subspan(at + kChunkHeaderBytes, header.stored_bytes);
    if (!is_known(header.type)) {
      const bool optional = header.type[0] >= 'a' && header.type[0] <= 'z';
      if (!optional) return Error{ErrorCode::unsupported_version, what + "unknown type, and the bundle cannot be read without it", at};
      if (!skipped.emplace(header.type).second) return Error{ErrorCode::contradictory_record, what + "it occurs twice", at};
    } else {
      const bool is_trace = header.type == chunk::kAux;
      auto content = content_of(header, stored, is_trace ? ~uint64_t{0} : left_bytes);
      if (!content.ok()) return Error{content.error().code, what + content.error().message, at};
      if (header.method == kZstd && !is_trace) left_bytes -= content->size();
      if (header.type == chunk::kEnd) {
        if (content->size() != (version == 1 ? kEndBytesV1 : kEndBytes) || get<uint32_t>(*content, 0) != count)
          return Error{ErrorCode::missing_part, what + "parts are missing", at};
        if (version != 1 && get<uint64_t>(*content, sizeof count) != header_hash)
          return Error{ErrorCode::bad_checksum, what + "the headers of the parts do not match their checksum", at};
        if (file.size() - at != kChunkHeaderBytes + header.stored_bytes)
          return Error{ErrorCode::contradictory_record, what + "the file goes on after it", at};
        return chunks;
      }
      if (!chunks.emplace(header.type, std::move(content).value()).second)
        return Error{ErrorCode::contradictory_record, what + "it occurs twice", at};
    }
    header_hash = fnv1a(file.subspan(at, kChunkHeaderBytes), header_hash);
    at += kChunkHeaderBytes + header.stored_bytes;
  }
}

uint64_t hash_of_bundle(Bytes file) {
  uint64_t hash = kFnvStart;
  for (uint64_t at = kHeaderBytes; at <= file.size() && file.size() - at >= kChunkHeaderBytes;) {
    const Bytes header = file.subspan(at, kChunkHeaderBytes);
    hash = fnv1a(header, hash);
    at += kChunkHeaderBytes + decode(header).stored_bytes;
  }
  return hash;
}

}  // namespace ptd
