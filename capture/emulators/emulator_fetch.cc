// Downloads a kernel and an emulator.
#include "capture/emulators/emulator_fetch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "capture/emulators/apt_client.h"
#include "capture/emulators/cache_folder.h"
#include "capture/emulators/run_command.h"
#include "image/base/system_error.h"

namespace ptd::emulators {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// What differs between the emulated machines.
struct MachinePackages {
  const char *emulator, *kernel;
  const char* architecture;  ///< of the kernel's package, as dpkg names it
};
constexpr MachinePackages kX86 = {"qemu-system-x86", "linux-image-amd64", "amd64"};
constexpr MachinePackages kArm64 = {"qemu-system-arm", "linux-image-arm64", "arm64"};

bool is_recent(const std::string& version) {
  const size_t epoch = version.find(':');
  unsigned major = 0, minor = 0;
  constexpr unsigned kMajor = 9, kMinor = 2;
  if (std::sscanf(version.c_str() + (epoch == std::string::npos ? 0 : epoch + 1), "%3u.%3u", &major, &minor) != 2) return false;
  return major > kMajor || (major == kMajor && minor >= kMinor);
}

/// As dpkg names it: "amd64".
std::string host_architecture() {
  std::string name = run_command({"dpkg", "--print-architecture"}, {}).text;
  name.resize(std::min(name.find('\n'), name.size()));
  return name;
}

/// What the program does not need: another emulator, and boot files of network cards.
bool is_needed(const std::string& package) { return !package.starts_with("qemu-user") && !package.starts_with("ipxe"); }

class Fetch {
 public:
  Fetch(const FetchOptions& options, std::string work)
      : options_(options),
        machine_(options.machine == MachineArch::arm64 ? kArm64 : kX86),
        work_(std::move(work)),
        steps_(options, options.folder + "/fetch.log") {}
  ~Fetch() {
    std::error_code error;
    fs::remove_all(work_, error);
  }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  Result<Words> run() {
    if (!steps_.good()) return system_error("cannot write to " + steps_.log_path(), ErrorCode::write_failed);
    if (Status status = update(PackageKind::binary); !status) return status.error();
    Words folders;
    for (const bool kernel : {true, false}) {
      if (kernel ? !options_.kernel : !options_.emulator) continue;
      Result<std::string> folder = kernel ? fetch_kernel() : fetch_emulator();
      if (!folder) return folder.error();
      folders.push_back(*folder);
    }
    return folders;
  }

 private:
  Status update(PackageKind kind) {
    const Result<std::string> origin = write_sources(work_, kind);
    if (!origin) return origin.error();
    is_ubuntu_ = *origin == "Ubuntu";
    return steps_.run("reading the lists of packages", apt({"update"}), work_);
  }

  /// The words of an apt command that also knows the packages of the machine's kernel.
  [[nodiscard]] Words apt(const Words& more) const {
    Words words = apt_words(work_, more);
    if (options_.kernel && machine_.architecture != own_) {
      for (const std::string& architecture : {own_, std::string(machine_.architecture)})
        words.insert(words.end(), {"-o", "APT::Architectures::=" + architecture});
    }
    return words;
  }

  /// What would be installed for `package`; `all`: as if nothing were installed yet.
  Result<std::vector<ListedPackage>> list(const std::string& package, bool all, const std::string& release = {}) {
    Words words = {"install", "--print-uris", "--no-install-recommends"};
    if (!release.empty()) words.insert(words.end(), {"-t", release});
    words.push_back(package);
    Words command = apt(words);
    std::ofstream(work_ + "/no-status").flush();
    if (all) command.insert(command.end(), {"-o", "Dir::State::status=" + work_ + "/no-status"});
    std::string text;
    if (Status status = steps_.run("listing the packages of " + package, command, work_, &text); !status) return status.error();
    return packages_in(text);
  }

  /// Downloads packages and unpacks them to a new folder.
  Result<std::string> unpack(const std::vector<ListedPackage>& packages, const std::string& what) {
    const std::string place = work_ + "/" + what, archives = place + ".debs";
    std::error_code error;
    fs::create_directory(archives, error);
    fs::create_directory(place, error);
    Words words = {"download"};
    for (const ListedPackage& package : packages)
      words.push_back(package.name + (package.architecture.empty() || package.architecture == "all" ? "" : ":" + package.architecture) +
                      "=" + package.version);
    if (Status status = steps_.run("downloading " + what, apt(words), archives); !status) return status.error();
    for (const fs::directory_entry& entry : fs::directory_iterator(archives, error)) {
      if (entry.path().extension() != ".deb") continue;
      if (Status status = steps_.run({}, {"dpkg", "-x", entry.path().string(), place}, work_); !status) return status.error();
      fs::remove(entry.path(), error);
    }
    return place;
  }

  Result<std::string> put_in_place(const std::string& place, const std::string& name) {
    const std::string target = options_.folder + "/" + name;
    std::error_code error;
    (void)::chmod(place.c_str(), 0755);
    fs::remove_all(target, error);
    fs::rename(place, target, error);
    if (error) return system_error("cannot create " + target, ErrorCode::write_failed, error.value());
    return target;
  }

