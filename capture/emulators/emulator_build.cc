// Builds qemu-user with plugins.
#include "capture/emulators/emulator_build.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "capture/emulators/apt_client.h"
#include "capture/emulators/cache_folder.h"
#include "capture/emulators/emulator_query.h"
#include "capture/emulators/run_command.h"
#include "capture/emulators/step_runner.h"
#include "image/base/environment.h"
#include "image/base/system_error.h"

namespace ptd::emulators {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kNames[] = {"qemu-x86_64", "qemu-aarch64"};

Status check_tools() {
  struct Tool {
    const char *program, *package;
  };
  std::set<std::string> packages;
  if (!in_path("apt-get"))
    return Error{ErrorCode::missing_program, "apt-get is not installed: sources are taken from Debian's or Ubuntu's packages", 0};
  for (const Tool& tool : {Tool{"dpkg-source", "dpkg-dev"}, Tool{"cc", "gcc"}, Tool{"ninja", "ninja-build"}, Tool{"meson", "meson"},
                           Tool{"pkg-config", "pkg-config"}, Tool{"python3", "python3"}, Tool{"make", "make"}}) {
    if (!in_path(tool.program)) packages.insert(tool.package);
  }
  if (!in_path("pkg-config") || run_command({"pkg-config", "--exists", "glib-2.0"}, {}).status != 0) packages.insert("libglib2.0-dev");
  if (!in_path("python3") || run_command({"python3", "-c", "import venv, ensurepip"}, {}).status != 0) packages.insert("python3-venv");
  if (packages.empty()) return {};
  std::string list;
  for (const std::string& package : packages) list += " " + package;
  return Error{ErrorCode::missing_program, "programs for the build are not installed: apt install" + list, 0};
}

/// One build: its working folder and its log. Removes the folder at the end.
class Build {
 public:
  Build(const BuildOptions& options, std::string work)
      : options_(options), work_(std::move(work)), steps_(options, options.folder + "/build.log") {}
  ~Build() {
    std::error_code error;
    fs::remove_all(work_, error);
  }
  Build(const Build&) = delete;
  Build& operator=(const Build&) = delete;

  [[nodiscard]] Result<BuiltEmulator> run();

 private:
  [[nodiscard]] Status download();
  [[nodiscard]] Status compile();
  [[nodiscard]] Result<BuiltEmulator> put_in_place();

  const BuildOptions& options_;
  const std::string work_;
  StepRunner steps_;
  std::string version_;
};

Status Build::download() {
  if (const auto origin = write_sources(work_, PackageKind::source); !origin) return origin.error();
  if (Status status = steps_.run("reading the list of source packages", apt_words(work_, {"update"}), work_); !status) return status;
  const std::string place = work_ + "/source";
  if (Status status = steps_.run("downloading the source package of qemu",
                                 apt_words(work_, {"source", "--download-only", "--only-source", "qemu"}), place);
      !status)
    return status;
  std::error_code error;
  std::string description;
  for (const fs::directory_entry& entry : fs::directory_iterator(place, error)) {
    if (entry.path().extension() == ".dsc") description = entry.path().filename().string();
  }
  if (description.empty())
    return Error{ErrorCode::not_found, "apt-get source downloaded no .dsc of qemu; see " + options_.folder + "/build.log", 0};
  version_ = fs::path(description).stem().string();
  return steps_.run("checking and unpacking " + version_, {"dpkg-source", "--require-strong-checksums", "--extract", description, "qemu"},
                    place);
}

Status Build::compile() {
  const std::string source = work_ + "/source/qemu", place = work_ + "/build";
  std::error_code error;
  fs::create_directory(place, error);
  CommandOptions plenty;
  plenty.most_bytes = 1U << 20;
  plenty.folder = place;  // configure writes a log where it runs, even for its help
  const std::string known = run_command({source + "/configure", "--help"}, plenty).text;
  Words words = {source + "/configure",
                 "--target-list=x86_64-linux-user,aarch64-linux-user",
                 "--without-default-features",
                 "--enable-linux-user",
                 "--enable-plugins",
                 "--disable-system",
                 "--disable-tools",
                 "--disable-docs"};
  for (const char* option : {"--disable-download", "--disable-install-blobs"}) {  // not known to QEMU 7.2
    if (known.find(std::string(option).substr(sizeof "--disable-" - 1)) != std::string::npos) words.emplace_back(option);
  }
  if (Status status = steps_.run("configuring", words, place); !status) return status;
  const unsigned jobs = options_.jobs != 0 ? options_.jobs : std::max(1U, std::thread::hardware_concurrency());
  return steps_.run("compiling", {"ninja", "-j", std::to_string(jobs), kNames[0], kNames[1]}, place);
}

Result<BuiltEmulator> Build::put_in_place() {
  const std::string place = work_ + "/finished", target = options_.folder + "/" + version_;
  std::error_code error;
  fs::create_directory(place, error);
  for (const char* name : kNames) {
    fs::rename(work_ + "/build/" + name, place + "/" + name, error);
    if (error) return system_error("cannot move the built " + std::string(name), ErrorCode::write_failed, error.value());
    (void)run_command({"strip", place + "/" + name}, {});
    (void)::chmod((place + "/" + name).c_str(), 0755);
    const Emulator built = query_emulator(place + "/" + name, name, std::chrono::seconds(10));
    if (built.fitness != Fitness::works) return Error{ErrorCode::start_failed, "the build is unusable: " + built.found, 0};
  }
  fs::remove_all(target, error);
  fs::rename(place, target, error);
  if (error) return system_error("cannot create " + target, ErrorCode::write_failed, error.value());
  return BuiltEmulator{target, version_};
}

Result<BuiltEmulator> Build::run() {
  if (!steps_.good()) return system_error("cannot write to " + options_.folder + "/build.log", ErrorCode::write_failed);
  if (Status status = download(); !status) return status.error();
  if (Status status = compile(); !status) return status.error();
  return put_in_place();
}

}  // namespace

Result<BuiltEmulator> build_emulator(const BuildOptions& options) {
  if (Status status = check_tools(); !status) return status.error();
  if (Status status = make_cache_folder(options.folder); !status) return status.error();
  const FolderLock lock(options.folder);
  if (Status status = lock.status(options.folder); !status) return status.error();
  const Result<std::string> work = make_work_folder(options.folder, options.needed_bytes);
  if (!work) return work.error();
  return Build(options, *work).run();
}

Result<size_t> remove_built(const std::string& folder, const std::string& name) {
  std::error_code error;
  if (folder.empty() || !fs::exists(folder, error)) {
    if (name.empty()) return size_t{0};
    return Error{ErrorCode::not_found, "no built emulator " + name, 0};
  }
  if (Status status = make_cache_folder(folder); !status) return status.error();
  const FolderLock lock(folder);
  if (Status status = lock.status(folder); !status) return status.error();
  size_t removed = 0;
  std::vector<std::string> all = list_built(folder);
  for (std::string& kernel : list_fetched_kernels(folder)) all.push_back(std::move(kernel));
  for (const std::string& build : all) {
    if (!name.empty() && fs::path(build).filename() != name) continue;
    fs::remove_all(build, error);
    if (error) return system_error("cannot remove " + build, ErrorCode::write_failed, error.value());
    ++removed;
  }
  if (!name.empty() && removed == 0) return Error{ErrorCode::not_found, "no built emulator " + name + " in " + folder, 0};
  fs::remove_all(work_folder(folder), error);
  if (name.empty()) fs::remove_all(folder, error);
  return removed;
}

}  // namespace ptd::emulators
