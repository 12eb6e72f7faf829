// The doctor on simulated machines: what each can record, and the suggested command if it cannot.
#include "capture/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ptd::doctor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kNoCapabilities = "0000000000000000";
constexpr const char* kRoot = "000001ffffffffff";
constexpr const char* kIpcLock = "0000000000004000";  // bit 14
constexpr const char* kPerfmon = "0000004000000000";  // bit 38 ([linux/capability.h])

class Doctor : public testing::Test {
 protected:
  Doctor() {
    std::string name = (fs::temp_directory_path() / "ptdecode-doctor-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    machine_.proc = folder_ + "/proc";
    machine_.sys = folder_ + "/sys";
    machine_.path = folder_ + "/bin";
    machine_.x86 = true;
    machine_.user = 1000;
    machine_.cpuid = [this](uint32_t leaf, uint32_t) { return std::vector<uint32_t>{0, leaf == 7 && cpuid_bit_ ? 1U << 25 : 0, 0, 0}; };
    machine_.open_event = [this](const Machine::Probe& probe) { return ProbeResult{answer_(probe)}; };
    machine_.list_bpf = [] { return EPERM; };
    machine_.free_bytes = [](const std::string&) { return std::optional<uint64_t>(100ULL << 30); };
    proc("sys/kernel/osrelease", "6.1.0\n");
    proc("sys/kernel/perf_event_paranoid", "2\n");
    proc("sys/kernel/perf_event_mlock_kb", "516\n");
    proc("sys/kernel/kptr_restrict", "1\n");
    proc("self/status", std::string("Name:\tx\nCapInh:\t") + kRoot + "\nCapEff:\t" + kNoCapabilities + "\n");
    proc("self/limits",
         "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         8388608              "
         "8388608              bytes\n");
    proc("kallsyms", kallsyms(false));
    cpu("GenuineIntel", "fpu intel_pt sse2");
  }
  ~Doctor() override { fs::remove_all(folder_); }

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }
  void proc(const std::string& name, const std::string& text) const { put(folder_ + "/proc/" + name, text); }
  void sys(const std::string& name, const std::string& text) const { put(folder_ + "/sys/" + name, text); }
  /// The first symbols of x86 kernels: variables of each cpu, from address 0 on even for root, then code.
  static std::string kallsyms(bool told) {
    std::string text = "0000000000000000 A fixed_percpu_data\n0000000000000000 A __per_cpu_start\n";
    for (int i = 1; i < 3000; ++i) {
      char line[64];
      std::snprintf(line, sizeof line, "%016x A variable_of_each_cpu_%d\n", told ? i * 64 : 0, i);
      text += line;
    }
    const std::string address = told ? "ffffffff81000000" : "0000000000000000";
    return text + address + " T startup_64\n" + address + " T _stext\n";
  }
  void cpu(const std::string& vendor, const std::string& flags) const {
    proc("cpuinfo",
         "processor\t: 0\nvendor_id\t: " + vendor + "\nmodel\t\t: 94\nmodel name\t: A Cpu\nflags\t\t: " + flags + "\n\nprocessor\t: 1\n");
  }
  void capabilities(const std::string& effective) const { proc("self/status", "Name:\tx\nCapEff:\t" + effective + "\n"); }
  void intel_pt() const {
    sys("bus/event_source/devices/intel_pt/type", "8\n");
    sys("bus/event_source/devices/intel_pt/caps/mtc", "1\n");
    sys("bus/event_source/devices/intel_pt/caps/psb_cyc", "1\n");
    sys("bus/event_source/devices/intel_pt/caps/ptwrite", "0\n");
    sys("bus/event_source/devices/intel_pt/nr_addr_filters", "2\n");
  }
  /// The kernel's rule for permissions ([Linux] kernel/events/core.c, perf_event_open()), by paranoid level.
  static int by_rule(int paranoid, const Machine::Probe& probe) {
    if (paranoid > 2) return EACCES;
    if (probe.with_kernel && paranoid > 1) return EACCES;
    return probe.all_of_cpu && paranoid > 0 ? EACCES : 0;
  }
  const Check& check(const Diagnosis& diagnosis, const std::string& id) const {
    static const Check kNone;
    for (const Check& each : diagnosis.checks) {
      if (each.id == id) return each;
    }
    ADD_FAILURE() << "no check " << id;
    return kNone;
  }
  std::string folder_;
  Machine machine_;
  bool cpuid_bit_ = true;
  std::function<int(const Machine::Probe&)> answer_ = [](const Machine::Probe& probe) { return by_rule(2, probe); };
};

