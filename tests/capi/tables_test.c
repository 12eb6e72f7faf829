/* Misuse of tables and of the functions that describe a recording, cancellation and progress of tables. Usage: tables_test DATA_FOLDER */
#include <errno.h>
#include <string.h>

#include "expect.h"

static void test_bad_arguments(const char* folder) {
  ptd_recording* recording = open_data(folder, "user/plain.bundle");
  ptd_builder* other = NULL;
  EXPECT(PTD_OK, ptd_builder_new(&other, NULL));
  struct ArrowArrayStream stream;
  memset(&stream, 0xa5, sizeof stream);
  const struct ArrowArrayStream untouched = stream;
  void* bad[] = {NULL, &stream, other, (void*)UINTPTR_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    const ptd_recording* handle = (const ptd_recording*)bad[i];
    const char* text = NULL;
    uint32_t number = 7;
    ptd_missing missing = PTD_INIT(ptd_missing);
    ptd_lost lost = PTD_INIT(ptd_lost);
    ptd_finding finding = PTD_INIT(ptd_finding);
    EXPECT_MESSAGE(PTD_ERROR_INVALID_HANDLE, ptd_table(handle, "blocks", NULL, &stream, &message));
    EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_comm_at(handle, 1, 0, &text));
    EXPECT(0, strcmp("", text));
    EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_missing_count(handle, &number));
    EXPECT(0, number);
    EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_get_missing(handle, 0, &missing));
    EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_warning_count(handle, &number));
    EXPECT(0, number);
    EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_get_warning(handle, 0, &text));
    EXPECT(0, strcmp("", text));
    EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_get_lost(handle, &lost));
    EXPECT_MESSAGE(PTD_ERROR_INVALID_HANDLE, ptd_finding_count(handle, &number, &message));
    EXPECT_MESSAGE(PTD_ERROR_INVALID_HANDLE, ptd_get_finding(handle, 0, &finding, &message));
  }
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_table(recording, NULL, NULL, &stream, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_table(recording, "blocks", NULL, NULL, &message));
  EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_comm_at(recording, 1, 0, NULL));
  EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_missing_count(recording, NULL));
  EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_get_missing(recording, 0, NULL));
  EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_warning_count(recording, NULL));
  EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_get_warning(recording, 0, NULL));
  EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_get_lost(recording, NULL));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_finding_count(recording, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_get_finding(recording, 0, NULL, &message));

  const size_t off[] = {0, 1, 7, (size_t)-1, (size_t)1 << 20, 8, 20};
  for (size_t i = 0; i < sizeof off / sizeof *off; ++i) {
    ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
    options.size = off[i];
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_table(recording, "blocks", &options, &stream, &message));
    ptd_control control = PTD_INIT(ptd_control);
    control.size = off[i];
    ptd_table_options controlled = PTD_TABLE_OPTIONS_INIT;
    controlled.control = &control;
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_table(recording, "blocks", &controlled, &stream, &message));
    ptd_missing missing = {off[i], NULL, NULL, NULL};
    EXPECT(PTD_ERROR_WRONG_SIZE, ptd_get_missing(recording, 0, &missing));
    ptd_lost lost = {off[i], 0, 0, 0, 0, 0};
    EXPECT(PTD_ERROR_WRONG_SIZE, ptd_get_lost(recording, &lost));
    ptd_finding finding = PTD_INIT(ptd_finding);
    finding.size = off[i];
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_get_finding(recording, 0, &finding, &message));
  }
  ptd_missing missing = PTD_INIT(ptd_missing);
  ptd_finding finding = PTD_INIT(ptd_finding);
  EXPECT(PTD_ERROR_BAD_ARGUMENT, ptd_get_missing(recording, 1u << 30, &missing));
  const char* warning = NULL;
  EXPECT(PTD_ERROR_BAD_ARGUMENT, ptd_get_warning(recording, 1u << 30, &warning));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_get_finding(recording, 1u << 30, &finding, &message));

  /* Ranges, the same for tables and cursors: 0 and PTD_TIME_UNKNOWN are no limits. */
  const int64_t ranges[][3] = {{2, 1, 0}, {-5, 0, 0}, {0, -5, 0}, {5, 0, 1}, {0, 5, 1}, {0, PTD_TIME_UNKNOWN, 1}, {PTD_TIME_UNKNOWN, 9, 1}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; ++i) {
    ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
    ptd_cursor_options walk = PTD_CURSOR_OPTIONS_INIT;
    options.first_ns = walk.first_ns = ranges[i][0];
    options.last_ns = walk.last_ns = ranges[i][1];
    ptd_cursor* cursor = NULL;
    if (ranges[i][2] != 0) {
      EXPECT(PTD_OK, ptd_table(recording, "blocks", &options, &stream, NULL));
      stream.release(&stream);
      stream = untouched;
      EXPECT(PTD_OK, ptd_cursor_open(recording, &walk, &cursor, NULL));
      EXPECT(PTD_OK, ptd_cursor_free(cursor));
    } else {
      EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_table(recording, "blocks", &options, &stream, &message));
      EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_cursor_open(recording, &walk, &cursor, &message));
    }
  }
  /* An empty list selects nothing, which is more often a mistake than a wish. */
  const char* const empty[] = {NULL};
  ptd_table_options no_columns = PTD_TABLE_OPTIONS_INIT, no_functions = PTD_TABLE_OPTIONS_INIT;
  no_columns.columns = no_functions.functions = empty;
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_table(recording, "calls", &no_columns, &stream, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_table(recording, "calls", &no_functions, &stream, &message));
  EXPECT_MESSAGE(PTD_ERROR_INVALID_ARGUMENT, ptd_table(recording, "nonsense", NULL, &stream, &message));
  EXPECT(0, memcmp(&stream, &untouched, sizeof stream));
  EXPECT(PTD_OK, ptd_builder_free(other));
  EXPECT(PTD_OK, ptd_close(recording));
  EXPECT_MESSAGE(PTD_ERROR_INVALID_HANDLE, ptd_table(recording, "blocks", NULL, &stream, &message));
}

