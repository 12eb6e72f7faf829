// SidebandFold: records of guests, which perf inject --guest-data inserts. See sideband_fold.h.
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "image/source/build_id.h"
#include "recording/perf/sideband_fold.h"

namespace ptd {

// A guest's processes have numbers of their own in the recording (guest.h), so that they are folded as those of the host are.
void SidebandFold::on_guest_record(const perfio::Record& record, const RingIndex::Ring& ring) {
  GuestMachine* machine = guests_.of(ring.machine_pid);
  if (machine == nullptr) {
    ++refused_guest_records_;
    return;
  }
  if (!std::exchange(machine->has_records, true)) add_guest(data_.contexts, machine->guest);
  add_guest_cpu(data_.contexts, ring.tid, {machine->guest.machine, ring.machine_pid, ring.vcpu});
  perfio::Record own = record;
  own.sample_id.cpu = -1;  // it is the host's, on which the host's records tell what runs
  const auto renumber = [&](auto&... numbers) { ((numbers = thread_of_machine(machine->guest.machine, numbers)), ...); };
  renumber(own.sample_id.pid, own.sample_id.tid);
  const TimeNs time = own.sample_id.has_time ? TimeNs{own.sample_id.time} : kTimeMin;
  if (own.sample_id.has_time) note_ring_time(ring.number, time);
  const auto handle = [&](auto& payload) {
    using T = std::decay_t<decltype(payload)>;
    if constexpr (std::is_same_v<T, perfio::MmapRecord>) {
      if (payload.kernel) return machine->kernel.on_mmap(payload);
      renumber(payload.pid, payload.tid);
      on_guest_mmap(time, payload, *machine);
    }
    if constexpr (std::is_same_v<T, perfio::CommRecord>) {
      renumber(payload.pid, payload.tid);
      payload.comm = guest_thread_name(ring.machine_pid, payload.comm);
      on_comm(own, payload);
    }
    if constexpr (std::is_same_v<T, perfio::TaskRecord>) {
      renumber(payload.pid, payload.ppid, payload.tid, payload.ptid);
      on_task(own, payload);
    }
    if constexpr (std::is_same_v<T, perfio::SwitchRecord>) {
      renumber(payload.next_prev_pid, payload.next_prev_tid);
      on_guest_switch(own, payload, {machine->guest.machine, ring.machine_pid, ring.vcpu}, machine->cpus_seen);
    }
    if constexpr (std::is_same_v<T, perfio::KsymbolRecord>) machine->kernel.on_ksymbol(payload, time, ring.vcpu);
    if constexpr (std::is_same_v<T, perfio::TextPokeRecord>) on_guest_poke(own, payload, *machine);
  };
  std::visit(handle, own.payload);
}

// perf kvm writes where the kernels of guests are, with the process that runs the guest, or 0 for the guest of --guestkallsyms.
void SidebandFold::on_unplaced_guest_mmap(const perfio::MmapRecord& map) {
  if (!map.kernel) {
    ++guest_records_;
    return;
  }
  GuestMachine* machine = guests_.of(std::max(map.pid, 0));
  if (machine == nullptr) {
    ++refused_guest_records_;
    return;
  }
  machine->kernel.on_mmap(map);
}

void SidebandFold::on_guest_mmap(TimeNs time, const perfio::MmapRecord& map, const GuestMachine& machine) {
  if (!map.executable || own_number(map.pid) <= 0 || is_kernel_half(Ip{map.addr})) return;
  if (map.tid > 0) pids_[map.tid] = map.pid;
  UserMapping mapping{space_of(map.pid),
                      map.pid,
                      Ip{map.addr},
                      map.size_bytes,
                      map.file_offset_bytes,
                      texts_.shared(map.path),
                      texts_.shared(normalize_build_id(perfio::build_id_hex(map.build_id))),
                      time,
                      {map.maj, map.min, map.inode}};
  mapping.label = texts_.shared(guest_path(machine.guest, map.path));
  mapping.was_writable = (map.flags & MAP_SHARED) == 0 && (map.prot & PROT_WRITE) != 0;
  if (!is_anonymous(map.path) && map.size_bytes != 0 && map.size_bytes <= ~map.addr) return add_file_mapping(std::move(mapping));
  mappings_.push_back(std::move(mapping));
}

// As on_switch(), for a cpu of a guest.
void SidebandFold::on_guest_switch(const perfio::Record& record, const perfio::SwitchRecord& change, const Guest& guest,
                                   std::map<int32_t, bool>& seen) {
  const perfio::SampleId& id = record.sample_id;
  if (!id.has_time || guest.vcpu < 0) return;
  const bool first = !std::exchange(seen[guest.vcpu], true);
  const Context own = context_of(id.pid, id.tid), other = context_of(change.next_prev_pid, change.next_prev_tid);
  if (first && (change.out || change.cpu_wide)) add_guest_switch(data_.contexts, guest, kTimeMin, change.out ? own : other);
  if (!change.out || change.cpu_wide) add_guest_switch(data_.contexts, guest, TimeNs{id.time}, change.out ? other : own);
}

void SidebandFold::on_guest_poke(const perfio::Record& record, const perfio::TextPokeRecord& poke, GuestMachine& machine) {
  const uint64_t size = std::max(poke.old_bytes.size(), poke.new_bytes.size());
  if (size == 0 || size > ~poke.addr || !is_kernel_half(Ip{poke.addr})) return;
  const TimeNs time = record.sample_id.has_time ? TimeNs{record.sample_id.time} : kTimeMin;
  if (poke.old_bytes.empty()) machine.kernel.on_created(Ip{poke.addr}, size, time);
  Edit edit;
  edit.space = kernel_of_machine(machine.guest.machine);
  edit.ip = Ip{poke.addr};
  edit.old_bytes = poke.old_bytes;
  edit.new_bytes = poke.new_bytes;
  if (record.sample_id.has_time) edit.time = {time, time};
  edit.cpu = -1;
  edit.record_offset_bytes = record.file_offset_bytes;
  guest_edits_.push_back(std::move(edit));
}

// A guest's file is looked for in its own file system only, or by its build id.
void SidebandFold::add_guest_mapping(UserMapping& mapping) {
  const GuestMachine* machine = guests_.find(machine_of(mapping.space));
  if (machine == nullptr) return;
  const auto known = machine->build_ids.find(mapping.path);
  if (mapping.build_id.empty() && known != machine->build_ids.end()) mapping.build_id = texts_.shared(known->second);
  image_.add_mapping(mapping, &machine->roots);
}

// Adds the guests to image and contexts; without any sign of one, nothing.
void SidebandFold::finish_guests() {
  guests_.finish(options_, image_, data_, pids_);
  for (const auto& [pid, window] : guest_losses_) {
    if (const GuestMachine* machine = guests_.of(pid)) image_.builder.add_lost_window(kernel_of_machine(machine->guest.machine), window);
  }
  guest_losses_.clear();
  for (Edit& edit : guest_edits_) image_.builder.add_edit(std::move(edit));
  guest_edits_.clear();
}

}  // namespace ptd
