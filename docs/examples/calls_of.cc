// Lists the calls of one function with their durations. Usage: calls_of FUNCTION [RECORDING]
#include <ptdecode/calls.h>

#include <cstdint>
#include <cstdio>
#include <span>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: calls_of FUNCTION [RECORDING]\n");
    return 2;
  }
  ptd::OpenOptions options;
  options.stashes = ptd::usual_stashes();
  if (argc > 2) options.path = argv[2];
  const auto opened = ptd::Recording::open(options);
  if (!opened.ok()) {
    std::fprintf(stderr, "calls_of: %s\n", opened.error().message.c_str());
    return 1;
  }

  ptd::FunctionTable functions;
  uint64_t calls = 0;
  const auto on_steps = [&](std::span<const ptd::CallStep> steps, const ptd::CallTree& tree) {
    for (const ptd::CallStep& step : steps) {
      if (step.kind != ptd::CallStepKind::leave || functions.info(step.function).name != argv[1]) continue;
      if ((step.flags & (ptd::kCallNoStart | ptd::kCallMiddle)) != 0) continue;  // its beginning was not seen
      ++calls;
      std::printf("%llu.%09llu  tid %d  %llu ns  %llu instructions%s\n", static_cast<unsigned long long>(step.start.value / 1'000'000'000),
                  static_cast<unsigned long long>(step.start.value % 1'000'000'000), tree.threads()[step.thread].tid,
                  static_cast<unsigned long long>(step.total_ns()), static_cast<unsigned long long>(step.instructions),
                  (step.flags & ptd::kCallCut) != 0 ? "  its end was not seen" : "");
    }
    return true;
  };
  const ptd::Status status = ptd::walk_calls(**opened, ptd::CallWalkOptions{}, functions, on_steps);
  if (!status.ok()) {
    std::fprintf(stderr, "calls_of: %s\n", status.error().message.c_str());
    return 1;
  }
  std::printf("%llu calls\n", static_cast<unsigned long long>(calls));
  return 0;
}