/* Reads a table to its end or its error; returns the rows. */
static int64_t read_table(struct ArrowArrayStream* stream, int* status) {
  int64_t rows = 0;
  struct ArrowArray array;
  while ((*status = stream->get_next(stream, &array)) == 0 && array.release != NULL) {
    rows += array.length;
    array.release(&array);
    EXPECT(1, array.release == NULL);
  }
  return rows;
}

struct seen {
  uint64_t done, total;
  int calls, stop_after;
  int32_t flag;
  int use_flag;
  struct ArrowArrayStream* stream; /* not NULL: in use while the callback runs */
};

static int cancelled(void* user) {
  struct seen* seen = (struct seen*)user;
  const int stop = ++seen->calls > seen->stop_after;
  if (seen->stream != NULL) {
    struct ArrowArray array;
    struct ArrowSchema schema;
    EXPECT(EBUSY, seen->stream->get_next(seen->stream, &array));
    EXPECT(EBUSY, seen->stream->get_schema(seen->stream, &schema));
  }
  if (seen->use_flag && stop) __atomic_store_n(&seen->flag, 1, __ATOMIC_RELAXED);
  return stop && !seen->use_flag;
}

static void progress(void* user, uint64_t done, uint64_t total) {
  struct seen* seen = (struct seen*)user;
  EXPECT(1, done >= seen->done && done <= total);
  seen->done = done;
  seen->total = total;
}

