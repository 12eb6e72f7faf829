/* Misuse of every function of the C API: an error for each, no crash. Usage: misuse_test DATA_FOLDER */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"
#include "ptdecode/ptdecode_plan.h"

/* Every function with this in place of its handles. */
static void bad_handles(void* bad, ptd_code code, int free_too) {
  const ptd_recording* recording = (const ptd_recording*)bad;
  ptd_builder* builder = (ptd_builder*)bad;
  ptd_cursor* cursor = (ptd_cursor*)bad;
  uint32_t number = 0;
  size_t count = 0;
  uint8_t bytes[16];
  char* text = NULL;
  ptd_stream_info stream = PTD_INIT(ptd_stream_info);
  ptd_item item = PTD_INIT(ptd_item);
  ptd_place place = PTD_INIT(ptd_place);
  ptd_symbol symbol = PTD_INIT(ptd_symbol);
  ptd_pt_config config = PTD_INIT(ptd_pt_config);
  ptd_cursor* made = NULL;
  ptd_recording* opened = NULL;
  if (code == PTD_ERROR_INVALID_HANDLE) {
    EXPECT(code, ptd_stream_count(recording, &number));
    EXPECT(code, ptd_get_stream(recording, 0, &stream));
    EXPECT_MESSAGE(code, ptd_info_json(recording, &text, &message));
    EXPECT_MESSAGE(code, ptd_cursor_open(recording, NULL, &made, &message));
    EXPECT(code, ptd_space_of(recording, 1, 0, &number));
    EXPECT_MESSAGE(code, ptd_code_at(recording, &place, bytes, sizeof bytes, &count, &number, &message));
    EXPECT_MESSAGE(code, ptd_disassemble(recording, &place, 1, &text, &message));
    EXPECT_MESSAGE(code, ptd_symbol_at(recording, &place, &symbol, &message));
  }
  EXPECT_MESSAGE(code, ptd_builder_add_attr(builder, bytes, 16, NULL, 0, NULL, &message));
  EXPECT_MESSAGE(code, ptd_builder_add_records(builder, 0, bytes, 16, &message));
  EXPECT_MESSAGE(code, ptd_builder_add_aux(builder, 0, -1, PTD_AUX_NEXT, bytes, 16, &message));
  EXPECT_MESSAGE(code, ptd_builder_add_code(builder, 1, 0x1000, bytes, 16, 0, NULL, &message));
  EXPECT_MESSAGE(code, ptd_builder_set_feature(builder, 3, bytes, 16, &message));
  EXPECT_MESSAGE(code, ptd_builder_set_pt(builder, &config, &message));
  EXPECT_MESSAGE(code, ptd_builder_open(builder, NULL, &opened, &message));
  EXPECT_MESSAGE(code, ptd_cursor_next(cursor, &item, &message));
  if (!free_too || bad == NULL) return;
  EXPECT(code, ptd_close((ptd_recording*)bad));
  EXPECT(code, ptd_builder_free(builder));
  EXPECT(code, ptd_cursor_free(cursor));
}