TEST_F(Doctor, AnIntelMachineTracesOnesOwnPrograms) {
  intel_pt();
  const Diagnosis d = diagnose(machine_);
  EXPECT_TRUE(d.user_trace);
  EXPECT_FALSE(d.kernel_trace);
  EXPECT_FALSE(d.system_trace);
  EXPECT_EQ(d.trace_unit, "intel_pt");
  EXPECT_THAT(check(d, "cpu").found, HasSubstr("A Cpu: has Intel PT"));
  EXPECT_THAT(check(d, "pmu").found, HasSubstr("type 8; with CYC and PSB period, MTC; without "));
  EXPECT_THAT(check(d, "pmu").found, HasSubstr("2 address filters"));
  EXPECT_EQ(check(d, "trace").verdict, Verdict::limit);
  EXPECT_EQ(check(d, "trace").fix, "sudo sysctl kernel.perf_event_paranoid=-1");
  EXPECT_THAT(check(d, "paranoid").found, HasSubstr("only your own programs, without the kernel"));
}

TEST_F(Doctor, EachParanoidLevelIsExplained) {
  intel_pt();
  struct Case {
    int level;
    bool user, kernel, system;
    Verdict verdict;
  };
  for (const Case& c :
       {Case{-1, true, true, true, Verdict::good}, Case{0, true, true, true, Verdict::limit}, Case{1, true, true, false, Verdict::limit},
        Case{2, true, false, false, Verdict::limit}, Case{3, false, false, false, Verdict::blocked}}) {
    proc("sys/kernel/perf_event_paranoid", std::to_string(c.level) + "\n");
    answer_ = [&](const Machine::Probe& probe) { return by_rule(c.level, probe); };
    const Diagnosis d = diagnose(machine_);
    EXPECT_EQ(d.user_trace, c.user) << c.level;
    EXPECT_EQ(d.kernel_trace, c.kernel) << c.level;
    EXPECT_EQ(d.system_trace, c.system) << c.level;
    EXPECT_EQ(check(d, "paranoid").verdict, c.verdict) << c.level;
    EXPECT_EQ(check(d, "paranoid").fix.empty(), c.verdict == Verdict::good) << c.level;
  }
}

TEST_F(Doctor, CapPerfmonIsEnough) {
  intel_pt();
  proc("sys/kernel/perf_event_paranoid", "3\n");
  capabilities(kPerfmon);
  answer_ = [](const Machine::Probe&) { return 0; };
  const Diagnosis d = diagnose(machine_);
  EXPECT_TRUE(d.system_trace);
  EXPECT_EQ(check(d, "paranoid").verdict, Verdict::good);
  EXPECT_EQ(check(d, "memory").verdict, Verdict::good);
  EXPECT_THAT(check(d, "capabilities").found, HasSubstr("has CAP_PERFMON; lacks"));
}

TEST_F(Doctor, AVirtualMachineIsNamedWithItsMaker) {
  cpuid_bit_ = false;
  cpu("GenuineIntel", "fpu hypervisor");
  sys("class/dmi/id/sys_vendor", "QEMU\n");
  sys("class/dmi/id/product_name", "Standard PC\n");
  const Diagnosis d = diagnose(machine_);
  EXPECT_FALSE(d.user_trace);
  EXPECT_TRUE(d.sideband);
  EXPECT_EQ(check(d, "vm").found, "a virtual machine of QEMU Standard PC: its host does not provide the trace unit");
  EXPECT_THAT(check(d, "vm").fix, HasSubstr("pt_mode=1"));
  EXPECT_EQ(check(d, "pmu").verdict, Verdict::blocked);
  EXPECT_EQ(check(d, "pmu").fix, "ptdecode record --emulate -- PROGRAM");
}

TEST_F(Doctor, AnotherMakersProcessorHasNone) {
  cpuid_bit_ = false;
  cpu("AuthenticAMD", "fpu");
  EXPECT_THAT(check(diagnose(machine_), "cpu").found, HasSubstr("not an Intel processor"));
}

