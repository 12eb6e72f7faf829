// Announced: a recording with announcements of a process.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "announce/ptd_announce.h"
#include "perfio/announce/announce_event.h"
#include "ptdecode/code_view.h"
#include "recording/data/open_request.h"
#include "recording/image/image_build.h"
#include "recording/perf/sideband_fold.h"
#include "tests/unit/image/source_support.h"

namespace ptd {

/// Saved files of which a test says what mappings show.
class SavedInFolder : public SavedFiles {
 public:
  int64_t saved_at_ns(const MappedPath&) override { return 1; }
  std::vector<Copy> later_copies(const MappedPath&) override { return {}; }
  std::vector<std::shared_ptr<const MappedFile>> with_build_id(const std::string&) override { return {}; }
  std::vector<ElfSymbol> symbols_of(const ElfFile&) override { return {}; }
  std::vector<std::string> troubles() const override { return {}; }

 protected:
  image_test::TempDir dir_;
};

class Announced : public ::testing::Test {
 protected:
  static constexpr uint64_t kJit = 0x10000;  // an executable page of process 10
  static constexpr int32_t kPid = 10, kOther = 20;

  Announced() {
    perfio::EventAttr like;
    attrs_ = {perfio::announce_attr(like, 1)};
    fold_.set_attrs(attrs_);
    map(kPid, kJit, "//anon", 1);
    map(kOther, kJit, "//anon", 1);
  }
  void feed(perfio::Payload payload, uint64_t time, int32_t pid) {
    perfio::Record record;
    record.payload = std::move(payload);
    record.sample_id.pid = record.sample_id.tid = pid;
    record.sample_id.time = time;
    record.sample_id.has_time = true;
    record.file_offset_bytes = ++records_ * 64;
    fold_.on_record(record);
  }
  void map(int32_t pid, uint64_t address, const std::string& path, uint64_t time, uint64_t size_bytes = 4096, uint32_t prot = 0) {
    perfio::MmapRecord record;
    record.pid = record.tid = pid;
    record.addr = address;
    record.size_bytes = size_bytes;
    record.path = path;
    record.prot = prot;
    record.flags = prot == 0 ? 0 : MAP_PRIVATE;
    feed(record, time, pid);
  }
  struct What {
    uint8_t kind = PTD_ANNOUNCE_LOAD, phase = PTD_ANNOUNCE_END;
    uint16_t flags = 0;
    uint64_t address = kJit, old_address = 0, size = 0;
    std::vector<std::byte> code{};
    uint32_t version = PTD_ANNOUNCE_VERSION;
    std::string name = "f";
    std::string file{};
    std::vector<AnnounceLine> lines{};
  };
  // Sends an announcement of one record with the next number.
  void say(What what, uint64_t time, int32_t pid = kPid) {
    ptd_announce_record raw{};
    const bool code = what.kind <= PTD_ANNOUNCE_PATCH;
    const std::string name = code ? what.name : "";
    raw.version = what.version;
    raw.kind = what.kind;
    raw.phase = what.phase;
    raw.flags = what.flags;
    raw.instance = static_cast<uint64_t>(pid);
    raw.seq = what.kind == PTD_ANNOUNCE_ATTACH || what.kind == PTD_ANNOUNCE_DETACH ? 0 : next_[pid]++;
    raw.address = what.address;
    raw.old_address = what.old_address;
    raw.size = what.size != 0 || !code ? what.size : what.code.size();
    raw.runtime = 1;
    raw.chunks = 1;
    raw.name_bytes = static_cast<uint32_t>(name.size());
    raw.code_bytes = static_cast<uint32_t>(what.code.size());
    raw.file_bytes = static_cast<uint32_t>(what.file.size());
    raw.line_bytes = static_cast<uint32_t>(what.lines.size() * sizeof(AnnounceLine));
    raw.data_loc = (raw.name_bytes + raw.file_bytes + raw.line_bytes + raw.code_bytes) << 16;
    std::vector<std::byte> record(sizeof raw);
    std::memcpy(record.data(), &raw, sizeof raw);
    for (const char c : name) record.push_back(static_cast<std::byte>(c));
    const Bytes lines = std::as_bytes(std::span(what.lines));
    for (const Bytes part : {std::as_bytes(std::span(what.file)), lines, Bytes(what.code)})
      record.insert(record.end(), part.begin(), part.end());
    sample_ = perfio::announce_sample(pid, record);
    feed(perfio::OtherSample{0, sample_}, time, pid);
  }
  void relist(uint8_t phase, uint64_t time) { say({.kind = PTD_ANNOUNCE_RELIST, .phase = phase}, time); }
  void lose(uint64_t count) { next_[kPid] += count; }
  void finish() {
    fold_.finish({}, {}, true);
    image_.finish(data_);
  }
  static SpaceId space_of(int32_t pid) { return SpaceId{pid == kPid ? 1U : 2U}; }
  struct Got {
    std::vector<int> bytes;  // the first one of each candidate
    CodeFlag flags = CodeFlag::none;
  };
  Got at(uint64_t address, uint64_t time, SpaceId space = SpaceId{1}) {
    CodeView view(data_.timeline);
    std::array<CodeCandidate, 8> out;
    const FetchResult result = view.fetch(space, Ip{address}, {TimeNs{time}, TimeNs{time}}, {}, out, 1);
    Got got;
    for (uint32_t i = 0; result.status == FetchStatus::ok && i < result.count; ++i) {
      got.bytes.push_back(std::to_integer<int>(out[i].bytes[0]));
      got.flags = got.flags | out[i].flags;
    }
    return got;
  }
  uint64_t count(FindingKind kind, const std::string& text = "") const {
    uint64_t found = 0;
    for (const Finding& finding : data_.timeline.findings())
      found += finding.kind == kind && finding.what.find(text) != std::string::npos ? 1 : 0;
    return found;
  }
  std::string name_at(uint64_t address, uint64_t time) {
    const auto symbol = data_.symbolizer->find(SpaceId{1}, Ip{address}, TimeNs{time});
    return symbol ? std::string(symbol->name) : std::string();
  }

  using Bytes8 = std::vector<int>;
  OpenRequest options_;
  RecordingData data_;
  ImageBuild image_{options_};
  SidebandFold fold_{options_, image_, data_};
  std::vector<perfio::EventAttr> attrs_;
  std::map<int32_t, uint64_t> next_;
  std::vector<std::byte> sample_;
  uint64_t records_ = 0;
};

}  // namespace ptd
