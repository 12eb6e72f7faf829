// perf_file_header, attrs and feature table (tools/perf Documentation/perf.data-file-format.txt).
#include "perfio/file_header.h"

#include <algorithm>
#include <array>
#include <bit>

#include "perfio/damage_log.h"
#include "perfio/format/features.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::perfio {
namespace {

constexpr uint64_t kSectionBytes = 16;

/// perf_file_section, clipped to the file.
Bytes section_of(Bytes file, uint64_t offset, uint64_t size) {
  if (offset >= file.size()) return {};
  return file.subspan(static_cast<size_t>(offset), static_cast<size_t>(std::min<uint64_t>(size, file.size() - offset)));
}

struct Header {
  uint64_t size = 0, attr_size = 0, attrs_offset = 0, attrs_size = 0, data_offset = 0, data_size = 0;
  std::array<uint64_t, 4> features{};
};

Header parse_header(Bytes file) {
  Cursor in(file);
  in.skip(8);
  Header header;
  header.size = in.u64();
  header.attr_size = in.u64();
  header.attrs_offset = in.u64();
  header.attrs_size = in.u64();
  header.data_offset = in.u64();
  header.data_size = in.u64();
  in.skip(kSectionBytes);  // event_types
  for (uint64_t& word : header.features) word = in.u64();
  return header;
}

void read_attrs(Bytes file, const Header& header, FileLayout& out, ReadDamage& damage) {
  if (header.attr_size < 64 + kSectionBytes || header.attr_size > 4096) {
    if (header.attrs_size != 0)
      add_header_cut(damage, file.size(), 16, "the events have an impossible size of " + std::to_string(header.attr_size) + " bytes");
    return;
  }
  Bytes rest = section_of(file, header.attrs_offset, header.attrs_size);
  if (rest.size() < header.attrs_size) add_cut(damage, header.attrs_offset, "the file ends inside the events", file.size());
  uint64_t ids_left = file.size() / 8;  // the lists do not overlap, so together they are no longer than the file
  while (rest.size() >= header.attr_size && out.attrs.size() < kMaxAttrs) {
    EventAttr attr;
    const auto raw_bytes = static_cast<size_t>(header.attr_size - kSectionBytes);
    if (!parse_attr(rest.first(raw_bytes), attr)) break;
    Cursor in(rest.subspan(raw_bytes, kSectionBytes));
    const uint64_t ids_offset = in.u64();
    Cursor ids(section_of(file, ids_offset, in.u64()));
    const uint64_t id_count = ids.remaining() / 8;
    if (id_count > ids_left) {
      add_header_cut(damage, file.size(), ids_offset, "the events' lists of ids overlap");
      break;
    }
    ids_left -= id_count;
    attr.ids.reserve(static_cast<size_t>(id_count));
    while (ids.remaining() >= 8) attr.ids.push_back(ids.u64());
    out.attrs.push_back(std::move(attr));
    rest = rest.subspan(static_cast<size_t>(header.attr_size));
  }
}

void read_features(Bytes file, const Header& header, FileLayout& out, ReadDamage& damage) {
  const uint64_t table = header.data_offset + header.data_size;
  if (table < header.data_offset) return;
  uint64_t at = table;
  for (uint32_t bit = 0; bit < kFeatureBits; ++bit) {
    if ((header.features[bit / 64] >> (bit % 64) & 1) == 0) continue;
    const Bytes entry = section_of(file, at, kSectionBytes);
    if (entry.size() < kSectionBytes) {
      add_cut(damage, std::min<uint64_t>(at, file.size()), "the file ends before its feature sections", file.size());
      return;
    }
    at += kSectionBytes;
    Cursor in(entry);
    const uint64_t offset = in.u64();
    const uint64_t size = in.u64();
    const Bytes bytes = section_of(file, offset, size);
    if (bytes.size() < size) add_cut(damage, offset, "feature section " + std::to_string(bit) + " lies outside the file", file.size());
    out.features.raw.push_back({bit, bytes});
    if (bit == kFeatureTracingData) out.tracing_data = bytes;
    if (!parse_feature(bit, bytes, out.features, out.attrs)) {
      add_damage_message(damage, "feature section " + std::to_string(bit) + " at offset " + std::to_string(offset) + " contradicts itself");
    }
  }
}

/// With a data size of 0: is this a finished recording without any record? Then the feature table is where the records would be, and its
/// first section follows it directly. In an unfinished file a record is there.
bool has_feature_table(Bytes file, const Header& header) {
  uint64_t count = 0;
  for (const uint64_t word : header.features) count += static_cast<uint64_t>(std::popcount(word));
  Cursor in(section_of(file, header.data_offset, kSectionBytes));
  return count != 0 && in.u64() == header.data_offset + count * kSectionBytes && in.ok();
}

/// Records follow the events in all files that perf writes: there they are looked for if the offset in the header cannot be that of
/// records.
void repair_data_offset(Bytes file, Header& header, ReadDamage& damage) {
  const bool in_file = header.data_offset >= kFileHeaderBytes && header.data_offset < file.size();
  if (in_file || file.size() <= kFileHeaderBytes || header.data_offset == file.size()) return;
  const uint64_t after = header.attrs_offset + header.attrs_size;
  if (after < header.attrs_offset || after < kFileHeaderBytes || after >= file.size()) return;
  add_damage_message(damage, "the file header has an impossible data offset of " + std::to_string(header.data_offset) +
                                 "; records are read from byte " + std::to_string(after) + " on");
  header.data_offset = after;
}

}  // namespace

