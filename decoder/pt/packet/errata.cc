// Which processor has which Intel PT erratum.
#include <cstdint>

#include "ptdecode/pt/config.h"

namespace ptd::pt {
namespace {

enum Bit : uint16_t {
  kBdm70 = 1,
  kBdm64 = 2,
  kSkd007 = 4,
  kSkd010 = 8,
  kSkd022 = 16,
  kSkl014 = 32,
  kSkl168 = 64,
  kApl11 = 128,
  kApl12 = 256,
  kSkz84 = 512,
};

struct Entry {
  uint16_t family;
  uint8_t model;
  uint16_t bits;
};

// Broadwell: BDM70, BDM64 (5th Generation Intel Core and Intel Core M, specification updates; the Xeon parts of the same core alike).
constexpr uint16_t kBroadwell = kBdm70 | kBdm64;
// Skylake and Kaby Lake client and their successors of the same core: bdm70 = SKL021, SKD024, KBL021; skd007 = SKL049, KBL041;
// skd010 = SKL033, SKD014, KBL030; skd022 = SKL024, KBL023; skl014 = SKL014, KBL014; SKL168.
constexpr uint16_t kSkylake = kBdm70 | kSkd007 | kSkd022 | kSkd010 | kSkl014 | kSkl168;
// Skylake-SP: SKZ84. The other bits have no published id; they are carried over from the client core.
constexpr uint16_t kSkylakeServer = kBdm70 | kSkl014 | kSkd022 | kSkz84;
// Sapphire Rapids and later: skl014 is fixed. No published id; the other bits are carried over.
constexpr uint16_t kServer = kBdm70 | kSkd022 | kSkz84;
// Cannon, Ice, Tiger and Rocket Lake client. No published id; carried over.
constexpr uint16_t kIceLake = kBdm70 | kSkl014 | kSkd022;
// Hybrids, whose small cores descend from Goldmont: apl11. No published id; carried over.
constexpr uint16_t kHybrid = kBdm70 | kSkd022 | kApl11;
// Goldmont: APL11, APL12 (Intel Pentium and Celeron N- and J-series, specification update).
constexpr uint16_t kGoldmont = kApl11 | kApl12;
// Goldmont Plus and later: apl12 is fixed.
constexpr uint16_t kAtom = kApl11;

// Carried over: no specification update names the erratum for this part. An unneeded workaround is harmless, because each one is applied
// only if the packets show the erratum's pattern.
constexpr Entry kTable[] = {
    {6, 0x3d, kBroadwell},      // Broadwell
    {6, 0x47, kBroadwell},      // Broadwell-H
    {6, 0x4f, kBroadwell},      // Broadwell-X
    {6, 0x56, kBroadwell},      // Broadwell-D
    {6, 0x4e, kSkylake},        // Skylake-U/Y
    {6, 0x5e, kSkylake},        // Skylake-S/H
    {6, 0x8e, kSkylake},        // Kaby, Coffee, Whiskey, Amber Lake-U/Y
    {6, 0x9e, kSkylake},        // Kaby, Coffee Lake-S/H
    {6, 0xa5, kSkylake},        // Comet Lake
    {6, 0xa6, kSkylake},        // Comet Lake-U
    {6, 0x55, kSkylakeServer},  // Skylake-X, Cascade Lake, Cooper Lake
    {6, 0x6a, kSkylakeServer},  // Ice Lake-X
    {6, 0x6c, kSkylakeServer},  // Ice Lake-D
    {6, 0x8f, kServer},         // Sapphire Rapids
    {6, 0xcf, kServer},         // Emerald Rapids
    {6, 0xad, kServer},         // Granite Rapids
    {6, 0xae, kServer},         // Granite Rapids-D
    {19, 0x01, kServer},        // Diamond Rapids
    {6, 0x66, kIceLake},        // Cannon Lake
    {6, 0x7d, kIceLake},        // Ice Lake
    {6, 0x7e, kIceLake},        // Ice Lake-U/Y
    {6, 0x8c, kIceLake},        // Tiger Lake-U
    {6, 0x8d, kIceLake},        // Tiger Lake-H
    {6, 0xa7, kIceLake},        // Rocket Lake
    {6, 0xa8, kIceLake},        // Rocket Lake
    {6, 0x97, kHybrid},         // Alder Lake-S
    {6, 0x9a, kHybrid},         // Alder Lake-P
    {6, 0xb7, kHybrid},         // Raptor Lake-S
    {6, 0xba, kHybrid},         // Raptor Lake-P
    {6, 0xbf, kHybrid},         // Raptor Lake
    {6, 0xaa, kHybrid},         // Meteor Lake
    {6, 0xac, kHybrid},         // Meteor Lake
    {6, 0xb5, kHybrid},         // Arrow Lake-U
    {6, 0xc5, kHybrid},         // Arrow Lake-H
    {6, 0xc6, kHybrid},         // Arrow Lake
    {6, 0xbd, kHybrid},         // Lunar Lake
    {6, 0xcc, kHybrid},         // Panther Lake
    {6, 0xd5, kHybrid},         // Wildcat Lake
    {18, 0x01, kHybrid},        // Nova Lake
    {18, 0x03, kHybrid},        // Nova Lake
    {6, 0x5c, kGoldmont},       // Apollo Lake
    {6, 0x5f, kGoldmont},       // Denverton
    {6, 0x7a, kAtom},           // Gemini Lake
    {6, 0x86, kAtom},           // Snow Ridge
    {6, 0x96, kAtom},           // Elkhart Lake
    {6, 0x9c, kAtom},           // Jasper Lake
    {6, 0xb6, kAtom},           // Grand Ridge
    {6, 0xaf, kAtom},           // Sierra Forest
    {6, 0xdd, kAtom},           // Clearwater Forest
};

// Errata worked around for all processors: no processor without the erratum writes such packets.
constexpr uint16_t kEvery = kBdm70 | kSkd010 | kApl11 | kApl12;

}  // namespace

Errata errata_of(CpuId cpu) {
  unsigned bits = kEvery;
  for (const Entry& entry : kTable) {
    if (entry.family == cpu.family && entry.model == cpu.model) bits |= entry.bits;
  }
  Errata errata;
  errata.bdm70 = (bits & kBdm70) != 0;
  errata.bdm64 = (bits & kBdm64) != 0;
  errata.skd007 = (bits & kSkd007) != 0;
  errata.skd010 = (bits & kSkd010) != 0;
  errata.skd022 = (bits & kSkd022) != 0;
  errata.skl014 = (bits & kSkl014) != 0;
  errata.skl168 = (bits & kSkl168) != 0;
  errata.apl11 = (bits & kApl11) != 0;
  errata.apl12 = (bits & kApl12) != 0;
  errata.skz84 = (bits & kSkz84) != 0;
  return errata;
}

}  // namespace ptd::pt
