// KernelImage: finds kernels and modules.
#include "capture/emulate/system/kernel_image.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>

#include "image/base/system_error.h"

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;

const char* advice(emulators::MachineArch arch) {
  return arch == emulators::MachineArch::arm64 ? "ptdecode emulator fetch --machine arm64"
                                               : "apt install linux-image-amd64, or without root: ptdecode emulator fetch";
}

struct EarlyModule {
  const char* name;
  bool needed;
};
// In the order of loading. Those that are not needed do not exist in every release, or only make the machine better.
constexpr EarlyModule kEarlyModules[] = {{"virtio_ring", true},
                                         {"virtio", true},
                                         {"virtio_pci_legacy_dev", false},
                                         {"virtio_pci_modern_dev", false},
                                         {"virtio_pci", true},
                                         {"virtio_console", true},
                                         {"netfs", false},
                                         {"fscache", false},
                                         {"9pnet", true},
                                         {"9pnet_virtio", true},
                                         {"9p", true},
                                         {"overlay", false}};

/// Folders where the modules of an image may be: as installed, or next to an unpacked package's boot/.
std::string modules_of(const std::string& image, const std::string& release) {
  const fs::path root = fs::path(image).parent_path().parent_path();
  std::error_code error;
  for (const fs::path& folder : {root / "lib/modules" / release, root / "usr/lib/modules" / release, fs::path("/lib/modules") / release}) {
    if (fs::is_directory(folder / "kernel", error)) return fs::canonical(folder, error).string();
  }
  return {};
}

std::vector<std::string> images_in(const std::string& folder) {
  std::vector<std::string> images;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with("vmlinuz-")) images.push_back(at->path().string());
  }
  std::sort(images.begin(), images.end(), [](const std::string& a, const std::string& b) { return strverscmp(a.c_str(), b.c_str()) > 0; });
  return images;
}

std::string module_name(const fs::path& file) {
  std::string name = file.filename().string();
  const size_t end = name.find(".ko");
  if (end == std::string::npos) return {};
  name.resize(end);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool is_plain_release(const std::string& release) {
  return std::all_of(release.begin(), release.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr(".-_+~", c) != nullptr; });
}

std::string release_of_arm_image(const std::string& path) {
  constexpr size_t kMagicAt = 0x38, kHeadBytes = 64;
  constexpr std::string_view kMagic = "ARM\x64", kBanner = "Linux version ", kZboot = "zimg", kGzip = "\x1f\x8b";
  std::ifstream file(path, std::ios::binary);
  std::string content(kHeadBytes, '\0');
  if (!file.read(content.data(), kHeadBytes)) return {};
  const bool compressed = content.compare(4, kZboot.size(), kZboot) == 0 || content.starts_with(kGzip);
  const std::string name = fs::path(path).filename().string();
  constexpr std::string_view kPrefix = "vmlinuz-";
  if (compressed)
    return name.starts_with(kPrefix) && is_plain_release(name.substr(kPrefix.size())) ? name.substr(kPrefix.size()) : std::string();
  if (content.compare(kMagicAt, kMagic.size(), kMagic) != 0) return {};
  content.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  for (size_t at = content.find(kBanner); at != std::string::npos; at = content.find(kBanner, at + 1)) {
    const std::string release = content.substr(at + kBanner.size(), content.find(' ', at + kBanner.size()) - at - kBanner.size());
    if (!release.empty() && std::isdigit(static_cast<unsigned char>(release.front())) && is_plain_release(release)) return release;
  }
  return {};
}

}  // namespace

