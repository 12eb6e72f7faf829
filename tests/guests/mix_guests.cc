// `mix_guests OUT GUEST...`: makes a host's recording of virtual machines out of recordings of machines. OUT/host is the host's recording,
// a perf.data directory with a kcore_dir; OUT/guestN has the records of guest N without trace, for `perf inject --guest-data`;
// OUT/host.flow lists the addresses of the host's blocks.
//
// Each guest cpu runs on a host cpu of its own, or all guests in turn on the same cpus (--share). At every Nth TIP of the guest, the guest
// exits to the host ([SDM] "VMX-Specific Packets": FUP, PIP, TIP), which runs a few blocks of its kernel and enters the guest again (PIP,
// TIP). The host's kernel is at the address of the guest's text, so that a wrong choice between them shows.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/wire.h"
#include "perfio/perf_reader.h"
#include "perfio/perf_writer.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/time_conversion.h"

namespace ptd {
namespace {

namespace fs = std::filesystem;
using pt::Packet;
using pt::PacketKind;

constexpr uint32_t kPtAttr = 0, kDummyAttr = 1;
constexpr uint64_t kHostIds = 100, kGuestIds = 500, kHostCr3 = 0x7f000;
constexpr uint64_t kPieceBytes = 1U << 20;

/// The host's kernel: a loop around VMRESUME.
struct HostKernel {
  uint64_t base = 0;
  std::vector<uint8_t> code;
  std::vector<std::pair<std::string, uint64_t>> labels;
  static constexpr uint64_t kResume = 0, kExit = 3, kAfterHandle = 0xc, kTest = 0xd, kAfterSwitch = 0x16, kHandle = 0x40, kSwitch = 0x60;

  explicit HostKernel(uint64_t at) : base(at), code(4096, 0xcc) {
    const std::array<uint8_t, 24> loop{0x0f, 0x01, 0xc3,        // 00 vmresume
                                       0x85, 0xc0,              // 03 test
                                       0x74, 0x06,              // 05 je 0d
                                       0xe8, 0x34, 0,    0, 0,  // 07 call 40
                                       0x90,                    // 0c
                                       0x85, 0xc0,              // 0d test
                                       0x75, 0x05,              // 0f jne 16
                                       0xe8, 0x4a, 0,    0, 0,  // 11 call 60
                                       0xeb, 0xe8};             // 16 jmp 00
    std::copy(loop.begin(), loop.end(), code.begin());
    for (const uint64_t function : {kHandle, kSwitch}) code[function] = code[function + 1] = 0x90, code[function + 2] = 0xc3;
    labels = {{"_text", 0}, {"_stext", 0}, {"vcpu_enter", 0}, {"handle_exit", kHandle}, {"__switch_to", kSwitch}, {"_etext", 0x80}};
  }
};

struct GuestInput {
  std::string path;
  std::vector<perfio::Record> records;            ///< other than trace
  std::map<int32_t, std::vector<std::byte>> aux;  ///< by cpu
  perfio::IntelPtInfo info;
  std::vector<uint64_t> priv;
  perfio::TimeConvRecord time;
  perfio::Features features;
  uint64_t text = 0;
};

[[noreturn]] void fail(const std::string& what) {
  (void)std::fprintf(stderr, "mix_guests: %s\n", what.c_str());
  std::exit(1);
}
void check(const Status& status) {
  if (!status.ok()) fail(status.error().message);
}

GuestInput read_guest(const std::string& path) {
  GuestInput in;
  in.path = path;
  auto reader = perfio::PerfReader::open(path);
  if (!reader.ok()) fail(reader.error().message);
  check((*reader)->read([&](const perfio::Record& record) {
    if (const auto* trace = std::get_if<perfio::AuxtraceRecord>(&record.payload)) {
      std::vector<std::byte>& bytes = in.aux[trace->cpu];
      bytes.resize(trace->offset_bytes);  // without the padding of the payload before
      bytes.insert(bytes.end(), trace->payload.begin(), trace->payload.end());
      return true;
    }
    if (const auto* info = std::get_if<perfio::AuxtraceInfoRecord>(&record.payload)) {
      in.info = perfio::parse_intel_pt_info(*info);
      in.priv = info->priv;
    }
    if (const auto* time = std::get_if<perfio::TimeConvRecord>(&record.payload)) in.time = *time;
    if (const auto* map = std::get_if<perfio::MmapRecord>(&record.payload); map != nullptr && map->path.starts_with("[kernel.kallsyms]"))
      in.text = map->addr;
    in.records.push_back(record);
    return true;
  }));
  in.features = (*reader)->features();
  return in;
}

/// One host cpu's stream.
class Mixer {
 public:
  Mixer(const HostKernel& kernel, uint64_t every) : kernel_(kernel), every_(every), writer_(out_) { writer_.set_compression(false); }

