// Guests: numbers of spaces and threads, spaces of machines in a timeline, and which thread of which guest a host thread runs.
#include "ptdecode/guest.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "image/guest_tracks.h"
#include "ptdecode/code_view.h"
#include "ptdecode/timeline_builder.h"

namespace ptd {
namespace {

constexpr Ip kText{0xffffffff81000000};

CodeBytes filled_code(uint8_t value) {
  auto owner = std::make_shared<std::vector<std::byte>>(64, std::byte{value});
  const Bytes view(*owner);
  return {std::move(owner), view};
}

int first_byte(const Timeline& timeline, SpaceId space, Ip ip, TimeNs when = TimeNs{5}) {
  CodeView view(timeline);
  std::array<CodeCandidate, 2> found;
  const FetchResult result = view.fetch(space, ip, {when, when}, {}, found);
  return result.status == FetchStatus::ok ? std::to_integer<int>(found[0].bytes[0]) : -1;
}

TEST(GuestNumbers, AreThoseOfOneMachine) {
  for (const uint32_t machine : {0U, 1U, kMostGuests, kUnknownGuest}) {
    EXPECT_EQ(machine_of(space_of_machine(machine, 77)), machine);
    EXPECT_EQ(space_at(space_of_machine(machine, 77), kText), kernel_of_machine(machine));
    EXPECT_EQ(space_at(space_of_machine(machine, 77), Ip{0x401000}), space_of_machine(machine, 77));
    EXPECT_TRUE(is_kernel_space(kernel_of_machine(machine)));
    EXPECT_FALSE(is_kernel_space(space_of_machine(machine, 77)));
    const int32_t thread = thread_of_machine(machine, 4'000'000);
    EXPECT_EQ(machine_of_thread(thread), machine);
    EXPECT_EQ(own_number(thread), 4'000'000);
    EXPECT_EQ(thread_of_machine(machine, -1), -1);
  }
  EXPECT_EQ(machine_of(kNoSpace), 0U);
  EXPECT_EQ(space_at(kNoSpace, kText), kKernelSpace);
  EXPECT_EQ(machine_of_thread(-1), 0U);
}

TEST(GuestSpaces, HaveTheirOwnKernelAndEdits) {
  TimelineBuilder builder;
  const SpaceId host = builder.add_space(), user = builder.add_space(2), other = builder.add_space(1), later = builder.add_space();
  EXPECT_EQ(machine_of(user), 2U);
  EXPECT_EQ(machine_of(other), 1U);
  EXPECT_EQ(machine_of(host) + machine_of(later), 0U);
  const auto add = [&](SpaceId space, Ip ip, uint8_t value) {
    Section section;
    section.space = space;
    section.ip = ip;
    section.size_bytes = 64;
    section.code = filled_code(value);
    builder.add_section(std::move(section));
  };
  add(kKernelSpace, kText, 1);
  add(kernel_of_machine(2), kText, 2);
  add(user, Ip{0x1000}, 3);
  add(host, Ip{0x1000}, 4);
  const auto poke = [&](SpaceId space, uint8_t from, uint8_t to, uint64_t when) {
    Edit edit;
    edit.space = space;
    edit.ip = kText;
    edit.old_bytes = {std::byte{from}};
    edit.new_bytes = {std::byte{to}};
    edit.time = {TimeNs{when}, TimeNs{when}};
    builder.add_edit(std::move(edit));
  };
  poke(kernel_of_machine(2), 2, 12, 100);
  poke(kKernelSpace, 1, 11, 200);
  const SpaceId child = builder.fork_space(user, TimeNs{50});
  EXPECT_EQ(machine_of(child), 2U);
  const Timeline timeline = builder.build();
  EXPECT_TRUE(timeline.findings().empty());
  for (const SpaceId any : {kKernelSpace, host, later, kNoSpace}) {
    EXPECT_EQ(first_byte(timeline, any, kText), 1);
    EXPECT_EQ(first_byte(timeline, any, kText, TimeNs{150}), 1);
    EXPECT_EQ(first_byte(timeline, any, kText, TimeNs{250}), 11);
  }
  for (const SpaceId any : {user, kernel_of_machine(2), child}) {
    EXPECT_EQ(first_byte(timeline, any, kText), 2);
    EXPECT_EQ(first_byte(timeline, any, kText, TimeNs{150}), 12);
  }
  EXPECT_EQ(first_byte(timeline, user, Ip{0x1000}), 3);
  EXPECT_EQ(first_byte(timeline, child, Ip{0x1000}, TimeNs{60}), 3);
  EXPECT_EQ(first_byte(timeline, host, Ip{0x1000}), 4);
  // A machine without code, and one that is not there.
  for (const SpaceId none : {other, kernel_of_machine(1), kernel_of_machine(7), space_of_machine(7, 1), kernel_of_machine(kUnknownGuest)}) {
    EXPECT_EQ(first_byte(timeline, none, kText), -1);
    EXPECT_EQ(first_byte(timeline, none, Ip{0x1000}), -1);
  }
}

TEST(GuestContexts, FollowHostThreadsAndGuestSwitches) {
  ContextTrack contexts;
  add_guest(contexts, {1, 500, -1});
  add_guest(contexts, {2, 600, -1});
  add_guest_cpu(contexts, 501, {1, 500, 0});
  const auto thread = [](int32_t own) { return thread_of_machine(1, own); };
  add_guest_switch(contexts, {1, 500, 0}, TimeNs{10}, {thread(70), thread(71), space_of_machine(1, 9)});
  add_guest_switch(contexts, {1, 500, 0}, TimeNs{20}, {thread(0), thread(0), kNoSpace});
  contexts.sort();
  EXPECT_TRUE(contexts.cpus().empty());  // of the host
  EXPECT_EQ(guests_of(contexts).size(), 2U);
  const Context vcpu{500, 501, SpaceId{3}};
  EXPECT_EQ(guest_run_by(contexts, vcpu).vcpu, 0);
  EXPECT_EQ(context_in_guest(contexts, vcpu, 4, TimeNs{15}).tid, thread(71));
  EXPECT_EQ(context_in_guest(contexts, vcpu, 4, TimeNs{15}).space, space_of_machine(1, 9));
  const Context idle = context_in_guest(contexts, vcpu, 4, TimeNs{25});
  EXPECT_EQ(own_number(idle.tid), 0);
  EXPECT_NE(idle.tid, thread(0));  // each cpu has an idle task of its own
  EXPECT_EQ(idle.space, kernel_of_machine(1));
  // Without switches, before the first, and in a process that only its number tells.
  const Context early = context_in_guest(contexts, vcpu, 4, TimeNs{5});
  EXPECT_EQ(early.tid, thread(501));
  EXPECT_EQ(early.space, kernel_of_machine(1));
  EXPECT_EQ(context_in_guest(contexts, {600, 601, kNoSpace}, 4, TimeNs{15}).tid, thread_of_machine(2, 601));
  // No guest is known for it, until one is given for all processes.
  EXPECT_EQ(machine_of(context_in_guest(contexts, {700, 701, kNoSpace}, 4, TimeNs{15}).space), kUnknownGuest);
  EXPECT_EQ(machine_of(context_in_guest(contexts, {}, 4, TimeNs{15}).space), kUnknownGuest);
  add_guest(contexts, {3, 0, -1});
  EXPECT_EQ(machine_of(context_in_guest(contexts, {700, 701, kNoSpace}, 4, TimeNs{15}).space), 3U);
  EXPECT_EQ(machine_of(context_in_guest(contexts, {600, 601, kNoSpace}, 4, TimeNs{15}).space), 2U);
}

// What a bundle stores, from which the same contexts are made again.
TEST(GuestContexts, ListTheirTracks) {
  ContextTrack contexts;
  EXPECT_TRUE(guest_cpu_threads(contexts).empty() && guest_cpus(contexts).empty());
  for (int i = 0; i < 2; ++i) {
    add_guest_cpu(contexts, 501, {1, 500, 0});
    add_guest_cpu(contexts, 601, {2, 600, 3});
  }
  for (const uint64_t time : {10, 20, 30}) add_guest_switch(contexts, {2, 600, 3}, TimeNs{time}, {-1, thread_of_machine(2, 7), kNoSpace});
  add_guest_switch(contexts, {1, 500, 0}, TimeNs{15}, {-1, thread_of_machine(1, 0), kNoSpace});
  contexts.sort();
  const std::vector<GuestCpuThread> threads = guest_cpu_threads(contexts);
  ASSERT_EQ(threads.size(), 2U);
  EXPECT_EQ(threads[1].host_tid, 601);
  EXPECT_EQ(threads[1].guest.machine, 2U);
  EXPECT_EQ(threads[1].guest.pid, 600);
  EXPECT_EQ(threads[1].guest.vcpu, 3);
  const std::vector<Guest> cpus = guest_cpus(contexts);
  ASSERT_EQ(cpus.size(), 2U);
  EXPECT_EQ(cpus[0].machine, 2U);
  EXPECT_EQ(cpus[0].vcpu, 3);
  EXPECT_EQ(guest_switches(contexts, cpus[0]).size(), 3U);
  ContextTrack copy;  // an idle task stays that of its cpu
  for (const ContextTrack::Switch& change : guest_switches(contexts, cpus[1])) add_guest_switch(copy, cpus[1], change.time, change.to);
  ASSERT_EQ(guest_switches(copy, cpus[1]).size(), 1U);
  EXPECT_EQ(guest_switches(copy, cpus[1])[0].to, guest_switches(contexts, cpus[1])[0].to);
}

TEST(Guests, NumbersThatNoThreadOfTheHostHasAreLeftOut) {
  for (const int32_t number : {1 << kGuestThreadBits, std::numeric_limits<int32_t>::max()}) {
    ContextTrack contexts;
    add_guest(contexts, {1, number, -1});
    add_guest_cpu(contexts, number, {1, number, 0});
    contexts.sort();
    EXPECT_TRUE(contexts.cpus().empty()) << number;  // as a number of a cpu of the host
    EXPECT_EQ(guest_run_by(contexts, {number, number, kNoSpace}).machine, kUnknownGuest) << number;
  }
}

}  // namespace
}  // namespace ptd
