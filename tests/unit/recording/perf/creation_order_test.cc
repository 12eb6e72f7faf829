// Text pokes that are written after later records of their cpu.
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

class CreationOrder : public Fold {
 protected:
  // Returns whether a poke at 1000, written after a context switch at 5000, is a finding.
  bool is_doubted(std::vector<std::byte> old_bytes) {
    start();
    const auto add = [this](perfio::Payload payload, uint64_t time) {
      perfio::Record record;
      record.payload = std::move(payload);
      record.sample_id.id = 7;
      record.sample_id.cpu = 1;
      record.sample_id.time = time;
      record.sample_id.has_time = true;
      record.file_offset_bytes = time == 1000 ? 6000 : time;
      fold_->on_record(record);
    };
    add(perfio::TextPokeRecord{kText.value, std::move(old_bytes), image_test::bytes_of({0xc3})}, 1000);
    for (const uint64_t time : {3000U, 5000U, 9000U}) add(perfio::SwitchRecord{time != 5000, false, false, -1, -1}, time);
    finish();
    for (const Finding& finding : data_->timeline.findings()) {
      if (finding.kind == FindingKind::bad_record) return true;
    }
    return false;
  }
};

// `ptdecode record` writes that a module has code when it has read it.
TEST_F(CreationOrder, OfChangesIsThatOfTheirCpuButNotOfCreations) {
  EXPECT_TRUE(is_doubted(image_test::bytes_of({0x90})));
  EXPECT_FALSE(is_doubted({}));
}

}  // namespace
}  // namespace ptd
