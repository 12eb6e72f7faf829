// Parses and joins the records of libptd-announce.
#include "perfio/announce/announcement.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "announce/ptd_announce.h"

namespace ptd {
namespace {

Error contradicts(const std::string& what) {
  return Error{ErrorCode::contradictory_record, "an announcement contradicts itself: " + what, 0};
}

bool is_code(AnnounceKind kind) { return kind <= AnnounceKind::patch; }

uint64_t data_bytes(const AnnounceRecord& record) {
  return uint64_t{record.name_bytes} + record.file_bytes + record.line_bytes + record.code_bytes;
}

// Returns what is wrong with the sizes and addresses; empty: nothing.
const char* fault_of(const AnnounceRecord& record) {
  const uint64_t total = data_bytes(record);
  if (total > PTD_ANNOUNCE_MAX_DATA_BYTES) return "it has more data than the limit";
  const uint64_t chunks = total == 0 ? 1 : (total + PTD_ANNOUNCE_CHUNK_BYTES - 1) / PTD_ANNOUNCE_CHUNK_BYTES;
  if (record.chunks != chunks || record.chunk >= chunks || record.chunk > record.seq) return "its chunks do not fit its data";
  const uint64_t want = record.chunk + 1 < chunks ? PTD_ANNOUNCE_CHUNK_BYTES : total - (chunks - 1) * PTD_ANNOUNCE_CHUNK_BYTES;
  if (record.data.size() != want) return "a chunk has another size than its place says";
  if (record.name_bytes > PTD_ANNOUNCE_MAX_NAME_BYTES || record.file_bytes > PTD_ANNOUNCE_MAX_NAME_BYTES) return "a name is too long";
  if (!is_code(record.kind)) return total != 0 ? "it has data" : nullptr;
  if (record.size_bytes == 0 || record.size_bytes > ~record.address) return "its range is empty or beyond the end of memory";
  if (is_kernel_half(Ip{record.address}) || is_kernel_half(Ip{record.address + (record.size_bytes - 1)}))
    return "its range is the kernel's";
  const bool moves = record.kind == AnnounceKind::move;
  if (moves && record.size_bytes > ~record.old_address) return "its old range is beyond the end of memory";
  if (moves && (is_kernel_half(Ip{record.old_address}) || is_kernel_half(Ip{record.old_address + (record.size_bytes - 1)})))
    return "its old range is the kernel's";
  if (record.code_bytes != 0 && record.code_bytes != record.size_bytes) return "it has fewer or more bytes than its range";
  return nullptr;
}

std::string text_at(const std::vector<std::byte>& data, size_t from, size_t size) {
  return {reinterpret_cast<const char*>(data.data()) + from, size};
}

}  // namespace

Result<AnnounceRecord> parse_announce_record(Bytes record) {
  ptd_announce_record raw;
  if (record.size() < sizeof raw.version) return contradicts("it is shorter than its version");
  std::memcpy(&raw.version, record.data(), sizeof raw.version);
  if (raw.version != PTD_ANNOUNCE_VERSION)
    return Error{ErrorCode::unsupported_version,
                 "announcements in version " + std::to_string(raw.version) + " of the format; this program knows version " +
                     std::to_string(PTD_ANNOUNCE_VERSION),
                 0};
  if (record.size() < sizeof raw) return contradicts("it is shorter than a record");
  std::memcpy(&raw, record.data(), sizeof raw);
  AnnounceRecord out;
  out.kind = static_cast<AnnounceKind>(raw.kind);
  if (raw.kind < PTD_ANNOUNCE_LOAD || raw.kind > PTD_ANNOUNCE_DETACH) return contradicts("its kind is unknown");
  if (raw.phase != PTD_ANNOUNCE_BEGIN && raw.phase != PTD_ANNOUNCE_END) return contradicts("its phase is unknown");
  out.begin = raw.phase == PTD_ANNOUNCE_BEGIN;
  out.relisted = (raw.flags & PTD_ANNOUNCE_RELISTED) != 0;
  out.unwatched = (raw.flags & PTD_ANNOUNCE_UNWATCHED) != 0;
  out.instance = raw.instance;
  out.seq = raw.seq;
  out.mono_ns = raw.mono_ns;
  out.ticks = raw.ticks;
  out.address = raw.address;
  out.old_address = raw.old_address;
  out.size_bytes = raw.size;
  out.name_bytes = raw.name_bytes;
  out.file_bytes = raw.file_bytes;
  out.line_bytes = raw.line_bytes;
  out.code_bytes = raw.code_bytes;
  out.chunk = raw.chunk;
  out.chunks = raw.chunks;
  out.pid = raw.pid;
  out.tid = raw.tid;
  out.runtime = raw.runtime;
  const uint64_t data = raw.data_loc >> 16;
  if ((raw.data_loc & 0xffff) != 0 || data > record.size() - sizeof raw) return contradicts("its data is beyond its end");
  out.data = record.subspan(sizeof raw, data);
  if (const char* fault = fault_of(out)) return contradicts(fault);
  return out;
}

std::vector<std::byte> encode_reader_record(AnnounceKind kind, uint64_t instance, uint64_t seq) {
  ptd_announce_record raw{};
  raw.version = PTD_ANNOUNCE_VERSION;
  raw.kind = static_cast<uint8_t>(kind);
  raw.phase = PTD_ANNOUNCE_END;
  raw.instance = instance;
  raw.size = seq;
  raw.chunks = 1;
  std::vector<std::byte> bytes(sizeof raw);
  std::memcpy(bytes.data(), &raw, sizeof raw);
  return bytes;
}

std::vector<std::vector<std::byte>> encode_announcement(const Announcement& what, uint64_t instance) {
  std::vector<std::byte> data;
  const auto add = [&data](Bytes part) { data.insert(data.end(), part.begin(), part.end()); };
  add(std::as_bytes(std::span(what.name)));
  add(std::as_bytes(std::span(what.file)));
  add(std::as_bytes(std::span(what.lines)));
  add(what.code);
  ptd_announce_record raw{};
  raw.version = PTD_ANNOUNCE_VERSION;
  raw.kind = static_cast<uint8_t>(what.kind);
  raw.phase = what.begin ? PTD_ANNOUNCE_BEGIN : PTD_ANNOUNCE_END;
  raw.flags = static_cast<uint16_t>((what.relisted ? PTD_ANNOUNCE_RELISTED : 0) | (what.unwatched ? PTD_ANNOUNCE_UNWATCHED : 0));
  raw.instance = instance;
  raw.seq = what.seq;
  raw.address = what.address;
  raw.old_address = what.old_address;
  raw.size = what.size_bytes;
  raw.name_bytes = static_cast<uint32_t>(what.name.size());
  raw.file_bytes = static_cast<uint32_t>(what.file.size());
  raw.line_bytes = static_cast<uint32_t>(what.lines.size() * sizeof(AnnounceLine));
  raw.code_bytes = static_cast<uint32_t>(what.code.size());
  raw.runtime = what.runtime;
  raw.chunks = static_cast<uint32_t>(std::max<size_t>((data.size() + PTD_ANNOUNCE_CHUNK_BYTES - 1) / PTD_ANNOUNCE_CHUNK_BYTES, 1));
  std::vector<std::vector<std::byte>> records;
  for (; raw.chunk < raw.chunks; ++raw.chunk, ++raw.seq) {
    const size_t at = size_t{raw.chunk} * PTD_ANNOUNCE_CHUNK_BYTES;
    const Bytes part = Bytes(data).subspan(at, std::min<size_t>(PTD_ANNOUNCE_CHUNK_BYTES, data.size() - at));
    raw.data_loc = static_cast<uint32_t>(part.size() << 16);
    std::vector<std::byte>& record = records.emplace_back(sizeof raw);
    std::memcpy(record.data(), &raw, sizeof raw);
    record.insert(record.end(), part.begin(), part.end());
  }
  return records;
}

void shift_numbers(std::vector<std::byte>& record, uint64_t by) {
  ptd_announce_record raw;
  if (record.size() < sizeof raw) return;
  std::memcpy(&raw, record.data(), sizeof raw);
  if (raw.version != PTD_ANNOUNCE_VERSION) return;
  if (raw.kind == PTD_ANNOUNCE_DETACH && raw.size == 0) return;  // no reader listened
  (raw.kind == PTD_ANNOUNCE_ATTACH || raw.kind == PTD_ANNOUNCE_DETACH ? raw.size : raw.seq) += by;
  std::memcpy(record.data(), &raw, sizeof raw);
}

void AnnounceJoiner::add(const AnnounceRecord& record, TimeNs time, uint64_t offset_bytes) {
  if (record.kind == AnnounceKind::attach || record.kind == AnnounceKind::detach) {
    if (readers_.size() < kMostReaders) readers_.push_back({time, record.kind, record.size_bytes});
  } else {
    const auto [place, is_new] = pieces_.try_emplace(record.seq);
    if (!is_new) return;
    place->second = {record, time, {record.data.begin(), record.data.end()}, offset_bytes};
    place->second.record.data = {};
  }
}

// Joins the chunks from `at` on, and moves past them. False: some are missing, or belong to something else.
bool AnnounceJoiner::join(std::map<uint64_t, Piece>::iterator& at, AnnounceHistory& history) const {
  const AnnounceRecord head = at->second.record;
  Announcement out;
  out.time = {at->second.time, at->second.time};
  out.record_offset_bytes = at->second.offset_bytes;
  std::vector<std::byte> data;
  bool whole = head.chunk == 0;
  const uint64_t first = head.seq - head.chunk;  // of the announcement
  uint32_t next = head.chunk;
  for (; at != pieces_.end() && next < head.chunks; ++at, ++next) {
    const auto& [record, time, bytes, offset] = at->second;
    if (record.seq != first + next || record.chunk != next || record.chunks != head.chunks || record.address != head.address ||
        record.kind != head.kind || record.code_bytes != head.code_bytes || data_bytes(record) != data_bytes(head))
      break;
    data.insert(data.end(), bytes.begin(), bytes.end());
    out.time = hull(out.time, {time, time});
  }
  whole = whole && next == head.chunks && data.size() == data_bytes(head);
  if (!whole) return false;
  out.kind = head.kind;
  out.begin = head.begin;
  out.relisted = head.relisted;
  out.unwatched = head.unwatched;
  out.seq = first;
  out.address = head.address;
  out.old_address = head.old_address;
  out.size_bytes = head.size_bytes;
  out.runtime = head.runtime;
  out.name = text_at(data, 0, head.name_bytes);
  out.file = text_at(data, head.name_bytes, head.file_bytes);
  out.lines.resize(head.line_bytes / sizeof(AnnounceLine));
  if (!out.lines.empty())
    std::memcpy(out.lines.data(), data.data() + head.name_bytes + head.file_bytes, out.lines.size() * sizeof(AnnounceLine));
  out.code.assign(data.end() - static_cast<std::ptrdiff_t>(head.code_bytes), data.end());
  history.announcements.push_back(std::move(out));
  return true;
}

// Between the end of a reader and the next one, changes had no numbers.
void AnnounceJoiner::add_unheard(AnnounceHistory& history) const {
  for (size_t i = 1; i < readers_.size(); ++i) {
    const Reader &before = readers_[i - 1], &after = readers_[i];
    if (before.kind != AnnounceKind::detach || after.kind != AnnounceKind::attach) continue;
    history.gaps.push_back({std::max(before.seq, after.seq), 0, {before.time, after.time}});  // a reader of the whole ring says 0
  }
  std::stable_sort(history.gaps.begin(), history.gaps.end(),
                   [](const AnnounceGap& a, const AnnounceGap& b) { return a.first_seq < b.first_seq; });
}

AnnounceHistory AnnounceJoiner::finish() {
  AnnounceHistory history;
  std::stable_sort(readers_.begin(), readers_.end(), [](const Reader& a, const Reader& b) { return a.time < b.time; });
  const auto attach =
      std::find_if(readers_.begin(), readers_.end(), [](const Reader& reader) { return reader.kind == AnnounceKind::attach; });
  history.attached = attach != readers_.end();
  if (history.attached) history.attached_at = attach->time;
  // Without a reader's record, what came before the first number was for somebody else.
  uint64_t next = history.attached ? attach->seq : pieces_.empty() ? 0 : pieces_.begin()->first;
  TimeNs told = kTimeMin;  // the first ones may be older than the reader
  const auto add_gap = [&](uint64_t end, TimeNs until) {
    AnnounceGap* open = history.gaps.empty() ? nullptr : &history.gaps.back();
    if (open != nullptr && open->first_seq + open->count == next) {  // one gap, with parts of announcements in it
      open->count += end - next;
      open->time.last = std::max(open->time.last, until);
    } else {
      history.gaps.push_back({next, end - next, {std::min(told, until), std::max(told, until)}});
    }
  };
  for (auto at = pieces_.begin(); at != pieces_.end();) {
    const uint64_t seq = at->first;
    const TimeNs time = at->second.time;
    if (seq > next) add_gap(seq, time);
    next = std::max(next, seq);
    const auto begin = at;
    const bool whole = join(at, history);
    if (at == begin) ++at;
    const uint64_t end = std::prev(at)->first + 1;
    if (!whole) add_gap(end, std::max(time, at == pieces_.end() ? std::prev(at)->second.time : at->second.time));
    if (whole) told = std::max(told, std::prev(at)->second.time);
    next = end;
  }
  uint64_t given_out = 0;
  for (const Reader& reader : readers_) given_out = std::max(given_out, reader.kind == AnnounceKind::detach ? reader.seq : 0);
  const bool unread = !history.attached && !readers_.empty() && pieces_.empty() && given_out == 0;
  if (given_out > next) add_gap(given_out, kTimeMax);
  if (unread) history.gaps.push_back({0, 0, {kTimeMin, kTimeMax}});
  add_unheard(history);
  pieces_.clear();
  return history;
}

}  // namespace ptd
