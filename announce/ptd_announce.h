// libptd-announce: a run-time announces the code that it generates, moves, patches and unloads (docs/ANNOUNCE.md).
// One header and one .c file, C11, Linux, no dependencies; C++ may include the header. Licence: MIT (LICENSE in this folder).
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The format of records and of the ring. A reader refuses other versions. */
#define PTD_ANNOUNCE_VERSION 1u
#define PTD_ANNOUNCE_MAGIC "PTDANNCE"
#define PTD_ANNOUNCE_MEMFD "ptd-announce"
#define PTD_ANNOUNCE_EVENT "ptd_code"
/* Data bytes of one record; longer data is split into chunks, all of this size but the last. */
#define PTD_ANNOUNCE_CHUNK_BYTES 3072u
/* Limits of one announcement. */
#define PTD_ANNOUNCE_MAX_NAME_BYTES 1024u
#define PTD_ANNOUNCE_MAX_DATA_BYTES (1u << 26)

enum ptd_announce_kind {
  PTD_ANNOUNCE_LOAD = 1,   /* code is at [address, address + size) */
  PTD_ANNOUNCE_MOVE = 2,   /* the code at old_address is at address; old_address has none any more */
  PTD_ANNOUNCE_UNLOAD = 3, /* the range has no code any more; to be announced before it is reused */
  PTD_ANNOUNCE_PATCH = 4,  /* the bytes of the range change */
  PTD_ANNOUNCE_RELIST = 5, /* brackets the announcements of a relist callback; sent by the library */
  PTD_ANNOUNCE_ATTACH = 6, /* sent by a reader: it listens since then; `size` is the sequence number of the first record that it can read */
  PTD_ANNOUNCE_DETACH = 7  /* sent by a reader: it listens no more; `size` is the number of sequence numbers that were given out */
};

/* BEGIN comes before the first byte is written, END after the last one is visible to all threads. In between, either content may run.
 * END alone: the code did not run before. */
enum ptd_announce_phase { PTD_ANNOUNCE_BEGIN = 1, PTD_ANNOUNCE_END = 2 };

enum ptd_announce_flag {
  PTD_ANNOUNCE_RELISTED = 1,  /* from a relist callback: the code is older than this announcement */
  PTD_ANNOUNCE_NO_RELIST = 2, /* do not call relist callbacks from this announcement, e.g. in a signal handler */
  PTD_ANNOUNCE_UNWATCHED = 4  /* with RELISTED: the run-time announced nothing until now, so what the range held before is not certain */
};

struct ptd_announce_line {
  uint32_t offset; /* of the first byte of code, from the start of the range */
  uint32_t line;
};

/* One announcement. Zero what is not needed. */
struct ptd_announcement {
  uint32_t runtime; /* from ptd_announce_register(); 0: none */
  uint8_t kind, phase;
  uint16_t flags;
  uint64_t address, old_address, size;
  const void* code; /* `size` bytes as they are in the range now: old ones at BEGIN, new ones at END; NULL: not given */
  const char* name;
  const char* file; /* of `lines` */
  const struct ptd_announce_line* lines;
  uint32_t line_count;
};

/* A record as it is in the ring and in samples of the tracepoint user_events:ptd_code: this, then the chunk's data. The data of all
 * chunks together: name, file, lines, code, with these sizes. */
struct ptd_announce_record {
  uint32_t version;
  uint8_t kind, phase;
  uint16_t flags;
  uint64_t instance; /* a process's image: differs after fork and exec */
  uint64_t seq;      /* of this chunk, from 0; those of one announcement follow each other */
  uint64_t mono_ns;  /* CLOCK_MONOTONIC */
  uint64_t ticks;    /* x86: TSC; aarch64: CNTVCT_EL0; else 0 */
  uint64_t address, old_address, size;
  uint32_t name_bytes, file_bytes, line_bytes, code_bytes;
  uint32_t chunk, chunks;
  uint32_t pid, tid, runtime; /* pid and tid as the process sees them */
  uint32_t data_loc;          /* __rel_loc of the data: bytes << 16 */
};

