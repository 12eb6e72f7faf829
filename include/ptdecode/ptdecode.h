// The C API of libptdecode, for C11, C++ and every language with a foreign-function interface.
/*
 * Conventions
 *  - A function that can fail returns a ptd_code. PTD_OK is 0. If `message` is not NULL and the call fails, *message gets one sentence that
 *    names the file, option or argument; the caller frees it with ptd_free(). On success *message is NULL, and also if there is no memory
 *    for the sentence.
 *  - Nothing prints, aborts, throws, or changes the locale or signal handlers, but for that of SIGBUS if it has none (docs/C-API.md,
 *    Signals).
 *  - A handle is opaque. Every function checks it: NULL, a freed handle and a handle of another type give PTD_ERROR_INVALID_HANDLE.
 *  - Every struct that the caller allocates begins with `size`. Set it to sizeof of the struct (the PTD_INIT macro does, and zeroes the
 *    rest). Structs grow at their end only, in multiples of 8 bytes, and 0 in a new field means what the older version did. A library that
 *    is newer or older than the program then reads and writes only what both know. A size that no version had gives PTD_ERROR_WRONG_SIZE.
 *    Structs without `size` (ptd_block, ptd_event, ptd_gap, ptd_branch, ptd_call) never change within one SONAME.
 *  - Strings are UTF-8 with a terminating zero: in results, U+FFFD replaces other bytes. Paths that the caller gives are bytes as the
 *    system takes them.
 *  - Times are nanoseconds of the recording's clock (perf's clock), or ticks of the time stamp counter if the recording has no conversion.
 *    PTD_TIME_UNKNOWN: unknown. Addresses are virtual, canonical and sign-extended to 64 bits.
 *  - A time range is [first_ns, last_ns]. 0 or PTD_TIME_UNKNOWN as an end: no limit on that side. PTD_ERROR_BAD_ARGUMENT: it is empty, or
 *    an end is negative.
 *
 * Threads
 *  - Any number of threads may use different handles, and one ptd_recording, at the same time. It is freed with its last cursor and table.
 *  - A ptd_builder, ptd_cursor and ArrowArrayStream may move between threads, but only one thread may use it at a time. A call that meets
 *    another in progress returns PTD_ERROR_IN_USE (a stream: EBUSY) and changes nothing. A forked child can only free its parent's cursors
 *    and streams of calls with `threads` other than 1, which decode on threads: other calls return PTD_ERROR_RESOURCES (a stream: EAGAIN).
 *  - Callbacks run on the caller's thread or on threads of the library, one at a time for each handle. They must not call functions with
 *    the same cursor or builder: that gives PTD_ERROR_IN_USE. They must not throw or longjmp.
 *  - A failed cursor or stream cannot be continued: after PTD_ERROR_CANCELLED or another error, ptd_cursor_next() and get_next() return it
 *    again.
 *
 * Damage of the trace is never an error: it is a gap in the flow, a mark of uncertain code, or a finding.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PTD_C_API __attribute__((visibility("default")))
#else
#define PTD_C_API
#endif

#ifdef __cplusplus
template <typename Struct>
inline Struct ptd_initial() {
  Struct value = Struct();
  value.size = sizeof(Struct);
  return value;
}
template <typename Struct>
inline Struct ptd_initial_of_all() {
  Struct value = ptd_initial<Struct>();
  value.stream = UINT32_MAX;
  return value;
}
#define PTD_INIT(type) (ptd_initial<type>())
extern "C" {
#else
#define PTD_INIT(type) ((type){.size = sizeof(type)})
#endif

/* Literals rather than INT64_MIN and the like, which generators of bindings do not evaluate. */
#define PTD_TIME_UNKNOWN (-0x7fffffffffffffff - 1) /* INT64_MIN, in signed fields */
#define PTD_NONE 0xffffffffu                       /* an index that does not exist; as a stream argument: all streams */

/* ---- Codes, library ---------------------------------------------------------------------------------------------------------------- */

/* docs/ERRORS.md describes them. Those up to 700 are also ptd::ErrorCode of error.h. Values never change; new ones may be added, so treat
 * an unknown code by its hundred: 1 usage, 2 unsupported, 3 cannot open or read, 4 bad format, 5 cut, 6 resources, 7 cancelled or misuse of
 * this API. */
