// GuestMachines: see guest_machines.h.
#include "recording/perf/guest_machines.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "image/base/regular_file.h"
#include "image/source/build_id.h"
#include "perfio/format/wire.h"

namespace ptd {
namespace {

constexpr uint64_t kUserFirst = 0x1000, kUserBytes = 0x7fff'ffff'e000, kKernelFirst = 0xffff'8000'0000'0000;

/// The whole of a text as a number above 0.
std::optional<int32_t> pid_of(std::string_view text) {
  int32_t pid = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), pid);
  return end.ec == std::errc{} && end.ptr == text.data() + text.size() && pid > 0 ? std::optional(pid) : std::nullopt;
}

/// The guest cpu in the name that QEMU gives to a thread with -name debug-threads=on, as libvirt does: "CPU 3/KVM".
std::optional<int32_t> vcpu_of(std::string_view comm) {
  constexpr std::string_view kBefore = "CPU ", kAfter = "/KVM";
  if (!comm.starts_with(kBefore) || !comm.ends_with(kAfter) || comm.size() <= kBefore.size() + kAfter.size()) return {};
  comm.remove_prefix(kBefore.size());
  comm.remove_suffix(kAfter.size());
  int32_t vcpu = -1;
  const auto end = std::from_chars(comm.data(), comm.data() + comm.size(), vcpu);
  return end.ec == std::errc{} && end.ptr == comm.data() + comm.size() && vcpu >= 0 ? std::optional(vcpu) : std::nullopt;
}

std::string folder_of(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string beside(const std::string& file, const char* name) { return file.empty() ? std::string() : folder_of(file) + "/" + name; }

/// Reports what the user names and cannot be read: the code that it should have is missing.
void warn_of_unreadable(const OpenRequest& options, std::vector<std::string>& warnings) {
  std::error_code error;
  const auto warn = [&warnings](const char* option, const std::string& path, const char* what) {
    warnings.push_back(std::string("--") + option + ": " + path + what + "; no code of guests is read from it");
  };
  if (!options.guestmount.empty() && !std::filesystem::is_directory(options.guestmount, error))
    warn("guestmount", options.guestmount, " is not a folder");
  for (const auto& [option, path] : {std::pair("guestkallsyms", &options.guestkallsyms), std::pair("guestmodules", &options.guestmodules),
                                     std::pair("guestvmlinux", &options.guestvmlinux)}) {
    if (!path->empty() && ::access(path->c_str(), R_OK) != 0) warn(option, *path, " cannot be read");
  }
}

constexpr size_t kMostRefused = 1000;
constexpr const char* kNoKernel = "kernel of a guest without a copy of its memory";
constexpr const char* kNoRecords = "user code of a guest without records of its processes";

void add_absent(ImageBuild& image, const Guest& guest, const std::string& path, Ip first, uint64_t size_bytes, const char* reason) {
  Section section;
  section.space = kernel_of_machine(guest.machine);
  section.ip = first;
  section.size_bytes = size_bytes;
  section.path = path;
  image.add_missing(path, {}, reason);
  image.builder.add_section(std::move(section));
}

}  // namespace

std::string suffix_of(const Guest& guest) { return guest.pid > 0 ? "." + std::to_string(guest.pid) : std::string(); }

std::string guest_thread_name(int32_t pid, const std::string& comm) { return "VM:" + std::to_string(pid) + " " + comm; }

std::string guest_path(const Guest& guest, const std::string& path) {
  if (path.starts_with('[')) return "[guest." + path.substr(1, path.find(']') - 1) + suffix_of(guest) + "]";
  return path.starts_with('/') && !path.starts_with("//") ? "/[guest" + suffix_of(guest) + "]" + path : path;
}

GuestMachine* GuestMachines::of(int32_t pid) {
  const auto known = by_pid_.find(pid);
  if (known != by_pid_.end()) return &known->second;
  if (by_pid_.size() >= kMostGuests) {
    if (refused_.size() < kMostRefused) refused_.insert(pid);
    return nullptr;
  }
  GuestMachine& machine = by_pid_[pid];
  machine.guest = {static_cast<uint32_t>(by_pid_.size()), pid, -1};
  if (const auto folder = folders_.find(pid); folder != folders_.end()) {
    machine.roots = {folder->second};
    machine.is_named = true;
  }
  machine.kernel.set_guest(machine.guest.machine, suffix_of(machine.guest));
  return &machine;
}