static void test_control(const char* folder) {
  static const char* const tables[] = {"blocks", "branches", "calls",    "functions", "edges",   "events",
                                       "gaps",   "findings", "sections", "versions",  "samples", "threads"};
  ptd_recording* recording = open_data(folder, "demo");
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    for (uint32_t one = 0; one < 2; ++one) { /* all streams, or stream 1; a window */
      struct seen seen = {0, 0, 0, 1 << 30, 0, 0, NULL};
      ptd_control control = PTD_INIT(ptd_control);
      control.user = &seen;
      control.cancelled = cancelled;
      control.progress = progress;
      control.cancel_flag = &seen.flag;
      ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
      options.stream = one ? 1 : PTD_NONE;
      options.control = &control;
      struct ArrowArrayStream stream;
      int status = 0;
      EXPECT(PTD_OK, ptd_table(recording, tables[i], &options, &stream, NULL));
      memset(&control, 0, sizeof control);                           /* the call has copied it */
      if (strcmp(tables[i], "branches") == 0) seen.stream = &stream; /* its callbacks run on this thread */
      read_table(&stream, &status);
      EXPECT(0, status);
      if (seen.total == 0 || seen.done != seen.total)
        fprintf(stderr, "%s, stream %d: %llu of %llu\n", tables[i], (int)one, (unsigned long long)seen.done,
                (unsigned long long)seen.total);
      EXPECT(1, seen.total != 0 && seen.done == seen.total);
      stream.release(&stream);
    }
    for (int use_flag = 0; use_flag < 2; ++use_flag) {
      struct seen seen = {0, 0, 0, 0, 0, use_flag, NULL};
      ptd_control control = PTD_INIT(ptd_control);
      control.user = &seen;
      control.cancelled = cancelled;
      control.cancel_flag = &seen.flag;
      ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
      options.control = &control;
      struct ArrowArrayStream stream;
      struct ArrowArray array;
      int status = 0;
      EXPECT(PTD_OK, ptd_table(recording, tables[i], &options, &stream, NULL));
      read_table(&stream, &status);
      EXPECT(ECANCELED, status);
      EXPECT(1, stream.get_last_error(&stream) != NULL);
      EXPECT(ECANCELED, stream.get_next(&stream, &array)); /* not the end */
      EXPECT(PTD_ERROR_CANCELLED, ptd_stream_code(&stream));
      EXPECT(EINVAL, stream.get_next(&stream, NULL));
      EXPECT(EINVAL, stream.get_schema(&stream, NULL));
      EXPECT(EINVAL, stream.get_next(NULL, &array));
      void (*release)(struct ArrowArrayStream*) = stream.release;
      int (*get_next)(struct ArrowArrayStream*, struct ArrowArray*) = stream.get_next;
      stream.release(&stream);
      EXPECT(EINVAL, get_next(&stream, &array)); /* released */
      EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_stream_code(&stream));
      EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_stream_code(NULL));
      release(&stream);
    }
  }
  /* A flag that is set before the call. */
  const int32_t flag = 1;
  ptd_control control = PTD_INIT(ptd_control);
  control.cancel_flag = &flag;
  ptd_open_options options = PTD_INIT(ptd_open_options);
  options.control = &control;
  ptd_recording* none = NULL;
  EXPECT_MESSAGE(PTD_ERROR_CANCELLED, ptd_open(path, &options, &none, &message));
  EXPECT(PTD_OK, ptd_close(recording));
}

/* Tables look at `cancelled` for each batch of blocks, and where no trace is decoded, too. */
static void test_checks(const char* folder) {
  static const char* const tables[] = {"blocks", "branches", "calls", "edges", "block_counts", "events", "gaps", "threads"};
  enum { kMostBlocks = 1 << 14 };
  ptd_recording* recording = open_data(folder, "kernel/kernel.bundle");
  ptd_stream_info info = PTD_INIT(ptd_stream_info);
  EXPECT(PTD_OK, ptd_get_stream(recording, 1, &info));
  int64_t blocks = 0;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    struct seen seen = {0, 0, 0, 1 << 30, 0, 0, NULL};
    ptd_control control = PTD_INIT(ptd_control);
    control.user = &seen;
    control.cancelled = cancelled;
    ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
    options.control = &control;
    options.last_ns = strcmp(tables[i], "threads") == 0 ? 0 : info.first_ns + (info.last_ns - info.first_ns) / 8; /* a part is enough */
    struct ArrowArrayStream stream;
    int status = 0;
    EXPECT(PTD_OK, ptd_table(recording, tables[i], &options, &stream, NULL));
    const int64_t rows = read_table(&stream, &status);
    EXPECT(0, status);
    if (i == 0) blocks = rows;
    const int64_t least = strcmp(tables[i], "threads") == 0 ? 1 : blocks / kMostBlocks;
    if (seen.calls < least)
      fprintf(stderr, "%s: cancelled() is called %d times for %lld blocks\n", tables[i], seen.calls, (long long)blocks);
    EXPECT(1, least > 0 && seen.calls >= least);
    stream.release(&stream);
  }
  EXPECT(PTD_OK, ptd_close(recording));
}

/* The codes of the header have the names of its enumerators. */
static void test_names(void) {
#define NAME(name, text) EXPECT(0, strcmp(text, ptd_code_name(PTD_ERROR_##name)))
  NAME(INVALID_ARGUMENT, "invalid_argument");
  NAME(NO_SUCH_STREAM, "no_such_stream");
  NAME(OUT_OF_MEMORY, "out_of_memory");
  NAME(TRUNCATED, "truncated");
  NAME(CANCELLED, "cancelled");
  NAME(NULL_ARGUMENT, "null_argument");
  NAME(INVALID_HANDLE, "invalid_handle");
  NAME(WRONG_SIZE, "wrong_size");
  NAME(SEALED, "sealed");
  NAME(BAD_ARGUMENT, "bad_argument");
  EXPECT(1, strstr(ptd_table_names(), "findings\nsections") != NULL);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  test_bad_arguments(argv[1]);
  test_control(argv[1]);
  test_checks(argv[1]);
  test_names();
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures != 0;
}