typedef int32_t ptd_code;
enum {
  PTD_OK = 0,
  PTD_END = 1, /* no more items, not an error */
  PTD_ERROR_INVALID_ARGUMENT = 100,
  PTD_ERROR_BAD_OPTION = 101,
  PTD_ERROR_CONTRADICTORY_OPTIONS = 102,
  PTD_ERROR_BAD_TIME_WINDOW = 103,
  PTD_ERROR_NO_SUCH_STREAM = 104,
  PTD_ERROR_NO_SUCH_THREAD = 105,
  PTD_ERROR_NO_SUCH_FUNCTION = 106,
  PTD_ERROR_BAD_IMAGE_PIECE = 107,
  PTD_ERROR_BAD_OUTPUT = 108,
  PTD_ERROR_WRONG_RECORDING = 109,
  PTD_ERROR_NOT_RECORDED = 110,
  PTD_ERROR_ALREADY_EXISTS = 111,
  PTD_ERROR_NO_SUCH_SESSION = 112,
  PTD_ERROR_UNSUPPORTED = 200,
  PTD_ERROR_UNSUPPORTED_VERSION = 201,
  PTD_ERROR_UNSUPPORTED_BYTE_ORDER = 202,
  PTD_ERROR_UNSUPPORTED_COMPRESSION = 203,
  PTD_ERROR_UNSUPPORTED_TRACE = 204,
  PTD_ERROR_TOO_LARGE = 205,
  PTD_ERROR_NO_HARDWARE = 206,
  PTD_ERROR_MISSING_PROGRAM = 207,
  PTD_ERROR_OPEN_FAILED = 300,
  PTD_ERROR_NOT_FOUND = 301,
  PTD_ERROR_PERMISSION_DENIED = 302,
  PTD_ERROR_IS_DIRECTORY = 303,
  PTD_ERROR_NOT_REGULAR_FILE = 304,
  PTD_ERROR_READ_FAILED = 305,
  PTD_ERROR_WRITE_FAILED = 306,
  PTD_ERROR_NO_SPACE = 307,
  PTD_ERROR_BUSY = 308,
  PTD_ERROR_UNTRUSTED_FILE = 309,
  PTD_ERROR_START_FAILED = 310,
  PTD_ERROR_OUTSIDE_FOLDER = 311,
  PTD_ERROR_BAD_FORMAT = 400,
  PTD_ERROR_UNKNOWN_FORMAT = 401,
  PTD_ERROR_BAD_MAGIC = 402,
  PTD_ERROR_BAD_VERSION = 403,
  PTD_ERROR_BAD_HEADER = 404,
  PTD_ERROR_CONTRADICTORY_RECORD = 405,
  PTD_ERROR_BAD_CHECKSUM = 406,
  PTD_ERROR_BAD_COMPRESSION = 407,
  PTD_ERROR_MISSING_PART = 408,
  PTD_ERROR_NO_TRACE = 409,
  PTD_ERROR_CHANGED = 410,
  PTD_ERROR_TRUNCATED = 500,
  PTD_ERROR_EMPTY_FILE = 501,
  PTD_ERROR_TRUNCATED_HEADER = 502,
  PTD_ERROR_RESOURCES = 600,
  PTD_ERROR_OUT_OF_MEMORY = 601,
  PTD_ERROR_TOO_MANY_FILES = 602,
  PTD_ERROR_CANCELLED = 700,
  PTD_ERROR_NULL_ARGUMENT = 701,
  PTD_ERROR_INVALID_HANDLE = 702, /* NULL, freed, or a handle of another type */
  PTD_ERROR_WRONG_SIZE = 703,     /* `size` of a struct is not one that any version had */
  PTD_ERROR_IN_USE = 704,         /* another thread is using this handle, or a callback is */
  PTD_ERROR_SEALED = 705,         /* the builder was opened: nothing may be added */
  PTD_ERROR_BAD_ARGUMENT = 706    /* an index past the end, or a value out of its range. An unknown name is PTD_ERROR_INVALID_ARGUMENT */
};

PTD_C_API const char* ptd_code_name(ptd_code code); /* such as "no_such_stream"; "unknown" for any other number; static */
PTD_C_API const char* ptd_version(void);            /* such as "0.2.0"; static */
/* Lines "name value" that end with a newline: "ptdecode 0.2.0", "commit" and 40 hexadecimal digits ("-dirty" may follow, or the value is
 * "unknown"), and the name and version of each library that libptdecode uses, at run time where the library has a function for it.
 * Static. */
PTD_C_API const char* ptd_build_info(void);
/* Frees what a function says ptd_free() frees. NULL is allowed. */
PTD_C_API void ptd_free(void* memory);

/* Progress and cancellation of a long operation. Callbacks may be NULL. */
typedef struct ptd_control {
  size_t size;
  void* user;
  /* Called repeatedly: while opening, for each few thousand records and MiB of trace or code; by cursors and tables, for each batch of a
   * few thousand blocks. Nonzero ends the operation with PTD_ERROR_CANCELLED (get_next() of a stream: ECANCELED). Limitation: not while the
   * symbols of one file are read, when the first address in it needs a name: the time is proportional to the file, about 0.25 s for a
   * million symbols. */
  int (*cancelled)(void* user);
  /* done and total are in bytes of trace; done never decreases. Called less often than `cancelled`. When a cursor or table ends, the last
   * call has done == total. */
  void (*progress)(void* user, uint64_t done_bytes, uint64_t total_bytes);
  /* Instead of `cancelled`, or with it: any thread may set it to nonzero (atomically) at any time, which ends the operation. */
  const int32_t* cancel_flag;
} ptd_control;

