// StateFold: see state_fold.h.
#include "capture/live/session/state_fold.h"

#include <algorithm>
#include <cstring>

#include "perfio/format/features.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

std::vector<std::byte> copy_of(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

/// The same COMM or MMAP2 of another thread: both begin with pid and tid. It has not called exec itself.
std::vector<std::byte> renamed(std::vector<std::byte> record, int32_t pid, int32_t tid) {
  if (record.size() < kRecordHeaderBytes + 8) return record;
  RecordHeader header = read_record_header(record);
  if (header.type == kRecordComm) header.misc &= static_cast<uint16_t>(~kMiscCommExec);
  std::memcpy(record.data() + sizeof(header.type), &header.misc, sizeof(header.misc));
  std::memcpy(record.data() + kRecordHeaderBytes, &pid, sizeof(pid));
  std::memcpy(record.data() + kRecordHeaderBytes + 4, &tid, sizeof(tid));
  return record;
}

/// Whether all bytes of a KSYMBOL are of its code. The records of trampolines and dispatchers of BPF say a page, which may hold others.
bool owns_all(uint16_t type, std::string_view name) {
  constexpr uint16_t kOutOfLine = 2;
  return type == kOutOfLine || name.starts_with("bpf_prog_");
}

}  // namespace

void StateFold::take(const LogEntry& entry) {
  if (entry.kind == EntryKind::record) return take_record(entry);
  if (entry.kind == EntryKind::code) return take_code(entry);
  if (entry.kind == EntryKind::announcement) return take_announcement(entry);
  Features features;
  std::vector<EventAttr> no_attrs;
  if (!parse_feature(kFeatureBpfProgInfo, entry.bytes, features, no_attrs) || features.bpf_progs.empty()) return;
  programs_[features.bpf_progs.front().id].section = copy_of(entry.bytes);
}

void StateFold::take_record(const LogEntry& entry) {
  const Bytes record = entry.bytes;
  if (record.size() < kRecordHeaderBytes + 8) return;
  const RecordHeader header = read_record_header(record);
  Cursor body(record.subspan(kRecordHeaderBytes));
  switch (header.type) {
    case kRecordFork:
    case kRecordExit:
      return take_task(record, entry.ring, header.type == kRecordExit);
    case kRecordMmap2:
      return take_map(record, entry.ring);
    case kRecordComm: {
      const int32_t pid = body.i32(), tid = body.i32();
      Process& process = processes_[pid];
      process.ring = entry.ring;
      if ((header.misc & kMiscCommExec) != 0) {  // exec: only this thread is left, of the old image nothing
        process.maps.clear();
        process.names.clear();
        announced_.erase(pid);
      }
      process.names[tid] = copy_of(record);
      return;
    }
    case kRecordNamespaces:
      processes_[body.i32()].namespaces = copy_of(record);
      return;
    case kRecordKsymbol:
    case kRecordBpfEvent:
      return take_kernel(record, entry.ring);
    case kRecordTextPoke:
      return pokes_.take(record, entry.ring);
    case kRecordLost:
    case kRecordLostSamples:
      return losses_.take(record, entry.ring);
    case kRecordSwitch:
    case kRecordSwitchCpuWide:
      switches_[entry.ring] = copy_of(record);
      return;
    case kRecordAuxOutputHwId:
      hardware_ids_[entry.ring] = copy_of(record);
      return;
    default:
      return;
  }
}

void StateFold::take_task(Bytes record, uint16_t ring, bool exit) {
  Cursor body(record.subspan(kRecordHeaderBytes));
  const int32_t pid = body.i32(), parent = body.i32(), tid = body.i32(), parent_tid = body.i32();
  if (!body.ok()) return;
  if (exit) {
    const auto process = processes_.find(pid);
    if (process == processes_.end()) return;
    process->second.names.erase(tid);
    if (!process->second.names.empty()) return;
    processes_.erase(process);
    announced_.erase(pid);
    return;
  }
  std::vector<std::byte> name;
  const auto from = processes_.find(parent);
  if (from != processes_.end()) {
    const auto known = from->second.names.find(parent_tid);
    if (known != from->second.names.end() && !known->second.empty()) name = renamed(known->second, pid, tid);
  }
  if (pid != parent) {  // a new process: the EXIT of one with this number may be lost
    processes_.erase(pid);
    announced_.erase(pid);
  }
  Process& process = processes_[pid];
  process.ring = ring;
  if (pid != parent && from != processes_.end()) {
    process.maps = from->second.maps;
    for (Map& map : process.maps) map.record = renamed(std::move(map.record), pid, pid);
    if (const auto code = announced_.find(parent);
        code != announced_.end() && code->second.size_bytes() <= kMaxForkedBytes - forked_bytes_) {
      forked_bytes_ += code->second.size_bytes();
      announced_.insert_or_assign(pid, code->second);
    }
  }
  process.names[tid] = std::move(name);
}

void StateFold::take_map(Bytes record, uint16_t ring) {
  Cursor body(record.subspan(kRecordHeaderBytes));
  const int32_t pid = body.i32(), tid = body.i32();
  Map map{body.u64(), body.u64(), copy_of(record)};
  if (!body.ok()) return;
  Process& process = processes_[pid];
  process.ring = ring;
  process.names.try_emplace(tid);
  const uint64_t last = map.address + map.size_bytes;
  std::erase_if(process.maps, [&](const Map& old) { return old.address >= map.address && old.address + old.size_bytes <= last; });
  if (process.maps.size() >= kMaxMaps) process.maps.erase(process.maps.begin());
  process.maps.push_back(std::move(map));
}

