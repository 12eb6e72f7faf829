// Cuts and mutates any file and passes it to the functions that accept such files.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "image/source/elf_file.h"
#include "image/source/jitdump.h"
#include "image/source/kernel/kallsyms.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/recording.h"
#include "tests/differential/program.h"
#include "tests/hostile/damage.h"
#include "tests/hostile/digest.h"
#include "tests/hostile/each_damage.h"
#include "tests/hostile/guard.h"
#include "tests/hostile/temp_dir.h"

namespace ptd::test {
namespace {
namespace fs = std::filesystem;

constexpr uint64_t kMaxLoadSegments = 8;
constexpr uint64_t kMaxMappedBytes = 1U << 20;

bool starts_with(const std::vector<std::byte>& file, const char* magic) {
  return file.size() >= std::strlen(magic) && std::memcmp(file.data(), magic, std::strlen(magic)) == 0;
}

/// One file, changed repeatedly in a separate folder, and all operations on it.
class FileDoors {
 public:
  FileDoors(std::string name, std::vector<std::string>& findings) : name_(std::move(name)), findings_(findings) {
    // A trace that runs into the image: PSB, MODE.Exec 64, FUP, PSBEND, TNTs.
    static constexpr unsigned char kPlusAndTnt[] = {0x99, 0x01, 0x7d, 0x00, 0x10, 0x40, 0x00, 0x00, 0x00, 0x02, 0x23, 0x5a, 0x96, 0xfe};
    std::vector<std::byte> trace;
    for (int i = 0; i < 8; ++i) trace.insert(trace.end(), {std::byte{0x02}, std::byte{0x82}});
    for (const unsigned char byte : kPlusAndTnt) trace.push_back(static_cast<std::byte>(byte));
    dir_.write("trace", trace);
  }

  void take(const std::string& what, const std::vector<std::byte>& file) {
    CaseGuard guard(what);
    dir_.write("file", file);
    as_recording(what);
    as_trace(what);
    if (starts_with(file,
                    "\x7f"
                    "ELF"))
      as_image(what, file);
    as_pages(what, file);
    (void)read_jitdump(file, [](const JitCode&) {});
    const std::string text(reinterpret_cast<const char*>(file.data()), file.size());
    (void)parse_kallsyms(text);
    (void)parse_modules(text);
    guard.end(findings_);
  }

 private:
  void opened(const std::string& what, const Result<std::unique_ptr<Recording>>& recording) {
    if (recording.ok()) {
      (void)digest(**recording, kMaxLoadSegments, what, findings_);
    } else if (recording.error().message.size() < 10) {
      findings_.push_back(what + ": refused without a sentence");
    }
  }
  OpenOptions options() const {
    OpenOptions out;
    out.path = dir_ / "file";
    out.symfs = {"/nonexistent"};
    out.debug_dirs.clear();
    return out;
  }
  void as_recording(const std::string& what) { opened(what, Recording::open(options())); }
  void as_trace(const std::string& what) {
    RawOptions raw;
    raw.pt_path = dir_ / "file";
    raw.cpu = {6, 94, 3};
    opened(what, Recording::open_raw(raw, options()));
  }
  void as_image(const std::string& what, const std::vector<std::byte>& file) {
    RawOptions raw;
    raw.pt_path = dir_ / "trace";
    OpenOptions with = options();
    with.images = {{dir_ / "file", 0, std::min<uint64_t>(file.size(), kMaxMappedBytes), 0x401000}};
    opened(what, Recording::open_raw(raw, with));
    with.images[0] = {dir_ / "file", 0, 0, {}};
    opened(what, Recording::open_raw(raw, with));
    const auto elf = ElfFile::open(dir_ / "file");
    if (elf.ok()) (void)(*elf)->read_symbols();
  }
  // As the list of addresses of a dump of the right size, so that it is read to its end.
  void as_pages(const std::string& what, const std::vector<std::byte>& file) {
    std::error_code ignored;
    const uint64_t pages = file.size() / 8;
    dir_.write("pages", {});
    fs::resize_file(dir_ / "pages", pages * 4096, ignored);
    RawOptions raw;
    raw.pt_path = dir_ / "trace";
    raw.pages_dump = dir_ / "pages";
    raw.pages_addresses = dir_ / "file";
    opened(what, Recording::open_raw(raw, options()));
  }

  std::string name_;
  std::vector<std::string>& findings_;
  TempDir dir_;
};

std::vector<StreamDigest> open_bundle(const TempDir& dir, const std::string& what, std::vector<std::string>& findings) {
  OpenOptions options;
  options.path = dir / "trace.json";
  options.symfs = {"/nonexistent"};
  options.debug_dirs.clear();
  const auto recording = Recording::open(options);
  if (recording.ok()) return digest(**recording, kMaxLoadSegments, what, findings);
  if (recording.error().message.size() < 10) findings.push_back(what + ": refused without a sentence");
  return {};
}

}  // namespace

void check_damaged_file(const std::string& path, const std::vector<std::byte>& file, const DamagePlan& plan,
                        std::vector<std::string>& findings) {
  FileDoors doors(path, findings);
  doors.take(path, file);
  each_damage(path, file, plan,
              [&](const std::string& what, const std::vector<std::byte>& damaged, DamagedRange) { doors.take(what, damaged); });
}

void check_damaged_bundle(const std::string& dir, const DamagePlan& plan, std::vector<std::string>& findings) {
  TempDir copy;
  std::vector<std::string> members;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    members.push_back(entry.path().filename().string());
    if (const auto bytes = read_file(entry.path().string())) copy.write(members.back(), *bytes);
  }
  std::sort(members.begin(), members.end());
  const auto description = read_file(dir + "/trace.json").value_or(std::vector<std::byte>());
  const std::string text(reinterpret_cast<const char*>(description.data()), description.size());
  std::erase_if(members, [&](const std::string& name) { return name != "trace.json" && text.find('"' + name + '"') == std::string::npos; });
  const auto base = open_bundle(copy, dir, findings);
  if (base.empty() || base[0].segments.empty()) findings.push_back(dir + ": the undamaged bundle does not open");
  for (const std::string& member : members) {
    const auto whole = read_file(dir + "/" + member);
    if (!whole) continue;
    each_damage(dir + "/" + member, *whole, plan, [&](const std::string& what, const std::vector<std::byte>& damaged, DamagedRange range) {
      CaseGuard guard(what);
      copy.write(member, damaged);
      const auto got = open_bundle(copy, what, findings);
      guard.end(findings);
      // A trace file is its stream, byte for byte. An empty one is refused: no byte precedes the damage.
      if (!member.ends_with(".bin") && !member.ends_with(".trace")) return;
      for (size_t i = 0; i < base.size() && range.first != 0; ++i)
        expect_same_outside(base[i], i < got.size() ? &got[i] : nullptr, range, what, findings);
    });
    copy.write(member, *whole);
  }
}

}  // namespace ptd::test
