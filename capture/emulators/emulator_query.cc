// Queries emulators.
#include "capture/emulators/emulator_query.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "capture/emulators/run_command.h"
#include "image/base/environment.h"

namespace ptd::emulators {
namespace {

namespace fs = std::filesystem;

bool is_program(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

// The machine in "usage: qemu-MACHINE [options] program"; "" without that line.
std::string machine_of_help(const std::string& help) {
  constexpr std::string_view kBefore = "usage: qemu-";
  const size_t at = help.find(kBefore);
  if (at == std::string::npos) return {};
  const size_t begin = at + kBefore.size();
  return help.substr(begin, help.find_first_of(" \n", begin) - begin);
}

void add_from_path(const std::string& places, const std::string& name, std::vector<std::string>& paths) {
  for (size_t at = 0; at <= places.size();) {
    const size_t end = std::min(places.find(':', at), places.size());
    const std::string path = (end == at ? "." : places.substr(at, end - at)) + "/" + name;
    std::error_code error;
    const auto is_same = [&](const std::string& other) { return fs::equivalent(path, other, error); };  // /bin is often /usr/bin
    if (is_program(path) && std::none_of(paths.begin(), paths.end(), is_same)) paths.push_back(path);
    at = end + 1;
  }
}

std::vector<std::string> candidates(const EmulatorSearch& search) {
  std::vector<std::string> paths;
  if (search.given.find('/') != std::string::npos) return {search.given};
  add_from_path(search.path, search.given.empty() ? search.name : search.given, paths);
  if (!search.given.empty()) return paths;
  for (const std::string& build : list_built(search.built)) {
    if (is_program(build + "/" + search.name)) paths.push_back(build + "/" + search.name);
  }
  return paths;
}

// The version of QEMU in its help: 10.0 as 1000; 0 if it names none.
unsigned version_of_help(const std::string& help) {
  constexpr std::string_view kBefore = "QEMU emulator version ";
  const size_t at = help.find(kBefore);
  unsigned major = 0, minor = 0;
  if (at == std::string::npos || std::sscanf(help.c_str() + at + kBefore.size(), "%3u.%2u", &major, &minor) != 2) return 0;
  return major * 100 + minor;
}

bool is_own(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && (info.st_uid == geteuid() || info.st_uid == 0) && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

const char* system_emulator(MachineArch arch) { return arch == MachineArch::arm64 ? "qemu-system-aarch64" : "qemu-system-x86_64"; }

Emulator query_emulator(const std::string& path, const std::string& name, std::chrono::milliseconds most_time) {
  if (!is_program(path)) return {path, Fitness::missing, path + " is not an executable program"};
  CommandOptions options;
  options.most_time = most_time;
  const CommandOutcome outcome = run_command({path, "-h"}, options);
  const std::string machine = machine_of_help(outcome.text);
  if (outcome.timed_out) return {path, Fitness::no_answer, path + " did not end when asked for its help (-h)"};
  if (machine.empty()) return {path, Fitness::no_answer, path + " does not print the help of " + name + " for -h"};
  if ("qemu-" + machine != name)
    return {path, Fitness::other_machine, path + " emulates " + machine + ", not " + name.substr(name.find('-') + 1)};
  if (outcome.text.find("\n-plugin ") == std::string::npos) return {path, Fitness::no_plugins, path + " was built without plugins"};
  if (!name.starts_with("qemu-system-")) return {path, Fitness::works, path + " loads plugins"};
  constexpr unsigned kOldestSystem = 902;  // version 4 of the plugin interface
  const unsigned version = version_of_help(outcome.text);
  const std::string number = std::to_string(version / 100) + "." + std::to_string(version % 100);
  if (version < kOldestSystem)
    return {path, Fitness::too_old, path + " is QEMU " + number + ", whose plugins cannot read registers (9.2 or later can)"};
  if (outcome.text.find("\n-fsdev ") == std::string::npos) return {path, Fitness::no_plugins, path + " was built without 9p (virtfs)"};
  return {path, Fitness::works, path + " (" + number + ") loads plugins"};
}

std::vector<Emulator> find_emulators(const EmulatorSearch& search, bool all) {
  std::vector<Emulator> found;
  for (const std::string& path : candidates(search)) {
    found.push_back(query_emulator(path, search.name, search.most_time));
    if (found.back().fitness == Fitness::works && !all) break;
  }
  return found;
}

Emulator choose_emulator(const EmulatorSearch& search) {
  const std::vector<Emulator> found = find_emulators(search);
  if (found.empty()) {
    return {"", Fitness::missing,
            search.given.empty() ? search.name + " is not installed" : search.given + " is not an executable program"};
  }
  return found.back().fitness == Fitness::works ? found.back() : found.front();
}

std::string built_emulators() {
  const std::string cache = environment::cache_home(), home = environment::home();
  if (!cache.empty() && cache.front() == '/') return cache + "/ptdecode-emulators";
  return home.empty() ? "" : home + "/.cache/ptdecode-emulators";
}

namespace {

std::vector<std::string> list_folders(const std::string& folder, const char* first_word) {
  std::vector<std::string> builds;
  std::error_code error;
  if (folder.empty() || !is_own(folder)) return builds;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(first_word) && is_own(at->path().string())) builds.push_back(at->path().string());
  }
  std::sort(builds.begin(), builds.end(), [](const std::string& a, const std::string& b) { return strverscmp(a.c_str(), b.c_str()) > 0; });
  return builds;
}

}  // namespace

std::vector<std::string> list_built(const std::string& folder) { return list_folders(folder, "qemu"); }

std::vector<std::string> list_fetched_kernels(const std::string& folder) { return list_folders(folder, "linux-image"); }

}  // namespace ptd::emulators
