// The errata table compared with libipt's, for every model.
#include <gtest/gtest.h>
#include <intel-pt.h>

#include <cstring>
#include <set>
#include <tuple>

#include "ptdecode/pt/config.h"

namespace ptd::pt {
namespace {

// Errata that are worked around for every processor are always on.
Errata from_libipt(const pt_errata& e) {
  Errata out = errata_of({});
  out.bdm70 = out.bdm70 || e.bdm70 != 0;
  out.bdm64 = e.bdm64 != 0;
  out.skd007 = e.skd007 != 0;
  out.skd010 = out.skd010 || e.skd010 != 0;
  out.skd022 = e.skd022 != 0;
  out.skl014 = e.skl014 != 0;
  out.skl168 = e.skl168 != 0;
  out.apl11 = out.apl11 || e.apl11 != 0;
  out.apl12 = out.apl12 || e.apl12 != 0;
  out.skz84 = e.skz84 != 0;
  return out;
}

TEST(Errata, EqualLibiptForEveryModel) {
  // Before 2.1.2, libipt assumed skl014 for the parts on which it is fixed (its log: "skl014 fixed on recent processors"). Each version
  // knows more of these parts: 2.0.5 (Debian 12) the first four, 2.0.6 (Ubuntu 24.04) the first eleven, 2.1.2 (Debian 13) all but the last.
  const pt_version version = pt_library_version();
  const bool assumes_skl014 = std::tuple(version.major, version.minor, version.patch) < std::tuple(2, 1, 2);
  const std::set<int> kSkl014Fixed = {0x8f, 0x97, 0x9a, 0xbf, 0xcf, 0xad, 0xae, 0xb7, 0xb5, 0xaa, 0xac, 0xba, 0xc5, 0xc6, 0xbd, 0xcc, 0xd5};
  // Those that this libipt does not support, taken from libipt 2.3. (Models for which it lists only apl11 need no entry here.)
  const std::set<int> kLater = {0xcf, 0xad, 0xae, 0xa7, 0xa8, 0xba, 0xb7, 0xc5, 0xc6, 0xb5, 0xaa, 0xac, 0xbd, 0xcc, 0xd5};
  int known = 0;
  for (int family = 0; family < 32; ++family) {
    for (int model = 0; model < 256; ++model) {
      SCOPED_TRACE(testing::Message() << family << "/" << model);
      pt_cpu cpu;
      std::memset(&cpu, 0, sizeof(cpu));
      cpu.vendor = pcv_intel;
      cpu.family = static_cast<uint16_t>(family);
      cpu.model = static_cast<uint8_t>(model);
      pt_errata errata;
      std::memset(&errata, 0, sizeof(errata));
      const bool theirs = pt_cpu_errata(&errata, &cpu) == 0;
      const Errata ours = errata_of({.family = cpu.family, .model = cpu.model, .stepping = 3});
      if (theirs) {
        ++known;
        Errata want = from_libipt(errata);
        if (family == 6 && kSkl014Fixed.contains(model)) {
          EXPECT_EQ(want.skl014, assumes_skl014);
          want.skl014 = false;
        }
        EXPECT_EQ(ours, want);
      } else if (family == 6 && kLater.contains(model)) {
        EXPECT_NE(ours, errata_of({}));
      } else if (family < 18) {
        EXPECT_EQ(ours, errata_of({}));
      }
    }
  }
  EXPECT_GE(known, 20);
}

}  // namespace
}  // namespace ptd::pt
