// Shared by the C tests of the C API: checks that count failures, and opening data/.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "ptdecode/ptdecode.h"

static int failures = 0;
static char path[4096]; /* of the recording opened last */

#define EXPECT(expected, call)                                                                           \
  do {                                                                                                   \
    const long got_ = (long)(call);                                                                      \
    if (got_ != (long)(expected)) {                                                                      \
      ++failures;                                                                                        \
      fprintf(stderr, "%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #call, got_, (long)(expected)); \
    }                                                                                                    \
  } while (0)

/* A call that must fail with this code and a message. */
#define EXPECT_MESSAGE(expected, call)           \
  do {                                           \
    char* message = (char*)1;                    \
    EXPECT(expected, call);                      \
    EXPECT(1, message != NULL && *message != 0); \
    ptd_free(message);                           \
  } while (0)

static inline ptd_recording* open_data(const char* folder, const char* name) {
  ptd_recording* recording = NULL;
  char* message = NULL;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  EXPECT(PTD_OK, ptd_open(path, NULL, &recording, &message));
  EXPECT(1, message == NULL);
  return recording;
}
