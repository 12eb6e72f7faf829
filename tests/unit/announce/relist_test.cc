// When a run-time lists its code again.
#include <array>
#include <string>

#include "tests/unit/announce/program.h"

namespace ptd::announce {
namespace {

/// A run-time with one piece of code, for its relist callback.
struct Listed {
  uint32_t runtime = 0;
  std::vector<char> code = code_of(16, 1);
};
void list_one(void* user) {
  const Listed& listed = *static_cast<const Listed*>(user);
  ptd_announcement what = load_of(0x1000 * listed.runtime, listed.code, "listed", listed.runtime);
  what.flags = PTD_ANNOUNCE_RELISTED;
  ptd_announce_code(&what);
}

// A reader comes. What is listed when new code is complete holds that code; when a change begins or code ends, it is what ran before.
TEST_F(Ring, NewCodeIsAnnouncedBeforeTheListThatHoldsIt) {
  Program program([](const Steps& steps) {
    static std::array<Listed, 4> listed;
    for (Listed& each : listed) each.runtime = ptd_announce_register("test", list_one, &each);
    steps.wait();
    const uint8_t kinds[] = {PTD_ANNOUNCE_LOAD, PTD_ANNOUNCE_PATCH, PTD_ANNOUNCE_PATCH, PTD_ANNOUNCE_UNLOAD};
    for (size_t i = 0; i < listed.size(); ++i) {
      ptd_announcement what = load_of(0x1000 * listed[i].runtime, listed[i].code, "changed", listed[i].runtime);
      what.kind = kinds[i];
      what.phase = i == 2 ? PTD_ANNOUNCE_BEGIN : PTD_ANNOUNCE_END;
      ptd_announce_code(&what);
    }
    steps.wait();
  });
  std::string order;  // of each run-time's change and list
  for (const Announcement& what : heard_of(program).announcements) {
    if (what.kind == AnnounceKind::relist) continue;
    order += (order.empty() ? "" : ", ") + std::string(what.relisted ? "list " : "change ") + std::to_string(what.runtime);
  }
  EXPECT_EQ(order, "change 1, list 1, change 2, list 2, list 3, change 3, list 4, change 4");
}

}  // namespace
}  // namespace ptd::announce
