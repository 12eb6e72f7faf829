/* Prints the branches and the gaps of a recording. Usage: walk RECORDING */
#include <inttypes.h>
#include <ptdecode/ptdecode.h>
#include <stdio.h>

static int failed(ptd_code code, char* message) {
  fprintf(stderr, "walk: %s (%s)\n", message != NULL ? message : "error", ptd_code_name(code));
  ptd_free(message);
  return 1;
}

int main(int argc, char** argv) {
  ptd_recording* recording = NULL;
  ptd_cursor* cursor = NULL;
  char* message = NULL;
  if (argc != 2) return 2;
  ptd_code code = ptd_open(argv[1], NULL, &recording, &message);
  if (code != PTD_OK) return failed(code, message);
  ptd_cursor_options options = PTD_CURSOR_OPTIONS_INIT;
  options.kind = PTD_CURSOR_BRANCHES;
  code = ptd_cursor_open(recording, &options, &cursor, &message);
  ptd_close(recording); /* the cursor keeps what it needs */
  if (code != PTD_OK) return failed(code, message);

  uint64_t branches = 0, gaps = 0;
  ptd_item item = PTD_INIT(ptd_item);
  while ((code = ptd_cursor_next(cursor, &item, &message)) == PTD_OK) {
    if (item.kind == PTD_ITEM_GAP) {
      printf("%" PRId64 " tid %d gap: %s\n", item.time_ns, item.tid, item.u.gap.sentence);
      ++gaps;
      continue;
    }
    for (size_t i = 0; i < item.u.branches.count; ++i) {
      const ptd_branch* branch = &item.u.branches.branches[i];
      printf("%" PRId64 " tid %d %s %" PRIx64 " -> %" PRIx64 "\n", item.time_ns, item.tid, branch->kind, branch->from, branch->to);
    }
    branches += item.u.branches.count;
  }
  ptd_cursor_free(cursor);
  if (code != PTD_END) return failed(code, message);
  printf("%" PRIu64 " branches, %" PRIu64 " gaps\n", branches, gaps);
  return 0;
}