static void test_handles(const char* folder) {
  int here = 0;
  bad_handles(NULL, PTD_ERROR_INVALID_HANDLE, 1);
  bad_handles(&here, PTD_ERROR_INVALID_HANDLE, 1);
  bad_handles((void*)UINTPTR_MAX, PTD_ERROR_INVALID_HANDLE, 1);
  bad_handles((void*)(uintptr_t)0xd000000000ffffffu, PTD_ERROR_INVALID_HANDLE, 1);
  EXPECT(PTD_OK, ptd_close(NULL));
  EXPECT(PTD_OK, ptd_builder_free(NULL));
  EXPECT(PTD_OK, ptd_cursor_free(NULL));
  ptd_free(NULL);

  ptd_recording* recording = open_data(folder, "user/plain.bundle");
  ptd_builder* builder = NULL;
  ptd_cursor* cursor = NULL;
  EXPECT(PTD_OK, ptd_builder_new(&builder, NULL));
  EXPECT(PTD_OK, ptd_cursor_open(recording, NULL, &cursor, NULL));
  /* Another type. */
  uint32_t number = 0;
  ptd_item item = PTD_INIT(ptd_item);
  EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_stream_count((const ptd_recording*)builder, &number));
  EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_stream_count((const ptd_recording*)cursor, &number));
  EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_cursor_next((ptd_cursor*)builder, &item, NULL));
  EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_cursor_next((ptd_cursor*)recording, &item, NULL));
  EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_builder_add_records((ptd_builder*)cursor, 0, "", 0, NULL));
  EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_builder_free((ptd_builder*)recording));
  EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_close((ptd_recording*)builder));
  EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_cursor_free((ptd_cursor*)builder));
  /* A cursor keeps its recording. */
  EXPECT(PTD_OK, ptd_close(recording));
  EXPECT(PTD_OK, ptd_cursor_next(cursor, &item, NULL));
  EXPECT(PTD_OK, ptd_cursor_free(cursor));
  EXPECT(PTD_OK, ptd_builder_free(builder));
  bad_handles(recording, PTD_ERROR_INVALID_HANDLE, 1);
  bad_handles(builder, PTD_ERROR_INVALID_HANDLE, 1);
  bad_handles(cursor, PTD_ERROR_INVALID_HANDLE, 1);
  /* The slots are used again, and the old numbers stay invalid. */
  ptd_builder* again = NULL;
  for (int i = 0; i < 1000; ++i) {
    EXPECT(PTD_OK, ptd_builder_new(&again, NULL));
    EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_builder_free(builder));
    EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_builder_free((ptd_builder*)cursor));
    EXPECT(PTD_OK, ptd_builder_free(again));
  }
}

