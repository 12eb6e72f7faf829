// State at the start of a recording: see start_scan.h.
#include "capture/live/kernel/start_scan.h"

#include <dirent.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "capture/live/kernel/bpf_programs.h"
#include "capture/live/kernel/kernel_memory.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

RecordContext at_start(uint16_t misc, int32_t pid, int32_t tid) {
  RecordContext context;
  context.misc = misc;
  context.sample_id.pid = pid;
  context.sample_id.tid = tid;
  context.sample_id.cpu = 0;
  return context;
}

std::vector<int32_t> numbers_in(const std::string& dir) {
  std::vector<int32_t> numbers;
  DIR* open = opendir(dir.c_str());
  if (open == nullptr) return numbers;
  while (const dirent* entry = readdir(open)) {
    const int32_t number = std::atoi(entry->d_name);
    if (number > 0) numbers.push_back(number);
  }
  closedir(open);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// A line of /proc/PID/maps; false if it is not code.
bool parse_code_map(const std::string& line, MmapRecord& map) {
  unsigned long long first = 0, last = 0, offset = 0, inode = 0;
  unsigned maj = 0, min = 0;
  char prot[8] = "";
  int path_at = -1;
  if (std::sscanf(line.c_str(), "%llx-%llx %7s %llx %x:%x %llu %n", &first, &last, prot, &offset, &maj, &min, &inode, &path_at) < 7)
    return false;
  if (prot[2] != 'x' || last <= first || (first >> 63) != 0) return false;
  map.addr = first;
  map.size_bytes = last - first;
  map.file_offset_bytes = offset;
  map.maj = maj;
  map.min = min;
  map.inode = inode;
  map.prot = prot[1] == 'w' ? 7 : 5;   // PROT_READ | PROT_EXEC, and PROT_WRITE
  map.flags = prot[3] == 's' ? 1 : 2;  // MAP_SHARED, MAP_PRIVATE
  map.path = path_at >= 0 && static_cast<size_t>(path_at) < line.size() ? line.substr(static_cast<size_t>(path_at)) : "//anon";
  return true;
}

std::string without_line_end(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// A number of /proc/PID/status, or -1.
int32_t status_number(const std::string& path, const std::string& key) {
  const Result<std::string> text = read_text_file(path);
  const size_t at = text ? text->find("\n" + key + ":\t") : std::string::npos;
  return at == std::string::npos ? -1 : std::atoi(text->c_str() + at + key.size() + 3);
}

#if defined(__x86_64__)
/// "VENDOR,family,model,stepping", as perf writes it ([SDM] "CPUID", leaves 0 and 1).
std::string cpuid_text() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  char vendor[13] = "";
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return {};
  std::memcpy(vendor, &b, 4);
  std::memcpy(vendor + 4, &d, 4);
  std::memcpy(vendor + 8, &c, 4);
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return {};
  unsigned family = (a >> 8) & 15, model = (a >> 4) & 15;
  if (family == 6 || family == 15) model += ((a >> 16) & 15) << 4;
  if (family == 15) family += (a >> 20) & 255;
  return std::string(vendor) + "," + std::to_string(family) + "," + std::to_string(model) + "," + std::to_string(a & 15);
}

#else
std::string cpuid_text() { return {}; }
#endif

/// The model name of /proc/cpuinfo.
std::string cpu_name() {
  const Result<std::string> text = read_text_file("/proc/cpuinfo");
  const size_t at = text ? text->find("model name\t: ") : std::string::npos;
  if (at == std::string::npos) return {};
  const size_t begin = at + std::strlen("model name\t: ");
  return text->substr(begin, text->find('\n', begin) - begin);
}

}  // namespace

std::vector<int32_t> list_processes() { return numbers_in("/proc"); }

std::vector<int32_t> list_threads(int32_t pid) { return numbers_in("/proc/" + std::to_string(pid) + "/task"); }

int32_t process_of(int32_t tid) { return status_number("/proc/" + std::to_string(tid) + "/status", "Tgid"); }

