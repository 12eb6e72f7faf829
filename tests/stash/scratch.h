// A stash for one test, and content to store in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "image/stash/content_hash.h"
#include "image/stash/stash.h"
#include "image/stash/stash_care.h"
#include "perfio/perf_writer.h"

namespace ptd::stash {

/// A folder that is deleted with the test.
class Scratch : public testing::Test {
 protected:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "ptdecode-stash-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    place_ = folder_ + "/stash";
  }
  ~Scratch() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  std::unique_ptr<Stash> open(Stash::Access access = Stash::Access::write) const {
    auto stash = Stash::open(place_, access);
    EXPECT_TRUE(stash.ok()) << (stash.ok() ? "" : stash.error().message);
    return stash.ok() ? std::move(*stash) : nullptr;
  }
  /// Returns the message if opening the stash is refused, else "".
  std::string refusal(Stash::Access access = Stash::Access::read) const {
    auto stash = Stash::open(place_, access);
    return stash.ok() ? "" : stash.error().message;
  }
  static std::string identity(int number) { return hash_of(bytes_of("recording " + std::to_string(number))); }
  /// Returns one recording with one mapping for each content.
  static void keep(Stash& stash, int recording, const std::vector<std::string>& contents, const std::string& path = "/no/such/perf.data") {
    auto capture = Capture::begin(stash, path, Limits());
    ASSERT_TRUE(capture.ok()) << capture.error().message;
    uint64_t address = 0x1000;
    for (const std::string& content : contents) {
      const auto added = (*capture)->add(bytes_of(content));
      ASSERT_TRUE(added.ok()) << added.error().message;
      (*capture)->add_entry(
          {recording, 0, 7, address += 0x1000, content.size(), 0, EntryKind::file, added->hash, added->build_id, "/bin/x"});
    }
    const Status status = (*capture)->publish(identity(recording));
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  [[nodiscard]] std::string object(const std::string& content) const {
    const std::string hash = hash_of(bytes_of(content));
    return place_ + "/objects/" + hash.substr(0, 2) + "/" + hash.substr(2);
  }
  /// Damages a file as a disk or a faulty program would.
  static void overwrite(const std::string& path, const std::string& text) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  std::string folder_, place_;
};

/// Writes a recording with mappings of one process, at these times and addresses.
inline void write_recording(const std::string& path, const std::vector<Entry>& mappings, uint64_t id) {
  perfio::WriterOptions options;
  perfio::EventAttr attr;
  attr.sample_type = 1U << 2;  // PERF_SAMPLE_TIME
  attr.sample_id_all = true;
  attr.ids = {id};
  options.attrs = {attr};
  auto writer = perfio::PerfWriter::create(path, options);
  ASSERT_TRUE(writer.ok());
  for (const Entry& mapping : mappings) {
    perfio::MmapRecord map;
    map.pid = map.tid = mapping.pid;
    map.addr = mapping.address;
    map.size_bytes = mapping.size_bytes;
    map.path = mapping.path;
    perfio::RecordContext context;
    context.sample_id.has_time = true;
    context.sample_id.time = mapping.time_ns;
    ASSERT_TRUE((*writer)->add(map, context).ok());
  }
  ASSERT_TRUE((*writer)->finish().ok());
}

}  // namespace ptd::stash