static void test_null_and_sizes(const char* folder) {
  ptd_recording* recording = open_data(folder, "user/plain.bundle");
  ptd_recording* opened = (ptd_recording*)1;
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_open(NULL, NULL, &opened, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_open(path, NULL, NULL, &message));
  EXPECT_MESSAGE(300, ptd_open("/nonexistent/perf.data", NULL, &opened, &message) / 100 * 100);
  EXPECT(1, opened == NULL);
  EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_stream_count(recording, NULL));
  EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_get_stream(recording, 0, NULL));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_info_json(recording, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_builder_new(NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_cursor_open(recording, NULL, NULL, &message));
  EXPECT(PTD_ERROR_NULL_ARGUMENT, ptd_space_of(recording, 1, 0, NULL));
  ptd_place place = PTD_INIT(ptd_place);
  size_t count = 0;
  uint8_t bytes[8];
  char* text = NULL;
  ptd_symbol symbol = PTD_INIT(ptd_symbol);
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_code_at(recording, NULL, bytes, 8, &count, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_code_at(recording, &place, NULL, 8, &count, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_code_at(recording, &place, bytes, 8, NULL, NULL, &message));
  EXPECT(PTD_OK, ptd_code_at(recording, &place, NULL, 0, &count, NULL, NULL));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_disassemble(recording, &place, 1, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_symbol_at(recording, &place, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_symbol_at(recording, NULL, &symbol, &message));
  ptd_cursor* cursor = NULL;
  EXPECT(PTD_OK, ptd_cursor_open(recording, NULL, &cursor, NULL));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_cursor_next(cursor, NULL, &message));

  const size_t off[] = {0, 1, 7, (size_t)-1, (size_t)1 << 20};
  for (size_t i = 0; i < sizeof off / sizeof *off + 2; ++i) {
    const size_t more = sizeof off / sizeof *off;
#define WRONG(type) (i < more ? off[i] : i == more ? sizeof(type) - 8 : sizeof(type) + 4)
    ptd_open_options options = PTD_INIT(ptd_open_options);
    options.size = WRONG(ptd_open_options);
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_open(path, &options, &opened, &message));
    ptd_control control = PTD_INIT(ptd_control);
    control.size = WRONG(ptd_control);
    ptd_open_options controlled = PTD_INIT(ptd_open_options);
    controlled.control = &control;
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_open(path, &controlled, &opened, &message));
    ptd_stream_info stream = PTD_INIT(ptd_stream_info);
    stream.size = WRONG(ptd_stream_info);
    EXPECT(PTD_ERROR_WRONG_SIZE, ptd_get_stream(recording, 0, &stream));
    ptd_cursor_options walk = PTD_INIT(ptd_cursor_options);
    walk.size = WRONG(ptd_cursor_options);
    ptd_cursor* none = NULL;
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_cursor_open(recording, &walk, &none, &message));
    ptd_item item = PTD_INIT(ptd_item);
    item.size = WRONG(ptd_item);
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_cursor_next(cursor, &item, &message));
    ptd_place wrong = PTD_INIT(ptd_place);
    wrong.size = WRONG(ptd_place);
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_code_at(recording, &wrong, bytes, 8, &count, NULL, &message));
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_disassemble(recording, &wrong, 1, &text, &message));
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_symbol_at(recording, &wrong, &symbol, &message));
    ptd_symbol name = PTD_INIT(ptd_symbol);
    name.size = WRONG(ptd_symbol);
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_symbol_at(recording, &place, &name, &message));
    ptd_builder* builder = NULL;
    EXPECT(PTD_OK, ptd_builder_new(&builder, NULL));
    ptd_pt_config config = PTD_INIT(ptd_pt_config);
    config.size = WRONG(ptd_pt_config);
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_builder_set_pt(builder, &config, &message));
    EXPECT_MESSAGE(PTD_ERROR_WRONG_SIZE, ptd_builder_open(builder, &options, &opened, &message));
    EXPECT(PTD_OK, ptd_builder_free(builder));
  }
  /* A newer program: its struct is larger, and the library leaves the rest alone. */
  struct {
    ptd_item item;
    uint64_t newer[4];
  } larger;
  memset(&larger, 0xa5, sizeof larger);
  larger.item.size = sizeof larger;
  EXPECT(PTD_OK, ptd_cursor_next(cursor, &larger.item, NULL));
  EXPECT(sizeof larger, larger.item.size);
  EXPECT(0, larger.newer[0] != 0xa5a5a5a5a5a5a5a5u || larger.newer[3] != 0xa5a5a5a5a5a5a5a5u);

  /* Values out of range. */
  ptd_stream_info stream = PTD_INIT(ptd_stream_info);
  EXPECT(PTD_ERROR_BAD_ARGUMENT, ptd_get_stream(recording, 1000, &stream));
  ptd_cursor* none = NULL;
  ptd_cursor_options walk = PTD_CURSOR_OPTIONS_INIT;
  walk.stream = 1000;
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_cursor_open(recording, &walk, &none, &message));
  walk.stream = PTD_NONE;
  walk.kind = 99;
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_cursor_open(recording, &walk, &none, &message));
  walk.kind = PTD_CURSOR_FLOW;
  walk.first_ns = 2;
  walk.last_ns = 1;
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_cursor_open(recording, &walk, &none, &message));
  ptd_open_options options = PTD_INIT(ptd_open_options);
  options.flags = UINT64_C(1) << 40;
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_open(path, &options, &opened, &message));
  ptd_plan_options plan = PTD_INIT(ptd_plan_options);
  plan.reserved = 1;
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_plan_write(path, "/nonexistent/plan", &plan, &message));
  place.mode = 77;
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_disassemble(recording, &place, 1, &text, &message));
  EXPECT(0, strcmp("in_use", ptd_code_name(PTD_ERROR_IN_USE)));
  EXPECT(0, strcmp("unknown", ptd_code_name(-5)));
  EXPECT(1, strlen(ptd_version()) > 2);
  EXPECT(PTD_OK, ptd_cursor_free(cursor));
  EXPECT(PTD_OK, ptd_close(recording));
}

