// Error codes: each family through the public API, and names and numbers compared with docs/ERRORS.md.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "ptdecode/bundle.h"
#include "ptdecode/error.h"
#include "ptdecode/recording.h"
#include "tests/unit/image/source_support.h"

namespace ptd {

// Makes failures of EXPECT_EQ show the name.
void PrintTo(ErrorCode code, std::ostream* out) { *out << name_of(code); }

namespace {

namespace fs = std::filesystem;
using image_test::TempDir;

const std::string kData = std::string(PTD_SOURCE_DIR) + "/data";
const std::string kBundle = kData + "/user/plain.bundle";
constexpr ErrorCode kNone{0};

std::string operator/(const TempDir& dir, const char* name) { return dir.path() + "/" + name; }

OpenOptions options_of(const std::string& path) {
  OpenOptions options;
  options.path = path;
  options.build_id_cache = "/nonexistent";
  return options;
}

ErrorCode open_code(const std::string& path) {
  const auto opened = Recording::open(options_of(path));
  return opened.ok() ? kNone : opened.error().code;
}

ErrorCode raw_code(const RawOptions& raw, const std::vector<RawImage>& images = {}) {
  OpenOptions options = options_of("");
  options.images = images;
  const auto opened = Recording::open_raw(raw, options);
  return opened.ok() ? kNone : opened.error().code;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string save(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

template <typename T>
std::string with(std::string content, size_t at, T value) {
  std::memcpy(content.data() + at, &value, sizeof value);
  return content;
}

template <typename T>
T value_at(const std::string& content, size_t at) {
  T value{};
  std::memcpy(&value, content.data() + at, sizeof value);
  return value;
}

// Returns a PSB and a PAD: the minimum that opens as a raw trace.
std::string psb() {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += "\x02\x82";
  return bytes + std::string(1, '\0');
}

TEST(ErrorCodes, NamesAndNumbersAreTheDocumentedOnes) {
  const std::vector<std::string> kinds = {"usage", "unsupported", "file_open", "file_format", "file_cut", "resources", "cancelled"};
  std::map<unsigned, std::string> documented;
  std::string line;
  unsigned heading = 0;
  std::ifstream text(std::string(PTD_SOURCE_DIR) + "/docs/ERRORS.md");
  const std::regex head("## ([0-9]+) to [0-9]+: (\\w+)"), row("\\| ([0-9]+) \\| `(\\w+)` \\| .+ \\|");
  for (std::smatch match; std::getline(text, line);) {
    if (std::regex_match(line, match, head)) {
      heading = static_cast<unsigned>(std::stoul(match[1]));
      EXPECT_EQ(kinds.at(static_cast<size_t>(kind_of(ErrorCode{static_cast<uint16_t>(heading)}))), match[2]);
    } else if (std::regex_match(line, match, row)) {
      const auto number = static_cast<unsigned>(std::stoul(match[1]));
      EXPECT_EQ(heading, number / 100 * 100) << line;
      EXPECT_TRUE(documented.emplace(number, match[2]).second) << line;
    }
  }
  std::map<unsigned, std::string> known;
  std::set<std::string> names;
  for (unsigned number = 0; number <= 0xffff; ++number) {
    const std::string name(name_of(ErrorCode{static_cast<uint16_t>(number)}));
    if (name.empty()) continue;
    known[number] = name;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_GE(known.size(), 40U);
  // Those that only the C API has: PTD_ERROR_NULL_ARGUMENT = 701 is null_argument.
  std::ifstream header(std::string(PTD_SOURCE_DIR) + "/include/ptdecode/ptdecode.h");
  const std::regex misuse(" +PTD_ERROR_(\\w+) = (70[1-9]).*");
  for (std::smatch match; std::getline(header, line);) {
    if (!std::regex_match(line, match, misuse)) continue;
    std::string& name = known[static_cast<unsigned>(std::stoul(match[2]))];
    for (const char letter : match[1].str()) name += static_cast<char>(std::tolower(letter));
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(documented, known);
}

TEST(ErrorCodes, Usage) {
  TempDir dir;
  const auto opened = Recording::open(options_of(kBundle));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const auto sink = [](const Batch&, const FlowDecoder&, const AuxSegment&) { return true; };
  const auto streams = static_cast<uint32_t>((*opened)->streams().size());
  EXPECT_TRUE((*opened)->decode(streams - 1, 0, 1, sink).ok());
  const Status absent = (*opened)->decode(streams, 0, Recording::kStreamEnd, sink);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::no_such_stream);
  EXPECT_EQ(absent.error().kind(), ErrorKind::usage);
  EXPECT_EQ((*opened)->decode_parallel(~0U, 0, 1, 2, sink).error().code, ErrorCode::no_such_stream);

  RawOptions raw;
  raw.pt_path = save(dir / "trace", psb());
  EXPECT_EQ(raw_code(raw), kNone);
  raw.pages_dump = raw.pt_path;
  EXPECT_EQ(raw_code(raw), ErrorCode::contradictory_options);
  std::swap(raw.pages_dump, raw.pages_addresses);
  EXPECT_EQ(raw_code(raw), ErrorCode::contradictory_options);
  raw.pages_addresses.clear();
  raw.tsc_ctc_ratio_n = 3;
  EXPECT_EQ(raw_code(raw), ErrorCode::contradictory_options);
  raw.tsc_ctc_ratio_d = 1;
  EXPECT_EQ(raw_code(raw), kNone);
  EXPECT_EQ(raw_code(raw, {{raw.pt_path, 0, 0, 0x1000}}), kNone);
  EXPECT_EQ(raw_code(raw, {{raw.pt_path, 1U << 20, 0, 0x1000}}), ErrorCode::bad_image_piece);
  EXPECT_EQ(raw_code(raw, {{raw.pt_path, 0, 0, ~uint64_t{0}}}), ErrorCode::bad_image_piece);
  EXPECT_EQ(raw_code(raw, {{raw.pt_path, 0, 0, {}}}), ErrorCode::bad_image_piece);       // no ELF file
  EXPECT_EQ(raw_code(raw, {{"/proc/self/exe", 0, 0, {}}}), ErrorCode::bad_image_piece);  // may be loaded anywhere
  OpenOptions options = options_of(kBundle);
  options.images = {{raw.pt_path, 0, 0, 0x1000}};
  EXPECT_EQ(Recording::open(options).error().code, ErrorCode::contradictory_options);

  const std::string copy = save(dir / "copy.bundle", content_of(kBundle));
  BundleOptions bundle;
  bundle.output_path = copy;
  EXPECT_EQ(write_bundle(options_of(copy), bundle).error().code, ErrorCode::bad_output);
  EXPECT_EQ(content_of(copy), content_of(kBundle));
  bundle.output_path = dir / "out.bundle";
  bundle.time = {TimeNs{1}, TimeNs{2}};
  EXPECT_EQ(write_bundle(options_of(copy), bundle).error().code, ErrorCode::bad_time_window);
}

TEST(ErrorCodes, Unsupported) {
  TempDir dir;
  EXPECT_EQ(open_code(save(dir / "swapped", "2ELIFREP" + std::string(96, '\0'))), ErrorCode::unsupported_byte_order);
  EXPECT_EQ(open_code(save(dir / "old", "PERFFILE" + std::string(96, '\0'))), ErrorCode::unsupported_version);
  const std::string bundle = content_of(kBundle);
  EXPECT_EQ(open_code(save(dir / "version", with<uint32_t>(bundle, 8, 99))), ErrorCode::unsupported_version);
  EXPECT_EQ(open_code(save(dir / "chunk", with(bundle, 16, 'X'))), ErrorCode::unsupported_version);
  EXPECT_EQ(open_code(save(dir / "method", with<uint32_t>(bundle, 20, 77))), ErrorCode::unsupported_compression);

  // perf.data whose PERF_RECORD_AUXTRACE_INFO (70) names a trace of another processor; header: perf.data-file-format.txt.
  std::string perf = content_of(kData + "/demo/data");
  const auto begin = value_at<uint64_t>(perf, 40), end = begin + value_at<uint64_t>(perf, 48);
  bool changed = false;
  for (uint64_t at = begin; at + 12 <= end && !changed; at += std::max<uint16_t>(8, value_at<uint16_t>(perf, at + 6))) {
    changed = value_at<uint32_t>(perf, at) == 70;
    if (changed) perf = with<uint32_t>(perf, at + 8, 4);  // PERF_AUXTRACE_ARM_SPE
  }
  ASSERT_TRUE(changed);
  const std::string spe = save(dir / "spe", perf);
  EXPECT_EQ(open_code(spe), ErrorCode::unsupported_trace);
}

TEST(ErrorCodes, FileOpen) {
  TempDir dir;
  EXPECT_EQ(open_code(dir / "absent"), ErrorCode::not_found);
  EXPECT_EQ(open_code(save(dir / "file", "x") + "/below"), ErrorCode::not_found);
  fs::create_directories(dir / "recording/data");
  EXPECT_EQ(open_code(dir / "recording"), ErrorCode::is_directory);
  RawOptions raw;
  raw.pt_path = dir / "absent";
  EXPECT_EQ(raw_code(raw), ErrorCode::not_found);
  raw.pt_path = dir / "recording";
  EXPECT_EQ(raw_code(raw), ErrorCode::is_directory);
  raw.pt_path = dir / "fifo";
  ASSERT_EQ(::mkfifo(raw.pt_path.c_str(), 0600), 0);
  EXPECT_EQ(raw_code(raw), ErrorCode::not_regular_file);
  BundleOptions bundle;
  bundle.output_path = dir / "no/such/folder/out.bundle";
  EXPECT_EQ(write_bundle(options_of(kBundle), bundle).error().code, ErrorCode::not_found);
  bundle.output_path = dir / "fifo";
  EXPECT_EQ(write_bundle(options_of(kBundle), bundle).error().code, ErrorCode::not_regular_file);
}

TEST(ErrorCodes, PermissionDenied) {
  TempDir dir;
  const std::string path = save(dir / "secret", psb());
  ASSERT_EQ(::chmod((dir / "").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  const bool root = ::geteuid() == 0;
  constexpr uid_t kNobody = 65534;
  if (root && ::seteuid(kNobody) != 0) GTEST_SKIP() << "root reads every file, and cannot become another user here";
  const ErrorCode opened = open_code(path);
  RawOptions raw;
  raw.pt_path = path;
  const ErrorCode opened_raw = raw_code(raw);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_EQ(opened, ErrorCode::permission_denied);
  EXPECT_EQ(opened_raw, ErrorCode::permission_denied);
}

TEST(ErrorCodes, FileFormat) {
  TempDir dir;
  std::string noise(4096, '\0');
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * i * 31 + 7);
  EXPECT_EQ(open_code(save(dir / "noise", noise)), ErrorCode::unknown_format);
  EXPECT_EQ(open_code(save(dir / "trace.json", "{}")), ErrorCode::unknown_format);
  EXPECT_EQ(open_code(save(dir / "lldb.json", R"({"type": "intel-pt", "processes": []})")), ErrorCode::no_trace);
  fs::create_directories(dir / "empty");
  EXPECT_EQ(open_code(dir / "empty"), ErrorCode::missing_part);
  EXPECT_EQ(open_code(save(dir / "size", with<uint64_t>(content_of(kData + "/demo/data"), 8, 17))), ErrorCode::bad_header);
  std::string bundle = content_of(kBundle);
  bundle[60] = static_cast<char>(bundle[60] ^ 1);  // in the content of the first part
  EXPECT_EQ(open_code(save(dir / "flipped", bundle)), ErrorCode::bad_checksum);
  RawOptions raw;
  raw.pt_path = dir / "noise";
  EXPECT_EQ(raw_code(raw), ErrorCode::no_trace);
}

TEST(ErrorCodes, FileCut) {
  TempDir dir;
  EXPECT_EQ(open_code(save(dir / "empty", "")), ErrorCode::empty_file);
  const std::string perf = content_of(kData + "/demo/data"), bundle = content_of(kBundle);
  EXPECT_EQ(open_code(save(dir / "begun", perf.substr(0, 12))), ErrorCode::truncated_header);
  EXPECT_EQ(open_code(save(dir / "header", perf.substr(0, 50))), ErrorCode::truncated_header);
  EXPECT_EQ(open_code(save(dir / "bundle-header", bundle.substr(0, 12))), ErrorCode::truncated_header);
  for (const size_t size : {size_t{20}, bundle.size() / 2, bundle.size() - 1})
    EXPECT_EQ(open_code(save(dir / "cut", bundle.substr(0, size))), ErrorCode::truncated) << size;
  RawOptions raw;
  raw.pt_path = dir / "empty";
  EXPECT_EQ(raw_code(raw), ErrorCode::empty_file);
}

class Limit {
 public:
  Limit(__rlimit_resource resource, rlim_t value) : resource_(resource) {
    (void)::getrlimit(resource_, &before_);
    const rlimit limit{value, before_.rlim_max};
    set_ = ::setrlimit(resource_, &limit) == 0;
  }
  ~Limit() { (void)::setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  [[nodiscard]] bool set() const { return set_; }

 private:
  __rlimit_resource resource_;
  rlimit before_{};
  bool set_ = false;
};

TEST(ErrorCodes, Resources) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space";
#endif
  TempDir dir;
  RawOptions raw;
  raw.pt_path = save(dir / "trace", psb());
  ErrorCode code = kNone;
  {
    const Limit files(RLIMIT_NOFILE, 3);
    ASSERT_TRUE(files.set());
    code = raw_code(raw);
  }
  EXPECT_EQ(code, ErrorCode::too_many_files);
  ASSERT_EQ(::truncate(raw.pt_path.c_str(), off_t{8} << 30), 0) << "a sparse file";
  {
    const Limit memory(RLIMIT_AS, rlim_t{4} << 30);
    ASSERT_TRUE(memory.set());
    code = raw_code(raw);
  }
  EXPECT_EQ(code, ErrorCode::out_of_memory);
  EXPECT_EQ(kind_of(code), ErrorKind::resources);
}

}  // namespace
}  // namespace ptd