GuestMachine* GuestMachines::find(uint32_t machine) {
  for (auto& [pid, known] : by_pid_) {
    if (known.guest.machine == machine) return &known;
  }
  return nullptr;
}

void GuestMachines::add_sources(const OpenRequest& options, const std::vector<std::string>& kcore_dirs,
                                std::vector<std::string>& warnings) {
  constexpr std::string_view kGuestCopy = "kcore_dir__";
  for (const std::string& dir : kcore_dirs) {
    const std::string name = std::filesystem::path(dir).filename().string();
    const auto pid = name.starts_with(kGuestCopy) ? pid_of(std::string_view(name).substr(kGuestCopy.size())) : std::nullopt;
    GuestMachine* machine = pid ? of(*pid) : nullptr;
    if (machine == nullptr) continue;
    machine->kcore_dir = dir;
    machine->is_named = true;
  }
  warn_of_unreadable(options, warnings);
  std::error_code error;
  if (!options.guestmount.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(options.guestmount, error)) {
      if (const auto pid = pid_of(entry.path().filename().string())) folders_.emplace(*pid, entry.path().string());
    }
    for (auto& [pid, machine] : by_pid_) {
      if (const auto folder = folders_.find(pid); folder != folders_.end()) machine.roots = {folder->second};
    }
    // In order, so that the numbers of guests do not depend on the folder. If there are too many, those of the recording come first.
    if (by_pid_.size() + folders_.size() < kMostGuests) {
      for (const auto& [pid, root] : folders_) (void)of(pid);
    }
    if (folders_.empty() && !error)
      warnings.push_back("--guestmount: no folder in " + options.guestmount +
                         " is named after the process that runs a guest (DIR/PID); no code is read from it");
  }
  if (options.guestkallsyms.empty() && options.guestmodules.empty() && options.guestvmlinux.empty()) return;
  if (GuestMachine* machine = of(0)) machine->is_named = true;
}

void GuestMachines::take_build_ids(perfio::Features& features) {
  std::erase_if(features.build_ids, [this](const perfio::BuildIdEntry& entry) {
    if (!perfio::is_guest(entry.misc)) return false;
    GuestMachine* machine = entry.pid > 0 ? of(entry.pid) : nullptr;
    if (machine != nullptr) machine->build_ids.emplace(entry.path, normalize_build_id(perfio::build_id_hex(entry.build_id)));
    return true;
  });
}

// Without ID_INDEX entries of a guest, the names of threads tell which of them run a guest's cpus.
void GuestMachines::add_cpus(RecordingData& data, const std::unordered_map<int32_t, int32_t>& pids) {
  for (const auto& [tid, names] : data.comms) {
    const auto vcpu = tid > 0 && machine_of_thread(tid) == 0 && !names.empty() ? vcpu_of(names.back().second) : std::nullopt;
    const auto pid = pids.find(tid);
    if (!vcpu || pid == pids.end()) continue;
    const auto own = by_pid_.find(pid->second), any = by_pid_.find(0);
    const bool is_known = own != by_pid_.end() && (own->second.is_named || own->second.has_records);
    GuestMachine* machine = is_known || any == by_pid_.end() ? of(pid->second) : &any->second;
    if (machine == nullptr || machine->has_records) continue;
    add_guest_cpu(data.contexts, tid, {machine->guest.machine, pid->second, *vcpu});
  }
}