/* Options of a program that was built with the first version, which ended before the code of guests: what follows is not read. */
static void test_options_of_guests(const char* folder) {
  ptd_recording* recording = open_data(folder, "demo");
  EXPECT(PTD_OK, ptd_close(recording));
  ptd_open_options options;
  memset(&options, 0xa5, sizeof options);
  memset(&options, 0, offsetof(ptd_open_options, guestmount));
  options.size = offsetof(ptd_open_options, guestmount);
  EXPECT(80, options.size);
  EXPECT(PTD_OK, ptd_open(path, &options, &recording, NULL));
  EXPECT(PTD_OK, ptd_close(recording));
  /* Files with code: for CoreSight snapshots, and with a file. */
  const char* const images[] = {"/nonexistent/file@1000", "@1000", NULL};
  options = PTD_INIT(ptd_open_options);
  options.images = images;
  char* message = NULL;
  EXPECT(PTD_ERROR_BAD_ARGUMENT, ptd_open(path, &options, &recording, &message));
  EXPECT(1, message != NULL && strstr(message, "images: '@1000' is neither") != NULL);
  ptd_free(message);
  options.images = images + 2;
  EXPECT(PTD_OK, ptd_open(path, &options, &recording, NULL));
  EXPECT(PTD_OK, ptd_close(recording));
  /* Paths that cannot be read, and a recording without guests. */
  options = PTD_INIT(ptd_open_options);
  options.guestmount = "/nonexistent/mount";
  options.guestkallsyms = options.guestmodules = options.guestvmlinux = "/nonexistent/file";
  EXPECT(PTD_OK, ptd_open(path, &options, &recording, NULL));
  uint32_t warnings = 0;
  EXPECT(PTD_OK, ptd_warning_count(recording, &warnings));
  const char* told[] = {"--guestmount: /nonexistent/mount is not a folder", "--guestkallsyms: /nonexistent/file cannot be read",
                        "--guestmodules: /nonexistent/file cannot be read", "--guestvmlinux: /nonexistent/file cannot be read",
                        "--guestmount, --guestkallsyms, --guestmodules, --guestvmlinux have no effect"};
  for (size_t i = 0; i < sizeof told / sizeof *told; ++i) {
    int found = 0;
    for (uint32_t k = 0; k < warnings; ++k) {
      const char* warning = NULL;
      EXPECT(PTD_OK, ptd_get_warning(recording, k, &warning));
      found += strstr(warning, told[i]) != NULL;
    }
    EXPECT(1, found);
  }
  EXPECT(PTD_OK, ptd_close(recording));
}

/* ---- Cursors ------------------------------------------------------------------------------------------------------------------------ */

struct inside {
  ptd_cursor* cursor;
  ptd_builder* builder;
  int calls, stop_after;
  uint64_t done, total;
};

/* A callback that uses the handle that it was called for. */
static int cancelled(void* user) {
  struct inside* inside = (struct inside*)user;
  if (inside->cursor != NULL && inside->calls == 0) {
    ptd_item item = PTD_INIT(ptd_item);
    EXPECT_MESSAGE(PTD_ERROR_IN_USE, ptd_cursor_next(inside->cursor, &item, &message));
    EXPECT(PTD_ERROR_IN_USE, ptd_cursor_free(inside->cursor));
    EXPECT(PTD_ERROR_INVALID_HANDLE, ptd_close((ptd_recording*)inside->cursor)); /* of another type */
  }
  if (inside->builder != NULL && inside->calls == 0) bad_handles(NULL, PTD_ERROR_INVALID_HANDLE, 0);
  if (inside->builder != NULL) EXPECT(PTD_ERROR_IN_USE, ptd_builder_free(inside->builder));
  return ++inside->calls > inside->stop_after;
}

static void progress(void* user, uint64_t done, uint64_t total) {
  struct inside* inside = (struct inside*)user;
  EXPECT(1, done >= inside->done && done <= total);
  inside->done = done;
  inside->total = total;
}