TEST_F(Doctor, AProcessorThatHasItAndAKernelThatDoesNotAreToldApart) {
  const Diagnosis d = diagnose(machine_);
  EXPECT_EQ(check(d, "cpu").verdict, Verdict::good);
  EXPECT_EQ(check(d, "pmu").verdict, Verdict::blocked);
  EXPECT_THAT(check(d, "pmu").fix, HasSubstr("the processor has it"));
}

TEST_F(Doctor, ATraceUnitThatIsInUseIsSaidToBe) {
  intel_pt();
  answer_ = [](const Machine::Probe& probe) { return probe.what == "trace" ? EBUSY : 0; };
  const Diagnosis d = diagnose(machine_);
  EXPECT_FALSE(d.user_trace);
  EXPECT_THAT(check(d, "trace").found, HasSubstr("in use by another tracer"));
}

TEST_F(Doctor, AnOldKernelsGapsAreNamed) {
  answer_ = [](const Machine::Probe& probe) { return probe.what == "text_pokes" || probe.what == "build_ids" ? EINVAL : 0; };
  const Diagnosis d = diagnose(machine_);
  EXPECT_THAT(check(d, "kinds").found, HasSubstr("not supported by this kernel: build ids (5.12), text pokes (5.9)"));
  EXPECT_EQ(check(d, "kinds").fix, "a newer kernel than 6.1.0");
}

TEST_F(Doctor, RootInALockedDownKernelStillHasNoKernelCode) {
  intel_pt();
  capabilities(kRoot);
  machine_.user = 0;
  sys("kernel/security/lockdown", "none integrity [confidentiality]\n");
  answer_ = [](const Machine::Probe& probe) { return probe.with_kernel ? EPERM : 0; };
  const Diagnosis d = diagnose(machine_);
  EXPECT_TRUE(d.user_trace);
  EXPECT_FALSE(d.kernel_trace);
  EXPECT_THAT(check(d, "lockdown").fix, HasSubstr("boot without lockdown=confidentiality"));
  sys("kernel/security/lockdown", "[none] integrity confidentiality\n");
  for (const Check& each : diagnose(machine_).checks) EXPECT_NE(each.id, "lockdown");
}

TEST_F(Doctor, KernelCodeNeedsKallsymsAndKcore) {
  Diagnosis d = diagnose(machine_);
  EXPECT_EQ(check(d, "kallsyms").found, "/proc/kallsyms hides the kernel's addresses (kernel.kptr_restrict is 1)");
  EXPECT_THAT(check(d, "kcore").fix, HasSubstr("CONFIG_PROC_KCORE"));
  EXPECT_EQ(check(d, "bpf").verdict, Verdict::limit);
  proc("kallsyms", kallsyms(true));
  proc("kcore", "ELF");
  machine_.list_bpf = [] { return ENOENT; };
  d = diagnose(machine_);
  for (const char* id : {"kallsyms", "kcore", "bpf"}) EXPECT_EQ(check(d, id).verdict, Verdict::good) << id;
}

TEST_F(Doctor, RingMemoryIsCounted) {
  proc("self/limits", "Max locked memory         65536                65536                bytes\n");
  Diagnosis d = diagnose(machine_);
  EXPECT_EQ(check(d, "memory").verdict, Verdict::limit);
  EXPECT_EQ(check(d, "memory").fix, "sudo sysctl kernel.perf_event_mlock_kb=65536");
  capabilities(kPerfmon);
  EXPECT_EQ(check(diagnose(machine_), "memory").verdict, Verdict::limit) << "perf_mmap() asks for CAP_IPC_LOCK, not for CAP_PERFMON";
  capabilities(kIpcLock);
  EXPECT_EQ(check(diagnose(machine_), "memory").verdict, Verdict::good);
  capabilities(kNoCapabilities);
  proc("self/limits", "Max locked memory         unlimited            unlimited            bytes\n");
  d = diagnose(machine_);
  EXPECT_EQ(check(d, "memory").verdict, Verdict::good);
  EXPECT_EQ(check(d, "memory").found, "kernel.perf_event_mlock_kb is 516 per cpu; not a limit for this user");
  proc("self/limits", "Max locked memory         65536                65536                bytes\n");
  proc("sys/kernel/perf_event_mlock_kb", "65536\n");
  EXPECT_EQ(check(diagnose(machine_), "memory").verdict, Verdict::good);
}