/* ---- Recordings -------------------------------------------------------------------------------------------------------------------- */

typedef struct ptd_recording ptd_recording;

/* ptd_open_options.flags */
enum {
  PTD_OPEN_DEBUGINFOD = 1,    /* fetch missing files from the servers of DEBUGINFOD_URLS */
  PTD_OPEN_IGNORE_TIME = 2,   /* packets alone choose between versions of code */
  PTD_OPEN_FREEZE = 4,        /* ignore changes of code: each address keeps its first version */
  PTD_OPEN_EXACT_ONLY = 8,    /* do not use the fast path */
  PTD_OPEN_NO_ANCHORS = 16,   /* do not use sync IPIs to order changes of code */
  PTD_OPEN_ALLOW_OUTSIDE = 32 /* read files that the recording names outside its folder */
};

/* All pointers may be NULL. Lists of strings end with NULL. They are copied. */
typedef struct ptd_open_options {
  size_t size;
  uint64_t flags;
  const char* const* symfs;       /* roots below which recorded paths are looked up first */
  const char* const* debug_dirs;  /* default: /usr/lib/debug */
  const char* const* stashes;     /* folders with saved code; default: the usual ones. An empty list: none */
  const char* const* kcore_after; /* later copies of the kernel's text: directories, or dumps of memory */
  const char* build_id_cache;     /* default: $HOME/.debug */
  const char* running_kernel;     /* "/": missing kernel code may come from this machine if it still runs the recorded boot */
  uint64_t slack_ns;              /* uncertainty that is added to every time of the trace */
  const ptd_control* control;     /* used during the call only */
  /* Since 0.2 (a smaller `size` ends before this): of virtual machines, docs/RECORDING.md. A file that cannot be read is a warning, its
   * flow a gap. */
  const char* guestmount; /* folder with the root file system of each guest at DIR/PID; PID is the host process that runs it */
  const char *guestkallsyms, *guestmodules, *guestvmlinux; /* of a guest that no other source names: copies of /proc, with kcore; vmlinux */
  /* ticks per second of a CoreSight snapshot's timestamps or a Windows trace's TSC, at most 10^12. 0: unknown. Else refused */
  uint64_t clock_hz;
  /* of a Windows process: a list, or ""; the path is then a dump of ipt.sys (docs/RECORDING.md, "Windows"). NULL: it is none */
  const char* modules;
  /* code of a CoreSight snapshot in addition to its dumps: "FILE[,off=N][,size=N]@ADDR", or an ELF file. Else refused */
  const char* const* images;
} ptd_open_options;

/* Opens a perf.data file or directory, a pipe ("-"), a bundle, LLDB's trace.json, or a CoreSight snapshot. `options` may be NULL. */
PTD_C_API ptd_code ptd_open(const char* path, const ptd_open_options* options, ptd_recording** out, char** message);
/* Frees the handle. Open cursors and tables stay valid; strings from this recording do not. NULL is allowed. */
PTD_C_API ptd_code ptd_close(ptd_recording* recording);

/* One trace stream: the trace of one cpu, or of one thread. */
typedef struct ptd_stream_info {
  size_t size;
  int32_t cpu, tid;          /* one of them is known, the other is -1 */
  uint64_t size_bytes;       /* of trace */
  int64_t first_ns, last_ns; /* from the first sync point with a known time to the last AUX record or timing packet */
  const char* protocol;      /* "intel_pt", "etmv4", "ete", "etmv3", "ptm"; static */
  const char* source;        /* name of the CoreSight source, "" for Intel PT; lives until the recording is closed */
} ptd_stream_info;
PTD_C_API ptd_code ptd_stream_count(const ptd_recording* recording, uint32_t* out);
PTD_C_API ptd_code ptd_get_stream(const ptd_recording* recording, uint32_t stream, ptd_stream_info* out);
/* Looks up the name of a thread at a given time, "" if unknown. *out lives until the recording is closed. */
PTD_C_API ptd_code ptd_comm_at(const ptd_recording* recording, int32_t tid, int64_t time_ns, const char** out);

/* Code that the recording maps and that was not found: the flow has gaps there. */
typedef struct ptd_missing {
  size_t size;
  const char* path; /* strings live until the recording is closed */
  const char* build_id;
  const char* reason; /* "file not found", "wrong build id", ... */
} ptd_missing;
PTD_C_API ptd_code ptd_missing_count(const ptd_recording* recording, uint32_t* out);
PTD_C_API ptd_code ptd_get_missing(const ptd_recording* recording, uint32_t index, ptd_missing* out);
/* What was noticed while opening, one sentence each: a cut file, an option without effect, code that cannot be read. *out lives until the
 * recording is closed. */