  Result<std::string> fetch_kernel() {
    const bool foreign = machine_.architecture != own_;
    if (foreign && is_ubuntu_)
      return Error{ErrorCode::unsupported,
                   "Ubuntu has its packages for " + std::string(machine_.architecture) +
                       " in other repositories; name an unpacked kernel with --kernel",
                   0};
    const std::string package = is_ubuntu_ ? "linux-image-generic" : machine_.kernel;
    Result<std::vector<ListedPackage>> listed = list(foreign ? package + ":" + machine_.architecture : package, true);
    if (!listed) return listed.error();
    std::erase_if(*listed, [](const ListedPackage& each) {
      return !each.name.starts_with("linux-modules-") &&
             !(each.name.starts_with("linux-image-") && each.name.find_first_of("0123456789") == 12);
    });
    const auto image =
        std::find_if(listed->begin(), listed->end(), [](const ListedPackage& each) { return each.name.starts_with("linux-image-"); });
    if (image == listed->end()) return Error{ErrorCode::not_found, "apt lists no kernel image; see " + steps_.log_path(), 0};
    const std::string name = image->name;
    Result<std::string> place = unpack(*listed, "linux-image");
    if (!place) return place.error();
    if (in_path("depmod") || ::access("/sbin/depmod", X_OK) == 0)  // for modprobe in the machine
      (void)steps_.run("listing the modules", {in_path("depmod") ? "depmod" : "/sbin/depmod", "-b", *place, name.substr(12)}, work_);
    return put_in_place(*place, name);
  }

  Result<std::string> fetch_emulator() {
    Result<std::vector<ListedPackage>> listed = list(machine_.emulator, false);
    if (!listed) return listed.error();
    const auto own = [&] {
      return std::find_if(listed->begin(), listed->end(), [&](const ListedPackage& package) { return package.name == machine_.emulator; });
    };
    if (own() == listed->end() || !is_recent(own()->version)) {
      if (Status status = update(PackageKind::binary_with_backports); !status) return status.error();
      const std::string release = backports();
      if (release.empty())
        return Error{ErrorCode::unsupported, "the repositories of apt's configuration have no QEMU of version 9.2 or later", 0};
      listed = list(machine_.emulator, false, release);
      if (!listed) return listed.error();
      if (own() == listed->end() || !is_recent(own()->version))
        return Error{ErrorCode::unsupported, "the repositories of apt's configuration have no QEMU of version 9.2 or later", 0};
    }
    const std::string version = own()->version;
    std::erase_if(*listed, [](const ListedPackage& package) { return !is_needed(package.name); });
    Result<std::string> place = unpack(*listed, "qemu-system");
    if (!place) return place.error();
    const std::string program = system_emulator(options_.machine), script = *place + "/" + program;
    std::ofstream(script) << "#!/bin/sh\n"
                             "# Runs the unpacked program with its own libraries and files.\n"
                             "here=$(dirname \"$0\")\n"
                             "LD_LIBRARY_PATH=$here/usr/lib/x86_64-linux-gnu:$here/lib/x86_64-linux-gnu\n"
                             "export LD_LIBRARY_PATH\n"
                             "exec \"$here/usr/bin/" +
                                 program + "\" -L \"$here/usr/share/qemu\" -L \"$here/usr/share/seabios\" \"$@\"\n";
    (void)::chmod(script.c_str(), 0755);
    const Emulator fetched = query_emulator(script, program, std::chrono::seconds(10));
    if (fetched.fitness != Fitness::works)
      return Error{ErrorCode::start_failed, "the downloaded emulator is unusable: " + fetched.found, 0};
    const size_t epoch = version.find(':');
    return put_in_place(*place, machine_.emulator + std::string("-") + version.substr(epoch == std::string::npos ? 0 : epoch + 1));
  }

  /// The suite of backports in sources.list; "" if there is none.
  [[nodiscard]] std::string backports() const {
    std::ifstream file(work_ + "/sources.list");
    std::string word;
    while (file >> word) {
      if (word.ends_with("-backports")) return word;
    }
    return {};
  }

  const FetchOptions& options_;
  const MachinePackages& machine_;
  const std::string work_, own_ = host_architecture();
  bool is_ubuntu_ = false;  ///< after update()
  StepRunner steps_;
};

}  // namespace

std::vector<ListedPackage> packages_in(const std::string& text) {
  std::vector<ListedPackage> packages;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {  // 'URI' NAME_VERSION_ARCHITECTURE.deb SIZE HASH
    const size_t begin = line.starts_with('\'') ? line.find("' ") : std::string::npos;
    if (begin == std::string::npos) continue;
    const std::string file = line.substr(begin + 2, line.find(' ', begin + 2) - begin - 2);
    const size_t name = file.find('_'), version = name == std::string::npos ? name : file.find('_', name + 1);
    if (version == std::string::npos) continue;
    const size_t extension = file.find('.', version);
    ListedPackage package{file.substr(0, name), file.substr(name + 1, version - name - 1),
                          file.substr(version + 1, extension == std::string::npos ? extension : extension - version - 1)};
    for (size_t at = package.version.find("%3a"); at != std::string::npos; at = package.version.find("%3a"))
      package.version.replace(at, 3, ":");
    packages.push_back(std::move(package));
  }
  return packages;
}

Result<Words> fetch_for_system(const FetchOptions& options) {
  for (const char* program : {"apt-get", "dpkg"}) {
    if (!in_path(program))
      return Error{ErrorCode::missing_program, std::string(program) + " is not installed: packages are taken from Debian or Ubuntu", 0};
  }
  if (Status status = make_cache_folder(options.folder); !status) return status.error();
  const FolderLock lock(options.folder);
  if (Status status = lock.status(options.folder); !status) return status.error();
  const Result<std::string> work = make_work_folder(options.folder, options.needed_bytes);
  if (!work) return work.error();
  return Fetch(options, *work).run();
}

}  // namespace ptd::emulators