  std::vector<std::byte>& bytes() { return out_; }
  [[nodiscard]] const std::vector<uint64_t>& flow() const { return flow_; }

  /// Copies the guest's packets from TSC `from` to `to`; in the host before and after.
  void run(Bytes guest, uint64_t vmcs, uint64_t from, uint64_t to) {
    vmcs_ = vmcs;
    pt::PacketReader reader(guest);
    Packet packet;
    uint64_t last_ip = 0;
    std::vector<Packet> sync;
    bool in_sync = false, running = false, sync_has_ip = false;
    uint64_t sync_ip = 0, tsc = 0;
    for (;;) {
      const auto status = reader.next(packet);
      if (status != pt::PacketReader::Status::ok) break;
      if (packet.kind == PacketKind::psb) {
        in_sync = true, sync_has_ip = false, last_ip = 0;
        sync.clear();
        continue;
      }
      const bool is_ip = packet.kind == PacketKind::tip || packet.kind == PacketKind::tip_pge || packet.kind == PacketKind::tip_pgd ||
                         packet.kind == PacketKind::fup;
      const bool has_ip = is_ip && pt::decompress_ip(packet, last_ip);
      if (in_sync) {
        if (packet.kind == PacketKind::tsc) tsc = packet.value;
        if (packet.kind == PacketKind::fup) sync_has_ip = has_ip, sync_ip = last_ip;
        if (packet.kind != PacketKind::psbend) {
          if (packet.kind != PacketKind::fup && packet.kind != PacketKind::pip) sync.push_back(packet);
          continue;
        }
        in_sync = false;
        if (tsc >= to) {
          position_ = sync_ip;
          has_position_ = sync_has_ip;
          break;
        }
        if (tsc < from) continue;
        if (!running && sync_has_ip) {
          start_host(sync);
          enter(sync_ip);
          running = true;
        } else {
          put_sync(sync, sync_has_ip ? &sync_ip : nullptr, running);
        }
        position_ = sync_ip;
        has_position_ = sync_has_ip;
        continue;
      }
      if (tsc < from || (tsc == 0 && from == 0 && !running && packet.kind != PacketKind::tip_pge)) continue;
      if (packet.kind == PacketKind::pip) packet.flags |= pt::kFlagNonRoot;
      if (packet.kind == PacketKind::tip_pge && has_ip && !running) {
        begin_at(last_ip);
        running = true;
        continue;
      }
      if (!running) continue;
      put(packet, has_ip, last_ip);
      has_position_ = packet.kind == PacketKind::tip && has_ip;
      position_ = last_ip;
      if (has_position_ && ++tips_ % every_ == 0) {
        exit_at(last_ip);
        host_round();
        enter(last_ip);
      }
    }
    if (running && has_position_) exit_at(position_);
    in_host_ = running && has_position_;
  }

  void switch_thread() { switch_due_ = true; }
  void finish() {
    if (!in_host_) return;
    writer_.fup(kernel_.base + HostKernel::kExit);
    writer_.tip_pgd_suppressed();
  }