PTD_C_API ptd_code ptd_warning_count(const ptd_recording* recording, uint32_t* out);
PTD_C_API ptd_code ptd_get_warning(const ptd_recording* recording, uint32_t index, const char** out);

/* Losses reported by the kernel. Lost trace causes gaps in the flow. */
typedef struct ptd_lost {
  size_t size;
  uint64_t lost_records;  /* PERF_RECORD_LOST */
  uint64_t records;       /* the records that these count */
  uint64_t aux_truncated; /* AUX records with this flag: trace was lost because the buffer was full */
  uint64_t aux_partial;
  uint64_t aux_collision;
} ptd_lost;
PTD_C_API ptd_code ptd_get_lost(const ptd_recording* recording, ptd_lost* out);

/* A contradiction between records, code and trace: what `ptdecode check` lists, and the table "findings". */
typedef struct ptd_finding {
  size_t size;
  const char* kind; /* "poke_healed", ...; static */
  const char* what; /* a sentence. This and the bytes live until the recording is closed */
  uint64_t ip;
  int64_t first_ns, last_ns;
  const uint8_t* expected; /* the bytes that the record has */
  size_t expected_bytes;
  const uint8_t* found; /* the bytes that the code image had */
  size_t found_bytes;
  uint32_t space;
  uint32_t reserved;
} ptd_finding;
/* The first call of either for a recording reads its whole trace. */
PTD_C_API ptd_code ptd_finding_count(const ptd_recording* recording, uint32_t* out, char** message);
PTD_C_API ptd_code ptd_get_finding(const ptd_recording* recording, uint32_t index, ptd_finding* out, char** message);

/* What `ptdecode info --json` prints for this recording (schema ptdecode-info-1, docs/FORMAT-json.md): host, threads, streams, warnings,
 * missing code. Reads the records of the file once more; of a pipe, it has what the open recording knows. Free with ptd_free(). */
PTD_C_API ptd_code ptd_info_json(const ptd_recording* recording, char** out, char** message);

/* ---- Recordings from memory -------------------------------------------------------------------------------------------------------- */

/* Collects what a perf.data file would contain, for programs that own their ring buffers. Add in any order; ptd_builder_open() seals it.
 * Everything is copied into memory, which bounds the sizes. Bytes that contradict perf's formats give an error or a finding. */
typedef struct ptd_builder ptd_builder;
PTD_C_API ptd_code ptd_builder_new(ptd_builder** out, char** message);
PTD_C_API ptd_code ptd_builder_free(ptd_builder* builder);
/* A perf_event_attr as passed to perf_event_open(2), and the ids of its events (PERF_EVENT_IOC_ID). At least one is needed before records
 * are added. */
PTD_C_API ptd_code ptd_builder_add_attr(ptd_builder* builder, const void* attr, size_t attr_bytes, const uint64_t* ids, size_t id_count,
                                        const char* name, char** message);
/* Bytes of one ring buffer: whole perf records in the order of the ring. `ring` is any number the caller chooses (a cpu, say); a record may
 * be split between two calls. Allowed are records of types that only user space writes (AUXTRACE_INFO, ...), except those with a payload or
 * compressed records. All are sorted by time. A ring that ends inside a record gives a finding. An error ends the call at its record. */
PTD_C_API ptd_code ptd_builder_add_records(ptd_builder* builder, uint32_t ring, const void* bytes, size_t size_bytes, char** message);
/* Bytes of the AUX buffer of one cpu (tid -1) or thread (cpu -1). `offset_bytes`: of the first byte, as aux_tail and PERF_RECORD_AUX count
 * them; PTD_AUX_NEXT: they follow those of the call before. Repeated bytes are used once; two versions give a gap and a finding. */
#define PTD_AUX_NEXT 0x7fffffffffffffff
PTD_C_API ptd_code ptd_builder_add_aux(ptd_builder* builder, int32_t cpu, int32_t tid, uint64_t offset_bytes, const void* bytes,
                                       size_t size_bytes, char** message);
/* Code that was at [address, address + size_bytes) of process `pid` (-1: kernel) from `from_ns` on, until other code replaces it. For
 * code that is in no file. Of two codes of one moment, the later call counts. `name`: of these bytes as long as they are there; may be
 * NULL. */
PTD_C_API ptd_code ptd_builder_add_code(ptd_builder* builder, int32_t pid, uint64_t address, const void* bytes, size_t size_bytes,
                                        int64_t from_ns, const char* name, char** message);
/* A header feature of perf.data (HEADER_CPUID, HEADER_OSRELEASE, ...: tools/perf/util/header.h) as it is in the file. Not those that
 * describe the file itself: HEADER_AUXTRACE, HEADER_DIR_FORMAT, HEADER_COMPRESSED. */
