// WindowEdge: which edges of windows of trace break the flow of a thread that moves between cpus.
#include "replay/window_edge.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace ptd::replay {
namespace {

/// `steps`: "0" is flow of the thread in stream 0, "|0" an edge of that stream. Returns what each says: '!' the flow is broken, '-' it is
/// not.
std::string said(std::string_view steps) {
  WindowEdge edge;
  std::string said;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool is_edge =
        steps[i] == '|' ? edge.pass(static_cast<uint32_t>(steps[++i] - '0')) : edge.reach(static_cast<uint32_t>(steps[i] - '0'));
    said += is_edge ? '!' : '-';
  }
  return said;
}

TEST(WindowEdge, BreaksTheFlowOfTheStreamsOnBothSides) {
  struct Case {
    const char *why, *steps, *want;
  };
  constexpr Case kCases[] = {
      {"one stream", "0|00", "-!-"},
      {"another cpu's window", "0|10", "---"},
      {"from a window to a later one of another cpu", "0|11", "--!"},
      {"on another cpu, in the window that was there all the time", "01", "--"},
      {"on another cpu, before the window of the first one ends", "01|01", "----"},
      {"back on the first cpu, in its next window", "01|00", "---!"},
      {"after an edge that was reported, none is until flow follows", "0|0|0|10|0", "-!---!"},
      {"an edge before any flow", "|00", "--"},
  };
  for (const Case& each : kCases) EXPECT_EQ(said(each.steps), each.want) << each.why;
}

}  // namespace
}  // namespace ptd::replay
