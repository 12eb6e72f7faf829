// Converts perf records to image and contexts.
#include "recording/perf/sideband_fold.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "image/source/build_id.h"
#include "image/source/code_bytes.h"
#include "perfio/emulated.h"
#include "perfio/format/auxtrace_pt.h"
#include "recording/data/absent_trace.h"
#include "recording/perf/perf_texts.h"
#include "recording/trace/lost_trace.h"

namespace ptd {
namespace {

constexpr uint64_t kMostPadsAtEnd = 24;  // captures of hardware end with at most 10 PADs, and have at most 21 in a row
using perfio::kAuxCollision, perfio::kAuxOverwrite, perfio::kAuxPartial, perfio::kAuxTruncated;

TimeNs time_of(const perfio::Record& record) { return record.sample_id.has_time ? TimeNs{record.sample_id.time} : kTimeMin; }

// A fixed mixing of seed and index (splitmix64), so that a seed names one choice on every machine.
uint64_t mix(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ULL + index + 1;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// perf's own records of this type say where perf failed to decode, which is not the recording's fault.
void note_error(const perfio::AuxtraceErrorRecord& error, ImageBuild& image) {
  if (error.code == perfio::kRewrittenCode) image.source.add_rewritten(error.pid, error.ip, error.time);
  if (error.code != perfio::kNotRecordedCode) return;
  Finding finding;
  finding.kind = FindingKind::trace_lost;
  finding.time = {kTimeMin, kTimeMax};
  finding.what = absence_of(error.message);
  image.builder.add_finding(std::move(finding));
}

}  // namespace

SidebandFold::SidebandFold(const OpenRequest& options, ImageBuild& image, RecordingData& data)
    : options_(options),
      image_(image),
      data_(data),
      task_switches_([this](int32_t cpu, TimeNs from, int32_t pid, int32_t tid) { set_switch(cpu, from, context_of(pid, tid)); }) {}

bool SidebandFold::drops(const OpenRequest& options, uint64_t index) {
  const uint64_t n = options.drop_nth_poke;
  if (n == 0) return false;
  if (options.drop_poke_seed < n) return index % n == options.drop_poke_seed;
  return mix(options.drop_poke_seed, index) % n == 0;
}

void SidebandFold::on_record(const perfio::Record& record) {
  const auto* lost = std::get_if<perfio::LostRecord>(&record.payload);
  if (lost != nullptr) on_lost(record, *lost);
  if (const RingIndex::Ring* ring = ring_of(record); ring != nullptr && ring->machine_pid > 0) return on_guest_record(record, *ring);
  if (record.sample_id.has_time) note_time(record);
  undated_.on_record(record);
  rings_.add(record);
  if (const auto* info = std::get_if<perfio::AuxtraceInfoRecord>(&record.payload)) is_arm_ = info->type == perfio::kAuxtraceCsEtm;
  const auto handle = [&](const auto& payload) {
    using T = std::decay_t<decltype(payload)>;
    if constexpr (std::is_same_v<T, perfio::MmapRecord>) on_mmap(record, payload);
    if constexpr (std::is_same_v<T, perfio::CommRecord>) on_comm(record, payload);
    if constexpr (std::is_same_v<T, perfio::TaskRecord>) on_task(record, payload);
    if constexpr (std::is_same_v<T, perfio::SwitchRecord>) on_switch(record, payload);
    if constexpr (std::is_same_v<T, perfio::SchedSwitchSample>) on_sched_switch(record, payload);
    if constexpr (std::is_same_v<T, perfio::ItraceStartRecord>) on_itrace_start(record, payload);
    if constexpr (std::is_same_v<T, perfio::TextPokeRecord>) on_text_poke(record, payload);
    if constexpr (std::is_same_v<T, perfio::KsymbolRecord>)
      note_order(record, false), kernel_.on_ksymbol(payload, time_of(record), record.sample_id.cpu);
    if constexpr (std::is_same_v<T, perfio::BpfRecord>) kernel_.on_bpf(payload, record.sample_id.cpu);
    if constexpr (std::is_same_v<T, perfio::AuxRecord>) on_aux(record, payload);
    if constexpr (std::is_same_v<T, perfio::AuxtraceRecord>) on_auxtrace(payload);
    if constexpr (std::is_same_v<T, perfio::OtherSample>) {
      on_sample(record, payload);
      on_aux_sample(record, payload);
    }
    if constexpr (std::is_same_v<T, perfio::AuxtraceErrorRecord>) note_error(payload, image_);
  };
  std::visit(handle, record.payload);
}

TimeNs SidebandFold::FileTimes::passed() const {
  TimeNs least = latest.empty() ? kTimeMin : kTimeMax;
  for (const auto& [cpu, time] : latest) least = std::min(least, time);
  return least;
}

SidebandFold::FileTimes& SidebandFold::times_of(uint32_t file) {
  if (file_times_.size() <= file) file_times_.resize(size_t{file} + 1);
  return file_times_[file];
}

void SidebandFold::on_damage(const perfio::ReadDamage& damage, const std::vector<Bytes>& files) {
  struct Windows {
    std::vector<Interval> all;
    size_t used = 0;
  };
  std::map<uint32_t, Windows> of_files;
  for (const perfio::ReadDamage::Hole& hole : damage.holes) {
    const FileTimes& times = times_of(hole.file);
    const auto [place, is_new] = of_files.try_emplace(hole.file);
    Windows& windows = place->second;
    if (is_new) windows.all = times.holes.windows();
    const size_t index = windows.used++;
    on_hole(damage, hole, index < windows.all.size() ? windows.all[index] : Interval{times.passed(), kTimeMax});
  }
  for (const perfio::ReadDamage::Cut& cut : damage.cuts) {
    const uint64_t size = cut.file < files.size() ? files[cut.file].size() : 0;
    on_cut(damage, cut, size - std::min(size, cut.offset_bytes));
  }
}

void SidebandFold::note_time(const perfio::Record& record) {
  const TimeNs now = time_of(record);
  FileTimes& file = times_of(record.file);
  if (holes_ != nullptr && !holes_->empty()) {
    const auto is_passed = [&record](const auto& hole) {
      return hole.file == record.file && hole.offset_bytes <= record.file_offset_bytes;
    };
    file.holes.add(record.sample_id.cpu, now, static_cast<size_t>(std::ranges::count_if(*holes_, is_passed)), file.latest);
  }
  last_time_ = std::max(last_time_, now);
  if (record.sample_id.has_time) times_.add(record.sample_id.time);
  TimeNs& cpu = file.latest[record.sample_id.cpu];
  cpu = std::max(cpu, now);
  if (const RingIndex::Ring* ring = rings_.find(record.sample_id.id); ring != nullptr) note_ring_time(ring->number, now);
}

void SidebandFold::note_ring_time(uint64_t ring, TimeNs now) {
  TimeNs& latest = ring_times_[ring];
  if (const auto open = open_losses_.find(ring); open != open_losses_.end() && now > open->second.first) {
    add_lost({open->second.first, now}, open->second);
    open_losses_.erase(open);
  }
  latest = std::max(latest, now);
}

SpaceId SidebandFold::space_of(int32_t pid) {
  const uint32_t machine = machine_of_thread(pid);
  if (own_number(pid) <= 0) return machine == 0 ? kNoSpace : kernel_of_machine(machine);  // idle, unknown
  const auto known = spaces_.find(pid);
  if (known != spaces_.end()) return known->second;
  return spaces_[pid] = image_.builder.add_space(machine);
}

Context SidebandFold::context_of(int32_t pid, int32_t tid) {
  if (pid < 0 && tid > 0) {
    const auto known = pids_.find(tid);
    if (known != pids_.end()) pid = known->second;
  }
  if (tid > 0 && pid > 0) pids_[tid] = pid;
  return {pid, tid, space_of(pid)};
}

void SidebandFold::name_thread(int32_t tid, TimeNs time, const std::string& given) {
  constexpr size_t kMostBytes = 64;  // of the kernel's names of threads, with that of a worker's queue. A child of each fork gets a copy
  const std::string name = given.substr(0, kMostBytes);
  data_.thread_names[tid] = name;
  auto& names = data_.comms[tid];
  names.emplace_back(time, name);
}

void SidebandFold::on_mmap(const perfio::Record& record, const perfio::MmapRecord& map) {
  if (map.guest) return on_unplaced_guest_mmap(map);
  if (map.kernel) {
    kernel_.on_mmap(map);
    return;
  }
  if (!map.executable || map.pid <= 0) return;
  if (is_kernel_half(Ip{map.addr})) {
    UserMapping mapping{kKernelSpace, map.pid, Ip{map.addr}, map.size_bytes, map.file_offset_bytes, map.path, {}, time_of(record), {}};
    if (map.size_bytes > ~map.addr) image_.report_unmappable(mapping);
    return;
  }
  check_program(record, map);
  const SpaceId space = space_of(map.pid);
  if (map.tid > 0) pids_[map.tid] = map.pid;
  if (is_jitdump_path(map.path)) {
    const auto started = program_starts_.find(map.pid);
    jitdump_spaces_.insert(space);
    jitdumps_.push_back({space,
                         map.path,
                         time_of(record),
                         map.pid,
                         Ip{map.addr},
                         {map.maj, map.min, map.inode},
                         map.file_offset_bytes,
                         started == program_starts_.end() ? kTimeMin : started->second.back().time});
    return;
  }
  const bool shared = (map.flags & MAP_SHARED) != 0;
  add_mapping({space,
               map.pid,
               Ip{map.addr},
               map.size_bytes,
               map.file_offset_bytes,
               texts_.shared(map.path),
               texts_.shared(normalize_build_id(perfio::build_id_hex(map.build_id))),
               time_of(record),
               {map.maj, map.min, map.inode, map.inode_generation},
               shared,
               false,
               false,
               !shared && (map.prot & PROT_WRITE) != 0});
}

void SidebandFold::on_text_poke(const perfio::Record& record, const perfio::TextPokeRecord& poke) {
  if (drops(options_, pokes_++)) return;
  const uint64_t size = std::max(poke.old_bytes.size(), poke.new_bytes.size());
  if (size == 0 || size > ~poke.addr || !is_kernel_half(Ip{poke.addr})) {
    Finding finding;
    finding.kind = FindingKind::bad_record;
    finding.ip = Ip{poke.addr};
    finding.what = "TEXT_POKE at file offset " + std::to_string(record.file_offset_bytes) + " contradicts itself";
    image_.builder.add_finding(std::move(finding));
    return;
  }
  if (poke.old_bytes.empty()) kernel_.on_created(Ip{poke.addr}, size, time_of(record));
  kernel_.on_changed(Ip{poke.addr}, poke.old_bytes, poke.new_bytes);
  const bool in_place = is_arm_ && poke.old_bytes.size() == poke.new_bytes.size();
  text_reported_ = text_reported_ || in_place;
  const auto begun = text_edits_.find(poke.addr);
  if (in_place && poke.old_bytes == poke.new_bytes) {
    if (begun == text_edits_.end()) return;
    if (record.sample_id.has_time) begun->second.time.last = std::max(begun->second.time.last, time_of(record));
    image_.builder.add_edit(std::move(begun->second));
    text_edits_.erase(begun);
    return;
  }
  data_.pokes.push_back({time_of(record), record.sample_id.cpu});
  note_order(record, true, poke.old_bytes.empty());
  Edit edit;
  edit.ip = Ip{poke.addr};
  edit.old_bytes = poke.old_bytes;
  edit.new_bytes = poke.new_bytes;
  if (record.sample_id.has_time) edit.time = {time_of(record), time_of(record)};
  edit.cpu = record.sample_id.cpu;
  edit.record_offset_bytes = record.file_offset_bytes;
  if (!in_place) return image_.builder.add_edit(std::move(edit));
  if (begun != text_edits_.end()) image_.builder.add_edit(std::move(begun->second));
  text_edits_.insert_or_assign(poke.addr, std::move(edit));
}

// The ring of an event that no ID_INDEX record names is that of its id: an event writes to one ring. One that several cpus write is not
// used.
void SidebandFold::note_order(const perfio::Record& record, bool is_poke, bool is_late) {
  const perfio::SampleId& sample = record.sample_id;
  if (!sample.has_time) return;
  const bool names = std::holds_alternative<perfio::KsymbolRecord>(record.payload);
  const PokeOrder::Record noted{time_of(record), record.file_offset_bytes, is_poke, is_late, names};
  if (const RingIndex::Ring* ring = rings_.find(sample.id); ring != nullptr) {
    if (ring->cpu >= 0) poke_order_.add(ring->number, ring->cpu, noted);
    return;
  }
  constexpr size_t kMostEvents = 1U << 16;
  if (sample.id == 0 || sample.cpu < 0 || (event_cpus_.size() >= kMostEvents && !event_cpus_.contains(sample.id))) return;
  int32_t& cpu = event_cpus_.try_emplace(sample.id, sample.cpu).first->second;
  if (cpu != sample.cpu) cpu = -1;
  constexpr uint64_t kRingsOfEvents = uint64_t{1} << 62;  // apart from the numbers of RingIndex
  if (cpu >= 0) poke_order_.add(kRingsOfEvents + sample.id, cpu, noted);
}

// Which code the kernel had is not known while such a poke may have been made.
void SidebandFold::report_poke_order() {
  for (const PokeOrder::Doubt& doubt : poke_order_.finish()) {
    Finding finding;
    finding.kind = FindingKind::bad_record;
    finding.time = doubt.window;
    finding.what = "TEXT_POKE at file offset " + std::to_string(doubt.offset_bytes) +
                   ": its time contradicts the order of the records of cpu " + std::to_string(doubt.cpu);
    image_.builder.add_lost_window(kKernelSpace, doubt.window);
    image_.builder.add_finding(std::move(finding));
  }
}

// Adds the changes whose end was not reported.
void SidebandFold::add_text_edits() {
  for (auto& [address, edit] : text_edits_) image_.builder.add_edit(std::move(edit));
  text_edits_.clear();
}

// Copies cannot show a change that was undone between them.
void SidebandFold::doubt_kernel() {
  image_.builder.add_lost_window(kKernelSpace, {kTimeMin, kTimeMax});
  data_.warnings.push_back(
      "arm64 kernels do not record changes of their code, and nothing else in the recording does: kernel code is marked suspect");
}

// LOST has its event's id in its payload, also where other records have none.
const RingIndex::Ring* SidebandFold::ring_of(const perfio::Record& record) const {
  const auto* lost = std::get_if<perfio::LostRecord>(&record.payload);
  return rings_.find(record.sample_id.id == 0 && lost != nullptr ? lost->id : record.sample_id.id);
}

// LOST is written when the ring has space again: everything since the ring's previous record may be gone.
void SidebandFold::on_lost(const perfio::Record& record, const perfio::LostRecord& lost) {
  ++data_.lost.lost_records;
  data_.lost.records += lost.count;
  if (lost.samples) return;  // samples only: nothing that the image is made of
  const int32_t cpu = record.sample_id.cpu;
  const RingIndex::Ring* ring = ring_of(record);
  const bool of_guest = ring != nullptr && ring->machine_pid > 0;
  if (!of_guest) task_switches_.on_lost(cpu);
  if (ring == nullptr) {
    const HoleTimes::CpuTimes& times = times_of(record.file).latest;
    const auto latest = times.find(cpu);
    return add_lost({latest == times.end() ? kTimeMin : latest->second, record.sample_id.has_time ? time_of(record) : kTimeMax},
                    {kTimeMin, lost.count, cpu});
  }
  const auto latest = ring_times_.find(ring->number);
  const TimeNs first = latest == ring_times_.end() ? kTimeMin : latest->second;
  const Loss loss{first, lost.count, of_guest ? ring->vcpu : cpu, of_guest ? ring->machine_pid : 0};
  if (record.sample_id.has_time && time_of(record) > first) return add_lost({first, time_of(record)}, loss);
  // All that are open begin at the ring's latest record: they are one.
  const auto [open, is_new] = open_losses_.try_emplace(ring->number, loss);
  if (is_new) return;
  open->second.count += std::min(lost.count, ~open->second.count);
  if (open->second.cpu != loss.cpu) open->second.cpu = -1;
}

// Lost records of the host leave the code of guests in doubt too: the host's records say which thread runs which guest.
void SidebandFold::add_lost(Interval window, const Loss& loss) {
  Finding finding;
  finding.kind = FindingKind::records_lost;
  finding.time = window;
  finding.what = std::to_string(loss.count) + " records of ";
  if (loss.guest_pid == 0 || loss.cpu >= 0) finding.what += "cpu " + std::to_string(loss.cpu) + (loss.guest_pid == 0 ? "" : " of ");
  if (loss.guest_pid != 0) finding.what += "the guest of process " + std::to_string(loss.guest_pid);
  finding.what += " were lost";
  if (loss.guest_pid == 0) {
    image_.builder.add_lost_window(finding.time);
  } else {
    guest_losses_.emplace_back(loss.guest_pid, finding.time);
  }
  image_.builder.add_finding(std::move(finding));
}

void SidebandFold::on_cut(const perfio::ReadDamage& damage, const perfio::ReadDamage::Cut& cut, uint64_t unread_bytes) {
  Finding finding;
  finding.kind = FindingKind::records_lost;
  finding.time = {times_of(cut.file).passed(), kTimeMax};
  const bool unfinished = damage.unfinished && cut.file == 0, in_header = damage.in_header && cut.file == 0;
  const std::string name = damage.name_of(cut.file), at = std::to_string(cut.offset_bytes),
                    lost = std::to_string(unread_bytes) + " bytes from there on are lost";
  if (unfinished) {
    finding.what = "the recorder did not finish " + name + ": records and trace are read up to " +
                   (unread_bytes == 0 ? "its end at byte " + at + ", and later ones are missing" : "byte " + at + ", and the " + lost);
  } else if (unread_bytes != 0) {
    finding.what = name + " is damaged at byte " + at + ": the " + lost + ", records and trace";
  } else {
    finding.what = in_header ? "the header of " + name + " is damaged: records and trace may be missing, or parts of them"
                             : name + " ends early, at byte " + at + ": records and trace may be missing from then on";
  }
  image_.builder.add_lost_window(finding.time);
  image_.builder.add_finding(std::move(finding));
}

void SidebandFold::on_aux(const perfio::Record& record, const perfio::AuxRecord& aux) {
  AuxBreak why = AuxBreak::none;
  if ((aux.flags & kAuxCollision) != 0) why = AuxBreak::collision, ++data_.lost.aux_collision;
  if ((aux.flags & kAuxPartial) != 0) why = AuxBreak::partial, ++data_.lost.aux_partial;
  if ((aux.flags & kAuxTruncated) != 0) why = AuxBreak::truncated, ++data_.lost.aux_truncated;
  if (aux.aux_size_bytes > ~aux.aux_offset_bytes) return;
  const perfio::SampleId& id = record.sample_id;
  if (per_cpu_ && !is_arm_ && aux.aux_size_bytes != 0) task_switches_.on_aux(record);
  if (id.has_time && aux.aux_size_bytes != 0) note_ran(id.tid, TimeNs{id.time});
  const bool is_stored = (aux.flags & kAuxOverwrite) == 0;  // a ring that is overwritten is only stored on request
  if (aux.aux_size_bytes != 0) ++(is_stored ? stored_aux_ : overwritten_aux_);
  const int32_t ring_tid = rings_.stream_of(id, per_cpu_).second;
  aux_ends_.push_back({id.cpu, ring_tid >= 0 ? ring_tid : id.tid, aux.aux_offset_bytes + aux.aux_size_bytes, why, id.has_time,
                       time_of(record), is_stored ? aux.aux_size_bytes : 0});
}

AuxStream& SidebandFold::stream_at(RingIndex::StreamKey key, uint32_t idx) {
  const auto [place, is_new] = stream_of_.emplace(key, data_.streams.size());
  if (is_new) {
    AuxStream stream;
    stream.cpu = key.first;
    stream.tid = key.second;
    stream.idx = idx;
    data_.streams.push_back(std::move(stream));
  }
  return data_.streams[place->second];
}

void SidebandFold::on_auxtrace(const perfio::AuxtraceRecord& aux) {
  AuxStream& stream = stream_at(aux.cpu >= 0 ? std::pair(aux.cpu, -1) : std::pair(-1, aux.tid), aux.idx);
  if (!stream.samples().empty()) {
    ++windows_.left_out;
    return;
  }
  stream.add_payload(aux.offset_bytes, aux.size_bytes, aux.payload, false, aux.idx);
}

/// The file system that a process had: its own, or that of who started it.
const std::vector<std::string>* SidebandFold::roots_of(int32_t pid) const {
  constexpr int kMaxGenerations = 64;
  for (int i = 0; i < kMaxGenerations && !options_.process_symfs.empty(); ++i) {
    if (const auto roots = options_.process_symfs.find(pid); roots != options_.process_symfs.end()) return &roots->second;
    const auto parent = parents_.find(pid);
    if (parent == parents_.end()) return nullptr;
    pid = parent->second;
  }
  return nullptr;
}

/// The mapping of a file in whose place anonymous memory came: programs copy their text into huge pages so. Null if there is none.
/// `latest`: the mappings before `index`. Those of the same kind are the same pages, announced again.
const UserMapping* SidebandFold::remapped(size_t index, const LatestMappings& latest) const {
  const UserMapping& now = mappings_[index];
  const LatestMappings::Kind kind = LatestMappings::kind_of(now.path);
  if (kind == LatestMappings::Kind::other) return nullptr;
  const std::optional<size_t> found = latest.latest_but(now.space, now.ip, kind);
  if (!found) return nullptr;
  const UserMapping& before = mappings_[*found];
  if (!before.path.starts_with("/") || is_anonymous(before.path)) return nullptr;
  const bool inside = now.size_bytes <= before.size_bytes - (now.ip - before.ip);
  return inside ? &before : nullptr;
}

/// Whether a mapping of memory that was there before would hide code that a run-time gave: its new record shows a change of protection,
/// which leaves the content. A copy of the memory says more.
bool SidebandFold::hides_given_code(const UserMapping& mapping) const {
  const auto announces = [this](SpaceId space) { return announced_.has(space); };
  if (announces(mapping.space) || forks_.find_above(mapping.space, announces) != kNoSpace) return true;
  const auto& saved = image_.source.options().saved;
  return jitdump_spaces_.contains(mapping.space) && (!saved || saved->saved_at_ns(wanted_of(mapping, nullptr)) == 0);
}

/// Keeps what a process announced of a file's code that is mapped where it was before: this or the file may be the content then. Returns
/// whether the rest of the code is as it was, too. What the process can write to from then on is assumed.
bool SidebandFold::keeps_changes(const UserMapping& mapping) {
  const auto changes = [&](SpaceId space) { return announced_.changes(space, mapping.ip, mapping.size_bytes); };
  if (announced_.empty() || complete_spaces_.contains(mapping.space)) return false;
  if (!changes(mapping.space) && forks_.find_above(mapping.space, changes) == kNoSpace) return false;
  announced_.remap(mapping.space, mapping.pid, {mapping.from, mapping.ip.value, mapping.size_bytes, mapping.now_writable});
  return !mapping.now_writable;
}

void SidebandFold::fold_mappings(const perfio::Features& features) {
  use_listed_build_ids(
      features.build_ids, mappings_, [this](int32_t pid) { return roots_of(pid); }, image_);
  std::set<std::pair<int32_t, std::string>> told;
  std::unordered_map<std::string_view, const UserMapping*> last_of;
  std::set<SpaceId> remaps;  // spaces with memory that may have come in the place of a file
  for (UserMapping& mapping : mappings_) {
    if (LatestMappings::kind_of(mapping.path) != LatestMappings::Kind::other) remaps.insert(mapping.space);
    if (!mapping.label.empty()) continue;
    if (image_.source.is_other_vdso({mapping.path, mapping.build_id, 0, 0, nullptr, -1, mapping.ip.value})) mapping.build_id = {};
    last_of[mapping.path] = &mapping;
  }
  LatestMappings latest;
  for (size_t i = 0; i < mappings_.size(); ++i) {
    UserMapping& mapping = mappings_[i];
    const UserMapping* file = remapped(i, latest);
    if (remaps.contains(mapping.space)) latest.add(mapping.space, mapping.ip, mapping.size_bytes, LatestMappings::kind_of(mapping.path), i);
    if (!mapping.label.empty()) {
      add_guest_mapping(mapping);
      continue;
    }
    if (mapping.again && (is_anonymous(mapping.path) ? hides_given_code(mapping) : keeps_changes(mapping))) continue;
    if (file == nullptr) {
      image_.add_mapping(mapping, roots_of(mapping.pid), last_of[mapping.path]);
      continue;
    }
    UserMapping copy = mapping;
    copy.path = file->path;
    copy.build_id = file->build_id;
    copy.file_id = file->file_id;
    copy.file_offset_bytes = file->file_offset_bytes + (mapping.ip - file->ip);
    copy.assumed = true;
    image_.add_mapping(copy, roots_of(mapping.pid));
    if (told.emplace(mapping.pid, file->path).second)
      data_.warnings.push_back("process " + std::to_string(mapping.pid) + " mapped anonymous memory over the text of " + file->path.str() +
                               ": assumed to be a copy (such as for huge pages) and marked assumed");
  }
}

/// Warns of processes that options name and the recording does not have.
void SidebandFold::report_unknown_processes() {
  for (const auto& [pid, roots] : options_.process_symfs) {
    const bool is_parent = std::any_of(parents_.begin(), parents_.end(), [pid = pid](const auto& each) { return each.second == pid; });
    if (!spaces_.contains(pid) && !is_parent)
      data_.warnings.push_back("--symfs " + std::to_string(pid) + "=" + roots.front() + ": no process " + std::to_string(pid) +
                               " was recorded: no file is looked for there ('ptdecode info' lists processes)");
  }
}

/// Mappings that no record tells: --map.
void SidebandFold::add_assumed() {
  report_unknown_processes();
  for (const AssumedMapping& given : options_.assumed) {
    const auto space = spaces_.find(given.pid);
    const auto file = MappedFile::open(given.path);
    if (space == spaces_.end() || !file.ok()) {
      data_.warnings.push_back(space == spaces_.end()
                                   ? "no process " + std::to_string(given.pid) + " was recorded: " + given.path + " is mapped nowhere"
                                   : file.error().message);
      continue;
    }
    const auto elf = ElfFile::open(*file);
    if (const std::string other = elf.ok() ? other_machine(image_.source.family(), (*elf)->machine()) : std::string(); !other.empty()) {
      data_.warnings.push_back("--map " + given.path + " " + other + ": not used");
      continue;
    }
    const uint64_t left = (*file)->bytes().size() - std::min<uint64_t>((*file)->bytes().size(), given.file_offset_bytes);
    Section section;
    section.space = space->second;
    section.ip = Ip{given.address};
    section.size_bytes = given.size_bytes == 0 ? left : std::min(left, given.size_bytes);
    section.code = piece_of(*file, given.file_offset_bytes, section.size_bytes);
    section.path = given.path;
    section.file_offset_bytes = given.file_offset_bytes;
    section.assumed = true;
    if (elf.ok()) section.build_id = (*elf)->build_id();
    if (section.code.bytes.empty() || is_kernel_half(section.ip) || section.size_bytes > ~section.ip.value) {
      data_.warnings.push_back("--map " + given.path + ": no part of it can be mapped at the given address");
      continue;
    }
    image_.add_symbol_file(section.path, given.path, section.build_id);
    image_.note_origin(section.path, section.build_id, given.path, "--map");
    // From after every record on, because later sections cover earlier ones; and from the start.
    Section over = section;
    image_.add_section(std::move(section));
    for (const UserMapping& mapping : mappings_) {
      if (mapping.space != over.space || mapping.ip.value >= over.ip.value + over.size_bytes ||
          mapping.ip.value + mapping.size_bytes <= over.ip.value)
        continue;
      Section again = over;
      again.live.first = mapping.from;
      image_.add_section(std::move(again));
    }
  }
}

void SidebandFold::finish(perfio::Features features, KernelImage::Copies copies, bool monotonic) {
  mapped_files_ = {};
  writable_code_ = {};
  settle_snapshot_mode();
  guests_.take_build_ids(features);
  for (const auto& [ring, loss] : open_losses_) add_lost({loss.first, kTimeMax}, loss);
  open_losses_.clear();
  data_.decoder.filter = filter_ranges(parse_perf_filters(filter_), mappings_);
  if (!perfio::is_emulated(features.cpu_desc)) image_.source.set_record_times(times_);
  undated_.report(mappings_, parents_, image_);
  trust_complete_jitdumps();
  fold_mappings(features);
  const Timeline mapped = announced_.empty() ? Timeline() : image_.builder.sections();
  add_assumed();
  CodeNames names;
  fold_jitdumps(monotonic, names);
  fold_announcements(mapped, names);
  jit_named_ = names.add_to(image_, mappings_, forks_, {});
  fold_perf_maps();
  add_text_edits();
  report_poke_order();
  copies.last_record = last_time_;
  kernel_.add_to(image_, features, copies, data_.warnings);
  if (is_arm_ && !text_reported_ && kernel_.has_copy()) doubt_kernel();
  data_.decoder.breakpoint_entry = kernel_.breakpoint_entry();
  finish_guests();
  std::set<int32_t> started;
  for (const AuxEnd& end : aux_ends_) {
    const bool starts = end.cpu < 0 && end.end_offset_bytes == 0 && end.why == AuxBreak::none;
    if (starts && !started.insert(end.tid).second) continue;
    const auto place = place_of(end);
    if (place == stream_of_.end()) continue;
    AuxStream& stream = data_.streams[place->second];
    stream.add_announced(end.end_offset_bytes);
    if (end.size_bytes != 0) stream.add_stored_from(end.end_offset_bytes - end.size_bytes);
    if (end.why != AuxBreak::none) stream.add_loss({end.end_offset_bytes, end.why});
    if (end.has_time) stream.add_written(end.end_offset_bytes, end.time);
  }
  for (AuxStream& stream : data_.streams) {
    stream.finish();
    if (!is_arm_ && stream.has_begin() && !begins_with_psb(stream)) stream.lose_begin();
    if (!is_arm_ && stream.written_zeros_at_end() > kMostPadsAtEnd) stream.lose_end();
    for (Finding& finding : placement_findings(stream)) image_.builder.add_finding(std::move(finding));
  }
  report_absent_streams(perfio::is_emulated(features.cpu_desc));
  report_unnamed_trace();
  report_strange_times();
  report_task_switches();
  report_windows();
  data_.contexts.sort();
  add_given();
  mappings_.clear();
}

}  // namespace ptd