PTD_C_API ptd_code ptd_builder_set_feature(ptd_builder* builder, uint32_t feature, const void* bytes, size_t size_bytes, char** message);
/* How Intel PT was configured; replaces an AUXTRACE_INFO record of Intel PT. Sources: perf_event_mmap_page,
 * /sys/bus/event_source/devices/intel_pt, CPUID. */
typedef struct ptd_pt_config {
  size_t size;
  uint32_t pmu_type;   /* .../intel_pt/type; the `type` of the attr */
  uint16_t time_shift; /* perf_event_mmap_page: time_ns = (tsc * time_mult >> time_shift) + time_zero */
  uint8_t snapshot;    /* nonzero: the AUX buffers were overwritten, and pieces of one may overlap */
  uint8_t reserved;
  uint32_t time_mult; /* 0: unknown; the recording is decoded without times */
  uint64_t time_zero;
  uint32_t tsc_ctc_ratio_n, tsc_ctc_ratio_d; /* CPUID leaf 15H: EBX, EAX */
  uint32_t max_nonturbo_ratio;               /* MSR_PLATFORM_INFO bits 15:8 */
  const char* cpuid;                         /* "GenuineIntel-6-8E-A": vendor-family-model-stepping, hex; for errata. NULL: unknown */
  const char* filter;                        /* the address filter that was set (PERF_EVENT_IOC_SET_FILTER), NULL: none */
} ptd_pt_config;
PTD_C_API ptd_code ptd_builder_set_pt(ptd_builder* builder, const ptd_pt_config* config, char** message);
/* Seals the builder and opens its content. The builder may be freed at once; it cannot be used again, even if this fails. */
PTD_C_API ptd_code ptd_builder_open(ptd_builder* builder, const ptd_open_options* options, ptd_recording** out, char** message);

/* ---- Cursors: the flow, item by item ----------------------------------------------------------------------------------------------- */

typedef struct ptd_cursor ptd_cursor;

typedef enum ptd_cursor_kind {
  PTD_CURSOR_FLOW = 0,     /* items: blocks, marks, events, gaps */
  PTD_CURSOR_BRANCHES = 1, /* items: branches, gaps. Streams are merged by the times of runs of branches */
  /* items: calls, pauses and losses in order of their ends; last, by thread, those open at the trace's end. Decodes on its own threads */
  PTD_CURSOR_CALLS = 2
} ptd_cursor_kind;

typedef struct ptd_cursor_options {
  size_t size;
  int32_t kind;               /* ptd_cursor_kind */
  uint32_t stream;            /* PTD_NONE: all streams, merged in order of time */
  int64_t first_ns, last_ns;  /* only this range. Calls that began before have no start, later ones are cut */
  const ptd_control* control; /* copied; callbacks and flag must stay valid until the cursor is freed */
  uint32_t threads;           /* calls: that decode; 0: one for each core */
  uint32_t reserved;
} ptd_cursor_options;
/* The flow of all streams. PTD_INIT chooses stream 0. */
#ifdef __cplusplus
#define PTD_CURSOR_OPTIONS_INIT (ptd_initial_of_all<ptd_cursor_options>())
#else
#define PTD_CURSOR_OPTIONS_INIT ((ptd_cursor_options){.size = sizeof(ptd_cursor_options), .stream = PTD_NONE})
#endif

typedef enum ptd_item_kind {
  PTD_ITEM_BLOCKS = 1,
  PTD_ITEM_MARK = 2, /* thread, address space, mode or time change: see the context fields of ptd_item */
  PTD_ITEM_EVENT = 3,
  PTD_ITEM_GAP = 4,
  PTD_ITEM_BRANCHES = 5,
  PTD_ITEM_CALL = 6
} ptd_item_kind;

/* ptd_block.flags and ptd_branch.flags */
enum {
  PTD_BLOCK_TAKEN = 1,          /* the block ends with a branch that was taken */
  PTD_BLOCK_ENDS_IN_BRANCH = 2, /* the last instruction is a branch; otherwise an event, a change of code or a loss ended the block */
  PTD_BLOCK_CHOSEN = 4,         /* several versions of the code were possible, and the packets left one */
  PTD_BLOCK_HEALED = 8,         /* a record of this version of the code was lost, and other records prove it */
  PTD_BLOCK_AMBIGUOUS = 16,     /* several versions of the code are possible: the block may be wrong */
  PTD_BLOCK_SUSPECT = 32,       /* records were lost or packets contradict the code nearby: the block may be wrong */
  PTD_BLOCK_ASSUMED = 64        /* nothing proves that the file with this code is the recorded one */
};

/* How instruction bytes are to be read. */
typedef enum ptd_mode {
  PTD_MODE_UNKNOWN = 0,
  PTD_MODE_16BIT = 1,
  PTD_MODE_32BIT = 2,
  PTD_MODE_64BIT = 3,
  PTD_MODE_A64 = 4,
  PTD_MODE_A32 = 5,
  PTD_MODE_T32 = 6
} ptd_mode;