 private:
  void put(const Packet& packet, bool has_ip, uint64_t ip) {
    switch (packet.kind) {
      case PacketKind::tip:
        return has_ip ? writer_.tip(ip) : writer_.tip_suppressed();
      case PacketKind::fup:
        return has_ip ? writer_.fup(ip) : writer_.fup_suppressed();
      case PacketKind::tip_pge:
        return writer_.tip_pge(ip);
      case PacketKind::tip_pgd:
        return has_ip ? writer_.tip_pgd(ip) : writer_.tip_pgd_suppressed();
      default:
        (void)writer_.write(packet);
    }
  }
  void put_sync(const std::vector<Packet>& packets, const uint64_t* ip, bool guest) {
    writer_.psb();
    for (const Packet& packet : packets) (void)writer_.write(packet);
    writer_.pip(guest ? 0x1000 : kHostCr3, guest);
    if (guest) writer_.vmcs(vmcs_);
    if (ip != nullptr) writer_.fup(*ip);
    writer_.psbend();
  }
  void start_host(const std::vector<Packet>& packets) {
    if (in_host_) {
      put_host_sync(packets);
      if (switch_due_) host_round();
      return;
    }
    put_sync(packets, nullptr, false);
    begin_host();
  }
  void put_host_sync(const std::vector<Packet>& packets) {
    const uint64_t ip = kernel_.base + HostKernel::kExit;
    put_sync(packets, &ip, false);
  }
  void begin_host() {
    writer_.mode_exec(ExecMode::bits64);
    writer_.tip_pge(kernel_.base);
  }
  void begin_at(uint64_t ip) {
    if (in_host_) {
      host_round();
    } else {
      begin_host();
    }
    enter(ip);
  }
  void enter(uint64_t ip) {
    flow_.push_back(kernel_.base);
    writer_.pip(0x1000, true);
    writer_.tip(ip);
    in_host_ = false;
  }
  void exit_at(uint64_t ip) {
    writer_.fup(ip);
    writer_.pip(kHostCr3, false);
    writer_.tip(kernel_.base + HostKernel::kExit);
    in_host_ = true;
  }
  /// From kExit to the VMRESUME.
  void host_round() {
    const bool handle = ++rounds_ % 3 != 0, change = std::exchange(switch_due_, false);
    flow_.push_back(kernel_.base + HostKernel::kExit);
    if (handle) {
      writer_.tnt(0, 1);
      flow_.insert(flow_.end(), {kernel_.base + 7, kernel_.base + HostKernel::kHandle, kernel_.base + HostKernel::kAfterHandle});
      writer_.tip(kernel_.base + HostKernel::kAfterHandle);
    } else {
      writer_.tnt(1, 1);
      flow_.push_back(kernel_.base + HostKernel::kTest);
    }
    if (change) {
      writer_.tnt(0, 1);
      flow_.insert(flow_.end(), {kernel_.base + 0x11, kernel_.base + HostKernel::kSwitch});
      writer_.tip(kernel_.base + HostKernel::kAfterSwitch);
    } else {
      writer_.tnt(1, 1);
    }
    flow_.push_back(kernel_.base + HostKernel::kAfterSwitch);
  }

