/* libptd-announce: see ptd_announce.h and docs/ANNOUNCE.md. Everything that an announcement calls is async-signal-safe. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ptd_announce.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
/* A power of two; memory is used as records come. */
#ifndef PTD_ANNOUNCE_RING_BYTES
#define PTD_ANNOUNCE_RING_BYTES (1u << 22)
#endif
/* Tests replace the kernel's part of user_events by functions of these types. */
#ifdef PTD_ANNOUNCE_TEST_KERNEL
int ptd_announce_test_open(const char* path, int flags);
int ptd_announce_test_ioctl(int fd, unsigned long request, void* argument);
ssize_t ptd_announce_test_writev(int fd, const struct iovec* parts, int count);
#define EVENTS_OPEN ptd_announce_test_open
#define EVENTS_IOCTL ptd_announce_test_ioctl
#define EVENTS_WRITEV ptd_announce_test_writev
#else
#define EVENTS_OPEN open
#define EVENTS_IOCTL ioctl
#define EVENTS_WRITEV writev
#endif

#define RUNTIMES 64u
#define SLOT_BYTES ((uint64_t)sizeof(struct ptd_announce_slot))
#define RECORD_BYTES ((uint32_t)sizeof(struct ptd_announce_record))
#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
#define ADD(place, value) __atomic_fetch_add(&(place), (value), __ATOMIC_ACQ_REL)

_Static_assert(sizeof(struct ptd_announce_record) == 104, "the layout of a record is fixed");
_Static_assert(offsetof(struct ptd_announce_header, head) == 128 && offsetof(struct ptd_announce_header, tail) == 192, "and the header's");
_Static_assert((PTD_ANNOUNCE_RING_BYTES & (PTD_ANNOUNCE_RING_BYTES - 1)) == 0 && PTD_ANNOUNCE_RING_BYTES >= 8192, "a power of two");

/* [uapi/linux/user_events.h], which few systems install. */
struct event_registration {
  uint32_t size;
  uint8_t enable_bit, enable_size;
  uint16_t flags;
  uint64_t enable_addr, name_args;
  uint32_t write_index;
} __attribute__((packed));
struct event_removal {
  uint32_t size;
  uint8_t disable_bit, reserved;
  uint16_t reserved_too;
  uint64_t disable_addr;
} __attribute__((packed));
#define EVENTS_REGISTER _IOWR('*', 0, struct event_registration*)
#define EVENTS_UNREGISTER _IOW('*', 2, struct event_removal*)
#define EVENTS_MULTI_FORMAT 2u
#define EVENT_TEXT                                                                                                                     \
  PTD_ANNOUNCE_EVENT                                                                                                                   \
  " u32 version; u8 kind; u8 phase; u16 flags; u64 instance; u64 seq; u64 mono_ns; u64 ticks; u64 address; u64 old_address; u64 size;" \
  " u32 name_bytes; u32 file_bytes; u32 line_bytes; u32 code_bytes; u32 chunk; u32 chunks; u32 pid; u32 tid; u32 runtime;"             \
  " __rel_loc u8[] data"

union ptd_announce_page ptd_announce_page __attribute__((aligned(PTD_ANNOUNCE_PAGE_BYTES)));

/* States; while a thread of process P prepares: P << 2 | kBusy. */
enum { kNew = 0, kBusy = 1, kReady = 2 };
/* See kRepeatNs. */
enum { kRepeats = 3 };

/* Which file a descriptor is: a program may close all that it did not open, and open others. */
struct file_id {
  dev_t device;
  ino_t inode;
};

struct runtime {
  uint32_t used; /* 0 free, 1 being filled or emptied, 2 in use */
  void (*relist)(void* user);
  void* user;
  uint64_t answered; /* the sum of generations that it has relisted for */
};

