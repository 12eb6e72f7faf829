// Sideband fold: the vdsos of 64-bit and 32-bit processes, which have one path.
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

constexpr uint64_t kHigh = 0x7fff00000000, kLow = 0xf7f00000;

class VdsoFold : public Fold {
 protected:
  VdsoFold() {
    image_test::SmallElf elf;
    elf.code = image_test::bytes_of({0x55, 0xc3});
    for (int i = 1; i <= 20; ++i) elf.build_id.push_back(static_cast<std::byte>(i));
    dir_.write("cache/[vdso]/0102030405060708090a0b0c0d0e0f1011121314/vdso", elf.bytes());
    std::string id;
    for (char i = 1; i <= 20; ++i) id += i;
    features_.build_ids.push_back({"[vdso]", id});
  }
  [[nodiscard]] std::string build_id_at(int32_t pid, uint64_t address) const {
    const SpaceId space = data_->contexts.at_thread(pid, TimeNs{20}).space;
    const SectionId section = data_->timeline.section_at(space, Ip{address}, TimeNs{20});
    return section == kNoSection ? "nothing" : data_->timeline.section(section).build_id;
  }
};

TEST_F(VdsoFold, A32BitProcessHasAnother) {
  comm(10, 10, "long", false, 0);
  comm(20, 20, "short", false, 0);
  map(10, kHigh, "[vdso]", 10);
  map(20, kLow, "[vdso]", 10);
  finish();
  EXPECT_EQ(user_byte(10, kHigh + kCode, 20), 0x55);
  EXPECT_EQ(build_id_at(10, kHigh), "0102030405060708090a0b0c0d0e0f1011121314");
  EXPECT_EQ(user_byte(20, kLow + kCode, 20), -1);
  EXPECT_EQ(build_id_at(20, kLow), "") << "its names would be those of the other vdso";
}

}  // namespace
}  // namespace ptd