  const HostKernel& kernel_;
  uint64_t every_;
  std::vector<std::byte> out_;
  pt::PacketWriter writer_;
  std::vector<uint64_t> flow_;
  uint64_t tips_ = 0, rounds_ = 0, vmcs_ = 0, position_ = 0;
  bool has_position_ = false, in_host_ = false, switch_due_ = false;
};

perfio::EventAttr attr_of(const GuestInput& guest, uint32_t index, int cpus, uint64_t ids, uint64_t pt_config) {
  perfio::EventAttr attr;
  const bool pt = index == kPtAttr && ids == kHostIds;
  attr.type = pt ? static_cast<uint32_t>(guest.priv[0]) : 1;
  attr.config = pt ? pt_config : 9;
  attr.sample_period = 1;
  attr.sample_type = perfio::kSampleIp | perfio::kSampleTid | perfio::kSampleTime | perfio::kSampleCpu | perfio::kSampleIdentifier;
  attr.read_format = 4;
  attr.flags = pt ? 1 : (1ULL << 8 | 1ULL << 9 | 1ULL << 13 | 1ULL << 18 | 1ULL << 23 | 1ULL << 24 | 1ULL << 26 | 1ULL << 27 | 1ULL << 30);
  attr.sample_id_all = true;
  attr.exclude_kernel = false;
  attr.name = pt ? "intel_pt//" : "dummy:HG";
  for (int cpu = 0; cpu < cpus; ++cpu) attr.ids.push_back(ids + 10 * index + static_cast<uint64_t>(cpu));
  return attr;
}

void write_guest(const GuestInput& in, const std::string& path) {
  perfio::WriterOptions options;
  const int cpus = static_cast<int>(in.aux.size());
  options.attrs = {attr_of(in, kDummyAttr, cpus, kGuestIds, 0)};
  options.directory = true;
  auto created = perfio::PerfWriter::create(path, options);
  if (!created) fail(created.error().message);
  perfio::PerfWriter& writer = **created;
  std::vector<perfio::IdIndexEntry> ids;
  for (int cpu = 0; cpu < cpus; ++cpu) ids.push_back({options.attrs[0].ids[static_cast<size_t>(cpu)], static_cast<uint64_t>(cpu), cpu, -1});
  check(writer.add_id_index(ids));
  check(writer.add_time_conv(in.time));
  const auto wanted = [](const perfio::Payload& payload) {
    return std::holds_alternative<perfio::MmapRecord>(payload) || std::holds_alternative<perfio::CommRecord>(payload) ||
           std::holds_alternative<perfio::TaskRecord>(payload) || std::holds_alternative<perfio::SwitchRecord>(payload) ||
           std::holds_alternative<perfio::KsymbolRecord>(payload) || std::holds_alternative<perfio::TextPokeRecord>(payload);
  };
  size_t count = 0;
  for (const perfio::Record& record : in.records) {
    if (!wanted(record.payload)) continue;
    perfio::RecordContext context;
    context.misc = record.misc;
    context.sample_id = record.sample_id;
    const int cpu = std::clamp(record.sample_id.cpu, 0, cpus - 1);
    context.sample_id.cpu = cpu;
    context.sample_id.id = options.attrs[0].ids[static_cast<size_t>(cpu)];
    context.sample_id.stream_id = 0;
    if (const auto* map = std::get_if<perfio::MmapRecord>(&record.payload); map != nullptr && map->kernel) {
      check(writer.add_mmap(*map, context));
    } else {
      perfio::Payload payload = record.payload;
      auto* mmap = std::get_if<perfio::MmapRecord>(&payload);
      if (mmap != nullptr && mmap->executable && mmap->prot == 0) mmap->prot = 5;  // an MMAP record has none
      check(writer.add(payload, context));
    }
    if (++count % 512 == 0) check(writer.add_finished_round());
  }
  check(writer.add_finished_round());
  check(writer.add_kcore_dir(in.path + "/kcore_dir"));
  perfio::Features features = in.features;
  features.cpu_desc.clear();
  writer.set_features(features);
  check(writer.finish());
}

void write_kcore(const HostKernel& kernel, const fs::path& dir) {
  fs::create_directories(dir);
  std::vector<uint8_t> elf(64 + 56, 0);
  const auto put = [&](size_t at, uint64_t value, size_t size) { std::memcpy(elf.data() + at, &value, size); };
  std::memcpy(elf.data(),
              "\x7f"
              "ELF\x02\x01\x01",
              7);
  put(16, 4, 2), put(18, 62, 2), put(20, 1, 4), put(32, 64, 8), put(52, 64, 2), put(54, 56, 2), put(56, 1, 2);
  put(64, 1, 4), put(68, 7, 4), put(72, 120, 8), put(80, kernel.base, 8), put(96, kernel.code.size(), 8), put(104, kernel.code.size(), 8),
      put(112, 4096, 8);
  elf.insert(elf.end(), kernel.code.begin(), kernel.code.end());
  std::ofstream(dir / "kcore", std::ios::binary).write(reinterpret_cast<const char*>(elf.data()), static_cast<std::streamsize>(elf.size()));
  std::ofstream names(dir / "kallsyms");
  for (const auto& [name, offset] : kernel.labels) {
    std::array<char, 32> text{};
    (void)std::snprintf(text.data(), text.size(), "%016llx T ", static_cast<unsigned long long>(kernel.base + offset));
    names << text.data() << name << "\n";
  }
  std::ofstream(dir / "modules") << "";
}

struct HostCpu {
  std::vector<std::byte> trace;
  std::vector<std::pair<uint64_t, int32_t>> threads;  ///< time and host thread
};

int32_t pid_of(size_t guest) { return static_cast<int32_t>(1000 * (guest + 1)); }
int32_t tid_of(size_t guest, int vcpu) { return pid_of(guest) + 1 + vcpu; }

void write_host(const fs::path& dir, const HostKernel& kernel, const std::vector<GuestInput>& guests, const std::vector<HostCpu>& cpus) {
  const GuestInput& first = guests.front();
  uint64_t pt_config = 0;
  {
    auto reader = perfio::PerfReader::open(first.path);
    for (const perfio::EventAttr& attr : (*reader)->attrs()) pt_config = attr.type == first.priv[0] ? attr.config : pt_config;
  }
  perfio::WriterOptions options;
  const int count = static_cast<int>(cpus.size());
  options.attrs = {attr_of(first, kPtAttr, count, kHostIds, pt_config), attr_of(first, kDummyAttr, count, kHostIds, 0)};
  options.directory = true;
  auto created = perfio::PerfWriter::create(dir.string(), options);
  if (!created) fail(created.error().message);
  perfio::PerfWriter& writer = **created;
  std::vector<perfio::IdIndexEntry> ids;
  for (const auto& attr : options.attrs) {
    for (int cpu = 0; cpu < count; ++cpu) ids.push_back({attr.ids[static_cast<size_t>(cpu)], static_cast<uint64_t>(cpu), cpu, -1});
  }
  check(writer.add_id_index(ids));
  perfio::AuxtraceInfoRecord info;
  info.type = perfio::kAuxtraceIntelPt;
  info.priv = first.priv;
  check(writer.add_auxtrace_info(info));
  check(writer.add_time_conv(first.time));
  const auto context = [&](uint32_t attr, int cpu, int32_t pid, int32_t tid, uint64_t time, uint16_t misc) {
    perfio::RecordContext made;
    made.attr_index = attr;
    made.misc = misc;
    made.sample_id = {pid, tid, time, time != 0, cpu, options.attrs[attr].ids[static_cast<size_t>(cpu)], 0};
    return made;
  };
  perfio::MmapRecord map;
  map.pid = -1, map.tid = 0, map.addr = map.file_offset_bytes = kernel.base, map.size_bytes = 0x1000, map.path = "[kernel.kallsyms]_text",
  map.kernel = true;
  check(writer.add_mmap(map, context(kDummyAttr, 0, 0, 0, 0, perfio::kMiscKernel)));
  const auto name = [&](int32_t pid, int32_t tid, const std::string& comm) {
    check(writer.add(perfio::CommRecord{pid, tid, comm, false}, context(kDummyAttr, 0, pid, tid, 0, 0)));
  };
  for (size_t g = 0; g < guests.size(); ++g) {
    name(pid_of(g), pid_of(g), "qemu-system-x86");
    for (size_t vcpu = 0; vcpu < guests[g].aux.size(); ++vcpu)
      name(pid_of(g), tid_of(g, static_cast<int>(vcpu)), "CPU " + std::to_string(vcpu) + "/KVM");
  }
  check(writer.add_finished_init());
  check(writer.add_finished_round());
  for (int cpu = 0; cpu < count; ++cpu) {
    const HostCpu& host = cpus[static_cast<size_t>(cpu)];
    int32_t before = 0;
    for (const auto& [time, tid] : host.threads) {
      const int32_t pid = tid / 1000 * 1000;
      perfio::SwitchRecord change;
      change.cpu_wide = true;
      change.out = true;
      change.next_prev_pid = pid, change.next_prev_tid = tid;
      check(writer.add(change, context(kDummyAttr, cpu, before / 1000 * 1000, before, time, 0)));
      change.out = false;
      change.next_prev_pid = before / 1000 * 1000, change.next_prev_tid = before;
      check(writer.add(change, context(kDummyAttr, cpu, pid, tid, time, 0)));
      before = tid;
    }
    uint64_t at = 0;
    for (; at < host.trace.size(); at += kPieceBytes) {
      const uint64_t size = std::min<uint64_t>(kPieceBytes, host.trace.size() - at);
      perfio::AuxtraceRecord trace;
      trace.offset_bytes = at;
      trace.reference = 1;
      trace.idx = static_cast<uint32_t>(cpu);
      trace.cpu = cpu;
      trace.payload = Bytes(host.trace).subspan(at, size);
      check(writer.add_auxtrace(trace));
    }
  }
  check(writer.add_finished_round());
  perfio::Features features;
  features.hostname = "host";
  features.os_release = "6.1.0-host";
  features.arch = "x86_64";
  features.cpu_desc = first.features.cpu_desc;
  features.cpuid = first.features.cpuid;
  features.cpus_available = features.cpus_online = static_cast<uint32_t>(count);
  writer.set_features(features);
  write_kcore(kernel, dir.string() + ".kcore");
  check(writer.add_kcore_dir(dir.string() + ".kcore"));
  check(writer.finish());
  fs::remove_all(dir.string() + ".kcore");
}

uint64_t time_of(const GuestInput& guest, uint64_t tsc) {
  const auto& t = guest.time;
  const uint64_t quot = tsc >> t.time_shift, rem = tsc & ((1ULL << t.time_shift) - 1);
  return t.time_zero + quot * t.time_mult + ((rem * t.time_mult) >> t.time_shift);
}

std::vector<uint64_t> psb_times(Bytes bytes) {
  std::vector<uint64_t> times;
  pt::PacketReader reader(bytes);
  Packet packet;
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    if (packet.kind == PacketKind::tsc) times.push_back(packet.value);
  }
  return times;
}

int run(int argc, char** argv) {
  const fs::path out = argv[1];
  uint64_t every = 50, limit = ~0ULL;
  bool share = false;
  std::vector<GuestInput> guests;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--share") {
      share = true;
    } else if (word.starts_with("--every=")) {
      every = std::stoull(word.substr(8));
    } else if (word.starts_with("--bytes=")) {
      limit = std::stoull(word.substr(8));
    } else {
      guests.push_back(read_guest(word));
    }
  }
  fs::create_directories(out);
  const HostKernel kernel(guests.front().text);
  std::vector<HostCpu> cpus;
  std::ofstream flow(out / "host.flow");
  const auto finish = [&](Mixer& mixer, HostCpu& cpu) {
    mixer.finish();
    cpu.trace = std::move(mixer.bytes());
    for (const uint64_t ip : mixer.flow()) flow << cpus.size() << " " << std::hex << ip << std::dec << "\n";
    cpus.push_back(std::move(cpu));
  };
  for (size_t g = 0; g < guests.size() && !share; ++g) {
    for (const auto& [vcpu, bytes] : guests[g].aux) {
      HostCpu cpu;
      Mixer mixer(kernel, every);
      const Bytes part = Bytes(bytes).first(std::min<uint64_t>(limit, bytes.size()));
      const std::vector<uint64_t> times = psb_times(part);
      cpu.threads.emplace_back(time_of(guests[g], times.front()) - 1000, tid_of(g, vcpu));
      mixer.run(part, 0x1000 * (1 + static_cast<uint64_t>(tid_of(g, vcpu))), 0, ~0ULL);
      finish(mixer, cpu);
    }
  }
  // Guests of the same clock in turn on one cpu: slice n of the time is guest n's.
  for (int vcpu = 0; share && vcpu < static_cast<int>(guests.front().aux.size()); ++vcpu) {
    HostCpu cpu;
    Mixer mixer(kernel, every);
    const std::vector<uint64_t> times = psb_times(Bytes(guests.front().aux.at(vcpu)));
    constexpr size_t kSlices = 6;
    for (size_t slice = 0; slice < kSlices; ++slice) {
      const size_t g = slice % guests.size();
      const uint64_t from = slice == 0 ? 0 : times[times.size() * slice / kSlices],
                     to = slice + 1 == kSlices ? ~0ULL : times[times.size() * (slice + 1) / kSlices];
      cpu.threads.emplace_back(time_of(guests[g], slice == 0 ? times.front() : from) - 1000, tid_of(g, vcpu));
      if (slice != 0) mixer.switch_thread();
      mixer.run(Bytes(guests[g].aux.at(vcpu)), 0x1000 * (1 + static_cast<uint64_t>(tid_of(g, vcpu))), from, to);
    }
    finish(mixer, cpu);
  }
  write_host(out / "host", kernel, guests, cpus);
  for (size_t g = 0; g < guests.size(); ++g) write_guest(guests[g], (out / ("guest" + std::to_string(g))).string());
  return 0;
}

}  // namespace
}  // namespace ptd

int main(int argc, char** argv) {
  if (argc < 3) {
    (void)std::fprintf(stderr, "usage: mix_guests OUT GUEST... [--every=N] [--bytes=N] [--share]\n");
    return 2;
  }
  return ptd::run(argc, argv);
}