/* Instructions that ran one after the other, up to a branch or an event. */
typedef struct ptd_block {
  uint64_t ip;
  const uint8_t* code; /* the executed bytes; live until the cursor is freed */
  uint32_t code_bytes;
  uint32_t id;           /* the same for blocks of this stream with the same ip, space and bytes, for caches; counts from 0 */
  uint16_t instructions; /* retired, at least 1 */
  uint16_t flags;
  uint8_t mode; /* ptd_mode */
  uint8_t reserved[3];
} ptd_block;

/* Later versions may add kinds. */
typedef enum ptd_event_kind {
  PTD_EVENT_ENABLED = 0, /* tracing starts at `to` */
  /* tracing ends with the branch at `from`, which left the traced code for `to`; aux: where it would resume */
  PTD_EVENT_DISABLED = 1,
  PTD_EVENT_ASYNC_DISABLED = 2, /* tracing ends before the instruction at `from` */
  /* interrupt, fault or trap before the instruction at `from`, to `to`; Arm: payload is its type */
  PTD_EVENT_ASYNC_BRANCH = 3,
  PTD_EVENT_EXEC_MODE = 4, /* payload: ptd_mode from `to` on */
  PTD_EVENT_PAGING = 5,    /* payload: CR3 */
  PTD_EVENT_VMCS = 6,      /* payload: base of the VMCS */
  PTD_EVENT_TSX_BEGIN = 7,
  PTD_EVENT_TSX_COMMIT = 8,
  PTD_EVENT_TSX_ABORT = 9,
  PTD_EVENT_OVERFLOW = 10, /* the processor lost packets; the flow resumes at `to` */
  PTD_EVENT_TRACE_STOP = 11,
  PTD_EVENT_PTWRITE = 12, /* payload, at `from` */
  PTD_EVENT_EXSTOP = 13,
  PTD_EVENT_MWAIT = 14,
  PTD_EVENT_PWRE = 15,
  PTD_EVENT_PWRX = 16,
  PTD_EVENT_CBR = 17,
  PTD_EVENT_MNT = 18,
  PTD_EVENT_CFE = 19, /* payload: type | vector << 8 */
  PTD_EVENT_EVD = 20, /* payload: data; aux: type */
  PTD_EVENT_PEBS_BEGIN = 21,
  PTD_EVENT_PEBS_ITEM = 22,
  PTD_EVENT_PEBS_END = 23,
  PTD_EVENT_TRIG = 24, /* payload: trigger bit vector; aux 1: other triggers fired too */
  /* Arm. payload: CONTEXTIDR; aux: VMID | level << 32 | non-secure << 34 | root or realm << 35 | AArch64 << 36 */
  PTD_EVENT_CONTEXT = 25,
  PTD_EVENT_EXCEPTION_RETURN = 26,
  PTD_EVENT_TRACE_EVENT = 27,     /* payload: one bit for each resource */
  PTD_EVENT_INSTRUMENTATION = 28, /* payload: a value that software wrote; aux: exception level */
  PTD_EVENT_SYNC_MARKER = 29,
  /* payload instructions (0: unknown) ran from `from` to `to` untraced; x86: rounds of a loop */
  PTD_EVENT_SKIPPED = 30,
  PTD_EVENT_IGNORED_PACKETS = 31, /* payload: how many packets of data trace */
  PTD_EVENT_INTERRUPT_FLAG = 32   /* payload: RFLAGS.IF from `to` on */
} ptd_event_kind;
/* ptd_event.flags */
enum {
  PTD_EVENT_HAS_FROM = 1,         /* `from` is valid */
  PTD_EVENT_HAS_TO = 2,           /* `to` is valid */
  PTD_EVENT_FLAG_NON_ROOT = 4,    /* in a guest */
  PTD_EVENT_FLAG_RESUMED = 8,     /* PTD_EVENT_ENABLED at the ip where tracing was disabled */
  PTD_EVENT_FLAG_STATUS = 16,     /* state repeated at a sync point, not a change */
  PTD_EVENT_FLAG_BREAKPOINT = 32, /* PTD_EVENT_ASYNC_BRANCH to the #BP handler: an INT3 was hit at `from` */
  PTD_EVENT_FLAG_SYSCALL = 64     /* PTD_EVENT_ASYNC_BRANCH, Arm: the instruction before `from` is the SVC that caused it */
};

typedef struct ptd_event {
  uint8_t kind;                    /* ptd_event_kind */
  uint8_t flags;                   /* PTD_EVENT_HAS_*, PTD_EVENT_FLAG_* */
  const char* name;                /* of the kind: "ptwrite"; static */
  uint64_t from, to, payload, aux; /* `from` and `to`: valid by flags */
  uint64_t offset_bytes;           /* of the packet in its stream */
} ptd_event;