std::vector<int32_t> list_tree(int32_t pid) {
  std::multimap<int32_t, int32_t> children;
  for (const int32_t process : list_processes()) {
    children.emplace(status_number("/proc/" + std::to_string(process) + "/status", "PPid"), process);
  }
  std::vector<int32_t> tree = {pid};
  std::set<int32_t> known = {pid};
  for (size_t i = 0; i < tree.size(); ++i) {
    const auto [first, last] = children.equal_range(tree[i]);
    for (auto child = first; child != last; ++child) {
      if (known.insert(child->second).second) tree.push_back(child->second);
    }
  }
  return tree;
}

Status scan_process(int32_t pid, const RecordSink& sink) {
  const std::string dir = "/proc/" + std::to_string(pid);
  for (const int32_t tid : list_threads(pid)) {
    const Result<std::string> name = read_text_file(dir + "/task/" + std::to_string(tid) + "/comm");
    if (!name) continue;  // it ended meanwhile
    CommRecord comm;
    comm.pid = pid;
    comm.tid = tid;
    comm.comm = without_line_end(*name);
    if (Status status = sink(comm, at_start(0, pid, tid)); !status) return status;
  }
  const Result<std::string> maps = read_text_file(dir + "/maps");
  if (!maps) return {};
  std::istringstream lines(*maps);
  std::string line;
  while (std::getline(lines, line)) {
    MmapRecord map;
    map.pid = map.tid = pid;
    if (!parse_code_map(line, map)) continue;
    if (Status status = sink(map, at_start(kMiscUser, pid, pid)); !status) return status;
  }
  return {};
}

Status scan_kernel_maps(const std::string& kallsyms, const std::function<Status(const MmapRecord&)>& sink) {
  const Result<KernelText> text = find_kernel_text(kallsyms);
  if (!text) return text.error();
  MmapRecord map;
  map.pid = -1;
  map.tid = 0;
  map.kernel = true;
  map.addr = map.file_offset_bytes = text->text.address;
  map.size_bytes = text->text.size_bytes;
  map.path = "[kernel.kallsyms]_text";
  if (Status status = sink(map); !status) return status;
  for (const ModuleLine& module : list_modules()) {
    map.addr = module.extent.address;
    map.size_bytes = module.extent.size_bytes;
    map.file_offset_bytes = 0;
    map.path = "[" + module.name + "]";
    if (Status status = sink(map); !status) return status;
  }
  return {};
}

Status tell_program(const BpfProgInfo& program, const RecordSink& sink) {
  constexpr size_t kTagBytes = 8;
  const std::vector<std::string> names = bpf_symbol_names(program);
  for (size_t i = 0; i < names.size(); ++i) {
    KsymbolRecord symbol;
    symbol.addr = program.jited_ksyms[i];
    symbol.size_bytes = program.jited_func_lens[i];
    symbol.type = 1;
    symbol.name = names[i];
    if (Status status = sink(symbol, at_start(kMiscKernel, 0, 0)); !status) return status;
  }
  BpfRecord load;
  load.type = 1;
  load.id = program.id;
  load.tag.assign(program.tags.begin(), program.tags.begin() + static_cast<std::ptrdiff_t>(std::min(kTagBytes, program.tags.size())));
  load.tag.resize(kTagBytes);
  return sink(load, at_start(kMiscKernel, 0, 0));
}

Features machine_features() {
  Features features;
  utsname system{};
  if (uname(&system) == 0) {
    features.hostname = system.nodename;
    features.os_release = system.release;
    features.arch = system.machine;
  }
  features.cpuid = cpuid_text();
  features.cpu_desc = cpu_name();
  features.cpus_online = static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  features.cpus_available = static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF));
  constexpr uint64_t kKilo = 1024;
  features.total_mem_kb = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / kKilo;
  return features;
}

std::vector<int32_t> parse_cpu_list(const std::string& text) {
  constexpr int32_t kMost = 65536;
  std::vector<int32_t> cpus;
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    int first = 0, last = 0;
    const int fields = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (fields < 1) return {};
    if (fields == 1) last = first;
    if (first < 0 || last < first || last >= kMost) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int32_t> online_cpus() {
  const Result<std::string> text = read_text_file("/sys/devices/system/cpu/online");
  std::vector<int32_t> cpus = text ? parse_cpu_list(*text) : std::vector<int32_t>();
  if (cpus.empty()) {
    for (int32_t cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace ptd::live
