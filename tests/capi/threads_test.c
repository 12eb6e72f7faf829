/* Threads that open, walk, cancel and free at the same time: for a sanitizer, and for errors of the API. Usage: threads_test DATA_FOLDER */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

enum { kThreads = 4, kRounds = 6 };

struct shared {
  const char* file;
  ptd_recording* recording; /* of all threads */
  int32_t cancel;           /* set by one thread, read by the library */
  long items, cancelled, rows, errors;
};

static void count_error(struct shared* shared) { __atomic_add_fetch(&shared->errors, 1, __ATOMIC_RELAXED); }

static void walk(struct shared* shared, int kind, const ptd_control* control) {
  ptd_cursor_options options = PTD_CURSOR_OPTIONS_INIT;
  options.kind = kind;
  options.control = control;
  options.threads = 3;
  ptd_cursor* cursor = NULL;
  ptd_item item = PTD_INIT(ptd_item);
  if (ptd_cursor_open(shared->recording, &options, &cursor, NULL) != PTD_OK) {
    count_error(shared);
    return;
  }
  ptd_code code = PTD_OK;
  while ((code = ptd_cursor_next(cursor, &item, NULL)) == PTD_OK) __atomic_add_fetch(&shared->items, 1, __ATOMIC_RELAXED);
  if (code == PTD_ERROR_CANCELLED) {
    __atomic_add_fetch(&shared->cancelled, 1, __ATOMIC_RELAXED);
  } else if (code != PTD_END) {
    count_error(shared);
  }
  if (ptd_cursor_free(cursor) != PTD_OK) count_error(shared);
}

static void read_some(struct shared* shared, const char* table) {
  struct ArrowArrayStream stream;
  struct ArrowArray array;
  if (ptd_table(shared->recording, table, NULL, &stream, NULL) != PTD_OK) {
    count_error(shared);
    return;
  }
  for (int i = 0; i < 3; ++i) {
    if (stream.get_next(&stream, &array) != 0) count_error(shared);
    if (array.release == NULL) break;
    __atomic_add_fetch(&shared->rows, (long)array.length, __ATOMIC_RELAXED);
    array.release(&array);
  }
  stream.release(&stream);
}

static void* worker(void* user) {
  struct shared* shared = (struct shared*)user;
  static const char* const tables[] = {"calls", "branches", "findings", "functions"};
  for (int round = 0; round < kRounds; ++round) {
    ptd_control control = PTD_INIT(ptd_control);
    control.cancel_flag = &shared->cancel;
    walk(shared, round % 3, round % 2 == 0 ? &control : NULL);
    read_some(shared, tables[round % 4]);
    uint32_t count = 0;
    ptd_finding finding = PTD_INIT(ptd_finding);
    const char* comm = NULL;
    if (ptd_finding_count(shared->recording, &count, NULL) != PTD_OK) count_error(shared);
    if (count != 0 && ptd_get_finding(shared->recording, 0, &finding, NULL) != PTD_OK) count_error(shared);
    if (ptd_comm_at(shared->recording, 1, PTD_TIME_UNKNOWN, &comm) != PTD_OK) count_error(shared);
    ptd_recording* own = NULL;
    ptd_open_options options = PTD_INIT(ptd_open_options);
    options.control = &control;
    const ptd_code code = ptd_open(shared->file, &options, &own, NULL);
    if (code != PTD_OK && code != PTD_ERROR_CANCELLED) count_error(shared);
    if (ptd_close(own) != PTD_OK) count_error(shared);
  }
  return NULL;
}

/* Sets and clears the flag while the others work. */
static void* canceller(void* user) {
  struct shared* shared = (struct shared*)user;
  struct timespec pause = {0, 2000000};
  for (int i = 0; i < 60; ++i) {
    __atomic_store_n(&shared->cancel, i % 4 == 3, __ATOMIC_RELAXED);
    nanosleep(&pause, NULL);
  }
  __atomic_store_n(&shared->cancel, 0, __ATOMIC_RELAXED);
  return NULL;
}

/* A table's stream moves from the thread that opened it to one that reads it and one that releases it. */
static void* release_stream(void* user) {
  struct ArrowArrayStream* stream = (struct ArrowArrayStream*)user;
  stream->release(stream);
  return NULL;
}