/* Later versions may add reasons. */
typedef enum ptd_gap_reason {
  PTD_GAP_OVERFLOW = 0,       /* the processor lost packets */
  PTD_GAP_AUX_LOST = 1,       /* the recorder lost trace bytes */
  PTD_GAP_BAD_PACKET = 2,     /* an invalid packet, or one that is not allowed at this point */
  PTD_GAP_NO_IMAGE = 3,       /* no code bytes at `ip` */
  PTD_GAP_IMAGE_MISMATCH = 4, /* the packets do not fit the code bytes at `ip` */
  PTD_GAP_BAD_INSN = 5,       /* the bytes at `ip` are no instruction */
  PTD_GAP_LIMIT = 6,          /* a bound of the decoder was reached */
  PTD_GAP_UNKNOWN_RETURN = 7, /* the return at `ip` is compressed, and its call is not in the decoded flow */
  /* Arm: branches up to a sync point or the end of the trace were never committed: whether they ran is unknown */
  PTD_GAP_UNCOMMITTED = 8
} ptd_gap_reason;

typedef struct ptd_gap {
  uint8_t reason;        /* ptd_gap_reason */
  const char* name;      /* "no_image"; static */
  const char* sentence;  /* for people; static */
  uint64_t ip;           /* where the flow was lost, 0: unknown */
  uint64_t offset_bytes; /* of the packet at which the loss was noticed */
  uint64_t lost_bytes;   /* of trace skipped */
} ptd_gap;

/* A change of flow: a branch that was taken, an interrupt, or the start or end of tracing. */
typedef struct ptd_branch {
  uint64_t from, to;     /* 0: unknown, or outside of the trace */
  const char* kind;      /* "call", "jcc", "hw int", "tr strt", "tr end  call", ...: `flags` in docs/FORMAT-json.md; static */
  uint32_t instructions; /* executed since the branch before, in the same stream */
  uint16_t flags;        /* PTD_BLOCK_*: how certain the code of the branch is */
  uint16_t reserved;
} ptd_branch;

/* The fields of docs/FORMAT-json.md, "ptdecode-calls-1". */
typedef struct ptd_call {
  const char* what;     /* "call", "pause" or "lost"; static */
  const char* kind;     /* call: "call", "tail", "interrupt", "syscall", "root"; pause: "off_cpu", "untraced", "lost"; lost: the reason */
  const char* function; /* demangled; "libc.so.6+0x1234" without a symbol, "a.c:f" if several are called f; lives as long as the cursor */
  const char* module;
  const char* comm; /* name of the thread when the call began, "" if unknown; lives as long as the cursor */
  uint32_t depth;
  uint8_t start_seen, end_seen;
  uint8_t kernel;    /* pause: the thread ran in the kernel, which is not traced */
  uint8_t estimated; /* start_ns, end_ns and durations are estimates: flow or a TSC is missing beside the call */
  int64_t start_ns, end_ns;
  uint64_t self_ns, off_cpu_ns, untraced_ns, lost_ns; /* 0 if start_ns is PTD_TIME_UNKNOWN */
  uint64_t instructions, self_instructions, cycles, self_cycles;
} ptd_call;

typedef struct ptd_item {
  size_t size;
  int32_t kind; /* ptd_item_kind: which member of the union is valid */
  uint32_t stream;
  int32_t pid, tid, cpu; /* -1: unknown. cpu: of a per-cpu stream */
  uint32_t space;        /* address space, for ptd_place; PTD_NONE: unknown */
  uint32_t mode;         /* ptd_mode, for ptd_place */
  uint32_t reserved;
  uint64_t cycles;                     /* core cycles counted since the stream's last sync point, 0 if the trace has none */
  int64_t time_ns;                     /* the likeliest time. It never decreases within a stream */
  int64_t time_first_ns, time_last_ns; /* its bounds, which contain it; PTD_TIME_UNKNOWN: none on this side */
  union {
    struct {
      const ptd_block* blocks; /* live until the next call with this cursor */
      size_t count;
    } blocks;
    ptd_event event;
    ptd_gap gap;
    struct {
      const ptd_branch* branches; /* consecutive; live until the next call with this cursor */
      size_t count;
    } branches;
    ptd_call call;
    uint64_t reserved[32]; /* the union never grows beyond this */
  } u;
} ptd_item;

PTD_C_API ptd_code ptd_cursor_open(const ptd_recording* recording, const ptd_cursor_options* options, ptd_cursor** out, char** message);
/* Moves to the next item. PTD_END: there are no more; further calls return it again. */
PTD_C_API ptd_code ptd_cursor_next(ptd_cursor* cursor, ptd_item* item, char** message);
/* Ends the cursor and its threads. NULL is allowed. */
PTD_C_API ptd_code ptd_cursor_free(ptd_cursor* cursor);

