// Helpers of the perfio tests: temporary folders, the corpus, commands, records as lines of text.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "perfio/format/byte_writer.h"
#include "perfio/format/wire.h"
#include "perfio/perf_reader.h"

namespace ptd::perfio::test {

namespace fs = std::filesystem;

/// A folder that is removed with the test.
class TempDir {
 public:
  TempDir() {
    std::string name = (fs::temp_directory_path() / "ptd-perfio-XXXXXX").string();
    path_ = ::mkdtemp(name.data()) != nullptr ? name : std::string();
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string corpus(const std::string& name) {
  const char* root = std::getenv("PTDECODE_CORPUS");
  return (root != nullptr ? std::string(root) : std::string(PTD_SOURCE_DIR "/../shared/corpus")) + "/" + name;
}

#define PTD_NEEDS_CORPUS(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the corpus is absent: " << (path) << " (set PTDECODE_CORPUS)"

/// Returns the standard output of a shell command; sets `status` to its exit status.
inline std::string run(const std::string& command, int* status = nullptr) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[1 << 16];
  for (size_t got = 0; (got = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, got);
  const int result = ::pclose(pipe);
  if (status != nullptr) *status = result;
  return out;
}

inline std::vector<std::byte> load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline void save(const std::string& path, Bytes bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// Converts "48 65 6c" to bytes; anything but hex digits separates.
inline std::vector<std::byte> hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size();) {
    if (!std::isxdigit(static_cast<unsigned char>(text[i]))) {
      ++i;
      continue;
    }
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
    i += 2;
  }
  return bytes;
}

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Returns a record as one line with all fields in which records should differ.
inline std::string line_of(const Record& record) {
  std::string line = std::to_string(record.type) + " " + std::to_string(record.misc) + " " + std::to_string(record.sample_id.time) + " " +
                     std::to_string(record.attr_index) + " ";
  for (const std::byte b : record.raw) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned>(b));
    line += two;
  }
  if (const auto* auxtrace = std::get_if<AuxtraceRecord>(&record.payload)) {
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (const std::byte b : auxtrace->payload) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3ULL;
    line += " payload " + std::to_string(auxtrace->payload.size()) + " " + std::to_string(hash);
  }
  return line;
}

inline std::vector<std::string> lines_of(PerfReader& reader) {
  std::vector<std::string> lines;
  EXPECT_TRUE(reader
                  .read([&lines](const Record& record) {
                    lines.push_back(line_of(record));
                    return true;
                  })
                  .ok());
  return lines;
}

/// Returns an event whose records carry TID, TIME, CPU and IDENTIFIER.
inline EventAttr full_attr(uint64_t id) {
  EventAttr attr;
  attr.type = 1;
  attr.config = 9;
  attr.sample_period = 1;
  attr.sample_type = kSampleIp | kSampleTid | kSampleTime | kSampleCpu | kSampleIdentifier;
  attr.sample_id_all = true;
  attr.ids = {id};
  attr.name = "dummy:u";
  return attr;
}

inline SampleId at(uint64_t time, int32_t cpu = 0, uint64_t id = 1) {
  SampleId sample;
  sample.pid = 7;
  sample.tid = 8;
  sample.time = time;
  sample.has_time = time != 0;
  sample.cpu = cpu;
  sample.id = id;
  return sample;
}

}  // namespace ptd::perfio::test
