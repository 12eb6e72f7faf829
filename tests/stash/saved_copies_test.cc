// Saved copies when a recording is opened: to which recording they belong, where they are looked for, and what they prove.
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "image/source/elf_file.h"
#include "ptdecode/code_view.h"
#include "ptdecode/timeline.h"
#include "recording/image/image_build.h"
#include "recording/image/stashed_code.h"
#include "tests/stash/scratch.h"

namespace ptd::stash {
namespace {

using testing::SizeIs;

constexpr uint64_t kCopiedPage = 4096;

TEST_F(Scratch, WhatARecorderLeftIsOfTheRecordingThatTellsItsMappings) {
  Entries left;
  left.recording = folder_ + "/perf.data";
  left.entries = {{7, 0, 100, 0x1000, 0x1000, 0, EntryKind::deleted, hash_of({}), "", "/x (deleted)"},
                  {7, 0, 150, 0x1000, 0x1000, 120, EntryKind::anonymous, hash_of({}), "", "//anon"}};
  std::vector<Entry> later = left.entries;
  later[0].time_ns = 200;  // of another run
  EXPECT_EQ(recording_of(left), "");
  write_recording(left.recording, left.entries, 1);
  EXPECT_EQ(recording_of(left), recording_identity(left.recording));
  std::filesystem::rename(left.recording, left.recording + ".old");
  later.pop_back();
  write_recording(left.recording, later, 2);
  EXPECT_EQ(recording_of(left), recording_identity(left.recording + ".old"));
  EXPECT_NE(recording_of(left), recording_identity(left.recording));
  std::filesystem::remove(left.recording + ".old");
  EXPECT_EQ(recording_of(left), "") << "the path names another recording";
}

TEST_F(Scratch, TheLibraryLooksOnlyIntoTheStashesThatItIsTold) {
  std::ifstream program("/bin/true", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(program), {});
  std::string build_id;
  {
    const auto stash = open();
    auto capture = Capture::begin(*stash, "x", Limits());
    const auto content = (*capture)->add(bytes_of(bytes));
    ASSERT_TRUE(content.ok());
    build_id = content->build_id;
    (*capture)->add_entry({7, 0, 7, 0x1000, kCopiedPage, 0, EntryKind::file, content->hash, build_id, "/gone"});
    ASSERT_TRUE((*capture)->publish(identity(1)).ok());
  }
  if (build_id.empty()) GTEST_SKIP() << "/bin/true has no build id";
  const MappedPath wanted{"/no/such/program", build_id, 0, kCopiedPage};
  const char* before = std::getenv("PTDECODE_STASH");
  const std::string restored = before == nullptr ? "" : before;
  ::setenv("PTDECODE_STASH", place_.c_str(), 1);
  OpenOptions options;
  EXPECT_NE(ImageBuild(OpenRequest(options)).source.find(wanted).status, CodeStatus::found) << "the environment is the command line's";
  options.stashes = {folder_ + "/no-such-stash", place_};
  EXPECT_EQ(ImageBuild(OpenRequest(options)).source.find(wanted).status, CodeStatus::found);
  ::setenv("PTDECODE_STASH", "off", 1);
  EXPECT_EQ(ImageBuild(OpenRequest(options)).source.find(wanted).status, CodeStatus::found);
  before == nullptr ? ::unsetenv("PTDECODE_STASH") : ::setenv("PTDECODE_STASH", restored.c_str(), 1);
}

/// Copies of memory with different content each time.
class Restless : public SavedFiles {
 public:
  Restless(std::shared_ptr<const MappedFile> one, std::shared_ptr<const MappedFile> other, size_t copies)
      : one_(std::move(one)), other_(std::move(other)), copies_(copies) {}
  OfMapping of_mapping(const MappedPath&) override { return {one_, true}; }
  int64_t saved_at_ns(const MappedPath&) override { return 0; }
  std::vector<ElfSymbol> symbols_of(const ElfFile&) override { return {}; }
  std::vector<Copy> later_copies(const MappedPath&) override {
    std::vector<Copy> later;
    for (size_t i = 1; i <= copies_; ++i) later.push_back({i % 2 == 0 ? one_ : other_, 1000 * i, 1000 * i + 500});
    return later;
  }
  std::vector<std::shared_ptr<const MappedFile>> with_build_id(const std::string&) override { return {}; }
  std::vector<std::string> troubles() const override { return {}; }

 private:
  std::shared_ptr<const MappedFile> one_, other_;
  size_t copies_;
};

TEST_F(Scratch, MemoryThatChangesTooOftenIsUnknownFromThenOn) {
  constexpr uint64_t kSize = 16U << 20, kAddress = 0x10000000;
  std::ofstream(folder_ + "/one") << std::string(kSize, 'a');
  std::ofstream(folder_ + "/other") << std::string(kSize, 'b');
  const auto one = MappedFile::open(folder_ + "/one"), other = MappedFile::open(folder_ + "/other");
  ASSERT_TRUE(one.ok() && other.ok());
  OpenOptions options;
  ImageBuild build{OpenRequest(options)};
  build.source.set_saved(std::make_shared<Restless>(*one, *other, 9));
  UserMapping mapping;
  mapping.space = build.builder.add_space();
  mapping.ip = Ip{kAddress};
  mapping.size_bytes = kSize;
  mapping.path = "//anon";
  mapping.from = TimeNs{10};
  mapping.pid = 42;
  build.add_mapping(mapping);
  const Timeline timeline = build.builder.build();
  const auto byte_at = [&](uint64_t time_ns) {
    CodeView view(timeline);
    std::array<CodeCandidate, 4> found;
    const FetchResult fetched = view.fetch(mapping.space, Ip{kAddress + 77}, {TimeNs{time_ns}, TimeNs{time_ns}}, {}, found, 1);
    return fetched.count == 0 ? '?' : static_cast<char>(found[0].bytes[0]);
  };
  EXPECT_EQ(byte_at(20), 'a');
  EXPECT_EQ(byte_at(1700), 'b');
  EXPECT_EQ(byte_at(4700), 'a');
  EXPECT_EQ(byte_at(5700), '?') << "neither as it was nor as it will be";
  ASSERT_THAT(timeline.findings(), SizeIs(1));
  EXPECT_EQ(timeline.findings()[0].kind, FindingKind::file_changed);
  EXPECT_THAT(timeline.findings()[0].what, testing::HasSubstr("//anon of process 42 changed more often than the limit"));
}

}  // namespace
}  // namespace ptd::stash