void StateFold::take_kernel(Bytes record, uint16_t ring) {
  Cursor body(record.subspan(kRecordHeaderBytes));
  if (read_record_header(record).type == kRecordKsymbol) {
    const uint64_t address = body.u64();
    const uint32_t size = body.u32();
    const uint16_t type = body.u16();
    const bool gone = (body.u16() & 1) != 0;
    if (!body.ok()) return;
    if (gone) {
      if (owns_all(type, body.text())) pokes_.forget(address, size, trailer_time(record));
      code_.erase(address);
    } else {
      code_[address] = {copy_of(record), {}, ring};
    }
    return;
  }
  constexpr uint16_t kUnload = 2;
  const uint16_t type = body.u16();
  (void)body.u16();
  const uint32_t id = body.u32();
  if (!body.ok()) return;
  if (type == kUnload) {
    programs_.erase(id);
  } else {
    programs_[id].event = copy_of(record);
    programs_[id].ring = ring;
  }
}

void StateFold::take_code(const LogEntry& entry) {
  if (entry.bytes.size() < kRecordHeaderBytes) return;
  Cursor body(entry.bytes.subspan(kRecordHeaderBytes));
  const uint64_t address = body.u64();
  const uint16_t old_size = body.u16(), new_size = body.u16();
  const bool gone = new_size == 0;
  if (!body.ok()) return;
  pokes_.forget(address, std::max(old_size, new_size), trailer_time(entry.bytes));
  if (gone) {
    code_.erase(address);
    return;
  }
  code_[address].bytes = copy_of(entry.bytes);
  code_[address].ring = entry.ring;
}

void StateFold::take_announcement(const LogEntry& entry) {
  AnnouncementHead head;
  if (entry.bytes.size() < sizeof(head)) return;
  std::memcpy(&head, entry.bytes.data(), sizeof(head));
  announced_[head.pid].take(TimeNs{head.time}, entry.bytes.subspan(sizeof(head)));
}

int32_t StateFold::process_of(const LogEntry& entry) {
  if (entry.kind == EntryKind::announcement && entry.bytes.size() >= sizeof(AnnouncementHead)) return Cursor(entry.bytes).i32();
  if (entry.kind != EntryKind::record || entry.bytes.size() < kRecordHeaderBytes + 8) return -1;
  switch (read_record_header(entry.bytes).type) {
    case kRecordFork:
    case kRecordExit:
    case kRecordMmap2:
    case kRecordComm:
    case kRecordNamespaces:
      return Cursor(entry.bytes.subspan(kRecordHeaderBytes)).i32();
    default:
      return -1;
  }
}

void StateFold::forget(const std::function<bool(int32_t pid)>& gone) {
  std::erase_if(processes_, [&](const auto& process) { return gone(process.first); });
  std::erase_if(announced_, [&](const auto& process) { return gone(process.first); });
}

std::vector<LogEntry> StateFold::kernel_entries() const {
  std::vector<LogEntry> entries;
  const auto add = [&](EntryKind kind, uint16_t ring, const Stored& bytes) {
    if (!bytes.empty()) entries.push_back({kind, ring, 0, bytes});
  };
  const auto add_record = [&](uint16_t ring, const Stored& record) { add(EntryKind::record, ring, record); };
  losses_.each(add_record);
  for (const auto& [address, code] : code_) {
    add_record(code.ring, code.symbol);
    add(EntryKind::code, code.ring, code.bytes);
  }
  for (const auto& [id, program] : programs_) add_record(program.ring, program.event);
  pokes_.each(add_record);
  for (const auto& [ring, record] : hardware_ids_) add_record(ring, record);
  for (const auto& [ring, record] : switches_) add_record(ring, record);
  std::ranges::stable_sort(entries, {}, [](const LogEntry& entry) { return trailer_time(entry.bytes); });
  return entries;
}

void StateFold::each(const std::function<void(const LogEntry&)>& on_entry) {
  const auto give = [&](EntryKind kind, uint16_t ring, const Stored& bytes) {
    if (!bytes.empty()) on_entry({kind, ring, 0, bytes});
  };
  for (const LogEntry& entry : kernel_entries()) on_entry(entry);
  for (const auto& [id, program] : programs_) give(EntryKind::program, program.ring, program.section);
  for (const auto& [pid, process] : processes_) {
    give(EntryKind::record, process.ring, process.namespaces);
    for (const auto& [tid, name] : process.names) give(EntryKind::record, process.ring, name);
    for (const Map& map : process.maps) give(EntryKind::record, process.ring, map.record);
  }
  for (auto& [pid, announced] : announced_) {
    announced.each([&, pid = pid](TimeNs time, Bytes record) {
      const AnnouncementHead head{pid, pid, time.value};
      Stored bytes = copy_of(std::as_bytes(std::span(&head, 1)));
      bytes.insert(bytes.end(), record.begin(), record.end());
      give(EntryKind::announcement, kNoRing, bytes);
    });
  }
}

}  // namespace ptd::live
