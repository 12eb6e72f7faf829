// Time and memory of the table `branches` against the flow that it is made from.
//
// usage: bench_tables RECORDING [ROUNDS [COLUMN ...]]
// Prints, for each round in one run: the flow (all blocks in order), the branches of it as C++ values, and the table; nanoseconds of
// processor time of this thread for each row.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "analysis/table/flow/branch_flow.h"
#include "analysis/table/table.h"
#include "ptdecode/recording_cursor.h"

using namespace ptd;

namespace {

double seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct Counted {
  uint64_t count = 0;
  double seconds = 0;
};

Counted walk_flow(const Recording& recording) {
  const double begin = seconds();
  RecordingCursor cursor(recording);
  uint64_t instructions = 0;
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
    if (item != FlowItem::blocks) continue;
    for (const Block& block : cursor.item().blocks()) instructions += block.instructions;
  }
  return {instructions, seconds() - begin};
}

Counted walk_branches(const Recording& recording) {
  const double begin = seconds();
  uint64_t branches = 0;
  for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
    RecordingCursor cursor(recording, std::span(&stream, 1));
    BranchFlow flow;
    for (FlowItem item = cursor.next();; item = cursor.next()) {
      if (item == FlowItem::end) {
        flow.finish();
      } else {
        flow.take(item, cursor.item());
      }
      while (const BranchRun* run = flow.next()) {
        flow.each(*run, [&](const FlowBranch&, const BranchEnds&) { ++branches; });
      }
      if (item == FlowItem::end) break;
    }
  }
  return {branches, seconds() - begin};
}

Result<Counted> read_table(const Recording& recording, const TableRequest& request) {
  const double begin = seconds();
  auto table = open_table(recording, "branches", request);
  if (!table) return table.error();
  uint64_t rows = 0;
  for (;;) {
    const Result<RowBatch> batch = (*table)->next();
    if (!batch) return batch.error();
    if (batch->rows == 0) return Counted{rows, seconds() - begin};
    rows += batch->rows;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  OpenOptions options;
  options.path = argv[1];
  const auto recording = Recording::open(options);
  if (!recording) return std::fprintf(stderr, "%s\n", recording.error().message.c_str()), 1;
  TableRequest request;
  for (int i = 3; i < argc; ++i) request.columns.emplace_back(argv[i]);
  for (int round = argc > 2 ? std::atoi(argv[2]) : 1; round > 0; --round) {
    const Counted flow = walk_flow(**recording), branches = walk_branches(**recording);
    const Result<Counted> table = read_table(**recording, request);
    if (!table) return std::fprintf(stderr, "%s\n", table.error().message.c_str()), 1;
    if (table->count != branches.count || table->count == 0) return std::fprintf(stderr, "the table has other rows than the flow\n"), 1;
    const auto rows = static_cast<double>(table->count);
    const double flow_ns = flow.seconds * 1e9 / rows, branches_ns = branches.seconds * 1e9 / rows, table_ns = table->seconds * 1e9 / rows;
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    std::printf(
        "%.0f rows: flow %.2f ns, branches %.2f ns, table %.2f ns a row; (table - 2 ns) / branches %.2f, / flow %.2f; peak %ld MB\n", rows,
        flow_ns, branches_ns, table_ns, (table_ns - 2) / branches_ns, (table_ns - 2) / flow_ns, usage.ru_maxrss / 1024);
  }
  return 0;
}