/* A child that is forked while threads of the library decode has none of them: each call there ends, and says so. */
static void fork_while_decoding(const char* data) {
  const unsigned limit_s = 60;
  ptd_recording* recording = open_data(data, "demo");
  ptd_cursor_options options = PTD_CURSOR_OPTIONS_INIT;
  options.kind = PTD_CURSOR_CALLS;
  options.threads = 4;
  ptd_cursor* cursor = NULL;
  EXPECT(PTD_OK, ptd_cursor_open(recording, &options, &cursor, NULL));
  ptd_table_options table_options = PTD_TABLE_OPTIONS_INIT;
  table_options.threads = 4;
  table_options.batch_rows = 100;
  options.threads = 1;
  ptd_cursor* alone = NULL;
  EXPECT(PTD_OK, ptd_cursor_open(recording, &options, &alone, NULL));
  struct ArrowArrayStream stream;
  struct ArrowArray array;
  EXPECT(PTD_OK, ptd_table(recording, "calls", &table_options, &stream, NULL));
  EXPECT(0, stream.get_next(&stream, &array));
  array.release(&array);
  ptd_item item = PTD_INIT(ptd_item);
  EXPECT(PTD_OK, ptd_cursor_next(cursor, &item, NULL));
  EXPECT(PTD_OK, ptd_cursor_next(alone, &item, NULL));
  ptd_code code = PTD_OK;
  const pid_t child = fork();
  if (child == 0) {
    alarm(limit_s);
    char* message = NULL;
    EXPECT(PTD_ERROR_RESOURCES, ptd_cursor_next(cursor, &item, &message)); /* though the parent has decoded more items */
    EXPECT(1, message != NULL && strstr(message, "forked") != NULL);
    EXPECT(PTD_ERROR_RESOURCES, ptd_cursor_next(cursor, &item, NULL));
    struct ArrowSchema schema;
    EXPECT(EAGAIN, stream.get_next(&stream, &array)); /* and more rows */
    EXPECT(EAGAIN, stream.get_schema(&stream, &schema));
    EXPECT(PTD_ERROR_RESOURCES, ptd_stream_code(&stream));
    while ((code = ptd_cursor_next(alone, &item, NULL)) == PTD_OK) {
    }
    EXPECT(PTD_END, code); /* it decodes on the caller's thread */
    stream.release(&stream);
    EXPECT(PTD_OK, ptd_cursor_free(cursor));
    EXPECT(PTD_OK, ptd_close(recording));
    _exit(failures);
  }
  int status = -1;
  EXPECT(child, waitpid(child, &status, 0));
  EXPECT(0, status);
  while ((code = ptd_cursor_next(cursor, &item, NULL)) == PTD_OK) {
  }
  EXPECT(PTD_END, code); /* the parent's cursor goes on */
  stream.release(&stream);
  EXPECT(PTD_OK, ptd_cursor_free(cursor));
  EXPECT(PTD_OK, ptd_cursor_free(alone));
  EXPECT(PTD_OK, ptd_close(recording));
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  struct shared shared;
  memset(&shared, 0, sizeof shared);
  shared.recording = open_data(argv[1], "demo");
  shared.file = path;
  pthread_t threads[kThreads + 1];
  for (int i = 0; i < kThreads; ++i) EXPECT(0, pthread_create(&threads[i], NULL, worker, &shared));
  EXPECT(0, pthread_create(&threads[kThreads], NULL, canceller, &shared));
  for (int i = 0; i <= kThreads; ++i) EXPECT(0, pthread_join(threads[i], NULL));
  EXPECT(0, shared.errors);
  EXPECT(1, shared.items > 0 && shared.rows > 0);

  struct ArrowArrayStream stream;
  struct ArrowArray array;
  EXPECT(PTD_OK, ptd_table(shared.recording, "calls", NULL, &stream, NULL));
  EXPECT(PTD_OK, ptd_close(shared.recording));
  EXPECT(0, stream.get_next(&stream, &array));
  EXPECT(0, pthread_create(&threads[0], NULL, release_stream, &stream));
  EXPECT(0, pthread_join(threads[0], NULL));
  EXPECT(1, array.release != NULL && array.length > 0); /* a batch outlives its stream */
  array.release(&array);
  fork_while_decoding(argv[1]);
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures != 0;
}
