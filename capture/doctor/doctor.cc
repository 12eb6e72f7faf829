// Doctor: the checks and their consequences.
#include "capture/doctor/doctor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "capture/doctor/coresight.h"
#include "capture/doctor/facts.h"
#include "capture/emulators/emulator_query.h"

namespace ptd::doctor {
namespace {

constexpr const char* kDevices = "bus/event_source/devices/";
constexpr uint64_t kMiB = 1U << 20;

using Checks = std::vector<Check>;

/// Bits of CPUID that tell of the trace unit ([SDM] "CPUID", leaves 07H and 14H).
bool cpuid_has_pt(const Machine& machine) {
  constexpr uint32_t kFeatures = 7, kTraceBit = 25;
  const std::vector<uint32_t> leaf = machine.cpuid ? machine.cpuid(kFeatures, 0) : std::vector<uint32_t>();
  return leaf.size() == 4 && (leaf[1] >> kTraceBit & 1U) != 0;
}

void check_cpu(const Facts& facts, Checks& checks) {
  Check check{"cpu", Verdict::good,
              facts.model.empty() ? "processor: " + std::string(facts.machine.arm64 ? "Arm" : "unknown") : facts.model, ""};
  if (facts.machine.x86) {
    const bool intel = facts.vendor == "GenuineIntel", bit = cpuid_has_pt(facts.machine), flag = facts.has_flag("intel_pt");
    if (bit || flag) {
      check.found += bit == flag ? ": has Intel PT"
                     : bit       ? ": has Intel PT, but the kernel does not list it"
                                 : ": has Intel PT, according to the kernel";
    } else {
      check.verdict = Verdict::blocked;
      check.found += intel ? ": no Intel PT" : ": not an Intel processor, so no Intel PT";
      check.fix = "ptdecode record --emulate -- PROGRAM";
    }
  }
  checks.push_back(std::move(check));
}

void check_machine(const Facts& facts, Checks& checks) {
  if (!facts.virtual_machine.empty()) {
    const bool has_unit = facts.has_sys(std::string(kDevices) + "intel_pt") || facts.has_sys(std::string(kDevices) + "cs_etm");
    checks.push_back({"vm", has_unit ? Verdict::good : Verdict::blocked,
                      "a virtual machine of " + facts.virtual_machine +
                          (has_unit ? ", which provides the trace unit" : ": its host does not provide the trace unit"),
                      has_unit || facts.vendor != "GenuineIntel"
                          ? ""
                          : "on a KVM host with Intel PT: modprobe -r kvm_intel; modprobe kvm_intel pt_mode=1, and -cpu host,+intel-pt"});
  }
  const bool kept = !facts.machine.open_event || facts.machine.open_event({"", false, false, 0}).number != 0;
  if (facts.container && kept)
    checks.push_back({"container", Verdict::limit, "a container: its seccomp profile may block perf_event_open",
                      "run it with --cap-add PERFMON --security-opt seccomp=unconfined"});
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void check_pmu(const Facts& facts, Diagnosis& diagnosis) {
  const std::string pt = std::string(kDevices) + "intel_pt", etm = std::string(kDevices) + "cs_etm";
  if (facts.has_sys(pt + "/type")) {
    diagnosis.trace_unit = "intel_pt";
    std::vector<std::string> can, cannot;
    for (const auto& [file, word] :
         {std::pair("psb_cyc", "CYC and PSB period"), std::pair("mtc", "MTC"), std::pair("ip_filtering", "address filters"),
          std::pair("ptwrite", "PTWRITE"), std::pair("power_event_trace", "power events"), std::pair("event_trace", "event trace"),
          std::pair("tnt_disable", "TNT off"), std::pair("output_subsys", "other output")}) {
      (facts.sys(pt + "/caps/" + file) == "1" ? can : cannot).emplace_back(word);
    }
    const std::string filters = facts.sys(pt + "/nr_addr_filters");
    diagnosis.checks.push_back({"pmu", Verdict::good,
                                "intel_pt, type " + facts.sys(pt + "/type") + (can.empty() ? "" : "; with " + join(can)) +
                                    (cannot.empty() ? "" : "; without " + join(cannot)) +
                                    (filters.empty() ? "" : "; " + filters + " address filters"),
                                ""});
  } else if (facts.has_sys(etm + "/type")) {
    diagnosis.trace_unit = "cs_etm";
    check_coresight(facts, diagnosis.checks);
  } else if (facts.machine.arm64) {
    diagnosis.checks.push_back({"pmu", Verdict::blocked, "no cs_etm event: no CoreSight driver found its hardware",
                                facts.sudo() + "modprobe -a coresight coresight-etm4x coresight-tmc coresight-funnel coresight-replicator; "
                                               "or the firmware does not describe it"});
  } else {
    const bool has_it = cpuid_has_pt(facts.machine) || facts.has_flag("intel_pt");
    diagnosis.checks.push_back({"pmu", Verdict::blocked, "no intel_pt event (" + facts.machine.sys + "/" + pt + " is missing)",
                                has_it ? "the processor has it: firmware that uses it itself, VMX on an old processor, or a kernel without "
                                         "CONFIG_PERF_EVENTS_INTEL; see dmesg | grep -i 'processor trace'"
                                       : "ptdecode record --emulate -- PROGRAM"});
  }
}

void check_paranoid(const Facts& facts, Checks& checks) {
  const std::string lower = facts.sudo() + "sysctl kernel.perf_event_paranoid=-1";
  if (!facts.paranoid) {
    checks.push_back({"paranoid", Verdict::blocked, "the kernel has no perf events (kernel.perf_event_paranoid is missing)",
                      "a kernel with CONFIG_PERF_EVENTS"});
    return;
  }
  const std::string level = "kernel.perf_event_paranoid is " + std::to_string(*facts.paranoid);
  if (facts.privileged()) {
    checks.push_back({"paranoid", Verdict::good, level + ", which does not restrict this user", ""});
  } else if (*facts.paranoid <= -1) {
    checks.push_back({"paranoid", Verdict::good, level + ": every user may trace everything", ""});
  } else if (*facts.paranoid <= 0) {
    checks.push_back({"paranoid", Verdict::limit, level + ": no more ring memory than kernel.perf_event_mlock_kb", lower});
  } else if (*facts.paranoid <= 1) {
    checks.push_back({"paranoid", Verdict::limit, level + ": only your own programs, including the kernel while they run", lower});
  } else if (*facts.paranoid <= 2) {
    checks.push_back({"paranoid", Verdict::limit, level + ": only your own programs, without the kernel", lower});
  } else {
    checks.push_back({"paranoid", Verdict::blocked, level + ": no tracing without CAP_PERFMON", lower});
  }
}

void check_capabilities(const Facts& facts, Checks& checks) {
  std::vector<std::string> has, lacks;
  for (const auto& [capability, word] :
       {std::pair(Capability::perfmon, "CAP_PERFMON"), std::pair(Capability::bpf, "CAP_BPF"),
        std::pair(Capability::sys_admin, "CAP_SYS_ADMIN"), std::pair(Capability::sys_ptrace, "CAP_SYS_PTRACE"),
        std::pair(Capability::syslog, "CAP_SYSLOG"), std::pair(Capability::sys_rawio, "CAP_SYS_RAWIO")}) {
    (facts.has(capability) ? has : lacks).emplace_back(word);
  }
  Check check{"capabilities", lacks.empty() ? Verdict::good : Verdict::limit, "", ""};
  check.found = (has.empty() ? "no capabilities" : "has " + join(has)) + (lacks.empty() ? "" : "; lacks " + join(lacks));
  if (!facts.privileged()) {
    check.fix =
        "sudo setcap cap_perfmon,cap_ipc_lock,cap_sys_ptrace,cap_syslog=ep $(command -v ptdecode); BPF code and /proc/kcore need root";
  } else if (!lacks.empty()) {
    check.fix = "run as root of the first user namespace";
  }
  checks.push_back(std::move(check));
}

void check_lockdown(const Facts& facts, Checks& checks) {
  const bool confidential = facts.lockdown.find("[confidentiality]") != std::string::npos;
  const bool integrity = facts.lockdown.find("[integrity]") != std::string::npos;
  if (!confidential && !integrity) return;
  checks.push_back({"lockdown", confidential ? Verdict::limit : Verdict::good,
                    confidential ? "the kernel is locked down (confidentiality): no trace of it, no copy of its memory, no BPF code"
                                 : "the kernel is locked down (integrity): recording still works",
                    confidential ? "boot without lockdown=confidentiality (Secure Boot may require it)" : ""});
}

void check_memory(const Facts& facts, Checks& checks) {
  if (!facts.mlock_kb) return;
  const uint64_t per_cpu = static_cast<uint64_t>(std::max<int64_t>(*facts.mlock_kb, 0)) << 10;
  // The kernel's own check ([Linux] kernel/events/core.c, perf_mmap()): CAP_PERFMON lifts none of these limits.
  const bool unlimited = facts.locked_memory_bytes == ~uint64_t{0};
  const bool unbound = unlimited || facts.has(Capability::ipc_lock) || (facts.paranoid && *facts.paranoid < 0);
  std::string found = "kernel.perf_event_mlock_kb is " + std::to_string(*facts.mlock_kb) + " per cpu";
  if (facts.locked_memory_bytes && !unlimited) found += ", ulimit -l adds " + std::to_string(*facts.locked_memory_bytes >> 10) + " KiB";
  constexpr uint64_t kEnough = 4 * kMiB;
  const bool enough = unbound || per_cpu + facts.locked_memory_bytes.value_or(0) >= kEnough;
  checks.push_back({"memory", enough ? Verdict::good : Verdict::limit,
                    found + (unbound  ? "; not a limit for this user"
                             : enough ? ""
                                      : ": small buffers, so trace may be lost"),
                    enough ? "" : facts.sudo() + "sysctl kernel.perf_event_mlock_kb=65536"});
}

/// Of lines "ADDRESS TYPE NAME" one of code has an address. The first ones may be those of variables that each cpu has, which count from
/// zero for everybody.
bool tells_addresses(std::string_view kallsyms) {
  while (!kallsyms.empty()) {
    const size_t end = std::min(kallsyms.find('\n'), kallsyms.size());
    const std::string_view line = kallsyms.substr(0, end);
    kallsyms.remove_prefix(std::min(end + 1, kallsyms.size()));
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos || blank + 1 >= line.size()) continue;
    const char type = line[blank + 1];
    if ((type == 't' || type == 'T') && line.substr(0, blank).find_first_not_of('0') != std::string_view::npos) return true;
  }
  return false;
}

void check_kernel_code(const Facts& facts, Checks& checks) {
  constexpr size_t kMostBytes = 1U << 20;
  int number = 0;
  const std::string kallsyms = read_some(facts.machine.proc + "/kallsyms", &number, kMostBytes);
  if (!tells_addresses(kallsyms)) {
    const std::string restrict = facts.kptr_restrict ? " (kernel.kptr_restrict is " + std::to_string(*facts.kptr_restrict) + ")" : "";
    checks.push_back({"kallsyms", Verdict::limit,
                      kallsyms.empty() ? "/proc/kallsyms cannot be read: " + std::string(std::strerror(number == 0 ? ENOENT : number))
                                       : "/proc/kallsyms hides the kernel's addresses" + restrict,
                      facts.sudo() + "sysctl kernel.kptr_restrict=0, or CAP_SYSLOG"});
  } else {
    checks.push_back({"kallsyms", Verdict::good, "/proc/kallsyms shows the kernel's addresses", ""});
  }
  (void)read_some(facts.machine.proc + "/kcore", &number);
  const char* fix = number == EPERM && !facts.lockdown.empty() && facts.lockdown.find("[none]") == std::string::npos
                        ? "boot without lockdown=confidentiality"
                    : number == ENOENT ? "a kernel with CONFIG_PROC_KCORE"
                                       : "run as root";
  checks.push_back({"kcore", number == 0 ? Verdict::good : Verdict::limit,
                    number == 0 ? "/proc/kcore can be read: the kernel's own code can be recorded"
                                : "/proc/kcore cannot be read (" + std::string(std::strerror(number)) + "): no copy of the kernel's code",
                    number == 0 ? "" : fix});
}

void check_bpf(const Facts& facts, Checks& checks) {
  if (!facts.machine.list_bpf) return;
  const int number = facts.machine.list_bpf();
  const bool good = number == 0 || number == ENOENT;
  checks.push_back({"bpf", good ? Verdict::good : Verdict::limit,
                    good ? "the code of BPF programs can be read"
                         : "the code of BPF programs cannot be read (" + std::string(std::strerror(number)) + ")",
                    good               ? ""
                    : number == ENOSYS ? "a kernel with CONFIG_BPF_SYSCALL"
                                       : "run as root, or with CAP_BPF and CAP_PERFMON"});
}

/// What the kernel supports and permits for this user; a kind that needs more rights is tried with this user's rights.
void check_kinds(const Facts& facts, Diagnosis& diagnosis) {
  if (!facts.machine.open_event) return;
  const auto probe = [&](const char* what, bool all, bool kernel) { return facts.machine.open_event({what, all, kernel, 0}).number; };
  const int own = probe("", false, false), all = probe("", true, false);
  diagnosis.sideband = own == 0;
  diagnosis.system_sideband = all == 0;
  diagnosis.checks.push_back({"events", own == 0 ? Verdict::good : Verdict::blocked,
                              own != 0   ? "no perf event can be opened (" + std::string(std::strerror(own)) + ")"
                              : all == 0 ? "perf events of all processes can be opened"
                                         : "perf events of your own processes can be opened, but not those of all processes "
                                           "(" +
                                               std::string(std::strerror(all)) + ")",
                              own != 0 && facts.privileged() ? "a seccomp profile, such as a container's, blocks perf_event_open"
                              : all == 0                     ? ""
                                                             : facts.sudo() + "sysctl kernel.perf_event_paranoid=-1"});
  if (own != 0) return;
  std::vector<std::string> known, unknown, refused;
  struct Kind {
    const char *what, *word;
    bool all;
  };
  for (const Kind& kind : {Kind{"build_ids", "build ids (5.12)", false}, Kind{"switches", "context switches (4.3)", false},
                           Kind{"namespaces", "namespaces (4.12)", false}, Kind{"ksymbols", "ksymbols (5.1)", true},
                           Kind{"bpf", "BPF events (5.1)", true}, Kind{"text_pokes", "text pokes (5.9)", true}}) {
    const int number = probe(kind.what, kind.all && all == 0, false);
    (number == 0 ? known : number == EINVAL ? unknown : refused).emplace_back(kind.word);
  }
  Check check{"kinds", unknown.empty() && refused.empty() ? Verdict::good : Verdict::limit, "records of " + join(known), ""};
  if (!unknown.empty()) check.found += "; not supported by this kernel: " + join(unknown);
  if (!refused.empty()) check.found += "; not permitted for this user: " + join(refused);
  if (!unknown.empty()) check.fix = "a newer kernel than " + facts.release;
  if (unknown.empty() && !refused.empty()) check.fix = facts.sudo() + "sysctl kernel.perf_event_paranoid=-1";
  diagnosis.checks.push_back(std::move(check));
}

void check_trace(const Facts& facts, Diagnosis& diagnosis) {
  if (diagnosis.trace_unit.empty() || !facts.machine.open_event) return;
  const auto type = number_of(facts.sys(std::string(kDevices) + diagnosis.trace_unit + "/type"));
  if (!type) return;
  const auto probe = [&](bool all, bool kernel) {
    return facts.machine.open_event({"trace", all, kernel, static_cast<uint32_t>(*type)}).number;
  };
  const int own = probe(false, false);
  diagnosis.user_trace = own == 0;
  diagnosis.kernel_trace = probe(false, true) == 0;
  diagnosis.system_trace = probe(true, diagnosis.kernel_trace) == 0;
  if (own == 0) {
    diagnosis.checks.push_back(
        {"trace", diagnosis.kernel_trace && diagnosis.system_trace ? Verdict::good : Verdict::limit,
         diagnosis.trace_unit + std::string(" opens") + (diagnosis.kernel_trace ? ", with the kernel" : ", of user code only") +
             (diagnosis.system_trace ? ", of all processes" : ", of your own processes"),
         diagnosis.kernel_trace && diagnosis.system_trace ? "" : facts.sudo() + "sysctl kernel.perf_event_paranoid=-1"});
    return;
  }
  const std::string why = own == EBUSY ? "in use by another tracer (perf, gdb, a hypervisor)" : std::strerror(own);
  diagnosis.checks.push_back({"trace", Verdict::blocked, diagnosis.trace_unit + " cannot be opened: " + why,
                              own == EBUSY                    ? "end the other tracer"
                              : own == EACCES || own == EPERM ? facts.sudo() + "sysctl kernel.perf_event_paranoid=1"
                                                              : "see dmesg"});
}

void check_modules(const Facts& facts, Checks& checks) {
  const bool readable = ::access((facts.machine.sys + "/kernel/tracing/events").c_str(), R_OK | X_OK) == 0 ||
                        ::access((facts.machine.sys + "/kernel/debug/tracing/events").c_str(), R_OK | X_OK) == 0;
  checks.push_back({"tracefs", readable ? Verdict::good : Verdict::limit,
                    readable ? "tracefs is mounted: modules loaded during a recording are noticed at once"
                             : "tracefs is not mounted: modules loaded during a recording are noticed late",
                    readable                  ? ""
                    : facts.machine.user == 0 ? "mount -t tracefs none /sys/kernel/tracing"
                                              : "run as root"});
}

// The ring needs nothing of the kernel that any kernel lacks, so this never limits a recording.
void check_announcements(const Facts& facts, Checks& checks) {
  constexpr const char* kPlaces[] = {"kernel/tracing/user_events_data", "kernel/debug/tracing/user_events_data"};
  std::string found = std::string("run-times with libptd-announce are heard, those of ") +
                      (facts.has(Capability::sys_ptrace) ? "all processes" : "this user's processes") + ", through their rings";
  std::string events;
  for (const char* place : kPlaces) {
    if (!events.empty() || !facts.has_sys(place)) continue;
    const bool writable = ::access((facts.machine.sys + "/" + place).c_str(), W_OK) == 0;
    events = std::string("; also through user_events, those ") +
             (writable ? "of this user" : "that may write to " + facts.machine.sys + "/" + place);
  }
  if (events.empty()) events = "; this kernel has no user_events (Linux 6.4, CONFIG_USER_EVENTS), or tracefs is not readable";
  checks.push_back({"announcements", Verdict::good, found + events, ""});
}

void check_disk(const Facts& facts, Checks& checks) {
  constexpr uint64_t kLeast = 2048 * kMiB;
  if (facts.machine.stash.empty() || !facts.machine.free_bytes) return;
  const auto free = facts.machine.free_bytes(facts.machine.stash);
  if (!free) return;
  checks.push_back({"disk", *free >= kLeast ? Verdict::good : Verdict::limit,
                    std::to_string(*free / kMiB) + " MiB free for the stash, " + facts.machine.stash,
                    *free >= kLeast ? "" : "ptdecode stash gc --gone --older-than 30d, or another place: PTDECODE_STASH=DIR"});
}

void check_emulation(const Facts& facts, Diagnosis& diagnosis) {
  const Machine& machine = facts.machine;
  emulators::EmulatorSearch search;
  search.name = machine.arm64 ? "qemu-aarch64" : "qemu-x86_64";
  search.path = machine.path;
  search.built = machine.built_emulators;
  search.most_time = machine.most_query_time;
  const emulators::Emulator chosen = emulators::choose_emulator(search);
  diagnosis.emulation = chosen.fitness == emulators::Fitness::works;
  diagnosis.checks.push_back({"emulation", diagnosis.emulation ? Verdict::good : Verdict::limit,
                              chosen.found + (diagnosis.emulation ? ": record --emulate works" : ": record --emulate does not work"),
                              diagnosis.emulation ? ""
                              : chosen.fitness == emulators::Fitness::missing
                                  ? facts.sudo() + "apt install qemu-user (Debian 12); elsewhere: ptdecode emulator build"
                                  : "ptdecode emulator build"});
  if (machine.arm64) return;
  const auto check_machines = [&](const char* what, emulators::MachineArch arch, const char* programs, const char* advice) {
    search.name = emulators::system_emulator(arch);
    const emulators::Emulator system = emulators::choose_emulator(search);
    const bool works = system.fitness == emulators::Fitness::works;
    diagnosis.checks.push_back(
        {what, works ? Verdict::good : Verdict::limit,
         system.found + ": record --emulate=system " + (works ? "works" : "does not work") + programs + (works ? ", given a kernel" : ""),
         works ? "" : advice});
    return works;
  };
  diagnosis.system_emulation = check_machines("machines", emulators::MachineArch::x86_64, "", "ptdecode emulator fetch");
  (void)check_machines("machines_arm", emulators::MachineArch::arm64, " for arm64 programs", "ptdecode emulator fetch --machine arm64");
}

}  // namespace

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::good:
      return "good";
    case Verdict::limit:
      return "limit";
    case Verdict::blocked:
      return "blocked";
  }
  return "?";
}

Diagnosis diagnose(const Machine& machine) {
  const Facts facts(machine);
  Diagnosis diagnosis;
  check_cpu(facts, diagnosis.checks);
  check_machine(facts, diagnosis.checks);
  check_pmu(facts, diagnosis);
  check_trace(facts, diagnosis);
  check_paranoid(facts, diagnosis.checks);
  check_capabilities(facts, diagnosis.checks);
  check_lockdown(facts, diagnosis.checks);
  check_memory(facts, diagnosis.checks);
  check_kinds(facts, diagnosis);
  check_kernel_code(facts, diagnosis.checks);
  check_bpf(facts, diagnosis.checks);
  check_modules(facts, diagnosis.checks);
  check_announcements(facts, diagnosis.checks);
  check_disk(facts, diagnosis.checks);
  check_emulation(facts, diagnosis);
  return diagnosis;
}

}  // namespace ptd::doctor