/* Precedes each record in the ring. Records begin at multiples of 8; position counts bytes since the ring's start and never wraps. */
struct ptd_announce_slot {
  uint64_t stamp; /* position | 1 once the record is complete: written last */
  uint32_t record_bytes, reserved;
};

/* The start of the memfd. The process trusts nothing in it that the reader writes, and the reader nothing at all. */
struct ptd_announce_header {
  char magic[8];
  uint32_t version, header_bytes;
  uint32_t word;       /* not 0: announce. Bits: below */
  uint32_t generation; /* a reader adds 1 to ask for a relist */
  uint64_t ring_offset, ring_bytes;
  uint32_t pid, flags;
  uint64_t instance;
  uint64_t next_seq;        /* given out so far */
  uint64_t dropped_records; /* of those: not in the ring, because it was full */
  uint64_t reserved[7];
  uint64_t head; /* position up to which space is reserved */
  uint64_t reserved_too[7];
  uint64_t tail; /* written by the reader: position up to which it has read */
};

#define PTD_ANNOUNCE_WORD_RING 1u           /* a reader of the ring listens */
#define PTD_ANNOUNCE_WORD_FORKED 2u         /* a reader wants a forked child to make its own ring */
#define PTD_ANNOUNCE_WORD_JITDUMP 4u        /* a jitdump is written */
#define PTD_ANNOUNCE_WORD_KERNEL (1u << 31) /* set by the kernel: user_events */
#define PTD_ANNOUNCE_HEADER_FROM_START 1u   /* header.flags: the ring was on when the process, or its parent's, started */

#if defined(__x86_64__) || defined(__i386__)
#define PTD_ANNOUNCE_PAGE_BYTES 4096
#else
#define PTD_ANNOUNCE_PAGE_BYTES 65536
#endif
union ptd_announce_page {
  struct ptd_announce_header header;
  char bytes[PTD_ANNOUNCE_PAGE_BYTES];
};
/* Memory of the program; the library maps the memfd's first page here. */
extern union ptd_announce_page ptd_announce_page;

/* Registers a run-time and returns its number, 0 if there are 64 already. The first call prepares the channels. `relist`, if not NULL,
 * announces all live code of the run-time as LOAD + END with PTD_ANNOUNCE_RELISTED. It may be called before the
 * run-time has any code. It is called from announcements (without
 * PTD_ANNOUNCE_NO_RELIST) and polls of this run-time, on their thread, so it must work with the locks that these hold. Any thread. */
uint32_t ptd_announce_register(const char* name, void (*relist)(void* user), void* user);
/* The run-time's callback is not called any more. Its code is not unloaded by this. */
void ptd_announce_unregister(uint32_t runtime);
/* Also writes a jitdump, FOLDER/jit-PID.dump, from now on. Returns 0, or -1 with errno. */
int ptd_announce_jitdump(const char* folder);

/* What the inline functions call when someone listens. */
void ptd_announce_send(const struct ptd_announcement* announcement);
void ptd_announce_relist_if_asked(uint32_t runtime);

/* Returns whether someone listens. */
static inline int ptd_announce_enabled(void) {
  return __builtin_expect(__atomic_load_n(&ptd_announce_page.header.word, __ATOMIC_RELAXED) != 0, 0) != 0;
}

/* Announces. Any thread; safe in signal handlers with PTD_ANNOUNCE_NO_RELIST; keeps errno. */
static inline void ptd_announce_code(const struct ptd_announcement* announcement) {
  if (ptd_announce_enabled()) ptd_announce_send(announcement);
}

/* For a run-time that seldom announces: calls its relist callback if a reader has asked. */
static inline void ptd_announce_poll(uint32_t runtime) {
  if (ptd_announce_enabled()) ptd_announce_relist_if_asked(runtime);
}

#ifdef __cplusplus
}
#endif