Result<FileLayout> read_file_header(Bytes file, const std::string& path, ReadDamage& damage) {
  if (file.size() < kPipeHeaderBytes) {
    const ErrorCode code = file.empty() ? ErrorCode::empty_file : ErrorCode::truncated_header;
    return Error{code, path + (file.empty() ? " is empty, too short for a perf.data file" : " is too short for a perf.data file"),
                 file.size()};
  }
  Cursor in(file);
  const uint64_t magic = in.u64();
  const uint64_t size = in.u64();
  if (magic == kPerfMagic2Swapped) return Error{ErrorCode::unsupported_byte_order, path + " was recorded on a big-endian machine", 0};
  if (magic == kPerfMagic1)
    return Error{ErrorCode::unsupported_version, path + " has the perf.data format from before 2009 (version 1)", 0};
  if (magic != kPerfMagic2) return Error{ErrorCode::unknown_format, path + " is not a perf.data file (it does not begin with PERFILE2)", 0};

  FileLayout out;
  if (size == kPipeHeaderBytes) {
    out.pipe = true;
    out.data_begin = kPipeHeaderBytes;
    out.data_end = file.size();
    return out;
  }
  if (size < kFileHeaderBytes) return Error{ErrorCode::bad_header, path + " has a header of impossible size " + std::to_string(size), 8};
  if (file.size() < kFileHeaderBytes) return Error{ErrorCode::truncated_header, path + " ends inside its header", file.size()};
  Header header = parse_header(file);
  read_attrs(file, header, out, damage);
  repair_data_offset(file, header, damage);
  out.data_begin = std::min<uint64_t>(header.data_offset, file.size());
  if (header.data_size < kRecordHeaderBytes && !has_feature_table(file, header)) {
    out.data_end = file.size();
    const std::string data_size = std::to_string(header.data_size);
    damage.unfinished = header.data_size == 0 && out.data_end > out.data_begin;
    if (out.data_end > out.data_begin)
      add_header_cut(damage, file.size(), 48,
                     header.data_size == 0
                         ? "the recorder did not finish the file (data size 0)"
                         : "the file header has an impossible data size of " + data_size + " bytes; records are read up to the end");
    return out;
  }
  const uint64_t left = file.size() - out.data_begin;
  out.data_end = out.data_begin + std::min(header.data_size, left);
  if (header.data_size > left) add_cut(damage, file.size(), "the file ends inside its records");
  read_features(file, header, out, damage);
  return out;
}

}  // namespace ptd::perfio