static void test_cursors(const char* folder) {
  ptd_recording* recording = open_data(folder, "demo");
  for (int kind = PTD_CURSOR_FLOW; kind <= PTD_CURSOR_CALLS; ++kind) {
    /* Exhausted. */
    ptd_cursor_options options = PTD_CURSOR_OPTIONS_INIT;
    options.kind = kind;
    ptd_cursor* cursor = NULL;
    ptd_item item = PTD_INIT(ptd_item);
    EXPECT(PTD_OK, ptd_cursor_open(recording, &options, &cursor, NULL));
    long items = 0;
    int64_t before = INT64_MIN;
    ptd_code code = PTD_OK;
    while ((code = ptd_cursor_next(cursor, &item, NULL)) == PTD_OK) {
      if (++items < 100 && kind != PTD_CURSOR_CALLS) EXPECT(1, before <= item.time_ns);
      before = item.time_ns;
    }
    EXPECT(PTD_END, code);
    EXPECT(1, items > 10);
    for (int i = 0; i < 3; ++i) EXPECT(PTD_END, ptd_cursor_next(cursor, &item, NULL));
    EXPECT(PTD_OK, ptd_cursor_free(cursor));
    /* Cancelled, at once and later; from inside, the cursor is in use. */
    for (int after = 0; after < 3; ++after) {
      struct inside inside = {NULL, NULL, 0, after, 0, 0};
      ptd_control control = PTD_INIT(ptd_control);
      control.user = &inside;
      control.cancelled = cancelled;
      control.progress = progress;
      options.control = &control;
      EXPECT(PTD_OK, ptd_cursor_open(recording, &options, &cursor, NULL));
      inside.cursor = cursor;
      long given = 0;
      while ((code = ptd_cursor_next(cursor, &item, NULL)) == PTD_OK) ++given;
      EXPECT(PTD_ERROR_CANCELLED, code);
      EXPECT(1, given < items);
      EXPECT_MESSAGE(PTD_ERROR_CANCELLED, ptd_cursor_next(cursor, &item, &message));
      EXPECT(PTD_OK, ptd_cursor_free(cursor));
    }
    /* Progress reaches everything. */
    struct inside inside = {NULL, NULL, 0, 1 << 30, 0, 0};
    ptd_control control = PTD_INIT(ptd_control);
    control.user = &inside;
    control.progress = progress;
    options.control = &control;
    EXPECT(PTD_OK, ptd_cursor_open(recording, &options, &cursor, NULL));
    while (ptd_cursor_next(cursor, &item, NULL) == PTD_OK) {
    }
    EXPECT(1, inside.total != 0 && inside.done == inside.total);
    /* Freed half way. */
    EXPECT(PTD_OK, ptd_cursor_free(cursor));
    options.control = NULL;
    EXPECT(PTD_OK, ptd_cursor_open(recording, &options, &cursor, NULL));
    EXPECT(PTD_OK, ptd_cursor_next(cursor, &item, NULL));
    EXPECT(PTD_OK, ptd_cursor_free(cursor));
  }
  /* Cancelled while opening. */
  struct inside inside = {NULL, NULL, 0, 0, 0, 0};
  ptd_control control = PTD_INIT(ptd_control);
  control.user = &inside;
  control.cancelled = cancelled;
  ptd_open_options options = PTD_INIT(ptd_open_options);
  options.control = &control;
  for (int after = 0; after < 3; ++after) {
    ptd_recording* opened = NULL;
    inside.calls = 0;
    inside.stop_after = after;
    EXPECT_MESSAGE(PTD_ERROR_CANCELLED, ptd_open(path, &options, &opened, &message));
    EXPECT(1, opened == NULL);
  }
  EXPECT(PTD_OK, ptd_close(recording));
}

/* A callback of a library's thread, which uses the cursor between two calls with it, when nobody else does. */
struct between {
  ptd_cursor* cursor;
  int calls, refused;
};

static int use_from_callback(void* user) {
  struct between* between = (struct between*)user;
  ptd_cursor* cursor = __atomic_load_n(&between->cursor, __ATOMIC_ACQUIRE);
  ptd_item item = PTD_INIT(ptd_item);
  __atomic_add_fetch(&between->calls, 1, __ATOMIC_RELAXED);
  if (cursor == NULL) return 0;
  if (ptd_cursor_next(cursor, &item, NULL) == PTD_ERROR_IN_USE && ptd_cursor_free(cursor) == PTD_ERROR_IN_USE)
    __atomic_add_fetch(&between->refused, 1, __ATOMIC_RELAXED);
  return 0;
}