/* All that a forked child must not share with its parent. */
static struct {
  uint64_t state;
  int32_t pid;
  uint32_t* alive; /* not 0 until a fork: MADV_WIPEONFORK; NULL without */
  int memfd, events_fd, jit_fd;
  struct file_id memfd_id, events_id, jit_id;
  uint32_t event_index;
  uint64_t instance;
  uint64_t missed; /* announcements while another thread prepared */
  char* ring;
  uint64_t head;       /* positions reserved; the header's copy is for the reader */
  uint64_t own_asked;  /* relists that the library asks for: after a loss, or when the kernel began to listen */
  uint32_t lost;       /* records were dropped since the last relist */
  uint32_t kernel_was; /* user_events' bit, when last seen */
  uint32_t repeats;    /* relists since then; kRepeats: no more */
  uint64_t kernel_ns;  /* when the bit was first seen */
  uint64_t jit_index;
  char jit_folder[1024];
  struct sockaddr_un reader; /* where rings are offered; no path: nowhere */
} self = {.memfd = -1, .events_fd = -1, .jit_fd = -1};

static struct runtime runtimes[RUNTIMES];

#define HEADER (&ptd_announce_page.header)

static uint64_t mono_ns(void) {
  struct timespec now = {0, 0};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Not earlier than what the thread wrote before, not later than what it writes after. */
static uint64_t ticks_now(void) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_lfence();
  const uint64_t ticks = __builtin_ia32_rdtsc();
  __builtin_ia32_lfence();
  return ticks;
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(ticks)::"memory");
  return ticks;
#else
  return 0;
#endif
}

static int32_t own_pid(void) { return (int32_t)syscall(SYS_getpid); }

static struct file_id id_of(int fd) {
  struct stat info;
  memset(&info, 0, sizeof info);
  (void)fstat(fd, &info);
  const struct file_id id = {info.st_dev, info.st_ino};
  return id;
}

/* Whether `fd` is still the file that the library opened. */
static int is_own(int fd, const struct file_id* id) {
  if (fd < 0) return 0;
  const struct file_id now = id_of(fd);
  return now.device == id->device && now.inode == id->inode;
}

static void close_own(int fd, const struct file_id* id) {
  if (is_own(fd, id)) (void)close(fd);
}

static int has_word(const char* list, const char* word) {
  const size_t size = strlen(word);
  for (const char* at = list; at != NULL && *at != 0; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, word, size) == 0 && (at[size] == 0 || at[size] == ',')) return 1;
  return 0;
}

/* Sends the ring to the recorder that started the program, so that it is read even if the process ends at once. */
static void offer_ring(void) {
  if (self.reader.sun_path[0] == 0 || self.memfd < 0) return;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  char text[] = PTD_ANNOUNCE_MEMFD;
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec part = {text, sizeof text};
  struct msghdr message;
  memset(&control, 0, sizeof control);
  memset(&message, 0, sizeof message);
  message.msg_name = &self.reader;
  message.msg_namelen = sizeof self.reader;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  control.head.cmsg_level = SOL_SOCKET;
  control.head.cmsg_type = SCM_RIGHTS;
  control.head.cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(&control.head), &self.memfd, sizeof(int));
  (void)sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL); /* if that fails, a recorder finds the ring in /proc */
  (void)close(fd);
}