TEST_F(Doctor, CoreSightWantsASink) {
  machine_.x86 = false;
  machine_.arm64 = true;
  EXPECT_THAT(check(diagnose(machine_), "pmu").fix, HasSubstr("modprobe -a coresight"));
  sys("bus/event_source/devices/cs_etm/type", "9\n");
  EXPECT_EQ(check(diagnose(machine_), "pmu").verdict, Verdict::blocked);
  EXPECT_THAT(check(diagnose(machine_), "pmu").found, HasSubstr("no processor has a trace unit"));
  EXPECT_THAT(check(diagnose(machine_), "sink").found, HasSubstr("cannot be written"));
  sys("bus/event_source/devices/cs_etm/cpu0/cpu", "0\n");
  sys("bus/event_source/devices/cs_etm/sinks/tmc_etr0", "0x1\n");
  const Diagnosis d = diagnose(machine_);
  EXPECT_EQ(d.trace_unit, "cs_etm");
  EXPECT_TRUE(d.user_trace);
}

TEST_F(Doctor, CoreSightTellsWhatIsMissing) {
  struct Case {
    const char* online;
    std::vector<int> units;
    std::vector<const char*> sinks;
    Verdict pmu, sink;
    const char *pmu_text, *sink_text;
  };
  machine_.x86 = false;
  machine_.arm64 = true;
  const Case cases[] = {
      {"0-1", {0, 1}, {"trbe0", "trbe1", "tmc_etr0"}, Verdict::good, Verdict::good, "all processors", "TRBE: each processor"},
      {"0-1,4", {0, 1}, {"tmc_etr1"}, Verdict::limit, Verdict::limit, "no trace unit for cpu 4:", "ETR (tmc_etr1): one buffer"},
      {"0-3", {0, 1, 2, 3}, {"trbe0", "tmc_etr0"}, Verdict::good, Verdict::limit, "all processors", "none on cpus 1, 2 and 3"},
      {"0-3", {0, 1, 2, 3}, {"trbe0", "trbe3"}, Verdict::good, Verdict::limit, "all processors", "no TRBE for cpus 1 and 2, and no ETR"},
      {"0-15", {0}, {"tmc_etf0"}, Verdict::limit, Verdict::limit, "no trace unit for 15 cpus", "only memory on the chip"},
      {"0", {0}, {"etb0", "tpiu0"}, Verdict::good, Verdict::limit, "all processors", "only memory on the chip"},
      {"0", {0}, {"tpiu0"}, Verdict::good, Verdict::blocked, "all processors", "no TRBE, ETR, ETF or ETB"},
      {"5-2,999999999999,-", {0}, {"trbe0"}, Verdict::good, Verdict::good, "all processors", "TRBE"},
  };
  for (const Case& one : cases) {
    fs::remove_all(machine_.sys + "/bus/event_source/devices/cs_etm");
    sys("bus/event_source/devices/cs_etm/type", "9\n");
    sys("devices/system/cpu/online", one.online + std::string("\n"));
    for (const int cpu : one.units) sys("bus/event_source/devices/cs_etm/cpu" + std::to_string(cpu) + "/cpu", "\n");
    for (const char* sink : one.sinks) sys(std::string("bus/event_source/devices/cs_etm/sinks/") + sink, "0x1\n");
    const Diagnosis d = diagnose(machine_);
    EXPECT_EQ(check(d, "pmu").verdict, one.pmu) << one.online;
    EXPECT_EQ(check(d, "sink").verdict, one.sink) << one.online;
    EXPECT_THAT(check(d, "pmu").found, HasSubstr(one.pmu_text));
    EXPECT_THAT(check(d, "sink").found, HasSubstr(one.sink_text));
    EXPECT_EQ(check(d, "sink").fix.empty(), one.sink == Verdict::good);
  }
}