static void test_callbacks(const char* folder) {
  ptd_recording* recording = open_data(folder, "demo");
  struct between between = {NULL, 0, 0};
  ptd_control control = PTD_INIT(ptd_control);
  control.user = &between;
  control.cancelled = use_from_callback;
  ptd_cursor_options options = PTD_CURSOR_OPTIONS_INIT;
  options.kind = PTD_CURSOR_CALLS;
  options.control = &control;
  ptd_cursor* cursor = NULL;
  ptd_item item = PTD_INIT(ptd_item);
  EXPECT(PTD_OK, ptd_cursor_open(recording, &options, &cursor, NULL));
  __atomic_store_n(&between.cursor, cursor, __ATOMIC_RELEASE);
  const struct timespec pause = {0, 100000};
  long items = 0;
  while (ptd_cursor_next(cursor, &item, NULL) == PTD_OK) {
    if (++items % 64 == 0) nanosleep(&pause, NULL);
  }
  EXPECT(PTD_OK, ptd_cursor_free(cursor));
  EXPECT(1, between.calls > 0 && between.refused == between.calls);
  EXPECT(PTD_OK, ptd_close(recording));
}

/* A callback that reads and releases the stream that it was called for. */
static int release_from_callback(void* user) {
  struct ArrowArrayStream* stream = (struct ArrowArrayStream*)user;
  struct ArrowArray array;
  if (stream->release == NULL) return 0;
  EXPECT(EBUSY, stream->get_next(stream, &array));
  stream->release(stream);
  EXPECT(1, stream->release == NULL);
  return 0;
}

static void test_release_in_callback(const char* folder, const char* table) {
  ptd_recording* recording = open_data(folder, "demo");
  struct ArrowArrayStream given;
  struct ArrowArrayStream stream;
  struct ArrowArray array;
  ptd_control control = PTD_INIT(ptd_control);
  ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
  memset(&stream, 0, sizeof stream);
  control.user = &stream;
  control.cancelled = release_from_callback;
  options.control = &control;
  EXPECT(PTD_OK, ptd_table(recording, table, &options, &given, NULL));
  stream = given;
  EXPECT(ECANCELED, given.get_next(&stream, &array));
  EXPECT(1, stream.release == NULL);
  EXPECT(PTD_OK, ptd_close(recording));
}

struct race {
  ptd_recording* recording;
  ptd_cursor* cursor;
  long next, in_use;
};

static void* race_on(void* user) {
  struct race* race = (struct race*)user;
  ptd_item item = PTD_INIT(ptd_item);
  for (int i = 0; i < 300; ++i) {
    const ptd_code code = ptd_cursor_next(race->cursor, &item, NULL);
    if (code == PTD_OK) ++race->next;
    if (code == PTD_ERROR_IN_USE) ++race->in_use;
    if (code != PTD_OK && code != PTD_ERROR_IN_USE && code != PTD_END) ++failures;
    ptd_place place = PTD_INIT(ptd_place);
    place.ip = UINT64_C(0xffffffff81000000) + (uint64_t)i * 64;
    place.time_ns = PTD_TIME_UNKNOWN;
    ptd_symbol symbol = PTD_INIT(ptd_symbol);
    EXPECT(PTD_OK, ptd_symbol_at(race->recording, &place, &symbol, NULL));
    EXPECT(1, symbol.name != NULL && symbol.file != NULL);
  }
  return NULL;
}

/* Two threads with one cursor: each call is served or refused. A recording serves both. */
static void test_threads(const char* folder) {
  struct race race[2];
  memset(race, 0, sizeof race);
  ptd_recording* recording = open_data(folder, "demo");
  ptd_cursor* cursor = NULL;
  EXPECT(PTD_OK, ptd_cursor_open(recording, NULL, &cursor, NULL));
  pthread_t thread[2];
  for (int i = 0; i < 2; ++i) {
    race[i].recording = recording;
    race[i].cursor = cursor;
    EXPECT(0, pthread_create(&thread[i], NULL, race_on, &race[i]));
  }
  for (int i = 0; i < 2; ++i) EXPECT(0, pthread_join(thread[i], NULL));
  EXPECT(1, race[0].next + race[1].next > 0);
  EXPECT(PTD_OK, ptd_cursor_free(cursor));
  EXPECT(PTD_OK, ptd_close(recording));
}

