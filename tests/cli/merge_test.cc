// Streams on separate threads are written in order of time; if the reader closes its end, all of them stop.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "cli/list/call_stacks.h"
#include "cli/list/stream_merge.h"

namespace ptd::cli {
namespace {

/// A stream that writes "<name><time>\n" at each time, with `pieces_per_chunk` in a chunk.
StreamTask task(char name, std::vector<uint64_t> times, size_t pieces_per_chunk) {
  return {TimeNs{times.front()}, [=](ChunkSink& sink) {
            Chunk chunk;
            size_t pieces = 0;
            for (const uint64_t time : times) {
              chunk.cut(TimeNs{time});
              chunk.text.ch(name);
              chunk.text.dec(time);
              chunk.text.ch('\n');
              if (++pieces % pieces_per_chunk == 0 && !sink.push(chunk)) return;
            }
            sink.push(chunk);
          }};
}

std::string merged(std::vector<StreamTask> tasks) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  {
    Output output(ends[1]);
    EXPECT_TRUE(merge_streams(std::move(tasks), output));
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  return text;
}

TEST(MergeStreams, OrderOfTimeAtAnyChunkSize) {
  for (const size_t pieces : {1U, 2U, 3U, 100U}) {
    std::vector<StreamTask> tasks;
    tasks.push_back(task('a', {1, 4, 5, 9}, pieces));
    tasks.push_back(task('b', {2, 3, 6, 10, 11}, pieces));
    tasks.push_back(task('c', {7, 8}, pieces));
    EXPECT_EQ(merged(std::move(tasks)), "a1\nb2\nb3\na4\na5\nb6\nc7\nc8\na9\nb10\nb11\n") << pieces;
  }
}

TEST(MergeStreams, TimeThatGoesBackStaysWithItsStream) {
  std::vector<StreamTask> tasks;
  tasks.push_back(task('a', {5, 3, 7}, 1));
  tasks.push_back(task('b', {6}, 1));
  EXPECT_EQ(merged(std::move(tasks)), "a5\na3\nb6\na7\n");
}

TEST(MergeStreams, AClosedReaderStopsEndlessStreams) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  Output output(ends[1]);
  const auto endless = [](ChunkSink& sink) {
    Chunk chunk;
    for (uint64_t time = 0;; ++time) {
      chunk.cut(TimeNs{time});
      chunk.text.fill(1000, 'x');
      if (!sink.push(chunk)) return;
    }
  };
  std::vector<StreamTask> tasks;
  tasks.push_back({TimeNs{0}, endless});
  tasks.push_back({TimeNs{0}, endless});
  EXPECT_FALSE(merge_streams(std::move(tasks), output));
  EXPECT_TRUE(output.closed());
  EXPECT_EQ(output.error(), 0);
  close(ends[1]);
}

TEST(MergeStreams, TheMoreStreamsTheSmallerTheirChunks) {
  const auto chunk_bytes = [](size_t streams) {
    size_t bytes = 0;
    std::vector<StreamTask> tasks;
    for (size_t i = 0; i < streams; ++i) tasks.push_back({TimeNs{i}, [&bytes](ChunkSink& sink) { bytes = sink.chunk_bytes(); }});
    (void)merged(std::move(tasks));
    return bytes;
  };
  constexpr size_t kQueuedChunks = 8, kMostHeldBytes = 64U << 20;
  EXPECT_GE(chunk_bytes(1), 1U << 16);
  for (const size_t streams : {10U, 100U, 1000U}) EXPECT_LE(streams * kQueuedChunks * chunk_bytes(streams), kMostHeldBytes) << streams;
}

TEST(TextBuffer, Numbers) {
  TextBuffer out;
  out.hex(0);
  out.ch(' ');
  out.hex(0xffffffff87a00ef0);
  out.ch(' ');
  out.hex_padded(0xab, 4, '0');
  out.dec_padded(7, 3);
  out.dec_signed(-1);
  out.dec(18446744073709551615ULL);
  EXPECT_EQ(out.view(), "0 ffffffff87a00ef0 00ab  7-118446744073709551615");
}

/// Functions are at multiples of 0x100; those at 0x9000 and after are not known.
uint64_t function_at(Ip ip) { return ip.value >= 0x9000 ? 0 : ip.value & ~uint64_t{0xff}; }

CallStacks::Target to(uint64_t ip) { return {Ip{ip}, function_at(Ip{ip}), false, false}; }

/// Thread 1 in 0x100, which called 0x200, which called 0x300, which called 0x400.
CallStacks three_calls() {
  CallStacks calls;
  calls.select(1);
  calls.set_function(0x100);
  calls.call(Ip{0x110}, to(0x200), 0);
  calls.call(Ip{0x220}, to(0x300), 0);
  calls.call(Ip{0x330}, to(0x400), 0);
  return calls;
}

TEST(CallStacks, ReturnsFindTheirCall) {
  CallStacks calls = three_calls();
  EXPECT_EQ(calls.depth(), 3U);
  calls.ret(to(0x220), function_at);  // two levels at once: a chain of tail calls that was left by a jump
  EXPECT_EQ(calls.depth(), 1U);
  EXPECT_EQ(calls.function(), 0x200U);
  calls.select(2);
  EXPECT_EQ(calls.depth(), 0U);
  calls.ret(to(0x9099), function_at);
  EXPECT_EQ(calls.depth(), 0U);
  calls.select(1);
  calls.ret(to(0x9099), function_at);  // unknown address: one level
  EXPECT_EQ(calls.depth(), 0U);
}

TEST(CallStacks, JumpIntoAnOpenFunctionEndsCalls) {
  CallStacks calls = three_calls();
  calls.jump(to(0x500));  // a tail call
  EXPECT_EQ(calls.depth(), 3U);
  EXPECT_EQ(calls.function(), 0x500U);
  calls.jump(to(0x240));  // longjmp
  EXPECT_EQ(calls.depth(), 1U);
  EXPECT_EQ(calls.function(), 0x200U);
}

// 0x400 is interrupted; the handler 0x800 returns to 0x900, which calls sigreturn.
TEST(CallStacks, ASignalLeavesTheDepthAsItWas) {
  CallStacks calls = three_calls();
  const auto handle = [&calls] {
    calls.resume(Ip{0x800}, function_at);
    calls.ret(to(0x900), function_at);
    calls.call(Ip{0x909}, {}, 0);
  };
  for (int i = 0; i < 3; ++i) {
    handle();
    if (i == 1) handle();  // another signal that was pending
    if (i == 2) {          // sigreturn runs again
      calls.resume(Ip{0x907}, function_at);
      calls.call(Ip{0x909}, {}, 0);
    }
    calls.resume(Ip{0x420}, function_at);
    EXPECT_EQ(calls.depth(), 3U) << i;
    EXPECT_EQ(calls.function(), 0x400U) << i;
  }
  for (const uint64_t resumed : {0x450, 0x44e}) {  // in a system call, which is executed again or not
    calls.call(Ip{0x450}, {}, 0);
    handle();
    calls.resume(Ip{resumed}, function_at);
    EXPECT_EQ(calls.depth(), 3U) << resumed;
    EXPECT_EQ(calls.function(), 0x400U) << resumed;
  }
}

// Of 20,000 calls of 0x500, the calls beyond the deepest one that is kept only count.
TEST(CallStacks, AnyNumberOfCallsMayBeOpen) {
  CallStacks calls = three_calls();
  const auto recurse = [&calls](int count) {
    for (int i = 0; i < count; ++i) calls.call(Ip{0x550}, to(0x500), 0);
  };
  calls.call(Ip{0x440}, to(0x500), 0);
  recurse(20'000);
  calls.call(Ip{0x560}, to(0x600), 0);
  calls.call(Ip{0x650}, {}, 0);  // untraced code
  calls.resume(Ip{0x650}, function_at);
  calls.jump(to(0x680));
  EXPECT_EQ(calls.function(), 0x600U);
  calls.ret(to(0x560), function_at);
  for (int i = 0; i < 20'000; ++i) calls.ret(to(0x550), function_at);
  EXPECT_EQ(calls.depth(), 4U);
  EXPECT_EQ(calls.function(), 0x500U);
  for (const int count : {1000, 20'000}) {
    recurse(count);
    calls.call(Ip{0x560}, to(0x700), 0);
    calls.jump(to(0x450));  // longjmp
    EXPECT_EQ(calls.depth(), 3U);
    EXPECT_EQ(calls.function(), 0x400U);
    calls.call(Ip{0x440}, to(0x500), 0);
  }
}

TEST(CallStacks, ReturnIntoAnOpenFunctionEndsCalls) {
  CallStacks calls = three_calls();
  calls.ret(to(0x150), function_at);  // an exception, caught in 0x100
  EXPECT_EQ(calls.depth(), 0U);
  EXPECT_EQ(calls.function(), 0x100U);
  calls = three_calls();
  calls.ret(to(0x777), function_at);  // into a function that is not open
  EXPECT_EQ(calls.depth(), 0U);
  EXPECT_EQ(calls.function(), 0x700U);
}

}  // namespace
}  // namespace ptd::cli