TEST_F(Doctor, ATrbeNeedsMappedKernelPages) {
  machine_.x86 = false;
  machine_.arm64 = true;
  sys("bus/event_source/devices/cs_etm/type", "9\n");
  sys("bus/event_source/devices/cs_etm/cpu0/cpu", "\n");
  sys("bus/event_source/devices/cs_etm/sinks/tmc_etr0", "0x1\n");
  EXPECT_THAT(check(diagnose(machine_), "sink").fix, HasSubstr("modprobe coresight-trbe"));
  sys("devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI\n");
  EXPECT_THAT(check(diagnose(machine_), "sink").fix, HasSubstr("kpti=off"));
}

TEST_F(Doctor, ASeccompProfileIsSuspectedWhereRightsAreThere) {
  capabilities(kRoot);
  answer_ = [](const Machine::Probe&) { return EPERM; };
  const Diagnosis d = diagnose(machine_);
  EXPECT_FALSE(d.sideband);
  EXPECT_THAT(check(d, "events").fix, HasSubstr("seccomp"));
}

TEST_F(Doctor, AMachineThatTellsNothingBreaksNothing) {
  fs::remove_all(folder_ + "/proc");
  machine_.cpuid = nullptr;
  machine_.open_event = nullptr;
  machine_.list_bpf = nullptr;
  machine_.free_bytes = nullptr;
  const Diagnosis d = diagnose(machine_);
  EXPECT_FALSE(d.user_trace || d.sideband || d.emulation);
  EXPECT_THAT(check(d, "paranoid").found, HasSubstr("no perf events"));
  proc("self/status", "CapEff:\tnonsense\nCapEff");
  proc("sys/kernel/perf_event_paranoid", "99999999999999999999\n");
  proc("cpuinfo", std::string(1 << 20, 'x'));
  EXPECT_FALSE(diagnose(machine_).user_trace);
}

TEST_F(Doctor, DiskAndEmulator) {
  machine_.stash = "/some/where";
  machine_.free_bytes = [](const std::string&) { return std::optional<uint64_t>(1ULL << 30); };
  Diagnosis d = diagnose(machine_);
  EXPECT_THAT(check(d, "disk").found, HasSubstr("1024 MiB free for the stash, /some/where"));
  EXPECT_THAT(check(d, "disk").fix, HasSubstr("stash gc"));
  EXPECT_FALSE(d.emulation);
  EXPECT_THAT(check(d, "emulation").fix, HasSubstr("sudo apt install qemu-user"));
}

TEST_F(Doctor, AnEmulatorMustLoadPlugins) {
  const std::string path = folder_ + "/bin/qemu-x86_64", usage = "usage: qemu-x86_64 [options] program [arguments...]\n";
  const auto emulator = [&](const std::string& file, const std::string& options) {
    put(file, "#!/bin/sh\ncat << END\n" + usage + options + "END\n");
    fs::permissions(file, fs::perms::owner_all);
  };
  emulator(path, "-h  print this help\n");
  Diagnosis d = diagnose(machine_);
  EXPECT_FALSE(d.emulation);
  EXPECT_EQ(check(d, "emulation").verdict, Verdict::limit);
  EXPECT_EQ(check(d, "emulation").found, path + " was built without plugins: record --emulate does not work");
  EXPECT_EQ(check(d, "emulation").fix, "ptdecode emulator build");
  machine_.built_emulators = folder_ + "/built";
  emulator(folder_ + "/built/qemu_10/qemu-x86_64", "-plugin  QEMU_PLUGIN  file\n");
  EXPECT_TRUE(diagnose(machine_).emulation);
  machine_.built_emulators.clear();
  put(path, "#!/bin/sh\nsleep 1000\n");
  machine_.most_query_time = std::chrono::milliseconds(200);
  d = diagnose(machine_);
  EXPECT_FALSE(d.emulation);
  EXPECT_THAT(check(d, "emulation").found, HasSubstr("did not end"));
}

TEST_F(Doctor, ChannelsOfAnnouncements) {
  proc("self/status", "CapEff:\t0000000000000000\n");
  EXPECT_THAT(check(diagnose(machine_), "announcements").found,
              HasSubstr("those of this user's processes, through their rings; this kernel has no"));
  proc("self/status", "CapEff:\t0000000000080000\n");  // CAP_SYS_PTRACE
  sys("kernel/tracing/user_events_data", "");
  EXPECT_THAT(check(diagnose(machine_), "announcements").found,
              HasSubstr("those of all processes, through their rings; also through user_events"));
}

}  // namespace
}  // namespace ptd::doctor
