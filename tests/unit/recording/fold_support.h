// Fold: a sideband fold with hand-made records, on files of its own.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/code_view.h"
#include "ptdecode/timeline.h"
#include "recording/data/open_request.h"
#include "recording/image/image_build.h"
#include "recording/perf/sideband_fold.h"
#include "tests/unit/image/source_support.h"

namespace ptd {

inline constexpr Ip kText{0xffffffff81000000};

class Fold : public ::testing::Test {
 protected:
  Fold() {
    options_.symfs = {dir_.path()};
    options_.build_id_cache = dir_.path() + "/cache";
    image_test::SmallElf elf;
    elf.code = image_test::bytes_of({0x55, 0xc3});
    for (int i = 1; i <= 20; ++i) elf.build_id.push_back(static_cast<std::byte>(i));
    dir_.write("bin/one", elf.bytes());
    elf.code = image_test::bytes_of({0x90, 0xc3});
    dir_.write("bin/two", elf.bytes());
    start();
  }
  void start() {
    data_ = std::make_unique<RecordingData>();
    image_ = std::make_unique<ImageBuild>(options_);
    fold_ = std::make_unique<SidebandFold>(options_, *image_, *data_);
  }
  void feed(perfio::Payload payload, uint64_t time, int32_t pid = -1, int32_t tid = -1, int32_t cpu = 0, uint16_t misc = 0) {
    perfio::Record record;
    record.payload = std::move(payload);
    record.misc = misc;
    record.sample_id.pid = pid;
    record.sample_id.tid = tid;
    record.sample_id.cpu = cpu;
    record.sample_id.time = time;
    record.sample_id.has_time = time != 0;
    record.file_offset_bytes = ++records_ * 64;
    fold_->on_record(record);
  }
  void map(int32_t pid, uint64_t address, const std::string& path, uint64_t time, const std::string& build_id = {}) {
    perfio::MmapRecord record;
    record.pid = record.tid = pid;
    record.addr = address;
    record.size_bytes = 4096;
    record.path = path;
    record.build_id = build_id;
    feed(record, time, pid, pid);
  }
  void comm(int32_t pid, int32_t tid, const std::string& name, bool exec, uint64_t time) {
    feed(perfio::CommRecord{pid, tid, name, exec}, time, pid, tid);
  }
  void fork(int32_t parent, int32_t pid, int32_t tid, uint64_t time, uint16_t misc = 0) {
    feed(perfio::TaskRecord{pid, parent, tid, parent, time, false}, time, parent, parent, 0, misc);
  }
  void poke(uint64_t offset, std::vector<std::byte> old_bytes, std::vector<std::byte> new_bytes, uint64_t time, int32_t cpu = 0) {
    feed(perfio::TextPokeRecord{kText.value + offset, std::move(old_bytes), std::move(new_bytes)}, time, 0, 0, cpu);
  }
  void finish(const KernelImage::Copies& copies = {}) {
    fold_->finish(features_, copies, true);
    image_->finish(*data_);
  }
  // Returns the byte at `ip` in a space at a time, -1 if unknown.
  int byte_at(SpaceId space, uint64_t ip, uint64_t time) {
    CodeView view(data_->timeline);
    std::array<CodeCandidate, 8> out;
    const FetchResult result = view.fetch(space, Ip{ip}, {TimeNs{time}, TimeNs{time}}, {}, out);
    return result.status == FetchStatus::ok && result.count == 1 ? std::to_integer<int>(out[0].bytes[0]) : -1;
  }
  int user_byte(int32_t tid, uint64_t ip, uint64_t time) { return byte_at(data_->contexts.at_thread(tid, TimeNs{time}).space, ip, time); }

  image_test::TempDir dir_;
  OpenRequest options_;
  perfio::Features features_;
  std::unique_ptr<RecordingData> data_;
  std::unique_ptr<ImageBuild> image_;
  std::unique_ptr<SidebandFold> fold_;
  uint64_t records_ = 0;
};

inline constexpr uint64_t kCode = image_test::SmallElf::kCodeOffset;

}  // namespace ptd