void GuestMachines::add_code(const OpenRequest& options, GuestMachine& machine, ImageBuild& image, RecordingData& data) {
  (void)image.builder.add_space(machine.guest.machine);
  KernelImage::GuestFiles files;
  const bool is_only = machine.guest.pid == 0 || by_pid_.size() == 1 || (by_pid_.size() == 2 && by_pid_.contains(0));
  if (!machine.kcore_dir.empty()) {
    files = {machine.kcore_dir + "/kallsyms", machine.kcore_dir + "/modules", machine.kcore_dir + "/kcore", {}};
  } else if (!machine.roots.empty()) {
    // The guest decides what is in its folder: a link out of it would lead to files of the host.
    const auto inside = [&](const char* name) {
      const std::string path = machine.roots.front() + "/proc/" + name;
      if (!open_beneath(machine.roots.front(), std::string("proc/") + name).outside) return path;
      data.warnings.push_back(path + " leads out of the guest's folder: it is not used");
      return std::string();
    };
    files = {inside("kallsyms"), inside("modules"), inside("kcore"), {}};
  } else if (is_only) {
    files = {options.guestkallsyms, options.guestmodules, beside(options.guestkallsyms, "kcore"), options.guestvmlinux};
    if (files.modules.empty()) files.modules = beside(options.guestkallsyms, "modules");
    if (files.kcore.empty()) files.kcore = beside(options.guestmodules, "kcore");
  }
  if (!machine.kernel.add_guest_to(image, files, data.warnings)) {
    add_absent(image, machine.guest, machine.kernel.text_path(), Ip{kKernelFirst}, ~uint64_t{0} - kKernelFirst, kNoKernel);
  } else if (!machine.has_records) {  // a copy cannot show a change that was undone, or made after it
    image.builder.add_lost_window(kernel_of_machine(machine.guest.machine), {kTimeMin, kTimeMax});
    data.warnings.push_back(
        "the recording has no records of the guest of " + machine.kernel.text_path() +
        ", so changes of its kernel's code are unknown: its code is marked suspect (perf inject --guest-data inserts them)");
  }
  if (!machine.has_records)
    add_absent(image, machine.guest, "[guest.user" + suffix_of(machine.guest) + "]", Ip{kUserFirst}, kUserBytes, kNoRecords);
}

/// Adds the guests of folders that are not added yet, if the recording has their processes.
void GuestMachines::add_folders(std::vector<std::string>& warnings, const std::unordered_map<int32_t, int32_t>& pids) {
  std::set<int32_t> processes;
  for (const auto& [tid, pid] : pids) processes.insert(pid);
  uint64_t unused = 0;
  std::string first;
  for (const auto& [pid, root] : folders_) {
    if (by_pid_.contains(pid)) continue;
    if (processes.contains(pid)) {
      (void)of(pid);
    } else if (unused++ == 0) {
      first = root;
    }
  }
  if (unused != 0)
    warnings.push_back("--guestmount: the recording has no processes for " + std::to_string(unused) + " of the " +
                       std::to_string(folders_.size()) + " folders, so no guest uses them (the first is " + first + ")");
}

void GuestMachines::warn_of_refused(std::vector<std::string>& warnings) const {
  constexpr size_t kListed = 4;
  if (refused_.empty()) return;
  std::string list;
  size_t listed = 0;
  for (const int32_t pid : refused_) {
    if (listed++ == kListed) break;
    list += (list.empty() ? "" : ", ") + (pid == 0 ? std::string("--guestkallsyms and the like") : std::to_string(pid));
  }
  if (refused_.size() > kListed) list += ", ...";
  warnings.push_back("only " + std::to_string(kMostGuests) +
                     " guests can be told apart: " + (refused_.size() == kMostRefused ? "at least " : "") +
                     std::to_string(refused_.size()) + " more have no code, and their flow is a gap (processes " + list +
                     "); decode them with a --guestmount folder that holds their folders only");
}

void GuestMachines::finish(const OpenRequest& options, ImageBuild& image, RecordingData& data,
                           const std::unordered_map<int32_t, int32_t>& pids) {
  add_folders(data.warnings, pids);
  add_cpus(data, pids);
  warn_of_refused(data.warnings);
  for (auto& [pid, machine] : by_pid_) {
    const auto is_of_guest = [guest = machine.guest.pid](const auto& thread) { return thread.second == guest; };
    if (!machine.roots.empty() && !machine.has_records && std::ranges::none_of(pids, is_of_guest))
      data.warnings.push_back("--guestmount: the recording has no process " + std::to_string(pid) + ", so no guest uses " +
                              machine.roots.front());
    add_guest(data.contexts, machine.guest);
    add_code(options, machine, image, data);
  }
}

}  // namespace ptd
