// omit_what_is_refused() with different kernels and users: each event keeps everything that is possible, and the rest is reported.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "perfio/ring/live_event.h"

namespace ptd::perfio {
namespace {

/// A kernel that supports kinds up to some age, and a user who may not use some of them.
struct Kernel {
  int youngest = 7;         ///< number of supported entries of kKinds, the oldest first
  bool privileged = false;  ///< CAP_PERFMON: [Linux] kernel/events/core.c, perf_event_open(): attr.namespaces, attr.exclude_kernel
  int paranoid = 2;
  int operator()(const EventSpec& spec) const {
    const std::array<bool, 7> asked{spec.losses, spec.build_ids, spec.text_pokes, spec.bpf, spec.ksymbols, spec.namespaces, spec.switches};
    for (int i = 0; i < 7 - youngest; ++i) {
      if (asked.at(static_cast<size_t>(i))) return EINVAL;
    }
    if (privileged) return 0;
    if (spec.namespaces) return EACCES;
    return paranoid > 1 && !spec.exclude_kernel ? EACCES : 0;
  }
};

EventSpec all_of_a_process() {
  EventSpec spec;
  spec.exclude_kernel = spec.exclude_hv = true;
  spec.tasks = spec.build_ids = spec.switches = spec.namespaces = spec.losses = true;
  return spec;
}

TEST(Omit, AnOrdinaryUserDoesWithoutNamespaces) {
  EventSpec spec = all_of_a_process();
  std::vector<std::string> without;
  EXPECT_EQ(omit_what_is_refused(spec, without, Kernel{}), 0);
  EXPECT_FALSE(spec.namespaces);
  EXPECT_TRUE(spec.losses && spec.build_ids && spec.switches && spec.tasks);
  ASSERT_EQ(without.size(), 1U);
  EXPECT_NE(without[0].find("this user may not record NAMESPACES"), std::string::npos) << without[0];
}

TEST(Omit, EveryKernelAndUser) {
  for (const bool privileged : {false, true}) {
    for (const int paranoid : {0, 1, 2}) {
      for (int youngest = 0; youngest <= 7; ++youngest) {
        for (const bool kernel : {false, true}) {
          const Kernel machine{youngest, privileged, paranoid};
          EventSpec spec = all_of_a_process();
          spec.ksymbols = spec.bpf = spec.text_pokes = true;
          spec.exclude_kernel = !kernel;
          std::vector<std::string> without;
          ASSERT_EQ(omit_what_is_refused(spec, without, machine), 0);
          const auto knows = [&](int age) { return age < youngest; };  // 0: the oldest kind
          EXPECT_EQ(spec.switches, knows(0));
          EXPECT_EQ(spec.namespaces, knows(1) && privileged);
          EXPECT_EQ(spec.ksymbols, knows(2));
          EXPECT_EQ(spec.bpf, knows(3));
          EXPECT_EQ(spec.text_pokes, knows(4));
          EXPECT_EQ(spec.build_ids, knows(5));
          EXPECT_EQ(spec.losses, knows(6));
          EXPECT_EQ(spec.exclude_kernel, !kernel || (!privileged && paranoid > 1));
          const int kept = spec.switches + spec.namespaces + spec.ksymbols + spec.bpf + spec.text_pokes + spec.build_ids + spec.losses;
          EXPECT_EQ(without.size(), static_cast<size_t>(7 - kept + (kernel && spec.exclude_kernel ? 1 : 0)));
        }
      }
    }
  }
}

TEST(Omit, WhatCannotBeDoneWithoutStaysAnError) {
  std::vector<std::string> without;
  for (const int number : {EACCES, EPERM, EINVAL, ESRCH, EMFILE, EBUSY, ENODEV}) {
    EventSpec spec = all_of_a_process();
    EXPECT_EQ(omit_what_is_refused(spec, without, [&](const EventSpec&) { return number; }), number);
    EXPECT_TRUE(spec.namespaces && spec.losses && spec.build_ids && spec.switches) << "what was asked for stays";
    EXPECT_TRUE(without.empty());
  }
  EventSpec kernel_only;
  kernel_only.exclude_user = true;
  EXPECT_EQ(omit_what_is_refused(kernel_only, without, Kernel{}), EACCES) << "without the kernel nothing would be left";
}

}  // namespace
}  // namespace ptd::perfio