/* ---- Code and names ---------------------------------------------------------------------------------------------------------------- */

typedef struct ptd_place {
  size_t size;
  uint32_t space; /* of ptd_item, or of ptd_space_of(). Ignored for kernel addresses */
  uint32_t mode;  /* ptd_disassemble: ptd_block.mode; 0: 64-bit code of the recording's architecture */
  uint64_t ip;
  int64_t time_ns; /* PTD_TIME_UNKNOWN: any time */
} ptd_place;
/* Finds the address space of a process at a given time (PTD_TIME_UNKNOWN: its last). *out is PTD_NONE if none is known. */
PTD_C_API ptd_code ptd_space_of(const ptd_recording* recording, int32_t pid, int64_t time_ns, uint32_t* out);

/* Reads the bytes live at a place: writes up to `capacity` contiguous bytes to `bytes`, and to *count how many were written, 0 if none are
 * known. If several contents are possible at that time, these are the first; *versions (may be NULL) gets their number in the first 15
 * bytes. */
PTD_C_API ptd_code ptd_code_at(const ptd_recording* recording, const ptd_place* place, uint8_t* bytes, size_t capacity, size_t* count,
                               uint32_t* versions, char** message);
/* Disassembles instructions from a place on, one per line, "ADDRESS\tBYTES\tTEXT\n", both in hex. Ends early where the bytes are not
 * known. At most 65536 instructions. Free with ptd_free(). */
PTD_C_API ptd_code ptd_disassemble(const ptd_recording* recording, const ptd_place* place, uint32_t instructions, char** out,
                                   char** message);

typedef struct ptd_symbol {
  size_t size;
  const char* name; /* demangled, "" if unknown. Strings live until the recording is closed */
  const char* module;
  uint64_t offset_bytes; /* of the ip in the symbol */
  uint64_t start;        /* address of the symbol */
  uint64_t size_bytes;   /* 0: not recorded */
  const char* file;      /* of the source line, "" if unknown */
  uint32_t line;
  uint32_t reserved;
} ptd_symbol;
/* Finds the symbol at a place. The first look-up in a file reads its symbols and debug information, which cannot be cancelled. */
PTD_C_API ptd_code ptd_symbol_at(const ptd_recording* recording, const ptd_place* place, ptd_symbol* out, char** message);

/* ---- Tables: Arrow C data interface ------------------------------------------------------------------------------------------------ */

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
#endif

typedef struct ptd_table_options {
  size_t size;
  const char* const* columns;   /* names, ending with NULL, at least one; NULL: the table's default columns (docs/TABLES.md) */
  const char* const* functions; /* any names of functions, or globs, as columns: only calls and rows of these; NULL: all */
  uint32_t stream;              /* PTD_NONE: all, as ptd_cursor_options.stream */
  int32_t cpu, pid, tid;        /* -1: all */
  int64_t first_ns, last_ns;    /* only rows of this range */
  uint32_t batch_rows;          /* 0: 65536 */
  uint32_t threads;             /* that decode; 0: one for each core */
  const ptd_control* control;   /* copied; callbacks and flag must stay valid until the stream is released */
} ptd_table_options;
#ifdef __cplusplus
#define PTD_TABLE_OPTIONS_INIT (ptd_table_options{sizeof(ptd_table_options), nullptr, nullptr, PTD_NONE, -1, -1, -1, 0, 0, 0, 0, nullptr})
#else
#define PTD_TABLE_OPTIONS_INIT ((ptd_table_options){.size = sizeof(ptd_table_options), .stream = PTD_NONE, .cpu = -1, .pid = -1, .tid = -1})
#endif

/* A table as a stream of record batches: one of ptd_table_names(), whose columns docs/TABLES.md has. Rows are made while it is read, so
 * memory does not grow with the trace. *out is released by its own release(); if the call fails, *out is not touched. `options` may be
 * NULL. While the stream is in use, other calls return EBUSY, and release() takes effect when that use ends, with ECANCELED. Errors:
 * PTD_ERROR_INVALID_ARGUMENT for an unknown table or column, PTD_ERROR_NO_SUCH_STREAM, PTD_ERROR_NOT_RECORDED if the table cannot be read
 * from this form of recording (samples of a pipe). */
PTD_C_API ptd_code ptd_table(const ptd_recording* recording, const char* table, const ptd_table_options* options,
                             struct ArrowArrayStream* out, char** message);
/* The code of a stream's last failure, of which errno tells fewer kinds apart: PTD_OK if there was none, PTD_ERROR_INVALID_HANDLE if the
 * stream is not of ptd_table(). EBUSY sets none. */
PTD_C_API ptd_code ptd_stream_code(const struct ArrowArrayStream* stream);
PTD_C_API const char* ptd_table_names(void); /* one per line; static */

#ifdef __cplusplus
}
#endif