/* Maps a new memfd over the page. The word of the page before it, if a parent's, says whether somebody listens already. */
static void open_ring(uint32_t word) {
  int fd = (int)syscall(SYS_memfd_create, PTD_ANNOUNCE_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd < 0) fd = (int)syscall(SYS_memfd_create, PTD_ANNOUNCE_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return;
  struct ptd_announce_header header;
  memset(&header, 0, sizeof header);
  memcpy(header.magic, PTD_ANNOUNCE_MAGIC, sizeof header.magic);
  header.version = PTD_ANNOUNCE_VERSION;
  header.header_bytes = sizeof header;
  header.word = word;
  header.ring_offset = PTD_ANNOUNCE_PAGE_BYTES;
  header.ring_bytes = PTD_ANNOUNCE_RING_BYTES;
  header.pid = (uint32_t)self.pid;
  header.flags = (word & PTD_ANNOUNCE_WORD_RING) != 0 ? PTD_ANNOUNCE_HEADER_FROM_START : 0;
  header.instance = self.instance;
  (void)fchmod(fd, 0600);
  const int sized = ftruncate(fd, PTD_ANNOUNCE_PAGE_BYTES + (off_t)PTD_ANNOUNCE_RING_BYTES) == 0 &&
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
                    pwrite(fd, &header, sizeof header, 0) == (ssize_t)sizeof header;
  void* ring = sized ? mmap(NULL, PTD_ANNOUNCE_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PTD_ANNOUNCE_PAGE_BYTES) : MAP_FAILED;
  if (ring == MAP_FAILED) {
    (void)close(fd);
    return;
  }
  if (mmap(&ptd_announce_page, PTD_ANNOUNCE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    (void)munmap(ring, PTD_ANNOUNCE_RING_BYTES);
    (void)close(fd);
    return;
  }
  self.memfd = fd;
  self.memfd_id = id_of(fd);
  self.ring = ring;
}

/* The kernel sets bit 31 of the word while somebody listens. */
static void open_events(void) {
  int fd = EVENTS_OPEN("/sys/kernel/tracing/user_events_data", O_RDWR | O_CLOEXEC);
  if (fd < 0) fd = EVENTS_OPEN("/sys/kernel/debug/tracing/user_events_data", O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  /* A forked child has its parent's registration, which would refuse another one of the same word. The kernel clears the bit: in the
   * child's page. */
  struct event_removal removal;
  memset(&removal, 0, sizeof removal);
  removal.size = sizeof removal;
  removal.disable_bit = 31;
  removal.disable_addr = (uint64_t)(uintptr_t)&HEADER->word;
  (void)EVENTS_IOCTL(fd, EVENTS_UNREGISTER, &removal);
  struct event_registration registration;
  memset(&registration, 0, sizeof registration);
  registration.size = sizeof registration;
  registration.enable_bit = 31;
  registration.enable_size = sizeof HEADER->word;
  registration.enable_addr = (uint64_t)(uintptr_t)&HEADER->word;
  registration.name_args = (uint64_t)(uintptr_t)EVENT_TEXT;
  int failed = EVENTS_IOCTL(fd, EVENTS_REGISTER, &registration);
  if (failed != 0 && errno == EADDRINUSE) { /* somebody else's event has this name and another format */
    registration.flags = EVENTS_MULTI_FORMAT;
    failed = EVENTS_IOCTL(fd, EVENTS_REGISTER, &registration);
  }
  if (failed != 0) {
    (void)close(fd);
    return;
  }
  (void)mlock(HEADER, sizeof *HEADER); /* the kernel writes the word later if its page is not resident */
  self.event_index = registration.write_index;
  self.events_fd = fd;
  self.events_id = id_of(fd);
}

/* The page that a fork clears. Where the kernel cannot, only the process id shows a fork. */
static void watch_forks(void) {
  if (self.alive == NULL) {
    void* page = mmap(NULL, PTD_ANNOUNCE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (madvise(page, PTD_ANNOUNCE_PAGE_BYTES, MADV_WIPEONFORK) != 0) {
      (void)munmap(page, PTD_ANNOUNCE_PAGE_BYTES);
      return;
    }
    self.alive = page;
  }
  STORE(*self.alive, 1);
}

static int is_forked(void) { return own_pid() != self.pid || (self.alive != NULL && LOAD(*self.alive) == 0); }

static uint64_t asked_generation(void) { return (uint64_t)LOAD(HEADER->generation) + LOAD(self.own_asked); }

static int jit_begin(void);

/* The first use, or the first announcement after a fork. What the parent shares is given up, except its run-times. */
static void prepare(int forked) {
  uint32_t word = forked ? LOAD(HEADER->word) & ~(PTD_ANNOUNCE_WORD_FORKED | PTD_ANNOUNCE_WORD_JITDUMP) : 0;
  if (forked) {
    if (self.ring != NULL) (void)munmap(self.ring, PTD_ANNOUNCE_RING_BYTES);
    close_own(self.memfd, &self.memfd_id);
    close_own(self.events_fd, &self.events_id);
    close_own(self.jit_fd, &self.jit_id);
  }
  self.memfd = self.events_fd = self.jit_fd = -1;
  self.ring = NULL;
  self.head = self.own_asked = 0;
  self.lost = 0;
  self.kernel_was = word & PTD_ANNOUNCE_WORD_KERNEL;
  self.repeats = kRepeats;
  self.pid = own_pid();
  self.instance = mono_ns() ^ (uint64_t)self.pid << 40;
  watch_forks();
  const char* choice = forked ? NULL : secure_getenv("PTD_ANNOUNCE");
  if (choice != NULL && has_word(choice, "off")) return;
  if (choice != NULL && has_word(choice, "ring")) word |= PTD_ANNOUNCE_WORD_RING;
  const char* reader = choice != NULL ? strstr(choice, "socket=") : NULL; /* the last word */
  if (reader != NULL && strlen(reader + 7) < sizeof self.reader.sun_path) {
    self.reader.sun_family = AF_UNIX;
    strcpy(self.reader.sun_path, reader + 7);
  }
  open_ring(word);
  offer_ring();
  if (self.ring == NULL && forked) { /* the page is still shared with the parent: replace it by a private one */
    (void)mmap(&ptd_announce_page, PTD_ANNOUNCE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  open_events();
  for (uint32_t i = 0; i < RUNTIMES; ++i) runtimes[i].answered = asked_generation();
  if (choice != NULL && has_word(choice, "jitdump") && self.jit_folder[0] == 0) {
    const char* folder = secure_getenv("PTD_ANNOUNCE_DIR");
    strncpy(self.jit_folder, folder != NULL ? folder : ".", sizeof self.jit_folder - 1);
  }
  if (self.jit_folder[0] != 0) (void)jit_begin();
}

/* Returns whether the channels are this process's. Another thread, or the code that a signal handler interrupted, may be preparing. */
static int is_ready(void) {
  uint64_t state = LOAD(self.state);
  if (state == kReady && !is_forked()) return 1;
  const uint64_t busy = (uint64_t)own_pid() << 2 | kBusy; /* of a parent: a fork copied it without the thread that prepared */
  if (state == busy || !__atomic_compare_exchange_n(&self.state, &state, busy, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    ADD(self.missed, 1);
    return 0;
  }
  prepare(state != kNew);
  STORE(self.state, kReady);
  return 1;
}

/* Data of an announcement, in parts. */
struct parts {
  struct iovec part[4];
  uint64_t bytes;
};

static void ring_put(uint64_t position, const void* data, uint64_t bytes) {
  const uint64_t at = position & (PTD_ANNOUNCE_RING_BYTES - 1);
  const uint64_t room = PTD_ANNOUNCE_RING_BYTES - at;
  const uint64_t first = bytes < room ? bytes : room;
  memcpy(self.ring + at, data, first);
  memcpy(self.ring, (const char*)data + first, bytes - first);
}

static uint64_t slot_bytes(uint64_t record_bytes) { return (SLOT_BYTES + record_bytes + 7) & ~(uint64_t)7; }

/* Reserves space without ever waiting or overwriting what is unread. The tail is the reader's, so only what it allows is believed. */
static int reserve(uint64_t bytes, uint64_t* position) {
  uint64_t head = LOAD(self.head);
  do {
    const uint64_t used = head - LOAD(HEADER->tail);
    if (used > PTD_ANNOUNCE_RING_BYTES || bytes > PTD_ANNOUNCE_RING_BYTES - used) return 0;
  } while (!__atomic_compare_exchange_n(&self.head, &head, head + bytes, 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  *position = head;
  STORE(HEADER->head, head + bytes);
  return 1;
}

/* Returns the pieces of chunk `chunk`, at most 4. */
static int chunk_of(const struct parts* data, uint64_t chunk, struct iovec* out) {
  uint64_t skip = chunk * PTD_ANNOUNCE_CHUNK_BYTES, left = PTD_ANNOUNCE_CHUNK_BYTES;
  int count = 0;
  for (int i = 0; i < 4 && left > 0; ++i) {
    const uint64_t size = data->part[i].iov_len;
    if (skip >= size) {
      skip -= size;
      continue;
    }
    const uint64_t take = size - skip < left ? size - skip : left;
    out[count].iov_base = (char*)data->part[i].iov_base + skip;
    out[count++].iov_len = take;
    left -= take;
    skip = 0;
  }
  return count;
}

static void write_slot(uint64_t position, const struct ptd_announce_record* record, const struct iovec* pieces, int count) {
  struct ptd_announce_slot slot = {0, RECORD_BYTES + (record->data_loc >> 16), 0};
  uint64_t at = position + SLOT_BYTES;
  ring_put(at, record, RECORD_BYTES);
  at += RECORD_BYTES;
  for (int i = 0; i < count; ++i) {
    ring_put(at, pieces[i].iov_base, pieces[i].iov_len);
    at += pieces[i].iov_len;
  }
  ring_put(position + 8, (const char*)&slot + 8, 8);
  STORE(*(uint64_t*)(void*)(self.ring + (position & (PTD_ANNOUNCE_RING_BYTES - 1))), position | 1);
}

static void write_event(const struct ptd_announce_record* record, const struct iovec* pieces, int count) {
  struct iovec all[6] = {{&self.event_index, sizeof self.event_index}, {(void*)(uintptr_t)record, RECORD_BYTES}};
  memcpy(all + 2, pieces, (size_t)count * sizeof *pieces);
  (void)EVENTS_WRITEV(self.events_fd, all, count + 2); /* a listener that has gone is no error; what it did not get, it misses by number */
}

/* A record gets a number even if it is dropped, so that a reader detects the loss. */
static void send_record(struct ptd_announce_record* record, const struct parts* data, uint32_t word) {
  const uint32_t chunks = data->bytes == 0 ? 1 : (uint32_t)((data->bytes + PTD_ANNOUNCE_CHUNK_BYTES - 1) / PTD_ANNOUNCE_CHUNK_BYTES);
  const uint64_t last = data->bytes - (uint64_t)(chunks - 1) * PTD_ANNOUNCE_CHUNK_BYTES;
  const uint64_t whole = slot_bytes(RECORD_BYTES + PTD_ANNOUNCE_CHUNK_BYTES);
  const uint64_t space = (chunks - 1) * whole + slot_bytes(RECORD_BYTES + last);
  uint64_t position = 0;
  const int ring = (word & PTD_ANNOUNCE_WORD_RING) != 0 && self.ring != NULL;
  record->chunks = chunks;
  if (LOAD(self.missed) != 0) ADD(HEADER->next_seq, __atomic_exchange_n(&self.missed, 0, __ATOMIC_ACQ_REL));
  record->seq = ADD(HEADER->next_seq, chunks);
  const int fits = ring && reserve(space, &position);
  if (ring && !fits) {
    ADD(HEADER->dropped_records, chunks);
    STORE(self.lost, 1);
  }
  for (uint32_t chunk = 0; chunk < chunks; ++chunk, ++record->seq) {
    struct iovec pieces[4];
    const int count = chunk_of(data, chunk, pieces);
    record->chunk = chunk;
    record->data_loc = (uint32_t)(chunk + 1 < chunks ? PTD_ANNOUNCE_CHUNK_BYTES : last) << 16;
    if (fits) write_slot(position, record, pieces, count);
    if ((word & PTD_ANNOUNCE_WORD_KERNEL) != 0 && is_own(self.events_fd, &self.events_id)) write_event(record, pieces, count);
    position += whole;
  }
}

static void write_jit(const struct ptd_announce_record* record, const struct parts* data);

static void fill(struct iovec* part, const void* data, uint64_t bytes) {
  part->iov_base = (void*)(uintptr_t)data;
  part->iov_len = data != NULL ? bytes : 0;
}

static uint64_t text_bytes(const char* text) { return text != NULL ? strnlen(text, PTD_ANNOUNCE_MAX_NAME_BYTES) : 0; }

static void emit(const struct ptd_announcement* what, uint32_t word) {
  struct ptd_announce_record record;
  struct parts data;
  memset(&record, 0, sizeof record);
  fill(&data.part[0], what->name, text_bytes(what->name));
  fill(&data.part[1], what->file, text_bytes(what->file));
  fill(&data.part[2], what->lines, (uint64_t)what->line_count * sizeof *what->lines);
  fill(&data.part[3], what->code, what->size);
  if (data.part[2].iov_len > PTD_ANNOUNCE_MAX_DATA_BYTES / 2) data.part[2].iov_len = 0;
  if (data.part[3].iov_len > PTD_ANNOUNCE_MAX_DATA_BYTES / 2) data.part[3].iov_len = 0; /* the range is announced without its bytes */
  data.bytes = data.part[0].iov_len + data.part[1].iov_len + data.part[2].iov_len + data.part[3].iov_len;
  record.version = PTD_ANNOUNCE_VERSION;
  record.kind = what->kind;
  record.phase = what->phase;
  record.flags = what->flags;
  record.instance = self.instance;
  record.ticks = ticks_now();
  record.mono_ns = mono_ns();
  record.address = what->address;
  record.old_address = what->old_address;
  record.size = what->size;
  record.name_bytes = (uint32_t)data.part[0].iov_len;
  record.file_bytes = (uint32_t)data.part[1].iov_len;
  record.line_bytes = (uint32_t)data.part[2].iov_len;
  record.code_bytes = (uint32_t)data.part[3].iov_len;
  record.pid = (uint32_t)self.pid;
  record.tid = (uint32_t)syscall(SYS_gettid);
  record.runtime = what->runtime;
  if ((word & PTD_ANNOUNCE_WORD_JITDUMP) != 0) write_jit(&record, &data);
  if ((word & (PTD_ANNOUNCE_WORD_RING | PTD_ANNOUNCE_WORD_KERNEL)) != 0) send_record(&record, &data, word);
}

/* The kernel sets its bit when a listener opens the event, possibly long before it records. Announcements in between are lost, and no
 * number shows it. So all code is relisted at these times after the bit was seen. */
static const uint64_t kRepeatNs[kRepeats] = {100000000u, 1000000000u, 5000000000u};

static void relist_if_due(uint32_t number, uint32_t word) {
  const uint32_t kernel = word & PTD_ANNOUNCE_WORD_KERNEL;
  uint32_t before = kernel ^ PTD_ANNOUNCE_WORD_KERNEL;
  if (__atomic_compare_exchange_n(&self.kernel_was, &before, kernel, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) && kernel != 0) {
    ADD(self.own_asked, 1);
    STORE(self.kernel_ns, mono_ns());
    STORE(self.repeats, 0);
  }
  uint32_t repeat = LOAD(self.repeats);
  if (repeat < kRepeats && mono_ns() - LOAD(self.kernel_ns) >= kRepeatNs[repeat] &&
      __atomic_compare_exchange_n(&self.repeats, &repeat, repeat + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    ADD(self.own_asked, 1);
  /* After a loss, once half of the ring is free for the relist. */
  if (LOAD(self.lost) != 0 && LOAD(self.head) - LOAD(HEADER->tail) <= PTD_ANNOUNCE_RING_BYTES / 2 &&
      __atomic_exchange_n(&self.lost, 0, __ATOMIC_ACQ_REL) != 0)
    ADD(self.own_asked, 1);
  if (number == 0 || number > RUNTIMES) return;
  struct runtime* runtime = &runtimes[number - 1];
  const uint64_t asked = asked_generation();
  uint64_t answered = LOAD(runtime->answered);
  if (LOAD(runtime->used) != 2 || runtime->relist == NULL || answered == asked) return;
  if (!__atomic_compare_exchange_n(&runtime->answered, &answered, asked, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
  word = LOAD(HEADER->word); /* a reader turns its channel on before it asks */
  struct ptd_announcement bracket;
  memset(&bracket, 0, sizeof bracket);
  bracket.runtime = number;
  bracket.kind = PTD_ANNOUNCE_RELIST;
  bracket.phase = PTD_ANNOUNCE_BEGIN;
  emit(&bracket, word);
  runtime->relist(runtime->user);
  bracket.phase = PTD_ANNOUNCE_END;
  emit(&bracket, word);
}

void ptd_announce_send(const struct ptd_announcement* announcement) {
  const int before = errno;
  if (is_ready()) {
    const uint32_t word = LOAD(HEADER->word);
    const int relists = (announcement->flags & (PTD_ANNOUNCE_RELISTED | PTD_ANNOUNCE_NO_RELIST)) == 0;
    /* Where new code is complete, the run-time lists it already: a reader must hear of it before, or takes it for older code. Where a
     * change begins, or code ends, the list is of what ran before. */
    const int lists_new = announcement->phase == PTD_ANNOUNCE_END && announcement->kind != PTD_ANNOUNCE_UNLOAD;
    if (relists && !lists_new) relist_if_due(announcement->runtime, word);
    emit(announcement, word);
    if (relists && lists_new) relist_if_due(announcement->runtime, word);
  }
  errno = before;
}

void ptd_announce_relist_if_asked(uint32_t runtime) {
  const int before = errno;
  if (is_ready()) relist_if_due(runtime, LOAD(HEADER->word));
  errno = before;
}

uint32_t ptd_announce_register(const char* name, void (*relist)(void* user), void* user) {
  (void)name; /* for debuggers; records carry the number */
  (void)is_ready();
  for (uint32_t i = 0; i < RUNTIMES; ++i) {
    uint32_t free_slot = 0;
    if (!__atomic_compare_exchange_n(&runtimes[i].used, &free_slot, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
    runtimes[i].relist = relist;
    runtimes[i].user = user;
    runtimes[i].answered = 0; /* a reader may have asked before */
    STORE(runtimes[i].used, 2);
    return i + 1;
  }
  return 0;
}

void ptd_announce_unregister(uint32_t runtime) {
  if (runtime == 0 || runtime > RUNTIMES || LOAD(runtimes[runtime - 1].used) != 2) return;
  STORE(runtimes[runtime - 1].used, 1);
  runtimes[runtime - 1].relist = NULL;
  STORE(runtimes[runtime - 1].used, 0);
}

/* Jitdump: the marker mapping comes first, then the header, whose time shows readers that the clocks agree. Each record is one write to the
 * file's end, and times are CLOCK_MONOTONIC (perf record -k mono). */
struct jit_header {
  uint32_t magic, version, total_bytes, machine, pad, pid;
  uint64_t timestamp, flags;
};
struct jit_load {
  uint32_t id, bytes;
  uint64_t timestamp;
  uint32_t pid, tid;
  uint64_t vma, address, size, index;
};

#if defined(__x86_64__)
#define JIT_MACHINE 62u
#elif defined(__aarch64__)
#define JIT_MACHINE 183u
#else
#define JIT_MACHINE 0u
#endif

static int jit_begin(void) {
  char path[sizeof self.jit_folder + 32];
  char digits[16];
  size_t size = strlen(self.jit_folder), count = 0;
  for (uint32_t pid = (uint32_t)self.pid; pid != 0; pid /= 10) digits[count++] = (char)('0' + pid % 10);
  memcpy(path, self.jit_folder, size);
  memcpy(path + size, "/jit-", 5);
  size += 5;
  while (count > 0) path[size++] = digits[--count];
  memcpy(path + size, ".dump", 6);
  (void)unlink(path); /* of an earlier process with this id */
  const int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  /* The mapping stays for the life of the process. */
  const int marked = mmap(NULL, PTD_ANNOUNCE_PAGE_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
  const struct jit_header header = {0x4a695444u, 1, sizeof header, JIT_MACHINE, 0, (uint32_t)self.pid, mono_ns(), 0};
  if (!marked || write(fd, &header, sizeof header) != (ssize_t)sizeof header) {
    (void)close(fd);
    return -1;
  }
  self.jit_fd = fd;
  self.jit_id = id_of(fd);
  (void)__atomic_fetch_or(&HEADER->word, PTD_ANNOUNCE_WORD_JITDUMP, __ATOMIC_ACQ_REL);
  return 0;
}

static void write_jit(const struct ptd_announce_record* record, const struct parts* data) {
  /* Moved code is code at its new address. The format has no other change. */
  const int is_new = (record->kind == PTD_ANNOUNCE_LOAD || record->kind == PTD_ANNOUNCE_MOVE) && record->phase == PTD_ANNOUNCE_END;
  if (!is_new || record->code_bytes == 0 || !is_own(self.jit_fd, &self.jit_id)) return;
  struct jit_load load = {0, 0, record->mono_ns, record->pid, record->tid, record->address, record->address, record->code_bytes, 0};
  load.bytes = (uint32_t)(sizeof load + record->name_bytes + 1 + record->code_bytes);
  load.index = ADD(self.jit_index, 1);
  static const char kEnd = 0;
  const struct iovec all[4] = {{&load, sizeof load}, data->part[0], {(void*)(uintptr_t)&kEnd, 1}, data->part[3]};
  (void)writev(self.jit_fd, all, 4);
}

int ptd_announce_jitdump(const char* folder) {
  if (!is_ready() || self.jit_fd >= 0 || strlen(folder) >= sizeof self.jit_folder) {
    errno = EINVAL;
    return -1;
  }
  strcpy(self.jit_folder, folder);
  return jit_begin();
}