/* ---- Builder ------------------------------------------------------------------------------------------------------------------------ */

static void test_builder(void) {
  ptd_builder* builder = NULL;
  ptd_recording* recording = NULL;
  uint8_t attr[128];
  memset(attr, 0, sizeof attr);
  attr[4] = 128;
  EXPECT(PTD_OK, ptd_builder_new(&builder, NULL));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_builder_add_records(builder, 0, NULL, 8, &message));
  EXPECT_MESSAGE(PTD_ERROR_NULL_ARGUMENT, ptd_builder_set_pt(builder, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_add_records(builder, 0, attr, (size_t)-1, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_add_attr(builder, attr, 8, NULL, 0, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_add_attr(builder, attr, 128, NULL, 3, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_add_aux(builder, -1, -1, 0, attr, 8, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_add_aux(builder, 1, 1, 0, attr, 8, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_add_aux(builder, 1, -1, UINT64_MAX - 3, attr, 8, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_add_code(builder, 1, UINT64_MAX - 3, attr, 8, 0, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_add_code(builder, -1, 0x1000, attr, 8, 0, NULL, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_set_feature(builder, 0, attr, 8, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_set_feature(builder, 18, attr, 8, &message));
  EXPECT_MESSAGE(PTD_ERROR_BAD_ARGUMENT, ptd_builder_set_feature(builder, 1u << 31, attr, 8, &message));
  const uint8_t zero_size[8] = {1, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_MESSAGE(400, ptd_builder_add_records(builder, 1, zero_size, 8, &message) / 100 * 100);
  const uint8_t auxtrace[8] = {71, 0, 0, 0, 0, 0, 8, 0};
  EXPECT_MESSAGE(400, ptd_builder_add_records(builder, 2, auxtrace, 8, &message) / 100 * 100);
  /* Without an attr; then sealed. */
  EXPECT_MESSAGE(100, ptd_builder_open(builder, NULL, &recording, &message) / 100 * 100);
  EXPECT_MESSAGE(PTD_ERROR_SEALED, ptd_builder_open(builder, NULL, &recording, &message));
  EXPECT_MESSAGE(PTD_ERROR_SEALED, ptd_builder_add_attr(builder, attr, 128, NULL, 0, NULL, &message));
  EXPECT(PTD_OK, ptd_builder_free(builder));
  /* A ring that ends inside a record. */
  const uint8_t half[12] = {3, 0, 0, 0, 0, 0, 64, 0, 1, 1, 1, 1};
  EXPECT(PTD_OK, ptd_builder_new(&builder, NULL));
  EXPECT(PTD_OK, ptd_builder_add_attr(builder, attr, 128, NULL, 0, "dummy", NULL));
  EXPECT(PTD_OK, ptd_builder_add_records(builder, 0, half, 12, NULL));
  EXPECT(PTD_OK, ptd_builder_open(builder, NULL, &recording, NULL));
  uint32_t findings = 0;
  EXPECT(PTD_OK, ptd_finding_count(recording, &findings, NULL));
  EXPECT(1, (int)findings);
  EXPECT(PTD_OK, ptd_close(recording));
  EXPECT(PTD_OK, ptd_builder_free(builder));
  /* Noise in every place. */
  srand(7);
  for (int round = 0; round < 200; ++round) {
    uint8_t noise[512];
    for (size_t i = 0; i < sizeof noise; ++i) noise[i] = (uint8_t)(rand() >> 7);
    EXPECT(PTD_OK, ptd_builder_new(&builder, NULL));
    EXPECT(PTD_OK, ptd_builder_add_attr(builder, noise, 128, (const uint64_t*)(const void*)attr, 2, "noise", NULL));
    for (size_t at = 0; at + 64 <= sizeof noise; at += 64) {
      noise[at + 1] = noise[at + 2] = noise[at + 3] = 0;
      noise[at] %= 90;
      noise[at + 6] = 64;
      noise[at + 7] = 0;
    }
    (void)ptd_builder_add_records(builder, 0, noise, sizeof noise, NULL);
    (void)ptd_builder_add_aux(builder, rand() % 4, -1, PTD_AUX_NEXT, noise, sizeof noise, NULL);
    (void)ptd_builder_add_code(builder, 7, 0x1000, noise, sizeof noise, rand(), "noise", NULL);
    (void)ptd_builder_set_feature(builder, 2u + (uint32_t)rand() % 30, noise, sizeof noise, NULL);
    ptd_pt_config config = PTD_INIT(ptd_pt_config);
    memcpy((char*)&config + sizeof config.size, noise + 64, offsetof(ptd_pt_config, cpuid) - sizeof config.size);
    EXPECT(PTD_OK, ptd_builder_set_pt(builder, &config, NULL));
    char* message = NULL;
    const ptd_code code = ptd_builder_open(builder, NULL, &recording, &message);
    EXPECT(code != PTD_OK, message != NULL);
    ptd_free(message);
    EXPECT(PTD_OK, ptd_builder_free(builder));
    if (code != PTD_OK) continue;
    ptd_cursor* cursor = NULL;
    ptd_item item = PTD_INIT(ptd_item);
    EXPECT(PTD_OK, ptd_cursor_open(recording, NULL, &cursor, NULL));
    for (int i = 0; i < 1000 && ptd_cursor_next(cursor, &item, NULL) == PTD_OK; ++i) {
    }
    EXPECT(PTD_OK, ptd_cursor_free(cursor));
    EXPECT(PTD_OK, ptd_close(recording));
  }
}

/* ---- Leaks -------------------------------------------------------------------------------------------------------------------------- */

static long resident_pages(void) {
  long size = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &size, &resident) != 2) resident = 0;
  if (file != NULL) fclose(file);
  return resident;
}

static void test_leaks(const char* folder, int times) {
  snprintf(path, sizeof path, "%s/user/plain.bundle", folder);
  long before = 0;
  int descriptors = 0;
  for (int i = 0; i < times; ++i) {
    ptd_recording* recording = NULL;
    ptd_cursor* cursor = NULL;
    ptd_builder* builder = NULL;
    char* message = NULL;
    EXPECT(PTD_OK, ptd_open(path, NULL, &recording, NULL));
    EXPECT(PTD_OK, ptd_cursor_open(recording, NULL, &cursor, NULL));
    EXPECT(PTD_OK, ptd_builder_new(&builder, NULL));
    ptd_recording* none = NULL;
    EXPECT(100, ptd_builder_open(builder, NULL, &none, &message) / 100 * 100);
    ptd_free(message);
    EXPECT(PTD_OK, ptd_builder_free(builder));
    EXPECT(PTD_OK, ptd_close(recording));
    EXPECT(PTD_OK, ptd_cursor_free(cursor));
    if (i == times / 4) {
      before = resident_pages();
      descriptors = dup(0);
      close(descriptors);
    }
  }
  const int last = dup(0);
  close(last);
  EXPECT(descriptors, last);
  long grown = resident_pages() - before;
#if defined(__SANITIZE_ADDRESS__)
  grown = 0; /* AddressSanitizer keeps freed memory; it reports leaks itself */
#endif
  if (grown > 2048) {
    ++failures;
    fprintf(stderr, "%d opens and closes: %ld pages more\n", times, grown);
  }
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  test_handles(argv[1]);
  test_null_and_sizes(argv[1]);
  test_options_of_guests(argv[1]);
  test_cursors(argv[1]);
  test_callbacks(argv[1]);
  test_release_in_callback(argv[1], "branches");
  test_release_in_callback(argv[1], "functions");
  test_threads(argv[1]);
  test_builder();
  test_leaks(argv[1], argc > 2 ? atoi(argv[2]) : 10000);
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures != 0;
}