std::string release_of_image(const std::string& path, emulators::MachineArch arch) {
  if (arch == emulators::MachineArch::arm64) return release_of_arm_image(path);
  constexpr std::streamoff kMagicAt = 0x202, kVersionAt = 0x20e, kHeaderBase = 0x200;
  std::ifstream file(path, std::ios::binary);
  char magic[4] = "", offset[2] = "";
  file.seekg(kMagicAt).read(magic, sizeof(magic));
  file.seekg(kVersionAt).read(offset, sizeof(offset));
  if (!file || std::memcmp(magic, "HdrS", 4) != 0) return {};
  const unsigned at = static_cast<uint8_t>(offset[0]) | unsigned{static_cast<uint8_t>(offset[1])} << 8;
  char text[128] = "";
  file.seekg(kHeaderBase + static_cast<std::streamoff>(at)).read(text, sizeof(text) - 1);
  const std::string release(text, std::find_if(text, text + sizeof(text) - 1, [](char c) { return c == ' ' || c == '\0'; }));
  return is_plain_release(release) ? release : std::string();
}

KernelSearch default_kernel_search(const std::string& given, emulators::MachineArch arch) {
  utsname system{};
  (void)uname(&system);
  KernelSearch search{given, system.release, {"/boot"}, arch};
  for (const std::string& fetched : emulators::list_fetched_kernels(emulators::built_emulators()))
    search.folders.push_back(fetched + "/boot");
  return search;
}

Result<KernelImage> find_kernel(const KernelSearch& search) {
  if (!search.given.empty()) {
    if (access(search.given.c_str(), R_OK) != 0) {
      const int number = errno;
      return system_error("--kernel: cannot read " + search.given, ErrorCode::permission_denied, number);
    }
    KernelImage kernel{search.given, release_of_image(search.given, search.arch), {}};
    if (kernel.release.empty())
      return Error{
          ErrorCode::bad_option,
          "--kernel: " + search.given +
              (search.arch == emulators::MachineArch::arm64 ? " is not an Image of Linux for arm64" : " is not a bzImage of Linux for x86"),
          0};
    kernel.modules = modules_of(kernel.path, kernel.release);
    if (!kernel.modules.empty()) return kernel;
    return Error{
        ErrorCode::missing_part,
        "--kernel: the modules of " + search.given + " are missing: lib/modules/" + kernel.release + " next to its folder, or in /", 0};
  }
  std::string unusable;
  for (const std::string& folder : search.folders) {
    std::vector<std::string> images = images_in(folder);
    std::stable_partition(images.begin(), images.end(),
                          [&](const std::string& image) { return image.ends_with("/vmlinuz-" + search.running); });
    for (const std::string& image : images) {
      const std::string release = release_of_image(image, search.arch), modules = release.empty() ? "" : modules_of(image, release);
      if (!modules.empty()) return KernelImage{image, release, modules};
      if (unusable.empty())
        unusable = image + (access(image.c_str(), R_OK) != 0 ? " is not readable"
                            : release.empty()                ? (search.arch == emulators::MachineArch::arm64 ? " is not a kernel for arm64"
                                                                                                             : " is not a kernel for x86-64")
                                                             : " has no modules");
    }
  }
  return Error{ErrorCode::missing_program,
               (unusable.empty() ? std::string(search.arch == emulators::MachineArch::arm64 ? "no arm64 kernel" : "no kernel") +
                                       " to boot was found in /boot"
                                 : unusable) +
                   ": " + advice(search.arch) + "; or name one with --kernel",
               0};
}

Result<std::vector<std::string>> early_modules(const KernelImage& kernel, emulators::MachineArch arch) {
  std::map<std::string, std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(kernel.modules + "/kernel", error), end; !error && at != end; at.increment(error)) {
    if (const std::string name = module_name(at->path()); !name.empty()) files.emplace(name, at->path().string());
  }
  std::ifstream builtin(kernel.modules + "/modules.builtin");
  for (std::string line; std::getline(builtin, line);) files.emplace(module_name(line), "");
  std::vector<std::string> found;
  for (const EarlyModule& module : kEarlyModules) {
    const auto file = files.find(module.name);
    if (file == files.end() && module.needed)
      return Error{ErrorCode::unsupported,
                   kernel.path + ": the kernel has no module " + module.name + ", by which the emulated machine reads the host's files; " +
                       advice(arch),
                   0};
    if (file != files.end() && !file->second.empty()) found.push_back(file->second);
  }
  return found;
}

}  // namespace ptd::emulate
